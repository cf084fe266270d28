/* Checkpoints for callers that do not use lk_trainer_fit: lk_replicas_save, lk_checkpoint_writer and
 * lk_replicas_restore. The caller describes its training in an lk_checkpoint_info. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "io/json.h"
#include "io/tuning_file.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/checkpoint/checkpoint_thread.h"
#include "train/checkpoint/checkpoint_write.h"
#include "train/checkpoint/replicas_state.h"
#include "train/replicas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- contents ----------------------------------------------------------------------------------------------------- */

/* Writes the tuning that the device was given, or else an empty one, which still names the machine. */
static lk_status loop_checkpoint_put_tuning(lk_device *device, lk_bytes *text)
{
    lk_tuning *none = device->tuning ? NULL : lk_tuning_new(lk_device_kind(device));
    if (!device->tuning && !none)
        return lk_error_status();
    lk__bytes_clear(text);
    lk__tuning_put(device->tuning ? device->tuning : none, text);
    lk_tuning_release(none);
    return lk__bytes_status(text);
}

/* Rejects values that could be written but not read back. */
static lk_status loop_checkpoint_check_info(const lk_checkpoint_info *info, int64_t channels)
{
    size_t longest = sizeof((lk_best *)NULL)->metric - 1;
    const int64_t counts[] = {info->epoch, info->batch, info->steps, info->samples_seen};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] < 0 || counts[i] > LK_CHECKPOINT_MOST)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "checkpoint: epoch %lld, batch %lld, steps %lld, samples_seen %lld: each must be from 0 to 2^53",
                    (long long)info->epoch, (long long)info->batch, (long long)info->steps,
                    (long long)info->samples_seen);
    bool has_moments = info->mean && info->deviation;
    if ((info->center || info->standardize) && !has_moments)
        LK_FAIL(LK_ERR_ARGUMENT, "checkpoint: images are centered or standardized, but mean or deviation is NULL");
    for (int64_t c = 0; has_moments && c < channels; c++)
        if (!isfinite(info->mean[c]) || !isfinite(info->deviation[c]))
            LK_FAIL(LK_ERR_ARGUMENT, "checkpoint: channel %lld has mean %g and deviation %g; they must be finite",
                    (long long)c, info->mean[c], info->deviation[c]);
    if (info->metric && strlen(info->metric) > longest)
        LK_FAIL(LK_ERR_ARGUMENT, "checkpoint: the metric's name has %zu bytes, and may have %zu", strlen(info->metric),
                longest);
    return LK_OK;
}

static lk_status loop_checkpoint_fill(lk_replicas *replicas, const lk_checkpoint_info *info,
                                      lk_checkpoint_contents *contents)
{
    LK_TRY(loop_checkpoint_check_info(info, lk_model_get_input(lk__replicas_model(replicas)).channels));
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    lk_checkpoint_info known = *info;
    lk_bytes *state = &contents->state;
    known.updates = optimizer ? lk_optimizer_steps(optimizer) : 0;
    LK_TRY(lk__checkpoint_contents_copy(contents, replicas));
    LK_TRY(
        loop_checkpoint_put_tuning(lk_tensor_device(lk__replicas_owned(replicas, 0)[0]), &contents->implementations));
    lk__checkpoint_state_begin(state, &known, contents->model, replicas);
    lk__json_open(state, "settings", '{');
    for (int i = 0; i < info->n_settings; i++)
        lk__json_field(state, LK_TEXT(info->settings[i].name, info->settings[i].value ? info->settings[i].value : ""));
    lk__json_close(state, '}');
    contents->steps = info->steps;
    return lk__checkpoint_state_end(state);
}

/* The name is "" unless info says that this checkpoint is the best. */
static lk_best loop_checkpoint_best(const lk_checkpoint_info *info)
{
    lk_best best = {.value = info->best, .epoch = info->best_epoch};
    if (!info->metric || info->best_epoch != info->epoch || info->batch != 0)
        return best;
    snprintf(best.metric, sizeof best.metric, "%s", info->metric);
    lk__checkpoint_name(info->steps, best.name);
    return best;
}

