#include "train/resume.h"

#include "base/log.h"
#include "base/minmax.h"
#include "base/status.h"
#include "data/loading/augment.h"
#include "io/bytes.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/checkpoint/checkpoint_trainer.h"
#include "train/checkpoint/memory_checkpoints.h"
#include "train/checkpoint/replicas_state.h"
#include "train/fit_state.h"
#include "train/plan/agreement.h"
#include "train/plan/class_weights.h"
#include "train/plan/plan.h"
#include "train/plan/settings.h"
#include "train/trainer.h"
#include "lockstep/record.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status resume_check_options(const lk_train_config *config)
{
    bool has_folder = config->checkpoints.dir && *config->checkpoints.dir;
    if (config->checkpoints.resume && !has_folder)
        LK_FAIL(LK_ERR_ARGUMENT, "--resume: must be with --checkpoint-dir, the folder to go on from");
    if (config->checkpoints.override && !config->checkpoints.resume)
        LK_FAIL(LK_ERR_ARGUMENT, "--override: must be with --resume");
    return lk_checkpoint_parse_every(config->checkpoints.every, &(lk_checkpoint_opts){0});
}

void lk__leave_out_checkpoints(lk_train_config *config)
{
    config->checkpoints.dir = NULL;
    config->checkpoints.resume = config->checkpoints.override = false;
}

/* Hidden files do not count: killed processes leave them half written. */
static lk_status resume_check_empty(const char *folder)
{
    DIR *entries = opendir(folder);
    bool empty = true;
    if (!entries)
        LK_FAIL(LK_ERR_IO, "--checkpoint-dir %s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(entries));)
        empty = empty && (entry->d_name[0] == '.' || strcmp(entry->d_name, "lost+found") == 0);
    closedir(entries);
    if (!empty)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--checkpoint-dir %s: is not empty; --resume goes on from what is in it, else name "
                "another folder",
                folder);
    return LK_OK;
}

/* The checkpoint may be of a version with other defaults of the settings that say how a batch is cut. So a setting that
 * was not given is taken from it. Workers of a parameter server do not read it, so there the settings must be given. */
static lk_status resume_take_defaults(lk_trainer *trainer)
{
    static const char *const names[] = {"shards", "bn", "bn-group"};
    lk_train_config *config = &trainer->config;
    bool has_default_group = config->batch_norm.mode == LK_BN_GROUP && config->batch_norm.group == 0;
    for (int i = 0; i < 3 && trainer->resumed && !trainer->server.has_optimizer; i++) {
        const char *value = lk_checkpoint_get_setting(trainer->resumed, names[i]);
        if (value && *value && (i == 0 ? config->devices.shards == 0 : has_default_group))
            LK_TRY(lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, config, names[i], value));
    }
    return lk__plan_batch_norm(config, &trainer->plan);
}

static lk_status resume_open_folder(lk_trainer *trainer, const char *folder)
{
    const lk_train_config *config = &trainer->config;
    LK_TRY(lk__checkpoint_check_folder(folder));
    LK_TRY(lk_make_directory(folder));
    if (!config->checkpoints.resume) {
        LK_TRY(resume_check_empty(folder));
    } else {
        lk_status status = lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &trainer->resumed);
        if (status != LK_ERR_NOT_FOUND && status != LK_OK)
            return status;
        if (status == LK_ERR_NOT_FOUND)
            lk_error_clear();
    }
    bool is_over = trainer->resumed && lk_checkpoint_get_info(trainer->resumed)->finished;
    if (!is_over && access(folder, W_OK | X_OK) != 0)
        LK_FAIL(LK_ERR_IO, "--checkpoint-dir %s: cannot be written: %s", folder, strerror(errno));
    return LK_OK;
}

lk_status lk__resume_open(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    const char *folder = config->checkpoints.dir, *memory = getenv(LK_MEMORY_VARIABLE);
    bool has_folder = folder && *folder;
    LK_TRY(resume_check_options(config));
    if (trainer->server.role != LK_TRAIN_CHIEF)
        return LK_OK;
    if (has_folder)
        LK_TRY(resume_open_folder(trainer, folder));
    bool is_elastic = memory && lk_strategy_kind_of(config->devices.strategy) == LK_STRATEGY_SYNCHRONOUS;
    if (is_elastic)
        LK_TRY(lk__memory_resume(memory, &trainer->resumed));
    return has_folder || is_elastic ? resume_take_defaults(trainer) : LK_OK;
}

