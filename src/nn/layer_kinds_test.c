/* Group and layer normalization, layer scale, concatenation, stochastic depth, and sizes that differ along H and W:
 * what they compute, their shapes, and what they refuse. */
#include "base/mem_testing.h"
#include "lockstep/autograd.h"
#include "nn/nn_testing.h"

static const lk_model_input image = {.channels = 4, .height = 6, .width = 8, .classes = 0};

typedef struct trial {
    lk_device *device;
    lk_model *model;
    lk_tensor *variables[8], *x;
} trial;

static const int64_t batch = 3;

/* Makes a model of `root`, its variables, and images. Opens a scope. */
static trial open_trial(lk_layer *root)
{
    trial t = {.device = lk_device_open("cpu"), .model = lk_model_build("test", root, image)};
    assert_no_error(t.device && t.model);
    assert_true(lk_model_variable_count(t.model) <= 8);
    assert_no_error(lk_model_init(t.model, t.device, 3, t.variables) == LK_OK);
    lk_scope_begin();
    t.x = lk_uniform(t.device, LK_F32, LK_SHAPE(batch, 4, 6, 8), -1, 2, (lk_random_key){.seed = 5});
    return t;
}

static void close_trial(trial *t)
{
    lk_scope_end();
    for (int v = 0; v < lk_model_variable_count(t->model); v++)
        lk_tensor_release(t->variables[v]);
    lk_model_release(t->model);
    lk_device_release(t->device);
}

static void test_norms(void **state)
{
    (void)state;
    const lk_norm_layer_opts opts = {.epsilon = 1e-2};
    for (int pixels = 0; pixels < 2; pixels++) {
        trial t = open_trial(pixels ? lk_layer_layer_norm(&opts) : lk_layer_group_norm(2, &opts));
        assert_int_equal(lk_model_variable_count(t.model), 2);
        const lk_group_norm_opts same = {.groups = pixels ? 1 : 2, .each_pixel = pixels, .epsilon = 1e-2};
        lk_tensor *want = lk_group_norm(t.x, t.variables[0], t.variables[1], &same);
        for (int training = 0; training < 2; training++) {
            lk_tensor *y = lk_model_forward(t.model, t.variables, t.x, &(lk_forward_opts){.training = training});
            assert_same_bits(y, want);
        }
        close_trial(&t);
    }
}

/* Images and flat data; the factors are trained by their gradient, the sum of x over all but the channels. */
static void test_scale(void **state)
{
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        lk_layer *scale = lk_layer_scale(-0.75);
        trial t = open_trial(flat ? LK_SEQUENTIAL(lk_layer_flatten(), scale) : scale);
        lk_tensor *x = flat ? lk_reshape(t.x, LK_SHAPE(batch, 192)) : t.x, *gradient;
        assert_int_equal(lk_tensor_count(t.variables[0]), flat ? 192 : 4);
        lk_tape *tape = lk_tape_begin(t.variables, 1);
        lk_tensor *y = lk_model_forward(t.model, t.variables, t.x, &(lk_forward_opts){.training = true});
        assert_no_error(lk_tape_gradient(tape, lk_sum(y, NULL), NULL, &gradient) == LK_OK);
        lk_tape_release(tape);
        assert_close(y, lk_mul_scalar(x, -0.75), 0);
        const lk_reduce_opts images = {.n_axes = 3, .axes = {0, 2, 3}}, rows = {.n_axes = 1, .axes = {0}};
        assert_close(gradient, lk_sum(x, flat ? &rows : &images), 1e-5);
        close_trial(&t);
    }
}

/* A sample's result does not depend on the samples beside it. */
static void test_norms_of_one_sample(void **state)
{
    (void)state;
    for (int pixels = 0; pixels < 2; pixels++) {
        trial t = open_trial(pixels ? lk_layer_layer_norm(NULL) : lk_layer_group_norm(4, NULL));
        lk_tensor *all = lk_model_forward(t.model, t.variables, t.x, NULL);
        for (int64_t n = 0; n < batch; n++)
            assert_same_bits(
                lk_model_forward(t.model, t.variables, lk_copy(lk_slice(t.x, 0, n, n + 1), t.device), NULL),
                lk_copy(lk_slice(all, 0, n, n + 1), t.device));
        close_trial(&t);
    }
}

