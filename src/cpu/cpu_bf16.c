/* bf16 operators by way of f32 stand-ins: see cpu_bf16.h. */
#include "cpu/cpu_bf16.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu.h"
#include "cpu/cpu_choice.h"
#include "cpu/isa.h"
#include "cpu/lanes/cpu_lanes.h"
#include "cpu/onednn/cpu_convert.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

/* --- stand-ins ---------------------------------------------------------------------------------------------------- */

/* An f32 tensor that stands in for a bf16 one. The stand-ins of a call lie one after the other in the buffer of
 * lk__cpu_wide, each in a slot. If a kernel gives an output a layout larger than its slot, the output gets memory from
 * the allocator. */
typedef struct stand_in {
    lk_tensor tensor;
    lk_storage storage;
} stand_in;

/* Makes the stand-in of `of`: row-major, without memory yet. */
static void cpu_bf16_stand_in_start(lk_device *device, const lk_tensor *of, stand_in *s)
{
    s->tensor = lk__tensor_alias(of);
    s->tensor.dtype = LK_F32;
    s->tensor.offset = 0;
    lk__shape_strides(of->shape, s->tensor.strides);
    s->tensor.storage = &s->storage;
    s->storage = (lk_storage){.device = device, .bytes = (size_t)lk_tensor_count(of) * sizeof(float)};
}

static size_t cpu_bf16_stand_in_bytes(const lk_tensor *x)
{
    const lk_layout *layout = lk__layout_of_f32(x->storage->layout);
    size_t bytes = layout ? layout->bytes : (size_t)lk_tensor_count(x) * sizeof(float);
    return bytes / LK_ALIGNMENT * LK_ALIGNMENT + LK_ALIGNMENT;
}

/* Gives the stand-in of `of` its slot; *memory advances past it. */
static void cpu_bf16_stand_in_take_slot(const lk_tensor *of, stand_in *s, char **memory)
{
    s->storage.data = *memory;
    s->storage.planned = cpu_bf16_stand_in_bytes(of);
    *memory += s->storage.planned;
}

static void cpu_bf16_stand_in_free(lk_device *device, stand_in *s)
{
    lk__allocator_put(device->allocator, s->storage.block);
    s->storage.block = NULL;
}

/* Returns the number of elements from the first to the last of a view whose strides are all positive; otherwise -1. */
static int64_t cpu_bf16_element_span(const lk_tensor *x)
{
    int64_t last = 0;
    for (int i = 0; i < x->shape.ndim; i++) {
        if (x->shape.dim[i] > 1 && x->strides[i] <= 0)
            return -1;
        last += (x->shape.dim[i] - 1) * x->strides[i];
    }
    return last + 1;
}

/* Widens a view with any strides, in row-major order. */
static void cpu_bf16_widen_gathered(const lk_tensor *x, float *to)
{
    const uint16_t *from = lk__data(x);
    int64_t index[LK_MAX_DIMS] = {0}, offset = 0;
    int inner = x->shape.ndim - 1;
    do {
        for (int64_t i = 0; i < x->shape.dim[inner]; i++)
            lk__bf16_widen(&from[offset + i * x->strides[inner]], to++, 1);
    } while (lk__tensor_next_row(x, index, &offset));
}

/* A view without gaps, a transposed one for instance, keeps its strides: its elements are widened in memory order. */
static void cpu_bf16_stand_in_widen_plain(const lk_tensor *x, stand_in *s)
{
    int64_t count = lk_tensor_count(x), span = cpu_bf16_element_span(x);
    if (count == 0)
        return;
    if (lk__tensor_is_dense(x) || span == count) {
        lk__bf16_widen(lk__data(x), s->storage.data, count);
        for (int i = 0; i < x->shape.ndim; i++)
            s->tensor.strides[i] = x->strides[i];
    } else {
        cpu_bf16_widen_gathered(x, s->storage.data);
    }
}

/* Describes how sixteen images in the lanes hold a tensor of four dimensions. */
static lk_interleaving cpu_bf16_interleaving_of(lk_shape x)
{
    enum { LANES = 16 };
    return lk__interleaving_of_images(x.dim[0], x.dim[1], x.dim[2] * x.dim[3], LANES);
}

/* Widens x, which has the layout `from`, to the layout that lk__layout_of_f32 gives. Padding is widened too, so it
 * stays 0. */
static void cpu_bf16_widen_layout(lk_shape x, const lk_layout *from, const void *data, float *to)
{
    if (from->pairs) {
        lk_interleaving shape = cpu_bf16_interleaving_of(x);
        lk__isa()->f32->interleaver->widen_pairs(&shape, data, to);
    } else {
        lk__bf16_widen(data, to, (int64_t)(from->bytes / sizeof(float)));
    }
}