const char *lk__resume_implementations(const lk_trainer *trainer)
{
    if (!trainer->resumed)
        return NULL;
    const char *asked = lk_checkpoint_get_setting(trainer->resumed, "algorithms");
    bool same = asked && strcmp(asked, trainer->config.execution.algorithms) == 0;
    bool is_file = asked && strcmp(asked, "fast") != 0 && strcmp(asked, "direct") != 0;
    return same && is_file ? trainer->resumed->implementations : NULL;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const lk_trainer *trainer;
    const lk_checkpoint *checkpoint;
    lk_bytes differences; /* text */
    const char *in_epoch; /* a differing setting that decides which samples a batch has; NULL: none */
    bool stops;           /* a setting that decides when training stops differs */
    bool freezes;         /* --freeze differs */
    bool begins;          /* a setting that decides the initial values differs */
    int n;                /* differences */
} comparison;

static bool resume_name_is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void resume_note_difference(comparison *c, const char *what, const char *then, const char *now)
{
    const char *none = "nothing";
    lk__bytes_format(&c->differences, "%s%.60s was %.80s and is %.80s", c->n++ ? "; " : "", what, *then ? then : none,
                     *now ? now : none);
}

/* Networks that have a text are compared by it, not by their names. */
static void resume_compare_models(comparison *c, const char *then, const char *now)
{
    const char *text = c->trainer->model->text, *old = c->checkpoint->model_text;
    if (!text || !old) {
        if (strcmp(then, now) != 0)
            resume_note_difference(c, "--model", then, now);
    } else if (strcmp(text, old) != 0) {
        resume_note_difference(c, "--model", c->checkpoint->model_file, now);
    }
}

static bool resume_freezes_the_same(const lk_checkpoint *checkpoint, const lk_model *model)
{
    const json_t *frozen = json_object_get(lk__checkpoint_member(checkpoint, "model"), "frozen");
    size_t n = 0;
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        if (!lk_model_variable_is_frozen(model, i))
            continue;
        const char *name = json_string_value(json_array_get(frozen, n++));
        if (!name || strcmp(name, lk_model_variable_name(model, i)) != 0)
            return false;
    }
    return json_is_array(frozen) && n == json_array_size(frozen);
}

/* Compares lists by what they mean. Items of --augment come in any order. So do patterns of --freeze, and the
 * checkpoint has the variables that they fit. Classes of --class-weights may be named, and names move when folders are
 * renamed. */
static lk_status resume_compare_lists(const comparison *c, const char *name, const char *then, const char *now,
                                      bool *same)
{
    const lk_trainer *trainer = c->trainer;
    const lk_checkpoint_info *info = &c->checkpoint->info;
    *same = strcmp(then, now) == 0;
    if (strcmp(name, "class-weights") == 0 && *then && *now && info->classes == trainer->plan.classes)
        return lk__class_weights_compare(trainer, then, info->class_names, same);
    if (strcmp(name, "augment") == 0 && !*same)
        *same = lk__augment_texts_agree(then, now);
    if (strcmp(name, "freeze") == 0 && !*same)
        *same = resume_freezes_the_same(c->checkpoint, trainer->model);
    return LK_OK;
}

/* Names the first class with another name than before, because the same --class-weights gives its factor to another. */
static void resume_note_moved_class(comparison *c)
{
    const lk_checkpoint_info *info = &c->checkpoint->info;
    for (int64_t i = 0; info->class_names && i < info->classes; i++) {
        char what[64];
        const char *now = lk_dataset_class_name(c->trainer->data.train_set, i);
        if (now && strcmp(info->class_names[i], now) == 0)
            continue;
        snprintf(what, sizeof what, "the name of class %" PRId64 " (see --class-weights)", i);
        resume_note_difference(c, what, info->class_names[i], now ? now : "");
        return;
    }
}

/* A setting's name as the user knows it: an option, or a quantity. */
static const char *resume_setting_name(const char *setting, char name[64])
{
    if (strcmp(setting, "implementations") == 0)
        return "implementations (of a device, processor and libraries)";
    snprintf(name, 64, "%s%s", strchr(setting, ' ') ? "" : "--", setting);
    return name;
}

