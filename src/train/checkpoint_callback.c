/* lk_callback_checkpoint: when a checkpoint is due, what goes into it, and which is the best. */
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "train/checkpoint_writer.h"
#include "train/fit.h"
#include "train/pass.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct saver {
    char *folder;
    lk_checkpoint_opts opts;
    lk__checkpoint_writer *writer; /* of the training at hand */
    lk_best_metric metric;         /* not LK_BEST_AUTO */
    lk__best best;                 /* handed over to be written; name "": none */
    lk__position last;             /* that is written, or on its way */
    bool last_ends;                /* it says that training has ended */
    bool any;                      /* there is a last one */
    double last_time;
} saver;

static const char *const metric_names[] = {[LK_BEST_VAL_ACCURACY] = "val_accuracy",
                                           [LK_BEST_VAL_LOSS] = "val_loss",
                                           [LK_BEST_TRAIN_ACCURACY] = "train_accuracy",
                                           [LK_BEST_TRAIN_LOSS] = "train_loss"};

/* --- options ------------------------------------------------------------------------------------------------------ */

lk_status lk_checkpoint_parse_every(const char *text, lk_checkpoint_opts *opts)
{
    char *end;
    errno = 0;
    if (!text || strcmp(text, "epoch") == 0) {
        opts->every_steps = 0;
        opts->every_minutes = 0;
        return LK_OK;
    }
    int64_t steps = strtoll(text, &end, 10);
    bool digits = *text >= '0' && *text <= '9' && errno == 0;
    if (digits && *end == '\0' && steps > 0) {
        opts->every_steps = steps;
        opts->every_minutes = 0;
        return LK_OK;
    }
    double minutes = strtod(text, &end);
    digits = (*text >= '0' && *text <= '9') || *text == '.';
    if (digits && strcmp(end, "m") == 0 && minutes > 0 && minutes < 1e6) {
        opts->every_steps = 0;
        opts->every_minutes = minutes;
        return LK_OK;
    }
    LK_FAIL(LK_ERR_ARGUMENT, "--checkpoint-every %s: must be a number of steps, as 500, of minutes, as 5m, or epoch",
            text);
}

/* --- the best ----------------------------------------------------------------------------------------------------- */

static double value_of(lk_best_metric metric, const lk_epoch_report *report)
{
    switch (metric) {
    case LK_BEST_VAL_ACCURACY:
        return lk_mean_value(report->val.accuracy);
    case LK_BEST_VAL_LOSS:
        return lk_mean_value(report->val.loss);
    case LK_BEST_TRAIN_ACCURACY:
        return lk_mean_value(report->train.accuracy);
    case LK_BEST_TRAIN_LOSS:
        return lk_mean_value(report->train.loss);
    default:
        return NAN;
    }
}

static void name_metric(lk__best *best, lk_best_metric metric)
{
    snprintf(best->metric, sizeof best->metric, "%s", metric_names[metric]);
}

/* What is not a number is not better; of equals the first stays. */
static bool is_better(saver *s, const lk_epoch_report *report)
{
    if (!report)
        return false;
    double value = value_of(s->metric, report);
    bool low = s->metric == LK_BEST_VAL_LOSS || s->metric == LK_BEST_TRAIN_LOSS;
    if (!isfinite(value) || (*s->best.name && !(low ? value < s->best.value : value > s->best.value)))
        return false;
    s->best = (lk__best){.value = value, .epoch = report->epoch};
    lk__checkpoint_name(report->steps, s->best.name);
    name_metric(&s->best, s->metric);
    return true;
}

/* --- what is written ---------------------------------------------------------------------------------------------- */

static lk_status write_one(saver *s, lk_trainer *trainer, bool ends, bool is_best)
{
    lk_checkpoint_info extra = {.finished = ends};
    if (*s->best.name) {
        extra.metric = s->best.metric;
        extra.best = s->best.value;
        extra.best_epoch = s->best.epoch;
    }
    lk__checkpoint_contents *contents = lk__checkpoint_writer_take(s->writer);
    LK_TRY(lk__checkpoint_of_trainer(trainer, &extra, contents));
    lk__checkpoint_writer_put(s->writer, contents, is_best ? &s->best : NULL);
    s->last = trainer->position;
    s->last_ends = ends;
    s->any = true;
    s->last_time = lk__seconds();
    return LK_OK;
}

/* The best is one that is there: where the last of them could not be written, what comes is compared with the one
 * before. */
