#include "cpu/cpu_convert.h"

#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu.h"
#include "cpu/cpu_bf16.h"
#include "cpu/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

enum { CONVERT = LK_OP_COUNT }; /* in place of an operator's number in the key */

static lk_status add_operands(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, const lk_md *from,
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

/* out[0]'s storage comes with the layout that is wanted. */
static lk_status prepare(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    lk_md from = {0}, to = {0};
    char shape[64];
    lk__shape_text(call->in[0]->shape, shape, sizeof shape);
    snprintf(prepared->problem, sizeof prepared->problem, "f32 %s", shape);
    lk_status status = lk__md_of_tensor(&from, call->in[0]);
    if (status == LK_OK)
        status = lk__md_of_tensor(&to, call->out[0]);
    if (status == LK_OK)
        status = add_operands(cpu, call, prepared, &from, &to);
    lk__md_free(&from);
    lk__md_free(&to);
    return status;
}

static const lk_op convert = {.name = "convert", .id = CONVERT};

static bool has_elements(const lk_tensor *x)
{
    for (int i = 0; i < x->shape.ndim; i++)
        if (x->shape.dim[i] == 0)
            return false;
    return true;
}

lk_status lk__cpu_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data)
{
    if (!has_elements(x))
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
    LK_TRY(lk__prepared_get(cpu, &key, &call, prepare, &prepared));
    return lk__prepared_run(cpu, prepared, (lk_tensor *[]){&in, &out});
}

static bool lies_as(const lk_tensor *x, const lk_layout *layout)
{
    return x->storage->layout == layout && (layout || lk__tensor_is_dense(x));
}

lk_status lk__cpu_as(lk_device *device, const lk_tensor *x, const lk_layout *to, lk_converted *converted)
{
    size_t bytes;
    *converted = (lk_converted){0};
    if (lies_as(x, to)) {
        converted->data = lk__cpu_data(x);
        return LK_OK;
    }
    LK_TRY(lk__shape_bytes(x->shape, x->dtype, &bytes));
    LK_TRY(lk__allocator_get(device->allocator, to ? to->bytes : bytes, &converted->block));
    converted->data = converted->block->data;
    return lk__cpu_convert(device, x, to, converted->block->data);
}

void lk__cpu_as_end(lk_device *device, lk_converted *converted)
{
    lk__allocator_put(device->allocator, converted->block);
    converted->block = NULL;
}

lk_status lk__cpu_to_plain(lk_device *device, const lk_tensor *x, void *plain)
{
    return x->dtype == LK_BF16 ? lk__cpu_bf16_to_plain(device, x, plain) : lk__cpu_convert(device, x, NULL, plain);
}
