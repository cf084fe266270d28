#include "train/checkpoint/checkpoint_state.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "lockstep/build.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "train/checkpoint/callback_state.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 }; /* longer ones are neither written nor read */

static const char format[] = "lockstep checkpoint";

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void checkpoint_state_put_model(lk_bytes *out, const lk_model *model)
{
    lk_model_input input = lk_model_get_input(model);
    lk__json_open(out, "model", '{');
    lk__json_field(out, LK_TEXT("name", lk_model_name(model)));
    lk__json_field(out, LK_TEXT("kind", model->reference ? "reference" : model->file ? "file" : "own"));
    lk__json_field(out, LK_INT("channels", input.channels));
    lk__json_field(out, LK_INT("height", input.height));
    lk__json_field(out, LK_INT("width", input.width));
    lk__json_field(out, LK_INT("classes", input.classes));
    lk__json_open(out, "variables", '[');
    for (int i = 0; i < lk_model_variable_count(model); i++)
        lk__json_field(out, LK_TEXT(NULL, lk_model_variable_name(model, i)));
    lk__json_close(out, ']');
    lk__json_open(out, "frozen", '[');
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (lk_model_variable_is_frozen(model, i))
            lk__json_field(out, LK_TEXT(NULL, lk_model_variable_name(model, i)));
    lk__json_close(out, ']');
    lk__json_close(out, '}');
}

static void checkpoint_state_put_data(lk_bytes *out, const lk_checkpoint_info *info, lk_model_input input)
{
    lk__json_open(out, "data", '{');
    lk__json_field(out, LK_TEXT("name", info->data));
    if (info->class_names) {
        lk__json_open(out, "class_names", '[');
        for (int64_t c = 0; c < input.classes; c++)
            lk__json_field(out, LK_TEXT(NULL, info->class_names[c] ? info->class_names[c] : ""));
        lk__json_close(out, ']');
    }
    lk__json_field(out, LK_BOOL("center", info->center));
    lk__json_field(out, LK_BOOL("standardize", info->standardize));
    if (info->mean && info->deviation) {
        lk_state_set(&(lk_state){.out = out}, "mean", info->mean, input.channels);
        lk_state_set(&(lk_state){.out = out}, "deviation", info->deviation, input.channels);
    }
    lk__json_close(out, '}');
}

void lk__checkpoint_state_begin(lk_bytes *out, const lk_checkpoint_info *info, const lk_model *model,
                                lk_replicas *replicas)
{
    char seed[24], version[96];
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    snprintf(seed, sizeof seed, "%" PRIu64, info->seed); /* as text: many JSON readers cannot hold 64-bit integers */
    snprintf(version, sizeof version, "%s %s", lk_build_version(), lk_build_revision());
    lk__bytes_clear(out);
    lk__json_open(out, NULL, '{');
    lk__json_field(out, LK_TEXT("format", format));
    lk__json_field(out, LK_INT("version", LK_CHECKPOINT_VERSION));
    lk__json_field(out, LK_TEXT("lockstep", version));
    checkpoint_state_put_model(out, model);
    checkpoint_state_put_data(out, info, lk_model_get_input(model));
    lk__json_field(out, LK_TEXT("dtype", info->dtype == LK_BF16 ? "bf16" : "f32"));
    lk__json_field(out, LK_TEXT("seed", seed));
    lk__json_open(out, "position", '{');
    lk__json_field(out, LK_INT("epoch", info->epoch));
    lk__json_field(out, LK_INT("batch", info->batch));
    lk__json_field(out, LK_INT("steps", info->steps));
    lk__json_field(out, LK_INT("updates", info->updates));
    lk__json_field(out, LK_INT("samples_seen", info->samples_seen));
    lk__json_close(out, '}');
    if (optimizer) {
        lk__json_open(out, "optimizer", '{');
        lk__json_field(out, LK_TEXT("kind", lk_optimizer_name((int)optimizer->opts.kind)));
        lk__json_field(out, LK_INT("steps", lk_optimizer_steps(optimizer)));
        lk__json_close(out, '}');
    }
    if (info->metric) {
        lk__json_open(out, "best", '{');
        lk__json_field(out, LK_TEXT("metric", info->metric));
        lk__json_field(out, LK_REAL("value", info->best));
        lk__json_field(out, LK_INT("epoch", info->best_epoch));
        lk__json_close(out, '}');
    }
    lk__json_field(out, LK_BOOL("finished", info->finished));
}

