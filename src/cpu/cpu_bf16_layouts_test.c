/* Operators that read and write bf16 elements themselves give, in every layout and in row-major order, the bits of
 * their f32 kernel on widened operands, rounded, padding included. */
#include "base/status.h"
#include "core/device_testing.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_bf16.h"
#include "cpu/cpu_own.h"
#include "lockstep/ops.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lk_device *device;

/* --- operands ----------------------------------------------------------------------------------------------------- */

static const dnnl_format_tag_t tags[] = {dnnl_nchw,    dnnl_nhwc,    dnnl_nChw4c,      dnnl_nChw8c,
                                         dnnl_nChw16c, LK_LANES_TAG, LK_WIDE_LANES_TAG};
enum { TAGS = sizeof tags / sizeof *tags };

/* Channels and images that fill blocks and lanes or do not, pixels that fill vectors or do not. */
static const lk_shape shapes[] = {
    LK_SHAPE(3, 16, 5, 7), LK_SHAPE(2, 5, 9, 9),   LK_SHAPE(17, 3, 4, 4),
    LK_SHAPE(8, 20, 3, 3), LK_SHAPE(1, 1, 31, 13), LK_SHAPE(9, 33, 2, 2),
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct arrangement {
    lk_tensor *from, *to;
    dnnl_format_tag_t tag;
} arrangement;

static lk_status arrange(lk_device *on, void *user)
{
    const arrangement *a = user;
    const lk_layout *layout;
    lk_storage *storage = a->to->storage;
    LK_TRY(lk__layout_tagged(a->to->shape, LK_F32, a->tag, &layout));
    layout = lk__layout_of_bf16(layout);
    LK_TRY(lk__storage_allocate(storage, layout ? lk__layout_bytes(layout, a->to->dtype) : storage->bytes, layout));
    return lk__cpu_bf16_convert(on, a->from, layout, storage->data);
}

static lk_tensor *arranged(lk_tensor *x, dnnl_format_tag_t tag)
{
    lk_tensor *to = lk_zeros(device, lk_tensor_dtype(x), lk_tensor_shape(x));
    arrangement a = {x, to, tag};
    assert_true(to && lk__device_ask(device, arrange, &a) == LK_OK);
    return to;
}

/* Some are numbers that rounding and comparisons treat specially, if `special` also infinities and NaN. */
static lk_tensor *activation(lk_shape shape, dnnl_format_tag_t tag, bool special, uint64_t purpose)
{
    static const float odd[] = {0, -0.0f, 1e-40f, -1e-39f, 3e38f, INFINITY, -INFINITY, NAN};
    lk_tensor *x = lk_uniform(device, LK_F32, shape, -2, 2, (lk_random_key){.seed = 5, .purpose = purpose});
    int64_t count = lk_tensor_count(x), n = special ? 8 : 4;
    float *values = malloc((size_t)count * sizeof *values);
    assert_true(values && lk_tensor_read(x, values, (size_t)count * sizeof *values) == LK_OK);
    for (int64_t i = 0; i < count; i++)
        if ((i * 7 + (int64_t)purpose * 3) % 11 == 0)
            values[i] = odd[i / 11 % n];
    lk_tensor *y = arranged(lk_cast(lk_tensor_from(device, LK_F32, shape, values), LK_BF16), tag);
    free(values);
    return y;
}

static lk_tensor *channel_vector(lk_shape x, double low, uint64_t purpose)
{
    return lk_uniform(device, LK_F32, LK_SHAPE(x.dim[1]), low, 2, (lk_random_key){.seed = 6, .purpose = purpose});
}

/* --- comparison --------------------------------------------------------------------------------------------------- */

static lk_tensor *widened(lk_tensor *x)
{
    lk_tensor *y = lk_cast(x, LK_F32);
    assert_true(lk_device_sync(device) == LK_OK && y->storage->layout == lk__layout_of_f32(x->storage->layout));
    return y;
}

/* Compares memory: padding too. Two NaN are equal. */
static void expect_same_memory(const lk_tensor *have, const lk_tensor *want, const char *what)
{
    assert_int_equal(have->dtype, want->dtype);
    if (have->storage->layout != want->storage->layout)
        fail_msg("%s: another layout than in f32", what);
    const lk_layout *layout = have->storage->layout;
    size_t bytes = layout ? lk__layout_bytes(layout, have->dtype) : have->storage->bytes;
    if (memcmp(have->storage->data, want->storage->data, bytes) == 0)
        return;
    const uint16_t *a = have->storage->data, *b = want->storage->data;
    for (size_t i = 0; i < bytes / sizeof *a; i++) {
        bool nan = have->dtype == LK_BF16 && (a[i] & 0x7FFF) > 0x7F80 && (b[i] & 0x7FFF) > 0x7F80;
        if (a[i] != b[i] && !nan)
            fail_msg("%s: 16 bits at %zu are %04x, in f32 %04x", what, i, a[i], b[i]);
    }
}

/* Runs the call on bf16, then on f32, and compares. The outputs of bf16 stay in call->out. */
static void expect_rows_agree(lk_call *call, const char *what)
{
    lk_call wide = *call;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->dtype == LK_BF16)
            wide.in[i] = widened(call->in[i]);
    if (lk__call(call) != LK_OK || lk__call(&wide) != LK_OK || lk_device_sync(device) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (int i = 0; i < call->n_out; i++) {
        bool rounded = call->out[i]->dtype == LK_BF16;
        lk_tensor *want = rounded ? lk_cast(wide.out[i], LK_BF16) : wide.out[i];
        assert_int_equal(lk_device_sync(device), LK_OK);
        expect_same_memory(call->out[i], want, what);
    }
}

/* Sets op, place, numbers of tensors and attributes. */
#define CALL(name, ins, outs, ...)                                                                    \
    (lk_call)                                                                                         \
    {                                                                                                 \
        .op = &lk__op_##name, .place = LK_HERE, .n_in = (ins), .n_out = (outs), .in = { __VA_ARGS__ } \
    }

static void set_attrs(lk_call *call, const void *attrs, size_t size)
{
    lk__call_set_attrs(call, attrs, size);
}

/* The kernel must be the f32 row's own, not stand-ins around it. */
static void expect_native(const lk_op *op)
{
    const lk_backend *backend = device->backend;
    const lk_kernel *f32 = lk__backend_kernel(backend, op->id, LK_F32, NULL);
    assert_ptr_equal(lk__backend_kernel(backend, op->id, LK_BF16, NULL), f32);
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

static void elements(lk_shape shape, dnnl_format_tag_t tag)
{
    const lk_op *ops[] = {&lk__op_add, &lk__op_sub, &lk__op_mul, &lk__op_relu_grad, &lk__op_relu};
    lk_tensor *a = activation(shape, tag, true, 1), *b = activation(shape, tag, true, 2);
    for (int i = 0; i < 5; i++) {
        lk_call call = CALL(add, ops[i] == &lk__op_relu ? 1 : 2, 1, a, b);
        call.op = ops[i];
        expect_native(call.op);
        expect_rows_agree(&call, call.op->name);
    }
}

static void dropout(lk_shape shape, dnnl_format_tag_t tag)
{
    int64_t samples[32];
    for (int i = 0; i < 32; i++)
        samples[i] = 7 * i + 1;
    lk_tensor *x = activation(shape, tag, true, 3),
              *indices = lk_tensor_from(device, LK_I64, LK_SHAPE(shape.dim[0]), samples);
    for (int i = 0; i < 2; i++) {
        lk_call call = CALL(dropout, 2, 1, x, indices);
        set_attrs(&call, &(lk_dropout_attrs){.rate = i * 0.3, .key = {.seed = 4}}, sizeof(lk_dropout_attrs));
        expect_native(call.op);
        expect_rows_agree(&call, i ? "dropout" : "dropout of nothing");
    }
}

/* Windows that touch, overlap, and reach into the padding. */
static void max_pool(lk_shape shape, dnnl_format_tag_t tag)
{
    const lk_pool2d_opts opts[] = {{.kernel = {2, 2}, .stride = {2, 2}},
                                   {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}},
                                   {.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 1}}};
    lk_tensor *x = activation(shape, tag, true, 8);
    for (int i = 0; i < 3; i++) {
        lk_call call = CALL(max_pool2d, 1, 2, x);
        set_attrs(&call, &opts[i], sizeof opts[i]);
        expect_native(call.op);
        expect_rows_agree(&call, "max_pool2d");
        const lk_pool2d_grad_attrs attrs = {opts[i], shape.dim[2], shape.dim[3]};
        lk_tensor *dy = activation(call.out[0]->shape, tag, false, 9);
        lk_call grad = CALL(max_pool2d_grad, 2, 1, dy, call.out[1]);
        set_attrs(&grad, &attrs, sizeof attrs);
        expect_native(grad.op);
        expect_rows_agree(&grad, "max_pool2d_grad");
    }
}