/* Settings in may_differ change no bit, or only say where something came from. */
static lk_status resume_compare_texts(comparison *c, const char *setting, const char *then, const char *now)
{
    static const char *const may_differ[] = {"recipe",
                                             "data", /* its bytes are compared */
                                             "weights",
                                             "weights-skip",
                                             "recompute",
                                             "max-staleness", /* see resume_compare_staleness */
                                             "audit-every",
                                             "strategy in use",
                                             "devices in use",
                                             "batches an epoch",
                                             "updates an epoch",
                                             "parameters",
                                             "frozen parameters",
                                             "source of the samples",
                                             "validation micro-batch",
                                             NULL};
    static const char *const decide_batches[] = {"batch-size", "accumulate", "seed", "training samples", NULL};
    static const char *const follow[] = {"training samples", "validation samples", "rate in use", "implementations",
                                         NULL}; /* from settings that are named before them, if any is */
    static const char *const decide_begin[] = {"weights", "weights-skip", NULL};
    static const char *const decide_stops[] = {"target-accuracy", "patience", "early-stop", NULL};
    char name[64];
    /* The rates of a cosine depend on the end, and there the best weights were taken back. */
    bool epochs_are_free =
        c->trainer->plan.schedule.kind != LK_SCHEDULE_COSINE && !c->trainer->config.stop.restore_best;
    if (strcmp(setting, "epochs") == 0 && epochs_are_free)
        return LK_OK;
    c->begins |= then && resume_name_is_one_of(setting, decide_begin) && strcmp(then, now) != 0;
    if (then && strcmp(setting, "model") == 0)
        resume_compare_models(c, then, now);
    else if (then && !resume_name_is_one_of(setting, may_differ)) {
        bool same;
        LK_TRY(resume_compare_lists(c, setting, then, now, &same));
        if (same)
            return LK_OK;
        if (resume_name_is_one_of(setting, decide_batches))
            c->in_epoch = setting;
        c->stops |= resume_name_is_one_of(setting, decide_stops);
        c->freezes |= strcmp(setting, "freeze") == 0;
        if (strcmp(then, now) == 0)
            resume_note_moved_class(c);
        else if (c->n == 0 || !resume_name_is_one_of(setting, follow))
            resume_note_difference(c, resume_setting_name(setting, name), then, now);
    }
    return LK_OK;
}

/* The checkpoint has texts as valid UTF-8. */
static lk_status resume_compare_setting(void *user, const lk_field *setting)
{
    comparison *c = user;
    lk_bytes now = {0};
    lk__bytes_clean(&now, setting->text ? setting->text : "");
    lk__bytes_char(&now, '\0');
    lk_status status = lk__bytes_status(&now);
    if (status == LK_OK)
        status = resume_compare_texts(c, setting->name, lk_checkpoint_get_setting(c->checkpoint, setting->name),
                                      (const char *)now.data);
    lk__bytes_free(&now);
    return status;
}

/* Returns whether the split's bytes are those that the checkpoint was made with. then, now: their hashes. */
static bool resume_split_is_same(lk_trainer *trainer, lk_split split, const char *member, const char **then,
                                 char now[24])
{
    *then = json_string_value(lk__checkpoint_member(trainer->resumed, member));
    snprintf(now, 24, "%016" PRIx64, lk__hash_split(trainer, split));
    return !*then || strcmp(*then, now) == 0;
}

/* If both name and bytes of the data differ, the message gives the names, which say more than hashes. */
static void resume_compare_data(lk_trainer *trainer, comparison *c)
{
    char now[2][24];
    const char *then[2], *named = lk_checkpoint_get_setting(c->checkpoint, "data");
    bool same_train = resume_split_is_same(trainer, LK_SPLIT_TRAIN, "training_set", &then[0], now[0]);
    bool same_val = resume_split_is_same(trainer, LK_SPLIT_TEST, "validation_set", &then[1], now[1]);
    bool same_name = !named || strcmp(named, trainer->plan.data) == 0;
    if (!same_train)
        c->in_epoch = "training set";
    if (!same_name && !(same_train && same_val))
        resume_note_difference(c, "--data", named, trainer->plan.data);
    if (same_name && !same_train)
        resume_note_difference(c, "the training set (its hash)", then[0], now[0]);
    if (same_name && !same_val)
        resume_note_difference(c, "the validation set (its hash)", then[1], now[1]);
}

/* Without staleness the strategies give the same bits, so "0" stands for all of them. */
static void resume_compare_staleness(const lk_trainer *trainer, comparison *c)
{
    char now[LK_STALENESS_TEXT];
    const char *then = json_string_value(lk__checkpoint_member(c->checkpoint, "max_staleness"));
    lk__staleness_text(trainer, now);
    if (strcmp(then ? then : "0", now) != 0)
        resume_note_difference(c, "--max-staleness", then ? then : "0", now);
}

