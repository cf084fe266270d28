/* A group of batch-norm with shards of several devices needs sums over these devices in the middle of the forward and
 * of the backward pass. So all shards run together, layer by layer. On a device that compiles, what a shard computes
 * between two sums is a module. Once both passes are pushed, the shards' values are added up along the tree. */
#include "train/step/sync_step.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/strategy.h"
#include "dist/sum/shard_sum.h"
#include "train/step/cut_programs.h"
#include "train/step/groups.h"
#include "train/step/shard_pass.h"
#include "train/step/shard_run.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

#include <string.h>

typedef struct together {
    lk_shard_pass pass; /* first, so that a function of the pass finds the rest */
    lk_trainer *trainer;
    lk_shard_sum *sum;  /* of the shards' values; its shards are those from `first` on */
    lk_shard_sum *sync; /* of the groups' sums in the middle of a pass */
    int64_t first;
    lk_range *roots;     /* [groups]: those of `sync` if it was made for this step; else NULL */
    lk_tensor **values;  /* [shard * n_values + i] */
    lk_tensor **parts;   /* [groups], scratch: NULL but for the group of the shard at hand */
    lk_tensor **reduced; /* [replica * groups + g], scratch */
    bool is_idle;        /* the process has no samples: the only shard is a blank one */
} together;

bool lk__runs_shards_together(const lk_trainer *trainer, const lk_shard_sum *sum, int64_t first)
{
    return trainer->sums.groups && (!trainer->programs.shard || lk__groups_span_devices(trainer, sum, first));
}

/* Returns shard i of the pass if it is shard s of the sum; else NULL. */
static const lk_shard *sync_step_shard(const together *t, int64_t i, int64_t s)
{
    bool present = !t->is_idle && i < t->pass.n && t->pass.shards[i].index == t->first + s;
    return present ? &t->pass.shards[i] : NULL;
}

/* --- sums of groups, in the middle of a pass ---------------------------------------------------------------------- */

/* Announces the groups' sums. All have the shape of the first part. */
static void sync_step_expect(const together *t, const lk_tensor *like)
{
    const lk_trainer *trainer = t->trainer;
    lk_shard_sum_start(t->sync, t->pass.count);
    for (int g = 0; g < trainer->sums.n_groups; g++) {
        lk_range samples = lk__samples_of_shards(t->pass.count, trainer->plan.shards, trainer->sums.groups[g]);
        lk__shard_sum_expect(t->sync, g, samples.begin < samples.end ? like : NULL);
    }
}

static lk_status sync_step_add_parts(const together *t, lk_tensor *const *parts)
{
    int64_t i = 0;
    for (int d = 0; d < t->trainer->n_devices; d++) {
        lk_range own = lk__shard_sum_owned(t->sync, d);
        for (int64_t s = own.begin; s < own.end; s++) {
            const lk_shard *shard = sync_step_shard(t, i, s);
            int g = shard ? lk__group_number(t->trainer, shard->index) : 0;
            t->parts[g] = shard ? parts[i++] : NULL;
            lk_status status = lk_shard_sum_add(t->sync, s, shard ? t->parts : NULL);
            t->parts[g] = NULL;
            LK_TRY(status);
        }
    }
    return LK_OK;
}

/* Returns the group's sum on the shard's device, or NULL. A strategy with a storing device leaves sums there. */
static lk_tensor *sync_step_group_sum(const together *t, const lk_shard *shard)
{
    int n = t->trainer->sums.n_groups, g = lk__group_number(t->trainer, shard->index);
    if (!lk_strategy_storage(t->trainer->strategy))
        return t->reduced[shard->replica * n + g];
    return t->reduced[g] && lk_tensor_device(t->reduced[g]) != shard->device ? lk_copy(t->reduced[g], shard->device)
                                                                             : t->reduced[g];
}

/* Gives each shard a view, because a tape identifies a tensor by its object. The blank shard's group may have no sum.
 */
