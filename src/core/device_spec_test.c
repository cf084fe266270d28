#include "core/device_spec.h"

#include "core/backend.h"
#include "lockstep/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* "cpu:0 cpu:1" */
static void join(const lk_device_spec_entry *entries, int count, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s:%d", i ? " " : "", entries[i].kind, entries[i].index);
}

static void test_every_form(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *expected;
    } cases[] = {
        {"cpu", "cpu:0"},
        {"cpu:3", "cpu:3"},
        {"1xcpu", "cpu:0"},
        {"3xcpu", "cpu:0 cpu:1 cpu:2"},
        {"2xcpu:0", "cpu:0 cpu:0"},
        {"2xcpu:7", "cpu:7 cpu:7"},
        {"002xcpu:01", "cpu:1 cpu:1"},
        {"cpu:0,cpu:2", "cpu:0 cpu:2"},
        {"cpu:65535", "cpu:65535"},
        {"ref,2xcpu,ref:4", "ref:0 cpu:0 cpu:1 ref:4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_device_spec_entry entries[LK_MAX_DEVICES];
        char text[256];
        int count, counted;
        assert_int_equal(lk__device_spec_parse(cases[i].spec, entries, LK_MAX_DEVICES, &count), LK_OK);
        join(entries, count, text, sizeof text);
        assert_string_equal(text, cases[i].expected);
        assert_int_equal(lk_devices_count(cases[i].spec, &counted), LK_OK);
        assert_int_equal(counted, count);
    }
}

static void test_a_bare_number_means_the_best_kind(void **state)
{
    (void)state;
    const char *best = NULL;
    for (int i = 0; lk__backends[i] && !best; i++)
        if (lk__backends[i]->may_be_best && lk__backends[i]->may_be_best() && lk__backends[i]->available() > 0)
            best = lk__backends[i]->kind;
    for (int i = 0; lk__backends[i] && !best; i++)
        if (lk__backends[i]->available() > 0)
            best = lk__backends[i]->kind;
    assert_non_null(best);

    lk_device_spec_entry entries[LK_MAX_DEVICES];
    int count;
    assert_int_equal(lk__device_spec_parse("256", entries, LK_MAX_DEVICES, &count), LK_OK);
    assert_int_equal(count, 256);
    for (int i = 0; i < count; i++) {
        assert_string_equal(entries[i].kind, best);
        assert_int_equal(entries[i].index, i);
    }
}

static void test_errors_say_what_would_be_right(void **state)
{
    (void)state;
#define FORMS "a device is KIND, KIND:INDEX, NxKIND, NxKIND:INDEX or N, as in cpu, cpu:1, 2xcpu"
#define AFTER_COLON "after ':' comes the device's number, from 0, as in cpu:0, not "
    static const struct {
        const char *spec, *message;
    } cases[] = {
        {NULL, "device: NULL is no device; " FORMS},
        {"", "device: an empty name; " FORMS},
        {"cpu,", "device: an empty name; " FORMS},
        {",cpu", "device: an empty name; " FORMS},
        {"cpu,,cpu", "device: an empty name; " FORMS},
        {"0xcpu", "device '0xcpu': the number of devices must be 1 to 256, not 0"},
        {"0", "device '0': the number of devices must be 1 to 256, not 0"},
        {"257", "device '257': the number of devices must be 1 to 256, not 257"},
        {"99999999999999999999xcpu",
         "device '99999999999999999999xcpu': the number of devices must be 1 to 256, not 99999999999999999999"},
        {"-1", "device '-1': a number of devices has no sign; " FORMS},
        {"+2xcpu", "device '+2xcpu': a number of devices has no sign; " FORMS},
        {"cpu:", "device 'cpu:': " AFTER_COLON "''"},
        {"cpu:x", "device 'cpu:x': " AFTER_COLON "'x'"},
        {"cpu:-1", "device 'cpu:-1': " AFTER_COLON "'-1'"},
        {"cpu:1:2", "device 'cpu:1:2': " AFTER_COLON "'1:2'"},
        {"cpu:65536", "device 'cpu:65536': the device's number must be 0 to 65535"},
        {"cpu:99999999999999999999", "device 'cpu:99999999999999999999': the device's number must be 0 to 65535"},
        {"2x", "device '2x': after a number of devices comes x and their kind, as in 2xcpu"},
        {"2cpu", "device '2cpu': after a number of devices comes x and their kind, as in 2xcpu"},
        {"2:0", "device '2:0': after a number of devices comes x and their kind, as in 2xcpu"},
        {"2*cpu", "device '2*cpu': write x, not *, which shells expand: 2xcpu"},
        {"*", "device '*': write x, not *, which shells expand: 2xcpu"},
        {"200xcpu,57xcpu", "device: more than 256 devices are named, which is the most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count = -1;
        lk_error_clear();
        assert_int_equal(lk_devices_count(cases[i].spec, &count), LK_ERR_ARGUMENT);
        assert_string_equal(lk_error_message(), cases[i].message);
        assert_int_equal(count, 0);
    }
    lk_error_clear();
}

static void test_an_unknown_kind_lists_what_can_be_used(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *message;
    } cases[] = {
        {"3xgpu", "device '3xgpu': unknown kind 'gpu': devices that can be used here are cpu"},
        {"cpu,gpu:1", "device 'gpu:1': unknown kind 'gpu': devices that can be used here are cpu"},
        {"CPU", "device 'CPU': unknown kind 'CPU': devices that can be used here are cpu"},
        {"cp", "device 'cp': unknown kind 'cp': devices that can be used here are cpu"},
        {" cpu", "device ' cpu': unknown kind ' cpu': devices that can be used here are cpu"},
        {":0", "device ':0': unknown kind '': devices that can be used here are cpu"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count;
        lk_error_clear();
        assert_int_equal(lk_devices_count(cases[i].spec, &count), LK_ERR_ARGUMENT);
        assert_memory_equal(lk_error_message(), cases[i].message, strlen(cases[i].message));
        const char *kinds = strstr(lk_error_message(), "here are ");
        for (int k = 0; lk__backends[k]; k++)
            assert_int_equal(strstr(kinds, lk__backends[k]->kind) != NULL, lk__backends[k]->available() > 0);
    }
    lk_error_clear();
}

static void test_capacity(void **state)
{
    (void)state;
    lk_device_spec_entry entries[2];
    int count;
    assert_int_equal(lk__device_spec_parse("2xcpu", entries, 2, &count), LK_OK);
    assert_int_equal(lk__device_spec_parse("2xcpu,cpu", entries, 2, &count), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "device: more than 2 devices are named, which is the most");
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form),
        cmocka_unit_test(test_a_bare_number_means_the_best_kind),
        cmocka_unit_test(test_errors_say_what_would_be_right),
        cmocka_unit_test(test_an_unknown_kind_lists_what_can_be_used),
        cmocka_unit_test(test_capacity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
