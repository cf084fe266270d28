/* Helpers of the tests of whole trainings: a configuration that takes a fraction of a second, and all reports of a run.
 */
#pragma once

#include "train/training_testing.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EPOCHS = 4 };

/* 67 samples in batches of 32: the last has three. */
static inline lk_train_config small_training(void)
{
    return training_of(67, 41, 32, 0);
}

typedef struct outcome {
    lk_train_result result;
    lk_epoch_report epochs[MAX_EPOCHS];
    int n_epochs;
    int64_t n_steps;
    int64_t samples; /* of the epoch so far, from the steps' reports */
    int64_t batch_size, train_samples;
} outcome;

/* A callback's step_end: interrupts after the first step of the second epoch. */
static inline lk_status interrupt_in_second_epoch(void *user, lk_trainer *trainer, const lk_step_report *report,
                                                  bool *stop)
{
    (void)user, (void)stop;
    if (report->epoch == 2 && report->step == 1)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static inline lk_status keep_step(void *user, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    outcome *out = user;
    (void)trainer;
    (void)stop;
    int64_t before = report->step == 1 ? 0 : out->samples;
    int64_t left = out->train_samples - before;
    assert_int_equal(report->epoch, out->n_epochs + 1);
    assert_int_equal(report->batch.loss.count, left < out->batch_size ? left : out->batch_size);
    assert_int_equal(report->so_far.loss.count, before + report->batch.loss.count);
    assert_int_equal(report->so_far.accuracy.count, report->so_far.loss.count);
    out->samples = report->so_far.loss.count;
    out->n_steps++;
    return LK_OK;
}

static inline lk_status keep_epoch(void *user, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    outcome *out = user;
    (void)trainer;
    (void)stop;
    assert_true(out->n_epochs < MAX_EPOCHS);
    out->epochs[out->n_epochs++] = *report;
    return LK_OK;
}

/* Fits and keeps the reports in `out`. Call it once for a trainer, because it adds a callback. */
static inline void fit_into(lk_trainer *trainer, outcome *out)
{
    const lk_plan *plan = lk_trainer_plan(trainer);
    *out = (outcome){.batch_size = plan->batch_size, .train_samples = plan->train_samples};
    assert_ok(lk_trainer_add(
        trainer, (lk_callback){.name = "keep", .step_end = keep_step, .epoch_end = keep_epoch, .self = out}));
    assert_ok(lk_trainer_fit(trainer, &out->result));
    assert_int_equal(out->n_epochs, plan->epochs);
    assert_int_equal(out->n_steps, plan->epochs * plan->steps_per_epoch);
    assert_int_equal(out->result.steps, out->n_steps);
    assert_int_equal(out->result.epochs, plan->epochs);
    assert_int_equal(out->result.samples_seen, plan->epochs * plan->train_samples);
    assert_null(out->result.stopped_by);
}

static inline outcome fit(lk_trainer *trainer)
{
    outcome out;
    fit_into(trainer, &out);
    return out;
}

/* --- the same bits ------------------------------------------------------------------------------------------------ */

/* All replicas have the same variables, with digest `expected`. */
static inline void same_replicas(lk_trainer *trainer, const char *expected)
{
    for (int r = 1; r < lk_strategy_num_replicas(lk_trainer_strategy(trainer)); r++) {
        char digest[33];
        assert_ok(lk_trainer_digest(trainer, r, digest));
        for (int i = 0; i < lk_model_variable_count(lk_trainer_model(trainer)); i++) {
            uint64_t first, hash;
            assert_ok(lk_trainer_variable_hash(trainer, 0, i, &first));
            assert_ok(lk_trainer_variable_hash(trainer, r, i, &hash));
            if (first != hash)
                fail_msg("%s of replica %d is not that of replica 0",
                         lk_model_variable_name(lk_trainer_model(trainer), i), r);
        }
        assert_string_equal(digest, expected);
    }
}

/* Releases the trainer. */
static inline outcome fit_replicas(lk_trainer *trainer)
{
    outcome out = fit(trainer);
    same_replicas(trainer, out.result.digest);
    lk_trainer_release(trainer);
    return out;
}

static inline outcome train(const lk_train_config *config)
{
    return fit_replicas(new_trainer(config));
}

static inline void same_mean(lk_mean a, lk_mean b)
{
    assert_int_equal(a.count, b.count);
    assert_memory_equal(&a.sum, &b.sum, sizeof a.sum);
}

static inline void same_metrics(const lk_metrics *a, const lk_metrics *b)
{
    same_mean(a->loss, b->loss);
    same_mean(a->accuracy, b->accuracy);
    same_mean(a->top_k, b->top_k);
}

static inline void same(const outcome *a, const outcome *b)
{
    assert_string_equal(a->result.digest, b->result.digest);
    assert_int_equal(a->n_epochs, b->n_epochs);
    assert_int_equal(a->n_steps, b->n_steps);
    same_metrics(&a->result.val, &b->result.val);
    for (int e = 0; e < a->n_epochs; e++) {
        same_metrics(&a->epochs[e].train, &b->epochs[e].train);
        same_metrics(&a->epochs[e].val, &b->epochs[e].val);
    }
}
