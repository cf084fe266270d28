/* The oneDNN kernels: the implementations that oneDNN chooses, that primitives are made once, that failures are
 * reported, and cases of layouts that concern only this folder. conformance_test checks the results. */
#include "base/mem.h"
#include "base/mem_testing.h"
#include "base/status.h"
#include "core/device_testing.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/onednn/cpu_state.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"
#include "ops/ops.h"
#include "ops/conv2d.h"
#include "core/shape.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static lk_tensor *numbers(lk_device *device, lk_shape shape, uint64_t purpose)
{
    lk_random_key key = {.seed = 7, .purpose = purpose};
    lk_tensor *x = lk_uniform(device, LK_F32, shape, -1, 1, key);
    assert_non_null(x);
    return x;
}

static float *elements(lk_tensor *x)
{
    size_t bytes = (size_t)lk_tensor_count(x) * sizeof(float);
    float *data = malloc(bytes ? bytes : 1);
    assert_non_null(data);
    assert_int_equal(lk_tensor_read(x, data, bytes), LK_OK);
    return data;
}

/* --- implementations ---------------------------------------------------------------------------------------------- */

typedef struct conv_shape {
    int64_t n, channels, size, filters, kernel, stride, padding;
} conv_shape;

/* Shapes of LeNet, ResNet-18 and a wide residual network. */
static const conv_shape conv_shapes[] = {
    {32, 1, 28, 20, 3, 1, 0},  {32, 20, 13, 50, 5, 1, 0}, {2, 1, 28, 64, 3, 1, 1},    {2, 64, 28, 64, 3, 1, 1},
    {2, 64, 28, 128, 3, 2, 1}, {2, 64, 28, 128, 1, 2, 0}, {2, 128, 14, 256, 3, 2, 1}, {2, 512, 4, 512, 3, 1, 1},
    {2, 1, 28, 16, 3, 1, 1},   {2, 16, 28, 160, 3, 1, 1}, {2, 16, 28, 160, 1, 1, 0},  {2, 160, 14, 320, 3, 1, 1},
};

static void train_conv(lk_device *device, const conv_shape *s)
{
    lk_conv2d_opts opts = {{s->stride, s->stride}, {s->padding, s->padding}, {1, 1}, 1};
    lk_tensor *x = numbers(device, LK_SHAPE(s->n, s->channels, s->size, s->size), 1);
    lk_tensor *w = numbers(device, LK_SHAPE(s->filters, s->channels, s->kernel, s->kernel), 2);
    lk_tensor *bias = numbers(device, LK_SHAPE(s->filters), 3), *dbias;
    lk_tensor *y = lk_relu(lk_conv2d(x, w, bias, &opts));
    assert_non_null(lk__conv2d_input_grad(LK_HERE, y, w, lk_tensor_shape(x), &opts));
    assert_non_null(lk__conv2d_weight_grad(LK_HERE, y, x, lk_tensor_shape(w), &opts, false, &dbias));
}

static void train_pool(lk_device *device, int64_t channels, int64_t size)
{
    lk_pool2d_opts opts = {.kernel = {2, 2}};
    lk_tensor *x = numbers(device, LK_SHAPE(4, channels, size, size), 1);
    lk_tape *tape = lk_tape_begin(&x, 1);
    lk_tensor *y = lk_add(lk_avg_pool2d(x, &opts), lk_max_pool2d(x, &opts)), *dx;
    assert_int_equal(lk_tape_gradient(tape, y, NULL, &dx), LK_OK);
    lk_tape_release(tape);
}

static void expect_fast(void *user, const char *op, const char *problem, const char *implementation)
{
    (*(int *)user)++;
    if (strstr(implementation, "ref"))
        fail_msg("%s %s runs on %s", op, problem, implementation);
}

