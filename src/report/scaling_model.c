#include "report/scaling_model.h"

#include "base/status.h"
#include "dist/collectives/exchange_row.h"
#include "report/scaling_servers.h"

#include <math.h>
#include <string.h>

/* --- against one device ------------------------------------------------------------------------------------------- */

/* Returns the seconds that one device would compute: the samples of all devices, and one update. */
static double scaling_model_one_device_seconds(const lk_scaling_report *r)
{
    return r->update + (double)r->devices * (r->computing - r->update);
}

lk_speedup lk_scaling_speedup(const lk_scaling_report *r)
{
    lk_speedup result = {.speedup = NAN, .efficiency = NAN};
    if (isfinite(r->one_device_images_per_second)) {
        result.speedup = r->images_per_second / r->one_device_images_per_second;
        result.measured = true;
    } else if (r->servers > 0) {
        result.speedup = r->images_per_second * lk__servers_one_device_seconds(r) / (double)r->batch_size;
    } else if (r->devices == 1) {
        result.speedup = 1;
        result.measured = true;
    } else if (r->steps > 0 && strcmp(r->kind, "cpu") == 0) {
        result.speedup = scaling_model_one_device_seconds(r) / r->step_seconds;
    }
    result.efficiency = result.speedup / (double)r->devices;
    return result;
}

unsigned lk_scaling_doubts(const lk_scaling_report *r)
{
    double run_step = (double)r->batch_size / r->images_per_second;
    bool unlike = r->step_seconds > 1.2 * run_step || r->step_seconds < run_step / 1.2;
    if (r->steps < 1)
        return 0;
    return (r->core_share < 0.9 ? LK_SCALING_DISTURBED : 0U) | (r->servers == 0 && unlike ? LK_SCALING_UNLIKE_RUN : 0U);
}

static lk_status scaling_model_compare_texts(const char *what, const char *a, const char *b)
{
    if (strcmp(a, b) != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "the runs cannot be compared: %s is %s and %s", what, a, b);
    return LK_OK;
}

static lk_status scaling_model_compare_counts(const char *what, int64_t a, int64_t b)
{
    if (a != b)
        LK_FAIL(LK_ERR_ARGUMENT, "the runs cannot be compared: %s is %lld and %lld", what, (long long)a, (long long)b);
    return LK_OK;
}

lk_status lk_scaling_compare(const lk_scaling_report *one, lk_scaling_report *many)
{
    if (one->devices != 1)
        LK_FAIL(LK_ERR_ARGUMENT, "the runs cannot be compared: the first one is on %lld devices, and has to be on one",
                (long long)one->devices);
    if (one->servers > 0)
        LK_FAIL(LK_ERR_ARGUMENT, "the runs cannot be compared: the first one is with a parameter server, and has to be "
                                 "on one device by itself");
    LK_TRY(scaling_model_compare_texts("the model", one->model, many->model));
    LK_TRY(scaling_model_compare_texts("the data set", one->data, many->data));
    LK_TRY(scaling_model_compare_counts("the number of parameters", one->parameters, many->parameters));
    LK_TRY(scaling_model_compare_texts("the kind of device", one->kind, many->kind));
    LK_TRY(scaling_model_compare_texts("the dtype", one->dtype, many->dtype));
    LK_TRY(scaling_model_compare_counts("the batch size", one->batch_size, many->batch_size));
    LK_TRY(scaling_model_compare_counts("the number of shards", one->shards, many->shards));
    LK_TRY(scaling_model_compare_texts("the hash of kernels", one->implementations, many->implementations));
    if (!isfinite(one->images_per_second) || !isfinite(many->images_per_second))
        LK_FAIL(LK_ERR_ARGUMENT, "the runs cannot be compared: the %s one is too short to have a throughput",
                isfinite(one->images_per_second) ? "second" : "first");
    if (one->steps < 1)
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "the runs cannot be compared: the first one has no step's time: its epochs have too few steps, or --trace "
            "recorded it");
    many->one_device_images_per_second = one->images_per_second;
    return LK_OK;
}

/* --- prediction --------------------------------------------------------------------------------------------------- */

/* Like the exchange's choice of its way, this takes a transport's latency once a step. */
static lk_exchange_load scaling_model_load(const lk_scaling_report *r, int64_t devices, bool whole)
{
    bool along_tree = r->tree_devices > 0 && devices >= r->tree_devices;
    return lk__exchange_row_load(devices + r->storing_devices, whole, along_tree, true);
}

double lk__scaling_hops(const lk_scaling_report *r, int64_t devices)
{
    lk_exchange_load phase = scaling_model_load(r, devices, true);
    return devices + r->storing_devices < 2 ? 0
                                            : (1 - r->message_share) * phase.steps + r->message_share * phase.messages;
}

double lk__scaling_wholes(const lk_scaling_report *r, int64_t devices)
{
    return scaling_model_load(r, devices, true).rows;
}

double lk__scaling_slices(const lk_scaling_report *r, int64_t devices)
{
    return scaling_model_load(r, devices, false).rows;
}

static bool scaling_model_counts(int64_t devices)
{
    return devices >= 1 && devices <= LK_SCALING_MAX_DEVICES;
}

double lk_scaling_exchange_seconds(const lk_scaling_report *r, int64_t devices)
{
    if (!scaling_model_counts(devices))
        return NAN;
    if (r->servers > 0)
        return lk__servers_exchange_seconds(r, devices);
    double bytes = lk__scaling_wholes(r, devices) * r->whole_bytes + lk__scaling_slices(r, devices) * r->sliced_bytes;
    return lk__scaling_hops(r, devices) * (double)r->messages * r->latency + bytes / r->bandwidth;
}

/* Backward hides the same share of an exchange as in the run, because what it finishes last grows with the whole; but
 * no more seconds than it takes. Its operations are two thirds of a pass's. shards_computing: a device's seconds
 * without the update. */
static double scaling_model_exposed_seconds(const lk_scaling_report *r, double exchange, double shards_computing)
{
    double own = lk_scaling_exchange_seconds(r, r->devices), own_computing = r->computing - r->update;
    double share = own > 0 ? fmin(r->exchange / own, 1) : 1;
    double backward = fmax(2.0 / 3, (1 - share) * own / own_computing) * shards_computing;
    return fmax(share * exchange, exchange - backward);
}

/* The seconds that a device computes for this many shards. */
static double scaling_model_shards_computing(const lk_scaling_report *r, double shards)
{
    double shard = (r->computing - r->update) * (double)r->devices / (double)r->shards;
    return r->update + shard * shards;
}

bool lk_scaling_predict(const lk_scaling_report *r, int64_t devices, bool weak, lk_scaling_prediction *prediction)
{
    *prediction = (lk_scaling_prediction){NAN, NAN, NAN};
    if (!scaling_model_counts(devices))
        return false;
    if (r->servers > 0)
        return lk__servers_predict(r, devices, weak, prediction);
    if (r->devices < 2 || r->steps == 0 || (!weak && devices > r->shards))
        return false;
    double most_shards = ceil((double)r->shards / (double)devices);
    double computing = weak ? r->computing : scaling_model_shards_computing(r, most_shards);
    double alone = weak ? r->computing * (double)devices : scaling_model_shards_computing(r, (double)r->shards);
    double exposed = scaling_model_exposed_seconds(r, lk_scaling_exchange_seconds(r, devices), computing - r->update);
    if (!isfinite(exposed))
        return false;
    prediction->step_seconds = computing + exposed;
    prediction->speedup = alone / prediction->step_seconds;
    prediction->efficiency = prediction->speedup / (double)devices;
    return true;
}
