#include "train/step/shard_run.h"

#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/strategy.h"
#include "dist/sum/shard_sum.h"
#include "train/trainer.h"

#include <string.h>

lk_range lk__samples_of_shards(int64_t count, int64_t total, lk_range shards)
{
    return (lk_range){lk_part(count, total, shards.begin).begin, lk_part(count, total, shards.end - 1).end};
}

static void shard_run_tensor_release(void *batch)
{
    lk_batch_release(batch);
}

static lk_tensor *shard_run_tensor(lk_device *device, lk_dtype dtype, lk_shape shape, const void *data, lk_batch *batch)
{
    lk_tensor *tensor = lk_tensor_wrap(device, dtype, shape, (void *)(uintptr_t)data, shard_run_tensor_release, batch);
    if (tensor)
        lk_batch_retain(batch);
    return tensor;
}

lk_status lk__shard_of_batch(const lk_dataset *dataset, lk_batch *batch, lk_range samples, lk_device *device,
                             lk_shard *shard)
{
    int64_t c = lk_dataset_channels(dataset), h = lk_dataset_height(dataset), w = lk_dataset_width(dataset),
            first = samples.begin, n = samples.end - first;
    shard->device = device;
    shard->global_batch = batch->count;
    shard->images = shard->labels = NULL;
    shard->indices = shard_run_tensor(device, LK_I64, LK_SHAPE(n), batch->indices + first, batch);
    if (!batch->images)
        return shard->indices ? LK_OK : lk_error_status();
    shard->images = shard_run_tensor(device, LK_F32, LK_SHAPE(n, c, h, w), batch->images + first * c * h * w, batch);
    shard->labels = shard_run_tensor(device, LK_I32, LK_SHAPE(n), batch->labels + first, batch);
    return shard->images && shard->labels && shard->indices ? LK_OK : lk_error_status();
}

/* The pass of a device's shard or unit, whose values are being pushed. It gives values for each node of the
 * tree that covers these shards. */
typedef struct device_pass {
    int64_t next;       /* the device's first shard that has not begun */
    lk_range *nodes;    /* [n_nodes] */
    lk_tensor **values; /* [n_nodes][n] */
    int *counts;        /* [n]: nodes that have the value; the sum is given a value when all nodes have it */
    lk_replay *replay;  /* with segments left to push; NULL: the sum has all values */
    int n_nodes;
} device_pass;

typedef struct shard_run {
    lk_shard_sum *sum;
    int64_t first, shards; /* the sum's shards are those from `first` on; the batch is cut into `shards` */
    int devices, n;
    const lk_dataset *dataset;
    lk_batch *batch;
    lk__shard_begin_fn begin;
    void *user;
    const lk_shard_units *units;
    device_pass *passes; /* [devices] */
    int *complete;       /* [n], scratch: quantities */
} shard_run;

static lk_range shard_run_samples(const shard_run *run, lk_range shards)
{
    lk_range in_batch = {run->first + shards.begin, run->first + shards.end};
    return lk__samples_of_shards(run->batch->count, run->shards, in_batch);
}

/* Gives the sum quantities complete[0 … n) of all nodes. Nodes without samples have no values. */
static lk_status shard_run_add_nodes(const shard_run *run, const device_pass *p, int n)
{
    for (int m = 0; m < p->n_nodes; m++) {
        lk_range samples = shard_run_samples(run, p->nodes[m]);
        lk_tensor *const *values = samples.begin < samples.end ? p->values + (int64_t)m * run->n : NULL;
        LK_TRY(lk__shard_sum_add_node(run->sum, p->nodes[m], run->complete, n, values));
    }
    return LK_OK;
}

static lk_status shard_run_add_all(const shard_run *run, const device_pass *p)
{
    for (int i = 0; i < run->n; i++)
        run->complete[i] = i;
    return shard_run_add_nodes(run, p, run->n);
}

