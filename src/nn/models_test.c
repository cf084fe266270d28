/* The reference models: their variables, their initial values, and that gradients reach every parameter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/autograd.h"
#include "lockstep/nn.h"
#include "lockstep/ops.h"
#include "base/mem.h"
#include "core/shape.h"
#include "nn/model.h"
#include "nn/model_text.h"
#include "nn/nn_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS = 5 };

static const lk_model_input gray28 = {.channels = 1, .height = 28, .width = 28, .classes = 10};

static void test_parameter_counts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
        int batch_norms;
    } rows[] = {{"lenet", 129068, 0},
                {"keras-cnn", 347146, 0},
                {"resnet18", 11175818, 17},
                {"wrn-16-10", 17121962, 13},
                {"fast-cnn", 686314, 6}};
    for (int i = 0; i < MODELS; i++) {
        lk_model *model = lk_model_new(rows[i].name, gray28);
        assert_no_error(model != NULL);
        assert_string_equal(lk_model_name_at(i), rows[i].name);
        assert_int_equal(parameters_of(model), rows[i].parameters);
        assert_int_equal(lk_model_statistics_count(model), rows[i].batch_norms);
        assert_int_equal(lk_model_variable_count(model) - lk_model_parameter_count(model), 2 * rows[i].batch_norms);
        int64_t told = 0;
        for (int l = 0; l < lk_model_layer_count(model); l++)
            told += lk_model_layer(model, l).parameters;
        assert_int_equal(told, rows[i].parameters);
        lk_model_release(model);
    }
    assert_null(lk_model_name_at(MODELS));
    assert_null(lk_model_about_at(-1));
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"block2.1.conv1.weight", "block2.1.bn2.bias", "block2.1.conv3.bias",
                                        "block4.2.conv2.weight", "dense.bias",        "block3.1.bn1.running_var"};
    lk_model *model = lk_model_new("resnet18", gray28);
    assert_no_error(model != NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(variable_index(model, names[i]) >= 0);
    assert_int_equal(variable_index(model, "block1.1.conv3.weight"), -1);
    assert_string_equal(lk_model_variable_name(model, 0), "conv1.weight");
    lk_model_release(model);
}

/* LeNet's variables and values must not change: its runs must keep their bits. */
static void test_lenet_starts_as_ever(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        lk_shape shape;
        double std;
    } rows[] = {{"conv1.weight", {4, {20, 1, 3, 3}}, 0.01},  {"conv1.bias", {1, {20}}, 0},
                {"conv2.weight", {4, {50, 20, 5, 5}}, 0.01}, {"conv2.bias", {1, {50}}, 0},
                {"dense1.weight", {2, {800, 128}}, 0.01},    {"dense1.bias", {1, {128}}, 0},
                {"dense2.weight", {2, {128, 10}}, 0.01},     {"dense2.bias", {1, {10}}, 0}};
    lk_scope_begin();
    lk_device *device = lk_device_open("cpu:0");
    lk_model *model = lk_model_new("lenet", gray28);
    lk_tensor *variables[8];
    assert_int_equal(lk_model_variable_count(model), 8);
    assert_int_equal(lk_model_init(model, device, 7, variables), LK_OK);
    for (int i = 0; i < 8; i++) {
        lk_random_key key = {.seed = 7, .purpose = lk_random_purpose(rows[i].name)};
        lk_tensor *want = rows[i].std > 0 ? lk_normal(device, LK_F32, rows[i].shape, 0, rows[i].std, key)
                                          : lk_zeros(device, LK_F32, rows[i].shape);
        assert_string_equal(lk_model_variable_name(model, i), rows[i].name);
        assert_same_bits(variables[i], want);
    }
    lk_model_release(model);
    lk_scope_end();
    lk_device_release(device);
}

/* The smallest images that a model takes keep the test short. */
static const struct {
    const char *name;
    int64_t size;
} tiny[] = {{"lenet", 16}, {"keras-cnn", 6}, {"resnet18", 5}, {"wrn-16-10", 4}, {"fast-cnn", 8}};