static void no_reference_implementation_is_chosen(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    int seen = 0;
    for (size_t i = 0; i < sizeof conv_shapes / sizeof *conv_shapes; i++) {
        lk_scope_begin();
        train_conv(device, &conv_shapes[i]);
        lk_scope_end();
    }
    lk_scope_begin();
    train_pool(device, 20, 26);
    train_pool(device, 50, 9);
    train_pool(device, 32, 26);
    lk_tensor *a = numbers(device, LK_SHAPE(32, 800), 1), *b = numbers(device, LK_SHAPE(800, 128), 2);
    lk_tensor *dy = lk_matmul(a, b);
    assert_non_null(lk_matmul(dy, lk_transpose(b, 0, 1)));
    assert_non_null(lk_matmul(lk_transpose(a, 0, 1), dy));
    lk_scope_end();
    assert_int_equal(lk_device_implementations(device, expect_fast, &seen), LK_OK);
    assert_true(seen >= 3 * 12 + 3 * 4 + 3);
    lk_device_release(device);
}

/* --- the steady state --------------------------------------------------------------------------------------------- */

/* Makes a convolution's call as the engine would, to be run here. */
static lk_call conv_call(lk_device *device, lk_tensor *x, lk_tensor *w, lk_tensor *y, int64_t padding)
{
    lk_conv2d_opts opts = {{1, 1}, {padding, padding}, {1, 1}, 1};
    lk_call call = {.op = &lk__op_conv2d,
                    .device = device,
                    .dtype = LK_F32,
                    .free_layout = true,
                    .n_in = 3,
                    .n_out = 1,
                    .in = {x, w},
                    .out = {y}};
    memcpy(call.attrs.bytes, &opts, sizeof opts);
    call.kernel = lk__backend_kernel(device->backend, LK_OP_CONV2D, LK_F32, NULL);
    return call;
}

static lk_call grad_call(lk_device *device, lk_tensor *dy, lk_tensor *x, lk_tensor *dw, int64_t padding)
{
    lk_conv2d_grad_attrs attrs = {.conv = {{1, 1}, {padding, padding}, {1, 1}, 1}};
    lk_call call = {.op = &lk__op_conv2d_weight_grad,
                    .device = device,
                    .dtype = LK_F32,
                    .free_layout = true,
                    .n_in = 2,
                    .n_out = 1,
                    .in = {dy, x},
                    .out = {dw}};
    memcpy(attrs.size, dw->shape.dim, sizeof attrs.size);
    memcpy(call.attrs.bytes, &attrs, sizeof attrs);
    call.kernel = lk__backend_kernel(device->backend, LK_OP_CONV2D_WEIGHT_GRAD, LK_F32, NULL);
    return call;
}

/* A convolution and the gradient of its weights. 4 images with padding run on oneDNN, 12 without padding on lanes.h. */
typedef struct pair_of_calls {
    lk_device *device;
    lk_tensor *dw;
    lk_call forward, backward;
} pair_of_calls;

static pair_of_calls open_pair(int64_t images, int64_t padding)
{
    pair_of_calls pair = {.device = open_device("cpu")};
    int64_t size = 7 + 2 * padding;
    lk_scope_begin();
    lk_tensor *x = numbers(pair.device, LK_SHAPE(images, 20, 9, 9), 1);
    lk_tensor *w = numbers(pair.device, LK_SHAPE(12, 20, 3, 3), 2);
    lk_tensor *y = lk_tensor_new(pair.device, LK_F32, LK_SHAPE(images, 12, size, size));
    pair.dw = lk_tensor_new(pair.device, LK_F32, LK_SHAPE(12, 20, 3, 3));
    pair.forward = conv_call(pair.device, x, w, y, padding);
    pair.backward = grad_call(pair.device, y, x, pair.dw, padding);
    return pair;
}

static void close_pair(pair_of_calls *pair)
{
    lk_scope_end();
    lk_device_release(pair->device);
}

