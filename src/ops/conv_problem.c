#include "ops/conv_problem.h"
#include "core/shape.h"
#include "core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool lk__conv_problem_of(const lk_call *call, lk_conv_problem *p)
{
    *p = (lk_conv_problem){.op = call->op->id, .dtype = call->dtype};
    switch (call->op->id) {
    case LK_OP_CONV2D:
        p->x = call->in[0]->shape;
        p->w = call->in[1]->shape;
        p->attrs.conv = *LK_ATTRS(call, lk_conv2d_opts);
        return true;
    case LK_OP_CONV2D_INPUT_GRAD:
        p->x = call->out[0]->shape;
        p->w = call->in[1]->shape;
        p->attrs.conv = LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
        return true;
    case LK_OP_CONV2D_WEIGHT_GRAD:
        p->x = call->in[1]->shape;
        p->w = call->out[0]->shape;
        p->attrs.conv = LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
        return true;
    case LK_OP_CONV_BLOCK:
    case LK_OP_CONV_BLOCK_GRAD: {
        bool forward = call->op->id == LK_OP_CONV_BLOCK;
        p->op = LK_OP_CONV_BLOCK;
        p->x = call->in[forward ? 0 : 2]->shape;
        p->w = call->in[forward ? 1 : 3]->shape;
        p->attrs = *LK_ATTRS(call, lk_conv_block_attrs);
        return true;
    }
    default:
        return false;
    }
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* In the order of lk_block_pool. */
static const char *const poolings[] = {"", "average", "maximum"};

static const char *conv_problem_dtype_name(const lk_conv_problem *p)
{
    return p->tf32 ? "tf32" : lk_dtype_name(p->dtype);
}

static void problem_append_pair(char *text, size_t size, const char *name, const int64_t *pair)
{
    char word[64];
    snprintf(word, sizeof word, " %s %" PRId64 "x%" PRId64, name, pair[0], pair[1]);
    lk__text_append(text, size, word);
}

void lk__conv_problem_text(const lk_conv_problem *p, char *text, size_t size)
{
    const lk_conv2d_opts *conv = &p->attrs.conv;
    const lk_pool2d_opts *pool = &p->attrs.pool;
    char x[64], w[64];
    lk__shape_text(p->x, x, sizeof x);
    lk__shape_text(p->w, w, sizeof w);
    snprintf(text, size, "%s x%s w%s", conv_problem_dtype_name(p), x, w);
    problem_append_pair(text, size, "stride", conv->stride);
    problem_append_pair(text, size, "padding", conv->padding);
    problem_append_pair(text, size, "dilation", conv->dilation);
    if (conv->groups > 1) {
        char groups[32];
        snprintf(groups, sizeof groups, " groups %" PRId64, conv->groups);
        lk__text_append(text, size, groups);
    }
    lk__text_append(text, size, p->bias ? " bias" : "");
    lk__text_append(text, size, p->direct ? " direct" : "");
    lk__text_append(text, size, p->to_f32 ? " to f32" : "");
    if (p->op != LK_OP_CONV_BLOCK)
        return;
    if (p->attrs.relu)
        lk__text_append(text, size, " relu");
    if (p->attrs.pooling == LK_BLOCK_NO_POOL)
        return;
    problem_append_pair(text, size, poolings[p->attrs.pooling], pool->kernel);
    problem_append_pair(text, size, "stride", pool->stride);
    problem_append_pair(text, size, "padding", pool->padding);
}

void lk__conv_call_text(const lk_call *call, char *text, size_t size)
{
    lk_conv_problem problem;
    text[0] = '\0';
    if (lk__conv_problem_of(call, &problem))
        lk__conv_problem_text(&problem, text, size);
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

/* Each function takes something off the beginning of *text and returns false if it is not there. Errors in detail, such
 * as a leading zero, show when the result is written again and compared. */

static bool conv_problem_parse_pair(const char **text, const char *name, int64_t *pair)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return lk__text_take(text, word) && lk__text_take_number(text, &pair[0]) && lk__text_take(text, "x") &&
           lk__text_take_number(text, &pair[1]);
}

static bool conv_problem_parse_dtype(const char **text, lk_conv_problem *p)
{
    p->dtype = lk__text_take(text, "bf16 ") ? LK_BF16 : LK_F32;
    p->tf32 = p->dtype == LK_F32 && lk__text_take(text, "tf32 ");
    return p->dtype == LK_BF16 || p->tf32 || lk__text_take(text, "f32 ");
}

static bool conv_problem_parse_shape(const char **text, const char *name, lk_shape *shape)
{
    shape->ndim = 4;
    if (!lk__text_take(text, name))
        return false;
    for (int i = 0; i < 4; i++)
        if (!lk__text_take(text, i == 0 ? "[" : ",") || !lk__text_take_number(text, &shape->dim[i]))
            return false;
    return lk__text_take(text, "]");
}

static bool parse_conv(const char **text, lk_conv2d_opts *conv)
{
    conv->groups = 1;
    if (!conv_problem_parse_pair(text, "stride", conv->stride) ||
        !conv_problem_parse_pair(text, "padding", conv->padding) ||
        !conv_problem_parse_pair(text, "dilation", conv->dilation))
        return false;
    return !lk__text_take(text, " groups ") || lk__text_take_number(text, &conv->groups);
}

/* Reads the words that only problems of GPUs have. */
static void conv_problem_parse_variant(const char **text, lk_conv_problem *p)
{
    p->bias = p->op == LK_OP_CONV2D && lk__text_take(text, " bias");
    p->direct = lk__text_take(text, " direct");
    p->to_f32 = p->op == LK_OP_CONV2D_WEIGHT_GRAD && p->dtype == LK_BF16 && lk__text_take(text, " to f32");
}

static bool conv_problem_parse_block(const char **text, lk_conv_block_attrs *attrs)
{
    attrs->relu = lk__text_take(text, " relu");
    for (int kind = LK_BLOCK_AVG_POOL; kind <= LK_BLOCK_MAX_POOL; kind++) {
        if (!conv_problem_parse_pair(text, poolings[kind], attrs->pool.kernel))
            continue;
        attrs->pooling = (lk_block_pool)kind;
        return conv_problem_parse_pair(text, "stride", attrs->pool.stride) &&
               conv_problem_parse_pair(text, "padding", attrs->pool.padding);
    }
    return true;
}

static int problem_op(const char *name)
{
    static const int ops[] = {LK_OP_CONV2D, LK_OP_CONV2D_INPUT_GRAD, LK_OP_CONV2D_WEIGHT_GRAD, LK_OP_CONV_BLOCK};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(lk_op_name(ops[i]), name) == 0)
            return ops[i];
    return -1;
}