static void test_gradient_reaches_every_parameter(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        lk_scope_begin();
        network net = open_network(tiny[m].name, (lk_model_input){1, tiny[m].size, tiny[m].size, 10});
        int n = lk_model_parameter_count(net.model);
        lk_tensor **gradients = calloc((size_t)n, sizeof *gradients);
        lk_tape *tape = lk_tape_begin(net.variables, n);
        lk_tensor *logits = lk_model_forward(net.model, net.variables, images(&net, 3),
                                             &(lk_forward_opts){.training = true, .indices = net.indices});
        assert_no_error(logits != NULL);
        assert_int_equal(lk_tensor_shape(logits).dim[0], 3);
        assert_int_equal(lk_tensor_shape(logits).dim[1], 10);
        lk_tensor *loss =
            lk_average_loss(lk_sparse_softmax_cross_entropy(logits, labels(&net, 3), LK_REDUCTION_NONE), 3);
        assert_no_error(lk_tape_gradient(tape, loss, NULL, gradients) == LK_OK);
        for (int i = 0; i < n; i++) {
            assert_non_null(gradients[i]);
            double largest = largest_of(gradients[i]);
            assert_true(isfinite(largest));
            /* A bias before a batch-norm has no effect except by rounding. */
            bool before_norm = strstr(lk_model_variable_name(net.model, i), "conv") &&
                               strstr(lk_model_variable_name(net.model, i), ".bias") &&
                               lk_model_has_batch_norm(net.model);
            if (!before_norm && largest == 0)
                fail_msg("%s: the gradient of %s is 0", tiny[m].name, lk_model_variable_name(net.model, i));
        }
        lk_tape_release(tape);
        free(gradients);
        close_network(&net);
        lk_scope_end();
    }
}

/* keras-cnn written with operators, from the tutorial. */
static void test_keras_cnn_by_operators(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_network("keras-cnn", (lk_model_input){1, 12, 12, 10});
    lk_tensor *x = images(&net, 4), *const *v = net.variables;
    lk_tensor *h = lk_relu(lk_conv2d(x, v[0], v[1], NULL));
    h = lk_flatten(lk_max_pool2d(h, &(lk_pool2d_opts){.kernel = {2, 2}}));
    h = lk_relu(lk_add(lk_matmul(h, v[2]), v[3]));
    lk_tensor *want = lk_add(lk_matmul(h, v[4]), v[5]);
    assert_same_bits(lk_model_forward(net.model, v, x, NULL), want);
    close_network(&net);
    lk_scope_end();
}

static lk_tensor *normalized(network *net, const char *layer, lk_tensor *x)
{
    return lk_batch_norm(x, named(net, layer, "weight"), named(net, layer, "bias"), 1e-5, NULL);
}

static lk_tensor *convolved(network *net, const char *layer, lk_tensor *x, int64_t stride, int64_t padding)
{
    return lk_conv2d(x, named(net, layer, "weight"), named(net, layer, "bias"),
                     &(lk_conv2d_opts){.stride = {stride, stride}, .padding = {padding, padding}});
}

static lk_tensor *residual(network *net, const char *path, lk_tensor *x, int64_t stride)
{
    char name[6][64];
    static const char *const parts[6] = {"conv1", "bn1", "conv2", "bn2", "conv3", ""};
    for (int i = 0; i < 6; i++)
        snprintf(name[i], sizeof name[i], "%s.%s", path, parts[i]);
    lk_tensor *y = lk_relu(normalized(net, name[1], convolved(net, name[0], x, stride, 1)));
    y = normalized(net, name[3], convolved(net, name[2], y, 1, 1));
    return lk_relu(lk_add(y, stride > 1 ? convolved(net, name[4], x, stride, 0) : x));
}

