/* A step with batch-norm over the whole batch: its layers need sums over all shards in the middle of the forward and of
 * the backward pass, so all shards run together, layer by layer, until the tree adds up what each of them found. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/op.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"

#include <string.h>

typedef struct together {
    lk_trainer *trainer;
    lk__shard_pass pass;
    lk_tensor **values;     /* [n * values] */
    lk_tensor **statistics; /* [n * layers] */
} together;

static int statistics_count(const lk_trainer *trainer)
{
    return trainer->n_updated - trainer->n_parameters;
}

/* A process without samples would not come to the sums that the others wait for. */
static lk_status check_batches(const lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    int64_t last = plan->train_samples - (plan->steps_per_epoch - 1) * plan->batch_size;
    lk_range own = lk__own_samples(trainer, last);
    if (own.begin == own.end)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--bn sync: the last batch of %lld samples leaves process %d without any; use another --batch-size or "
                "--limit-train",
                (long long)last, plan->process);
    return LK_OK;
}

lk_status lk__plan_sync(lk_trainer *trainer)
{
    if (trainer->plan.batch_norm != LK_BN_SYNC)
        return LK_OK;
    if (trainer->plan.processes > 1)
        LK_TRY(check_batches(trainer));
    trainer->sync_sum = lk_shard_sum_new(trainer->strategy, trainer->plan.shards, 1);
    return trainer->sync_sum ? LK_OK : lk_error_status();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_status allocate(together *t, int64_t shards)
{
    const lk_trainer *trainer = t->trainer;
    LK_TRY(lk__shard_pass_init(&t->pass, t->trainer, shards));
    t->values = lk__calloc((size_t)shards * (size_t)(trainer->n_values + statistics_count(trainer)), sizeof *t->values);
    if (!t->values)
        return LK_ERR_MEMORY;
    t->statistics = t->values + shards * trainer->n_values;
    return LK_OK;
}

static void release(together *t)
{
    lk__shard_pass_free(&t->pass);
    lk__free(t->values);
}

static lk_status view_replica(lk_trainer *trainer, int replica)
{
    lk_range own = lk__shard_sum_owned(trainer->train_sum, replica);
    for (int64_t s = own.begin; s < own.end; s++) {
        lk_tensor **views = trainer->watched + s * trainer->n_variables;
        lk_status status = lk__view_variables(trainer, replica, views);
        for (int i = 0; i < trainer->n_variables; i++)
            lk_tensor_retain(views[i]);
        LK_TRY(status);
    }
    return LK_OK;
}

/* Views for every shard, made once. */
static lk_status make_views(lk_trainer *trainer)
{
    if (trainer->watched)
        return LK_OK;
    trainer->watched = lk__calloc((size_t)(trainer->plan.shards * trainer->n_variables), sizeof *trainer->watched);
    if (!trainer->watched)
        return LK_ERR_MEMORY;
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int r = 0; r < trainer->n_devices && status == LK_OK; r++)
        status = view_replica(trainer, r);
    lk_scope_end();
    return status;
}

/* --- sums in the middle of a pass --------------------------------------------------------------------------------- */

/* Of every shard's part, by the tree over all of them: on each replica, one reference each. */
static lk_status reduce(const together *t, lk_tensor *const *parts, lk_tensor **reduced)
{
    lk_shard_sum *sum = t->trainer->sync_sum;
    lk_status status = LK_OK;
    int i = 0;
    lk__shard_sum_start(sum, t->pass.batch->count);
    for (int d = 0; d < t->trainer->n_devices; d++) {
        lk_range own = lk__shard_sum_owned(sum, d);
        for (int64_t s = own.begin; s < own.end && status == LK_OK; s++) {
            bool present = i < t->pass.n && t->pass.shards[i].index == s;
            status = lk_shard_sum_add(sum, s, present ? parts + i : NULL);
            i += present;
        }
    }
    lk_status finished = lk_shard_sum_finish(sum, reduced);
    return status != LK_OK ? status : finished;
}

/* A sum that one device stores, reduced[0], is wanted on each that computes. */
static lk_status spread(const lk_trainer *trainer, lk_tensor **reduced)
{
    lk_tensor *stored = reduced[0];
    lk_status status = LK_OK;
    reduced[0] = NULL;
    for (int d = 0; d < trainer->n_devices && status == LK_OK; d++) {
        bool is_there = trainer->devices[d] == lk_strategy_storage(trainer->strategy);
        reduced[d] = lk_tensor_retain(is_there ? stored : lk_copy(stored, trainer->devices[d]));
        status = reduced[d] ? LK_OK : lk_error_status();
    }
    lk_tensor_release(stored);
    return status;
}

/* Views, for a tape tells tensors apart by object. */
static lk_status give_views(const together *t, lk_tensor *const *reduced, lk_tensor **sums)
{
    for (int i = 0; i < t->pass.n; i++) {
        lk_tensor *sum = reduced[t->pass.shards[i].replica];
        sums[i] = lk_reshape(sum, lk_tensor_shape(sum));
        if (!sums[i])
            return lk_error_status();
    }
    return LK_OK;
}