/* Runs both calls as the synchronous engine does: with one thread for oneDNN. */
static lk_status run_pair(pair_of_calls *pair)
{
    const lk_backend *backend = pair->device->backend;
    backend->enter(pair->device, pair->device->state);
    lk_status status = pair->forward.kernel->run(&pair->forward);
    if (status == LK_OK)
        status = pair->backward.kernel->run(&pair->backward);
    backend->leave(pair->device, pair->device->state);
    return status;
}

static void steady_state(int64_t images, int64_t padding)
{
    pair_of_calls pair = open_pair(images, padding);
    const lk_cpu *cpu = pair.device->state;
    assert_int_equal(run_pair(&pair), LK_OK);
    int prepared = cpu->n_prepared;
    float *first = elements(pair.dw);
    lk__mem_fail_at(-1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(run_pair(&pair), LK_OK);
    assert_int_equal(lk__mem_allocations(), 0);
    assert_int_equal(cpu->n_prepared, prepared);
    float *last = elements(pair.dw);
    assert_memory_equal(first, last, (size_t)lk_tensor_count(pair.dw) * sizeof(float));
    free(first);
    free(last);
    close_pair(&pair);
}

static void the_steady_state_makes_nothing(void **state)
{
    (void)state;
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    steady_state(4, 1);
    steady_state(12, 0);
    unsetenv("LOCKSTEP_ENGINE");
}

static void fail_each(int64_t images, int64_t padding)
{
    failing f = fail_every(1);
    do {
        pair_of_calls pair = open_pair(images, padding);
        fail_next(&f);
        lk_status status = run_pair(&pair);
        stop_failing(&f);
        lk_error_clear();
        assert_true(status == LK_OK || status == LK_ERR_MEMORY);
        assert_int_equal(run_pair(&pair), LK_OK);
        close_pair(&pair);
    } while (f.reached);
    assert_true(f.n >= 5);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    fail_each(4, 1);
    fail_each(12, 0);
    unsetenv("LOCKSTEP_ENGINE");
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static lk_prepared *only_prepared(lk_cpu *cpu)
{
    assert_int_equal(cpu->n_prepared, 1);
    for (int i = 0; i < LK_CPU_BUCKETS; i++)
        if (cpu->buckets[i])
            return cpu->buckets[i];
    return NULL;
}

/* A primitive without its arguments refuses to run; the failure must be reported. */
static void a_failed_execution_is_reported(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *x = numbers(device, LK_SHAPE(2, 4, 5, 5), 1), *w = numbers(device, LK_SHAPE(4, 2, 3, 3), 2);
    lk_conv2d_opts in_groups = {.groups = 2}; /* only oneDNN's convolution takes these */
    assert_int_equal(lk_tensor_wait(lk_conv2d(x, w, NULL, &in_groups)), LK_OK);
    only_prepared(device->state)->n_operands = 0;
    lk_tensor *y = lk_conv2d(x, w, NULL, &in_groups);
    assert_int_equal(lk_tensor_wait(y), LK_ERR_BACKEND);
    assert_non_null(strstr(lk_error_message(), "conv2d(f32[2,4,5,5], f32[4,2,3,3]"));
    assert_non_null(strstr(lk_error_message(), "invalid"));
    lk_error_clear();
    only_prepared(device->state)->n_operands = 3;
    lk_scope_end();
    lk_device_release(device);
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

typedef lk_tensor *(*case_fn)(lk_device *device);

static lk_tensor *grouped_by_computed_weights(lk_device *device)
{
    lk_conv2d_opts opts = {{1, 1}, {1, 1}, {1, 1}, 1}, groups = {{1, 1}, {0, 0}, {1, 1}, 2};
    lk_tensor *kernels = numbers(device, LK_SHAPE(8, 16, 3, 3), 1);
    lk_tensor *w =
        lk_conv2d(kernels, numbers(device, LK_SHAPE(8, 16, 3, 3), 2), NULL, &opts); /* [8, 8, 3, 3], blocked */
    return lk_conv2d(numbers(device, LK_SHAPE(2, 16, 7, 6), 3), w, NULL, &groups);
}

static lk_tensor *of_a_slice(lk_device *device)
{
    lk_tensor *x = lk_slice(numbers(device, LK_SHAPE(5, 9, 10, 11), 1), 3, 2, 9);
    return lk_conv2d(lk_slice(x, 0, 1, 4), numbers(device, LK_SHAPE(5, 9, 3, 2), 2), NULL, NULL);
}

static lk_tensor *of_repeated_images(lk_device *device)
{
    lk_tensor *x = lk_expand(numbers(device, LK_SHAPE(1, 3, 8, 8), 1), LK_SHAPE(4, 3, 8, 8));
    return lk_conv2d(x, numbers(device, LK_SHAPE(6, 3, 3, 3), 2), numbers(device, LK_SHAPE(6), 3), NULL);
}

static lk_tensor *of_a_repeated_bias(lk_device *device)
{
    lk_tensor *bias = lk_expand(numbers(device, LK_SHAPE(1), 3), LK_SHAPE(6));
    return lk_conv2d(numbers(device, LK_SHAPE(2, 3, 8, 8), 1), numbers(device, LK_SHAPE(6, 3, 3, 3), 2), bias, NULL);
}

static lk_tensor *of_columns(lk_device *device)
{
    lk_tensor *a = lk_slice(numbers(device, LK_SHAPE(6, 9), 1), 1, 3, 4);
    return lk_matmul(a, lk_transpose(lk_slice(numbers(device, LK_SHAPE(5, 8), 2), 1, 7, 8), 0, 1));
}

static lk_tensor *of_strided_planes(lk_device *device)
{
    lk_tensor *x = numbers(device, LK_SHAPE(4, 5, 6), 1); /* [4, 6] with strides 30 and 5 */
    lk_tensor *a = lk_reshape(lk_slice(lk_transpose(x, 1, 2), 2, 1, 2), LK_SHAPE(4, 6));
    return lk_matmul(a, lk_expand(numbers(device, LK_SHAPE(1, 3), 2), LK_SHAPE(6, 3)));
}

static lk_tensor *pooled_then_flattened(lk_device *device)
{
    lk_pool2d_opts pool = {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}};
    lk_tensor *x = numbers(device, LK_SHAPE(3, 2, 9, 8), 1);
    lk_tensor *y = lk_conv2d(x, numbers(device, LK_SHAPE(11, 2, 3, 3), 2), NULL, NULL);
    return lk_flatten(lk_max_pool2d(lk_relu(y), &pool));
}

static lk_tensor *gradient_of_pools(lk_device *device)
{
    lk_pool2d_opts max = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, average = max;
    lk_tensor *x = numbers(device, LK_SHAPE(2, 3, 12, 11), 1), *w = numbers(device, LK_SHAPE(9, 3, 3, 3), 2), *dw;
    average.kernel[0] = 2;
    lk_tape *tape = lk_tape_begin(&w, 1);
    assert_non_null(tape);
    lk_tensor *y = lk_avg_pool2d(lk_max_pool2d(lk_relu(lk_conv2d(x, w, NULL, NULL)), &max), &average);
    assert_int_equal(lk_tape_gradient(tape, lk_sum(lk_mul(y, y), NULL), NULL, &dw), LK_OK);
    lk_tape_release(tape);
    return dw;
}

/* Images in lanes: a last block that is not full, an odd number of blocks, tiles that are not full. */
static lk_tensor *lanes(lk_device *device, int64_t images, int which)
{
    lk_pool2d_opts pool = {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}};
    lk_tensor *p[] = {numbers(device, LK_SHAPE(7, 3, 3, 2), 1), numbers(device, LK_SHAPE(7), 2),
                      numbers(device, LK_SHAPE(11, 7, 2, 3), 3), numbers(device, LK_SHAPE(images, 3, 11, 12), 4)};
    lk_tensor *gradients[4];
    lk_tape *tape = lk_tape_begin(p, 4);
    assert_non_null(tape);
    lk_tensor *y = lk_avg_pool2d(lk_relu(lk_conv2d(p[3], p[0], p[1], NULL)), &pool);
    pool.count_include_pad = true;
    y = lk_avg_pool2d(lk_conv2d(y, p[2], NULL, NULL), &pool);
    assert_int_equal(lk_tape_gradient(tape, lk_sum(lk_mul(y, y), NULL), NULL, gradients), LK_OK);
    lk_tape_release(tape);
    return which < 4 ? gradients[which] : y;
}

static lk_tensor *lanes_output(lk_device *device)
{
    return lanes(device, 19, 4);
}

static lk_tensor *lanes_input_gradient(lk_device *device)
{
    return lanes(device, 19, 3);
}

static lk_tensor *lanes_weight_gradient(lk_device *device)
{
    return lanes(device, 19, 0);
}

static lk_tensor *lanes_second_weight_gradient(lk_device *device)
{
    return lanes(device, 16, 2);
}

static lk_tensor *lanes_bias_gradient(lk_device *device)
{
    return lanes(device, 9, 1);
}

static lk_tensor *lanes_to_max_pool(lk_device *device)
{
    lk_pool2d_opts pool = {.kernel = {2, 2}};
    lk_tensor *x = numbers(device, LK_SHAPE(10, 3, 8, 9), 1), *w = numbers(device, LK_SHAPE(5, 3, 3, 3), 2), *dw;
    lk_tape *tape = lk_tape_begin(&w, 1);
    assert_non_null(tape);
    lk_tensor *y = lk_max_pool2d(lk_conv2d(x, w, NULL, NULL), &pool);
    assert_int_equal(lk_tape_gradient(tape, lk_sum(lk_mul(y, y), NULL), NULL, &dw), LK_OK);
    lk_tape_release(tape);
    return dw;
}

/* A padded pooling makes planes of one pixel larger. oneDNN may give it a layout without a tag, which other poolings
 * read next. */
static lk_tensor *grown_planes(lk_device *device, int64_t images, int64_t channels, bool gradient)
{
    lk_pool2d_opts pool = {.kernel = {2, 2}, .stride = {1, 1}, .padding = {1, 1}};
    lk_tensor *x = numbers(device, LK_SHAPE(images, 3, 6, 6), 1), *dw;
    lk_tensor *w[] = {numbers(device, LK_SHAPE(channels, 3, 6, 6), 2), numbers(device, LK_SHAPE(channels), 3),
                      numbers(device, LK_SHAPE(channels), 4)};
    lk_tape *tape = lk_tape_begin(w, 1);
    assert_non_null(tape);
    lk_tensor *y = lk_conv2d(x, w[0], NULL, NULL);
    if (gradient)
        y = lk_batch_norm(y, w[1], w[2], 1e-5, NULL);
    y = lk_relu(lk_avg_pool2d(y, &pool));
    lk_tensor *z = gradient ? lk_conv2d(y, numbers(device, LK_SHAPE(6, channels, 2, 2), 5), NULL,
                                        &(lk_conv2d_opts){.padding = {1, 1}})
                            : lk_global_avg_pool2d(y);
    assert_int_equal(lk_tape_gradient(tape, lk_sum(lk_mul(z, z), NULL), NULL, &dw), LK_OK);
    lk_tape_release(tape);
    return gradient ? dw : z;
}

static lk_tensor *one_grown_plane(lk_device *device)
{
    return grown_planes(device, 1, 8, false);
}

static lk_tensor *several_grown_planes(lk_device *device)
{
    return grown_planes(device, 4, 8, false);
}

static lk_tensor *gradient_of_grown_planes(lk_device *device)
{
    return grown_planes(device, 4, 9, true);
}

static const struct {
    const char *name;
    case_fn run;
} cases[] = {
    {"images in lanes", lanes_output},
    {"images in lanes, input's gradient", lanes_input_gradient},
    {"images in lanes, weights' gradient", lanes_weight_gradient},
    {"images in lanes, second weights' gradient", lanes_second_weight_gradient},
    {"images in lanes, bias' gradient", lanes_bias_gradient},
    {"images in lanes, then maximum pooling", lanes_to_max_pool},
    {"weights with a layout, in groups", grouped_by_computed_weights},
    {"a slice of images", of_a_slice},
    {"one image several times", of_repeated_images},
    {"one bias several times", of_a_repeated_bias},
    {"a column times a row", of_columns},
    {"no unit stride times one row several times", of_strided_planes},
    {"pooling, then the plain layout", pooled_then_flattened},
    {"gradients through pooling", gradient_of_pools},
    {"pooling that makes a plane larger", one_grown_plane},
    {"pooling that makes planes larger", several_grown_planes},
    {"gradients through pooling that makes planes larger", gradient_of_grown_planes},
};

static void layouts_agree_with_the_reference(void **state)
{
    (void)state;
    lk_device *cpu = open_device("cpu"), *ref = open_device("ref");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_scope_begin();
        lk_tensor *y = cases[i].run(cpu), *expected = cases[i].run(ref);
        assert_non_null(y);
        assert_true(lk__shape_equal(lk_tensor_shape(y), lk_tensor_shape(expected)));
        float *have = elements(y), *want = elements(expected);
        for (int64_t j = 0; j < lk_tensor_count(y); j++)
            if (!(fabsf(have[j] - want[j]) <= 2e-5F * (1 + fabsf(want[j]))))
                fail_msg("%s: element %lld is %g, not %g", cases[i].name, (long long)j, (double)have[j],
                         (double)want[j]);
        free(have);
        free(want);
        lk_scope_end();
    }
    lk_device_release(cpu);
    lk_device_release(ref);
}