/* The inverse; rounds. */
static void cpu_bf16_round_layout(lk_shape x, const float *data, const lk_layout *to, void *rounded)
{
    if (to->pairs) {
        lk_interleaving shape = cpu_bf16_interleaving_of(x);
        lk__isa()->f32->interleaver->round_pairs(&shape, data, rounded);
    } else {
        lk__bf16_round(data, rounded, (int64_t)(to->bytes / sizeof(float)));
    }
}

/* Makes the stand-in and widens x into it. */
static void cpu_bf16_stand_in_widen(lk_device *device, const lk_tensor *x, stand_in *s, char **memory)
{
    const lk_layout *layout = x->storage->layout;
    cpu_bf16_stand_in_start(device, x, s);
    cpu_bf16_stand_in_take_slot(x, s, memory);
    s->storage.layout = lk__layout_of_f32(layout);
    if (layout)
        cpu_bf16_widen_layout(x->shape, layout, x->storage->data, s->storage.data);
    else
        cpu_bf16_stand_in_widen_plain(x, s);
}

/* Rounds a stand-in to `out`, in the layout for bf16 that corresponds to the one that the kernel gave it. */
static lk_status cpu_bf16_stand_in_round(const stand_in *s, lk_tensor *out)
{
    const lk_layout *layout = lk__layout_of_bf16(s->storage.layout);
    if (!layout) {
        LK_TRY(lk__output_plain(out));
        lk__bf16_round(s->storage.data, lk__data(out), lk_tensor_count(out));
        return LK_OK;
    }
    LK_TRY(lk__storage_allocate(out->storage, lk__layout_bytes(layout, LK_BF16), layout));
    cpu_bf16_round_layout(out->shape, s->storage.data, layout, out->storage->data);
    return LK_OK;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static bool cpu_bf16_is_bf16(const lk_tensor *x)
{
    return x && x->dtype == LK_BF16;
}

static size_t cpu_bf16_all_stand_in_bytes(lk_tensor *const *tensors, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        if (cpu_bf16_is_bf16(tensors[i]))
            bytes += cpu_bf16_stand_in_bytes(tensors[i]);
    return bytes;
}

static lk_status cpu_bf16_run_on_stand_ins(lk_call *call, lk_call *wide, stand_in *in, stand_in *out)
{
    lk_cpu *cpu = call->device->state;
    LK_TRY(lk__cpu_wide(cpu, cpu_bf16_all_stand_in_bytes(call->in, call->n_in) +
                                 cpu_bf16_all_stand_in_bytes(call->out, call->n_out)));
    char *memory = cpu->wide;
    wide->dtype = LK_F32;
    wide->kernel = &lk__cpu_table.rows[call->op->id];
    for (int i = 0; i < call->n_in; i++) {
        if (!cpu_bf16_is_bf16(call->in[i]))
            continue;
        cpu_bf16_stand_in_widen(call->device, call->in[i], &in[i], &memory);
        wide->in[i] = &in[i].tensor;
    }
    for (int i = 0; i < call->n_out; i++) {
        if (!cpu_bf16_is_bf16(call->out[i]))
            continue;
        cpu_bf16_stand_in_start(call->device, call->out[i], &out[i]);
        cpu_bf16_stand_in_take_slot(call->out[i], &out[i], &memory);
        wide->out[i] = &out[i].tensor;
    }
    LK_TRY(wide->kernel->run(wide));
    for (int i = 0; i < call->n_out; i++)
        if (cpu_bf16_is_bf16(call->out[i]))
            LK_TRY(cpu_bf16_stand_in_round(&out[i], call->out[i]));
    return LK_OK;
}

lk_status lk__cpu_run_bf16(lk_call *call)
{
    lk_call wide = *call;
    stand_in in[LK_MAX_INPUTS], out[LK_MAX_OUTPUTS];
    int n_out = call->n_out;
    for (int i = 0; i < n_out; i++)
        out[i].storage.block = NULL;
    lk_status status = cpu_bf16_run_on_stand_ins(call, &wide, in, out);
    for (int i = 0; i < n_out; i++)
        cpu_bf16_stand_in_free(call->device, &out[i]);
    return status;
}

lk_status lk__cpu_convolve_bf16(lk_call *call)
{
    if (!lk__cpu_is_empty(call) && lk__cpu_choose(call)->bf16)
        return lk__cpu_table.rows[call->op->id].run(call);
    return lk__cpu_run_bf16(call);
}

lk_status lk__cpu_average_bf16(lk_call *call)
{
    if (lk__lanes(LK_BF16) && lk__cpu_lanes_want_pool(call))
        return lk__cpu_table.rows[call->op->id].run(call);
    return lk__cpu_run_bf16(call);
}

bool lk__cpu_takes_bf16(const lk_call *call)
{
    const lk_kernel *kernel = &lk__cpu_table.rows[call->op->id];
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !lk__tensor_is_dense(call->out[i]))
            return false;
    return !kernel->takes || kernel->takes(call);
}