/* --- synchronous -------------------------------------------------------------------------------------------------- */

lk_status lk_replicas_save(lk_replicas *replicas, const char *folder, const lk_checkpoint_info *info)
{
    lk_checkpoint_contents contents = {0};
    lk_best best = loop_checkpoint_best(info);
    if (lk__replicas_only_share(replicas))
        return lk__replicas_share_state(replicas);
    lk_status status = lk__checkpoint_contents_init(&contents, replicas);
    if (status == LK_OK)
        status = loop_checkpoint_fill(replicas, info, &contents);
    status = lk__replicas_end_sharing(replicas, status);
    if (status == LK_OK)
        status = lk__checkpoint_write_alone(folder, &contents, &best);
    lk__checkpoint_contents_free(&contents);
    return status;
}

/* --- in a thread -------------------------------------------------------------------------------------------------- */

struct lk_checkpoint_writer {
    lk_replicas *replicas;
    lk_checkpoint_thread *thread; /* NULL: another process writes */
};

/* A program that was killed may have written its best checkpoint but not best.json, so best.json is updated here. */
static lk_status loop_checkpoint_open_writer(lk_checkpoint_writer *w, const char *folder, const lk_checkpoint *resumed,
                                             int64_t keep)
{
    enum { NONE = -1 }; /* a new training: every checkpoint in the folder belongs to another one */
    int lock = -1;
    lk_best best = resumed ? loop_checkpoint_best(&resumed->info) : (lk_best){.name = ""};
    LK_TRY(lk__checkpoint_thread_new(folder, resumed ? resumed->info.steps : NONE, resumed != NULL, keep, w->replicas,
                                     &lock, &w->thread));
    return *best.name ? lk__checkpoint_thread_name_best(w->thread, &best) : LK_OK;
}

lk_checkpoint_writer *lk_checkpoint_writer_new(lk_replicas *replicas, const char *folder, const lk_checkpoint *resumed,
                                               int64_t keep)
{
    lk_checkpoint_writer *w = lk__calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->replicas = replicas;
    if (lk__replicas_only_share(replicas) || loop_checkpoint_open_writer(w, folder, resumed, keep) == LK_OK)
        return w;
    lk_checkpoint_writer_release(w);
    return NULL;
}

lk_status lk_checkpoint_writer_save(lk_checkpoint_writer *w, const lk_checkpoint_info *info)
{
    lk_best best = loop_checkpoint_best(info);
    if (!w->thread)
        return lk__replicas_share_state(w->replicas);
    lk__checkpoint_thread_warn(w->thread);
    lk_checkpoint_contents *contents = lk__checkpoint_thread_take(w->thread);
    LK_TRY(lk__replicas_end_sharing(w->replicas, loop_checkpoint_fill(w->replicas, info, contents)));
    lk__checkpoint_thread_put(w->thread, contents, *best.name ? &best : NULL);
    return LK_OK;
}

lk_status lk_checkpoint_writer_wait(lk_checkpoint_writer *w)
{
    return w->thread ? lk__checkpoint_thread_drain(w->thread) : LK_OK;
}

void lk_checkpoint_writer_release(lk_checkpoint_writer *w)
{
    if (!w)
        return;
    lk__checkpoint_thread_release(w->thread);
    lk__free(w);
}

/* --- restoring ---------------------------------------------------------------------------------------------------- */

/* Another machine may choose other kernels, which round differently. */
static void loop_checkpoint_check_machine(const lk_checkpoint *checkpoint)
{
    if (!checkpoint->implementations)
        return;
    lk_tuning *tuning = lk_tuning_read(checkpoint->implementations);
    if (!tuning) {
        lk__log(LK_LOG_WARNING, "what goes on will not have the same bits: %s", lk_error_message());
        lk_error_clear();
    }
    lk_tuning_release(tuning);
}

lk_status lk_replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint)
{
    LK_TRY(lk__replicas_restore(replicas, checkpoint, true));
    loop_checkpoint_check_machine(checkpoint);
    return LK_OK;
}
