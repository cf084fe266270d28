#include "train/scaling/exchange_time.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/strategy.h"
#include "dist/sum/shard_sum.h"
#include "dist/sum/stored.h"
#include "lockstep/ops.h"

enum { LEAST_REPEATS = 3, MOST_REPEATS = 30 };
#define SECONDS 0.2 /* the time for all repetitions, unless LEAST_REPEATS take longer */

typedef struct timing {
    lk_strategy *strategy;
    lk_shard_sum *sum;
    int n;            /* devices of this process */
    lk_tensor **rows; /* [n]: the summands */
    /* With a storing device: */
    lk_stored *stored;             /* NULL: there is no storing device */
    lk_tensor *row;                /* the stored row */
    lk_tensor **readers, **landed; /* [n]: the row as each device reads it, and the device's memory for what it reads */
} timing;

/* --- one exchange ------------------------------------------------------------------------------------------------- */

/* Each device has one shard, so that the only additions are those of the exchange. */
static lk_status exchange_time_push_sum(const timing *t, lk_tensor **sums)
{
    int first = lk_strategy_first_rank(t->strategy);
    lk_shard_sum_start(t->sum, lk_strategy_ranks(t->strategy));
    for (int d = 0; d < t->n; d++)
        LK_TRY(lk_shard_sum_add(t->sum, first + d, &t->rows[d]));
    LK_TRY(lk_shard_sum_exchange(t->sum));
    return lk_shard_sum_finish(t->sum, sums);
}

static lk_status exchange_time_wait(lk_tensor *const *tensors, int n)
{
    for (int d = 0; d < n; d++)
        LK_TRY(lk_tensor_wait(tensors[d]));
    return LK_OK;
}

/* The storing device writes the row, as an update does, so that it is in no other device's cache. Then the other
 * devices fetch it, and the time of that is added to *seconds; devices that read in place copy the row to measure
 * it. */
static lk_status exchange_time_fetch(const timing *t, lk_tensor *sum, double *seconds)
{
    LK_TRY(lk__stored_begin_update(t->stored));
    LK_TRY(lk_copy_into(t->row, sum));
    LK_TRY(lk_tensor_wait(t->row));
    int64_t began = lk__nanoseconds();
    LK_TRY(lk__stored_end_update(t->stored));
    for (int d = 0; d < t->n; d++)
        if (t->landed[d] != t->readers[d])
            LK_TRY(lk_copy_into(t->landed[d], t->readers[d]));
    LK_TRY(exchange_time_wait(t->landed, t->n));
    *seconds += 1e-9 * (double)(lk__nanoseconds() - began);
    return LK_OK;
}

static lk_status exchange_time_run_once(const timing *t, double *seconds)
{
    lk_tensor *sums[LK_MAX_DEVICES];
    int owners = lk_strategy_owners(t->strategy);
    int64_t began = lk__nanoseconds();
    LK_TRY(exchange_time_push_sum(t, sums));
    lk_status status = exchange_time_wait(sums, owners);
    *seconds = 1e-9 * (double)(lk__nanoseconds() - began);
    if (status == LK_OK && t->stored)
        status = exchange_time_fetch(t, sums[0], seconds);
    for (int d = 0; d < owners; d++)
        lk_tensor_release(sums[d]);
    return status;
}

/* --- repetitions -------------------------------------------------------------------------------------------------- */

/* Replaces each of seconds[0 … n) by the longest time that any process had. */
static lk_status exchange_time_agree(const lk_strategy *strategy, double *seconds, int n)
{
    if (!strategy->group)
        return LK_OK;
    double *all = lk__group_gather_new(strategy->group, seconds, (size_t)n * sizeof *seconds);
    if (!all)
        return lk_error_status();
    for (int i = 0; i < lk__group_ranks(strategy->group) * n; i++)
        seconds[i % n] = all[i] > seconds[i % n] ? all[i] : seconds[i % n];
    lk__free(all);
    return LK_OK;
}

/* The first exchange allocates memory that is kept, and the second tells how many repetitions to make. Other processes
 * on the same cores disturb the shortest one least, so its time is the result. */
static lk_status exchange_time_run_all(const timing *t, double *seconds)
{
    double times[MOST_REPEATS], once;
    LK_TRY(exchange_time_run_once(t, &once));
    LK_TRY(exchange_time_run_once(t, &once));
    LK_TRY(exchange_time_agree(t->strategy, &once, 1)); /* all processes make the same number of repetitions */
    int repeats = MOST_REPEATS;
    while (repeats > LEAST_REPEATS && repeats * once > SECONDS)
        repeats--;
    for (int i = 0; i < repeats; i++)
        LK_TRY(exchange_time_run_once(t, &times[i]));
    LK_TRY(exchange_time_agree(t->strategy, times, repeats));
    *seconds = times[0];
    for (int i = 1; i < repeats; i++)
        *seconds = times[i] < *seconds ? times[i] : *seconds;
    return LK_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static lk_status exchange_time_make_row(lk_device *device, int64_t elements, lk_tensor **row)
{
    *row = lk_zeros(device, LK_F32, LK_SHAPE(elements));
    return *row ? lk_tensor_wait(*row) : lk_error_status();
}

/* If a reader is a copy already, reading it needs no further memory. */
static lk_status exchange_time_make_stored(timing *t, int64_t elements)
{
    lk_device *storage = lk_strategy_storage(t->strategy), *devices[LK_MAX_DEVICES];
    for (int d = 0; d < t->n; d++)
        devices[d] = lk_strategy_device(t->strategy, d);
    LK_TRY(exchange_time_make_row(storage, elements, &t->row));
    LK_TRY(lk__stored_new(&t->row, 1, devices, t->n, t->readers, &t->stored));
    for (int d = 0; d < t->n; d++) {
        bool is_copy = storage->backend->offload || devices[d]->backend->offload;
        if (devices[d] == storage || is_copy)
            t->landed[d] = t->readers[d];
        else
            LK_TRY(exchange_time_make_row(devices[d], elements, &t->landed[d]));
    }
    return LK_OK;
}

lk_status lk__time_exchange(lk_strategy *strategy, int64_t elements, double *seconds)
{
    lk_tensor *rows[LK_MAX_DEVICES], *readers[LK_MAX_DEVICES] = {NULL}, *landed[LK_MAX_DEVICES];
    timing t = {.strategy = strategy,
                .n = lk_strategy_num_replicas(strategy),
                .rows = rows,
                .readers = readers,
                .landed = landed};
    t.sum = lk_shard_sum_new(strategy, lk_strategy_ranks(strategy), 1);
    if (!t.sum)
        return lk_error_status();
    lk_scope_begin();
    lk_status status = LK_OK;
    for (int d = 0; d < t.n && status == LK_OK; d++)
        status = exchange_time_make_row(lk_strategy_device(strategy, d), elements, &rows[d]);
    if (status == LK_OK && lk_strategy_storage(strategy))
        status = exchange_time_make_stored(&t, elements);
    if (status == LK_OK)
        status = exchange_time_run_all(&t, seconds);
    for (int d = 0; d < t.n; d++)
        lk_tensor_release(readers[d]);
    lk__stored_release(t.stored);
    lk_scope_end();
    lk_shard_sum_release(t.sum);
    return status;
}
