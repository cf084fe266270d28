/* The scaling report counts how often a step's bytes cross from device to device, and derives latency and bandwidth
 * from two timed rows. docs/scaling.md derives the formula. */
#include "train/scaling/scaling_exchange.h"

#include "base/minmax.h"
#include "core/backend.h"
#include "dist/strategy.h"
#include "report/scaling_model.h"
#include "train/replicas.h"
#include "train/scaling/exchange_time.h"
#include "train/step/sync_step.h"
#include "train/trainer.h"
#include "train/trainer_devices.h"

#include <math.h>
#include <string.h>

enum {
    SMALL_ROW = 1 << 14, /* elements: more than LK_SMALL_QUANTITY, so that it is exchanged as gradients are */
    LEAST_ROW = 1 << 19,
    LARGEST_ROW = 1 << 22
};

/* The exchange of a bucket by a strategy: the messages from one device to each other one, and how often the bucket's
 * bytes are sent in slices and as a whole. fetched: how often a step's variables are fetched whole after the update. */
typedef struct exchange_pattern {
    int messages, slices, wholes;
    int fetched;
} exchange_pattern;

static exchange_pattern scaling_exchange_pattern(const lk_strategy *strategy)
{
    if (!strategy->storage)
        return (exchange_pattern){.messages = 2, .slices = 1};
    if (lk__has_separate_storage(strategy) || strategy->storage->backend->offload)
        return (exchange_pattern){.messages = 1, .wholes = 1, .fetched = 1};
    /* Devices that share their memory add up a slice each, and write it to the stored sum. */
    return (exchange_pattern){.messages = 2, .slices = 1, .fetched = 1};
}

/* --- timing ------------------------------------------------------------------------------------------------------- */

/* The number of elements of the large row. */
static int64_t scaling_exchange_large_row(const lk_plan *plan)
{
    return lk__max(lk__min(plan->parameters, LARGEST_ROW), LEAST_ROW);
}

lk_status lk__time_rows(const lk_trainer *trainer, double *small, double *large)
{
    *small = *large = NAN;
    /* Devices that compile send whole tensors to each other: the formula is about slices. */
    if (trainer->plan.devices < 2 || trainer->devices[0]->backend->modules)
        return LK_OK;
    LK_TRY(lk__time_exchange(trainer->strategy, SMALL_ROW, small));
    return lk__time_exchange(trainer->strategy, scaling_exchange_large_row(&trainer->plan), large);
}

/* --- what a step exchanges ---------------------------------------------------------------------------------------- */

static int64_t scaling_exchange_count_buckets(const lk_trainer *trainer)
{
    bool at_once = trainer->config.execution.executor == LK_EXECUTOR_EAGER ||
                   lk__runs_shards_together(trainer, trainer->sums.train, 0);
    return at_once && !trainer->strategy->group ? 1 : trainer->sums.n_buckets;
}

static void scaling_exchange_put_amounts(const lk_trainer *trainer, exchange_pattern w, lk_scaling_report *r)
{
    int64_t buckets = scaling_exchange_count_buckets(trainer);
    const lk_strategy *strategy = trainer->strategy;
    bool sends_small = strategy->allreduce && (strategy->compressed || trainer->plan.parameters <= LK_SMALL_QUANTITY);
    double sliced = 0, small = 0;
    for (int i = 0; i < trainer->n_parameters; i++) {
        int64_t elements = lk_shape_count(lk_model_variable_shape(trainer->model, i));
        bool is_small = sends_small && elements <= LK_SMALL_QUANTITY;
        *(is_small ? &small : &sliced) += (double)elements * sizeof(float);
    }
    r->sliced_bytes = w.slices * sliced;
    r->whole_bytes = small + (w.wholes + w.fetched) * sliced;
    r->messages = (sliced > 0 ? w.messages * buckets : 0) + (small > 0 ? buckets : 0) + w.fetched;
    r->messages += trainer->sums.votes != NULL;
    if (lk__replicas_slices(trainer->replicas)) { /* each update gathers them, as the second half of an exchange does */
        r->sliced_bytes += (sliced + small) / 2 / (double)trainer->plan.accumulate;
        r->messages++;
    }
}

/* The times of two rows of known lengths are two equations for latency and bandwidth. */
void lk__put_exchange(const lk_trainer *trainer, double small, double large, lk_scaling_report *r)
{
    exchange_pattern w = scaling_exchange_pattern(trainer->strategy);
    double small_bytes = SMALL_ROW * sizeof(float),
           large_bytes = (double)scaling_exchange_large_row(&trainer->plan) * sizeof(float);
    if (isfinite(large))
        scaling_exchange_put_amounts(trainer, w, r);
    if (!(large > small)) /* false also for NAN */
        return;
    double messages = lk__scaling_hops(r, r->devices) * (w.messages + w.fetched);
    double sent =
        lk__scaling_wholes(r, r->devices) * (w.wholes + w.fetched) + lk__scaling_slices(r, r->devices) * w.slices;
    r->bandwidth = sent * (large_bytes - small_bytes) / (large - small);
    r->latency = (small - sent * small_bytes / r->bandwidth) / messages;
    if (r->latency < 0) { /* too small to measure next to the time for the bytes */
        r->latency = 0;
        r->bandwidth = sent * large_bytes / large;
    }
}
