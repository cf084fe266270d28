/* A batch's shards, each on the device that owns it, and their sums. */
#include "train/trainer.h"

#include "base/status.h"
#include "core/backend.h"
#include "dist/strategy.h"

#include <string.h>

static void release_batch(void *batch)
{
    lk_batch_release(batch);
}

static lk_tensor *wrap(lk_device *device, lk_dtype dtype, lk_shape shape, const void *data, lk_batch *batch)
{
    lk_tensor *tensor = lk_tensor_wrap(device, dtype, shape, (void *)(uintptr_t)data, release_batch, batch);
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
    shard->indices = wrap(device, LK_I64, LK_SHAPE(n), batch->indices + first, batch);
    if (!batch->images)
        return shard->indices ? LK_OK : lk_error_status();
    shard->images = wrap(device, LK_F32, LK_SHAPE(n, c, h, w), batch->images + first * c * h * w, batch);
    shard->labels = wrap(device, LK_I32, LK_SHAPE(n), batch->labels + first, batch);
    return shard->images && shard->labels && shard->indices ? LK_OK : lk_error_status();
}

/* A device's shard whose values are on their way. */
typedef struct shard_under_way {
    int64_t index;
    lk_tensor **values; /* [n] */
    lk_replay *replay;  /* with segments left to push; NULL: the sum has all values */
} shard_under_way;

typedef struct shard_run {
    lk_shard_sum *sum;
    int devices, n;
    const lk_dataset *dataset;
    lk_batch *batch;
    lk__shard_begin_fn begin;
    void *user;
    shard_under_way *under_way; /* [devices] */
} shard_run;

static lk_status begin_shard(const shard_run *run, int replica, int64_t index)
{
    shard_under_way *s = &run->under_way[replica];
    int64_t shards = lk__shard_sum_shards(run->sum);
    lk_range samples = lk_part(run->batch->count, shards, index);
    if (samples.begin == samples.end)
        return lk_shard_sum_add(run->sum, index, NULL);
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), replica);
    lk_shard shard = {.replica = replica, .index = index, .shards = shards};
    s->index = index;
    memset(s->values, 0, (size_t)run->n * sizeof *s->values);
    LK_TRY(lk__shard_of_batch(run->dataset, run->batch, samples, device, &shard));
    LK_TRY(run->begin(run->user, &shard, s->values, &s->replay));
    return s->replay ? LK_OK : lk_shard_sum_add(run->sum, index, s->values);
}

static lk_status push_segment(const shard_run *run, shard_under_way *s)
{
    const int *ready;
    int n_ready;
    LK_TRY(lk_replay_push(s->replay, &ready, &n_ready));
    LK_TRY(lk_shard_sum_add_some(run->sum, s->index, ready, n_ready, s->values));
    if (lk_replay_segments_left(s->replay) > 0)
        return LK_OK;
    lk_replay_end(s->replay);
    s->replay = NULL;
    return LK_OK;
}

/* Pushes a segment on every device, then another: what their last shards finish can be exchanged meanwhile. */
static lk_status push_segments(const shard_run *run)
{
    for (bool any = true; any;) {
        any = false;
        for (int d = 0; d < run->devices; d++) {
            if (!run->under_way[d].replay)
                continue;
            LK_TRY(push_segment(run, &run->under_way[d]));
            any = true;
        }
        LK_TRY(lk_shard_sum_exchange(run->sum));
    }
    return LK_OK;
}

/* Every device's shard number i of its own. */
static lk_status run_row(const shard_run *run, int64_t i)
{
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int d = 0; d < run->devices && status == LK_OK; d++) {
        lk_range own = lk__shard_sum_owned(run->sum, d);
        if (own.begin + i < own.end)
            status = begin_shard(run, d, own.begin + i);
    }
    if (status == LK_OK)
        status = push_segments(run);
    for (int d = 0; d < run->devices; d++) {
        lk_replay_end(run->under_way[d].replay);
        run->under_way[d].replay = NULL;
    }
    lk_scope_end();
    return status;
}

/* Every device's first shard, then every device's second, …: all devices have work from the start. */
static lk_status run_all(const shard_run *run)
{
    int64_t most = 0;
    for (int d = 0; d < run->devices; d++) {
        lk_range own = lk__shard_sum_owned(run->sum, d);
        most = own.end - own.begin > most ? own.end - own.begin : most;
    }
    lk__shard_sum_start(run->sum, run->batch->count);
    for (int64_t i = 0; i < most; i++)
        LK_TRY(run_row(run, i));
    return LK_OK;
}

static lk_status allocate_and_run(shard_run *run)
{
    size_t k = (size_t)run->devices, n = (size_t)run->n;
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), 0);
    lk_tensor **values = lk__device_calloc(device, k * n, sizeof(lk_tensor *));
    run->under_way = lk__device_calloc(device, k, sizeof *run->under_way);
    for (size_t d = 0; d < k && values && run->under_way; d++)
        run->under_way[d].values = values + d * n;
    lk_status status = values && run->under_way ? run_all(run) : LK_ERR_MEMORY;
    lk__device_free(device, values);
    lk__device_free(device, run->under_way);
    return status;
}

lk_status lk__run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk__shard_begin_fn begin,
                         void *user, lk_tensor **sums)
{
    shard_run run = {.sum = sum,
                     .devices = lk_strategy_num_replicas(lk__shard_sum_strategy(sum)),
                     .n = n,
                     .dataset = dataset,
                     .batch = batch,
                     .begin = begin,
                     .user = user};
    lk_status status = allocate_and_run(&run);
    /* After a failure shards are missing: finish then empties the sum, and the first error stays. */
    lk_status finished = lk_shard_sum_finish(sum, sums);
    return status != LK_OK ? status : finished;
}

/* --- a function that gives all values at once --------------------------------------------------------------------- */

typedef struct whole_shard {
    lk_shard_fn fn;
    void *user;
} whole_shard;

static lk_status begin_whole(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    const whole_shard *whole = user;
    *replay = NULL;
    return whole->fn(whole->user, shard, values);
}

lk_status lk_run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk_shard_fn fn,
                        void *user, lk_tensor **sums)
{
    whole_shard whole = {fn, user};
    return lk__run_shards(sum, n, dataset, batch, begin_whole, &whole, sums);
}