static void an_empty_batch_is_fine(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *x = lk_zeros(device, LK_F32, LK_SHAPE(0, 3, 8, 8)), *w = numbers(device, LK_SHAPE(4, 3, 3, 3), 1);
    lk_tensor *bias = numbers(device, LK_SHAPE(4), 2), *dbias;
    lk_conv2d_opts opts = {{1, 1}, {0, 0}, {1, 1}, 1};
    lk_tensor *y = lk_avg_pool2d(lk_relu(lk_conv2d(x, w, bias, &opts)), &(lk_pool2d_opts){.kernel = {2, 2}});
    assert_int_equal(lk_tensor_wait(y), LK_OK);
    lk_tensor *dy = lk_zeros(device, LK_F32, LK_SHAPE(0, 4, 6, 6));
    float *dw = elements(lk__conv2d_weight_grad(LK_HERE, dy, x, lk_tensor_shape(w), &opts, false, &dbias)),
          *db = elements(dbias);
    for (int i = 0; i < 4 * 3 * 3 * 3; i++)
        assert_true(dw[i] == 0);
    for (int i = 0; i < 4; i++)
        assert_true(db[i] == 0);
    free(dw);
    free(db);
    lk_scope_end();
    lk_device_release(device);
}

static void relu_keeps_nan_in_a_layout(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *w = lk_full(device, LK_F32, LK_SHAPE(9, 1, 1, 1), (double)NAN);
    float *y = elements(lk_relu(lk_conv2d(numbers(device, LK_SHAPE(1, 1, 2, 2), 1), w, NULL, NULL)));
    for (int i = 0; i < 9 * 4; i++)
        assert_true(isnan(y[i]));
    free(y);
    lk_scope_end();
    lk_device_release(device);
}

