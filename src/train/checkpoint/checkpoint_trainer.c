#include "train/checkpoint/checkpoint_trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "io/tuning_file.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/checkpoint/checkpoint_write.h"
#include "train/checkpoint/replicas_state.h"
#include "train/fit.h"
#include "train/fit_state.h"
#include "train/parameter_server/ps_chief.h"
#include "train/plan/agreement.h"
#include "train/plan/settings.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdio.h>

static lk_status checkpoint_trainer_put_setting(void *user, const lk_field *setting)
{
    lk__json_field(user, LK_TEXT(setting->name, setting->text));
    return LK_OK;
}

/* *names: free it with lk__free; NULL if the data set has no class names. */
static lk_status checkpoint_trainer_list_classes(const lk_trainer *trainer, const char ***names)
{
    int64_t n = trainer->plan.classes;
    *names = NULL;
    if (!lk_dataset_class_name(trainer->data.train_set, 0))
        return LK_OK;
    *names = lk__calloc((size_t)n, sizeof **names);
    for (int64_t c = 0; *names && c < n; c++)
        (*names)[c] = lk_dataset_class_name(trainer->data.train_set, c);
    return *names ? LK_OK : LK_ERR_MEMORY;
}

/* Saves the state of fit and of the callbacks. While an epoch's end is being reported, only some callbacks know of it,
 * so their states are saved only at rest. */
static lk_status checkpoint_trainer_put_states(lk_trainer *trainer, lk_bytes *out)
{
    lk_state state = {.out = out};
    lk__json_open(out, "fit", '{');
    lk__fit_save(trainer, &state);
    lk__json_close(out, '}');
    if (!trainer->progress.at_rest)
        return LK_OK;
    lk__json_open(out, "callbacks", '{');
    LK_TRY(lk__callbacks_save(&trainer->callbacks, trainer, &state));
    lk__json_close(out, '}');
    return LK_OK;
}

void lk__staleness_text(const lk_trainer *trainer, char text[LK_STALENESS_TEXT])
{
    int64_t most = trainer->server.has_optimizer ? trainer->config.servers.max_staleness : 0;
    if (most < 0)
        snprintf(text, LK_STALENESS_TEXT, "unlimited");
    else
        snprintf(text, LK_STALENESS_TEXT, "%" PRId64, most);
}

lk_status lk__checkpoint_of_trainer(lk_trainer *trainer, const lk_checkpoint_info *extra,
                                    lk_checkpoint_contents *contents)
{
    const lk_plan *plan = &trainer->plan;
    const lk_position *at = &trainer->progress.position;
    const char **class_names;
    LK_TRY(checkpoint_trainer_list_classes(trainer, &class_names));
    lk_checkpoint_info info = {.data = plan->data,
                               .class_names = class_names,
                               .center = plan->augment.center,
                               .standardize = plan->augment.standardize,
                               .mean = trainer->data.moments.mean,
                               .deviation = trainer->data.moments.deviation,
                               .dtype = plan->dtype,
                               .seed = plan->seed,
                               .epoch = at->epoch,
                               .batch = at->batch,
                               .steps = at->steps,
                               .updates = at->updates,
                               .samples_seen = at->samples_seen,
                               .finished = extra->finished,
                               .metric = extra->metric,
                               .best = extra->best,
                               .best_epoch = extra->best_epoch};
    lk_bytes *state = &contents->state;
    lk__checkpoint_state_begin(state, &info, trainer->model, trainer->replicas);
    lk__free(class_names);
    lk__json_hash(state, "training_set", lk__hash_split(trainer, LK_SPLIT_TRAIN));
    lk__json_hash(state, "validation_set", lk__hash_split(trainer, LK_SPLIT_TEST));
    char staleness[LK_STALENESS_TEXT];
    lk__staleness_text(trainer, staleness);
    lk__json_field(state, LK_TEXT("max_staleness", staleness));
    lk__json_field(state, LK_BOOL("repeatable", !trainer->is_unrepeatable));
    lk__json_open(state, "settings", '{');
    lk_status status = lk__settings_visit(trainer, checkpoint_trainer_put_setting, state);
    lk__json_close(state, '}');
    if (status == LK_OK)
        status = checkpoint_trainer_put_states(trainer, state);
    LK_TRY(status);
    LK_TRY(lk__checkpoint_state_end(state));
    lk__bytes_clear(&contents->implementations);
    lk__tuning_put(trainer->implementations, &contents->implementations);
    LK_TRY(lk__bytes_status(&contents->implementations));
    contents->steps = at->steps;
    return lk__checkpoint_contents_copy(contents, trainer->replicas);
}

lk_status lk_trainer_save(lk_trainer *trainer, const char *folder)
{
    lk_checkpoint_contents contents = {0};
    if (trainer->progress.in_pass && !trainer->progress.at_rest)
        LK_FAIL(LK_ERR_STATE, "checkpoint: steps are in flight; in `rest`, or from epoch_end on, it can be asked for");
    if (trainer->progress.position.updates != trainer->progress.updates)
        LK_FAIL(LK_ERR_STATE, "checkpoint: an error has ended training while steps were in flight");
    if (trainer->server.chief && !lk__ps_has_all(trainer))
        LK_FAIL(LK_ERR_STATE, "checkpoint: what was handed out to workers was not brought to its end");
    if (lk__replicas_only_share(trainer->replicas))
        return lk__replicas_share_state(trainer->replicas);
    lk_status status = lk__checkpoint_contents_init(&contents, trainer->replicas);
    if (status == LK_OK)
        status = lk__checkpoint_of_trainer(trainer, &(lk_checkpoint_info){0}, &contents);
    status = lk__replicas_end_sharing(trainer->replicas, status);
    if (status == LK_OK)
        status = lk__checkpoint_write_alone(folder, &contents, NULL);
    lk__checkpoint_contents_free(&contents);
    return status;
}