/* resnet18 written with operators, from d2l.Residual and the notebook. */
static void test_resnet18_by_operators(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_network("resnet18", (lk_model_input){1, 9, 9, 10});
    lk_tensor *x = images(&net, 2);
    lk_tensor *h = lk_relu(normalized(&net, "bn1", convolved(&net, "conv1", x, 1, 1)));
    for (int b = 1; b <= 4; b++) {
        for (int r = 1; r <= 2; r++) {
            char path[32];
            snprintf(path, sizeof path, "block%d.%d", b, r);
            h = residual(&net, path, h, b > 1 && r == 1 ? 2 : 1);
        }
    }
    h = lk_flatten(lk_global_avg_pool2d(h));
    lk_tensor *want = lk_add(lk_matmul(h, named(&net, "dense", "weight")), named(&net, "dense", "bias"));
    assert_same_bits(lk_model_forward(net.model, net.variables, x, &(lk_forward_opts){.training = true}), want);
    close_network(&net);
    lk_scope_end();
}

/* The floating-point operations that a model reports are those that its operators count. */
typedef struct counting {
    const network *net;
    double before;
    int row;
} counting;

static void count(void *user, const char *path, int shard, lk_tensor *y)
{
    (void)shard;
    counting *c = user;
    lk_layer_info info = lk_model_layer(c->net->model, c->row);
    double now = lk_device_flops(c->net->device);
    lk_shape shape = lk_tensor_shape(y);
    assert_string_equal(info.path, path);
    if (now - c->before != 2 * info.flops)
        fail_msg("%s %s: told %g flops, counted %g", lk_model_name(c->net->model), path, 2 * info.flops,
                 now - c->before);
    assert_int_equal(shape.ndim, info.output.ndim);
    for (int i = 1; i < shape.ndim; i++)
        assert_int_equal(shape.dim[i], info.output.dim[i]);
    c->before = now;
    c->row++;
}

static void test_told_flops_are_counted_flops(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        lk_scope_begin();
        network net = open_network(tiny[m].name, (lk_model_input){1, tiny[m].size, tiny[m].size, 10});
        lk_tensor *x = images(&net, 2);
        counting c = {.net = &net, .before = lk_device_flops(net.device)};
        lk_forward_opts opts = {.training = true, .indices = net.indices, .visit = count, .visit_user = &c};
        assert_no_error(lk_model_forward(net.model, net.variables, x, &opts) != NULL);
        assert_int_equal(c.row, lk_model_layer_count(net.model));
        close_network(&net);
        lk_scope_end();
    }
}

static void test_errors(void **state)
{
    (void)state;
    assert_null(lk_model_new("resnet81", gray28));
    assert_error(LK_ERR_ARGUMENT, "did you mean 'resnet18'?");
    assert_null(lk_model_new(NULL, gray28));
    assert_error(LK_ERR_ARGUMENT, "unknown model ''");
    assert_null(lk_model_new("lenet", (lk_model_input){1, 8, 8, 10}));
    assert_error(LK_ERR_SHAPE, "lenet: conv2: a kernel of 5 does not fit into H = 3");
    assert_null(lk_model_new("lenet", (lk_model_input){1, 28, 28, -1}));
    assert_error(LK_ERR_ARGUMENT, "number of classes is -1");
    assert_null(lk_model_new("lenet", (lk_model_input){0, 28, 28, 10}));
    assert_error(LK_ERR_ARGUMENT, "number of channels is 0");
}

/* ".lk" is a file of that name. */
static void test_names_of_files(void **state)
{
    static const char *const files[] = {"./lenet", "net.lk", ".lk"}, *const wrong[] = {"lenett", "lk", "", NULL};
    (void)state;
    assert_int_equal(lk_model_check("resnet18"), LK_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_int_equal(lk_model_check(files[i]), LK_ERR_IO);
        assert_error(LK_ERR_IO, "cannot be opened");
        assert_null(lk_model_new(files[i], gray28));
        assert_error(LK_ERR_IO, "cannot be opened");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(lk_model_check(wrong[i]), LK_ERR_ARGUMENT);
        assert_error(LK_ERR_ARGUMENT, "unknown model");
    }
    assert_null(lk_model_new("transformer", gray28));
    assert_error(LK_ERR_ARGUMENT, "unknown model 'transformer'; expected one of lenet, keras-cnn, resnet18, wrn-16-10, "
                                  "fast-cnn, or a file (*.lk)");
}

