/* Folders that take each other's place, and what is removed with them. */
#include "io/io_testing.h"

#include "io/durable.h"
#include "lockstep/status.h"

/* --- removing ----------------------------------------------------------------------------------------------------- */

static void of_a_link_the_link_alone_goes(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_dir("kept"), 0700), 0);
    put_file(in_dir("kept/file"), "kept");
    assert_int_equal(symlink("kept", in_dir("link")), 0);
    assert_int_equal(symlink("nowhere", in_dir("lost")), 0);
    assert_int_equal(lk__remove_folder(in_dir("link")), LK_OK);
    assert_int_equal(lk__remove_folder(in_dir("lost")), LK_OK);
    assert_int_equal(files_in_dir(test_dir), 1);
    assert_contents(in_dir("kept/file"), "kept");
    assert_int_equal(lk__remove_folder(in_dir("kept")), LK_OK);
    assert_int_equal(files_in_dir(test_dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_a_link_the_link_alone_goes, make_test_dir, remove_test_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
