#include "train/studies/study.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "lockstep/callbacks.h"
#include "train/plan/plan.h"
#include "train/plan/settings.h"
#include "train/resume.h"
#include "train/trainer.h"

#include <math.h>
#include <sched.h>
#include <string.h>

/* --- the setting that varies -------------------------------------------------------------------------------------- */

static lk_status study_split_over(lk_study *study)
{
    char *equals = strchr(study->over, '=');
    if (!equals || equals == study->over || !equals[1])
        LK_FAIL(LK_ERR_ARGUMENT, "--over %s: must be an option and its values, as in batch-size=8,16,32", study->over);
    *equals = '\0';
    study->setting = study->over;
    char separator = strchr(equals + 1, ';') ? ';' : ',';
    for (char *next, *value = equals + 1; value; value = next) {
        next = strchr(value, separator);
        if (next)
            *next++ = '\0';
        if (!*value)
            LK_FAIL(LK_ERR_ARGUMENT, "--over %s: value %d is empty", study->setting, study->n_values + 1);
        if (study->n_values == LK_STUDY_MAX_VALUES)
            LK_FAIL(LK_ERR_ARGUMENT, "--over %s: more than %d values", study->setting, LK_STUDY_MAX_VALUES);
        study->values[study->n_values++] = value;
    }
    return LK_OK;
}

