/* Trials of operators, for the conformance programs. A trial runs a case of an operator on a device, in a dtype, with
 * operands in a layout. A case asks its trial for operands in a fixed order, and their values depend only on that
 * order: all trials of a case see the same numbers. */
#pragma once

#include "core/device_testing.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPERANDS 24

/* The arrangements of an operand in memory. */
typedef enum operand_layout { DENSE, TRANSPOSED, SLICED, EXPANDED, LAYOUT_COUNT } operand_layout;

static const char *const layout_names[LAYOUT_COUNT] = {"dense", "transposed", "sliced", "expanded"};

/* The tensor that is made for an operand: its values, and the leaf of a tape. Views of it give the operand its layout.
 */
typedef struct operand {
    lk_shape shape;
    int64_t count;
    double *values;
    bool is_float;   /* takes the trial's dtype, and a gradient */
    lk_dtype dtype;  /* if it is not float */
    lk_tensor *leaf; /* made before the run; NULL: the run makes it */
} operand;

typedef struct operand_set {
    lk_dtype dtype; /* values of float operands are exact in it, and so in every wider dtype */
    operand item[MAX_OPERANDS];
    int count;
} operand_set;

/* A case describes its rounding errors by this bound:
 * |error| <= u(dtype) (|y| + (roundings - 1) scale) + (terms + 4) u(f32) scale,
 * where u is the unit roundoff: the result is rounded once for each of `roundings` operators in a row, and a sum of
 * `terms` products in any order errs by at most terms u(f32) times the sum of their absolute values (Higham: "Accuracy
 * and Stability of Numerical Algorithms", section 3.1). */
typedef enum error_scale {
    SCALE_RESULT,   /* |y| */
    SCALE_ABSOLUTE, /* the case's result for the absolute values of its operands */
    SCALE_ONE,      /* 1 + |y| */
} error_scale;

typedef struct trial {
    lk_device *device, *peer; /* peer: another device of the same kind */
    lk_dtype dtype;
    operand_layout layout;
    bool absolute;
    operand_set *operands;
    int next;
    error_scale scale;
    int64_t terms;
    int roundings;
} trial;

enum {
    EXACT = 1,       /* f32 has the same bits on every backend */
    NO_GRADIENT = 2, /* not a smooth function of its operands, or tapes do not record it */
    NO_BF16 = 4,     /* the operator takes no bf16 */
    OF_BYTES = 8,    /* the first operand is u8 and the result f32, whatever the trial's dtype */
};

typedef struct conformance_case {
    int op;
    unsigned flags;
    const char *name;
    lk_tensor *(*run)(trial *t, const void *parameters);
    const void *parameters;
} conformance_case;

/* --- numbers ----------------------------------------------------------------------------------------------------- */

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits of a value that is exact in bf16; other values are cut. */
static inline uint16_t bf16_bits(double value)
{
    return (uint16_t)(bits_of((float)value) >> 16);
}

static inline double unit_roundoff(lk_dtype dtype)
{
    return dtype == LK_BF16 ? 0x1p-8 : dtype == LK_F32 ? 0x1p-24 : 0x1p-53;
}

static inline int64_t count_of(lk_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.dim[i];
    return count;
}

static inline void *allocate(int64_t count, size_t size)
{
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    assert_non_null(memory);
    return memory;
}

/* It uses a mask: if it chose between bf16_bits, shifted back, and the whole float, gcc 12 at -O2 would always take the
 * float. */
static inline double cut_to(lk_dtype dtype, double value)
{
    uint32_t bits = bits_of((float)value), kept = dtype == LK_BF16 ? 0xFFFF0000u : UINT32_MAX;
    return float_of(bits & kept);
}

/* value[i] in [low, high), from Philox; `index` is the operand's number and the key's sample. */
static inline void random_values(double *values, int64_t count, int index, double low, double high, lk_dtype dtype)
{
    lk_random_key key = {.seed = 2, .purpose = lk_random_purpose("conformance"), .sample = (uint64_t)index};
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            lk_random_block(&key, (uint64_t)i / 4, words);
        values[i] = cut_to(dtype, low + (high - low) * (words[i % 4] + 0.5) * 0x1p-32);
    }
}

static inline void *to_dtype(const double *values, int64_t count, lk_dtype dtype)
{
    char *data = allocate(count, 8);
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case LK_F32:
            ((float *)(void *)data)[i] = (float)values[i];
            break;
        case LK_BF16:
            ((uint16_t *)(void *)data)[i] = bf16_bits(values[i]);
            break;
        case LK_F64:
            ((double *)(void *)data)[i] = values[i];
            break;
        case LK_I32:
            ((int32_t *)(void *)data)[i] = (int32_t)values[i];
            break;
        case LK_I64:
            ((int64_t *)(void *)data)[i] = (int64_t)values[i];
            break;
        default:
            ((uint8_t *)data)[i] = (uint8_t)values[i];
        }
    }
    return data;
}

