#include "base/status_testing.h"
#include "lockstep/dist.h"

#include <sys/resource.h>
#include <unistd.h>

static void test_limit(void **state)
{
    (void)state;
    struct rlimit before, limit;
    for (int inherited = 3; inherited < 1024; inherited++)
        close(inherited);
    int first = dup(0);
    assert_int_equal(first, 3);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)first + 8;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_ok(lk_check_open_files("this", 7));
    expect_failure(lk_check_open_files("this", 8), LK_ERR_IO, "this: has to open 8 more files, and 7 of the ");
    close(first);
    assert_ok(lk_check_open_files("this", 8));
    expect_failure(lk_check_open_files("this", 9), LK_ERR_IO, "ulimit -n");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_ok(lk_check_open_files("this", 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