/* --- as text ------------------------------------------------------------------------------------------------------ */

/* Builds the network again from its text, and compares its text and all that names and initial values depend on. */
static void expect_text_of_same(const lk_model *model)
{
    assert_non_null(model->text);
    char *text;
    lk_model *again = lk__model_from_text("again.lk", model->text, model->input);
    assert_no_error(again != NULL);
    assert_int_equal(lk__model_text_make(again, &text), LK_OK);
    assert_string_equal(text, model->text);
    lk__free(text);
    assert_int_equal(again->n_variables, model->n_variables);
    for (int i = 0; i < model->n_variables; i++) {
        const lk_variable_spec *have = &again->variables[i], *want = &model->variables[i];
        assert_string_equal(have->name, want->name);
        assert_true(lk__shape_equal(have->shape, want->shape));
        assert_int_equal(have->init.kind, want->init.kind);
        assert_true(have->init.value == want->init.value);
        assert_int_equal(have->frozen, want->frozen);
    }
    assert_int_equal(lk_model_layer_count(again), lk_model_layer_count(model));
    for (int i = 0; i < lk_model_layer_count(model); i++) {
        lk_layer_info have = lk_model_layer(again, i), want = lk_model_layer(model, i);
        assert_string_equal(have.path, want.path);
        assert_string_equal(have.kind, want.kind);
        assert_true(lk__shape_equal(have.output, want.output));
        assert_true(have.flops == want.flops && have.bytes == want.bytes);
    }
    lk_model_release(again);
}

static void test_networks_in_c_have_a_text(void **state)
{
    (void)state;
    const lk_reference_model *const references[] = {&lk__model_lenet, &lk__model_keras_cnn, &lk__model_resnet18,
                                                    &lk__model_wrn_16_10, &lk__model_fast_cnn};
    for (int i = 0; i < MODELS; i++) {
        lk_model *model = lk_model_build("own", references[i]->make(gray28), gray28);
        assert_no_error(model != NULL);
        expect_text_of_same(model);
        lk_model_release(model);
    }
    const lk_init normal = {.kind = LK_INIT_NORMAL, .value = 0.1};
    const lk_conv2d_layer_opts conv = {.stride = 2, .padding = 1, .no_bias = true, .weight = normal};
    const lk_conv2d_layer_opts depthwise = {.padding = 2, .dilation = 2, .groups = 4};
    const lk_norm_layer_opts norm = {.epsilon = 1e-6};
    const lk_conv2d_layer_opts tall = {.same = true, .rectangular = true, .kernel_width = 1};
    const lk_pool_layer_opts wide = {.rectangular = true, .kernel_width = 3, .stride_width = 1, .padding_width = 1};
    const lk_init third = {.kind = LK_INIT_CONSTANT, .value = 1.0 / 3};
    const lk_dense_layer_opts dense = {.weight = {.kind = LK_INIT_HE_NORMAL}, .bias = third};
    lk_layer *net = lk_layer_named(
        "all",
        LK_SEQUENTIAL(lk_layer_named("first", lk_layer_conv2d(4, 3, &conv)),
                      lk_layer_batch_norm(&(lk_batch_norm_layer_opts){.epsilon = 1e-3, .momentum = 0.01}),
                      lk_layer_frozen(lk_layer_add(lk_layer_conv2d(4, 3, &depthwise), lk_layer_identity())),
                      lk_layer_frozen(lk_layer_batch_norm(NULL)),
                      lk_layer_multiply(lk_layer_identity(), lk_layer_global_avg_pool()),
                      lk_layer_named("gate", lk_layer_multiply(lk_layer_activation(LK_TANH), lk_layer_identity())),
                      lk_layer_add(lk_layer_activation(LK_TANH), lk_layer_identity()),
                      lk_layer_concat(lk_layer_scale(1e-6), lk_layer_drop_path(0.2)),
                      lk_layer_frozen(lk_layer_concat(lk_layer_group_norm(2, NULL), lk_layer_layer_norm(&norm))),
                      lk_layer_conv2d(4, 3, &tall), lk_layer_max_pool(1, &wide),
                      lk_layer_add(LK_SEQUENTIAL(lk_layer_activation(LK_GELU), lk_layer_activation(LK_GELU)),
                                   lk_layer_named("side", LK_SEQUENTIAL(lk_layer_activation(LK_LEAKY_RELU)))),
                      lk_layer_max_pool(3, &(lk_pool_layer_opts){.stride = 1, .padding = 1}),
                      lk_layer_avg_pool(2, NULL), lk_layer_flatten(), lk_layer_reshape(4, 7, 7), lk_layer_dropout(0.3),
                      lk_layer_global_max_pool(), lk_layer_dense(10, &dense)));
    lk_model *model = lk_model_build(NULL, net, gray28);
    assert_no_error(model != NULL);
    expect_text_of_same(model);
    lk_model_release(model);
}

