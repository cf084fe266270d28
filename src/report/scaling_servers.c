#include "report/scaling_servers.h"

#include <math.h>

/* Unlike fmax, gives NAN if b is NAN. */
static double scaling_servers_larger_of(double a, double b)
{
    return a > b ? a : b;
}

/* The seconds that a worker computes in a step, without the update. */
static double scaling_servers_step_computing(const lk_scaling_report *r)
{
    return r->computing - r->update;
}

/* The seconds to compute a whole batch, of which a worker's step may be a part. */
static double scaling_servers_batch_computing(const lk_scaling_report *r)
{
    return scaling_servers_step_computing(r) * (double)r->batch_size / r->step_samples;
}

/* One device would do the work of a worker's devices one after the other. */
double lk__servers_one_device_seconds(const lk_scaling_report *r)
{
    return r->update + scaling_servers_batch_computing(r) * (double)r->devices / (double)r->workers;
}

static bool scaling_servers_shares_batches(const lk_scaling_report *r)
{
    return r->max_staleness == 0;
}

/* Returns the seconds of a worker's messages and an update, if no other worker uses the servers. */
static double scaling_servers_exchange_alone(const lk_scaling_report *r)
{
    return (double)r->messages * r->latency + r->whole_bytes / r->bandwidth + r->server_update;
}

/* The seconds that a worker's step occupies the busiest server. */
static double scaling_servers_server_seconds(const lk_scaling_report *r)
{
    return r->server_bytes / r->bandwidth + r->server_update;
}

/* Workers that share a batch all exchange at the same time, and there is one update. */
static double scaling_servers_exchange_together(const lk_scaling_report *r, double workers)
{
    double bytes = scaling_servers_larger_of(r->whole_bytes, workers * r->server_bytes);
    return (double)r->messages * r->latency + bytes / r->bandwidth + r->server_update;
}

double lk__servers_exchange_seconds(const lk_scaling_report *r, int64_t workers)
{
    if (scaling_servers_shares_batches(r))
        return scaling_servers_exchange_together(r, (double)workers);
    return scaling_servers_larger_of(scaling_servers_exchange_alone(r),
                                     (double)workers * scaling_servers_server_seconds(r) -
                                         scaling_servers_step_computing(r));
}

double lk_scaling_most_updates(const lk_scaling_report *r)
{
    return r->servers > 0 && !scaling_servers_shares_batches(r) ? 1 / scaling_servers_server_seconds(r) : NAN;
}

/* max_staleness + 1 workers may be between pull and push at a time. */
static double scaling_servers_async_step(const lk_scaling_report *r, double workers)
{
    double alone = scaling_servers_step_computing(r) + scaling_servers_exchange_alone(r);
    double turns = isfinite(r->max_staleness) ? scaling_servers_larger_of(1, workers / (r->max_staleness + 1)) : 1;
    return scaling_servers_larger_of(alone * turns, workers * scaling_servers_server_seconds(r));
}

bool lk__servers_predict(const lk_scaling_report *r, int64_t workers, bool weak, lk_scaling_prediction *prediction)
{
    double w = (double)workers, step, alone;
    if (weak) {
        step = scaling_servers_shares_batches(r)
                   ? scaling_servers_step_computing(r) + scaling_servers_exchange_together(r, w)
                   : scaling_servers_async_step(r, w);
        alone = w * r->computing;
    } else {
        double shard = scaling_servers_batch_computing(r) / (double)r->shards;
        step = shard * ceil((double)r->shards / w) + scaling_servers_exchange_together(r, w);
        alone = scaling_servers_batch_computing(r) + r->update;
    }
    bool is_known = r->steps > 0 && isfinite(step) && isfinite(alone);
    if (!is_known || (!weak && (!scaling_servers_shares_batches(r) || workers > r->shards)))
        return false;
    *prediction = (lk_scaling_prediction){step, alone / step, alone / step / w};
    return true;
}
