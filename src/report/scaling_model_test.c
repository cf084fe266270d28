/* Speedups and predictions, by the formulas of docs/scaling.md. */
#include "report/scaling_testing.h"

static void speedup_is_measured_or_estimated(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    lk_speedup s = lk_scaling_speedup(&r);
    assert_false(s.measured);
    assert_near(s.speedup, (0.001 + 2 * 0.009) / 0.016);
    assert_near(s.efficiency, s.speedup / 2);
    assert_int_equal(lk_scaling_doubts(&r), 0);
    r.core_share = 0.5;
    assert_int_equal(lk_scaling_doubts(&r), LK_SCALING_DISTURBED);
    r.step_seconds *= 1.5;
    assert_int_equal(lk_scaling_doubts(&r), LK_SCALING_DISTURBED | LK_SCALING_UNLIKE_RUN);

    r = known_report();
    r.one_device_images_per_second = 2500;
    s = lk_scaling_speedup(&r);
    assert_true(s.measured);
    assert_near(s.speedup, 1.6);

    r = known_report();
    r.steps = 0;
    assert_true(isnan(lk_scaling_speedup(&r).speedup));
    r = known_report();
    strcpy(r.kind, "cuda"); /* its operators are timed one after the other, so computing is not known */
    assert_true(isnan(lk_scaling_speedup(&r).efficiency));
    r.devices = 1;
    assert_near(lk_scaling_speedup(&r).speedup, 1.0);
}

static void prediction_is_the_formula(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    lk_scaling_prediction p;
    assert_near(lk_scaling_exchange_seconds(&r, 2), 3e-4 + 1e-4 + 1.6e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 8), 7 * 3e-4 + 7e-4 + 2.8e-3);
    assert_true(lk_scaling_exchange_seconds(&r, 1) == 0);

    assert_true(lk_scaling_predict(&r, 2, true, &p)); /* the run's own time without waits */
    assert_near(p.step_seconds, 0.011);
    assert_near(p.efficiency, 10.0 / 11);
    assert_true(lk_scaling_predict(&r, 8, true, &p));
    assert_near(p.step_seconds, 0.010 + 0.0056 / 2);
    assert_near(p.speedup, 8 * 0.010 / 0.0128);

    assert_true(lk_scaling_predict(&r, 8, false, &p));                             /* one shard a device */
    assert_near(p.step_seconds, 0.001 + 0.018 / 8 + 0.0056 - 2.0 / 3 * 0.018 / 8); /* backward hides what it can */
    assert_near(p.speedup, 0.019 / p.step_seconds);
    assert_true(lk_scaling_predict(&r, 3, false, &p)); /* one device has three shards */
    assert_near(p.step_seconds, 0.001 + 0.018 * 3 / 8 + lk_scaling_exchange_seconds(&r, 3) / 2);
    assert_false(lk_scaling_predict(&r, 16, false, &p));
    assert_true(isnan(p.step_seconds));
}

/* From 8 devices on, messages and whole tensors go to log2 k others, and slices are as many bytes as before. */
static void the_tree_costs_more_with_every_doubling(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    double flat = lk_scaling_exchange_seconds(&r, 4);
    r.tree_devices = 8;
    assert_near(lk_scaling_exchange_seconds(&r, 4), flat);
    assert_near(lk_scaling_exchange_seconds(&r, 8), 3 * (3e-4 + 1e-4) + 1.75 * 1.6e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 1024), 10 * (3e-4 + 1e-4) + 2 * 1023.0 / 1024 * 1.6e-3);
}

/* A step has its latency once, and the rest of it for each message. */
static void a_share_of_the_latency_is_of_messages(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    r.message_share = 0.25;
    assert_near(lk_scaling_exchange_seconds(&r, 2), 3e-4 + 1e-4 + 1.6e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 8), (0.75 + 0.25 * 7) * 3e-4 + 7e-4 + 2.8e-3);
    r.tree_devices = 8;
    assert_near(lk_scaling_exchange_seconds(&r, 8), 3 * (3e-4 + 1e-4) + 2.8e-3);
}

/* Gradients go in slices to the storing device; the others fetch whole variables from it. */
static void stored_variables_cost_more_with_every_device(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    lk_scaling_prediction p;
    strcpy(r.storage, "cpu:0");
    r.sliced_bytes = r.whole_bytes = 1e6;
    assert_near(lk_scaling_exchange_seconds(&r, 2), 3e-4 + 1e-3 + 1e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 8), 7 * (3e-4 + 1e-3) + 1.75e-3);
    assert_true(lk_scaling_predict(&r, 8, true, &p)); /* of 9 ms of passes 6 are backward */
    assert_near(p.step_seconds, 0.010 + 0.01085 - 0.006);

    r.storing_devices = 1; /* all devices exchange with it, in both directions */
    r.sliced_bytes = 0;
    r.whole_bytes = 2e6;
    r.messages = 2;
    assert_near(lk_scaling_exchange_seconds(&r, 1), 2e-4 + 2e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 2), 2 * (2e-4 + 2e-3));
    assert_near(lk_scaling_exchange_seconds(&r, 1024), 1024 * (2e-4 + 2e-3));
    assert_true(lk_scaling_predict(&r, 4, false, &p));
    assert_near(p.step_seconds, 0.001 + 0.018 / 4 + 0.0088 - 2.0 / 3 * 0.018 / 4);
    assert_near(p.speedup, 0.019 / p.step_seconds);
}

static void nothing_is_predicted_of_what_was_not_measured(void **state)
{
    (void)state;
    lk_scaling_prediction p;
    lk_scaling_report r = known_report();
    r.latency = NAN;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    r = known_report();
    r.steps = 0;
    r.computing = NAN;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    r = known_report();
    r.devices = 1;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    r = known_report();
    r.storing_devices = r.tree_devices = 1;
    static const int64_t wrong[] = {INT64_MIN, -1, 0, INT64_C(1) << 62, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(isnan(lk_scaling_exchange_seconds(&r, wrong[i])));
        assert_false(lk_scaling_predict(&r, wrong[i], true, &p));
    }
}

static void runs_are_compared_if_they_are_alike(void **state)
{
    (void)state;
    lk_scaling_report many = known_report(), one = known_report(), other;
    expect_failure(lk_scaling_compare(&one, &many), LK_ERR_ARGUMENT, "the first one is on 2 devices");
    one.devices = 1;
    one.images_per_second = 2500;
    other = one;
    strcpy(other.model, "keras-cnn");
    expect_failure(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "the model is keras-cnn and lenet");
    other = one;
    other.batch_size = 32;
    expect_failure(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "the batch size is 32 and 64");
    other = one;
    other.parameters = 12730;
    many.parameters = 669706;
    expect_failure(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "the number of parameters is 12730 and 669706");
    many.parameters = one.parameters;
    other = one;
    other.steps = 0;
    expect_failure(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "the first one has no step's time");
    other = one;
    other.images_per_second = NAN;
    expect_failure(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT,
                   "the first one is too short to have a throughput");
    assert_true(isnan(many.one_device_images_per_second));
    assert_ok(lk_scaling_compare(&one, &many));
    assert_near(lk_scaling_speedup(&many).speedup, 1.6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speedup_is_measured_or_estimated),
        cmocka_unit_test(prediction_is_the_formula),
        cmocka_unit_test(the_tree_costs_more_with_every_doubling),
        cmocka_unit_test(a_share_of_the_latency_is_of_messages),
        cmocka_unit_test(stored_variables_cost_more_with_every_device),
        cmocka_unit_test(nothing_is_predicted_of_what_was_not_measured),
        cmocka_unit_test(runs_are_compared_if_they_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
