#include "train/checkpoint/checkpoint_read.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/shape.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_state.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 }; /* of opening what a training replaces or removes meanwhile */

/* --- contents ----------------------------------------------------------------------------------------------------- */

static lk_status checkpoint_find_variable(lk_checkpoint *c, int index, const char *name)
{
    const lk_safetensor *tensor = lk__safetensors_find(c->model, name);
    if (!tensor || strcmp(tensor->dtype, "F32") != 0)
        LK_FAIL(LK_ERR_FORMAT, "%s/model.safetensors: has no %s of f32", c->folder, name);
    c->tensors[index] = tensor;
    c->values[index] = lk__safetensors_values(c->model, tensor);
    if (!c->values[index])
        LK_FAIL(LK_ERR_FORMAT, "%s/model.safetensors: %s lies where no f32 can", c->folder, name);
    return LK_OK;
}

static lk_status checkpoint_find_variables(lk_checkpoint *c)
{
    const json_t *names = json_object_get(json_object_get(c->state, "model"), "variables");
    int n = (int)json_array_size(names);
    if (n != lk__safetensors_count(c->model))
        LK_FAIL(LK_ERR_FORMAT, "%s: model.safetensors has %d tensors, and state.json names %d", c->folder,
                lk__safetensors_count(c->model), n);
    c->tensors = lk__calloc((size_t)n + 1, sizeof *c->tensors);
    c->values = lk__calloc((size_t)n + 1, sizeof *c->values);
    if (!c->tensors || !c->values)
        return LK_ERR_MEMORY;
    c->n = n;
    for (int i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        LK_TRY(checkpoint_find_variable(c, i, name ? name : ""));
    }
    return LK_OK;
}

static lk_status checkpoint_read_contents(lk_checkpoint *c)
{
    char path[PATH_MAX];
    LK_TRY(lk__checkpoint_read_files(c));
    LK_TRY(lk__checkpoint_path(c->folder, "state.json", path));
    LK_TRY(lk__checkpoint_state_read(path, c));
    LK_TRY(checkpoint_find_variables(c));
    c->info.model_file = c->model_file;
    return LK_OK;
}

static lk_status checkpoint_open_once(const char *folder, bool is_model_only, lk_checkpoint **checkpoint)
{
    lk_checkpoint *c = lk__calloc(1, sizeof *c);
    if (!c)
        return LK_ERR_MEMORY;
    c->folder = lk__strdup(folder);
    c->info.folder = c->folder;
    c->is_model_only = is_model_only;
    lk_status status = c->folder ? checkpoint_read_contents(c) : LK_ERR_MEMORY;
    if (status == LK_OK)
        *checkpoint = c;
    else
        lk_checkpoint_release(c);
    return status;
}

/* A training may replace the folder by another one of its name while it is read. The manifest then does not fit the
 * files, although nothing is damaged, so the new folder is read. */
static lk_status checkpoint_open_path(const char *folder, bool is_model_only, lk_checkpoint **checkpoint)
{
    for (int tries = 1;; tries++) {
        struct stat before, after;
        bool was_there = stat(folder, &before) == 0;
        lk_status status = checkpoint_open_once(folder, is_model_only, checkpoint);
        if (status == LK_OK || tries == TRIES || !was_there || stat(folder, &after) != 0 ||
            (before.st_dev == after.st_dev && before.st_ino == after.st_ino))
            return status;
        lk_error_clear();
    }
}

void lk__checkpoint_drop_tensors(lk_checkpoint *c)
{
    lk__safetensors_close(c->model);
    lk__safetensors_close(c->optimizer);
    c->model = c->optimizer = NULL;
    c->n = 0;
}

