/* Batch-norm layers over the whole batch need sums over all shards in the middle of the forward and of the backward
 * pass. So all shards run together, layer by layer. Once both passes are pushed, the tree adds up the values. */
#include "train/step/sync_step.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/op.h"
#include "dist/strategy.h"
#include "dist/sum/shard_sum.h"
#include "train/step/shard_pass.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

#include <string.h>

typedef struct together {
    lk_trainer *trainer;
    lk_shard_pass pass;
    lk_tensor **values;     /* [shard * n_values + i] */
    lk_tensor **statistics; /* [shard * statistics + i] */
    bool is_idle;           /* the process has no samples of the batch: the only shard is a blank one */
} together;

bool lk__runs_shards_together(const lk_trainer *trainer)
{
    return trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model);
}

lk_status lk__plan_sync(lk_trainer *trainer)
{
    if (trainer->plan.batch_norm != LK_BN_SYNC)
        return LK_OK;
    trainer->sums.sync = lk_shard_sum_new(trainer->strategy, trainer->plan.shards, 1);
    return trainer->sums.sync ? LK_OK : lk_error_status();
}

/* --- views -------------------------------------------------------------------------------------------------------- */

/* Makes the views of every shard, if they do not exist yet. */
static lk_status sync_step_make_views(lk_trainer *trainer)
{
    lk_trainer_sums *sums = &trainer->sums;
    lk_status status = LK_OK;
    if (sums->watched)
        return LK_OK;
    sums->watched = lk__calloc((size_t)(trainer->plan.shards * trainer->n_variables), sizeof *sums->watched);
    if (!sums->watched)
        return LK_ERR_MEMORY;
    lk_scope_begin();
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range own = lk__shard_sum_owned(sums->train, r);
        for (int64_t s = own.begin; s < own.end && status == LK_OK; s++) {
            lk_tensor **views = sums->watched + s * trainer->n_variables;
            status = lk__view_variables(trainer, r, views);
            for (int i = 0; i < trainer->n_variables; i++)
                lk_tensor_retain(views[i]);
        }
    }
    lk_scope_end();
    return status;
}

/* --- sums over shards, at the end of a pass and in its middle ---------------------------------------------------- */

/* Gives the sum each shard's values, values[shard of the pass * stride …); shards without samples have none. */
static lk_status sync_step_add_up(const together *t, lk_shard_sum *sum, lk_tensor *const *values, int stride)
{
    int64_t i = 0;
    lk__shard_sum_start(sum, t->pass.batch->count);
    for (int j = 0; j < stride && t->is_idle; j++)
        lk__shard_sum_expect(sum, j, values[j]);
    for (int d = 0; d < t->trainer->n_devices; d++) {
        lk_range own = lk__shard_sum_owned(sum, d);
        for (int64_t s = own.begin; s < own.end; s++) {
            bool present = !t->is_idle && i < t->pass.n && t->pass.shards[i].index == s;
            LK_TRY(lk_shard_sum_add(sum, s, present ? values + i * stride : NULL));
            i += present;
        }
    }
    return LK_OK;
}

/* Sums the shards' parts by the tree over all shards. reduced[replica]: one reference each. */
static lk_status sync_step_reduce(const together *t, lk_tensor *const *parts, lk_tensor **reduced)
{
    lk_shard_sum *sum = t->trainer->sums.sync;
    lk_status status = sync_step_add_up(t, sum, parts, 1), finished = lk_shard_sum_finish(sum, reduced);
    return status != LK_OK ? status : finished;
}

/* Copies reduced[0], which the storing device has, to every device that computes: sets reduced[replica]. */
static lk_status sync_step_spread(const lk_trainer *trainer, lk_tensor **reduced)
{
    lk_tensor *stored = reduced[0];
    lk_status status = LK_OK;
    reduced[0] = NULL;
    for (int d = 0; d < trainer->n_devices && status == LK_OK; d++) {
        bool is_storage = trainer->devices[d] == lk_strategy_storage(trainer->strategy);
        reduced[d] = lk_tensor_retain(is_storage ? stored : lk_copy(stored, trainer->devices[d]));
        status = reduced[d] ? LK_OK : lk_error_status();
    }
    lk_tensor_release(stored);
    return status;
}

/* sums[]: a view for each shard, because a tape identifies a tensor by its object. */
static lk_status sync_step_give_views(const together *t, lk_tensor *const *reduced, lk_tensor **sums)
{
    for (int i = 0; i < t->pass.n; i++) {
        lk_tensor *sum = reduced[t->pass.shards[i].replica];
        sums[i] = lk_reshape(sum, lk_tensor_shape(sum));
        if (!sums[i])
            return lk_error_status();
    }
    return LK_OK;
}

/* The gradient of this function is the same sum, of the outputs' gradients. */
static lk_status sync_step_sum_recorded(void *user, lk_call_site at, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    const together *t = user;
    lk_tensor *reduced[LK_MAX_DEVICES] = {NULL};
    lk_recorder recorder = lk__recorder_set((lk_recorder){0});
    lk_status status = sync_step_reduce(t, parts, reduced);
    if (status == LK_OK && lk_strategy_storage(t->trainer->strategy))
        status = sync_step_spread(t->trainer, reduced);
    if (status == LK_OK)
        status = sync_step_give_views(t, reduced, sums);
    lk__release_tensors(reduced, t->trainer->n_devices);
    lk__recorder_set(recorder);
    LK_TRY(status);
    lk_function function = {"allreduce", at, n, parts, sums, sync_step_sum_recorded, user};
    return recorder.record_function ? recorder.record_function(recorder.self, &function) : LK_OK;
}

