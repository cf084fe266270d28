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

/* A device's shards, one or all of them, whose values are on their way: of each node of the tree over shards that is
 * theirs. */
typedef struct pass_under_way {
    lk_range *nodes;    /* [n_nodes] */
    lk_tensor **values; /* [n_nodes][n] */
    int *there;         /* [n]: how many nodes have a value; all do, or none, as far as the sum knows */
    lk_replay *replay;  /* with segments left to push; NULL: the sum has all values */
    int n_nodes;
} pass_under_way;

typedef struct shard_run {
    lk_shard_sum *sum;
    int64_t first, shards; /* the sum's shards are those from `first` on, of so many that the batch is cut into */
    int devices, n;
    const lk_dataset *dataset;
    lk_batch *batch;
    lk__shard_begin_fn begin;
    void *user;
    bool by_device;            /* all shards of a device at a time */
    pass_under_way *under_way; /* [devices] */
    int *complete;             /* [n], scratch: quantities */
} shard_run;

static lk_range samples_of(const shard_run *run, lk_range shards)
{
    int64_t count = run->batch->count;
    return (lk_range){lk_part(count, run->shards, run->first + shards.begin).begin,
                      lk_part(count, run->shards, run->first + shards.end - 1).end};
}

/* Quantities complete[0 … n). Of nodes without samples they are absent. */
static lk_status add_nodes(const shard_run *run, const pass_under_way *p, int n)
{
    for (int m = 0; m < p->n_nodes; m++) {
        lk_range samples = samples_of(run, p->nodes[m]);
        lk_tensor *const *values = samples.begin < samples.end ? p->values + (int64_t)m * run->n : NULL;
        LK_TRY(lk__shard_sum_add_node(run->sum, p->nodes[m], run->complete, n, values));
    }
    return LK_OK;
}

static lk_status add_all(const shard_run *run, const pass_under_way *p)
{
    for (int i = 0; i < run->n; i++)
        run->complete[i] = i;
    return add_nodes(run, p, run->n);
}

static lk_status begin_pass(const shard_run *run, int replica, lk_range shards)
{
    pass_under_way *p = &run->under_way[replica];
    lk_range samples = samples_of(run, shards);
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), replica);
    lk_shard shard = {.replica = replica, .index = run->first + shards.begin, .shards = run->shards};
    p->n_nodes = lk__tree_cover(lk__shard_sum_shards(run->sum), shards, p->nodes);
    if (samples.begin == samples.end)
        return add_all(run, p);
    memset(p->values, 0, (size_t)p->n_nodes * (size_t)run->n * sizeof(lk_tensor *));
    memset(p->there, 0, (size_t)run->n * sizeof *p->there);
    LK_TRY(lk__shard_of_batch(run->dataset, run->batch, samples, device, &shard));
    LK_TRY(run->begin(run->user, &shard, p->values, &p->replay));
    return p->replay ? LK_OK : add_all(run, p);
}

/* The sum takes nodes in order, which need not be that of a replay; nothing can leave before all nodes have it. */
static int find_complete(const shard_run *run, pass_under_way *p, const int *ready, int n_ready)
{
    int n = 0;
    for (int r = 0; r < n_ready; r++)
        if (++p->there[ready[r] % run->n] == p->n_nodes)
            run->complete[n++] = ready[r] % run->n;
    return n;
}

static lk_status push_segment(const shard_run *run, pass_under_way *s)
{
    const int *ready;
    int n_ready;
    LK_TRY(lk_replay_push(s->replay, &ready, &n_ready));
    LK_TRY(add_nodes(run, s, find_complete(run, s, ready, n_ready)));
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

/* Every device's shard number i of its own, or all of its shards. */
static lk_status run_row(const shard_run *run, int64_t i)
{
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int d = 0; d < run->devices && status == LK_OK; d++) {
        lk_range own = lk__shard_sum_owned(run->sum, d), one = {own.begin + i, own.begin + i + 1};
        if (run->by_device || one.end <= own.end)
            status = begin_pass(run, d, run->by_device ? own : one);
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
    for (int64_t i = 0; i < (run->by_device ? 1 : most); i++)
        LK_TRY(run_row(run, i));
    return LK_OK;
}

static int most_nodes(const shard_run *run)
{
    lk_range nodes[LK_TREE_COVER];
    int64_t shards = lk__shard_sum_shards(run->sum);
    int most = 1;
    for (int d = 0; d < run->devices && run->by_device; d++) {
        int n = lk__tree_cover(shards, lk__shard_sum_owned(run->sum, d), nodes);
        most = n > most ? n : most;
    }
    return most;
}

static lk_status allocate_and_run(shard_run *run)
{
    size_t k = (size_t)run->devices, n = (size_t)run->n, m = (size_t)most_nodes(run);
    lk_device *device = lk_strategy_device(lk__shard_sum_strategy(run->sum), 0);
    lk_tensor **values = lk__device_calloc(device, k * m * n, sizeof(lk_tensor *));
    lk_range *nodes = lk__device_calloc(device, k * m, sizeof *nodes);
    int *counts = lk__device_calloc(device, (k + 1) * n, sizeof *counts);
    run->under_way = lk__device_calloc(device, k, sizeof *run->under_way);
    run->complete = counts;
    bool is_there = values && nodes && counts && run->under_way;
    for (size_t d = 0; d < k && is_there; d++)
        run->under_way[d] =
            (pass_under_way){.nodes = nodes + d * m, .values = values + d * m * n, .there = counts + (d + 1) * n};
    lk_status status = is_there ? run_all(run) : LK_ERR_MEMORY;
    lk__device_free(device, values);
    lk__device_free(device, nodes);
    lk__device_free(device, counts);
    lk__device_free(device, run->under_way);
    return status;
}

static lk_status run_batch(shard_run *run, lk_tensor **sums)
{
    lk_status status = allocate_and_run(run);
    /* After a failure shards are missing: finish then empties the sum, and the first error stays. */
    lk_status finished = lk_shard_sum_finish(run->sum, sums);
    return status != LK_OK ? status : finished;
}

lk_status lk__run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk__shard_begin_fn begin,
                         void *user, bool by_device, lk_tensor **sums)
{
    shard_run run = {.sum = sum,
                     .shards = lk__shard_sum_shards(sum),
                     .devices = lk_strategy_num_replicas(lk__shard_sum_strategy(sum)),
                     .n = n,
                     .dataset = dataset,
                     .batch = batch,
                     .begin = begin,
                     .user = user,
                     .by_device = by_device};
    return run_batch(&run, sums);
}

lk_status lk__run_shards_of(lk_shard_sum *sum, int64_t first, int64_t shards, int n, const lk_dataset *dataset,
                            lk_batch *batch, lk__shard_begin_fn begin, void *user, lk_tensor **sums)
{
    shard_run run = {.sum = sum,
                     .first = first,
                     .shards = shards,
                     .devices = lk_strategy_num_replicas(lk__shard_sum_strategy(sum)),
                     .n = n,
                     .dataset = dataset,
                     .batch = batch,
                     .begin = begin,
                     .user = user};
    return run_batch(&run, sums);
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
    return lk__run_shards(sum, n, dataset, batch, begin_whole, &whole, false, sums);
}