/* Pools in the layout that an average over 1x1 chooses: y, then x's gradient. Every fifth element is NaN, infinity,
 * ...; the first rows are -infinity. */
static void pool_specials(lk_device *device, lk_shape shape, float **y, float **dx)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0, 1, 1};
    float values[4096];
    int64_t count = shape.dim[0] * shape.dim[1] * shape.dim[2] * shape.dim[3];
    int64_t width = shape.dim[3], plane = shape.dim[2] * width;
    assert_true(count <= 4096);
    for (int64_t i = 0; i < count; i++) {
        values[i] = i % 5 == 0 ? special[i / 5 % 6] : (float)(i * 7 % 11);
        values[i] = i % plane < 2 * width ? -INFINITY : values[i];
    }
    lk_scope_begin();
    lk_tensor *x = lk_tensor_from(device, LK_F32, shape, values), *gradient;
    lk_tape *tape = lk_tape_begin(&x, 1);
    lk_tensor *pooled = lk_max_pool2d(lk_avg_pool2d(x, &(lk_pool2d_opts){.kernel = {1, 1}}),
                                      &(lk_pool2d_opts){.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}});
    assert_int_equal(lk_tape_gradient(tape, pooled, numbers(device, lk_tensor_shape(pooled), 5), &gradient), LK_OK);
    lk_tape_release(tape);
    *y = elements(pooled);
    *dx = elements(gradient);
    lk_scope_end();
}

