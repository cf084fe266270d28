/* lk_callback_checkpoint: decides when a checkpoint is due and which one is the best. In several processes all decide
 * the same, and rest at the same steps; the first one writes. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/status.h"
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "train/checkpoint/callback_state.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/checkpoint/checkpoint_thread.h"
#include "train/checkpoint/checkpoint_trainer.h"
#include "train/checkpoint/replicas_state.h"
#include "train/fit.h"
#include "train/pass.h"
#include "train/processes.h"
#include "train/replicas.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct saver {
    char *folder;
    int lock; /* the folder's, from when a training resumes until the writer takes it over; -1: none */
    lk_checkpoint_opts opts;
    lk_checkpoint_thread *writer; /* of the current training; NULL between trainings, and if another process writes */
    lk_best_metric metric;        /* resolved, never LK_BEST_AUTO */
    lk_best best;                 /* the best that was queued for writing; name "": none */
    bool has_queued;              /* a checkpoint was queued; the next two members describe the last one */
    bool last_ends;               /* it records that training has ended */
    lk_position last;
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
    double minutes = lk__number_parse(text, &end);
    if (lk__number_starts(text) && strcmp(end, "m") == 0 && minutes > 0 && minutes < 1e6) {
        opts->every_steps = 0;
        opts->every_minutes = minutes;
        return LK_OK;
    }
    LK_FAIL(LK_ERR_ARGUMENT, "--checkpoint-every %s: must be a number of steps, as 500, of minutes, as 5m, or epoch",
            text);
}

static lk_status checkpoint_callback_check_opts(const lk_checkpoint_opts *opts)
{
    if (opts->every_steps < 0 || !(opts->every_minutes >= 0) || opts->keep < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "checkpoints every %lld steps or %g minutes, %lld kept: none may be negative",
                (long long)opts->every_steps, opts->every_minutes, (long long)opts->keep);
    if ((int)opts->best < LK_BEST_AUTO || opts->best > LK_BEST_NONE)
        LK_FAIL(LK_ERR_ARGUMENT, "checkpoints: %d is none of the metrics that choose the best", (int)opts->best);
    return LK_OK;
}

/* --- the best ----------------------------------------------------------------------------------------------------- */

static double checkpoint_callback_metric_value(lk_best_metric metric, const lk_epoch_report *report)
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

static void checkpoint_callback_name_metric(lk_best *best, lk_best_metric metric)
{
    snprintf(best->metric, sizeof best->metric, "%s", metric_names[metric]);
}