static bool study_is_listed(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

static bool study_option_changes_training(const lk_option *option)
{
    /* These change its speed, or where its data or devices come from, and not what identifies it. */
    static const char *const unrecorded[] = {
        "devices",  "strategy", "storage", "optimizer-state", "exchange",   "bucket-mb", "graphs",
        "branches", "workers",  "pjrt",    "data-dir",        "data-cache", "data-on",   NULL};
    return option->recorded || study_is_listed(option->name, unrecorded);
}

static lk_status study_check_setting(const lk_study *study)
{
    static const char *const target_settings[] = {"target-accuracy", "patience", NULL};
    const char *name = study->setting;
    if (strcmp(name, "seed") == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--over seed: every value is trained with --seeds seeds; vary something else");
    if (strcmp(name, "recipe") == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--over recipe: a recipe is many settings; vary one of them");
    if (study->opts.measure == LK_MEASURE_THROUGHPUT && study_is_listed(name, target_settings))
        LK_FAIL(LK_ERR_ARGUMENT, "--over %s: has no effect on throughput", name);
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++)
        if (strcmp(lk_train_options[i].name, name) == 0 && !study_option_changes_training(&lk_train_options[i]))
            LK_FAIL(LK_ERR_ARGUMENT, "--over %s: changes what is shown or kept, not the training", name);
    return LK_OK;
}

/* Sets the option that varies to the value. An unknown option is an error. */
static lk_status study_set_varied(const lk_study *study, int value, lk_train_config *config)
{
    return lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, config, study->setting, study->values[value]);
}

static lk_status study_value_config(const lk_study *study, int value, int64_t seed, lk_train_config *config)
{
    *config = study->config;
    config->seed = seed;
    if (study->devices_of[value])
        config->devices.spec = study->devices_of[value];
    return study_set_varied(study, value, config);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static lk_status study_check_seeds(const lk_train_config *config, const lk_study_opts *opts)
{
    if (opts->seeds < 1 || opts->seeds > LK_STUDY_MAX_SEEDS)
        LK_FAIL(LK_ERR_ARGUMENT, "--seeds %lld: must be an integer from 1 to %d", (long long)opts->seeds,
                LK_STUDY_MAX_SEEDS);
    if (config->seed > INT64_MAX - (opts->seeds - 1))
        LK_FAIL(LK_ERR_ARGUMENT, "--seed %lld: there are no %lld seeds from there on", (long long)config->seed,
                (long long)opts->seeds);
    return LK_OK;
}

/* Rejects repeated values. 8 and 08 are the same, so values are compared as the option parses them. */
static lk_status study_check_distinct(const lk_study *study)
{
    const lk_option *option = lk_train_options;
    while (strcmp(option->name, study->setting) != 0)
        option++;
    for (int i = 1; i < study->n_values; i++) {
        for (int j = 0; j < i; j++) {
            lk_train_config a, b;
            char a_text[4096], b_text[4096];
            LK_TRY(study_value_config(study, i, study->config.seed, &a));
            LK_TRY(study_value_config(study, j, study->config.seed, &b));
            LK_TRY(lk_options_text(option, &a, a_text, sizeof a_text));
            LK_TRY(lk_options_text(option, &b, b_text, sizeof b_text));
            if (strcmp(a_text, b_text) == 0)
                LK_FAIL(LK_ERR_ARGUMENT, "--over %s: %s is given twice", study->setting, study->values[i]);
        }
    }
    return LK_OK;
}

static lk_status study_check_target(const lk_study *study, const lk_train_config *config)
{
    if (study->opts.measure != LK_MEASURE_TIME_TO_ACCURACY)
        return LK_OK;
    if (config->stop.target_accuracy < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "time to accuracy: a --target from 0 to 1 is missing");
    if (config->data.limit_val == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--limit-val 0: time to accuracy needs an evaluation");
    return LK_OK;
}

static lk_status study_check_epochs(const lk_study *study, const lk_train_config *config)
{
    lk_plan plan = {0};
    LK_TRY(lk__plan_numbers(config, config->model, &plan));
    if (study->opts.measure == LK_MEASURE_THROUGHPUT && plan.epochs < 2)
        LK_FAIL(LK_ERR_ARGUMENT, "--epochs %lld: must be at least 2: throughput leaves out the first epoch",
                (long long)plan.epochs);
    return LK_OK;
}

/* Checks everything that needs neither data nor devices. */
static lk_status study_check_numbers(const lk_train_config *config)
{
    lk_plan plan = {0};
    int devices = 0;
    LK_TRY(lk__plan_numbers(config, config->model, &plan));
    LK_TRY(lk_model_check(config->model));
    if (config->devices.spec)
        LK_TRY(lk_devices_count(config->devices.spec, &devices));
    return lk__check_shards(lk__plan_shards(config, plan.batch_size, devices), plan.batch_size, devices);
}

static json_t *study_setting_json(const lk_field *setting)
{
    if (setting->kind == LK_FIELD_INT)
        return json_integer((json_int_t)setting->integer);
    if (setting->kind == LK_FIELD_REAL)
        return json_real(setting->real);
    if (setting->kind == LK_FIELD_BOOL)
        return json_boolean(setting->integer);
    json_t *text = setting->kind == LK_FIELD_TEXT ? json_string(setting->text) : NULL;
    return text ? text : json_null(); /* null if it is not UTF-8, as a file's name may be */
}

static lk_status study_keep_setting(void *user, const lk_field *setting)
{
    lk_study *study = user;
    if (strcmp(setting->name, "seed") == 0 || strcmp(setting->name, study->setting) == 0)
        return LK_OK;
    if (json_object_set_new(study->settings, setting->name, study_setting_json(setting)) != 0)
        LK_FAIL(LK_ERR_MEMORY, "study: no memory for its settings");
    return LK_OK;
}

/* Removes settings that differ between values: one may follow from the value, as devices do. */
static lk_status study_drop_differing_setting(void *user, const lk_field *setting)
{
    lk_study *study = user;
    json_t *kept = json_object_get(study->settings, setting->name);
    if (!kept)
        return LK_OK;
    json_t *value = study_setting_json(setting);
    if (!value)
        LK_FAIL(LK_ERR_MEMORY, "study: no memory for its settings");
    if (!json_equal(kept, value))
        json_object_del(study->settings, setting->name);
    json_decref(value);
    return LK_OK;
}

/* Builds a trainer to check the value. The first one also resolves data "auto", so that all runs use the same data. */
static lk_status study_check_build(lk_study *study, const lk_train_config *config, bool first)
{
    lk_trainer *trainer = lk_trainer_new(config);
    if (!trainer)
        return lk_error_status();
    lk_status status = lk__settings_visit(trainer, first ? study_keep_setting : study_drop_differing_setting, study);
    if (first && strcmp(study->config.data.name, "auto") == 0)
        study->config.data.name = strcmp(trainer->plan.data, "synthetic") == 0 ? "synthetic" : "fashion-mnist";
    lk_trainer_release(trainer);
    return status;
}

/* Prefixes the message of an error with the value. */
static lk_status study_prefix_error(const lk_study *study, int value, lk_status status)
{
    lk_error_state state;
    if (status == LK_OK)
        return LK_OK;
    lk__error_save(&state);
    lk_error_clear();
    LK_FAIL(status, "--over %s=%s: %s", study->setting, study->values[value], state.message);
}

/* If devices vary, all runs use the shards of the largest set of devices, so that their results are the same bits. */
static lk_status study_share_shards(lk_study *study)
{
    lk_plan plan = {0};
    int largest = 0;
    if (strcmp(study->setting, "devices") != 0)
        return LK_OK;
    for (int v = 0; v < study->n_values; v++) {
        int count;
        LK_TRY(lk_devices_count(study->values[v], &count));
        largest = (int)lk__max(largest, count);
    }
    LK_TRY(lk__plan_numbers(&study->config, study->config.model, &plan));
    study->config.devices.shards = lk__plan_shards(&study->config, plan.batch_size, largest);
    return LK_OK;
}

/* If the caller names no devices, a run gets at most one for each shard. To compare values on the same devices, all get
 * the largest number that any of them would get; a value with fewer shards keeps its own. */
static lk_status study_share_devices(lk_study *study)
{
    int64_t cores = lk__min(lk_device_available("cpu"), LK_MAX_DEVICES), most = 0, shards[LK_STUDY_MAX_VALUES];
    int n = study->n_values;
    if (study->config.devices.spec || strcmp(study->setting, "devices") == 0)
        return LK_OK;
    for (int v = 0; v < n; v++) {
        lk_train_config config;
        lk_plan plan = {0};
        LK_TRY(study_value_config(study, v, study->config.seed, &config));
        LK_TRY(lk__plan_numbers(&config, config.model, &plan));
        shards[v] = lk__plan_shards(&config, plan.batch_size, 1);
        most = lk__max(most, lk__min(shards[v], cores));
    }
    snprintf(study->devices, sizeof study->devices, "%lldxcpu", (long long)most);
    for (int v = 0; v < n; v++)
        if (shards[v] >= most)
            study->devices_of[v] = study->devices;
    return LK_OK;
}

static lk_status study_check_values(lk_study *study)
{
    lk_train_config config;
    for (int v = 0; v < study->n_values; v++) {
        LK_TRY(study_value_config(study, v, study->config.seed, &config));
        LK_TRY(study_check_target(study, &config));
        LK_TRY(study_prefix_error(study, v, study_check_numbers(&config)));
        LK_TRY(study_check_epochs(study, &config));
    }
    LK_TRY(study_check_distinct(study));
    LK_TRY(study_share_shards(study));
    LK_TRY(study_share_devices(study));
    for (int v = 0; v < study->n_values; v++) {
        LK_TRY(study_value_config(study, v, study->config.seed, &config));
        LK_TRY(study_prefix_error(study, v, study_check_build(study, &config, v == 0)));
    }
    return LK_OK;
}

/* --- a study ------------------------------------------------------------------------------------------------------ */

static lk_status study_make_runs(lk_study *study)
{
    int n = study->n_values * (int)study->opts.seeds;
    study->runs = lk__calloc((size_t)n, sizeof *study->runs);
    if (!study->runs)
        return LK_ERR_MEMORY;
    study->n_runs = n;
    for (int i = 0; i < n; i++)
        study->runs[i] = (lk_study_run){.value = i % study->n_values, .seed = study->config.seed + i / study->n_values};
    return LK_OK;
}

static lk_status study_build(lk_study *study)
{
    study->over = lk__strdup(study->opts.over ? study->opts.over : "");
    if (!study->over)
        return LK_ERR_MEMORY;
    study->settings = json_object();
    if (!study->settings)
        LK_FAIL(LK_ERR_MEMORY, "study: no memory for its settings");
    LK_TRY(study_split_over(study));
    LK_TRY(study_check_setting(study));
    LK_TRY(study_check_seeds(&study->config, &study->opts));
    LK_TRY(study_set_varied(study, 0, &(lk_train_config){0})); /* checks that the option exists */
    LK_TRY(study_check_values(study));
    return study_make_runs(study);
}

lk_study *lk_study_new(const lk_train_config *config, const lk_study_opts *opts)
{
    lk_study *study = lk__calloc(1, sizeof *study);
    if (!study)
        return NULL;
    study->config = *config;
    lk__leave_out_checkpoints(&study->config); /* one folder cannot take those of several runs */
    study->opts = *opts;
    atomic_init(&study->interrupted, false);
    atomic_init(&study->running, NULL);
    atomic_init(&study->interrupting, 0);
    if (study_build(study) == LK_OK)
        return study;
    lk_study_release(study);
    return NULL;
}

void lk_study_release(lk_study *study)
{
    if (!study)
        return;
    for (int i = 0; i < study->n_runs; i++)
        lk__free((char *)study->runs[i].message);
    lk__free(study->runs);
    lk__free(study->over);
    json_decref(study->settings);
    lk__free(study);
}

/* --- interrupts --------------------------------------------------------------------------------------------------- */

/* May be called from a signal handler or another thread. While it uses the trainer in `running`, study_detach_trainer
 * waits, so that the trainer is not released. */
void lk_study_interrupt(lk_study *study)
{
    atomic_store(&study->interrupted, true);
    atomic_fetch_add(&study->interrupting, 1);
    lk_trainer *trainer = atomic_load(&study->running);
    if (trainer)
        lk_trainer_interrupt(trainer);
    atomic_fetch_sub(&study->interrupting, 1);
}

static void study_attach_trainer(lk_study *study, lk_trainer *trainer)
{
    atomic_store(&study->running, trainer);
    if (atomic_load(&study->interrupted))
        lk_trainer_interrupt(trainer);
}

static void study_detach_trainer(lk_study *study)
{
    atomic_store(&study->running, NULL);
    while (atomic_load(&study->interrupting) > 0)
        sched_yield();
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static lk_status study_run_fit(lk_study *study, int index, lk_trainer *trainer)
{
    const lk_study_opts *opts = &study->opts;
    const lk_plan *plan = lk_trainer_plan(trainer);
    lk_study_run *run = &study->runs[index];
    run->devices = plan->devices;
    run->shards = plan->shards;
    run->batch_size = plan->batch_size;
    if (opts->begin)
        LK_TRY(opts->begin(opts->user, study, index, trainer));
    LK_TRY(lk_trainer_fit(trainer, &run->result));
    run->reached = run->result.stopped_by && strcmp(run->result.stopped_by, "stop at accuracy") == 0;
    if (run->reached) {
        run->seconds_to_accuracy = run->result.total_seconds;
        run->epochs_to_accuracy = run->result.epochs;
    }
    bool measured = run->result.epochs > 1 && isfinite(run->result.images_per_second);
    if (opts->measure == LK_MEASURE_THROUGHPUT && !measured)
        LK_FAIL(LK_ERR_STATE, "the run ended in its first epoch, which throughput leaves out");
    return LK_OK;
}

static lk_status study_run_train(lk_study *study, int index)
{
    lk_study_run *run = &study->runs[index];
    lk_train_config config;
    LK_TRY(study_value_config(study, run->value, run->seed, &config));
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        return lk_error_status();
    study_attach_trainer(study, trainer);
    lk_status status = study_run_fit(study, index, trainer);
    study_detach_trainer(study);
    lk_trainer_release(trainer);
    return status;
}

/* Trains a run and records the outcome; an error is stored in the run, not returned. Returns false if the run was
 * interrupted. */
static bool study_run_record(lk_study *study, int index)
{
    lk_study_run *run = &study->runs[index];
    lk_error_state before, after;
    lk__error_save(&before);
    lk_error_clear();
    run->seconds_to_accuracy = NAN;
    run->status = study_run_train(study, index);
    lk__error_save(&after);
    lk_error_clear();
    run->ended = run->status != LK_ERR_INTERRUPTED;
    if (run->ended && run->status != LK_OK)
        run->message = lk__strdup(after.message);
    if (!run->ended)
        *run = (lk_study_run){.value = run->value, .seed = run->seed};
    lk__error_restore(&before);
    if (study->opts.end)
        study->opts.end(study->opts.user, study, index);
    return run->ended;
}

static int study_count_ended(const lk_study *study)
{
    int count = 0;
    for (int i = 0; i < study->n_runs; i++)
        count += study->runs[i].ended;
    return count;
}

lk_status lk_study_train(lk_study *study)
{
    bool going = true;
    for (int i = 0; going && i < study->n_runs; i++)
        going = !atomic_load(&study->interrupted) && (study->runs[i].ended || study_run_record(study, i));
    atomic_store(&study->interrupted, false);
    if (!lk_study_complete(study))
        LK_FAIL(LK_ERR_INTERRUPTED, "study: interrupted after %d of %d runs", study_count_ended(study), study->n_runs);
    return LK_OK;
}

/* --- access ------------------------------------------------------------------------------------------------------- */

const char *lk_study_setting(const lk_study *study)
{
    return study->setting;
}

lk_measure lk_study_get_measure(const lk_study *study)
{
    return study->opts.measure;
}

bool lk_study_complete(const lk_study *study)
{
    return study_count_ended(study) == study->n_runs;
}

int lk_study_run_count(const lk_study *study)
{
    return study->n_runs;
}

const lk_study_run *lk_study_run_at(const lk_study *study, int index)
{
    return &study->runs[index];
}
