/* One shard after the other, each on the device that owns it. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
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
    shard->images = wrap(device, LK_F32, LK_SHAPE(n, c, h, w), batch->images + first * c * h * w, batch);
    shard->labels = wrap(device, LK_I32, LK_SHAPE(n), batch->labels + first, batch);
    shard->indices = wrap(device, LK_I64, LK_SHAPE(n), batch->indices + first, batch);
    return shard->images && shard->labels && shard->indices ? LK_OK : lk_error_status();
}

typedef struct shard_run {
    lk_shard_sum *sum;
    int n;
    const lk_dataset *dataset;
    lk_batch *batch;
    lk_shard_fn fn;
    void *user;
    lk_tensor **values; /* scratch of one shard */
} shard_run;

static lk_status run_shard(const shard_run *run, int replica, int64_t index)
{
    int64_t shards = lk__shard_sum_shards(run->sum);
    lk_range samples = lk_part(run->batch->count, shards, index);
    if (samples.begin == samples.end)
        return lk_shard_sum_add(run->sum, index, NULL);
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), replica);
    lk_shard shard = {.replica = replica, .index = index, .shards = shards};
    memset(run->values, 0, (size_t)run->n * sizeof(lk_tensor *));
    lk_scope_begin();
    lk_status status = lk__shard_of_batch(run->dataset, run->batch, samples, device, &shard);
    if (status == LK_OK)
        status = run->fn(run->user, &shard, run->values);
    if (status == LK_OK)
        status = lk_shard_sum_add(run->sum, index, run->values);
    lk_scope_end();
    return status;
}

/* Every device's first shard, then every device's second, …: all devices have work from the start. */
static lk_status run_all(const shard_run *run)
{
    int64_t shards = lk__shard_sum_shards(run->sum);
    int k = lk_strategy_num_replicas(lk__shard_sum_strategy(run->sum));
    for (int64_t i = 0; i < (shards + k - 1) / k; i++) {
        for (int d = 0; d < k; d++) {
            lk_range own = lk_part(shards, k, d);
            if (own.begin + i < own.end)
                LK_TRY(run_shard(run, d, own.begin + i));
        }
    }
    return LK_OK;
}

lk_status lk_run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk_shard_fn fn,
                        void *user, lk_tensor **sums)
{
    shard_run run = {sum, n, dataset, batch, fn, user, lk__calloc((size_t)n, sizeof(lk_tensor *))};
    lk_status status = run.values ? run_all(&run) : LK_ERR_MEMORY;
    lk__free(run.values);
    /* After a failure shards are missing: finish then empties the sum, and the first error stays. */
    lk_status finished = lk_shard_sum_finish(sum, sums);
    return status != LK_OK ? status : finished;
}
