/* Finds the devices of a PJRT plug-in: the one in tests/pjrt_plugin, and files that are no plug-ins. */
#include "lockstep/compile.h"
#include "lockstep/dist.h"
#include "lockstep/pjrt.h"
#include "base/mem_testing.h"
#include "training.h"

#include <dlfcn.h>
#include <math.h>

static const char *plugin; /* $LOCKSTEP_TEST_PJRT_PLUGIN */

static void says(const char *mode)
{
    setenv("LOCKSTEP_TEST_PJRT", mode, 1);
    lk_error_clear();
}

static int nothing_is_left(void **state)
{
    (void)state;
    void *library = dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
    int (*left)(void);
    *(void **)&left = library ? dlsym(library, "lk_test_pjrt_left") : NULL;
    return left && left() == 0 ? 0 : -1;
}

static void devices_are_found(void **state)
{
    (void)state;
    lk_pjrt *pjrt;
    says("");
    assert_ok(lk_pjrt_find(plugin, &pjrt));
    assert_string_equal(pjrt->path, plugin);
    assert_int_equal(pjrt->major, 0);
    assert_int_equal(pjrt->minor, 81);
    assert_string_equal(pjrt->platform, "test");
    assert_string_equal(pjrt->version, "first line second line");
    assert_int_equal(pjrt->n_devices, 2);
    assert_string_equal(pjrt->devices[0], "TEST_0(process=0)");
    assert_string_equal(pjrt->devices[1], "TEST_1 [2J(process=0)");
    lk_pjrt_release(pjrt);
    says("no device");
    assert_ok(lk_pjrt_find(plugin, &pjrt));
    assert_int_equal(pjrt->n_devices, 0);
    lk_pjrt_release(pjrt);
    says("no version");
    assert_ok(lk_pjrt_find(plugin, &pjrt));
    assert_string_equal(pjrt->version, "");
    lk_pjrt_release(pjrt);
    lk_pjrt_release(NULL);
}

static void errors_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        lk_status status;
        const char *message;
    } cases[] = {
        {"no set-up", LK_ERR_BACKEND, ": its set-up: the set-up failed"},
        {"no client", LK_ERR_BACKEND, ": a client: the device is in use by process 7"},
        {"no description", LK_ERR_BACKEND, ": a device's description: it went away"},
        {"many devices", LK_ERR_BACKEND, ": says that it has 1099511627776 devices"},
        {"no end", LK_ERR_BACKEND, ": the end of a client: it would not end"},
        {"version 1", LK_ERR_UNSUPPORTED, ": is built for PJRT 1.81; versions 0.x are known"},
        {"a short table", LK_ERR_UNSUPPORTED, ": its table of functions (PJRT 0.81) has "},
        {"no table", LK_ERR_UNSUPPORTED, ": GetPjrtApi gives no table of PJRT's functions"},
        {"nothing", LK_ERR_UNSUPPORTED, ": GetPjrtApi gives no table of PJRT's functions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lk_pjrt *pjrt;
        says(cases[i].mode);
        assert_int_equal(lk_pjrt_find(plugin, &pjrt), cases[i].status);
        assert_null(pjrt);
        if (strncmp(lk_error_message(), plugin, strlen(plugin)) != 0 || !strstr(lk_error_message(), cases[i].message))
            fail_msg("%s: says %s", cases[i].mode, lk_error_message());
    }
    lk_error_clear();
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    int rounds = 0;
    says("");
    for (failing f = fail_every(1); fail_next(&f); rounds++) {
        lk_pjrt *pjrt;
        stop_failing_with(&f, lk_pjrt_find(plugin, &pjrt));
        assert_true((pjrt == NULL) == f.reached);
        lk_pjrt_release(pjrt);
    }
    assert_true(rounds > 5);
    lk_error_clear();
}

static void plugins_come_from_the_environment(void **state)
{
    (void)state;
    lk_pjrt *pjrt;
    says("");
    unsetenv("PJRT_PLUGIN_LIBRARY_PATH");
    unsetenv("TPU_LIBRARY_PATH");
    assert_null(lk_pjrt_default_path());
    assert_int_equal(lk_pjrt_find(NULL, &pjrt), LK_ERR_NOT_FOUND);
    assert_non_null(strstr(lk_error_message(), "no PJRT plug-in is named: give its file, libtpu.so for TPUs, with "));
    lk_error_clear();
    setenv("TPU_LIBRARY_PATH", "/nowhere/libtpu.so", 1);
    assert_int_equal(lk_pjrt_find(NULL, &pjrt), LK_ERR_DEVICE);
    assert_non_null(strstr(lk_error_message(), "PJRT plug-in: /nowhere/libtpu.so: "));
    lk_error_clear();
    setenv("PJRT_PLUGIN_LIBRARY_PATH", plugin, 1);
    assert_ok(lk_pjrt_find(NULL, &pjrt));
    assert_string_equal(pjrt->path, plugin);
    lk_pjrt_release(pjrt);
    assert_int_equal(lk_pjrt_find("libz.so.1", &pjrt), LK_ERR_UNSUPPORTED);
    assert_string_equal(lk_error_message(), "libz.so.1: is no PJRT plug-in: it exports no GetPjrtApi");
    lk_error_clear();
    unsetenv("PJRT_PLUGIN_LIBRARY_PATH");
    unsetenv("TPU_LIBRARY_PATH");
}