/* Whatever a constructor takes, a model file takes. */
static void test_extreme_settings_have_a_text(void **state)
{
    (void)state;
    const double epsilons[] = {1e-37, 1e37}, momenta[] = {1e-37, 1}, initials[] = {-1e37, 1e37},
                 rates[] = {0, 1 - 0x1p-53};
    for (int i = 0; i < 2; i++) {
        const lk_norm_layer_opts norm = {.epsilon = epsilons[i]};
        const lk_batch_norm_layer_opts batch_norm = {.epsilon = epsilons[i], .momentum = momenta[i]};
        lk_layer *net =
            LK_SEQUENTIAL(lk_layer_conv2d(4, 3, NULL), lk_layer_batch_norm(&batch_norm), lk_layer_group_norm(2, &norm),
                          lk_layer_layer_norm(&norm), lk_layer_scale(initials[i]), lk_layer_dropout(rates[i]),
                          lk_layer_drop_path(rates[i]), lk_layer_flatten(), lk_layer_dense(10, NULL));
        lk_model *model = lk_model_build("extreme", net, gray28);
        assert_no_error(model != NULL);
        expect_text_of_same(model);
        lk_model_release(model);
    }
}

static lk_tensor *forward_own(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call, (void)config;
    return lk_relu(x);
}

/* No model file describes it: not its layer, or not so deep a network. */
static void test_some_networks_have_no_text(void **state)
{
    (void)state;
    static const lk_layer_table table = {.kind = "relu", .forward = forward_own};
    lk_layer *deep = lk_layer_activation(LK_RELU);
    lk_model *model = lk_model_build(
        "own", LK_SEQUENTIAL(lk_layer_new(&table, NULL, 0, NULL, 0), lk_layer_flatten(), lk_layer_dense(10, NULL)),
        gray28);
    assert_no_error(model != NULL);
    assert_null(model->text);
    lk_model_release(model);
    for (int i = 0; i < 40; i++)
        deep = lk_layer_named("block", LK_SEQUENTIAL(deep));
    model = lk_model_build("deep", LK_SEQUENTIAL(deep, lk_layer_flatten(), lk_layer_dense(10, NULL)), gray28);
    assert_no_error(model != NULL);
    assert_null(model->text);
    lk_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_lenet_starts_as_ever),
        cmocka_unit_test(test_gradient_reaches_every_parameter),
        cmocka_unit_test(test_keras_cnn_by_operators),
        cmocka_unit_test(test_resnet18_by_operators),
        cmocka_unit_test(test_told_flops_are_counted_flops),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_names_of_files),
        cmocka_unit_test(test_networks_in_c_have_a_text),
        cmocka_unit_test(test_extreme_settings_have_a_text),
        cmocka_unit_test(test_some_networks_have_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