static void test_concat(void **state)
{
    (void)state;
    trial t = open_trial(lk_layer_concat(lk_layer_identity(), lk_layer_conv2d(3, 1, NULL)));
    lk_tensor *y = lk_model_forward(t.model, t.variables, t.x, NULL);
    lk_tensor *conv = lk_conv2d(t.x, t.variables[0], t.variables[1], NULL);
    assert_same_bits(y, lk_concat((lk_tensor *[]){t.x, conv}, 2, 1));
    lk_layer_info info = lk_model_layer(t.model, lk_model_layer_count(t.model) - 1);
    assert_string_equal(info.kind, "concat");
    assert_true(lk_shape_count(info.output) == 7 * 6 * 8 && info.output.dim[1] == 7);
    close_trial(&t);
    t = open_trial(
        LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_concat(lk_layer_dense(2, NULL), lk_layer_dense(3, NULL))));
    assert_int_equal(lk_tensor_shape(lk_model_forward(t.model, t.variables, t.x, NULL)).dim[1], 5);
    close_trial(&t);
}

/* Each sample is whole and scaled, or 0; another step chooses others, and inference leaves all. */
static void test_drop_path(void **state)
{
    (void)state;
    enum { SAMPLES = 64, STEPS = 4 };
    trial t = open_trial(lk_layer_drop_path(0.25));
    lk_tensor *x = lk_uniform(t.device, LK_F32, LK_SHAPE(SAMPLES, 4, 6, 8), 1, 2, (lk_random_key){.seed = 7});
    lk_tensor *indices = lk_arange(t.device, LK_I64, SAMPLES, 0, 1);
    assert_same_bits(lk_model_forward(t.model, t.variables, x, NULL), x);
    const float *before = values_of(x);
    bool dropped[STEPS][SAMPLES];
    int count = 0, changes = 0;
    for (int step = 0; step < STEPS; step++) {
        const lk_forward_opts opts = {.training = true, .seed = 11, .step = step, .indices = &indices};
        float *y = values_of(lk_model_forward(t.model, t.variables, x, &opts));
        for (int n = 0; n < SAMPLES; n++) {
            dropped[step][n] = y[n * 192] == 0;
            count += dropped[step][n];
            changes += step > 0 && dropped[step][n] != dropped[step - 1][n];
            for (int i = n * 192; i < (n + 1) * 192; i++)
                assert_true(fabsf(y[i] - (dropped[step][n] ? 0 : before[i] * (float)(1 / 0.75))) <= 1e-6f);
        }
        free(y);
    }
    free((void *)before);
    assert_true(count > 32 && count < 96 && changes > 20);
    close_trial(&t);
}

/* The gradient passes where the sample was kept, times the same factor. */
static void test_drop_path_gradient(void **state)
{
    (void)state;
    trial t = open_trial(lk_layer_drop_path(0.5));
    lk_tensor *indices = lk_arange(t.device, LK_I64, batch, 0, 1), *gradient;
    const lk_forward_opts opts = {.training = true, .seed = 3, .indices = &indices};
    lk_tape *tape = lk_tape_begin(&t.x, 1);
    lk_tensor *y = lk_model_forward(t.model, t.variables, t.x, &opts);
    assert_no_error(lk_tape_gradient(tape, lk_sum(lk_mul(y, y), NULL), NULL, &gradient) == LK_OK);
    lk_tape_release(tape);
    assert_close(gradient, lk_mul_scalar(y, 4), 1e-6); /* 2 y times the factor 2; y is 0 where the sample is dropped */
    assert_true(largest_of(y) > 0);
    close_trial(&t);
}

