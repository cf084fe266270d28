/* Checkpoints of loops of one's own: what there is of training beside the replicas its program says. */
#include "train/checkpoint_writer.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "io/json.h"
#include "io/tuning_file.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static lk_device *first_device(lk_replicas *replicas)
{
    return lk_tensor_device(lk__replicas_owned(replicas, 0)[0]);
}

/* --- what is written ---------------------------------------------------------------------------------------------- */

/* A tuning that the devices were given, else what their own choices depend on. */
static lk_status put_implementations(lk_device *device, lk__bytes *text)
{
    lk_tuning *none = device->tuning ? NULL : lk_tuning_new(lk_device_kind(device));
    if (!device->tuning && !none)
        return lk_error_status();
    lk__bytes_clear(text);
    lk__tuning_put(device->tuning ? device->tuning : none, text);
    lk_tuning_release(none);
    return lk__bytes_status(text);
}

static void put_settings(lk__bytes *out, const lk_checkpoint_info *info)
{
    lk__json_open(out, "settings", '{');
    for (int i = 0; i < info->n_settings; i++)
        lk__json_field(out, LK_TEXT(info->settings[i].name, info->settings[i].value ? info->settings[i].value : ""));
    lk__json_close(out, '}');
}

/* What could be written and not be read again. */
static lk_status check_info(const lk_checkpoint_info *info)
{
    size_t longest = sizeof((lk__best *)NULL)->metric - 1;
    if (info->epoch < 0 || info->batch < 0 || info->steps < 0 || info->samples_seen < 0)
        LK_FAIL(LK_ERR_ARGUMENT,
                "checkpoint: epoch %lld, batch %lld, steps %lld, samples_seen %lld: none may be below 0",
                (long long)info->epoch, (long long)info->batch, (long long)info->steps, (long long)info->samples_seen);
    if (info->metric && strlen(info->metric) > longest)
        LK_FAIL(LK_ERR_ARGUMENT, "checkpoint: the metric's name has %zu bytes, and may have %zu", strlen(info->metric),
                longest);
    return LK_OK;
}

static lk_status fill(lk_replicas *replicas, const lk_checkpoint_info *info, lk__checkpoint_contents *contents)
{
    LK_TRY(check_info(info));
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    lk_checkpoint_info known = *info;
    if (optimizer)
        known.updates = lk_optimizer_steps(optimizer);
    LK_TRY(lk__checkpoint_contents_copy(contents, replicas));
    LK_TRY(put_implementations(first_device(replicas), &contents->implementations));
    lk__state_begin(&contents->state, &known, contents->model, replicas);
    put_settings(&contents->state, info);
    contents->steps = info->steps;
    return lk__state_end(&contents->state);
}

/* name "" where info does not say that this is the best. */
static lk__best best_of(const lk_checkpoint_info *info)
{
    lk__best best = {.value = info->best, .epoch = info->best_epoch};
    if (!info->metric || info->best_epoch != info->epoch || info->batch != 0)
        return best;
    snprintf(best.metric, sizeof best.metric, "%s", info->metric);
    lk__checkpoint_name(info->steps, best.name);
    return best;
}

/* --- at once ------------------------------------------------------------------------------------------------------ */

static lk_status save(lk_replicas *replicas, const char *folder, const lk_checkpoint_info *info,
                      lk__checkpoint_contents *contents)
{
    lk__best best = best_of(info);
    LK_TRY(lk__checkpoint_contents_init(contents, replicas));
    LK_TRY(fill(replicas, info, contents));
    return lk__checkpoint_write_alone(folder, contents, &best);
}

lk_status lk_replicas_save(lk_replicas *replicas, const char *folder, const lk_checkpoint_info *info)
{
    lk__checkpoint_contents contents = {0};
    lk_status status = save(replicas, folder, info, &contents);
    lk__checkpoint_contents_free(&contents);
    return status;
}

/* --- while training goes on --------------------------------------------------------------------------------------- */

struct lk_checkpoint_writer {
    lk_replicas *replicas;
    lk__checkpoint_writer *writer;
};

/* A program that was killed may have written the best without saying so. */
static lk_status open_writer(lk_checkpoint_writer *w, const char *folder, const lk_checkpoint *resumed, int64_t keep)
{
    enum { NONE = -1 }; /* of what is there is this training's */
    lk__best best = resumed ? best_of(&resumed->info) : (lk__best){.name = ""};
    LK_TRY(lk__checkpoint_writer_new(folder, resumed ? resumed->info.steps : NONE, resumed != NULL, keep, w->replicas,
                                     &w->writer));
    return *best.name ? lk__checkpoint_writer_name_best(w->writer, &best) : LK_OK;
}

lk_checkpoint_writer *lk_checkpoint_writer_new(lk_replicas *replicas, const char *folder, const lk_checkpoint *resumed,
                                               int64_t keep)
{
    lk_checkpoint_writer *w = lk__calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->replicas = replicas;
    if (open_writer(w, folder, resumed, keep) == LK_OK)
        return w;
    lk_checkpoint_writer_release(w);
    return NULL;
}

lk_status lk_checkpoint_writer_save(lk_checkpoint_writer *w, const lk_checkpoint_info *info)
{
    lk__best best = best_of(info);
    lk__checkpoint_writer_warn(w->writer);
    lk__checkpoint_contents *contents = lk__checkpoint_writer_take(w->writer);
    LK_TRY(fill(w->replicas, info, contents));
    lk__checkpoint_writer_put(w->writer, contents, *best.name ? &best : NULL);
    return LK_OK;
}

lk_status lk_checkpoint_writer_wait(lk_checkpoint_writer *w)
{
    return lk__checkpoint_writer_drain(w->writer);
}

void lk_checkpoint_writer_release(lk_checkpoint_writer *w)
{
    if (!w)
        return;
    lk__checkpoint_writer_release(w->writer);
    lk__free(w);
}

/* --- going on ----------------------------------------------------------------------------------------------------- */

/* Elsewhere other implementations run, which round otherwise. */
static void warn_of_another_machine(const lk_checkpoint *checkpoint)
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
    warn_of_another_machine(checkpoint);
    return LK_OK;
}
