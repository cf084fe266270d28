#include "cpu/cpu_dense.h"

#include "base/minmax.h"
#include "core/backend.h"
#include "core/kept.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_bf16.h"
#include "cpu/cpu_kernels.h"
#include "cpu/isa.h"
#include "cpu/onednn/cpu_convert.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* Returns the kernels for operands of `dtype`; NULL: there are none. */
static const lk_dense_kernels *cpu_dense_kernels(lk_dtype dtype)
{
    const lk_isa *isa = lk__isa();
    const lk_isa_kernels *kernels = !isa ? NULL : dtype == LK_BF16 ? isa->bf16 : isa->f32;
    return kernels ? kernels->dense : NULL;
}

/* --- how a product is computed ------------------------------------------------------------------------------------ */

/* All ways give the same bits (dense.h). */
typedef enum dense_way {
    DENSE_COLUMNS,    /* packs the columns of b, which may be kept if b is a variable */
    DENSE_TRANSPOSED, /* computes y' = b' a' and packs the columns of a', the rows of a: for b = w', w row-major */
    DENSE_FACTORS,    /* packs both a and b: for a = x', whose rows are not contiguous */
} dense_way;

static dense_way cpu_dense_way(const lk_call *call)
{
    const lk_tensor *a = call->in[0], *b = call->in[1];
    const lk_dense_kernels *kernels = cpu_dense_kernels(call->dtype);
    int64_t width = kernels->width, rows = a->shape.dim[0];
    bool is_product = call->op->id == LK_OP_MATMUL; /* neither a bias nor relu follows */
    bool a_is_transposed = !a->storage->layout && a->strides[1] != 1 && a->strides[0] == 1;
    bool b_is_transposed = !b->storage->layout && b->strides[1] != 1 && b->strides[0] == 1;
    bool fills = lk__divide_up(rows, width) * width - rows <= rows / 4; /* a column of a fills its vectors */
    return is_product && a_is_transposed                              ? DENSE_FACTORS
           : is_product && b_is_transposed && fills && kernels->turns ? DENSE_TRANSPOSED
                                                                      : DENSE_COLUMNS;
}

/* Describes the matrix x, whose elements are at `data`: in a row-major copy, or by x's own strides. */
static lk_matrix cpu_dense_matrix(const lk_tensor *x, const void *data, bool is_copy)
{
    return (lk_matrix){
        (void *)(uintptr_t)data,     x->shape.dim[0],    x->shape.dim[1], is_copy ? x->shape.dim[1] : x->strides[0],
        is_copy ? 1 : x->strides[1], x->dtype == LK_BF16};
}