/* A value that is not finite is never better. Of two equal values the first stays the best. */
static bool checkpoint_callback_update_best(saver *s, const lk_epoch_report *report)
{
    if (!report)
        return false;
    double value = checkpoint_callback_metric_value(s->metric, report);
    bool low = s->metric == LK_BEST_VAL_LOSS || s->metric == LK_BEST_TRAIN_LOSS;
    if (!isfinite(value) || (*s->best.name && !(low ? value < s->best.value : value > s->best.value)))
        return false;
    s->best = (lk_best){.value = value, .epoch = report->epoch};
    lk__checkpoint_name(report->steps, s->best.name);
    checkpoint_callback_name_metric(&s->best, s->metric);
    return true;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static lk_status checkpoint_callback_write(saver *s, lk_trainer *trainer, bool ends, bool is_best)
{
    lk_checkpoint_info extra = {.finished = ends};
    if (*s->best.name) {
        extra.metric = s->best.metric;
        extra.best = s->best.value;
        extra.best_epoch = s->best.epoch;
    }
    lk_checkpoint_contents *contents = lk__checkpoint_thread_take(s->writer);
    LK_TRY(lk__checkpoint_of_trainer(trainer, &extra, contents));
    lk__checkpoint_thread_put(s->writer, contents, is_best ? &s->best : NULL);
    return LK_OK;
}

static lk_status checkpoint_callback_queue(saver *s, lk_trainer *trainer, bool ends, bool is_best)
{
    LK_TRY(s->writer ? checkpoint_callback_write(s, trainer, ends, is_best)
                     : lk__replicas_share_state(trainer->replicas));
    lk__end_rest_vote(trainer);
    s->last = trainer->progress.position;
    s->last_ends = ends;
    s->has_queued = true;
    s->last_time = lk__seconds();
    return LK_OK;
}

/* Has all processes do what the first one does, if they divide the optimizer's state and have to share it for a
 * checkpoint. The first process alone knows which checkpoints are there, and if an earlier best was lost. */
static lk_status checkpoint_callback_follow_first(const lk_trainer *trainer, bool *queues)
{
    const lk_slices *slices = lk__replicas_slices(trainer->replicas);
    return slices && lk__slices_span_processes(slices) ? lk__follow_first(trainer, queues) : LK_OK;
}

/* Warns of checkpoints that could not be written. The best checkpoint must exist: if the latest best could not be
 * written, later ones are compared with the one before it. */
static void checkpoint_callback_note_failed(saver *s)
{
    if (!s->writer)
        return;
    lk__checkpoint_thread_warn(s->writer);
    lk__checkpoint_thread_lost_best(s->writer, &s->best);
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

/* After resuming, decides which checkpoint is the best, because the restored state and best.json may disagree. If the
 * checkpoint that is resumed from is itself the best by its state, the run may have been killed before it updated
 * best.json; this is done now, unless the checkpoint has yet to be written (is_there false). Otherwise the best is the
 * one that best.json names, if it exists, or none. */
static lk_status checkpoint_callback_find_best(saver *s, const lk_trainer *trainer, bool is_there)
{
    const lk_position *at = &trainer->progress.position;
    char path[PATH_MAX];
    lk_best named;
    if (!s->writer || !trainer->resumed || s->best.epoch == 0)
        return LK_OK;
    if (lk__checkpoint_read_best(s->folder, &named) != LK_OK)
        lk_error_clear();
    bool same_metric = s->metric != LK_BEST_NONE && strcmp(s->best.metric, metric_names[s->metric]) == 0;
    if (same_metric && at->batch == 0 && at->epoch == s->best.epoch) {
        lk__checkpoint_name(at->steps, s->best.name);
        return is_there ? lk__checkpoint_thread_name_best(s->writer, &s->best) : LK_OK;
    }
    LK_TRY(lk__checkpoint_path(s->folder, named.name, path));
    bool exists = same_metric && *named.name && strcmp(named.metric, s->best.metric) == 0 && access(path, F_OK) == 0;
    s->best = exists ? named : (lk_best){.name = ""};
    return LK_OK;
}

/* Returns whether the last checkpoint describes this very position. */
static bool checkpoint_callback_is_written(const saver *s, const lk_trainer *trainer, bool ends)
{
    const lk_position *at = &trainer->progress.position;
    return s->has_queued && s->last.steps == at->steps && s->last.epoch == at->epoch && s->last_ends == ends;
}

static lk_status checkpoint_callback_train_begin(void *self, lk_trainer *trainer)
{
    saver *s = self;
    lk__checkpoint_thread_release(s->writer);
    s->writer = NULL;
    s->metric = s->opts.best != LK_BEST_AUTO ? s->opts.best
                : trainer->data.val_set      ? LK_BEST_VAL_ACCURACY
                                             : LK_BEST_TRAIN_LOSS;
    if (trainer->data.val_set == NULL && (s->metric == LK_BEST_VAL_ACCURACY || s->metric == LK_BEST_VAL_LOSS))
        LK_FAIL(LK_ERR_ARGUMENT, "--checkpoint-best: there is no evaluation (limit-val 0) that gives a %s",
                metric_names[s->metric]);
    bool resumes = trainer->resumed != NULL;
    bool ends = resumes ? trainer->resumed->info.finished : trainer->progress.epoch >= trainer->plan.epochs;
    bool is_written = checkpoint_callback_is_written(s, trainer, ends);
    s->last = trainer->progress.position;
    s->last_time = lk__seconds();
    char name[LK_CHECKPOINT_NAME], path[PATH_MAX];
    lk__checkpoint_name(s->last.steps, name);
    LK_TRY(lk__checkpoint_path(s->folder, name, path));
    bool is_there = access(path, F_OK) == 0;
    if (trainer->plan.process == 0)
        LK_TRY(lk__checkpoint_thread_new(s->folder, s->last.steps, resumes, s->opts.keep, trainer->replicas, &s->lock,
                                         &s->writer));
    LK_TRY(checkpoint_callback_find_best(s, trainer, is_there));
    /* A new training writes a checkpoint before its first step, so that it can be resumed with its records from then
     * on, unless it has nothing left to train and wrote its last one before. So does an elastic training that goes on
     * from memory: its interval begins anew here, and it may be killed again before the next checkpoint is due. */
    bool queues = !is_there || (!resumes && !is_written);
    LK_TRY(checkpoint_callback_follow_first(trainer, &queues));
    return queues ? checkpoint_callback_queue(s, trainer, ends, strcmp(s->best.name, name) == 0) : LK_OK;
}

/* Clocks of several processes differ, so these vote. */
static bool checkpoint_callback_is_due(const saver *s, lk_trainer *trainer, int64_t steps)
{
    if (s->opts.every_steps > 0)
        return steps / s->opts.every_steps > s->last.steps / s->opts.every_steps;
    return s->opts.every_minutes > 0 &&
           lk__vote_to_rest(trainer, lk__seconds() - s->last_time >= 60 * s->opts.every_minutes);
}

static bool checkpoint_callback_wants_rest(void *self, lk_trainer *trainer, int64_t steps)
{
    saver *s = self;
    checkpoint_callback_note_failed(s);
    return checkpoint_callback_is_due(s, trainer, steps);
}

static lk_status checkpoint_callback_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    saver *s = self;
    bool every_epoch = s->opts.every_steps == 0 && s->opts.every_minutes == 0 && report->epoch_end;
    checkpoint_callback_note_failed(s); /* before a comparison with a best that could not be written */
    /* The figures of an epoch say nothing about weights of an earlier one. */
    bool is_best = !trainer->progress.taken_back && checkpoint_callback_update_best(s, report->epoch_end);
    if (report->before_evaluation) /* the epoch's checkpoint comes after it */
        return LK_OK;
    bool queues = (is_best || every_epoch || report->ends || report->interrupted ||
                   checkpoint_callback_is_due(s, trainer, report->steps)) &&
                  !checkpoint_callback_is_written(s, trainer, report->ends);
    LK_TRY(checkpoint_callback_follow_first(trainer, &queues));
    return queues ? checkpoint_callback_queue(s, trainer, report->ends, is_best) : LK_OK;
}

static lk_status checkpoint_callback_save(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const saver *s = self;
    const double best[] = {(double)s->metric, s->best.value, (double)s->best.epoch};
    lk_state_set(state, "best", best, 3);
    return LK_OK;
}

/* Locks the folder, so that a training that still writes there keeps its records, which are cut next. Restores the best
 * value; checkpoint_callback_find_best drops it if this run uses another metric. */
static lk_status checkpoint_callback_resume(void *self, lk_trainer *trainer, const lk_state *state)
{
    saver *s = self;
    double best[3];
    if (trainer->plan.process == 0 && !s->writer && s->lock < 0)
        LK_TRY(lk__checkpoint_lock(s->folder, &s->lock));
    if (lk_state_get(state, "best", best, 3) != 3 || !(best[0] > LK_BEST_AUTO && best[0] < LK_BEST_NONE))
        return LK_OK;
    s->best = (lk_best){.value = best[1], .epoch = lk__state_integer(best[2])};
    checkpoint_callback_name_metric(&s->best, (lk_best_metric)best[0]);
    return LK_OK;
}

static lk_status checkpoint_callback_train_end(void *self, lk_trainer *trainer, const lk_train_result *result,
                                               lk_status status)
{
    (void)trainer, (void)result;
    saver *s = self;
    /* If training failed, its own error is returned, and release only warns about checkpoints that failed. */
    lk_status written = status == LK_OK && s->writer ? lk__checkpoint_thread_drain(s->writer) : LK_OK;
    lk__checkpoint_thread_release(s->writer);
    s->writer = NULL;
    return written;
}

static void checkpoint_callback_release(void *self)
{
    saver *s = self;
    lk__checkpoint_thread_release(s->writer);
    lk__checkpoint_unlock(&s->lock);
    lk__free(s->folder);
    lk__free(s);
}

lk_callback lk_callback_checkpoint(const char *folder, const lk_checkpoint_opts *opts)
{
    saver *s = lk__calloc(1, sizeof *s);
    if (!s)
        return (lk_callback){0};
    s->lock = -1;
    s->opts = opts ? *opts : (lk_checkpoint_opts){0};
    s->folder = checkpoint_callback_check_opts(&s->opts) == LK_OK ? lk__strdup(folder) : NULL;
    if (!s->folder) {
        checkpoint_callback_release(s);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "checkpoint",
                         .train_begin = checkpoint_callback_train_begin,
                         .wants_rest = checkpoint_callback_wants_rest,
                         .rest = checkpoint_callback_rest,
                         .save = checkpoint_callback_save,
                         .resume = checkpoint_callback_resume,
                         .train_end = checkpoint_callback_train_end,
                         .release = checkpoint_callback_release,
                         .self = s};
}
