/* How long a strategy takes to sum up over its devices. */
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"
#include "train/scaling.h"

#include <stdlib.h>

enum { WARM_UP = 2, REPEATS = 15 };

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static lk_status wait_and_release(lk_tensor **tensors, int n, lk_status status)
{
    for (int d = 0; d < n; d++) {
        lk_status waited = status == LK_OK ? lk_tensor_wait(tensors[d]) : status;
        lk_tensor_release(tensors[d]);
        tensors[d] = NULL;
        status = waited;
    }
    return status;
}

/* A shard a device, so that nothing is added up but what is exchanged. */
static lk_status sum_once(lk_strategy *strategy, lk_shard_sum *sum, lk_tensor **rows)
{
    int n = lk_strategy_num_replicas(strategy), first = lk_strategy_first_rank(strategy);
    lk_tensor *sums[LK_MAX_DEVICES];
    lk__shard_sum_start(sum, lk_strategy_ranks(strategy));
    for (int d = 0; d < n; d++)
        LK_TRY(lk_shard_sum_add(sum, first + d, &rows[d]));
    LK_TRY(lk_shard_sum_exchange(sum));
    lk_status status = lk_shard_sum_finish(sum, sums);
    return wait_and_release(sums, n, status);
}

static lk_status time_sums(lk_strategy *strategy, lk_shard_sum *sum, lk_tensor **rows, double *seconds)
{
    double times[REPEATS];
    for (int i = -WARM_UP; i < REPEATS; i++) {
        int64_t began = lk__trace_clock();
        LK_TRY(sum_once(strategy, sum, rows));
        if (i >= 0)
            times[i] = 1e-9 * (double)(lk__trace_clock() - began);
    }
    qsort(times, REPEATS, sizeof *times, compare);
    *seconds = times[REPEATS / 2];
    return LK_OK;
}

static lk_status make_rows(lk_strategy *strategy, int64_t elements, lk_tensor **rows)
{
    int n = lk_strategy_num_replicas(strategy);
    for (int d = 0; d < n; d++)
        rows[d] = lk_zeros(lk_strategy_device(strategy, d), LK_F32, LK_SHAPE(elements));
    for (int d = 0; d < n; d++) {
        if (!rows[d])
            return lk_error_status();
        LK_TRY(lk_tensor_wait(rows[d]));
    }
    return LK_OK;
}

lk_status lk__time_exchange(lk_strategy *strategy, int64_t elements, double *seconds)
{
    lk_tensor *rows[LK_MAX_DEVICES];
    lk_shard_sum *sum = lk_shard_sum_new(strategy, lk_strategy_ranks(strategy), 1);
    if (!sum)
        return lk_error_status();
    lk_scope_begin();
    lk_status status = make_rows(strategy, elements, rows);
    if (status == LK_OK)
        status = time_sums(strategy, sum, rows, seconds);
    lk_scope_end();
    lk_shard_sum_release(sum);
    return status;
}
