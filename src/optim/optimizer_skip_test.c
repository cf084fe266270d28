/* Skipped steps change nothing, and failed allocations leave nothing behind. */
#include "optim/optim_test.h"

#include "base/mem_testing.h"

static const lk_optimizer_opts kinds[] = {
    {.kind = LK_SGD},
    {.kind = LK_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
    {.kind = LK_ADAM, .weight_decay = 0.1},
    {.kind = LK_ADAMW, .weight_decay = 0.1, .clip_norm = 0.5},
    {.kind = LK_LARS, .momentum = 0.9, .weight_decay = 0.1},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static fixture open_skipping(int kind, bool sticky)
{
    lk_optimizer_opts opts = kinds[kind];
    float values[ELEMENTS];
    opts.skip_nonfinite = true;
    opts.sticky = sticky;
    random_floats(values, ELEMENTS, 0);
    return open_fixture(kind % 2 ? "cpu:0" : "ref:0", &opts, values);
}

static void random_step(fixture *f, uint64_t index, float bad)
{
    float gradients[ELEMENTS];
    random_floats(gradients, ELEMENTS, index);
    if (bad != 0)
        gradients[ELEMENTS - 1] = bad;
    step(f, gradients, 0.1);
}

static bool changes(fixture *f, uint64_t index, float bad)
{
    float before[3 * FLAT], after[3 * FLAT];
    read_everything(f, before);
    random_step(f, index, bad);
    read_everything(f, after);
    return memcmp(before, after, sizeof before) != 0;
}

static void test_skip(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = open_skipping(kind, false);
        assert_null(lk_optimizer_skipped(f.optimizer));
        assert_true(changes(&f, 1, 0));
        lk_tensor *first = lk_tensor_retain(lk_optimizer_skipped(f.optimizer));
        for (int i = 0; i < 3; i++) {
            assert_false(changes(&f, 2, bad[i]));
            assert_true(item(lk_optimizer_skipped(f.optimizer)) == 1);
            assert_false(isfinite(item(lk_optimizer_gradient_norm(f.optimizer))));
        }
        assert_true(changes(&f, 3, 0));
        assert_true(item(lk_optimizer_skipped(f.optimizer)) == 0);
        assert_true(item(first) == 0); /* still the first step's */
        assert_int_equal(lk_optimizer_steps(f.optimizer), 5);
        lk_tensor_release(first);
        close_fixture(&f);
    }
}

static void test_sticky(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f = open_skipping(kind, true);
        assert_true(changes(&f, 1, 0));
        assert_false(changes(&f, 2, NAN));
        for (uint64_t i = 3; i < 6; i++) {
            assert_false(changes(&f, i, 0));
            assert_true(item(lk_optimizer_skipped(f.optimizer)) == 1);
        }
        close_fixture(&f);
    }
}

/* The norm of the largest finite floats is still finite. */
static void test_large_is_finite(void **state)
{
    (void)state;
    fixture f = open_skipping(0, false);
    float gradients[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        gradients[i] = 3.4e38F;
    step(&f, gradients, 1e-38);
    assert_true(item(lk_optimizer_skipped(f.optimizer)) == 0);
    assert_true(isfinite(item(lk_optimizer_gradient_norm(f.optimizer))));
    close_fixture(&f);
}

/* Without skip_nonfinite, values that are not finite spread. */
static void test_no_skip(void **state)
{
    (void)state;
    const float zeros[ELEMENTS] = {0}, gradients[ELEMENTS] = {NAN, 1};
    float have[ELEMENTS];
    fixture f = open_fixture("cpu:0", NULL, zeros);
    step(&f, gradients, 1);
    read_parameters(&f, have);
    assert_true(isnan(have[0]) && have[1] == -1 && have[2] == 0);
    assert_null(lk_optimizer_skipped(f.optimizer));
    assert_null(lk_optimizer_gradient_norm(f.optimizer));
    close_fixture(&f);
}

/* --- failing allocations ------------------------------------------------------------------------------------------ */

static lk_status train(int kind, float everything[FLAT])
{
    lk_optimizer_opts opts = kinds[kind];
    float values[ELEMENTS], gradients[ELEMENTS];
    fixture f;
    opts.skip_nonfinite = true;
    random_floats(values, ELEMENTS, 0);
    lk_status status = try_open_fixture(&f, kind % 2 ? "cpu:0" : "ref:0", &opts, values);
    for (uint64_t t = 1; t < 4 && status == LK_OK; t++) {
        random_floats(gradients, ELEMENTS, t);
        status = try_step(&f, gradients, 0.1);
    }
    if (status == LK_OK)
        status = lk_tensor_read(f.packed, everything, FLAT * sizeof(float));
    close_fixture(&f);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        float want[FLAT], have[FLAT];
        int64_t failures = 0;
        lk_error_clear();
        assert_ok(train(kind, want));
        failing each = fail_every(1);
        while (fail_next(&each)) {
            lk_status status = train(kind, have);
            stop_failing(&each);
            failures += status != LK_OK;
            if (status == LK_OK)
                assert_memory_equal(have, want, sizeof want);
            else if (status != LK_ERR_MEMORY || lk_error_status() != LK_ERR_MEMORY)
                fail_msg("allocation %lld: %s: '%s'", (long long)each.n, lk_status_name(status), lk_error_message());
        }
        print_message("kind %d: %lld allocations refused, %lld trainings failed\n", kind, (long long)each.n,
                      (long long)failures);
        assert_true(2 * failures > each.n + 1);
    }
}

/* A step that fails changes nothing: taken again, it gives the same result. */
static void fail_step(failing *each, const float gradients[ELEMENTS], const float want[3 * FLAT], int *failures)
{
    float have[3 * FLAT];
    fixture f = open_skipping(3, false);
    random_step(&f, 1, 0);
    assert_ok(lk_device_sync(f.device));
    fail_next(each);
    lk_status status = try_step(&f, gradients, 0.1);
    lk_device_sync(f.device);
    stop_failing(each);
    lk_error_clear();
    if (status != LK_OK) {
        ++*failures;
        assert_int_equal(lk_optimizer_steps(f.optimizer), 1);
        step(&f, gradients, 0.1);
        read_everything(&f, have);
        assert_memory_equal(have, want, sizeof have);
    }
    close_fixture(&f);
}

static void test_failed_step(void **state)
{
    (void)state;
    float gradients[ELEMENTS], want[3 * FLAT];
    fixture f = open_skipping(3, false);
    random_step(&f, 1, 0);
    random_floats(gradients, ELEMENTS, 2);
    step(&f, gradients, 0.1);
    read_everything(&f, want);
    close_fixture(&f);
    int failures = 0;
    failing each = fail_every(1);
    do
        fail_step(&each, gradients, want, &failures);
    while (each.reached);
    assert_true(failures > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_large_is_finite),
        cmocka_unit_test(test_no_skip),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_failed_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