/* Returns whether a product is left as its factors. */
static bool cpu_dense_leaves_factors(const lk_call *call)
{
    return call->free_layout && call->op->id == LK_OP_MATMUL;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static size_t cpu_dense_factors_bytes(const lk_dense_kernels *kernels, int64_t rows, int64_t inner, int64_t columns)
{
    return kernels->rows_bytes(rows, inner) + kernels->columns_bytes(inner, columns);
}

static lk_status cpu_dense_prepare(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    const lk_dense_kernels *kernels = cpu_dense_kernels(call->dtype);
    int64_t rows = call->in[0]->shape.dim[0], inner = call->in[0]->shape.dim[1], columns = call->in[1]->shape.dim[1];
    char a[64], b[64];
    lk__shape_text(call->in[0]->shape, a, sizeof a);
    lk__shape_text(call->in[1]->shape, b, sizeof b);
    snprintf(prepared->problem, sizeof prepared->problem, "%s %s%s", lk_dtype_name(call->dtype), a, b);
    snprintf(prepared->implementation, sizeof prepared->implementation, "%s", kernels->name);
    prepared->packed_bytes = kernels->columns_bytes(inner, columns);
    if (cpu_dense_leaves_factors(call))
        return LK_OK;
    switch (cpu_dense_way(call)) {
    case DENSE_COLUMNS:
        prepared->scratch_bytes = prepared->packed_bytes + kernels->multiply_bytes(rows, inner);
        break;
    case DENSE_TRANSPOSED:
        prepared->scratch_bytes = kernels->columns_bytes(inner, rows) + kernels->multiply_bytes(columns, inner);
        break;
    case DENSE_FACTORS:
        prepared->scratch_bytes = cpu_dense_factors_bytes(kernels, rows, inner, columns) + kernels->scratch_bytes(1);
        break;
    }
    return LK_OK;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Packs the factors to `memory`; returns their product as an addend. */
static lk_addend cpu_dense_pack_factors(const lk_dense_kernels *kernels, const lk_matrix *a, const lk_matrix *b,
                                        char *memory)
{
    char *columns = memory + kernels->rows_bytes(a->rows, a->columns);
    kernels->pack_rows(a, memory);
    kernels->pack_columns(b, columns);
    return (lk_addend){.rows = memory, .columns = columns, .inner = a->columns};
}

static lk_status cpu_dense_leave_factors(lk_call *call, const lk_matrix *a, const lk_matrix *b)
{
    const lk_dense_kernels *kernels = cpu_dense_kernels(call->dtype);
    const lk_layout *layout;
    LK_TRY(lk__layout_of_product(call->dtype, a->columns,
                                 cpu_dense_factors_bytes(kernels, a->rows, a->columns, b->columns), &layout));
    LK_TRY(lk__storage_allocate(call->out[0]->storage, layout->bytes, layout));
    cpu_dense_pack_factors(kernels, a, b, call->out[0]->storage->data);
    return LK_OK;
}

/* The weights are packed into memory that outlives the call, if there is any, so that they need not be packed again. */
static lk_status cpu_dense_multiply_columns(lk_call *call, const lk_prepared *prepared, const lk_matrix *a,
                                            const lk_matrix *b, const void *bias, bool relu, const lk_matrix *y)
{
    const lk_dense_kernels *kernels = cpu_dense_kernels(call->dtype);
    lk_kept *kept;
    LK_TRY(lk__kept_get(call, 1, prepared->packed_bytes, SIZE_MAX, &kept));
    char *scratch = ((lk_cpu *)call->device->state)->scratch;
    void *packed = kept ? kept->block->data : scratch;
    if (!kept || !kept->made)
        kernels->pack_columns(b, packed);
    if (kept)
        kept->made = true;
    kernels->multiply(a, packed, bias, relu, y, scratch + prepared->packed_bytes);
    return LK_OK;
}

static lk_status cpu_dense_multiply(lk_call *call, const lk_prepared *prepared, const lk_matrix *a, const lk_matrix *b,
                                    const void *bias, bool relu)
{
    const lk_dense_kernels *kernels = cpu_dense_kernels(call->dtype);
    lk_cpu *cpu = call->device->state;
    LK_TRY(lk__cpu_scratch(cpu, prepared->scratch_bytes));
    char *scratch = cpu->scratch;
    if (cpu_dense_leaves_factors(call))
        return cpu_dense_leave_factors(call, a, b);
    LK_TRY(lk__output_plain(call->out[0]));
    lk_matrix y = cpu_dense_matrix(call->out[0], lk__data(call->out[0]), false);
    switch (cpu_dense_way(call)) {
    case DENSE_COLUMNS:
        return cpu_dense_multiply_columns(call, prepared, a, b, bias, relu, &y);
    case DENSE_TRANSPOSED: {
        lk_matrix left = lk__matrix_transposed(*b), right = lk__matrix_transposed(*a),
                  result = lk__matrix_transposed(y);
        kernels->pack_columns(&right, scratch);
        kernels->multiply(&left, scratch, NULL, false, &result,
                          scratch + kernels->columns_bytes(right.rows, right.columns));
        return LK_OK;
    }
    case DENSE_FACTORS: {
        lk_addend product = cpu_dense_pack_factors(kernels, a, b, scratch);
        lk_addend_sum sum = {&product, (const unsigned char[]){0}, 1};
        size_t factors = cpu_dense_factors_bytes(kernels, a->rows, a->columns, b->columns);
        kernels->sum(&sum, &y, (float *)(void *)(scratch + factors));
        return LK_OK;
    }
    }
    return LK_OK;
}

/* Returns whether the kernels cannot read input i by its strides. Products of bf16 read pairs in the rows of a. */
static bool cpu_dense_needs_copy(const lk_call *call, int i)
{
    const lk_tensor *x = call->in[i];
    return x->storage->layout || x->shape.ndim == 1 ||
           (i == 0 && x->dtype == LK_BF16 && x->strides[1] != 1 && cpu_dense_way(call) == DENSE_COLUMNS);
}

/* Gives the elements of input i, row-major or by the strides of the tensor. */
static lk_status cpu_dense_operand(const lk_call *call, int i, lk_converted *in)
{
    const lk_tensor *x = call->in[i];
    if (cpu_dense_needs_copy(call, i))
        return lk__cpu_as(call->device, x, NULL, in);
    in->data = lk__data(x);
    return LK_OK;
}

/* Multiplies the first two inputs; in[2]: the bias, or empty. */
static lk_status cpu_dense_run(lk_call *call, lk_converted in[3], bool relu)
{
    lk_prepared *prepared;
    lk_key key;
    lk__key_call(&key, call);
    LK_TRY(lk__prepared_get(call->device->state, &key, call, cpu_dense_prepare, &prepared));
    for (int i = 0; i < 2; i++)
        LK_TRY(cpu_dense_operand(call, i, &in[i]));
    if (call->n_in > 2 && call->in[2])
        LK_TRY(cpu_dense_operand(call, 2, &in[2]));
    lk_matrix a = cpu_dense_matrix(call->in[0], in[0].data, in[0].block),
              b = cpu_dense_matrix(call->in[1], in[1].data, in[1].block);
    return cpu_dense_multiply(call, prepared, &a, &b, in[2].data, relu);
}

static lk_status cpu_dense_run_and_end(lk_call *call, bool relu)
{
    lk_converted in[3] = {0};
    lk_status status = cpu_dense_run(call, in, relu);
    for (int i = 0; i < 3; i++)
        lk__cpu_as_end(call->device, &in[i]);
    return status;
}

/* Without own kernels for bf16, products run on f32 stand-ins. */
static bool cpu_dense_must_widen(const lk_call *call)
{
    return call->dtype == LK_BF16 && !cpu_dense_kernels(LK_BF16);
}

lk_status lk__cpu_matmul(lk_call *call)
{
    if (cpu_dense_must_widen(call))
        return lk__cpu_run_bf16(call);
    return cpu_dense_kernels(call->dtype) ? cpu_dense_run_and_end(call, false) : lk__cpu_onednn_matmul(call);
}

lk_status lk__cpu_dense_act(lk_call *call)
{
    if (cpu_dense_must_widen(call))
        return lk__cpu_run_bf16(call);
    return cpu_dense_kernels(call->dtype) ? cpu_dense_run_and_end(call, LK_ATTRS(call, lk_dense_act_attrs)->relu)
                                          : lk__cpu_onednn_dense_act(call);
}

/* --- products that are left as their factors ---------------------------------------------------------------------- */

bool lk__cpu_is_product(const lk_tensor *x)
{
    const lk_layout *layout = x->storage->layout;
    return layout && layout->inner > 0;
}

/* A sum over shards takes products in f32 only. The factors must be much smaller, or leaving them gains nothing. */
static bool cpu_products_takes(const lk_call *call)
{
    const lk_dense_kernels *kernels = cpu_dense_kernels(call->dtype);
    if (!kernels || call->op->id != LK_OP_MATMUL || call->out[0]->dtype != LK_F32 || !call->kernel ||
        call->kernel->run != lk__cpu_matmul || cpu_dense_way(call) != DENSE_FACTORS)
        return false;
    int64_t rows = call->in[0]->shape.dim[0], inner = call->in[0]->shape.dim[1], columns = call->in[1]->shape.dim[1];
    size_t product = (size_t)(rows * columns) * sizeof(float);
    return inner > 0 && cpu_dense_factors_bytes(kernels, rows, inner, columns) <= product;
}

static lk_addend cpu_products_addend(const lk_dense_kernels *kernels, const lk_tensor *x)
{
    const lk_layout *layout = x->storage->layout;
    if (!lk__cpu_is_product(x))
        return (lk_addend){.plain = lk__data(x)};
    const char *rows = x->storage->data;
    return (lk_addend){
        .rows = rows, .columns = rows + kernels->rows_bytes(x->shape.dim[0], layout->inner), .inner = layout->inner};
}

/* Returns the kernels that packed the factors. All products among the addends are of one dtype, since they are
 * gradients of one variable. */
static const lk_dense_kernels *cpu_products_kernels(lk_tensor *const *addends, int n)
{
    lk_dtype dtype = LK_F32;
    for (int i = 0; i < n; i++)
        if (lk__cpu_is_product(addends[i]))
            dtype = ((const lk_layout *)addends[i]->storage->layout)->factors;
    return cpu_dense_kernels(dtype);
}

/* Returns the largest number of values that wait at one time. */
static int cpu_products_depth(const unsigned char *additions, int n)
{
    int depth = 0, most = 0;
    for (int i = 0; i < n; i++) {
        most = depth + 1 > most ? depth + 1 : most;
        depth += 1 - additions[i];
    }
    return most;
}

static lk_status cpu_products_add(lk_device *device, lk_tensor *const *addends, const unsigned char *additions, int n,
                                  float *sum)
{
    const lk_dense_kernels *kernels = cpu_products_kernels(addends, n);
    lk_cpu *cpu = device->state;
    size_t list = ((size_t)n * sizeof(lk_addend) + LK_ALIGNMENT - 1) / LK_ALIGNMENT * LK_ALIGNMENT;
    LK_TRY(lk__cpu_scratch(cpu, list + kernels->scratch_bytes(cpu_products_depth(additions, n))));
    lk_addend *described = cpu->scratch;
    for (int i = 0; i < n; i++)
        described[i] = cpu_products_addend(kernels, addends[i]);
    lk_addend_sum all = {described, additions, n};
    int64_t columns = addends[0]->shape.dim[1];
    lk_matrix y = {sum, addends[0]->shape.dim[0], columns, columns, 1, false};
    kernels->sum(&all, &y, (float *)(void *)((char *)cpu->scratch + list));
    return LK_OK;
}

lk_status lk__cpu_product_to_plain(lk_device *device, const lk_tensor *x, float *plain)
{
    lk_tensor alias = lk__tensor_alias(x), *addend = &alias;
    return cpu_products_add(device, &addend, (const unsigned char[]){0}, 1, plain);
}

const lk_products lk__cpu_products = {.takes = cpu_products_takes, .add = cpu_products_add};