/* Lists the nodes for which a call for these shards gives values. Returns their number. */
static int shard_run_list_nodes(const shard_run *run, lk_range shards, lk_range *nodes)
{
    if (run->units && run->units->are_summed)
        return lk__tree_cover(lk__shard_sum_shards(run->sum), shards, nodes);
    for (int64_t s = shards.begin; s < shards.end; s++)
        nodes[s - shards.begin] = (lk_range){s, s + 1};
    return (int)(shards.end - shards.begin);
}

static lk_status shard_run_begin_pass(const shard_run *run, int replica, lk_range shards)
{
    device_pass *p = &run->passes[replica];
    lk_range samples = shard_run_samples(run, shards);
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), replica);
    lk_shard shard = {.replica = replica, .index = run->first + shards.begin, .shards = run->shards};
    p->n_nodes = shard_run_list_nodes(run, shards, p->nodes);
    if (samples.begin == samples.end)
        return shard_run_add_all(run, p);
    memset(p->values, 0, (size_t)p->n_nodes * (size_t)run->n * sizeof(lk_tensor *));
    memset(p->counts, 0, (size_t)run->n * sizeof *p->counts);
    LK_TRY(lk__shard_of_batch(run->dataset, run->batch, samples, device, &shard));
    LK_TRY(run->begin(run->user, &shard, p->values, &p->replay));
    return p->replay ? LK_OK : shard_run_add_all(run, p);
}

/* The sum takes a quantity's nodes in order, which need not be the replay's order, so a quantity is complete when all
 * nodes have it. */
static int shard_run_find_complete(const shard_run *run, device_pass *p, const int *ready, int n_ready)
{
    int n = 0;
    for (int r = 0; r < n_ready; r++)
        if (++p->counts[ready[r] % run->n] == p->n_nodes)
            run->complete[n++] = ready[r] % run->n;
    return n;
}

static lk_status shard_run_push_segment(const shard_run *run, device_pass *p)
{
    const int *ready;
    int n_ready;
    LK_TRY(lk_replay_push(p->replay, &ready, &n_ready));
    LK_TRY(shard_run_add_nodes(run, p, shard_run_find_complete(run, p, ready, n_ready)));
    if (lk_replay_segments_left(p->replay) > 0)
        return LK_OK;
    lk_replay_end(p->replay);
    p->replay = NULL;
    return LK_OK;
}

/* Pushes one segment on every device, then the next. Meanwhile the devices exchange what the previous segments
 * finished. */
static lk_status shard_run_push_segments(const shard_run *run)
{
    for (bool any = true; any;) {
        any = false;
        for (int d = 0; d < run->devices; d++) {
            if (!run->passes[d].replay)
                continue;
            LK_TRY(shard_run_push_segment(run, &run->passes[d]));
            any = true;
        }
        LK_TRY(lk_shard_sum_exchange(run->sum));
    }
    return LK_OK;
}

/* Returns the shards of the sum that run together, from `shard` on. */
static lk_range shard_run_unit(const shard_run *run, int replica, int64_t shard)
{
    if (!run->units)
        return (lk_range){shard, shard + 1};
    lk_range unit = run->units->of(run->user, replica, run->first + shard);
    return (lk_range){unit.begin - run->first, unit.end - run->first};
}

/* Runs each device's next shard or unit. */
static lk_status shard_run_row(const shard_run *run)
{
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int d = 0; d < run->devices && status == LK_OK; d++) {
        device_pass *p = &run->passes[d];
        if (p->next == lk__shard_sum_owned(run->sum, d).end)
            continue;
        lk_range unit = shard_run_unit(run, d, p->next);
        p->next = unit.end;
        status = shard_run_begin_pass(run, d, unit);
    }
    if (status == LK_OK)
        status = shard_run_push_segments(run);
    for (int d = 0; d < run->devices; d++) {
        lk_replay_end(run->passes[d].replay);
        run->passes[d].replay = NULL;
    }
    lk_scope_end();
    return status;
}

/* Runs every device's first shard, then every device's second, and so on, so that all devices have work from the
 * start. */