static void expect_same(const float *have, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(have[i] == want[i] || (isnan(have[i]) && isnan(want[i]))))
            fail_msg("element %lld is %g, not %g", (long long)i, (double)have[i], (double)want[i]);
}

/* Blocks that are full or not, and lanes. */
static void max_pooling_keeps_what_is_not_finite(void **state)
{
    (void)state;
    const lk_shape shapes[] = {LK_SHAPE(2, 16, 7, 6), LK_SHAPE(3, 5, 6, 7), LK_SHAPE(9, 5, 6, 7)};
    lk_device *cpu = open_device("cpu"), *ref = open_device("ref");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *n = shapes[i].dim;
        float *y, *dx, *expected_y, *expected_dx;
        pool_specials(cpu, shapes[i], &y, &dx);
        pool_specials(ref, shapes[i], &expected_y, &expected_dx);
        assert_true(y[0] == -INFINITY);
        expect_same(y, expected_y, n[0] * n[1] * ((n[2] - 1) / 2 + 1) * (n[3] + 1));
        for (int64_t j = 0; j < n[0] * n[1] * n[2] * n[3]; j++)
            assert_true(fabsf(dx[j] - expected_dx[j]) <= 1e-6F);
        free(y);
        free(dx);
        free(expected_y);
        free(expected_dx);
    }
    lk_device_release(cpu);
    lk_device_release(ref);
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

