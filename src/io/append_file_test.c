#include "io/io_testing.h"

#include "io/append_file.h"

#include <fcntl.h>

static void put(lk_append_file *file, const char *text)
{
    assert_int_equal(lk__append(file, text, strlen(text)), LK_OK);
}

/* A mark depends only on the bytes in the file, not on earlier marks and cuts. */
static void expect_mark(lk_append_file *file, int64_t bytes)
{
    lk_append_file fresh;
    lk_file_mark mark = lk__append_mark(file);
    assert_int_equal(lk__append_open(&fresh, file->path, 0), LK_OK);
    lk_file_mark whole = lk__append_mark(&fresh);
    lk__append_close(&fresh);
    assert_int_equal(mark.bytes, bytes);
    assert_int_equal(mark.bytes, whole.bytes);
    assert_true(mark.hash == whole.hash);
    assert_true(lk__file_has_mark(file->path, mark));
}

static void marks_follow_a_file_that_grows_and_is_cut(void **state)
{
    (void)state;
    lk_append_file file;
    assert_int_equal(lk__append_open(&file, in_dir("a.csv"), O_TRUNC), LK_OK);
    expect_mark(&file, 0);
    put(&file, "one\n");
    expect_mark(&file, 4);
    lk_file_mark one = lk__append_mark(&file);
    for (int line = 0; line < 20000; line++) /* more than one read returns */
        put(&file, "two, three, four\n");
    expect_mark(&file, 4 + 20000 * 17);
    assert_int_equal(lk__append_cut(&file, 4), LK_OK);
    put(&file, "other\n");
    expect_mark(&file, 10);
    assert_true(lk__file_has_mark(file.path, one));
    assert_int_equal(lk__append_cut(&file, 2), LK_OK);
    assert_false(lk__file_has_mark(file.path, one));
    expect_mark(&file, 2);
    put(&file, "e\n");
    assert_true(lk__file_has_mark(file.path, one));
    lk__append_close(&file);
}

/* Bytes that were cut outside have no mark; once others have been appended the mark works again. */
static void a_file_that_was_emptied_has_no_mark(void **state)
{
    (void)state;
    lk_append_file file;
    assert_int_equal(lk__append_open(&file, in_dir("b.csv"), O_TRUNC), LK_OK);
    put(&file, "one\n");
    assert_int_equal(truncate(file.path, 0), 0);
    assert_int_equal(lk__append_mark(&file).bytes, -1);
    assert_int_equal(lk__append_cut(&file, 0), LK_OK);
    put(&file, "two\n");
    expect_mark(&file, 4);
    lk__append_close(&file);
}

static void a_file_that_is_open_is_held(void **state)
{
    (void)state;
    lk_append_file file, other;
    assert_false(lk__append_is_held(in_dir("c.csv")));
    assert_int_equal(lk__append_open(&file, in_dir("c.csv"), 0), LK_OK);
    assert_true(lk__append_is_held(file.path));
    assert_true(lk__append_is_held(file.path)); /* asking does not take the lock away */
    assert_int_equal(lk__append_open(&other, file.path, 0), LK_OK);
    lk__append_close(&other);
    assert_true(lk__append_is_held(file.path));
    lk__append_close(&file);
    assert_false(lk__append_is_held(in_dir("c.csv")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(marks_follow_a_file_that_grows_and_is_cut),
                                       cmocka_unit_test(a_file_that_was_emptied_has_no_mark),
                                       cmocka_unit_test(a_file_that_is_open_is_held)};
    return cmocka_run_group_tests_name("append_file", tests, make_test_dir, remove_test_dir);
}