static void expect_norm(lk_call call, const lk_batch_norm_attrs *attrs)
{
    set_attrs(&call, attrs, sizeof *attrs);
    expect_native(call.op);
    expect_rows_agree(&call, call.op->name);
}

static void batch_norm(lk_shape shape, dnnl_format_tag_t tag)
{
    const lk_batch_norm_attrs attrs = {.count = shape.dim[0] * shape.dim[2] * shape.dim[3], .epsilon = 1e-5};
    lk_tensor *x = activation(shape, tag, false, 10), *dy = activation(shape, tag, false, 11),
              *y = activation(shape, tag, true, 12), *residual = activation(shape, tag, false, 13);
    lk_tensor *gamma = channel_vector(shape, 0.5, 1), *beta = channel_vector(shape, -1, 2),
              *mean = channel_vector(shape, -1, 3), *variance = channel_vector(shape, 0.1, 4);
    lk_tensor *sums = lk_channel_sums(widened(x));
    expect_norm(CALL(channel_sums, 1, 1, x), &attrs);
    expect_norm(CALL(channel_sums_grad, 2, 1, x, sums), &attrs);
    expect_norm(CALL(batch_norm, 3, 2, x, gamma, beta), &attrs);
    expect_norm(CALL(batch_norm_grad, 4, 3, dy, x, gamma, sums), &attrs);
    expect_norm(CALL(batch_norm_with, 4, 1, x, gamma, beta, sums), &attrs);
    expect_norm(CALL(batch_norm_with_grad, 4, 4, dy, x, gamma, sums), &attrs);
    expect_norm(CALL(batch_norm_inference, 5, 1, x, gamma, beta, mean, variance), &attrs);
    expect_norm(CALL(batch_norm_inference_grad, 5, 3, dy, x, gamma, mean, variance), &attrs);
    for (int i = 0; i < 2; i++) {
        expect_norm(CALL(batch_norm_act, 4, 2, x, gamma, beta, i ? residual : NULL), &attrs);
        expect_norm(CALL(batch_norm_act_grad, 5, 3 + i, dy, y, x, gamma, sums), &attrs);
        expect_norm(CALL(batch_norm_inference_act, 6, 1, x, gamma, beta, mean, variance, i ? residual : NULL), &attrs);
    }
}

