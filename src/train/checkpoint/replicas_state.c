#include "train/checkpoint/replicas_state.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/tensor.h"
#include "optim/optimizer.h"
#include "optim/optimizer_step.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/replicas.h"

#include <string.h>

/* Returns a tensor over the parameter's part of the optimizer's slot. The reference is new. */
static lk_tensor *replicas_state_slot_part(lk_optimizer *optimizer, int slot, const lk_tensor *parameter)
{
    return lk__tensor_over(lk_optimizer_state(optimizer, slot, NULL)->storage, parameter);
}

lk_status lk__replicas_slot(lk_replicas *replicas, int owner, int slot, lk_tensor **parts)
{
    lk_tensor *const *parameters = lk__replicas_owned(replicas, owner);
    int n = lk_model_parameter_count(lk__replicas_model(replicas));
    for (int i = 0; i < n; i++) {
        parts[i] = replicas_state_slot_part(lk_replicas_optimizer(replicas, owner), slot, parameters[i]);
        if (!parts[i]) {
            lk__release_tensors(parts, i);
            return LK_ERR_MEMORY;
        }
    }
    return LK_OK;
}

/* Sets *part to the owner's share of the state of parameter i, one dimension, one reference; NULL: it has none.
 * *begin: the parameter's element that it begins with. */
static lk_status replicas_state_find_part(lk_replicas *replicas, int owner, int slot, int i, lk_tensor **part,
                                          int64_t *begin)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, owner);
    const lk_tensor *state = lk_optimizer_state(optimizer, slot, NULL), *parameter = optimizer->parameters[i];
    int64_t first = parameter->offset - optimizer->packed->offset, last = first + lk_tensor_count(parameter);
    int64_t from = lk__max(first, optimizer->own_begin),
            to = lk__min(last, optimizer->own_begin + lk_tensor_count(state));
    *part = NULL;
    *begin = from - first;
    if (from >= to)
        return LK_OK;
    lk_tensor like = {.dtype = LK_F32,
                      .shape = LK_SHAPE(to - from),
                      .strides = {1},
                      .offset = state->offset + from - optimizer->own_begin};
    *part = lk__tensor_over(state->storage, &like);
    return *part ? LK_OK : LK_ERR_MEMORY;
}

/* Reads what the owners of this process have. */
static lk_status replicas_state_read_own(lk_replicas *replicas, int slot, int i, float *values)
{
    int64_t count = lk_tensor_count(lk__replicas_owned(replicas, 0)[i]), done = 0, begin;
    for (int o = 0; o < lk__replicas_owners(replicas) && done < count; o++) {
        lk_tensor *part;
        LK_TRY(replicas_state_find_part(replicas, o, slot, i, &part, &begin));
        if (!part)
            continue;
        int64_t elements = lk_tensor_count(part);
        lk_status status = lk_tensor_read(part, values + begin, (size_t)elements * sizeof *values);
        lk_tensor_release(part);
        LK_TRY(status);
        done += elements;
    }
    return LK_OK;
}

lk_status lk__replicas_read_state(lk_replicas *replicas, int slot, int i, float *values)
{
    const lk_slices *slices = lk__replicas_slices(replicas);
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    int64_t first = optimizer->parameters[i]->offset - optimizer->packed->offset;
    lk_status status = replicas_state_read_own(replicas, slot, i, values);
    if (!slices)
        return status;
    lk_range part = {first, first + lk_tensor_count(optimizer->parameters[i])};
    return lk__slices_complete(slices, part, values, status);
}

bool lk__replicas_only_share(const lk_replicas *replicas)
{
    const lk_slices *slices = lk__replicas_slices(replicas);
    return slices && lk__slices_process(slices) > 0;
}

lk_status lk__replicas_end_sharing(const lk_replicas *replicas, lk_status status)
{
    const lk_slices *slices = lk__replicas_slices(replicas);
    return slices ? lk__slices_complete(slices, (lk_range){0, 0}, NULL, status) : status;
}

static lk_status replicas_state_share(lk_replicas *replicas, float *values)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    int average = lk__replicas_average_slot(replicas); /* lk__checkpoint_contents_copy reads it first */
    for (int i = 0; i < optimizer->n && average >= 0; i++)
        LK_TRY(lk__replicas_read_state(replicas, average, i, values));
    for (int s = 0; lk_optimizer_state(optimizer, s, NULL); s++)
        for (int i = 0; i < optimizer->n && s != average; i++)
            LK_TRY(lk__replicas_read_state(replicas, s, i, values));
    return LK_OK;
}

lk_status lk__replicas_share_state(lk_replicas *replicas)
{
    const lk_slices *slices = lk__replicas_slices(replicas);
    int64_t most = 0;
    if (!slices || !lk__slices_span_processes(slices))
        return LK_OK;
    for (int i = 0; i < lk_model_parameter_count(lk__replicas_model(replicas)); i++)
        most = lk__max(most, lk_tensor_count(lk__replicas_owned(replicas, 0)[i]));
    float *values = lk__calloc((size_t)most, sizeof *values);
    lk_status status =
        values ? replicas_state_share(replicas, values) : lk__replicas_end_sharing(replicas, LK_ERR_MEMORY);
    lk__free(values);
    return status;
}

