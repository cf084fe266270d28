/* Layers made of layers: sequential, the sum, product and concatenation of two, and the identity. */
#include "base/mem.h"
#include "base/status.h"
#include "core/scope.h"
#include "core/shape.h"
#include "nn/model.h"
#include "lockstep/ops.h"

/* --- sequential --------------------------------------------------------------------------------------------------- */

static lk_status sequential_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    *out = in;
    for (int i = 0; i < builder->layer->n_children; i++)
        LK_TRY(lk_layer_build_child(builder, i, *out, out));
    return LK_OK;
}

/* Replaces now[s] by the output of layer `child` for it, and releases the old one and everything else that the layer
 * made. next: scratch, [shards]. */
static lk_status sequential_layer_advance(lk_layer_call *call, int child, lk_tensor **now, lk_tensor **next)
{
    lk_scope_begin();
    lk_status status = lk_layer_call_child(call, child, now, next);
    for (int s = 0; s < call->n; s++)
        next[s] = status == LK_OK ? lk_tensor_retain(next[s]) : NULL;
    lk_scope_end();
    for (int s = 0; s < call->n; s++) {
        lk_tensor_release(now[s]);
        now[s] = next[s];
    }
    return status;
}

static lk_status sequential_layer_forward(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    (void)config;
    lk_tensor **next = lk__calloc((size_t)call->n, sizeof(lk_tensor *));
    if (!next)
        return LK_ERR_MEMORY;
    for (int s = 0; s < call->n; s++)
        y[s] = lk_tensor_retain(x[s]);
    lk_status status = LK_OK;
    for (int i = 0; i < call->layer->n_children && status == LK_OK; i++)
        status = sequential_layer_advance(call, i, y, next);
    lk__free(next);
    return lk__scope_adopt_all(y, call->n, status);
}

const lk_layer_table lk__layer_sequential_table = {
    .kind = "sequential",
    .build = sequential_layer_build,
    .forward_shards = sequential_layer_forward,
};

lk_layer *lk_layer_sequential(lk_layer *const *layers, int n)
{
    return lk_layer_new(&lk__layer_sequential_table, NULL, 0, layers, n);
}

/* --- two branches ------------------------------------------------------------------------------------------------- */

enum { BODY, OTHER, PARTS };

/* Builds both branches for the same input. sources: the layers whose outputs they give; NULL: the images. */
static lk_status join_layer_build_parts(lk_layer_builder *builder, lk_shape in, lk_shape *body, lk_shape *other,
                                        lk_layer *sources[PARTS])
{
    lk_layer *source = builder->model->source;
    LK_TRY(lk_layer_build_child(builder, BODY, in, body));
    sources[BODY] = builder->model->source;
    builder->model->source = source;
    LK_TRY(lk_layer_build_child(builder, OTHER, in, other));
    sources[OTHER] = builder->model->source;
    return LK_OK;
}

static lk_status join_layer_forward(lk_layer_call *call, lk_tensor *const *x, lk_tensor **y,
                                    lk_tensor *(*join)(lk_tensor *body, lk_tensor *other))
{
    int n = call->n;
    lk_tensor **parts = lk__calloc((size_t)PARTS * (size_t)n, sizeof(lk_tensor *));
    if (!parts)
        return LK_ERR_MEMORY;
    lk_tensor **body = parts, **other = parts + n;
    lk_status status = lk_layer_call_child(call, BODY, x, body);
    if (status == LK_OK)
        status = lk_layer_call_child(call, OTHER, x, other);
    for (int s = 0; s < n && status == LK_OK; s++) {
        y[s] = join(body[s], other[s]);
        status = y[s] ? LK_OK : lk_error_status();
    }
    lk__free(parts);
    return status;
}

static lk_status add_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    lk_shape shortcut;
    lk_layer *sources[PARTS];
    LK_TRY(join_layer_build_parts(builder, in, out, &shortcut, sources));
    if (!lk__shape_equal(*out, shortcut))
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "the body gives %s and the shortcut %s; expected equal shapes, as they are added",
                             lk__text(*out).string, lk__text(shortcut).string);
    lk_layer_gradient_needs(builder, LK_NEEDS_NOTHING, 0);
    lk_layer_flops(builder, (double)lk__layer_count(*out));
    return LK_OK;
}

