/* --resume: training goes on from a checkpoint, with the settings that it was made with. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/bytes.h"
#include "lockstep/record.h"
#include "nn/model.h"
#include "train/callbacks/settings.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status check_options(const lk_train_config *config)
{
    bool has_folder = config->checkpoint_dir && *config->checkpoint_dir;
    if (config->resume && !has_folder)
        LK_FAIL(LK_ERR_ARGUMENT, "--resume: must be with --checkpoint-dir, the folder to go on from");
    if (config->override && !config->resume)
        LK_FAIL(LK_ERR_ARGUMENT, "--override: must be with --resume");
    return lk_checkpoint_parse_every(config->checkpoint_every, &(lk_checkpoint_opts){0});
}

/* What killed processes have left half written does not count. */
static lk_status check_empty(const char *folder)
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

/* What was resolved then is not resolved anew where that could come out otherwise. */
static void pin(lk_trainer *trainer)
{
    const char *shards = lk_checkpoint_get_setting(trainer->resumed, "shards");
    if (trainer->config.shards == 0 && shards)
        trainer->config.shards = strtoll(shards, NULL, 10);
}

lk_status lk__resume_open(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    const char *folder = config->checkpoint_dir;
    LK_TRY(check_options(config));
    if (!folder || !*folder || trainer->role != LK_TRAIN_CHIEF)
        return LK_OK;
    LK_TRY(lk__checkpoint_check_place(folder));
    LK_TRY(lk_make_directory(folder));
    if (!config->resume)
        LK_TRY(check_empty(folder));
    if (config->resume) {
        lk_status status = lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &trainer->resumed);
        if (status != LK_ERR_NOT_FOUND && status != LK_OK)
            return status;
        if (status == LK_ERR_NOT_FOUND)
            lk_error_clear();
    }
    if (trainer->resumed)
        pin(trainer);
    bool is_over = trainer->resumed && lk_checkpoint_get_info(trainer->resumed)->finished;
    if (!is_over && access(folder, W_OK | X_OK) != 0)
        LK_FAIL(LK_ERR_IO, "--checkpoint-dir %s: cannot be written: %s", folder, strerror(errno));
    return LK_OK;
}

static bool is_builtin(const char *algorithms)
{
    return strcmp(algorithms, "fast") == 0 || strcmp(algorithms, "direct") == 0;
}

const char *lk__resume_implementations(const lk_trainer *trainer)
{
    if (!trainer->resumed)
        return NULL;
    const char *asked = lk_checkpoint_get_setting(trainer->resumed, "algorithms");
    bool same = asked && strcmp(asked, trainer->config.algorithms) == 0;
    return same && !is_builtin(asked) ? trainer->resumed->implementations : NULL;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const lk_trainer *trainer;
    const lk_checkpoint *checkpoint;
    lk__bytes others;
    const char *in_epoch; /* one that decides which samples a batch has; NULL: none */
    bool stops;           /* one that decides when training stops */
    int n;
} comparison;

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void note(comparison *c, const char *what, const char *then, const char *now)
{
    const char *none = "nothing";
    lk__bytes_format(&c->others, "%s%.60s was %.150s and is %.150s", c->n++ ? "; " : "", what, *then ? then : none,
                     *now ? now : none);
}

/* Of model files what they say counts, not where they lie. Where they say something else both are named. */
static void compare_models(comparison *c, const char *then, const char *now)
{
    const char *text = c->trainer->model->text;
    bool are_files = text && c->checkpoint->model_text;
    if (strcmp(are_files ? c->checkpoint->model_text : then, are_files ? text : now) != 0)
        note(c, "--model", are_files ? c->checkpoint->model_file : then, now);
}

/* As whoever set it knows it. */
static const char *called(const char *setting, char name[64])
{
    if (strcmp(setting, "implementations") == 0)
        return "implementations (of a device, processor and libraries)";
    snprintf(name, 64, "%s%s", strchr(setting, ' ') ? "" : "--", setting);
    return name;
}

/* What changes no bit, or only says where something came from, may be otherwise. */
static lk_status compare(void *user, const lk_field *setting)
{
    static const char *const free_ones[] = {"recipe",
                                            "data", /* its bytes are compared */
                                            "weights",
                                            "recompute",
                                            "max-staleness", /* see compare_staleness */
                                            "audit-every",
                                            "devices in use",
                                            "batches an epoch",
                                            "rate in use",
                                            "updates an epoch",
                                            "parameters",
                                            "source of the samples",
                                            "validation micro-batch",
                                            NULL};
    static const char *const of_batches[] = {"batch-size", "accumulate", "seed", "training samples", NULL};
    static const char *const of_stops[] = {"target-accuracy", "patience", "early-stop", NULL};
    comparison *c = user;
    char name[64];
    const char *then = lk_checkpoint_get_setting(c->checkpoint, setting->name);
    const char *now = setting->text ? setting->text : "";
    if (then && strcmp(setting->name, "model") == 0)
        compare_models(c, then, now);
    else if (then && strcmp(then, now) != 0 && !is_one_of(setting->name, free_ones)) {
        if (is_one_of(setting->name, of_batches))
            c->in_epoch = setting->name;
        c->stops |= is_one_of(setting->name, of_stops);
        note(c, called(setting->name, name), then, now);
    }
    return LK_OK;
}