lk_status lk__replicas_write_state(lk_replicas *replicas, int slot, int i, const float *values)
{
    for (int o = 0; o < lk__replicas_owners(replicas); o++) {
        lk_tensor *part;
        int64_t begin;
        LK_TRY(replicas_state_find_part(replicas, o, slot, i, &part, &begin));
        if (!part)
            continue;
        lk_status status = lk_tensor_write(part, values + begin, (size_t)lk_tensor_count(part) * sizeof *values);
        lk_tensor_release(part);
        LK_TRY(status);
    }
    return LK_OK;
}

int lk__replicas_average_slot(lk_replicas *replicas)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    for (int s = 0; optimizer && lk_optimizer_state(optimizer, s, NULL); s++)
        if (optimizer->slots[s] == optimizer->average)
            return s;
    return -1;
}

lk_status lk__replicas_read(lk_replicas *replicas, float *values)
{
    const lk_model *model = lk__replicas_model(replicas);
    lk_tensor *const *variables = lk__replicas_owned(replicas, 0);
    int slot = lk__replicas_average_slot(replicas);
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        size_t count = (size_t)lk_tensor_count(variables[i]);
        LK_TRY(slot >= 0 && i < lk_model_parameter_count(model)
                   ? lk__replicas_read_state(replicas, slot, i, values)
                   : lk_tensor_read(variables[i], values, count * sizeof *values));
        values += count;
    }
    return LK_OK;
}

/* Finds the tensor "SLOT.VARIABLE", such as "momentum.conv1.weight"; NULL: no such tensor. */
static const lk_safetensor *replicas_state_find_tensor(const lk_checkpoint *checkpoint, const char *slot,
                                                       const char *variable)
{
    size_t length = strlen(slot);
    for (int i = 0; i < lk__safetensors_count(checkpoint->optimizer); i++) {
        const lk_safetensor *tensor = lk__safetensors_at(checkpoint->optimizer, i);
        if (strncmp(tensor->name, slot, length) == 0 && tensor->name[length] == '.' &&
            strcmp(tensor->name + length + 1, variable) == 0)
            return tensor;
    }
    return NULL;
}

static lk_status replicas_state_find_values(const lk_checkpoint *checkpoint, const char *slot, const char *variable,
                                            int64_t count, const float **values)
{
    const lk_safetensor *tensor = replicas_state_find_tensor(checkpoint, slot, variable);
    *values = tensor ? lk__safetensors_values(checkpoint->optimizer, tensor) : NULL;
    if (!*values || tensor->count != count)
        LK_FAIL(LK_ERR_FORMAT, "%s/optimizer.safetensors: has no %s.%s of %lld elements of f32",
                checkpoint->info.folder, slot, variable, (long long)count);
    return LK_OK;
}

/* The averages stay as they are. */
static lk_status replicas_state_write_variables(lk_replicas *replicas, const float *const *values)
{
    const lk_model *model = lk__replicas_model(replicas);
    LK_TRY(lk__replicas_begin_update(replicas));
    for (int o = 0; o < lk__replicas_owners(replicas); o++) {
        lk_tensor *const *variables = lk__replicas_owned(replicas, o);
        for (int i = 0; i < lk_model_variable_count(model); i++)
            if (values[i])
                LK_TRY(lk_tensor_write(variables[i], values[i], (size_t)lk_tensor_count(variables[i]) * sizeof(float)));
    }
    return lk__replicas_end_update(replicas);
}

/* Finds the tensors `name` of the optimizer's file, one for each parameter: own[0 … parameters). */
static lk_status replicas_state_find_own(const lk_replicas *replicas, const lk_checkpoint *checkpoint, const char *name,
                                         const float **own)
{
    const lk_model *model = lk__replicas_model(replicas);
    for (int i = 0; i < lk_model_parameter_count(model); i++) {
        int64_t count = lk_shape_count(lk_model_variable_shape(model, i));
        LK_TRY(replicas_state_find_values(checkpoint, name, lk_model_variable_name(model, i), count, &own[i]));
    }
    return LK_OK;
}

static lk_status replicas_state_write_slot(lk_replicas *replicas, int slot, const float *const *own)
{
    for (int i = 0; i < lk_model_parameter_count(lk__replicas_model(replicas)); i++)
        LK_TRY(lk__replicas_write_state(replicas, slot, i, own[i]));
    return LK_OK;
}