static void look_after_failures(saver *s)
{
    lk__checkpoint_writer_warn(s->writer);
    lk__checkpoint_writer_lost_best(s->writer, &s->best);
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

/* What the checkpoint calls the best is so where best.json says it too. A run that was killed may have written the best
 * without saying so; one whose best could not be written, or is damaged, has the one that best.json names, or none. */
static lk_status find_best(saver *s, const lk_trainer *trainer)
{
    const lk__position *at = &trainer->position;
    char path[PATH_MAX];
    lk__best said;
    if (!trainer->resumed || s->best.epoch == 0)
        return LK_OK;
    if (lk__checkpoint_read_best(s->folder, &said) != LK_OK)
        lk_error_clear();
    bool same_metric = s->metric != LK_BEST_NONE && strcmp(s->best.metric, metric_names[s->metric]) == 0;
    if (same_metric && at->batch == 0 && at->epoch == s->best.epoch) {
        lk__checkpoint_name(at->steps, s->best.name);
        return lk__checkpoint_writer_name_best(s->writer, &s->best);
    }
    LK_TRY(lk__checkpoint_path(s->folder, said.name, path));
    bool is_there = same_metric && *said.name && strcmp(said.metric, s->best.metric) == 0 && access(path, F_OK) == 0;
    s->best = is_there ? said : (lk__best){.name = ""};
    return LK_OK;
}

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    saver *s = self;
    lk__checkpoint_writer_release(s->writer);
    s->writer = NULL;
    s->metric = s->opts.best != LK_BEST_AUTO ? s->opts.best
                : trainer->val_set           ? LK_BEST_VAL_ACCURACY
                                             : LK_BEST_TRAIN_LOSS;
    if (trainer->val_set == NULL && (s->metric == LK_BEST_VAL_ACCURACY || s->metric == LK_BEST_VAL_LOSS))
        LK_FAIL(LK_ERR_ARGUMENT, "--checkpoint-best: there is no evaluation (limit-val 0) that gives a %s",
                metric_names[s->metric]);
    s->last = trainer->position;
    s->last_time = lk__seconds();
    LK_TRY(lk__checkpoint_writer_new(s->folder, trainer->position.steps, trainer->resumed != NULL, s->opts.keep,
                                     trainer->replicas, &s->writer));
    LK_TRY(find_best(s, trainer));
    /* From the first moment on there is something to go on from: whose records these are, above all. */
    return trainer->resumed ? LK_OK : write_one(s, trainer, false, false);
}

static bool is_due(const saver *s, int64_t steps)
{
    if (s->opts.every_steps > 0)
        return steps / s->opts.every_steps > s->last.steps / s->opts.every_steps;
    return s->opts.every_minutes > 0 && lk__seconds() - s->last_time >= 60 * s->opts.every_minutes;
}

static bool wants_rest(void *self, lk_trainer *trainer, int64_t steps)
{
    (void)trainer;
    saver *s = self;
    look_after_failures(s);
    return is_due(s, steps);
}

/* Whether the last one is of this very moment. */
static bool is_written(const saver *s, const lk_trainer *trainer, bool ends)
{
    const lk__position *at = &trainer->position;
    return s->any && s->last.steps == at->steps && s->last.epoch == at->epoch && s->last_ends == ends;
}

static lk_status rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    saver *s = self;
    bool every_epoch = s->opts.every_steps == 0 && s->opts.every_minutes == 0 && report->epoch_end;
    look_after_failures(s); /* before anything is compared with what could not be written */
    bool is_best = is_better(s, report->epoch_end);
    if (!(is_best || every_epoch || report->ends || report->interrupted || is_due(s, report->steps)))
        return LK_OK;
    return is_written(s, trainer, report->ends) ? LK_OK : write_one(s, trainer, report->ends, is_best);
}

static lk_status save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const saver *s = self;
    const double best[] = {(double)s->metric, s->best.value, (double)s->best.epoch};
    lk_state_set(state, "best", best, 3);
    return LK_OK;
}

/* By another metric than before there is no best yet. */
static lk_status resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    saver *s = self;
    double best[3];
    if (lk_state_get(state, "best", best, 3) != 3 || !(best[0] > LK_BEST_AUTO && best[0] < LK_BEST_NONE))
        return LK_OK;
    s->best = (lk__best){.value = best[1], .epoch = (int64_t)best[2]};
    name_metric(&s->best, (lk_best_metric)best[0]);
    return LK_OK;
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result;
    saver *s = self;
    /* Where training has an error of its own, a warning tells of this one. */
    lk_status written = status == LK_OK ? lk__checkpoint_writer_drain(s->writer) : LK_OK;
    lk__checkpoint_writer_release(s->writer);
    s->writer = NULL;
    return written;
}

static void release(void *self)
{
    saver *s = self;
    lk__checkpoint_writer_release(s->writer);
    lk__free(s->folder);
    lk__free(s);
}

lk_callback lk_callback_checkpoint(const char *folder, const lk_checkpoint_opts *opts)
{
    saver *s = lk__calloc(1, sizeof *s);
    if (!s)
        return (lk_callback){0};
    s->opts = opts ? *opts : (lk_checkpoint_opts){0};
    s->folder = lk__strdup(folder);
    if (!s->folder) {
        release(s);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "checkpoint",
                         .train_begin = train_begin,
                         .wants_rest = wants_rest,
                         .rest = rest,
                         .save = save,
                         .resume = resume,
                         .train_end = train_end,
                         .release = release,
                         .self = s};
}