/* Returns whether all sizes are positive and their product is far below what an integer can hold. */
static bool problem_shape_is_valid(lk_shape shape)
{
    double elements = 1;
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dim[i] < 1)
            return false;
        elements *= (double)shape.dim[i];
    }
    return elements < 1e12;
}

static bool conv_problem_pair_is_valid(const int64_t *pair, int64_t least)
{
    enum { MOST = 1 << 20 };
    return pair[0] >= least && pair[0] <= MOST && pair[1] >= least && pair[1] <= MOST;
}

static bool problem_has_pixels(const lk_conv_problem *p, int axis)
{
    const lk_conv2d_opts *conv = &p->attrs.conv;
    const lk_pool2d_opts *pool = &p->attrs.pool;
    int64_t steps = p->x.dim[2 + axis] + 2 * conv->padding[axis] - conv->dilation[axis] * (p->w.dim[2 + axis] - 1) - 1;
    if (steps < 0 || p->attrs.pooling == LK_BLOCK_NO_POOL)
        return steps >= 0;
    return steps / conv->stride[axis] + 1 + 2 * pool->padding[axis] >= pool->kernel[axis];
}

/* Returns whether a call could have this problem. */
static bool problem_is_valid(const lk_conv_problem *p)
{
    const lk_conv2d_opts *conv = &p->attrs.conv;
    const lk_pool2d_opts *pool = &p->attrs.pool;
    if (!problem_shape_is_valid(p->x) || !problem_shape_is_valid(p->w) ||
        !conv_problem_pair_is_valid(conv->stride, 1) || !conv_problem_pair_is_valid(conv->padding, 0) ||
        !conv_problem_pair_is_valid(conv->dilation, 1))
        return false;
    if (p->attrs.pooling != LK_BLOCK_NO_POOL &&
        (!conv_problem_pair_is_valid(pool->kernel, 1) || !conv_problem_pair_is_valid(pool->stride, 1) ||
         !conv_problem_pair_is_valid(pool->padding, 0) || pool->stride[0] < pool->kernel[0] ||
         pool->stride[1] < pool->kernel[1]))
        return false;
    return conv->groups >= 1 && conv->groups <= p->x.dim[1] && p->w.dim[1] * conv->groups == p->x.dim[1] &&
           p->w.dim[0] % conv->groups == 0 && problem_has_pixels(p, 0) && problem_has_pixels(p, 1);
}

bool lk__conv_problem_parse(const char *op, const char *text, lk_conv_problem *p)
{
    char again[320];
    const char *rest = text;
    *p = (lk_conv_problem){.op = problem_op(op)};
    if (p->op < 0 || !conv_problem_parse_dtype(&rest, p) || !conv_problem_parse_shape(&rest, "x", &p->x) ||
        !conv_problem_parse_shape(&rest, " w", &p->w) || !parse_conv(&rest, &p->attrs.conv))
        return false;
    if (p->op != LK_OP_CONV_BLOCK)
        conv_problem_parse_variant(&rest, p);
    else if (!conv_problem_parse_block(&rest, &p->attrs))
        return false;
    lk__conv_problem_text(p, again, sizeof again);
    return strcmp(text, again) == 0 && problem_is_valid(p);
}