lk_status lk__checkpoint_state_end(lk_bytes *out)
{
    lk__json_close(out, '}');
    lk__bytes_char(out, '\n');
    LK_TRY(lk__bytes_status(out));
    if (out->size > MOST_BYTES)
        LK_FAIL(LK_ERR_ARGUMENT,
                "what a checkpoint is to remember besides tensors has %zu bytes, and may have %d: a callback's state, "
                "or a setting, is too long",
                out->size, MOST_BYTES);
    /* Callbacks and callers choose names of members; a duplicate name could not be read back. */
    json_error_t error;
    json_t *read_back = json_loadb((const char *)out->data, out->size, JSON_REJECT_DUPLICATES, &error);
    if (!read_back)
        LK_FAIL(LK_ERR_ARGUMENT, "what a checkpoint is to remember cannot be read again: %s", error.text);
    json_decref(read_back);
    return LK_OK;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static lk_status checkpoint_state_fail_missing(const char *path, const char *what)
{
    LK_FAIL(LK_ERR_FORMAT, "%s: %s is missing, or not what it should be", path, what);
}

static lk_status checkpoint_state_read_integer(const char *path, const json_t *object, const char *name, int64_t least,
                                               int64_t *value)
{
    const json_t *found = json_object_get(object, name);
    *value = json_integer_value(found);
    bool is_good = json_is_integer(found) && *value >= least && *value <= LK_CHECKPOINT_MOST;
    return is_good ? LK_OK : checkpoint_state_fail_missing(path, name);
}

static lk_status checkpoint_state_read_model(const char *path, lk_checkpoint *c)
{
    lk_checkpoint_info *info = &c->info;
    const json_t *model = json_object_get(c->state, "model");
    info->model = json_string_value(json_object_get(model, "name"));
    if (!info->model || !json_string_value(json_object_get(model, "kind")))
        return checkpoint_state_fail_missing(path, "the model's name");
    LK_TRY(checkpoint_state_read_integer(path, model, "channels", 1, &info->channels));
    LK_TRY(checkpoint_state_read_integer(path, model, "height", 1, &info->height));
    LK_TRY(checkpoint_state_read_integer(path, model, "width", 1, &info->width));
    return checkpoint_state_read_integer(path, model, "classes", 0, &info->classes);
}

static lk_status checkpoint_state_read_classes(const char *path, const json_t *names, lk_checkpoint *c)
{
    if (!names)
        return LK_OK;
    if ((int64_t)json_array_size(names) != c->info.classes)
        return checkpoint_state_fail_missing(path, "class_names");
    c->class_names = lk__calloc(json_array_size(names) + 1, sizeof *c->class_names);
    if (!c->class_names)
        return LK_ERR_MEMORY;
    for (size_t i = 0; i < json_array_size(names); i++) {
        c->class_names[i] = json_string_value(json_array_get(names, i));
        if (!c->class_names[i])
            return checkpoint_state_fail_missing(path, "class_names");
    }
    c->info.class_names = c->class_names;
    return LK_OK;
}

static lk_status checkpoint_state_read_numbers(const char *path, const json_t *list, const char *name, int64_t n,
                                               double *values)
{
    if ((int64_t)json_array_size(list) != n)
        return checkpoint_state_fail_missing(path, name);
    for (int64_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        values[i] = json_number_value(value);
        if (!json_is_number(value))
            return checkpoint_state_fail_missing(path, name);
    }
    return LK_OK;
}

static lk_status checkpoint_state_read_data(const char *path, lk_checkpoint *c)
{
    lk_checkpoint_info *info = &c->info;
    const json_t *data = json_object_get(c->state, "data"), *mean = json_object_get(data, "mean");
    info->data = json_string_value(json_object_get(data, "name"));
    info->center = json_is_true(json_object_get(data, "center"));
    info->standardize = json_is_true(json_object_get(data, "standardize"));
    LK_TRY(checkpoint_state_read_classes(path, json_object_get(data, "class_names"), c));
    if (!mean)
        return info->center || info->standardize ? checkpoint_state_fail_missing(path, "mean") : LK_OK;
    if ((int64_t)json_array_size(mean) != info->channels)
        return checkpoint_state_fail_missing(path, "mean");
    c->moments = lk__calloc(json_array_size(mean), 2 * sizeof *c->moments);
    if (!c->moments)
        return LK_ERR_MEMORY;
    info->mean = c->moments;
    info->deviation = c->moments + info->channels;
    LK_TRY(checkpoint_state_read_numbers(path, mean, "mean", info->channels, c->moments));
    return checkpoint_state_read_numbers(path, json_object_get(data, "deviation"), "deviation", info->channels,
                                         c->moments + info->channels);
}

static lk_status checkpoint_state_read_position(const char *path, lk_checkpoint *c)
{
    lk_checkpoint_info *info = &c->info;
    const json_t *position = json_object_get(c->state, "position");
    const char *seed = json_string_value(json_object_get(c->state, "seed"));
    LK_TRY(checkpoint_state_read_integer(path, position, "epoch", 0, &info->epoch));
    LK_TRY(checkpoint_state_read_integer(path, position, "batch", 0, &info->batch));
    LK_TRY(checkpoint_state_read_integer(path, position, "steps", 0, &info->steps));
    LK_TRY(checkpoint_state_read_integer(path, position, "updates", 0, &info->updates));
    LK_TRY(checkpoint_state_read_integer(path, position, "samples_seen", 0, &info->samples_seen));
    if (!seed || !*seed || strspn(seed, "0123456789") != strlen(seed))
        return checkpoint_state_fail_missing(path, "seed");
    info->seed = strtoull(seed, NULL, 10);
    return LK_OK;
}

static lk_status checkpoint_state_read_settings(const char *path, lk_checkpoint *c)
{
    const char *name;
    json_t *value, *settings = json_object_get(c->state, "settings");
    c->settings = lk__calloc(json_object_size(settings) + 1, sizeof *c->settings);
    if (!c->settings)
        return LK_ERR_MEMORY;
    json_object_foreach(settings, name, value)
    {
        if (!json_is_string(value))
            return checkpoint_state_fail_missing(path, name);
        c->settings[c->info.n_settings++] = (lk_checkpoint_setting){name, json_string_value(value)};
    }
    c->info.settings = c->settings;
    return LK_OK;
}

lk_status lk__checkpoint_state_read(const char *path, lk_checkpoint *c)
{
    int64_t version;
    LK_TRY(lk__load_json(path, MOST_BYTES, &c->state));
    const char *says = json_string_value(json_object_get(c->state, "format"));
    if (!says || strcmp(says, format) != 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: is not of a checkpoint: its format is not '%s'", path, format);
    LK_TRY(checkpoint_state_read_integer(path, c->state, "version", 1, &version));
    if (version != LK_CHECKPOINT_VERSION)
        LK_FAIL(LK_ERR_FORMAT, "%s: is of version %lld, and this program reads %d", path, (long long)version,
                LK_CHECKPOINT_VERSION);
    c->info.finished = json_is_true(json_object_get(c->state, "finished"));
    const char *dtype = json_string_value(json_object_get(c->state, "dtype"));
    if (!dtype || (strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0))
        return checkpoint_state_fail_missing(path, "dtype");
    c->info.dtype = strcmp(dtype, "bf16") == 0 ? LK_BF16 : LK_F32;
    LK_TRY(checkpoint_state_read_model(path, c));
    LK_TRY(checkpoint_state_read_data(path, c));
    LK_TRY(checkpoint_state_read_position(path, c));
    const json_t *optimizer = json_object_get(c->state, "optimizer"), *best = json_object_get(c->state, "best");
    c->optimizer_kind = json_string_value(json_object_get(optimizer, "kind"));
    if (optimizer)
        LK_TRY(checkpoint_state_read_integer(path, optimizer, "steps", 0, &c->optimizer_steps));
    c->info.metric = json_string_value(json_object_get(best, "metric"));
    c->info.best = best ? lk__state_number(json_object_get(best, "value")) : 0;
    c->info.best_epoch = json_integer_value(json_object_get(best, "epoch"));
    return checkpoint_state_read_settings(path, c);
}
