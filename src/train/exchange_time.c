/* How long a strategy takes to sum up over its devices. */
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"
#include "train/scaling.h"

enum { LEAST_REPEATS = 3, MOST_REPEATS = 30 };
#define SECONDS 0.2 /* that they take together, where the fewest do not take longer */

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

static lk_status time_sum(lk_strategy *strategy, lk_shard_sum *sum, lk_tensor **rows, double *seconds)
{
    int64_t began = lk__trace_clock();
    LK_TRY(sum_once(strategy, sum, rows));
    *seconds = 1e-9 * (double)(lk__trace_clock() - began);
    return LK_OK;
}

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
static lk_status time_sums(lk_strategy *strategy, lk_shard_sum *sum, lk_tensor **rows, double *seconds)
{
    double times[MOST_REPEATS], once;
    LK_TRY(time_sum(strategy, sum, rows, &once));
    LK_TRY(time_sum(strategy, sum, rows, &once));
    LK_TRY(agree(strategy, &once, 1)); /* all have to repeat it as often */
    int repeats = MOST_REPEATS;
    while (repeats > LEAST_REPEATS && repeats * once > SECONDS)
        repeats--;
    for (int i = 0; i < repeats; i++)
        LK_TRY(time_sum(strategy, sum, rows, &times[i]));
    LK_TRY(agree(strategy, times, repeats));
    *seconds = times[0];
    for (int i = 1; i < repeats; i++)
        *seconds = times[i] < *seconds ? times[i] : *seconds;
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
