/* A step with batch-norm over the whole batch: its layers need sums over all shards in the middle of the forward and of
 * the backward pass, so all shards run together, layer by layer, until the tree adds up what each of them found. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"

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
    lk_range own = lk_part(trainer->plan.shards, trainer->n_devices, replica);
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

/* --- the passes --------------------------------------------------------------------------------------------------- */

static lk_status add_shards(together *t)
{
    lk_trainer *trainer = t->trainer;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range own = lk_part(trainer->plan.shards, trainer->n_devices, r);
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(lk__shard_pass_add(&t->pass, s, r, trainer->watched + s * trainer->n_variables, trainer->seeds[r]));
    }
    return LK_OK;
}

static lk_status forward_statistics(together *t)
{
    lk_forward_opts opts = lk__shard_pass_opts(&t->pass);
    opts.statistics = t->statistics;
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
    for (int64_t s = 0; s < t->trainer->plan.shards; s++) {
        bool present = i < t->pass.n && t->pass.shards[i].index == s;
        LK_TRY(lk_shard_sum_add(sum, s, present ? values + i * stride : NULL));
        i += present;
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
