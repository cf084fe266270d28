#include "cpu/onednn/cpu_convert.h"

#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu.h"
#include "cpu/cpu_bf16.h"
#include "cpu/cpu_dense.h"
#include "cpu/isa.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

enum { CONVERT = LK_OP_COUNT }; /* used in place of an operator's number in the key */

/* --- own loops ---------------------------------------------------------------------------------------------------- */

/* Returns whether interleave.h converts between row-major x and `layout`, and sets *shape for it. oneDNN converts these
 * layouts element by element, at 1 to 1.7 ns each; interleave.h is faster. */
static bool cpu_convert_is_interleaving(const lk_tensor *x, const lk_layout *layout, lk_interleaving *shape)
{
    const int64_t *dim = x->shape.dim;
    if (!layout || !lk__isa())
        return false;
    int64_t lanes = lk__lanes_of_tag(layout->tag), block = lk__block_of_tag(layout->tag);
    if (lanes > 0)
        *shape = lk__interleaving_of_images(dim[0], dim[1], dim[2] * dim[3], lanes);
    else if (block > 0 && dim[1] % block == 0)
        *shape = lk__interleaving_of_channels(dim[0], dim[1], dim[2] * dim[3], block);
    else
        return false;
    return true;
}

/* Returns whether interleave.h converts `in` to `out`, one of which must be row-major. */
static bool cpu_convert_is_interleaved_copy(const lk_tensor *in, const lk_tensor *out, lk_interleaving *shape)
{
    const lk_layout *from = in->storage->layout, *to = out->storage->layout;
    if (from && to)
        return false;
    return lk__tensor_is_dense(to ? in : out) && cpu_convert_is_interleaving(in, to ? to : from, shape);
}

static void cpu_convert_copy_interleaved(const lk_tensor *in, const lk_tensor *out)
{
    lk_interleaving shape;
    cpu_convert_is_interleaved_copy(in, out, &shape);
    if (out->storage->layout)
        lk__isa()->f32->interleaver->interleave(&shape, lk__cpu_data(in), lk__cpu_data(out));
    else
        lk__isa()->f32->interleaver->deinterleave(&shape, lk__cpu_data(in), lk__cpu_data(out));
}

/* --- oneDNN ------------------------------------------------------------------------------------------------------- */

static lk_status convert_add_operands(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, const lk_md *from,
                                      const lk_md *to)
{
    dnnl_primitive_desc_t pd;
    LK_TRY(lk__pd_reorder(&pd, cpu->engine, from, to));
    lk_status status = lk__prepare_primitive(cpu, prepared, pd);
    dnnl_primitive_desc_destroy(pd);
    LK_TRY(status);
    LK_TRY(lk__prepare_operand(cpu, prepared, DNNL_ARG_FROM, LK_IN, call->in[0], from, false));
    return lk__prepare_operand(cpu, prepared, DNNL_ARG_TO, LK_OUT, call->out[0], to, call->free_layout);
}

/* The storage of out[0] already has the layout to convert to. */
static lk_status convert_prepare(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    lk_md from = {0}, to = {0};
    char shape[64];
    lk__shape_text(call->in[0]->shape, shape, sizeof shape);
    snprintf(prepared->problem, sizeof prepared->problem, "f32 %s", shape);
    lk_interleaving interleaving;
    if (cpu_convert_is_interleaved_copy(call->in[0], call->out[0], &interleaving)) {
        snprintf(prepared->implementation, sizeof prepared->implementation, "interleave");
        return LK_OK;
    }
    lk_status status = lk__md_of_tensor(&from, call->in[0]);
    if (status == LK_OK)
        status = lk__md_of_tensor(&to, call->out[0]);
    if (status == LK_OK)
        status = convert_add_operands(cpu, call, prepared, &from, &to);
    lk__md_free(&from);
    lk__md_free(&to);
    return status;
}

/* --- entry points ------------------------------------------------------------------------------------------------- */

static const lk_op convert = {.name = "convert", .id = CONVERT};

lk_status lk__cpu_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data)
{
    if (lk_tensor_count(x) == 0)
        return LK_OK;
    if (!x->storage->layout && !to) {
        lk__gather(x, data);
        return LK_OK;
    }
    lk_cpu *cpu = device->state;
    lk_tensor in = lk__tensor_alias(x), out = in;
    lk_storage storage = {.device = device, .data = data, .bytes = to ? to->bytes : x->storage->bytes, .layout = to};
    lk_prepared *prepared;
    lk_key key;
    out.storage = &storage;
    out.offset = 0;
    lk__shape_strides(out.shape, out.strides);
    lk_call call = {
        .op = &convert, .device = device, .n_in = 1, .n_out = 1, .in = {&in}, .out = {&out}, .free_layout = to != NULL};
    lk__key_start(&key, CONVERT);
    lk__key_tensor(&key, &in);
    lk__key_tensor(&key, &out);
    LK_TRY(lk__prepared_get(cpu, &key, &call, convert_prepare, &prepared));
    if (prepared->primitive)
        return lk__prepared_run(cpu, prepared, (lk_tensor *[]){&in, &out});
    cpu_convert_copy_interleaved(&in, &out);
    return LK_OK;
}

static bool cpu_convert_has_layout(const lk_tensor *x, const lk_layout *layout)
{
    return x->storage->layout == layout && (layout || lk__tensor_is_dense(x));
}

lk_status lk__cpu_as(lk_device *device, const lk_tensor *x, const lk_layout *to, lk_converted *converted)
{
    size_t bytes;
    *converted = (lk_converted){0};
    if (cpu_convert_has_layout(x, to)) {
        converted->data = lk__cpu_data(x);
        return LK_OK;
    }
    LK_TRY(lk__shape_bytes(x->shape, x->dtype, &bytes));
    LK_TRY(lk__allocator_get(device->allocator, to ? lk__layout_bytes(to, x->dtype) : bytes, &converted->block));
    converted->data = converted->block->data;
    return x->dtype == LK_BF16 ? lk__cpu_bf16_convert(device, x, to, converted->block->data)
                               : lk__cpu_convert(device, x, to, converted->block->data);
}

void lk__cpu_as_end(lk_device *device, lk_converted *converted)
{
    lk__allocator_put(device->allocator, converted->block);
    converted->block = NULL;
}

lk_status lk__cpu_to_plain(lk_device *device, const lk_tensor *x, void *plain)
{
    if (lk__cpu_is_product(x))
        return lk__cpu_product_to_plain(device, x, plain);
    return x->dtype == LK_BF16 ? lk__cpu_bf16_convert(device, x, NULL, plain) : lk__cpu_convert(device, x, NULL, plain);
}