static lk_tensor *add_layer_join(lk_tensor *body, lk_tensor *shortcut)
{
    return lk_add(body, shortcut);
}

static lk_status add_layer_forward(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    (void)config;
    return join_layer_forward(call, x, y, add_layer_join);
}

const lk_layer_table lk__layer_add_table = {
    .kind = "add", .build = add_layer_build, .forward_shards = add_layer_forward};

lk_layer *lk_layer_add(lk_layer *body, lk_layer *shortcut)
{
    return lk_layer_new(&lk__layer_add_table, NULL, 0, (lk_layer *const[]){body, shortcut}, PARTS);
}

static lk_status multiply_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    lk_shape factors;
    lk_layer *sources[PARTS];
    LK_TRY(join_layer_build_parts(builder, in, out, &factors, sources));
    bool per_channel = out->ndim == 4 && factors.ndim == 2 && factors.dim[1] == out->dim[1];
    if (!per_channel && !lk__shape_equal(*out, factors))
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "the body gives %s and the factors are %s; expected equal shapes, or one factor a channel",
                             lk__text(*out).string, lk__text(factors).string);
    for (int i = 0; i < PARTS; i++) /* a product's backward reads both */
        if (sources[i])
            sources[i]->output_kept = true;
    lk_layer_gradient_needs(builder, LK_NEEDS_NOTHING, 0);
    lk_layer_flops(builder, (double)lk__layer_count(*out));
    return LK_OK;
}

static lk_tensor *multiply_layer_join(lk_tensor *body, lk_tensor *factors)
{
    lk_shape shape = lk_tensor_shape(factors);
    if (shape.ndim < lk_tensor_shape(body).ndim)
        factors = lk_reshape(factors, LK_SHAPE(shape.dim[0], shape.dim[1], 1, 1));
    return lk_mul(body, factors);
}

static lk_status multiply_layer_forward(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    (void)config;
    return join_layer_forward(call, x, y, multiply_layer_join);
}

const lk_layer_table lk__layer_multiply_table = {
    .kind = "multiply", .build = multiply_layer_build, .forward_shards = multiply_layer_forward};

lk_layer *lk_layer_multiply(lk_layer *body, lk_layer *factors)
{
    return lk_layer_new(&lk__layer_multiply_table, NULL, 0, (lk_layer *const[]){body, factors}, PARTS);
}

static lk_status concat_layer_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    lk_shape second;
    lk_layer *sources[PARTS];
    LK_TRY(join_layer_build_parts(builder, in, out, &second, sources));
    lk_shape other = second;
    other.dim[1] = out->dim[1];
    if (!lk__shape_equal(*out, other))
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "the first layers give %s and the second ones %s; expected shapes that differ only in the "
                             "number of channels",
                             lk__text(*out).string, lk__text(second).string);
    out->dim[1] += second.dim[1];
    lk_layer_gradient_needs(builder, LK_NEEDS_NOTHING, 0);
    return LK_OK;
}

static lk_tensor *concat_layer_join(lk_tensor *first, lk_tensor *second)
{
    return lk_concat((lk_tensor *[]){first, second}, PARTS, 1);
}

static lk_status concat_layer_forward(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    (void)config;
    return join_layer_forward(call, x, y, concat_layer_join);
}

const lk_layer_table lk__layer_concat_table = {
    .kind = "concat", .build = concat_layer_build, .forward_shards = concat_layer_forward};

lk_layer *lk_layer_concat(lk_layer *first, lk_layer *second)
{
    return lk_layer_new(&lk__layer_concat_table, NULL, 0, (lk_layer *const[]){first, second}, PARTS);
}

lk_layer *lk_layer_identity(void)
{
    return lk_layer_sequential(NULL, 0);
}