static lk_status resume_judge_differences(lk_trainer *trainer, const comparison *c)
{
    const lk_checkpoint_info *info = &c->checkpoint->info;
    const char *differences = (const char *)c->differences.data, *memory = getenv(LK_MEMORY_VARIABLE);
    if (c->n == 0)
        return LK_OK;
    if (memory && strncmp(info->folder, memory, strlen(memory)) == 0) /* the other ranks go on with what they have */
        LK_FAIL(LK_ERR_ARGUMENT,
                "elastic training: %s was made with other settings: %s; a rank needs the same options and files as the "
                "others",
                info->folder, differences);
    if (!trainer->config.checkpoints.override)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--resume: %s was made with other settings: %s; give the options of the first time again, or "
                "--override to go on with these",
                info->folder, differences);
    if (c->freezes)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--override: --freeze cannot be changed, because %s has the optimizer's state of other parameters; "
                "--weights %s/model.safetensors begins a training with its network",
                info->folder, info->folder);
    if (info->batch > 0 && c->in_epoch)
        LK_FAIL(LK_ERR_ARGUMENT, "--override: %s cannot be changed in the middle of an epoch, which %s is in",
                c->in_epoch, info->folder);
    lk__log(LK_LOG_WARNING, "going on with other settings than those of %s: %s", info->folder, differences);
    trainer->stops_otherwise = c->stops;
    return LK_OK;
}

static lk_status resume_check_settings(lk_trainer *trainer)
{
    comparison c = {.trainer = trainer, .checkpoint = trainer->resumed};
    lk_status status = lk__settings_visit(trainer, resume_compare_setting, &c);
    resume_compare_data(trainer, &c);
    resume_compare_staleness(trainer, &c);
    /* A checkpoint that does not say whether its settings give its bits may have been resumed with other ones. */
    trainer->is_unrepeatable |=
        c.n > 0 || c.begins || !json_is_true(lk__checkpoint_member(trainer->resumed, "repeatable"));
    lk__bytes_char(&c.differences, '\0');
    if (status == LK_OK)
        status = lk__bytes_status(&c.differences);
    if (status == LK_OK)
        status = resume_judge_differences(trainer, &c);
    lk__bytes_free(&c.differences);
    return status;
}

/* --- the position ------------------------------------------------------------------------------------------------- */

static lk_status resume_check_position(const lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    const lk_checkpoint_info *info = &trainer->resumed->info;
    bool is_update = info->batch % plan->accumulate == 0 || info->batch == plan->steps_per_epoch;
    if (info->batch > plan->steps_per_epoch || !is_update)
        LK_FAIL(LK_ERR_FORMAT, "%s: says that %lld batches of an epoch are over, which is no end of an update",
                info->folder, (long long)info->batch);
    if (info->batch > 0 && info->epoch >= plan->epochs)
        LK_FAIL(LK_ERR_ARGUMENT, "--epochs %lld: must be at least %lld, the epoch that %s is in",
                (long long)plan->epochs, (long long)info->epoch + 1, info->folder);
    return LK_OK;
}

lk_status lk__resume_restore(lk_trainer *trainer)
{
    if (!trainer->resumed)
        return LK_OK;
    const lk_checkpoint_info *info = &trainer->resumed->info;
    LK_TRY(resume_check_settings(trainer));
    LK_TRY(resume_check_position(trainer));
    LK_TRY(lk__replicas_restore(trainer->replicas, trainer->resumed, !trainer->config.checkpoints.override));
    lk__checkpoint_drop_tensors(trainer->resumed);
    trainer->progress.epoch = info->epoch;
    trainer->progress.steps = info->steps;
    trainer->progress.updates = info->updates;
    trainer->progress.position =
        (lk_position){.epoch = info->epoch,
                      .batch = info->batch,
                      .steps = info->steps,
                      .updates = info->updates,
                      .samples_seen = info->samples_seen,
                      .samples = lk__min(info->batch * trainer->plan.batch_size, trainer->plan.train_samples)};
    lk_state totals = {.in = lk__checkpoint_member(trainer->resumed, "fit")};
    lk__fit_resume_epoch(&trainer->progress.position, &totals);
    if (info->epoch + !info->finished > trainer->plan.epochs && trainer->plan.process == 0)
        lk__log(LK_LOG_INFO, "%s has %lld epochs already, and --epochs %lld leaves nothing to train", info->folder,
                (long long)info->epoch, (long long)trainer->plan.epochs);
    else if (!info->finished && trainer->plan.process == 0)
        lk__log(LK_LOG_INFO, "going on from %s: %lld epochs and %lld batches are over", info->folder,
                (long long)info->epoch, (long long)info->batch);
    return LK_OK;
}