static float *product(const char *engine, int rounding)
{
    if (engine)
        setenv("LOCKSTEP_ENGINE", engine, 1);
    fesetround(rounding);
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    float *y = elements(lk_matmul(numbers(device, LK_SHAPE(17, 33), 1), numbers(device, LK_SHAPE(33, 19), 2)));
    lk_scope_end();
    lk_device_release(device);
    assert_int_equal(fegetround(), rounding);
    fesetround(FE_TONEAREST);
    unsetenv("LOCKSTEP_ENGINE");
    return y;
}

static void the_callers_rounding_reaches_no_kernel(void **state)
{
    (void)state;
    float *expected = product(NULL, FE_TONEAREST), *thread = product(NULL, FE_UPWARD),
          *sync = product("sync", FE_UPWARD);
    assert_memory_equal(thread, expected, 17 * 19 * sizeof(float));
    assert_memory_equal(sync, expected, 17 * 19 * sizeof(float));
    free(expected);
    free(thread);
    free(sync);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_reference_implementation_is_chosen),
        cmocka_unit_test(the_steady_state_makes_nothing),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_failed_execution_is_reported),
        cmocka_unit_test(layouts_agree_with_the_reference),
        cmocka_unit_test(an_empty_batch_is_fine),
        cmocka_unit_test(relu_keeps_nan_in_a_layout),
        cmocka_unit_test(max_pooling_keeps_what_is_not_finite),
        cmocka_unit_test(the_callers_rounding_reaches_no_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
