/* What follows from a scaling report's numbers where servers have the variables. docs/scaling.md derives the formulas.
 */
#include "train/scaling.h"

#include <math.h>

static double largest(double a, double b)
{
    return a > b ? a : b;
}

/* Without the update, of a worker's step. */
static double computing(const lk_scaling_report *r)
{
    return r->computing - r->update;
}

/* The whole batch, whatever part of it a worker's step has. */
static double computing_of_batch(const lk_scaling_report *r)
{
    return computing(r) * (double)r->batch_size / r->step_samples;
}

/* Of a batch: all devices of a worker, one after the other, and the update. */
double lk__servers_one_device_seconds(const lk_scaling_report *r)
{
    return r->update + computing_of_batch(r) * (double)r->devices / (double)r->workers;
}

static bool shares_batches(const lk_scaling_report *r)
{
    return r->max_staleness == 0;
}

/* A worker's messages, and an update, with nobody else at the servers. */
static double exchange_alone(const lk_scaling_report *r)
{
    return (double)r->messages * r->latency + r->whole_bytes / r->bandwidth + r->server_update;
}

/* What a worker's step keeps the busiest server from doing anything else. */
static double demand(const lk_scaling_report *r)
{
    return r->server_bytes / r->bandwidth + r->server_update;
}

/* Workers that share a batch come all at once, and there is one update. */
static double exchange_together(const lk_scaling_report *r, double workers)
{
    double bytes = largest(r->whole_bytes, workers * r->server_bytes);
    return (double)r->messages * r->latency + bytes / r->bandwidth + r->server_update;
}

double lk__servers_exchange_seconds(const lk_scaling_report *r, int64_t workers)
{
    if (shares_batches(r))
        return exchange_together(r, (double)workers);
    return largest(exchange_alone(r), (double)workers * demand(r) - computing(r));
}

double lk_scaling_most_updates(const lk_scaling_report *r)
{
    return r->servers > 0 && !shares_batches(r) ? 1 / demand(r) : NAN;
}

/* max_staleness lets one more than that be between pull and push. */
static double asynchronous_step(const lk_scaling_report *r, double workers)
{
    double alone = computing(r) + exchange_alone(r);
    double turns = isfinite(r->max_staleness) ? largest(1, workers / (r->max_staleness + 1)) : 1;
    return largest(alone * turns, workers * demand(r));
}

bool lk__servers_predict(const lk_scaling_report *r, int64_t workers, bool weak, lk_scaling_prediction *prediction)
{
    double w = (double)workers, step, alone;
    if (weak) {
        step = shares_batches(r) ? computing(r) + exchange_together(r, w) : asynchronous_step(r, w);
        alone = w * r->computing;
    } else {
        double shard = computing_of_batch(r) / (double)r->shards;
        step = shard * ceil((double)r->shards / w) + exchange_together(r, w);
        alone = computing_of_batch(r) + r->update;
    }
    bool is_known = r->steps > 0 && isfinite(step) && isfinite(alone);
    if (workers < 1 || !is_known || (!weak && (!shares_batches(r) || workers > r->shards)))
        return false;
    *prediction = (lk_scaling_prediction){step, alone / step, alone / step / w};
    return true;
}