static void test_rectangles(void **state)
{
    (void)state;
    const lk_conv2d_layer_opts conv = {
        .padding = 1, .stride = 2, .rectangular = true, .kernel_width = 1, .stride_width = 1, .padding_width = 0};
    trial t = open_trial(lk_layer_conv2d(5, 3, &conv));
    const lk_conv2d_opts same = {.stride = {2, 1}, .padding = {1, 0}};
    assert_same_bits(lk_model_forward(t.model, t.variables, t.x, NULL),
                     lk_conv2d(t.x, t.variables[0], t.variables[1], &same));
    assert_int_equal(lk_model_variable_shape(t.model, 0).dim[2], 3);
    assert_int_equal(lk_model_variable_shape(t.model, 0).dim[3], 1);
    lk_graph graph;
    assert_no_error(lk_model_graph(t.model, &graph) == LK_OK);
    assert_true(graph.nodes[1].kernel[0] == 3 && graph.nodes[1].kernel[1] == 1 && graph.nodes[1].padding[1] == 0);
    lk_graph_free(&graph);
    close_trial(&t);
    const lk_pool_layer_opts pool = {.rectangular = true, .kernel_width = 4, .padding_width = 1};
    t = open_trial(lk_layer_avg_pool(2, &pool));
    assert_same_bits(lk_model_forward(t.model, t.variables, t.x, NULL),
                     lk_avg_pool2d(t.x, &(lk_pool2d_opts){.kernel = {2, 4}, .stride = {2, 4}, .padding = {0, 1}}));
    close_trial(&t);
}

static void test_refuses(void **state)
{
    (void)state;
    assert_null(lk_layer_group_norm(0, NULL));
    assert_error(LK_ERR_ARGUMENT, "group_norm: number of groups is 0; it must be 1 to 16777216");
    assert_null(lk_layer_layer_norm(&(lk_norm_layer_opts){.epsilon = -1}));
    assert_error(LK_ERR_ARGUMENT, "layer_norm: epsilon is -1; it must be 1e-37 to 1e+37");
    assert_null(lk_model_build("test", lk_layer_group_norm(3, NULL), image));
    assert_error(LK_ERR_SHAPE, "test: group_norm: gets 4 channels; expected a multiple of its 3 groups");
    assert_null(lk_layer_scale(NAN));
    assert_error(LK_ERR_ARGUMENT, "scale: 'weight' starts with nan; it must be from -1e37 to 1e37");
    assert_null(lk_layer_drop_path(1));
    assert_error(LK_ERR_ARGUMENT, "drop_path: rate is 1; it must be at least 0 and below 1");
    assert_null(lk_layer_concat(lk_layer_identity(), NULL));
    assert_error(LK_ERR_ARGUMENT, "concat: layer 2 of 2 is NULL");
    assert_null(lk_model_build("test", lk_layer_concat(lk_layer_identity(), lk_layer_max_pool(2, NULL)), image));
    assert_error(LK_ERR_SHAPE, "the first layers give [1,4,6,8] and the second ones [1,4,3,4]; expected shapes that");
    assert_null(lk_model_build("test", lk_layer_concat(lk_layer_identity(), lk_layer_flatten()), image));
    assert_error(LK_ERR_SHAPE, "the first layers give [1,4,6,8] and the second ones [1,192]; expected shapes that");
    assert_null(lk_layer_conv2d(3, 3, &(lk_conv2d_layer_opts){.rectangular = true}));
    assert_error(LK_ERR_ARGUMENT, "conv2d: kernel is 0; it must be 1 to 4096");
    assert_null(lk_layer_conv2d(3, 3, &(lk_conv2d_layer_opts){.same = true, .rectangular = true, .kernel_width = 2}));
    assert_error(LK_ERR_ARGUMENT, "conv2d: kernel 2 is even; with same it must be odd");
    assert_null(
        lk_layer_max_pool(4, &(lk_pool_layer_opts){.rectangular = true, .kernel_width = 3, .padding_width = 2}));
    assert_error(LK_ERR_ARGUMENT, "max_pool: padding is 2; it must be 0 to 1");
    trial t = open_trial(lk_layer_drop_path(0.5));
    assert_null(lk_model_forward(t.model, t.variables, t.x, &(lk_forward_opts){.training = true}));
    assert_error(LK_ERR_ARGUMENT, "drop_path: drop_path needs to know which samples these are");
    close_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_norms_of_one_sample),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_drop_path),
        cmocka_unit_test(test_drop_path_gradient),
        cmocka_unit_test(test_rectangles),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
