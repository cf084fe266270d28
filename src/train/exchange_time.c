/* How long a strategy takes to sum up over its devices, and, where one device stores the variables, to have the others
 * fetch them. */
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/trace.h"
#include "dist/stored.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"
#include "train/scaling.h"

enum { LEAST_REPEATS = 3, MOST_REPEATS = 30 };
#define SECONDS 0.2 /* that they take together, where the fewest do not take longer */

typedef struct timing {
    lk_strategy *strategy;
    lk_shard_sum *sum;
    int n;            /* devices of this process */
    lk_tensor **rows; /* [n]: what is summed up */
    /* Of a strategy with a storing device: a row there as the others have it, and where they put it; else NULL. */
    lk_stored *stored;
    lk_tensor *row;
    lk_tensor **readers, **landed; /* [n] */
} timing;

/* --- once --------------------------------------------------------------------------------------------------------- */

/* A shard a device, so that nothing is added up but what is exchanged. */
static lk_status push_sum(const timing *t, lk_tensor **sums)
{
    int first = lk_strategy_first_rank(t->strategy);
    lk__shard_sum_start(t->sum, lk_strategy_ranks(t->strategy));
    for (int d = 0; d < t->n; d++)
        LK_TRY(lk_shard_sum_add(t->sum, first + d, &t->rows[d]));
    LK_TRY(lk_shard_sum_exchange(t->sum));
    return lk_shard_sum_finish(t->sum, sums);
}

static lk_status wait_for_all(lk_tensor *const *tensors, int n)
{
    for (int d = 0; d < n; d++)
        LK_TRY(lk_tensor_wait(tensors[d]));
    return LK_OK;
}

/* The storing device writes, as an update does, so that what is fetched is in no other device's cache. Adds to
 * *seconds what comes behind that: devices that read in place fetch what they read. */
static lk_status fetch(const timing *t, lk_tensor *sum, double *seconds)
{
    LK_TRY(lk__stored_begin_update(t->stored));
    LK_TRY(lk_copy_into(t->row, sum));
    LK_TRY(lk_tensor_wait(t->row));
    int64_t began = lk__trace_clock();
    LK_TRY(lk__stored_end_update(t->stored));
    for (int d = 0; d < t->n; d++)
        if (t->landed[d] != t->readers[d])
            LK_TRY(lk_copy_into(t->landed[d], t->readers[d]));
    LK_TRY(wait_for_all(t->landed, t->n));
    *seconds += 1e-9 * (double)(lk__trace_clock() - began);
    return LK_OK;
}

static lk_status time_once(const timing *t, double *seconds)
{
    lk_tensor *sums[LK_MAX_DEVICES];
    int owners = lk_strategy_owners(t->strategy);
    int64_t began = lk__trace_clock();
    LK_TRY(push_sum(t, sums));
    lk_status status = wait_for_all(sums, owners);
    *seconds = 1e-9 * (double)(lk__trace_clock() - began);
    if (status == LK_OK && t->stored)
        status = fetch(t, sums[0], seconds);
    for (int d = 0; d < owners; d++)
        lk_tensor_release(sums[d]);
    return status;
}

/* --- the quickest ------------------------------------------------------------------------------------------------- */

/* seconds[0 … n): of each, the longest that any of the processes had. */
static lk_status agree(const lk_strategy *strategy, double *seconds, int n)
{
    if (!strategy->group)
        return LK_OK;
    int processes = lk__group_ranks(strategy->group);
    double *all = lk__calloc((size_t)processes * (size_t)n, sizeof *all);
    lk_status status =
        all ? lk__group_gather(strategy->group, seconds, (size_t)n * sizeof *seconds, all) : LK_ERR_MEMORY;
    for (int i = 0; i < processes * n && status == LK_OK; i++)
        seconds[i % n] = all[i] > seconds[i % n] ? all[i] : seconds[i % n];
    lk__free(all);
    return status;
}

/* The first one makes what is kept, the second one says how long they take. The quickest of the others is the one that
 * other processes on the same cores got least into the way of. */
static lk_status time_all(const timing *t, double *seconds)
{
    double times[MOST_REPEATS], once;
    LK_TRY(time_once(t, &once));
    LK_TRY(time_once(t, &once));
    LK_TRY(agree(t->strategy, &once, 1)); /* all have to repeat it as often */
    int repeats = MOST_REPEATS;
    while (repeats > LEAST_REPEATS && repeats * once > SECONDS)
        repeats--;
    for (int i = 0; i < repeats; i++)
        LK_TRY(time_once(t, &times[i]));
    LK_TRY(agree(t->strategy, times, repeats));
    *seconds = times[0];
    for (int i = 1; i < repeats; i++)
        *seconds = times[i] < *seconds ? times[i] : *seconds;
    return LK_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static lk_status make_row(lk_device *device, int64_t elements, lk_tensor **row)
{
    *row = lk_zeros(device, LK_F32, LK_SHAPE(elements));
    return *row ? lk_tensor_wait(*row) : lk_error_status();
}

/* What is a copy by itself lands where it is read. */
static lk_status make_stored(timing *t, int64_t elements)
{
    lk_device *storage = lk_strategy_storage(t->strategy), *devices[LK_MAX_DEVICES];
    for (int d = 0; d < t->n; d++)
        devices[d] = lk_strategy_device(t->strategy, d);
    LK_TRY(make_row(storage, elements, &t->row));
    LK_TRY(lk__stored_new(&t->row, 1, devices, t->n, t->readers, &t->stored));
    for (int d = 0; d < t->n; d++) {
        bool is_copy = storage->backend->offload || devices[d]->backend->offload;
        if (devices[d] == storage || is_copy)
            t->landed[d] = t->readers[d];
        else
            LK_TRY(make_row(devices[d], elements, &t->landed[d]));
    }
    return LK_OK;
}

static lk_status make_rows(timing *t, int64_t elements)
{
    for (int d = 0; d < t->n; d++)
        LK_TRY(make_row(lk_strategy_device(t->strategy, d), elements, &t->rows[d]));
    return lk_strategy_storage(t->strategy) ? make_stored(t, elements) : LK_OK;
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
    lk_status status = make_rows(&t, elements);
    if (status == LK_OK)
        status = time_all(&t, seconds);
    for (int d = 0; d < t.n; d++)
        lk_tensor_release(readers[d]);
    lk__stored_release(t.stored);
    lk_scope_end();
    lk_shard_sum_release(t.sum);
    return status;
}
