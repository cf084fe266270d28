/* Making and releasing optimizers, and queries about them. */
#include "optim/optimizer.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "core/tensor.h"
#include "optim/optimizer_opts.h"
#include "optim/pack.h"
#include "lockstep/ops.h"

#include <string.h>

/* --- making ------------------------------------------------------------------------------------------------------- */

/* Keeps a reference to a new tensor; NULL is the failure of the operator that should have made it. */
static lk_status optimizer_keep(lk_tensor *made, lk_tensor **kept)
{
    *kept = lk_tensor_retain(made);
    return made ? LK_OK : lk_error_status();
}

static lk_status optimizer_check_packed(const lk_tensor *packed, lk_tensor *const *parameters, int n)
{
    int64_t begin = 0;
    if (!packed || n < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: no parameters");
    for (int i = 0; i < n; i++) {
        const lk_tensor *w = parameters[i];
        if (!w || w->storage != packed->storage || w->dtype != LK_F32 || w->offset != packed->offset + begin ||
            !lk__tensor_is_dense(w))
            LK_FAIL(LK_ERR_ARGUMENT, "optimizer: parameter %d is not where lk_pack puts it in the packed tensor", i);
        LK_TRY(lk__pack_add(w, &begin));
    }
    if (packed->dtype != LK_F32 || packed->shape.ndim != 1 || packed->shape.dim[0] != begin ||
        !lk__tensor_is_dense(packed))
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: the packed tensor has %lld elements; lk_pack gives these parameters %lld",
                (long long)lk_tensor_count(packed), (long long)begin);
    return LK_OK;
}

static lk_status optimizer_keep_parameters(lk_optimizer *o, lk_tensor *packed, lk_tensor *const *parameters, int n,
                                           lk_tensor *own)
{
    o->parameters = lk__calloc((size_t)n, sizeof(lk_tensor *));
    o->slices = lk__calloc((size_t)n, sizeof(lk_tensor *));
    o->zeroed = lk__calloc((size_t)n, sizeof *o->zeroed);
    if (!o->parameters || !o->slices || !o->zeroed)
        return LK_ERR_MEMORY;
    o->n = n;
    o->packed = lk_tensor_retain(packed);
    o->own = lk_tensor_retain(own);
    for (int i = 0; i < n; i++)
        o->parameters[i] = lk_tensor_retain(parameters[i]);
    return LK_OK;
}

static lk_status optimizer_make_slots(lk_optimizer *o)
{
    const char *names[LK_OPTIMIZER_SLOTS];
    lk__optimizer_slots(&o->opts, names);
    for (int i = 0; i < LK_OPTIMIZER_SLOTS; i++) {
        if (!names[i])
            break;
        LK_TRY(optimizer_keep(lk_zeros(lk_tensor_device(o->packed), LK_F32, o->own->shape), &o->slots[i]));
        if (strcmp(names[i], LK_AVERAGE) == 0)
            o->average = o->slots[i];
    }
    return o->average ? lk_copy_into(o->average, o->own) : LK_OK;
}

static lk_status optimizer_make_gradients(lk_optimizer *o)
{
    lk_device *device = lk_tensor_device(o->packed);
    int64_t begin = 0;
    LK_TRY(optimizer_keep(lk_zeros(device, LK_F32, LK_SCALAR), &o->zero));
    LK_TRY(optimizer_keep(lk_zeros(device, LK_F32, o->packed->shape), &o->gradients));
    int64_t own_end = o->own_begin + lk_tensor_count(o->own);
    LK_TRY(optimizer_keep(lk_slice(o->gradients, 0, o->own_begin, own_end), &o->own_gradients));
    for (int i = 0; i < o->n; i++) {
        o->slices[i] = lk__pack_view(LK_HERE, o->gradients, begin, o->parameters[i]->shape);
        if (!o->slices[i])
            return lk_error_status();
        o->zeroed[i] = true;
        LK_TRY(lk__pack_add(o->parameters[i], &begin));
    }
    return LK_OK;
}

/* Cuts offsets[0 … n] to the slice that steps update. Segments outside of it become empty. */
static void optimizer_cut_segments(const lk_optimizer *o, int64_t *offsets)
{
    for (int i = 0; i <= o->n; i++)
        offsets[i] = lk__min(lk__max(offsets[i] - o->own_begin, 0), lk_tensor_count(o->own));
}