static inline double value_at(const void *data, lk_dtype dtype, int64_t i)
{
    switch (dtype) {
    case LK_F32:
        return ((const float *)data)[i];
    case LK_BF16:
        return float_of((uint32_t)((const uint16_t *)data)[i] << 16);
    case LK_F64:
        return ((const double *)data)[i];
    case LK_I32:
        return ((const int32_t *)data)[i];
    case LK_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */

static inline lk_tensor *tensor_from(lk_device *device, lk_dtype dtype, lk_shape shape, const double *values)
{
    void *data = to_dtype(values, count_of(shape), dtype);
    lk_tensor *tensor = lk_tensor_from(device, dtype, shape, data);
    free(data);
    return tensor;
}

/* The elements in their own dtype; free them. Fails the test with the error's message. */
static inline void *read_elements(lk_tensor *tensor)
{
    size_t bytes = (size_t)lk_tensor_count(tensor) * lk_dtype_size(lk_tensor_dtype(tensor));
    void *data = allocate((int64_t)bytes, 1);
    if (lk_tensor_read(tensor, data, bytes) != LK_OK)
        fail_msg("%s", lk_error_message());
    return data;
}

static inline double *read_values(lk_tensor *tensor)
{
    void *data = read_elements(tensor);
    int64_t count = lk_tensor_count(tensor);
    double *values = allocate(count, sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = value_at(data, lk_tensor_dtype(tensor), i);
    free(data);
    return values;
}

/* --- operands ---------------------------------------------------------------------------------------------------- */

/* The shape of the leaf whose view in this layout has shape `shape`. */
static inline lk_shape leaf_shape(lk_shape shape, operand_layout layout)
{
    int last = shape.ndim - 1;
    if (shape.ndim == 0)
        return shape;
    if (layout == TRANSPOSED) {
        int64_t first = shape.dim[0];
        shape.dim[0] = shape.dim[last];
        shape.dim[last] = first;
    } else if (layout == SLICED) {
        shape.dim[last] += 3;
    } else if (layout == EXPANDED && shape.dim[0] > 0) {
        shape.dim[0] = 1;
    }
    return shape;
}

static inline lk_tensor *view_of(lk_tensor *leaf, lk_shape shape, operand_layout layout)
{
    int last = shape.ndim - 1;
    if (shape.ndim == 0 || layout == DENSE)
        return leaf;
    if (layout == TRANSPOSED)
        return lk_transpose(leaf, 0, last);
    return layout == SLICED ? lk_slice(leaf, last, 2, 2 + shape.dim[last]) : lk_expand(leaf, shape);
}

static inline operand *next_operand(trial *t, lk_shape shape, double low, double high)
{
    int index = t->next++;
    operand *o = &t->operands->item[index];
    if (index < t->operands->count)
        return o;
    assert_true(index < MAX_OPERANDS);
    t->operands->count++;
    o->shape = leaf_shape(shape, t->layout);
    o->count = count_of(o->shape);
    o->values = allocate(o->count, sizeof *o->values);
    random_values(o->values, o->count, index, low, high, t->operands->dtype);
    return o;
}

static inline lk_tensor *operand_leaf(const trial *t, const operand *o)
{
    if (o->leaf)
        return o->leaf;
    double *values = allocate(o->count, sizeof *values);
    for (int64_t i = 0; i < o->count; i++)
        values[i] = t->absolute && o->is_float ? fabs(o->values[i]) : o->values[i];
    lk_tensor *leaf = tensor_from(t->device, o->is_float ? t->dtype : o->dtype, o->shape, values);
    free(values);
    return leaf;
}

/* A float operand of the trial's dtype and layout, with values in [low, high). */
static inline lk_tensor *floats_between(trial *t, lk_shape shape, double low, double high)
{
    operand *o = next_operand(t, shape, low, high);
    o->is_float = true;
    return view_of(operand_leaf(t, o), shape, t->layout);
}

static inline lk_tensor *floats(trial *t, lk_shape shape)
{
    return floats_between(t, shape, -1, 1);
}

/* An operand of an integer dtype with values in [low, high). */
static inline lk_tensor *integers(trial *t, lk_dtype dtype, lk_shape shape, double low, double high)
{
    bool is_new = t->next == t->operands->count;
    operand *o = next_operand(t, shape, low, high);
    o->dtype = dtype;
    for (int64_t i = 0; is_new && i < o->count; i++)
        o->values[i] = floor(o->values[i]);
    return view_of(operand_leaf(t, o), shape, t->layout);
}

/* A float operand with infinities, NaN, zeros of both signs and the like among its values. */
static inline lk_tensor *specials(trial *t, lk_shape shape)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, NAN, 3.0, 3.0};
    bool is_new = t->next == t->operands->count;
    operand *o = next_operand(t, shape, -1, 1);
    o->is_float = true;
    for (int64_t i = 0; is_new && i < o->count; i++)
        if ((i * 7) % 5 == 0)
            o->values[i] = special[(i / 5) % 8];
    return view_of(operand_leaf(t, o), shape, t->layout);
}

static inline void free_operands(operand_set *set)
{
    for (int i = 0; i < set->count; i++) {
        free(set->item[i].values);
        lk_tensor_release(set->item[i].leaf);
    }
    *set = (operand_set){.dtype = set->dtype};
}

/* --- running ----------------------------------------------------------------------------------------------------- */

/* A run's result, valid after its scope. dtype LK_DTYPE_COUNT: the device does not support the operator. */
typedef struct outcome {
    lk_dtype dtype;
    lk_shape shape;
    int64_t count;
    void *elements;
} outcome;

static inline lk_tensor *run_case(const conformance_case *c, trial *t)
{
    t->next = 0;
    t->terms = 1;
    t->roundings = 1;
    t->scale = SCALE_RESULT;
    return c->run(t, c->parameters);
}

static inline outcome outcome_of(const conformance_case *c, trial *t)
{
    outcome out = {.dtype = LK_DTYPE_COUNT};
    lk_scope_begin();
    lk_error_clear();
    lk_tensor *y = run_case(c, t);
    if (y) {
        out = (outcome){lk_tensor_dtype(y), lk_tensor_shape(y), lk_tensor_count(y), read_elements(y)};
    } else if (lk_error_status() != LK_ERR_UNSUPPORTED) {
        fail_msg("%s, %s, %s operands: %s", lk_op_name(c->op), c->name, layout_names[t->layout], lk_error_message());
    }
    lk_scope_end();
    return out;
}