void lk_checkpoint_release(lk_checkpoint *c)
{
    if (!c)
        return;
    lk__checkpoint_drop_tensors(c);
    json_decref(c->state);
    LK_FREE_ALL((void *)c->values, (void *)c->tensors, c->class_names, c->moments, c->settings, c->model_file);
    lk__free_aligned(c->model_text);
    lk__free(c->implementations);
    lk__free(c->folder);
    lk__free(c);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* *gone: the checkpoint does not exist any more, because the training that writes the folder has removed it. */
static lk_status checkpoint_open_named(const char *folder, const char *name, bool is_model_only,
                                       lk_checkpoint **checkpoint, bool *gone)
{
    char path[PATH_MAX];
    struct stat about;
    LK_TRY(lk__checkpoint_path(folder, name, path));
    lk_status status = checkpoint_open_path(path, is_model_only, checkpoint);
    *gone = status != LK_OK && lstat(path, &about) != 0; /* a dangling link counts as a damaged checkpoint */
    return status;
}

/* Opens the newest checkpoint that is not damaged, with a warning if it is not the newest of all. One that could not be
 * opened for another reason, such as too many open files, is an error: an earlier one is no substitute for it. */
static lk_status checkpoint_open_newest(const char *folder, const int64_t *steps, int n, bool is_model_only,
                                        lk_checkpoint **checkpoint, bool *gone)
{
    lk_error_state first = {.status = LK_OK};
    for (int i = n - 1; i >= 0; i--) {
        char name[LK_CHECKPOINT_NAME];
        lk__checkpoint_name(steps[i], name);
        lk_status status = checkpoint_open_named(folder, name, is_model_only, checkpoint, gone);
        if (status == LK_OK && first.status != LK_OK)
            lk__log(LK_LOG_WARNING, "%s; %s is used in its place", first.message, name);
        if (*gone || status != LK_ERR_FORMAT)
            return status;
        if (first.status == LK_OK)
            lk__error_save(&first);
        lk_error_clear();
    }
    lk__error_restore(&first);
    return first.status;
}

static lk_status checkpoint_open_last(const char *folder, bool is_model_only, lk_checkpoint **checkpoint, bool *gone)
{
    int64_t *steps;
    int n;
    LK_TRY(lk__checkpoint_list(folder, &steps, &n));
    lk_status status = LK_OK;
    if (n == 0)
        status = lk__fail(LK_ERR_NOT_FOUND, "%s: there is no checkpoint", folder);
    else
        status = checkpoint_open_newest(folder, steps, n, is_model_only, checkpoint, gone);
    lk__free(steps);
    return status;
}

static lk_status checkpoint_open_best(const char *folder, bool is_model_only, lk_checkpoint **checkpoint, bool *gone)
{
    lk_best best;
    LK_TRY(lk__checkpoint_read_best(folder, &best));
    if (!*best.name)
        LK_FAIL(LK_ERR_NOT_FOUND, "%s: there is no best checkpoint", folder);
    lk_status status = checkpoint_open_named(folder, best.name, is_model_only, checkpoint, gone);
    if (!*gone)
        return status;
    lk_error_clear();
    LK_FAIL(LK_ERR_NOT_FOUND, "%s/best.json: names %s, which is not there", folder, best.name);
}

static lk_status checkpoint_open_in_folder(const char *folder, lk_checkpoint_which which, bool is_model_only,
                                           lk_checkpoint **checkpoint)
{
    char path[PATH_MAX];
    *checkpoint = NULL;
    LK_TRY(lk__checkpoint_path(folder, "manifest.json", path));
    if (access(path, F_OK) == 0) {
        if (which == LK_CHECKPOINT_BEST)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: is a checkpoint itself; the best is one of the folder that holds it", folder);
        return checkpoint_open_path(folder, is_model_only, checkpoint);
    }
    for (int tries = 1;; tries++) {
        bool gone = false;
        lk__checkpoint_restore_replaced(folder);
        lk_status status = which == LK_CHECKPOINT_BEST ? checkpoint_open_best(folder, is_model_only, checkpoint, &gone)
                                                       : checkpoint_open_last(folder, is_model_only, checkpoint, &gone);
        if (!gone || tries == TRIES)
            return status;
        lk_error_clear(); /* it was removed because there is a newer one: list again */
    }
}

lk_status lk_checkpoint_open(const char *folder, lk_checkpoint_which which, lk_checkpoint **checkpoint)
{
    return checkpoint_open_in_folder(folder, which, false, checkpoint);
}

lk_status lk_checkpoint_open_model(const char *folder, lk_checkpoint_which which, lk_checkpoint **checkpoint)
{
    return checkpoint_open_in_folder(folder, which, true, checkpoint);
}

/* --- access ------------------------------------------------------------------------------------------------------- */

const lk_checkpoint_info *lk_checkpoint_get_info(const lk_checkpoint *checkpoint)
{
    return &checkpoint->info;
}

const char *lk_checkpoint_get_setting(const lk_checkpoint *checkpoint, const char *name)
{
    for (int i = 0; i < checkpoint->info.n_settings; i++)
        if (strcmp(checkpoint->settings[i].name, name) == 0)
            return checkpoint->settings[i].value;
    return NULL;
}

int lk_checkpoint_variable_count(const lk_checkpoint *checkpoint)
{
    return checkpoint->n;
}

const float *lk_checkpoint_variable(const lk_checkpoint *checkpoint, int index, const char **name, lk_shape *shape)
{
    if (index < 0 || index >= checkpoint->n)
        return NULL;
    if (name)
        *name = checkpoint->tensors[index]->name;
    if (shape)
        *shape = checkpoint->tensors[index]->shape;
    return checkpoint->values[index];
}

const json_t *lk__checkpoint_member(const lk_checkpoint *checkpoint, const char *name)
{
    return json_object_get(checkpoint->state, name);
}

lk_status lk__checkpoint_check_model(const lk_checkpoint *c, const lk_model *model)
{
    char wanted[128], found[128];
    if (lk_model_variable_count(model) != c->n)
        LK_FAIL(LK_ERR_FORMAT, "%s: has %d variables, and model %s has %d", c->folder, c->n, lk_model_name(model),
                lk_model_variable_count(model));
    for (int i = 0; i < c->n; i++) {
        lk_shape want = lk_model_variable_shape(model, i), have = c->tensors[i]->shape;
        const char *name = lk_model_variable_name(model, i);
        if (strcmp(name, c->tensors[i]->name) != 0)
            LK_FAIL(LK_ERR_FORMAT, "%s: variable %d is %s, and of model %s it is %s", c->folder, i, c->tensors[i]->name,
                    lk_model_name(model), name);
        if (lk__shape_equal(want, have))
            continue;
        lk__shape_text(want, wanted, sizeof wanted);
        lk__shape_text(have, found, sizeof found);
        LK_FAIL(LK_ERR_FORMAT, "%s: variable %s has shape %s, and that of model %s has %s", c->folder, name, found,
                lk_model_name(model), wanted);
    }
    return LK_OK;
}

/* Freezes what was frozen in training, so that the model's variables have the order of the checkpoint's. */
static lk_status checkpoint_freeze(const lk_checkpoint *c, lk_model *model)
{
    const json_t *frozen = json_object_get(json_object_get(c->state, "model"), "frozen");
    for (size_t i = 0; i < json_array_size(frozen); i++) {
        const char *name = json_string_value(json_array_get(frozen, i));
        if (name && lk_model_freeze(model, name) == LK_OK)
            continue;
        lk_error_clear();
        LK_FAIL(LK_ERR_FORMAT, "%s/state.json: names a frozen parameter '%.60s', which model %s does not have",
                c->folder, name ? name : "", lk_model_name(model));
    }
    return LK_OK;
}

lk_model *lk_checkpoint_model(const lk_checkpoint *c)
{
    const lk_checkpoint_info *info = &c->info;
    const char *kind = json_string_value(json_object_get(json_object_get(c->state, "model"), "kind"));
    lk_model_input input = {info->channels, info->height, info->width, info->classes};
    if (strcmp(kind, "reference") != 0 && !info->model_file) {
        lk__fail(
            LK_ERR_UNSUPPORTED,
            "%s: model %s has layers of a program's own, or is larger than a model file may be; only that program can "
            "build it",
            c->folder, info->model);
        return NULL;
    }
    lk_model *model = info->model_file ? lk__model_from_text(info->model_file, c->model_text, input)
                                       : lk_model_new(info->model, input);
    if (!model || (checkpoint_freeze(c, model) == LK_OK && lk__checkpoint_check_model(c, model) == LK_OK))
        return model;
    lk_model_release(model);
    return NULL;
}

static lk_tensor *checkpoint_copy_variable(const lk_checkpoint *c, lk_device *device, int index)
{
    return lk_tensor_from(device, LK_F32, c->tensors[index]->shape, c->values[index]);
}

static void checkpoint_release_file(void *user)
{
    lk__safetensors_close(user);
}

static lk_tensor *checkpoint_lend_variable(const lk_checkpoint *c, lk_device *device, int index)
{
    void *values = (void *)(uintptr_t)c->values[index];
    if (device->backend->offload)
        return checkpoint_copy_variable(c, device, index);
    lk__safetensors_retain(c->model);
    lk_tensor *tensor =
        lk_tensor_wrap(device, LK_F32, c->tensors[index]->shape, values, checkpoint_release_file, c->model);
    if (!tensor)
        lk__safetensors_close(c->model);
    return tensor;
}

static lk_status checkpoint_make_variables(const lk_checkpoint *c, lk_device *device, lk_tensor **variables,
                                           lk_tensor *(*make)(const lk_checkpoint *, lk_device *, int))
{
    lk_status status = LK_OK;
    for (int i = 0; i < c->n; i++)
        variables[i] = NULL;
    lk_scope_begin();
    for (int i = 0; i < c->n && status == LK_OK; i++) {
        variables[i] = lk_tensor_retain(make(c, device, i));
        status = variables[i] ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    for (int i = 0; i < c->n && status != LK_OK; i++) {
        lk_tensor_release(variables[i]);
        variables[i] = NULL;
    }
    return status;
}

lk_status lk_checkpoint_load(const lk_checkpoint *checkpoint, lk_device *device, lk_tensor **variables)
{
    return checkpoint_make_variables(checkpoint, device, variables, checkpoint_copy_variable);
}

lk_status lk__checkpoint_lend(const lk_checkpoint *checkpoint, lk_device *device, lk_tensor **variables)
{
    return checkpoint_make_variables(checkpoint, device, variables, checkpoint_lend_variable);
}
