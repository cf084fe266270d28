/* lk_lr_find: a callback sets the rate of each update and takes its loss. */
#include "lockstep/lr_find.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "train/plan/plan.h"
#include "train/resume.h"

#include <math.h>

/* How much a loss weighs in the smoothed one, compared with the next. */
#define KEEP 0.9

/* A smoothed loss this many times the smallest has diverged. */
enum { DIVERGED = 4 };

typedef struct finder {
    const lk_lr_find_opts *opts;
    lk_lr_find_result *result;
    lk_mean loss;       /* of the update's batches so far */
    double sum, weight; /* of the smoothed loss; an update counts by its samples, since an epoch's last has fewer */
    int64_t per_epoch, accumulate;
} finder;

static double lr_find_rate_of(const lk_lr_find_opts *opts, int64_t update)
{
    return opts->low * pow(opts->high / opts->low, (double)update / (double)(opts->steps - 1));
}

static double lr_find_rate(void *self, lk_trainer *trainer, double epoch, double rate)
{
    (void)trainer, (void)rate;
    const finder *f = self;
    return lr_find_rate_of(f->opts, lk__min(llround(epoch * (double)f->per_epoch), f->opts->steps - 1));
}

/* Adds the loss of an update, and returns whether the test is over. */
static bool lr_find_add_point(finder *f)
{
    lk_lr_find_result *r = f->result;
    f->sum = KEEP * f->sum + f->loss.sum;
    f->weight = KEEP * f->weight + (double)f->loss.count;
    double smoothed = f->sum / f->weight;
    r->diverged = !isfinite(smoothed) || (r->count > 0 && smoothed > DIVERGED * r->points[r->lowest].smoothed);
    if (!isfinite(smoothed))
        return true;
    r->points[r->count] = (lk_lr_point){lr_find_rate_of(f->opts, r->count), lk_mean_value(f->loss), smoothed};
    if (smoothed < r->points[r->lowest].smoothed)
        r->lowest = r->count;
    r->count++;
    return r->diverged || r->count == f->opts->steps;
}

/* Steps that were in flight when the test was over are left out. */
static lk_status lr_find_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer;
    finder *f = self;
    if (f->result->diverged || f->result->count == f->opts->steps)
        return LK_OK;
    f->loss.sum += report->batch.loss.sum;
    f->loss.count += report->batch.loss.count;
    if (report->step % f->accumulate != 0 && report->step != report->steps)
        return LK_OK;
    *stop = lr_find_add_point(f);
    f->loss = (lk_mean){0};
    return LK_OK;
}

/* Returns the point about which the smoothed loss falls most, over a twentieth of the points before it and behind it;
 * all of these come before the lowest point. -1: it does not fall. */
static int64_t lr_find_steepest(const lk_lr_find_result *r, int64_t steps)
{
    int64_t reach = lk__max(1, steps / 20), steepest = -1;
    double most = 0;
    for (int64_t i = reach; i + reach <= r->lowest; i++) {
        double fall = r->points[i - reach].smoothed - r->points[i + reach].smoothed;
        if (fall > most) {
            most = fall;
            steepest = i;
        }
    }
    return steepest;
}

static void lr_find_suggest(lk_lr_find_result *r, int64_t steps)
{
    int64_t steepest = r->count > 0 ? lr_find_steepest(r, steps) : -1;
    if (steepest < 0 || !(r->points[r->lowest].smoothed < 0.95 * r->points[0].smoothed))
        r->reason = "the loss did not fall by a twentieth";
    else
        r->suggestion = r->points[steepest].rate;
}

static lk_train_config lr_find_config(const lk_train_config *config)
{
    lk_train_config own = *config;
    lk__leave_out_evaluation(&own);
    own.optimizer.schedule = "constant";
    own.optimizer.lr_steps = NULL;
    own.optimizer.min_lr = own.optimizer.warmup_epochs = own.optimizer.average = 0;
    own.checks.nan_guard = LK_NAN_GUARD_SKIP; /* a loss that is not finite ends the test without an error */
    own.checks.audit_every = 0;
    lk__leave_out_checkpoints(&own);
    own.records = (lk_record_config){.log_dir = NULL};
    own.epochs = 1000000; /* the callback ends training */
    return own;
}

static lk_status lr_find_train(lk_trainer *trainer, finder *f)
{
    const lk_plan *plan = lk_trainer_plan(trainer);
    lk_train_result trained;
    f->per_epoch = plan->updates_per_epoch;
    f->accumulate = plan->accumulate;
    if (lk_strategy_kind_of(plan->strategy) == LK_STRATEGY_ASYNCHRONOUS)
        LK_FAIL(LK_ERR_UNSUPPORTED, "lr-find: strategy %s takes steps in no order", plan->strategy);
    if (f->opts->begin)
        LK_TRY(f->opts->begin(f->opts->user, trainer));
    LK_TRY(lk_trainer_add(
        trainer, (lk_callback){.name = "lr-find", .rate = lr_find_rate, .step_end = lr_find_step_end, .self = f}));
    return lk_trainer_fit(trainer, &trained);
}

lk_status lk_lr_find(const lk_train_config *config, const lk_lr_find_opts *opts, lk_lr_find_result *result)
{
    enum { MOST = 1000000 };
    *result = (lk_lr_find_result){.suggestion = NAN};
    if (!(opts->low > 0 && opts->high > opts->low))
        LK_FAIL(LK_ERR_ARGUMENT, "--low %g --high %g: rates must be above 0, and the highest above the lowest",
                opts->low, opts->high);
    if (!isfinite((float)opts->high))
        LK_FAIL(LK_ERR_ARGUMENT, "--high %g: must be finite in f32", opts->high);
    if (opts->steps < 10 || opts->steps > MOST)
        LK_FAIL(LK_ERR_ARGUMENT, "--steps %lld: must be from 10 to %d", (long long)opts->steps, MOST);
    result->points = lk__calloc((size_t)opts->steps, sizeof *result->points);
    if (!result->points)
        return LK_ERR_MEMORY;
    lk_train_config own = lr_find_config(config);
    finder f = {.opts = opts, .result = result};
    lk_trainer *trainer = lk_trainer_new(&own);
    lk_status status = trainer ? lr_find_train(trainer, &f) : lk_error_status();
    lk_trainer_release(trainer);
    if (status == LK_OK)
        lr_find_suggest(result, opts->steps);
    else
        lk_lr_find_free(result);
    return status;
}

void lk_lr_find_free(lk_lr_find_result *result)
{
    lk__free(result->points);
    *result = (lk_lr_find_result){.suggestion = NAN};
}
