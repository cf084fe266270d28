/* lk_callback_checkpoint: when a checkpoint is due, what goes into it, and which is the best. */
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "train/checkpoint_writer.h"
#include "train/fit.h"
#include "train/pass.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct saver {
    char *folder;
    lk_checkpoint_opts opts;
    lk__checkpoint_writer *writer; /* of the training at hand */
    lk_best_metric metric;         /* not LK_BEST_AUTO */
    bool has_best;
    double best;
    int64_t best_epoch;
    lk__position last; /* that is written, or on its way */
    bool last_ends;    /* it says that training has ended */
    bool any;          /* there is a last one */
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

/* What is not a number is not better; of equals the first stays. */
static bool is_better(saver *s, const lk_epoch_report *report)
{
    if (!report)
        return false;
    double value = value_of(s->metric, report);
    bool low = s->metric == LK_BEST_VAL_LOSS || s->metric == LK_BEST_TRAIN_LOSS;
    if (isnan(value) || (s->has_best && !(low ? value < s->best : value > s->best)))
        return false;
    s->has_best = true;
    s->best = value;
    s->best_epoch = report->epoch;
    return true;
}

/* --- what is written ---------------------------------------------------------------------------------------------- */

static lk_status put_states(void *user, lk__bytes *out)
{
    lk_trainer *trainer = user;
    lk_state state = {.out = out};
    lk__json_open(out, "fit", '{');
    lk__fit_save(trainer->fit, &state);
    lk__json_close(out, '}');
    lk__json_open(out, "callbacks", '{');
    LK_TRY(lk__callbacks_save(&trainer->callbacks, trainer, &state));
    lk__json_close(out, '}');
    return LK_OK;
}

static lk_status write_one(saver *s, lk_trainer *trainer, bool ends, bool is_best)
{
    lk_checkpoint_info extra = {.finished = ends};
    if (s->has_best) {
        extra.metric = metric_names[s->metric];
        extra.best = s->best;
        extra.best_epoch = s->best_epoch;
    }
    lk__checkpoint_contents *contents = lk__checkpoint_writer_take(s->writer);
    LK_TRY(lk__checkpoint_of_trainer(trainer, &extra, put_states, trainer, contents));
    lk__checkpoint_writer_put(s->writer, contents, is_best ? metric_names[s->metric] : NULL, s->best);
    s->last = trainer->position;
    s->last_ends = ends;
    s->any = true;
    s->last_time = lk__seconds();
    return LK_OK;
}

static void tell_failures(saver *s)
{
    lk_error_state error;
    if (s->writer && lk__checkpoint_writer_failure(s->writer, &error))
        lk__log(LK_LOG_WARNING, "a checkpoint could not be written: %s; training goes on", error.message);
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

/* A run that was killed may have written the best without saying so. */
static lk_status name_best(const saver *s, const lk_trainer *trainer)
{
    char name[LK_CHECKPOINT_NAME], named[LK_CHECKPOINT_NAME];
    const lk__position *at = &trainer->position;
    if (!trainer->resumed || !s->has_best || at->batch > 0 || at->epoch != s->best_epoch)
        return LK_OK;
    lk__checkpoint_name(at->steps, name);
    if (lk__checkpoint_read_best(s->folder, named) == LK_OK && strcmp(name, named) == 0)
        return LK_OK;
    lk_error_clear();
    return lk__checkpoint_write_best(s->folder, name, metric_names[s->metric], s->best);
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
    LK_TRY(lk__checkpoint_writer_new(s->folder, trainer->position.steps, trainer->resumed != NULL,
                                     s->opts.keep > 0 ? s->opts.keep : 3, trainer->replicas, &s->writer));
    LK_TRY(name_best(s, trainer));
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
    tell_failures(s);
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
    bool is_best = is_better(s, report->epoch_end);
    bool every_epoch = s->opts.every_steps == 0 && s->opts.every_minutes == 0 && report->epoch_end;
    tell_failures(s);
    if (!(is_best || every_epoch || report->ends || report->interrupted || is_due(s, report->steps)))
        return LK_OK;
    return is_written(s, trainer, report->ends) ? LK_OK : write_one(s, trainer, report->ends, is_best);
}

static lk_status save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const saver *s = self;
    const double best[] = {s->has_best, (double)s->metric, s->best, (double)s->best_epoch};
    lk_state_set(state, "best", best, 4);
    return LK_OK;
}

/* By another metric than before there is no best yet. */
static lk_status resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    saver *s = self;
    double best[4];
    if (lk_state_get(state, "best", best, 4) != 4 || best[0] == 0 ||
        (s->opts.best != LK_BEST_AUTO && s->opts.best != (lk_best_metric)best[1]))
        return LK_OK;
    s->has_best = true;
    s->best = best[2];
    s->best_epoch = (int64_t)best[3];
    return LK_OK;
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    saver *s = self;
    lk_status written = lk__checkpoint_writer_drain(s->writer);
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