static lk_status optimizer_make_segments(lk_optimizer *o)
{
    lk_device *device = lk_tensor_device(o->packed);
    int64_t *offsets = lk__calloc((size_t)o->n + 1, sizeof *offsets);
    float *adapted = lk__calloc((size_t)o->n, sizeof *adapted);
    lk_status status = offsets && adapted ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < o->n && status == LK_OK; i++) {
        offsets[i + 1] = offsets[i];
        status = lk__pack_add(o->parameters[i], &offsets[i + 1]);
        adapted[i] = o->parameters[i]->shape.ndim > 1 ? 1 : 0;
    }
    if (status == LK_OK)
        status = optimizer_keep(lk_tensor_from(device, LK_I64, LK_SHAPE(o->n + 1), offsets), &o->offsets);
    if (status == LK_OK) {
        optimizer_cut_segments(o, offsets);
        status = optimizer_keep(lk_tensor_from(device, LK_I64, LK_SHAPE(o->n + 1), offsets), &o->own_offsets);
    }
    if (status == LK_OK)
        status = optimizer_keep(lk_tensor_from(device, LK_F32, LK_SHAPE(o->n), adapted), &o->adapted);
    lk__free(offsets);
    lk__free(adapted);
    return status;
}

static lk_status optimizer_make_tensors(lk_optimizer *o)
{
    lk_recorder recorder = lk__recorder_set((lk_recorder){.self = NULL});
    lk_scope_begin();
    lk_status status = optimizer_make_slots(o);
    if (status == LK_OK)
        status = optimizer_make_gradients(o);
    if (status == LK_OK)
        status = optimizer_make_segments(o);
    lk_scope_end();
    lk__recorder_set(recorder);
    return status;
}

lk_optimizer *lk__optimizer_new_slice(const lk_optimizer_opts *opts, lk_tensor *packed, lk_tensor *const *parameters,
                                      int n, lk_tensor *own, int64_t begin)
{
    lk_optimizer_opts checked = opts ? *opts : (lk_optimizer_opts){.kind = LK_SGD};
    if (lk__optimizer_check(&checked) != LK_OK || optimizer_check_packed(packed, parameters, n) != LK_OK)
        return NULL;
    lk_optimizer *o = lk__calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->opts = checked;
    o->own_begin = begin;
    o->power1 = o->power2 = 1;
    if (optimizer_keep_parameters(o, packed, parameters, n, own) == LK_OK && optimizer_make_tensors(o) == LK_OK)
        return o;
    lk_optimizer_release(o);
    return NULL;
}

lk_optimizer *lk_optimizer_new(const lk_optimizer_opts *opts, lk_tensor *packed, lk_tensor *const *parameters, int n)
{
    return lk__optimizer_new_slice(opts, packed, parameters, n, packed, 0);
}

void lk_optimizer_release(lk_optimizer *optimizer)
{
    if (!optimizer)
        return;
    lk__tensors_release(optimizer->parameters, optimizer->n);
    lk__tensors_release(optimizer->slices, optimizer->n);
    lk__tensors_release(optimizer->slots, LK_OPTIMIZER_SLOTS);
    lk_tensor *const tensors[] = {
        optimizer->packed,        optimizer->gradients,   optimizer->zero,    optimizer->offsets, optimizer->own,
        optimizer->own_gradients, optimizer->own_offsets, optimizer->adapted, optimizer->skip,    optimizer->norm};
    lk__tensors_release(tensors, sizeof tensors / sizeof *tensors);
    LK_FREE_ALL(optimizer->parameters, optimizer->slices, optimizer->zeroed, optimizer);
}

lk_status lk__optimizer_swap_average(lk_optimizer *o)
{
    lk_scope_begin();
    lk_tensor *parameters = lk_copy(o->own, lk_tensor_device(o->own));
    lk_status status = parameters ? lk_copy_into(o->own, o->average) : lk_error_status();
    if (status == LK_OK)
        status = lk_copy_into(o->average, parameters);
    lk_scope_end();
    return status;
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

int64_t lk_optimizer_steps(const lk_optimizer *optimizer)
{
    return optimizer->steps;
}

lk_tensor *lk_optimizer_skipped(const lk_optimizer *optimizer)
{
    return optimizer->opts.skip_nonfinite ? optimizer->skip : NULL;
}

lk_tensor *lk_optimizer_gradient_norm(const lk_optimizer *optimizer)
{
    return optimizer->norm;
}

lk_tensor *const *lk_optimizer_gradients(const lk_optimizer *optimizer)
{
    return optimizer->has_gradients ? optimizer->slices : NULL;
}

lk_tensor *lk_optimizer_state(const lk_optimizer *optimizer, int index, const char **name)
{
    const char *names[LK_OPTIMIZER_SLOTS];
    bool exists = index >= 0 && index < LK_OPTIMIZER_SLOTS && optimizer->slots[index];
    lk__optimizer_slots(&optimizer->opts, names);
    if (name)
        *name = exists ? names[index] : NULL;
    return exists ? optimizer->slots[index] : NULL;
}