static lk_status sync_step_sum(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    return sync_step_sum_recorded(user, LK_HERE, parts, sums, n);
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

static lk_status sync_step_forward_statistics(together *t)
{
    lk_forward_opts opts = lk__shard_pass_opts(&t->pass);
    opts.statistics = t->statistics;
    if (opts.sync) {
        opts.sync = sync_step_sum;
        opts.sync_user = t;
    }
    return lk__shard_pass_forward(&t->pass, &opts);
}

static lk_status sync_step_forward(void *user)
{
    together *t = user;
    const lk_trainer *trainer = t->trainer;
    LK_TRY(sync_step_forward_statistics(t));
    for (int i = 0; i < t->pass.n; i++) {
        lk_tensor **metrics = t->values + (int64_t)i * trainer->sums.n_values + trainer->sums.n_updated;
        LK_TRY(lk__metrics_of(trainer, t->pass.logits[i], t->pass.shards[i].labels, trainer->plan.label_smoothing,
                              metrics));
        t->pass.losses[i] = metrics[0];
    }
    return LK_OK;
}

/* Puts gradients and statistics in front of each shard's metrics. */
static void sync_step_gather_values(together *t)
{
    int64_t p = t->trainer->n_parameters, s = lk__statistics_count(t->trainer);
    for (int64_t i = 0; i < t->pass.n; i++) {
        lk_tensor **values = t->values + i * t->trainer->sums.n_values;
        memcpy(values, t->pass.gradients + i * p, (size_t)p * sizeof(lk_tensor *));
        memcpy(values + p, t->statistics + i * s, (size_t)s * sizeof(lk_tensor *));
    }
}

/* The other processes wait for this one in every sum in the middle of the passes. So a process without samples runs a
 * blank shard, which takes part in the same sums; its values count as absent. */
static lk_status sync_step_add_blank(together *t)
{
    const lk_trainer *trainer = t->trainer;
    int64_t s = lk__shard_sum_owned(trainer->sums.train, 0).begin;
    return lk__shard_pass_add_blank(&t->pass, s, trainer->sums.watched + s * trainer->n_variables,
                                    trainer->sums.seeds[0]);
}

/* Prepares the pass over the shards that have samples. */
static lk_status sync_step_start(together *t, lk_batch *batch)
{
    lk_trainer *trainer = t->trainer;
    int64_t shards = lk__min(batch->count, trainer->plan.shards);
    int64_t values = trainer->sums.n_values + lk__statistics_count(trainer);
    LK_TRY(sync_step_make_views(trainer));
    LK_TRY(lk__shard_pass_init(&t->pass, trainer, shards));
    t->values = lk__calloc((size_t)shards * (size_t)values, sizeof *t->values);
    if (!t->values)
        return LK_ERR_MEMORY;
    t->statistics = t->values + shards * trainer->sums.n_values;
    lk__shard_pass_start(&t->pass, &trainer->progress.update, batch);
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range own = lk__shard_sum_owned(trainer->sums.train, r);
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(lk__shard_pass_add(&t->pass, s, r, trainer->sums.watched + s * trainer->n_variables,
                                      trainer->sums.seeds[r]));
    }
    t->is_idle = t->pass.n == 0;
    return t->is_idle ? sync_step_add_blank(t) : LK_OK;
}

static lk_status sync_step_run(together *t, lk_batch *batch)
{
    LK_TRY(sync_step_start(t, batch));
    LK_TRY(lk__shard_pass_gradients(&t->pass, sync_step_forward, t));
    sync_step_gather_values(t);
    return sync_step_add_up(t, t->trainer->sums.train, t->values, t->trainer->sums.n_values);
}

static lk_status sync_step_finish(together *t, lk_status status, lk_shard_sum *sum, lk_tensor **sums)
{
    lk__shard_pass_free(&t->pass);
    lk__free(t->values);
    lk_status finished = lk_shard_sum_finish(sum, sums);
    return status != LK_OK ? status : finished;
}

lk_status lk__run_shards_together(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums)
{
    together t = {.trainer = trainer};
    lk_scope_begin();
    lk_status status = sync_step_run(&t, batch);
    lk_scope_end();
    return sync_step_finish(&t, status, trainer->sums.train, sums);
}

/* --- statistics alone --------------------------------------------------------------------------------------------- */

static lk_status sync_step_run_statistics(together *t, lk_batch *batch, lk_shard_sum *sum)
{
    LK_TRY(sync_step_start(t, batch));
    LK_TRY(sync_step_forward_statistics(t));
    return sync_step_add_up(t, sum, t->statistics, lk__statistics_count(t->trainer));
}

lk_status lk__run_statistics_together(lk_trainer *trainer, lk_batch *batch, lk_shard_sum *sum, lk_tensor **sums)
{
    together t = {.trainer = trainer};
    lk_scope_begin();
    lk_status status = sync_step_run_statistics(&t, batch, sum);
    lk_scope_end();
    return sync_step_finish(&t, status, sum, sums);
}