/* The same list, from another process, and what ends that process. */
static void devices_are_found_in_time(void **state)
{
    (void)state;
    lk_pjrt *pjrt;
    says("");
    assert_ok(lk_pjrt_find_within(plugin, 60, &pjrt));
    assert_string_equal(pjrt->path, plugin);
    assert_int_equal(pjrt->minor, 81);
    assert_string_equal(pjrt->platform, "test");
    assert_string_equal(pjrt->version, "first line second line");
    assert_int_equal(pjrt->n_devices, 2);
    assert_string_equal(pjrt->devices[0], "TEST_0(process=0)");
    lk_pjrt_release(pjrt);
    says("no version");
    assert_ok(lk_pjrt_find_within(plugin, INFINITY, &pjrt));
    assert_string_equal(pjrt->version, "");
    lk_pjrt_release(pjrt);
    says("version 1");
    assert_int_equal(lk_pjrt_find_within(plugin, 60, &pjrt), LK_ERR_UNSUPPORTED);
    assert_non_null(strstr(lk_error_message(), ": is built for PJRT 1.81; versions 0.x are known"));
    lk_error_clear();
    says("no answer");
    assert_int_equal(lk_pjrt_find_within(plugin, 0.1, &pjrt), LK_ERR_DEVICE);
    assert_non_null(strstr(lk_error_message(), ": has not listed its devices within 0.1 s"));
    lk_error_clear();
    says("crash");
    assert_int_equal(lk_pjrt_find_within(plugin, 60, &pjrt), LK_ERR_DEVICE);
    assert_non_null(strstr(lk_error_message(), ": ended by signal 6 while it looked for devices"));
    lk_error_clear();
}

static void expect_no_trainer(lk_train_config *config, lk_status status, const char *message)
{
    assert_null(lk_trainer_new(config));
    assert_int_equal(lk_error_status(), status);
    if (!strstr(lk_error_message(), message))
        fail_msg("says %s", lk_error_message());
    lk_error_clear();
}

/* A plug-in that cannot train is named, with what it says. Its client stays until the process ends. */
static void a_plugin_that_cannot_train_is_named(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.strategy = "tpu";
    config.devices.pjrt = plugin;
    says("no device");
    expect_no_trainer(&config, LK_ERR_DEVICE, "strategy tpu: the plug-in has no device (platform test, PJRT 0.81, ");
    assert_ok(lk_pjrt_use("/nowhere/libtpu.so"));
    says("");
    expect_no_trainer(&config, LK_ERR_BACKEND, ": a copy to a device: the device has no memory");
    config.devices.spec = "2xtpu";
    expect_no_trainer(&config, LK_ERR_DEVICE, " are of platform test; pjrt:0 names any");
    config.devices.spec = "pjrt:2";
    expect_no_trainer(&config, LK_ERR_DEVICE, "pjrt:2: there is no such device: ");
    config.devices.spec = "cpu";
    config.devices.strategy = NULL;
    expect_no_trainer(&config, LK_ERR_ARGUMENT, "--pjrt: cpu:0 has no use for a plug-in; devices pjrt:0, ");
    config.devices.spec = "cpu,pjrt:0";
    expect_no_trainer(&config, LK_ERR_ARGUMENT, "strategy: cpu:0 and pjrt:0 compute different bits");
    config.devices.spec = "cpu";
    config.devices.strategy = "tpu";
    config.devices.pjrt = "/nowhere/libtpu.so";
    expect_no_trainer(&config, LK_ERR_STATE, " is in use; a process cannot use /nowhere/libtpu.so as well");
    config.devices.pjrt = NULL;
    expect_no_trainer(&config, LK_ERR_ARGUMENT, "strategy tpu: is for devices of a PJRT plug-in, and cpu:0 is none");
}

static void compiling_leaves_out_what_it_does_not_use(void **state)
{
    (void)state;
    lk_compile_result result;
    lk_train_config config = training_of(20, 0, 8, 2);
    config.stop.target_accuracy = 0.9;
    config.checkpoints.dir = "/dev/null/checkpoints";
    config.devices.strategy = "parameter-server";
    config.servers.keys = "/nowhere/chief.key";
    says("");
    lk_compile_opts opts = {.plugin = plugin, .topology = "v5e:2x2"};
    expect_failure(lk_compile(&config, &opts, &result), LK_ERR_BACKEND, ": a topology: no topology is known");
    assert_int_equal(result.samples, 4);
}

int main(void)
{
    plugin = getenv("LOCKSTEP_TEST_PJRT_PLUGIN");
    if (!plugin) {
        puts("SKIP: LOCKSTEP_TEST_PJRT_PLUGIN does not name the test's plug-in; CTest does");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(devices_are_found, nothing_is_left),
        cmocka_unit_test_teardown(errors_are_named, nothing_is_left),
        cmocka_unit_test_teardown(every_allocation_may_fail, nothing_is_left),
        cmocka_unit_test_teardown(plugins_come_from_the_environment, nothing_is_left),
        cmocka_unit_test_teardown(devices_are_found_in_time, nothing_is_left),
        cmocka_unit_test(a_plugin_that_cannot_train_is_named),
        cmocka_unit_test(compiling_leaves_out_what_it_does_not_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
