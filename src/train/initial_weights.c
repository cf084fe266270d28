/* --weights: parameters and buffers from a safetensors file, under their names here or in PyTorch. */
#include "train/checkpoint.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "nn/torch_names.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* --- names -------------------------------------------------------------------------------------------------------- */

/* A tensor's name without what those that hold a network put before it: DistributedDataParallel, torch.compile, and a
 * LightningModule that calls it `model`. */
static const char *unwrapped(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod.", "model."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return unwrapped(name + strlen(wrappers[i]));
    return name;
}

static const lk__safetensor *find_variable(const lk__safetensors *file, const lk__torch_naming *n, const char *ours)
{
    char theirs[LK__TORCH_NAME];
    const char *name = lk__torch_name(n, ours, theirs);
    const lk__safetensor *found = lk__safetensors_find(file, name);
    for (int i = 0; !found && i < lk__safetensors_count(file); i++)
        if (strcmp(unwrapped(lk__safetensors_at(file, i)->name), name) == 0)
            found = lk__safetensors_at(file, i);
    return found;
}

static int count_variables(const lk__safetensors *file, const lk__torch_naming *n, const lk_model *model)
{
    int count = 0;
    for (int i = 0; i < lk_model_variable_count(model); i++)
        count += find_variable(file, n, lk_model_variable_name(model, i)) != NULL;
    return count;
}

/* The naming that most of the file's tensors follow, so that what is missing can be named. NULL: our own. */
static lk_status recognize(const char *path, const lk__safetensors *file, const lk_model *model,
                           const lk__torch_naming **found)
{
    int most = count_variables(file, NULL, model);
    *found = NULL;
    const lk__torch_naming *naming;
    for (int i = 0; (naming = lk__torch_naming_at(model, i)); i++) {
        int count = count_variables(file, naming, model);
        if (count > most) {
            most = count;
            *found = naming;
        }
    }
    if (most > 0)
        return LK_OK;
    const lk__safetensor *first = lk__safetensors_at(file, 0);
    LK_FAIL(LK_ERR_FORMAT,
            "--weights %s: its tensors, like %.60s, are neither called as the %d variables of model %s are, like %s, "
            "nor as PyTorch calls them",
            path, first ? first->name : "none", lk_model_variable_count(model), lk_model_name(model),
            lk_model_variable_name(model, 0));
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* want: as it is in the file. */
static lk_status check_shape(const char *path, const lk__safetensor *tensor, const char *ours, lk_shape want,
                             const lk_model *model)
{
    char needed[128], there[128];
    if (lk__shape_equal(tensor->shape, want))
        return LK_OK;
    lk__shape_text(want, needed, sizeof needed);
    lk__shape_text(tensor->shape, there, sizeof there);
    LK_FAIL(LK_ERR_FORMAT, "--weights %s: %s has shape %s, and as %s of model %s it must have %s", path, tensor->name,
            there, ours, lk_model_name(model), needed);
}

static lk_status read_transposed(const lk__safetensors *file, const lk__safetensor *tensor, float *values)
{
    float *there = lk__calloc((size_t)tensor->count, sizeof *there);
    if (!there)
        return LK_ERR_MEMORY;
    lk_status status = lk__safetensors_read(file, tensor, there);
    if (status == LK_OK)
        lk__transpose(there, tensor->shape.dim[0], tensor->shape.dim[1], values);
    lk__free(there);
    return status;
}

static lk_status read_variable(const char *path, const lk__safetensors *file, const lk__torch_naming *n,
                               const lk_model *model, int index, float *values)
{
    char theirs[LK__TORCH_NAME];
    const char *ours = lk_model_variable_name(model, index);
    lk_shape shape = lk_model_variable_shape(model, index);
    bool transposed = lk__torch_transposes(n, ours, shape);
    lk_shape in_file = transposed ? LK_SHAPE(shape.dim[1], shape.dim[0]) : shape;
    const lk__safetensor *tensor = find_variable(file, n, ours);
    if (!tensor)
        LK_FAIL(LK_ERR_FORMAT, "--weights %s: has no %s, which is %s of model %s", path,
                lk__torch_name(n, ours, theirs), ours, lk_model_name(model));
    LK_TRY(check_shape(path, tensor, ours, in_file, model));
    return transposed ? read_transposed(file, tensor, values) : lk__safetensors_read(file, tensor, values);
}

static bool is_asked_for(const lk__safetensors *file, const lk__torch_naming *n, const lk_model *model,
                         const lk__safetensor *tensor)
{
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (find_variable(file, n, lk_model_variable_name(model, i)) == tensor)
            return true;
    return false;
}

/* What nobody asks for is of another network; PyTorch's counts of batches are not. */
static lk_status check_rest(const char *path, const lk__safetensors *file, const lk__torch_naming *n,
                            const lk_model *model)
{
    for (int i = 0; i < lk__safetensors_count(file); i++) {
        const lk__safetensor *tensor = lk__safetensors_at(file, i);
        if (!strstr(tensor->name, "num_batches_tracked") && !is_asked_for(file, n, model, tensor))
            LK_FAIL(LK_ERR_FORMAT, "--weights %s: has a tensor %.60s, which is none of the %d variables of model %s",
                    path, tensor->name, lk_model_variable_count(model), lk_model_name(model));
    }
    return LK_OK;
}

static lk_status read_all(const char *path, const lk__safetensors *file, lk_replicas *replicas)
{
    const lk_model *model = lk__replicas_model(replicas);
    const lk__torch_naming *n;
    int count = lk_model_variable_count(model);
    LK_TRY(recognize(path, file, model, &n));
    float **values = lk__calloc((size_t)count, sizeof *values);
    lk_status status = values ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < count && status == LK_OK; i++) {
        values[i] = lk__calloc((size_t)lk_shape_count(lk_model_variable_shape(model, i)) + 1, sizeof **values);
        status = values[i] ? read_variable(path, file, n, model, i, values[i]) : LK_ERR_MEMORY;
    }
    if (status == LK_OK)
        status = check_rest(path, file, n, model);
    if (status == LK_OK)
        status = lk__replicas_write(replicas, (const float *const *)values);
    for (int i = 0; values && i < count; i++)
        lk__free(values[i]);
    lk__free(values);
    return status;
}

lk_status lk_replicas_load_weights(lk_replicas *replicas, const char *path)
{
    lk__safetensors *file;
    LK_TRY(lk__safetensors_open(path, &file));
    lk_status status = read_all(path, file, replicas);
    lk__safetensors_close(file);
    return status;
}