typedef void (*check_fn)(lk_shape shape, dnnl_format_tag_t tag);

static void check_everywhere(check_fn check)
{
    for (int s = 0; s < SHAPES; s++)
        for (int t = 0; t < TAGS; t++) {
            lk_scope_begin();
            check(shapes[s], tags[t]);
            lk_scope_end();
        }
}

static void elements_agree(void **state)
{
    (void)state;
    check_everywhere(elements);
}

static void dropouts_agree(void **state)
{
    (void)state;
    check_everywhere(dropout);
}

static void max_pools_agree(void **state)
{
    (void)state;
    check_everywhere(max_pool);
}

static void batch_norms_agree(void **state)
{
    (void)state;
    check_everywhere(batch_norm);
}

/* --- a layout without a tag --------------------------------------------------------------------------------------- */

/* Kernels that cannot know how it lies convert it to row-major order. */
static void expect_converted(lk_call call, int n_activations, const void *attrs, size_t size)
{
    lk_call plain = call;
    for (int i = 0; i < n_activations; i++)
        call.in[i] = arranged(call.in[i], dnnl_nChw32c);
    assert_true(call.in[0]->storage->layout && lk__tag_of(call.in[0]) == dnnl_nchw);
    set_attrs(&call, attrs, size);
    set_attrs(&plain, attrs, size);
    if (lk__call(&call) != LK_OK || lk__call(&plain) != LK_OK || lk_device_sync(device) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (int i = 0; i < call.n_out; i++)
        expect_same_memory(call.out[i], plain.out[i], call.op->name);
}

static void an_unknown_layout_is_converted(void **state)
{
    (void)state;
    lk_scope_begin();
    const int64_t samples[3] = {4, 0, 9};
    lk_shape shape = shapes[0];
    const lk_batch_norm_attrs norm = {.count = shape.dim[0] * shape.dim[2] * shape.dim[3], .epsilon = 1e-5};
    const lk_dropout_attrs drop = {.rate = 0.3};
    const lk_pool2d_opts pool = {.kernel = {2, 2}, .stride = {2, 2}};
    lk_tensor *x = activation(shape, dnnl_nchw, false, 1), *y = activation(shape, dnnl_nchw, false, 2),
              *dy = activation(shape, dnnl_nchw, false, 3), *sums = lk_channel_sums(widened(x));
    lk_tensor *gamma = channel_vector(shape, 0.5, 1), *beta = channel_vector(shape, -1, 2);
    expect_converted(CALL(channel_sums, 1, 1, x), 1, &norm, sizeof norm);
    expect_converted(CALL(batch_norm, 3, 2, x, gamma, beta), 1, &norm, sizeof norm);
    expect_converted(CALL(batch_norm_act_grad, 5, 4, dy, y, x, gamma, sums), 3, &norm, sizeof norm);
    expect_converted(CALL(dropout, 2, 1, x, lk_tensor_from(device, LK_I64, LK_SHAPE(3), samples)), 1, &drop,
                     sizeof drop);
    expect_converted(CALL(max_pool2d, 1, 2, x), 1, &pool, sizeof pool);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_agree),
        cmocka_unit_test(dropouts_agree),
        cmocka_unit_test(max_pools_agree),
        cmocka_unit_test(batch_norms_agree),
        cmocka_unit_test(an_unknown_layout_is_converted),
    };
    return RUN_ON_DEVICE(tests, &device, "cpu:0");
}
