/* The devices of the conformance programs, and one test for each operator that the command line names. */
#pragma once

#include "conformance_cases.h"

static lk_device *tested[2], *ref[2];

static inline trial trial_on(lk_device *const *devices, lk_dtype dtype, operand_layout how, operand_set *operands)
{
    return (trial){.device = devices[0], .peer = devices[1], .dtype = dtype, .layout = how, .operands = operands};
}

static inline int open_devices(void **state)
{
    (void)state;
    int n;
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES");
    if (lk_devices_open(spec ? spec : "2xcpu", tested, 2, &n) != LK_OK ||
        lk_devices_open("2xref", ref, 2, &n) != LK_OK) {
        print_error("%s\n", lk_error_message());
        return -1;
    }
    return 0;
}

static inline int close_devices(void **state)
{
    (void)state;
    lk_devices_release(tested, 2);
    lk_devices_release(ref, 2);
    return 0;
}

static inline bool operator_is_named(int op, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], lk_op_name(op)) == 0)
            return true;
    return false;
}

/* Runs `test` for the operators that `takes` accepts (NULL: all) and that the arguments name, or for all if there are
 * no arguments. The test's state points to the operator's number. Returns the exit status. */
static inline int test_operators(const char *title, CMUnitTestFunction test, bool (*takes)(int op), int argc,
                                 char **argv)
{
    static int ids[LK_OP_COUNT];
    struct CMUnitTest tests[LK_OP_COUNT] = {{0}}; /* cmocka leaves out those without a function */
    int n = 0;
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES"), *plugin = getenv("LOCKSTEP_PJRT_TEST_PLUGIN");
    if (spec && strstr(spec, "pjrt")) {
        if (!plugin || !*plugin) {
            print_message("SKIP: $LOCKSTEP_PJRT_TEST_PLUGIN names no PJRT plug-in\n");
            return 77;
        }
        setenv("PJRT_PLUGIN_LIBRARY_PATH", plugin, 1);
    }
    for (int i = 1; i < argc; i++) {
        int op = 0;
        while (op < LK_OP_COUNT && strcmp(argv[i], lk_op_name(op)) != 0)
            op++;
        if (op == LK_OP_COUNT) {
            print_error("%s: no such operator\n", argv[i]);
            return 2;
        }
    }
    for (int op = 0; op < LK_OP_COUNT; op++) {
        ids[op] = op;
        if ((!takes || takes(op)) && (argc == 1 || operator_is_named(op, argc, argv)))
            tests[n++] = (struct CMUnitTest){.name = lk_op_name(op), .test_func = test, .initial_state = &ids[op]};
    }
    return cmocka_run_group_tests_name(title, tests, open_devices, close_devices);
}
