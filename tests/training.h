/* What the tests of whole trainings share: a configuration that takes a fraction of a second, and everything a run
 * says. */
#ifndef LK_TESTS_TRAINING_H
#define LK_TESTS_TRAINING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/train.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EPOCHS = 4 };

#define assert_ok(expression)                   \
    do {                                        \
        if ((expression) != LK_OK)              \
            fail_msg("%s", lk_error_message()); \
    } while (0)

static inline void expect_error(lk_status have, lk_status status, const char *message)
{
    assert_int_equal(have, status);
    assert_string_equal(lk_error_message(), message);
    assert_int_equal(lk_error_status(), status);
    lk_error_clear();
}

/* 67 samples in batches of 32: the last has three. */
static inline lk_train_config small_training(void)
{
    lk_train_config config;
    assert_ok(lk_options_defaults(lk_train_options, LK_TRAIN_OPTION_COUNT, &config));
    config.data = "synthetic";
    config.limit_train = 67;
    config.limit_val = 41;
    config.batch_size = 32;
    config.epochs = 2;
    return config;
}

static inline lk_trainer *new_trainer(const lk_train_config *config)
{
    lk_error_clear();
    lk_trainer *trainer = lk_trainer_new(config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

typedef struct outcome {
    lk_train_result result;
    lk_epoch_report epochs[MAX_EPOCHS];
    int n_epochs;
    int64_t n_steps;
    int64_t samples; /* of the epoch so far, as the steps' reports have it */
    int64_t batch_size, train_samples;
} outcome;

static inline void keep_step(void *user, const lk_step_report *report)
{
    outcome *out = user;
    int64_t before = report->step == 1 ? 0 : out->samples;
    int64_t left = out->train_samples - before;
    assert_int_equal(report->epoch, out->n_epochs + 1);
    assert_int_equal(report->loss.count - before, left < out->batch_size ? left : out->batch_size);
    assert_int_equal(report->accuracy.count, report->loss.count);
    out->samples = report->loss.count;
    out->n_steps++;
}

static inline bool keep_epoch(void *user, const lk_epoch_report *report)
{
    outcome *out = user;
    assert_true(out->n_epochs < MAX_EPOCHS);
    out->epochs[out->n_epochs++] = *report;
    return true;
}

static inline outcome fit(lk_trainer *trainer)
{
    const lk_plan *plan = lk_trainer_plan(trainer);
    outcome out = {.batch_size = plan->batch_size, .train_samples = plan->train_samples};
    lk_train_callbacks callbacks = {.step = keep_step, .epoch = keep_epoch, .user = &out};
    assert_ok(lk_trainer_fit(trainer, &callbacks, &out.result));
    assert_int_equal(out.n_epochs, plan->epochs);
    assert_int_equal(out.n_steps, plan->epochs * plan->steps_per_epoch);
    assert_int_equal(out.result.steps, out.n_steps);
    assert_int_equal(out.result.samples_seen, plan->epochs * plan->train_samples);
    return out;
}

#endif
