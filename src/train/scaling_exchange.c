/* What a strategy's exchange is to the scaling report: how often a step's bytes cross from device to device, and, from
 * two timed rows, latency and bandwidth. docs/scaling.md derives the formula that this fills in. */
#include "core/backend.h"
#include "dist/strategy.h"
#include "train/scaling.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

enum {
    SMALL_ROW = 1 << 14, /* elements: more than LK_FLAT_SMALL, so that it goes the way that gradients go */
    LEAST_ROW = 1 << 19,
    LARGEST_ROW = 1 << 22
};

/* Of values that are summed up: how many messages a bucket is from one device to each other one, and how often its
 * bytes go there in slices, and whole. fetched: likewise of the variables, in a step, behind the update. */
typedef struct way {
    int messages, slices, wholes;
    int fetched;
} way;

static way way_of(const lk_strategy *strategy)
{
    if (!strategy->storage)
        return (way){.messages = 2, .slices = 1};
    if (lk__stores_beside(strategy) || strategy->storage->backend->offload)
        return (way){.messages = 1, .wholes = 1, .fetched = 1};
    /* Devices that share their memory add up a slice each, and leave it where it is stored. */
    return (way){.messages = 2, .slices = 1, .fetched = 1};
}

bool lk__stores_beside(const lk_strategy *strategy)
{
    bool computes = !strategy->storage;
    for (int d = 0; d < strategy->n_devices; d++)
        computes = computes || strategy->devices[d] == strategy->storage;
    return !computes;
}

/* --- timing ------------------------------------------------------------------------------------------------------- */

/* Elements of the longer row that the exchange is timed with. */
static int64_t large_row(const lk_plan *plan)
{
    int64_t most = plan->parameters < LARGEST_ROW ? plan->parameters : LARGEST_ROW;
    return most > LEAST_ROW ? most : LEAST_ROW;
}

lk_status lk__time_rows(const lk_trainer *trainer, double *small, double *large)
{
    *small = *large = NAN;
    if (trainer->plan.devices < 2)
        return LK_OK;
    LK_TRY(lk__time_exchange(trainer->strategy, SMALL_ROW, small));
    return lk__time_exchange(trainer->strategy, large_row(&trainer->plan), large);
}

/* --- what a step exchanges ---------------------------------------------------------------------------------------- */

static int64_t count_buckets(const lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    bool at_once = config->executor == LK_EXECUTOR_EAGER || config->bucket_mb <= 0 ||
                   (trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model));
    double bytes = (double)trainer->plan.parameters * sizeof(float);
    return at_once ? 1 : (int64_t)ceil(bytes / (1e6 * config->bucket_mb));
}

static void put_amounts(const lk_trainer *trainer, way w, lk_scaling_report *r)
{
    int64_t buckets = count_buckets(trainer);
    double sliced = 0, small = 0;
    for (int i = 0; i < trainer->n_parameters; i++) {
        int64_t elements = lk_shape_count(lk_model_variable_shape(trainer->model, i));
        bool is_small = trainer->strategy->flat && elements <= LK_FLAT_SMALL;
        *(is_small ? &small : &sliced) += (double)elements * sizeof(float);
    }
    r->sliced_bytes = w.slices * sliced;
    r->whole_bytes = small + (w.wholes + w.fetched) * sliced;
    r->messages = (sliced > 0 ? w.messages * buckets : 0) + (small > 0 ? buckets : 0) + w.fetched;
    r->messages += trainer->vote_sum != NULL;
}

/* Two sums of rows of known lengths are two equations for latency and bandwidth. */
void lk__put_exchange(const lk_trainer *trainer, double small, double large, lk_scaling_report *r)
{
    way w = way_of(trainer->strategy);
    double small_bytes = SMALL_ROW * sizeof(float), large_bytes = (double)large_row(&trainer->plan) * sizeof(float);
    if (isfinite(large))
        put_amounts(trainer, w, r);
    if (!(large > small)) /* also where they were not timed */
        return;
    double others = lk__scaling_others(r, r->devices), messages = others * (w.messages + w.fetched);
    double sent = others * (w.wholes + w.fetched) + lk__scaling_slices(r->devices) * w.slices;
    r->bandwidth = sent * (large_bytes - small_bytes) / (large - small);
    r->latency = (small - sent * small_bytes / r->bandwidth) / messages;
    if (r->latency < 0) { /* too little to be told from what bytes take */
        r->latency = 0;
        r->bandwidth = sent * large_bytes / large;
    }
}