/* Whether it has the bytes that it had; then, now: their hashes. */
static bool is_same(lk_trainer *trainer, lk_split split, const char *member, const char **then, char now[24])
{
    *then = json_string_value(lk__checkpoint_member(trainer->resumed, member));
    snprintf(now, 24, "%016" PRIx64, lk__hash_split(trainer, split));
    return !*then || strcmp(*then, now) == 0;
}

/* Where data of another name have other bytes the name says more than hashes. */
static void compare_data(lk_trainer *trainer, comparison *c)
{
    char now[2][24];
    const char *then[2], *named = lk_checkpoint_get_setting(c->checkpoint, "data");
    bool same_train = is_same(trainer, LK_SPLIT_TRAIN, "training_set", &then[0], now[0]);
    bool same_val = is_same(trainer, LK_SPLIT_TEST, "validation_set", &then[1], now[1]);
    bool same_name = !named || strcmp(named, trainer->plan.data) == 0;
    if (!same_train)
        c->in_epoch = "training set";
    if (!same_name && !(same_train && same_val))
        note(c, "--data", named, trainer->plan.data);
    if (same_name && !same_train)
        note(c, "the training set (its hash)", then[0], now[0]);
    if (same_name && !same_val)
        note(c, "the validation set (its hash)", then[1], now[1]);
}

/* Without staleness an asynchronous training has the bits of all others. */
static void compare_staleness(const lk_trainer *trainer, comparison *c)
{
    char now[LK_STALENESS_TEXT];
    const char *then = json_string_value(lk__checkpoint_member(c->checkpoint, "max_staleness"));
    lk__staleness_text(trainer, now);
    if (strcmp(then ? then : "0", now) != 0)
        note(c, "--max-staleness", then ? then : "0", now);
}

static lk_status judge(lk_trainer *trainer, const comparison *c)
{
    const lk_checkpoint_info *info = &c->checkpoint->info;
    const char *others = (const char *)c->others.data;
    if (c->n == 0)
        return LK_OK;
    if (!trainer->config.override)
        LK_FAIL(LK_ERR_ARGUMENT, "--resume: %s was made with other settings: %s; --override goes on nevertheless",
                info->folder, others);
    if (info->batch > 0 && c->in_epoch)
        LK_FAIL(LK_ERR_ARGUMENT, "--override: %s cannot be changed in the middle of an epoch, which %s is in",
                c->in_epoch, info->folder);
    lk__log(LK_LOG_WARNING, "going on with other settings than those of %s: %s", info->folder, others);
    trainer->stops_otherwise = c->stops;
    return LK_OK;
}

static lk_status check_settings(lk_trainer *trainer)
{
    comparison c = {.trainer = trainer, .checkpoint = trainer->resumed};
    lk_status status = lk__settings_visit(trainer, compare, &c);
    compare_data(trainer, &c);
    compare_staleness(trainer, &c);
    lk__bytes_char(&c.others, '\0');
    if (status == LK_OK)
        status = lk__bytes_status(&c.others);
    if (status == LK_OK)
        status = judge(trainer, &c);
    lk__bytes_free(&c.others);
    return status;
}

/* --- where it stood ----------------------------------------------------------------------------------------------- */

static lk_status check_position(const lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    const lk_checkpoint_info *info = &trainer->resumed->info;
    bool is_update = info->batch % plan->accumulate == 0 || info->batch == plan->steps_per_epoch;
    if (info->batch > plan->steps_per_epoch || !is_update)
        LK_FAIL(LK_ERR_FORMAT, "%s: says that %lld batches of an epoch are over, which is no end of an update",
                info->folder, (long long)info->batch);
    return LK_OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

lk_status lk__resume_restore(lk_trainer *trainer)
{
    if (!trainer->resumed)
        return LK_OK;
    const lk_checkpoint_info *info = &trainer->resumed->info;
    LK_TRY(check_settings(trainer));
    LK_TRY(check_position(trainer));
    LK_TRY(lk__replicas_restore(trainer->replicas, trainer->resumed, !trainer->config.override));
    lk__checkpoint_drop_tensors(trainer->resumed);
    trainer->epoch = info->epoch;
    trainer->steps = trainer->audited = info->steps;
    trainer->updates = info->updates;
    trainer->position =
        (lk__position){.epoch = info->epoch,
                       .batch = info->batch,
                       .steps = info->steps,
                       .updates = info->updates,
                       .samples_seen = info->samples_seen,
                       .samples = least(info->batch * trainer->plan.batch_size, trainer->plan.train_samples)};
    if (!info->finished && trainer->plan.process == 0)
        lk__log(LK_LOG_INFO, "going on from %s: %lld epochs and %lld batches are over", info->folder,
                (long long)info->epoch, (long long)info->batch);
    return LK_OK;
}
