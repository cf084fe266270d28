/* lk_verify: trains on several sets of devices and compares the bits of all variables after every step. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "train/plan/plan.h"
#include "train/resume.h"
#include "train/trainer.h"

#include <stdio.h>

typedef struct verification {
    const lk_train_config *config;
    const lk_verify_opts *opts;
    lk_verify_result *result;
    uint64_t *expected; /* [step * variables + i]: hashes of the first run */
} verification;

static lk_status verify_most_devices(const lk_verify_opts *opts, int *largest)
{
    *largest = 0;
    for (int i = 0; i < opts->count; i++) {
        int count;
        LK_TRY(lk_devices_count(opts->specs[i], &count));
        *largest = (int)lk__max(*largest, count);
    }
    return LK_OK;
}

static void verify_note_difference(verification *v, int64_t step, const lk_trainer *trainer, int variable, int run,
                                   int replica)
{
    if (!v->result->identical && v->result->step <= step)
        return;
    v->result->identical = false;
    v->result->step = step;
    snprintf(v->result->tensor, sizeof v->result->tensor, "%s", lk_model_variable_name(trainer->model, variable));
    v->result->run = run;
    v->result->replica = replica;
}

static lk_status verify_compare_step(verification *v, lk_trainer *trainer, int run, int64_t step)
{
    int n = trainer->n_variables;
    for (int r = 0; r < trainer->n_devices; r++) {
        for (int i = 0; i < n; i++) {
            uint64_t hash, *expected = &v->expected[step * n + i];
            LK_TRY(lk_trainer_variable_hash(trainer, r, i, &hash));
            if (run == 0 && r == 0)
                *expected = hash;
            else if (hash != *expected)
                verify_note_difference(v, step + 1, trainer, i, run, r);
        }
    }
    return LK_OK;
}

static lk_status verify_train_steps(verification *v, lk_trainer *trainer, int run)
{
    if (!v->expected) {
        size_t hashes;
        if (!lk__mul_size((size_t)v->opts->steps, (size_t)trainer->n_variables, &hashes))
            LK_FAIL(LK_ERR_ARGUMENT, "verify: %lld steps are too many to compare", (long long)v->opts->steps);
        v->expected = lk__calloc(hashes, sizeof *v->expected);
        if (!v->expected)
            return LK_ERR_MEMORY;
    }
    for (int64_t step = 0; step < v->opts->steps; step++) {
        LK_TRY(lk_trainer_run(trainer, 1));
        LK_TRY(verify_compare_step(v, trainer, run, step));
        if (v->opts->step_done && !v->opts->step_done(v->opts->user, v->opts->specs[run], step + 1))
            LK_FAIL(LK_ERR_INTERRUPTED, "verify: interrupted on %s after step %lld", v->opts->specs[run],
                    (long long)step + 1);
    }
    lk_verify_run done = {.devices = v->opts->specs[run],
                          .device_count = trainer->n_devices,
                          .plan = &trainer->plan,
                          .implementations = trainer->implementations};
    LK_TRY(lk_trainer_digest(trainer, 0, done.digest));
    if (v->opts->run_done)
        v->opts->run_done(v->opts->user, &done);
    return LK_OK;
}

static lk_status verify_run_devices(verification *v, int run)
{
    lk_train_config config = *v->config;
    config.devices.spec = v->opts->specs[run];
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        return lk_error_status();
    lk_status status = verify_train_steps(v, trainer, run);
    lk_trainer_release(trainer);
    return status;
}

lk_status lk_verify(const lk_train_config *config, const lk_verify_opts *opts, lk_verify_result *result)
{
    lk_train_config own = *config;
    lk_plan plan = {0};
    int largest;
    *result = (lk_verify_result){0};
    if (opts->count < 2 || opts->steps < 1)
        LK_FAIL(LK_ERR_ARGUMENT,
                "verify: %lld steps on %d sets of devices: must be at least 1 step, and 2 sets to compare",
                (long long)opts->steps, opts->count);
    own.devices.strategy = NULL;
    lk__leave_out_evaluation(&own);
    lk__leave_out_checkpoints(&own);
    LK_TRY(lk__plan_numbers(&own, own.model, &plan));
    LK_TRY(verify_most_devices(opts, &largest));
    own.devices.shards = lk__plan_shards(&own, plan.batch_size, largest);
    LK_TRY(lk__check_shards(own.devices.shards, plan.batch_size, largest)); /* before training on the smaller sets */
    *result = (lk_verify_result){.identical = true, .shards = own.devices.shards};
    verification v = {.config = &own, .opts = opts, .result = result};
    lk_status status = LK_OK;
    for (int run = 0; run < opts->count && status == LK_OK; run++)
        status = verify_run_devices(&v, run);
    lk__free(v.expected);
    return status;
}
