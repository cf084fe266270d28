/* Keeping the plans of convolutions, which any bytes stand for here. tests/gpu/cudnn_plans.c keeps real ones. */
#include "cuda/cuda_plans.h"

#include "base/status_testing.h"
#include "lockstep/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "a GPU, cuDNN 91900: 1 2 3", plan[] = "cudnn:eng1\nkernels";
static int n_warnings;
static char warning[512];
static bool is_loaded;

static void keep_warning(void *user, lk_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, LK_LOG_WARNING);
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static void check_plan(void *user, const char *loaded, size_t bytes)
{
    (void)user;
    is_loaded = bytes == sizeof plan && memcmp(loaded, plan, bytes) == 0;
}

/* Saves a plan and loads it again. */
static bool is_kept(void)
{
    is_loaded = false;
    lk__cuda_plan_files.save(key, plan, sizeof plan);
    lk__cuda_plan_files.load(key, check_plan, NULL);
    return is_loaded;
}

/* The first warning is the only one, whatever the reason. */
static void test_plans_that_cannot_be_kept(void **state)
{
    (void)state;
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    assert_false(is_kept());
    assert_int_equal(n_warnings, 1);
    assert_string_equal(warning, "plans of convolutions are not kept, so each process makes them again: HOME and "
                                 "XDG_CACHE_HOME: neither names a folder");
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    assert_false(is_kept());
    assert_int_equal(n_warnings, 1);
}

static void test_kept_plans(void **state)
{
    char folder[] = "/tmp/cuda_plans_test.XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_true(is_kept());
    is_loaded = false;
    lk__cuda_plan_files.load("another key", check_plan, NULL);
    assert_false(is_loaded);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(n_warnings, 1);
}

int main(void)
{
    lk_log_set(keep_warning, NULL, LK_LOG_WARNING);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_that_cannot_be_kept),
        cmocka_unit_test(test_kept_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
