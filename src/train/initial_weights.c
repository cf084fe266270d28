/* --weights: parameters and buffers from a safetensors file, under Lockstep's or PyTorch's names. */
#include "base/mem.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "nn/torch_names.h"
#include "train/checkpoint/replicas_state.h"
#include "train/replicas.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Returns a tensor's name without the prefixes of modules that wrap a network: DistributedDataParallel, torch.compile,
 * and a LightningModule whose network is called `model`. */
static const char *weights_unwrapped_name(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod.", "model."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return weights_unwrapped_name(name + strlen(wrappers[i]));
    return name;
}

static const lk_safetensor *weights_find(const lk_safetensors *file, const lk_torch_naming *n, const char *ours)
{
    char theirs[LK__TORCH_NAME];
    const char *name = lk__torch_name(n, ours, theirs);
    const lk_safetensor *found = lk__safetensors_find(file, name);
    for (int i = 0; !found && i < lk__safetensors_count(file); i++)
        if (strcmp(weights_unwrapped_name(lk__safetensors_at(file, i)->name), name) == 0)
            found = lk__safetensors_at(file, i);
    return found;
}

static int weights_count_found(const lk_safetensors *file, const lk_torch_naming *n, const lk_model *model)
{
    int count = 0;
    for (int i = 0; i < lk_model_variable_count(model); i++)
        count += weights_find(file, n, lk_model_variable_name(model, i)) != NULL;
    return count;
}

/* *found: the naming that most of the file's tensors follow; messages name missing tensors by it. NULL: Lockstep's. */
static lk_status weights_recognize_naming(const char *path, const lk_safetensors *file, const lk_model *model,
                                          const lk_torch_naming **found)
{
    int most = weights_count_found(file, NULL, model);
    *found = NULL;
    const lk_torch_naming *naming;
    for (int i = 0; (naming = lk__torch_naming_at(model, i)); i++) {
        int count = weights_count_found(file, naming, model);
        if (count > most) {
            most = count;
            *found = naming;
        }
    }
    if (most > 0)
        return LK_OK;
    const lk_safetensor *first = lk__safetensors_at(file, 0);
    LK_FAIL(LK_ERR_FORMAT,
            "--weights %s: its tensors, like %.60s, are neither called as the %d variables of model %s are, like %s, "
            "nor as PyTorch calls them",
            path, first ? first->name : "none", lk_model_variable_count(model), lk_model_name(model),
            lk_model_variable_name(model, 0));
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* want: the shape that the tensor must have in the file. */
static lk_status weights_check_shape(const char *path, const lk_safetensor *tensor, const char *ours, lk_shape want,
                                     const lk_model *model)
{
    char needed[128], found[128];
    if (lk__shape_equal(tensor->shape, want))
        return LK_OK;
    lk__shape_text(want, needed, sizeof needed);
    lk__shape_text(tensor->shape, found, sizeof found);
    LK_FAIL(LK_ERR_FORMAT, "--weights %s: %s has shape %s, and as %s of model %s it must have %s", path, tensor->name,
            found, ours, lk_model_name(model), needed);
}

static lk_status weights_read_variable(const char *path, const lk_safetensors *file, const lk_torch_naming *n,
                                       const lk_model *model, int index, float *values)
{
    char theirs[LK__TORCH_NAME];
    const char *ours = lk_model_variable_name(model, index);
    lk_shape shape = lk_model_variable_shape(model, index);
    bool transposed = lk__torch_transposes(n, ours, shape);
    lk_shape in_file = transposed ? LK_SHAPE(shape.dim[1], shape.dim[0]) : shape;
    const lk_safetensor *tensor = weights_find(file, n, ours);
    if (!tensor)
        LK_FAIL(LK_ERR_FORMAT, "--weights %s: has no %s, which is %s of model %s", path,
                lk__torch_name(n, ours, theirs), ours, lk_model_name(model));
    LK_TRY(weights_check_shape(path, tensor, ours, in_file, model));
    if (!transposed)
        return lk__safetensors_read(file, tensor, values);
    float *stored = lk__calloc((size_t)tensor->count, sizeof *stored);
    lk_status status = stored ? lk__safetensors_read(file, tensor, stored) : LK_ERR_MEMORY;
    if (status == LK_OK)
        lk__transpose(stored, tensor->shape.dim[0], tensor->shape.dim[1], values);
    lk__free(stored);
    return status;
}

static bool weights_is_used(const lk_safetensors *file, const lk_torch_naming *n, const lk_model *model,
                            const lk_safetensor *tensor)
{
    for (int i = 0; i < lk_model_variable_count(model); i++)
        if (weights_find(file, n, lk_model_variable_name(model, i)) == tensor)
            return true;
    return false;
}

/* A tensor that no variable uses belongs to another network, unless it is one of PyTorch's counts of batches. */
static lk_status weights_check_unused(const char *path, const lk_safetensors *file, const lk_torch_naming *n,
                                      const lk_model *model)
{
    for (int i = 0; i < lk__safetensors_count(file); i++) {
        const lk_safetensor *tensor = lk__safetensors_at(file, i);
        if (!strstr(tensor->name, "num_batches_tracked") && !weights_is_used(file, n, model, tensor))
            LK_FAIL(LK_ERR_FORMAT, "--weights %s: has a tensor %.60s, which is none of the %d variables of model %s",
                    path, tensor->name, lk_model_variable_count(model), lk_model_name(model));
    }
    return LK_OK;
}

static lk_status weights_read_all(const char *path, const lk_safetensors *file, lk_replicas *replicas)
{
    const lk_model *model = lk__replicas_model(replicas);
    const lk_torch_naming *n;
    int count = lk_model_variable_count(model);
    LK_TRY(weights_recognize_naming(path, file, model, &n));
    float **values = lk__calloc((size_t)count, sizeof *values);
    lk_status status = values ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < count && status == LK_OK; i++) {
        values[i] = lk__calloc((size_t)lk_shape_count(lk_model_variable_shape(model, i)) + 1, sizeof **values);
        status = values[i] ? weights_read_variable(path, file, n, model, i, values[i]) : LK_ERR_MEMORY;
    }
    if (status == LK_OK)
        status = weights_check_unused(path, file, n, model);
    if (status == LK_OK)
        status = lk__replicas_write(replicas, (const float *const *)values);
    for (int i = 0; values && i < count; i++)
        lk__free(values[i]);
    lk__free(values);
    return status;
}

lk_status lk_replicas_load_weights(lk_replicas *replicas, const char *path)
{
    lk_safetensors *file;
    LK_TRY(lk__safetensors_open(path, &file));
    lk_status status = weights_read_all(path, file, replicas);
    lk__safetensors_close(file);
    return status;
}