/* --- cast --------------------------------------------------------------------------------------------------------- */

static bool cpu_bf16_is_cast_to(const lk_call *call, lk_dtype dtype)
{
    return LK_ATTRS(call, lk_cast_attrs)->dtype == dtype && (!call->out[0] || lk__tensor_is_dense(call->out[0]));
}

bool lk__cpu_is_cast_to_bf16(const lk_call *call)
{
    return cpu_bf16_is_cast_to(call, LK_BF16);
}

bool lk__cpu_is_cast_from_bf16(const lk_call *call)
{
    return cpu_bf16_is_cast_to(call, LK_F32);
}

lk_status lk__cpu_cast_to_bf16(lk_call *call)
{
    const lk_layout *layout = call->free_layout ? call->in[0]->storage->layout : NULL;
    stand_in s;
    lk_converted x;
    cpu_bf16_stand_in_start(call->device, call->in[0], &s);
    lk_status status = lk__cpu_as(call->device, call->in[0], layout, &x);
    s.storage.data = (void *)(uintptr_t)x.data;
    s.storage.layout = layout;
    if (status == LK_OK)
        status = cpu_bf16_stand_in_round(&s, call->out[0]);
    lk__cpu_as_end(call->device, &x);
    return status;
}

static lk_status cpu_bf16_cast_by_stand_in(lk_call *call)
{
    lk_cpu *cpu = call->device->state;
    stand_in s;
    LK_TRY(lk__cpu_wide(cpu, cpu_bf16_stand_in_bytes(call->in[0])));
    char *memory = cpu->wide;
    cpu_bf16_stand_in_widen(call->device, call->in[0], &s, &memory);
    LK_TRY(lk__output_plain(call->out[0]));
    return lk__cpu_convert(call->device, &s.tensor, NULL, lk__data(call->out[0]));
}

lk_status lk__cpu_cast_from_bf16(lk_call *call)
{
    const lk_tensor *x = call->in[0];
    lk_tensor *out = call->out[0];
    const lk_layout *layout = x->storage->layout;
    if (layout && call->free_layout) {
        const lk_layout *wide = lk__layout_of_f32(layout);
        LK_TRY(lk__storage_allocate(out->storage, wide->bytes, wide));
        cpu_bf16_widen_layout(x->shape, layout, x->storage->data, out->storage->data);
        return LK_OK;
    }
    if (!layout && lk__tensor_is_dense(x)) {
        LK_TRY(lk__output_plain(out));
        lk__bf16_widen(lk__data(x), lk__data(out), lk_tensor_count(x));
        return LK_OK;
    }
    return cpu_bf16_cast_by_stand_in(call);
}

/* --- conversions -------------------------------------------------------------------------------------------------- */

/* Converts x between row-major and pairs, which needs no f32. Returns false if it is another conversion. */
static bool cpu_bf16_convert_pairs(const lk_tensor *x, const lk_layout *to, void *data)
{
    const lk_layout *from = x->storage->layout;
    bool is_into = !from && to && to->pairs && lk__tensor_is_dense(x), is_from = from && from->pairs && !to;
    if (!is_into && !is_from)
        return false;
    lk_interleaving shape = cpu_bf16_interleaving_of(x->shape);
    if (is_into)
        lk__isa()->f32->interleaver->interleave_pairs(&shape, lk__data(x), data);
    else
        lk__isa()->f32->interleaver->deinterleave_pairs(&shape, x->storage->data, data);
    return true;
}

lk_status lk__cpu_bf16_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data)
{
    lk_cpu *cpu = device->state;
    const lk_layout *wide = lk__layout_of_f32(to);
    int64_t count = lk_tensor_count(x);
    size_t bytes = wide ? wide->bytes : (size_t)count * sizeof(float);
    stand_in in;
    if (count == 0 || cpu_bf16_convert_pairs(x, to, data))
        return LK_OK;
    LK_TRY(lk__cpu_wide(cpu, cpu_bf16_stand_in_bytes(x) + bytes));
    char *memory = cpu->wide;
    cpu_bf16_stand_in_widen(device, x, &in, &memory);
    LK_TRY(lk__cpu_convert(device, &in.tensor, wide, memory));
    if (to)
        cpu_bf16_round_layout(x->shape, (const float *)(const void *)memory, to, data);
    else
        lk__bf16_round((const float *)(const void *)memory, data, count);
    return LK_OK;
}