/* Its gradient is the same sum of the outputs' gradients. */
static lk_status sum_recorded(void *user, lk_place at, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    const together *t = user;
    lk_tensor *reduced[LK_MAX_DEVICES] = {NULL};
    lk_recorder recorder = lk__recorder_set((lk_recorder){0});
    lk_status status = reduce(t, parts, reduced);
    if (status == LK_OK && lk_strategy_storage(t->trainer->strategy))
        status = spread(t->trainer, reduced);
    if (status == LK_OK)
        status = give_views(t, reduced, sums);
    lk__release_tensors(reduced, t->trainer->n_devices);
    lk__recorder_set(recorder);
    LK_TRY(status);
    lk_function function = {"allreduce", at, n, parts, sums, sum_recorded, user};
    return recorder.record_function ? recorder.record_function(recorder.self, &function) : LK_OK;
}

static lk_status sync(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    return sum_recorded(user, LK_HERE, parts, sums, n);
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

static lk_status add_shards(together *t)
{
    lk_trainer *trainer = t->trainer;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range own = lk__shard_sum_owned(trainer->train_sum, r);
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(lk__shard_pass_add(&t->pass, s, r, trainer->watched + s * trainer->n_variables, trainer->seeds[r]));
    }
    return LK_OK;
}

static lk_status forward_statistics(together *t)
{
    lk_forward_opts opts = lk__shard_pass_opts(&t->pass);
    opts.statistics = t->statistics;
    if (opts.sync) {
        opts.sync = sync;
        opts.sync_user = t;
    }
    return lk__shard_pass_forward(&t->pass, &opts);
}

static lk_status forward(void *user)
{
    together *t = user;
    const lk_trainer *trainer = t->trainer;
    LK_TRY(forward_statistics(t));
    for (int i = 0; i < t->pass.n; i++) {
        lk_tensor **metrics = t->values + (int64_t)i * trainer->n_values + trainer->n_updated;
        LK_TRY(lk__metrics_of(trainer, t->pass.logits[i], t->pass.shards[i].labels, trainer->plan.label_smoothing,
                              metrics));
        t->pass.losses[i] = metrics[0];
    }
    return LK_OK;
}

/* --- sums over shards --------------------------------------------------------------------------------------------- */

static void gather_values(together *t)
{
    int64_t p = t->trainer->n_parameters, s = statistics_count(t->trainer);
    for (int64_t i = 0; i < t->pass.n; i++) {
        lk_tensor **values = t->values + i * t->trainer->n_values;
        memcpy(values, t->pass.gradients + i * p, (size_t)p * sizeof(lk_tensor *));
        memcpy(values + p, t->statistics + i * s, (size_t)s * sizeof(lk_tensor *));
    }
}

static lk_status add_up(const together *t, lk_shard_sum *sum, lk_tensor **values, int stride)
{
    int64_t i = 0;
    lk__shard_sum_start(sum, t->pass.batch->count);
    for (int d = 0; d < t->trainer->n_devices; d++) {
        lk_range own = lk__shard_sum_owned(sum, d);
        for (int64_t s = own.begin; s < own.end; s++) {
            bool present = i < t->pass.n && t->pass.shards[i].index == s;
            LK_TRY(lk_shard_sum_add(sum, s, present ? values + i * stride : NULL));
            i += present;
        }
    }
    return LK_OK;
}

/* Shards that have samples, with what their passes need. */
static lk_status start(together *t, lk_batch *batch)
{
    lk_trainer *trainer = t->trainer;
    int64_t shards = batch->count < trainer->plan.shards ? batch->count : trainer->plan.shards;
    LK_TRY(make_views(trainer));
    LK_TRY(allocate(t, shards));
    lk__shard_pass_start(&t->pass, &trainer->update, batch);
    return add_shards(t);
}

static lk_status run(together *t, lk_batch *batch)
{
    LK_TRY(start(t, batch));
    LK_TRY(lk__shard_pass_gradients(&t->pass, forward, t));
    gather_values(t);
    return add_up(t, t->trainer->train_sum, t->values, t->trainer->n_values);
}

static lk_status finish(together *t, lk_status status, lk_shard_sum *sum, lk_tensor **sums)
{
    release(t);
    lk_status finished = lk_shard_sum_finish(sum, sums);
    return status != LK_OK ? status : finished;
}

lk_status lk__run_shards_together(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums)
{
    together t = {.trainer = trainer};
    lk_scope_begin();
    lk_status status = run(&t, batch);
    lk_scope_end();
    return finish(&t, status, trainer->train_sum, sums);
}

/* --- statistics alone --------------------------------------------------------------------------------------------- */

static lk_status run_statistics(together *t, lk_batch *batch, lk_shard_sum *sum)
{
    LK_TRY(start(t, batch));
    LK_TRY(forward_statistics(t));
    return add_up(t, sum, t->statistics, statistics_count(t->trainer));
}

lk_status lk__run_statistics_together(lk_trainer *trainer, lk_batch *batch, lk_shard_sum *sum, lk_tensor **sums)
{
    together t = {.trainer = trainer};
    lk_scope_begin();
    lk_status status = run_statistics(&t, batch, sum);
    lk_scope_end();
    return finish(&t, status, sum, sums);
}