static lk_status shard_run_all(const shard_run *run)
{
    lk_shard_sum_start(run->sum, run->batch->count);
    for (int d = 0; d < run->devices; d++)
        run->passes[d].next = lk__shard_sum_owned(run->sum, d).begin;
    for (bool left = true; left;) {
        LK_TRY(shard_run_row(run));
        left = false;
        for (int d = 0; d < run->devices; d++)
            left |= run->passes[d].next < lk__shard_sum_owned(run->sum, d).end;
    }
    return LK_OK;
}

static int shard_run_most_nodes(const shard_run *run)
{
    int most = 1;
    for (int d = 0; d < run->devices && run->units; d++) {
        lk_range own = lk__shard_sum_owned(run->sum, d), nodes[LK_TREE_COVER];
        int n = run->units->are_summed ? lk__tree_cover(lk__shard_sum_shards(run->sum), own, nodes)
                                       : (int)(own.end - own.begin);
        most = n > most ? n : most;
    }
    return most;
}

static lk_status shard_run_with_memory(shard_run *run)
{
    size_t k = (size_t)run->devices, n = (size_t)run->n, m = (size_t)shard_run_most_nodes(run);
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), 0);
    lk_tensor **values = lk__device_calloc(device, k * m * n, sizeof(lk_tensor *));
    lk_range *nodes = lk__device_calloc(device, k * m, sizeof *nodes);
    int *counts = lk__device_calloc(device, (k + 1) * n, sizeof *counts);
    run->passes = lk__device_calloc(device, k, sizeof *run->passes);
    run->complete = counts;
    bool allocated = values && nodes && counts && run->passes;
    for (size_t d = 0; d < k && allocated; d++)
        run->passes[d] =
            (device_pass){.nodes = nodes + d * m, .values = values + d * m * n, .counts = counts + (d + 1) * n};
    lk_status status = allocated ? shard_run_all(run) : LK_ERR_MEMORY;
    lk__device_free(device, values);
    lk__device_free(device, nodes);
    lk__device_free(device, counts);
    lk__device_free(device, run->passes);
    return status;
}

static lk_status shard_run_batch(shard_run *run, lk_tensor **sums)
{
    run->devices = lk_strategy_num_replicas(lk__shard_sum_strategy(run->sum));
    lk_status status = shard_run_with_memory(run);
    /* After a failure the sum lacks shards: `finish` empties it, and the first error is returned. */
    lk_status finished = lk_shard_sum_finish(run->sum, sums);
    return status != LK_OK ? status : finished;
}

lk_status lk__run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk__shard_begin_fn begin,
                         void *user, const lk_shard_units *units, lk_tensor **sums)
{
    return lk__run_shards_of(sum, 0, lk__shard_sum_shards(sum), n, dataset, batch, begin, user, units, sums);
}

lk_status lk__run_shards_of(lk_shard_sum *sum, int64_t first, int64_t shards, int n, const lk_dataset *dataset,
                            lk_batch *batch, lk__shard_begin_fn begin, void *user, const lk_shard_units *units,
                            lk_tensor **sums)
{
    shard_run run = {.sum = sum,
                     .first = first,
                     .shards = shards,
                     .n = n,
                     .dataset = dataset,
                     .batch = batch,
                     .begin = begin,
                     .user = user,
                     .units = units};
    return shard_run_batch(&run, sums);
}

/* --- a function that gives all values at once --------------------------------------------------------------------- */

typedef struct whole_shard {
    lk_shard_fn fn;
    void *user;
} whole_shard;

static lk_status shard_run_begin_whole(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    const whole_shard *whole = user;
    *replay = NULL;
    lk_status status = whole->fn(whole->user, shard, values);
    if (status != LK_OK && lk_error_status() == LK_OK)
        lk__fail(status, "shard sum: the function failed for a shard: %s", lk_status_name(status));
    return status;
}

lk_status lk_run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk_shard_fn fn,
                        void *user, lk_tensor **sums)
{
    whole_shard whole = {fn, user};
    return lk__run_shards(sum, n, dataset, batch, shard_run_begin_whole, &whole, NULL, sums);
}