/* slot -1: the parameters themselves, where the model's values are averages. */
static lk_status replicas_state_restore_slot(lk_replicas *replicas, const lk_checkpoint *checkpoint, int slot,
                                             const char *name)
{
    size_t n = (size_t)lk_model_variable_count(lk__replicas_model(replicas));
    const float **own = lk__calloc(n, sizeof *own);
    lk_status status = own ? replicas_state_find_own(replicas, checkpoint, name, own) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status =
            slot < 0 ? replicas_state_write_variables(replicas, own) : replicas_state_write_slot(replicas, slot, own);
    lk__free((void *)own);
    return status;
}

static lk_status replicas_state_restore_optimizer(lk_replicas *replicas, const lk_checkpoint *checkpoint,
                                                  bool same_settings)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    const char *name, *first = lk_model_variable_name(lk__replicas_model(replicas), 0);
    for (int s = 0; lk_optimizer_state(optimizer, s, &name); s++)
        if (strcmp(name, LK_AVERAGE) != 0 && (same_settings || replicas_state_find_tensor(checkpoint, name, first)))
            LK_TRY(replicas_state_restore_slot(replicas, checkpoint, s, name));
    for (int o = 0; o < lk__replicas_owners(replicas); o++)
        LK_TRY(lk__optimizer_resume(lk_replicas_optimizer(replicas, o), checkpoint->optimizer_steps));
    return LK_OK;
}

/* If a checkpoint has averages, training goes on from the trained parameters, with any optimizer. */
static lk_status replicas_state_restore_trained(lk_replicas *replicas, const lk_checkpoint *checkpoint,
                                                bool same_settings)
{
    const char *first = lk_model_variable_name(lk__replicas_model(replicas), 0);
    bool must_be = same_settings && lk__replicas_average_slot(replicas) >= 0;
    return must_be || replicas_state_find_tensor(checkpoint, LK_TRAINED, first)
               ? replicas_state_restore_slot(replicas, checkpoint, -1, LK_TRAINED)
               : LK_OK;
}

/* *same: true if the checkpoint's optimizer is of the same kind. With must_be another kind is an error. */
static lk_status replicas_state_compare_kind(const lk_checkpoint *checkpoint, const lk_optimizer *optimizer,
                                             bool must_be, bool *same)
{
    const char *kind = checkpoint->optimizer ? checkpoint->optimizer_kind : NULL;
    const char *own = optimizer ? lk_optimizer_name((int)optimizer->opts.kind) : "";
    *same = kind && strcmp(kind, own) == 0;
    if (!optimizer || !must_be || *same)
        return LK_OK;
    if (checkpoint->is_model_only)
        LK_FAIL(LK_ERR_STATE, "%s: was opened without its optimizer's state, and training cannot go on from it",
                checkpoint->info.folder);
    if (!kind)
        LK_FAIL(LK_ERR_FORMAT, "%s: holds no optimizer's state, and training cannot go on from it",
                checkpoint->info.folder);
    LK_FAIL(LK_ERR_FORMAT, "%s: holds the state of optimizer %s, and this one is %s", checkpoint->info.folder, kind,
            own);
}

lk_status lk__replicas_write(lk_replicas *replicas, const float *const *values)
{
    int slot = lk__replicas_average_slot(replicas);
    LK_TRY(replicas_state_write_variables(replicas, values));
    for (int i = 0; i < lk_model_parameter_count(lk__replicas_model(replicas)) && slot >= 0; i++)
        if (values[i])
            LK_TRY(lk__replicas_write_state(replicas, slot, i, values[i]));
    return LK_OK;
}

/* Reads the copy of lk_replicas_keep. */
static lk_status replicas_state_restore_kept(lk_replicas *replicas, const lk_checkpoint *checkpoint)
{
    const lk_model *model = lk__replicas_model(replicas);
    if (!replicas_state_find_tensor(checkpoint, LK_KEPT, lk_model_variable_name(model, 0)))
        return LK_OK;
    float *to = lk__replicas_kept(replicas, true);
    if (!to)
        return LK_ERR_MEMORY;
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        const float *values;
        int64_t count = lk_shape_count(lk_model_variable_shape(model, i));
        LK_TRY(replicas_state_find_values(checkpoint, LK_KEPT, lk_model_variable_name(model, i), count, &values));
        memcpy(to, values, (size_t)count * sizeof *to);
        to += count;
    }
    return LK_OK;
}

lk_status lk__replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint, bool same_settings)
{
    bool same;
    LK_TRY(lk__checkpoint_check_model(checkpoint, lk__replicas_model(replicas)));
    LK_TRY(replicas_state_compare_kind(checkpoint, lk_replicas_optimizer(replicas, 0), same_settings, &same));
    LK_TRY(lk__replicas_write(replicas, checkpoint->values));
    if (same)
        LK_TRY(replicas_state_restore_optimizer(replicas, checkpoint, same_settings));
    LK_TRY(replicas_state_restore_trained(replicas, checkpoint, same_settings));
    return replicas_state_restore_kept(replicas, checkpoint);
}