static lk_status sync_step_give_views(const together *t, lk_tensor *const *parts, lk_tensor **sums)
{
    for (int i = 0; i < t->pass.n; i++) {
        lk_tensor *sum = sync_step_group_sum(t, &t->pass.shards[i]);
        if (!sum && t->is_idle)
            sum = parts[i];
        sums[i] = sum ? lk_reshape(sum, lk_tensor_shape(sum)) : NULL;
        if (!sums[i])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status sync_step_add_groups(lk_shard_pass *pass, lk_call_site at, lk_tensor *const *parts, lk_tensor **sums)
{
    const together *t = (const together *)pass;
    sync_step_expect(t, parts[0]);
    lk_status status = sync_step_add_parts(t, parts), finished = lk_shard_sum_finish_at(at, t->sync, t->reduced);
    if (status == LK_OK)
        status = finished;
    if (status == LK_OK)
        status = sync_step_give_views(t, parts, sums);
    lk__release_tensors(t->reduced, (int64_t)t->trainer->n_devices * t->trainer->sums.n_groups);
    return status;
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

/* Sets t->sync. A sum over a part of a batch numbers its shards from 0, so it needs roots of its own. */
static lk_status sync_step_make_sync(together *t)
{
    const lk_trainer_sums *sums = &t->trainer->sums;
    t->sync = sums->sync;
    if (t->sync)
        return LK_OK;
    t->roots = lk__calloc((size_t)sums->n_groups, sizeof *t->roots);
    if (!t->roots)
        return LK_ERR_MEMORY;
    for (int g = 0; g < sums->n_groups; g++)
        t->roots[g] = (lk_range){sums->groups[g].begin - t->first, sums->groups[g].end - t->first};
    t->sync = lk__shard_sum_new_below(t->trainer->strategy, lk__shard_sum_shards(t->sum), sums->n_groups, t->roots);
    return t->sync ? LK_OK : lk_error_status();
}

/* Prepares the pass over the shards that have samples. If there are none, other processes still wait for this one in
 * every sum in the middle of the passes. So it runs a blank shard, which takes part in the same sums; its values count
 * as absent. */
static lk_status sync_step_start(together *t, lk_batch *batch)
{
    lk_trainer *trainer = t->trainer;
    int n = trainer->n_devices;
    int64_t shards = lk__shard_sum_owned(t->sum, n - 1).end - lk__shard_sum_owned(t->sum, 0).begin;
    LK_TRY(sync_step_make_sync(t));
    LK_TRY(lk__shard_pass_init(&t->pass, trainer, shards));
    t->pass.add_groups = sync_step_add_groups;
    t->values = lk__calloc((size_t)shards * (size_t)trainer->sums.n_values, sizeof *t->values);
    t->parts = lk__calloc((size_t)trainer->sums.n_groups, sizeof(lk_tensor *));
    t->reduced = lk__calloc((size_t)n * (size_t)trainer->sums.n_groups, sizeof(lk_tensor *));
    if (!t->values || !t->parts || !t->reduced)
        return LK_ERR_MEMORY;
    lk__shard_pass_start(&t->pass, &trainer->progress.update, batch, batch->count);
    for (int r = 0; r < n; r++) {
        lk_range own = lk__shard_sum_owned(t->sum, r);
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(lk__shard_pass_add(&t->pass, t->first + s, r, trainer->sums.seeds[r]));
    }
    t->is_idle = t->pass.n == 0;
    return t->is_idle ? lk__shard_pass_add_blank(&t->pass, t->first + lk__shard_sum_owned(t->sum, 0).begin,
                                                 trainer->sums.seeds[0])
                      : LK_OK;
}

/* --- devices that compile ----------------------------------------------------------------------------------------- */

/* Pushes segment k of every shard's pass, and then the sums of groups between it and the next one. parts, sums:
 * scratch. */
static lk_status sync_step_push_segment(together *t, const lk_cut_pass *passes, int k, lk_tensor **parts,
                                        lk_tensor **sums)
{
    const int *ready;
    int n_ready;
    for (int i = 0; i < t->pass.n; i++) {
        LK_TRY(lk_replay_push(passes[i].replay, &ready, &n_ready));
        if (k < passes[i].cuts)
            parts[i] = passes[i].out[t->trainer->sums.n_values + k];
    }
    if (k == passes[0].cuts)
        return LK_OK;
    LK_TRY(sync_step_add_groups(&t->pass, LK_HERE, parts, sums));
    for (int i = 0; i < t->pass.n; i++)
        LK_TRY(lk_copy_into(passes[i].sums[k], sums[i]));
    return LK_OK;
}

static lk_status sync_step_push_segments(together *t, lk_cut_pass *passes, lk_tensor **parts, lk_tensor **sums)
{
    const lk_shard_pass *pass = &t->pass;
    int64_t n_values = t->trainer->sums.n_values;
    for (int i = 0; i < pass->n; i++)
        LK_TRY(lk__cut_pass_begin(t->trainer, &pass->shards[i], i, pass->count, pass->seeds[i], &passes[i]));
    for (int k = 0; k <= passes[0].cuts; k++)
        LK_TRY(sync_step_push_segment(t, passes, k, parts, sums));
    for (int i = 0; i < pass->n; i++)
        memcpy(t->values + i * n_values, passes[i].out, (size_t)n_values * sizeof(lk_tensor *));
    return LK_OK;
}

/* As lk__shard_pass_train, but what a shard computes between two sums of groups is a module. */
static lk_status sync_step_train_cut(together *t)
{
    size_t n = (size_t)t->pass.n;
    lk_cut_pass *passes = lk__calloc(n, sizeof *passes);
    lk_tensor **tensors = lk__calloc(2 * n, sizeof(lk_tensor *));
    lk_status status = passes && tensors ? sync_step_push_segments(t, passes, tensors, tensors + n) : LK_ERR_MEMORY;
    for (size_t i = 0; passes && i < n; i++)
        lk_replay_end(passes[i].replay);
    LK_FREE_ALL(passes, tensors);
    return status;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* Gives the sum each shard's values, which begin at values[shard of the pass * stride]; shards without samples have
 * none. */
static lk_status sync_step_add_up(const together *t, lk_tensor *const *values, int stride)
{
    int64_t i = 0;
    lk_shard_sum_start(t->sum, t->pass.count);
    for (int j = 0; j < stride && t->is_idle; j++)
        lk__shard_sum_expect(t->sum, j, values[j]);
    for (int d = 0; d < t->trainer->n_devices; d++) {
        lk_range own = lk__shard_sum_owned(t->sum, d);
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(lk_shard_sum_add(t->sum, s, sync_step_shard(t, i, s) ? values + i++ * stride : NULL));
    }
    return LK_OK;
}

static lk_status sync_step_run(together *t, lk_batch *batch, bool trains)
{
    LK_TRY(sync_step_start(t, batch));
    if (!trains) {
        LK_TRY(lk__shard_pass_statistics(&t->pass));
        return sync_step_add_up(t, t->pass.statistics, lk__statistics_count(t->trainer));
    }
    LK_TRY(t->trainer->programs.cut ? sync_step_train_cut(t) : lk__shard_pass_train(&t->pass, t->values));
    return sync_step_add_up(t, t->values, t->trainer->sums.n_values);
}

static lk_status sync_step_run_and_free(together *t, lk_batch *batch, bool trains, lk_tensor **sums)
{
    lk_scope_begin();
    lk_status status = sync_step_run(t, batch, trains);
    lk_scope_end();
    lk__shard_pass_free(&t->pass);
    if (t->sync != t->trainer->sums.sync)
        lk_shard_sum_release(t->sync);
    LK_FREE_ALL(t->values, t->parts, t->reduced, t->roots);
    lk_status finished = lk_shard_sum_finish(t->sum, sums);
    return status != LK_OK ? status : finished;
}

lk_status lk__run_shards_together(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                  lk_tensor **sums)
{
    together t = {.trainer = trainer, .sum = sum, .first = first};
    return sync_step_run_and_free(&t, batch, true, sums);
}

lk_status lk__run_statistics_together(lk_trainer *trainer, lk_batch *batch, lk_shard_sum *sum, lk_tensor **sums)
{
    together t = {.trainer = trainer, .sum = sum};
    return sync_step_run_and_free(&t, batch, false, sums);
}
