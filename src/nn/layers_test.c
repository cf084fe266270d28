/* Layers: shapes, names, errors, nesting, user-defined layers, initializers, dropout and batch normalization. */
#include "base/mem_testing.h"
#include "lockstep/autograd.h"
#include "nn/nn_testing.h"

static const lk_model_input image = {.channels = 3, .height = 8, .width = 8, .classes = 0};

static lk_shape built_shape(lk_layer *layer)
{
    lk_model *model = lk_model_build("test", layer, image);
    assert_no_error(model != NULL);
    lk_shape shape = lk_model_layer(model, lk_model_layer_count(model) - 1).output;
    lk_model_release(model);
    return shape;
}

static void assert_shape(lk_shape have, lk_shape want)
{
    assert_int_equal(have.ndim, want.ndim);
    for (int i = 0; i < want.ndim; i++)
        assert_int_equal(have.dim[i], want.dim[i]);
}

/* --- shapes and names --------------------------------------------------------------------------------------------- */

static void test_shapes(void **state)
{
    (void)state;
    assert_shape(built_shape(lk_layer_conv2d(5, 3, NULL)), LK_SHAPE(1, 5, 6, 6));
    assert_shape(built_shape(lk_layer_conv2d(5, 3, &(lk_conv2d_layer_opts){.same = true})), LK_SHAPE(1, 5, 8, 8));
    assert_shape(built_shape(lk_layer_conv2d(5, 3, &(lk_conv2d_layer_opts){.stride = 2, .padding = 1})),
                 LK_SHAPE(1, 5, 4, 4));
    assert_shape(built_shape(lk_layer_conv2d(6, 3, &(lk_conv2d_layer_opts){.groups = 3, .dilation = 2})),
                 LK_SHAPE(1, 6, 4, 4));
    assert_shape(built_shape(lk_layer_conv2d(6, 3, &(lk_conv2d_layer_opts){.same = true, .dilation = 3})),
                 LK_SHAPE(1, 6, 8, 8));
    assert_shape(built_shape(lk_layer_multiply(lk_layer_identity(), lk_layer_global_avg_pool())), LK_SHAPE(1, 3, 8, 8));
    assert_shape(built_shape(lk_layer_multiply(lk_layer_flatten(), lk_layer_flatten())), LK_SHAPE(1, 192));
    assert_shape(built_shape(lk_layer_max_pool(3, NULL)), LK_SHAPE(1, 3, 2, 2));
    assert_shape(built_shape(lk_layer_avg_pool(3, &(lk_pool_layer_opts){.stride = 1, .padding = 1})),
                 LK_SHAPE(1, 3, 8, 8));
    assert_shape(built_shape(lk_layer_global_avg_pool()), LK_SHAPE(1, 3));
    assert_shape(built_shape(lk_layer_global_max_pool()), LK_SHAPE(1, 3));
    assert_shape(built_shape(lk_layer_flatten()), LK_SHAPE(1, 192));
    assert_shape(built_shape(LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_dense(7, NULL))), LK_SHAPE(1, 7));
    assert_shape(built_shape(lk_layer_reshape(12, 4, 4)), LK_SHAPE(1, 12, 4, 4));
    assert_shape(built_shape(lk_layer_dropout(0.5)), LK_SHAPE(1, 3, 8, 8));
    assert_shape(built_shape(lk_layer_batch_norm(NULL)), LK_SHAPE(1, 3, 8, 8));
}

static void test_names_follow_the_tree(void **state)
{
    (void)state;
    static const char *const names[] = {"conv2d.weight", "conv2d2.weight", "b.conv2d.weight",
                                        "b.add.weight",  "b.in.c.weight",  "conv2d3.weight"};
    const lk_conv2d_layer_opts plain = {.no_bias = true, .same = true};
    lk_layer *named = lk_layer_named(
        "b",
        lk_layer_add(LK_SEQUENTIAL(lk_layer_conv2d(3, 1, &plain), lk_layer_named("add", lk_layer_conv2d(3, 1, &plain))),
                     lk_layer_named("in", LK_SEQUENTIAL(lk_layer_named("c", lk_layer_conv2d(3, 1, &plain))))));
    lk_model *model = lk_model_build("test",
                                     LK_SEQUENTIAL(lk_layer_conv2d(3, 1, &plain),
                                                   LK_SEQUENTIAL(LK_SEQUENTIAL(lk_layer_conv2d(3, 1, &plain))), named,
                                                   lk_layer_conv2d(3, 1, &plain), lk_layer_identity()),
                                     image);
    assert_no_error(model != NULL);
    assert_int_equal(lk_model_variable_count(model), 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(lk_model_variable_name(model, i), names[i]);
    lk_model_release(model);
}

static void test_buffers_come_last(void **state)
{
    (void)state;
    lk_model *model =
        lk_model_build("test", LK_SEQUENTIAL(lk_layer_batch_norm(NULL), lk_layer_batch_norm(NULL)), image);
    static const char *const names[] = {"batch_norm.weight",        "batch_norm.bias",         "batch_norm2.weight",
                                        "batch_norm2.bias",         "batch_norm.running_mean", "batch_norm.running_var",
                                        "batch_norm2.running_mean", "batch_norm2.running_var"};
    assert_int_equal(lk_model_parameter_count(model), 4);
    assert_int_equal(lk_model_variable_count(model), 8);
    assert_true(lk_model_has_batch_norm(model));
    for (int i = 0; i < 8; i++)
        assert_string_equal(lk_model_variable_name(model, i), names[i]);
    lk_model_release(model);
}

/* An output is kept if any backward reads it: here 16 numbers per image and channel, 64 bytes per channel. */
static void test_kept_bytes(void **state)
{
    (void)state;
    const lk_conv2d_layer_opts same = {.same = true};
    lk_layer *body = LK_SEQUENTIAL(lk_layer_conv2d(2, 3, &same), lk_layer_activation(LK_GELU), lk_layer_dropout(0.5));
    lk_model *model = lk_model_build(
        "test",
        LK_SEQUENTIAL(lk_layer_conv2d(2, 3, &same), lk_layer_batch_norm(NULL), lk_layer_activation(LK_RELU),
                      lk_layer_avg_pool(1, NULL), lk_layer_add(body, lk_layer_conv2d(2, 1, NULL)),
                      lk_layer_max_pool(2, NULL), lk_layer_flatten(), lk_layer_dense(3, NULL)),
        (lk_model_input){1, 4, 4, 3});
    static const struct {
        const char *path;
        int64_t bytes;
    } rows[] = {{"conv2d", 128}, {"batch_norm", 0}, {"relu", 128}, {"avg_pool", 128}, {"conv2d2", 128}, {"gelu", 128},
                {"dropout", 0},  {"conv2d3", 0},    {"add", 0},    {"max_pool", 64},  {"flatten", 0},   {"dense", 0}};
    assert_no_error(model != NULL);
    for (int i = 0; i < lk_model_layer_count(model); i++) {
        assert_string_equal(lk_model_layer(model, i).path, rows[i].path);
        assert_int_equal(lk_model_layer(model, i).bytes, rows[i].bytes);
    }
    lk_model_release(model);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void test_constructors_refuse(void **state)
{
    (void)state;
    assert_null(lk_layer_conv2d(0, 3, NULL));
    assert_error(LK_ERR_ARGUMENT, "conv2d: number of filters is 0; it must be 1 to");
    assert_null(lk_layer_conv2d(1, 2, &(lk_conv2d_layer_opts){.same = true}));
    assert_error(LK_ERR_ARGUMENT, "kernel 2 is even; with same it must be odd");
    assert_null(lk_layer_conv2d(1, 3, &(lk_conv2d_layer_opts){.same = true, .padding = 1}));
    assert_error(LK_ERR_ARGUMENT, "padding 1 and same");
    assert_null(lk_layer_conv2d(1, 3, &(lk_conv2d_layer_opts){.weight = {LK_INIT_NORMAL, -1}}));
    assert_error(LK_ERR_ARGUMENT, "conv2d: 'weight' starts with a standard deviation of -1");
    assert_null(lk_layer_conv2d(4, 3, &(lk_conv2d_layer_opts){.groups = 3}));
    assert_error(LK_ERR_ARGUMENT, "conv2d: 4 filters; they must be a multiple of the 3 groups");
    assert_null(lk_layer_conv2d(4, 3, &(lk_conv2d_layer_opts){.groups = -1}));
    assert_error(LK_ERR_ARGUMENT, "conv2d: number of groups is -1");
    assert_null(lk_layer_conv2d(4, 3, &(lk_conv2d_layer_opts){.dilation = -1}));
    assert_error(LK_ERR_ARGUMENT, "conv2d: dilation is -1");
    assert_null(lk_model_build("test", lk_layer_conv2d(4, 1, &(lk_conv2d_layer_opts){.groups = 2}), image));
    assert_error(LK_ERR_SHAPE, "gets 3 channels; expected a multiple of its 2 groups");
    assert_null(lk_model_build("test", lk_layer_conv2d(4, 4, &(lk_conv2d_layer_opts){.dilation = 3}), image));
    assert_error(LK_ERR_SHAPE, "a kernel of 4 with dilation 3 spans 10 pixels, more than H = 8");
    assert_null(lk_layer_dense(-1, NULL));
    assert_error(LK_ERR_ARGUMENT, "dense: number of units is -1");
    assert_null(lk_layer_dropout(1));
    assert_error(LK_ERR_ARGUMENT, "dropout: rate is 1");
    assert_null(lk_layer_dropout((double)NAN));
    assert_error(LK_ERR_ARGUMENT, "dropout: rate is");
    assert_null(lk_layer_batch_norm(&(lk_batch_norm_layer_opts){.momentum = 2}));
    assert_error(LK_ERR_ARGUMENT, "batch_norm: momentum is 2");
    assert_null(lk_layer_batch_norm(&(lk_batch_norm_layer_opts){.epsilon = -1}));
    assert_error(LK_ERR_ARGUMENT, "batch_norm: epsilon is -1");
    assert_null(lk_layer_activation(LK_ACTIVATION_COUNT));
    assert_error(LK_ERR_ARGUMENT, "activation: 8 does not exist");
    assert_null(lk_layer_max_pool(2, &(lk_pool_layer_opts){.padding = 2}));
    assert_error(LK_ERR_ARGUMENT, "max_pool: padding is 2; it must be 0 to 1");
    assert_null(lk_layer_named("a.b", lk_layer_flatten()));
    assert_error(LK_ERR_ARGUMENT, "flatten: the name 'a.b' must be of letters");
    lk_layer_release(NULL);
}

/* If several nested constructors fail, the first error is reported, and nothing leaks. */
static void test_failures_nest(void **state)
{
    (void)state;
    assert_null(
        LK_SEQUENTIAL(lk_layer_flatten(),
                      lk_layer_add(LK_SEQUENTIAL(lk_layer_dense(4, NULL), lk_layer_dropout(2)), lk_layer_identity()),
                      lk_layer_flatten()));
    assert_error(LK_ERR_ARGUMENT, "dropout: rate is 2");
    assert_null(lk_model_build("test", NULL, image));
    assert_error(LK_ERR_ARGUMENT, "test: there is no layer");
}

static void test_a_layer_has_one_place(void **state)
{
    (void)state;
    lk_layer *twice = lk_layer_flatten();
    assert_null(LK_SEQUENTIAL(twice, twice));
    assert_error(LK_ERR_ARGUMENT, "sequential: layer 2 of 2 is part of a network already");
    lk_layer *child = lk_layer_flatten(), *parent = LK_SEQUENTIAL(child);
    assert_null(LK_SEQUENTIAL(child));
    assert_error(LK_ERR_ARGUMENT, "part of a network already");
    assert_null(lk_model_build("test", child, image));
    assert_error(LK_ERR_ARGUMENT, "test: the layer is part of a network already");
    assert_null(lk_layer_named("bad name", child));
    assert_error(LK_ERR_ARGUMENT, "the name 'bad name' must be of letters");
    lk_layer_release(parent);
}

static void test_builds_refuse(void **state)
{
    (void)state;
    const lk_model_input ten = {3, 8, 8, 10};
    assert_null(lk_model_build("net", lk_layer_dense(3, NULL), image));
    assert_error(LK_ERR_SHAPE, "net: dense: gets [1,3,8,8]; expected [N, K]: put a flatten");
    assert_null(lk_model_build("net", lk_layer_add(lk_layer_conv2d(3, 3, NULL), lk_layer_identity()), image));
    assert_error(LK_ERR_SHAPE, "net: add: the body gives [1,3,6,6] and the shortcut [1,3,8,8]");
    assert_null(lk_model_build("net", lk_layer_conv2d(3, 9, NULL), image));
    assert_error(LK_ERR_SHAPE, "net: conv2d: a kernel of 9 does not fit into H = 8");
    assert_null(lk_model_build("net", LK_SEQUENTIAL(lk_layer_flatten()), ten));
    assert_error(LK_ERR_SHAPE, "net: flatten: the output is [1,192]; expected [N,10]");
    assert_null(lk_model_build(
        "net", LK_SEQUENTIAL(lk_layer_named("a", lk_layer_flatten()), lk_layer_named("a", lk_layer_flatten())), image));
    assert_error(LK_ERR_ARGUMENT, "net: a: the name 'a' is used twice");
    lk_layer *deep = lk_layer_flatten();
    for (int i = 0; i < 100; i++)
        deep = LK_SEQUENTIAL(deep);
    assert_null(lk_model_build("net", deep, image));
    assert_error(LK_ERR_ARGUMENT, "layers are nested more than 96 deep");
}

static void test_forward_refuses(void **state)
{
    (void)state;
    lk_scope_begin();
    network net =
        open_layers(LK_SEQUENTIAL(lk_layer_named("drop", lk_layer_dropout(0.5)), lk_layer_batch_norm(NULL)), image);
    lk_tensor *x = images(&net, 2), *y;
    assert_null(lk_model_forward(net.model, net.variables, lk_flatten(x), NULL));
    assert_error(LK_ERR_SHAPE, "test: images [2,192]; they must be [N,3,8,8]");
    assert_null(lk_model_forward(net.model, net.variables, NULL, NULL));
    assert_error(LK_ERR_ARGUMENT, "test: the images are NULL");
    assert_null(lk_model_forward(net.model, net.variables, x, &(lk_forward_opts){.training = true}));
    assert_error(LK_ERR_ARGUMENT, "drop: dropout needs to know which samples these are");
    assert_int_equal(lk_model_forward_shards(net.model, 0, NULL, NULL, NULL, &y), LK_ERR_ARGUMENT);
    assert_error(LK_ERR_ARGUMENT, "test: 0 shards");
    net.variables[0] = NULL;
    assert_null(lk_model_forward(net.model, net.variables, x, NULL));
    assert_error(LK_ERR_ARGUMENT, "variable 'batch_norm.weight' is NULL");
    close_network(&net);
    lk_scope_end();
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

static void count_visits(void *user, const char *path, int shard, lk_tensor *y)
{
    (void)path;
    (void)shard;
    (void)y;
    ++*(int *)user;
}

/* Each layer computes what its operator does, and reports as many floating-point operations. */
static void test_activations(void **state)
{
    (void)state;
    for (int a = 0; a < LK_ACTIVATION_COUNT; a++) {
        lk_scope_begin();
        network net = open_layers(lk_layer_activation((lk_activation)a), image);
        lk_tensor *x = lk_add_scalar(lk_mul_scalar(images(&net, 2), 8), -4);
        lk_tensor *want[LK_ACTIVATION_COUNT] = {
            lk_relu(x), lk_leaky_relu(x, 0.2), lk_elu(x, 1), lk_sigmoid(x), lk_tanh(x), lk_silu(x),
            lk_gelu(x), lk_softplus(x)};
        int visits = 0;
        double before = lk_device_flops(net.device);
        lk_tensor *y =
            lk_model_forward(net.model, NULL, x, &(lk_forward_opts){.visit = count_visits, .visit_user = &visits});
        assert_true(lk_device_flops(net.device) - before == 2 * lk_model_layer(net.model, 0).flops);
        assert_int_equal(visits, 1);
        assert_same_bits(y, want[a]);
        close_network(&net);
        lk_scope_end();
    }
}

static void test_pools_and_reshapes(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(LK_SEQUENTIAL(lk_layer_avg_pool(3, &(lk_pool_layer_opts){.stride = 2, .padding = 1}),
                                            lk_layer_flatten(), lk_layer_reshape(12, 2, 2), lk_layer_global_max_pool()),
                              image);
    lk_tensor *x = images(&net, 2);
    lk_tensor *h = lk_avg_pool2d(x, &(lk_pool2d_opts){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    h = lk_flatten(lk_global_max_pool2d(lk_reshape(h, LK_SHAPE(2, 12, 2, 2))));
    assert_same_bits(lk_model_forward(net.model, NULL, x, NULL), h);
    close_network(&net);
    lk_scope_end();
}

static void test_residual(void **state)
{
    (void)state;
    lk_scope_begin();
    const lk_conv2d_layer_opts same = {.same = true};
    network net = open_layers(
        LK_SEQUENTIAL(lk_layer_add(lk_layer_conv2d(3, 3, &same), lk_layer_identity()), lk_layer_activation(LK_RELU)),
        image);
    lk_tensor *x = images(&net, 2);
    lk_tensor *conv = lk_conv2d(x, net.variables[0], net.variables[1], &(lk_conv2d_opts){.padding = {1, 1}});
    assert_same_bits(lk_model_forward(net.model, net.variables, x, NULL), lk_relu(lk_add(conv, x)));
    close_network(&net);
    lk_scope_end();
}

/* --- user-defined layers ------------------------------------------------------------------------------------------ */

typedef struct scale_config {
    double start;
    int *released;
} scale_config;

static lk_status scale_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    const scale_config *c = config;
    (void)out;
    if (in.ndim != 4)
        return lk_layer_fail(builder, LK_ERR_SHAPE, "scales images, not %d axes", in.ndim);
    return lk_layer_parameter(builder, "factor", LK_SHAPE(1), (lk_init){LK_INIT_NORMAL, c->start}, 1, 1);
}

static lk_tensor *scale_forward(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)config;
    return lk_mul(x, lk_layer_call_variable(call, 0, 0));
}

static void scale_release(void *config)
{
    ++*((scale_config *)config)->released;
}

static const lk_layer_table scale_table = {
    .kind = "scale", .build = scale_build, .forward = scale_forward, .release = scale_release};

/* Runs the children on the same input and joins their channels. */
static lk_status branches_build(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    lk_shape shape;
    *out = in;
    out->dim[1] = 0;
    for (int i = 0; i < *(const int *)config; i++) {
        lk_status status = lk_layer_build_child(builder, i, in, &shape);
        if (status != LK_OK)
            return status;
        out->dim[1] += shape.dim[1];
    }
    return LK_OK;
}

static lk_status branches_forward(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    enum { MOST = 4 };
    int children = *(const int *)config, shards = lk_layer_call_shards(call);
    lk_tensor *parts[MOST][MOST];
    for (int i = 0; i < children; i++) {
        lk_status status = lk_layer_call_child(call, i, x, parts[i]);
        if (status != LK_OK)
            return status;
    }
    for (int s = 0; s < shards; s++) {
        lk_tensor *of_shard[MOST];
        for (int i = 0; i < children; i++)
            of_shard[i] = parts[i][s];
        y[s] = lk_concat(of_shard, children, 1);
    }
    return LK_OK;
}

static const lk_layer_table branches_table = {
    .kind = "branches", .build = branches_build, .forward_shards = branches_forward};

static lk_layer *scale(double start, int *released)
{
    return lk_layer_new(&scale_table, &(scale_config){start, released}, sizeof(scale_config), NULL, 0);
}

static void test_own_layers(void **state)
{
    (void)state;
    int released = 0, two = 2;
    lk_scope_begin();
    lk_layer *root = lk_layer_new(&branches_table, &two, sizeof two,
                                  (lk_layer *const[]){scale(1, &released), scale(2, &released)}, 2);
    network net = open_layers(LK_SEQUENTIAL(root, lk_layer_global_avg_pool()), image);
    lk_tensor *x[2] = {images(&net, 2), lk_mul_scalar(images(&net, 1), 2)}, *y[2];
    lk_tensor *const *variables[2] = {net.variables, net.variables};
    assert_string_equal(lk_model_variable_name(net.model, 1), "branches.scale2.factor");
    assert_shape(lk_model_layer(net.model, 2).output, LK_SHAPE(1, 6, 8, 8));
    assert_no_error(lk_model_forward_shards(net.model, 2, variables, x, NULL, y) == LK_OK);
    for (int s = 0; s < 2; s++) {
        lk_tensor *parts[2] = {lk_mul(x[s], net.variables[0]), lk_mul(x[s], net.variables[1])};
        assert_same_bits(y[s], lk_flatten(lk_global_avg_pool2d(lk_concat(parts, 2, 1))));
    }
    close_network(&net);
    lk_scope_end();
    assert_int_equal(released, 2);
}

static lk_status silent_failure(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)builder;
    (void)config;
    (void)in;
    (void)out;
    return LK_ERR_SHAPE;
}

static lk_status no_children(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)config;
    *out = in;
    return lk_layer_buffer(builder, "b", LK_SHAPE(1), (lk_init){LK_INIT_DEFAULT, 0});
}

static lk_tensor *gives_nothing(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)config;
    (void)x;
    return lk_layer_call_training(call) ? lk_layer_call_variable(call, 0, 1) : NULL;
}

static lk_status fails_silently(lk_layer_call *call, const void *config, lk_tensor *const *x, lk_tensor **y)
{
    (void)call, (void)config, (void)x, (void)y;
    return LK_ERR_UNSUPPORTED;
}

static void test_own_layers_that_are_wrong(void **state)
{
    (void)state;
    int released = 0;
    const lk_layer_table silent = {.kind = "silent", .build = silent_failure, .forward = gives_nothing};
    const lk_layer_table careless = {.kind = "careless", .build = no_children, .forward = gives_nothing};
    assert_null(lk_model_build("net", LK_SEQUENTIAL(lk_layer_flatten(), scale(1, &released)), image));
    assert_error(LK_ERR_SHAPE, "net: scale: scales images, not 2 axes");
    assert_int_equal(released, 1);
    assert_null(lk_model_build("net", lk_layer_new(&silent, NULL, 0, NULL, 0), image));
    assert_error(LK_ERR_SHAPE, "net: silent: could not be built: shape mismatch");
    assert_null(lk_layer_new(&(lk_layer_table){.kind = "empty"}, NULL, 0, (lk_layer *const[]){lk_layer_flatten()}, 1));
    assert_error(LK_ERR_ARGUMENT, "empty: the table must have one of forward and forward_shards");
    assert_null(
        lk_model_build("net", lk_layer_new(&careless, NULL, 0, (lk_layer *const[]){lk_layer_flatten()}, 1), image));
    assert_error(LK_ERR_STATE, "net: careless: child 0 was not built");
    lk_scope_begin();
    network net = open_layers(lk_layer_new(&careless, NULL, 0, NULL, 0), image);
    assert_null(lk_model_forward(net.model, net.variables, images(&net, 1), NULL));
    assert_error(LK_ERR_ARGUMENT, "careless: its forward pass gave nothing");
    assert_null(lk_model_forward(net.model, net.variables, images(&net, 1), &(lk_forward_opts){.training = true}));
    assert_error(LK_ERR_ARGUMENT, "careless: there is no variable 1 of shard 0; it has 1");
    close_network(&net);
    const lk_layer_table wordless = {.kind = "failing", .forward_shards = fails_silently};
    net = open_layers(lk_layer_new(&wordless, NULL, 0, NULL, 0), image);
    assert_null(lk_model_forward(net.model, net.variables, images(&net, 1), NULL));
    assert_error(LK_ERR_UNSUPPORTED, "failing: its forward pass failed: ");
    close_network(&net);
    lk_scope_end();
}

/* --- initial values ----------------------------------------------------------------------------------------------- */

static void moments(lk_tensor *tensor, double *mean, double *std, double *largest)
{
    float *x = values_of(tensor);
    double n = (double)lk_tensor_count(tensor), sum = 0, squares = 0;
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        sum += x[i], squares += (double)x[i] * x[i];
    *mean = sum / n;
    *std = sqrt(squares / n - *mean * *mean);
    *largest = largest_of(tensor);
    free(x);
}

/* conv 3x3 from 3 to 64 channels: fan_in 27, fan_out 576. 1,728 numbers give the deviation to within 2%. */
static void test_initializers(void **state)
{
    (void)state;
    const double glorot = sqrt(6.0 / (27 + 576)), torch = 1 / sqrt(27.0), infinite = (double)INFINITY;
    const struct {
        lk_init init;
        double std, bound;
    } rows[] = {{{LK_INIT_DEFAULT, 0}, glorot / sqrt(3.0), glorot},
                {{LK_INIT_GLOROT_UNIFORM, 0}, glorot / sqrt(3.0), glorot},
                {{LK_INIT_TORCH_UNIFORM, 0}, torch / sqrt(3.0), torch},
                {{LK_INIT_HE_NORMAL, 0}, sqrt(2.0 / 27), infinite},
                {{LK_INIT_NORMAL, 0.01}, 0.01, infinite},
                {{LK_INIT_NORMAL, 0}, 0, 0},
                {{LK_INIT_ZEROS, 0}, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double mean, std, largest;
        lk_scope_begin();
        network net = open_layers(lk_layer_conv2d(64, 3, &(lk_conv2d_layer_opts){.weight = rows[i].init}), image);
        moments(net.variables[0], &mean, &std, &largest);
        assert_true(fabs(mean) <= 0.1 * rows[i].std);
        assert_true(fabs(std - rows[i].std) <= 0.08 * rows[i].std);
        assert_true(largest <= rows[i].bound && (rows[i].bound == infinite || largest >= 0.98 * rows[i].bound));
        assert_true(largest_of(net.variables[1]) == 0);
        close_network(&net);
        lk_scope_end();
    }
}

/* dense 784 → 100 with a bias by PyTorch's default: in (-1/28, 1/28). */
static void test_initializers_of_dense(void **state)
{
    (void)state;
    lk_scope_begin();
    const lk_init torch = {.kind = LK_INIT_TORCH_UNIFORM};
    network net = open_layers(
        LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_dense(100, &(lk_dense_layer_opts){.weight = torch, .bias = torch})),
        (lk_model_input){1, 28, 28, 100});
    for (int i = 0; i < 2; i++) {
        double largest = largest_of(net.variables[i]);
        assert_true(largest <= 1 / 28.0 && largest > 0.9 / 28);
    }
    lk_tensor *again[2];
    assert_no_error(lk_model_init(net.model, net.device, 1, again) == LK_OK);
    assert_same_bits(net.variables[0], again[0]);
    assert_no_error(lk_model_init(net.model, net.device, 2, again) == LK_OK);
    float *a = values_of(net.variables[0]), *b = values_of(again[0]);
    assert_memory_not_equal(a, b, 784 * sizeof *a);
    free(a);
    free(b);
    close_network(&net);
    lk_scope_end();
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

static void test_dropout(void **state)
{
    (void)state;
    lk_scope_begin();
    network net =
        open_layers(LK_SEQUENTIAL(lk_layer_dropout(0.25), lk_layer_named("second", lk_layer_dropout(0.5))), image);
    lk_tensor *x = images(&net, 4);
    lk_forward_opts opts = {.training = true, .seed = 9, .step = 3, .indices = net.indices};
    lk_random_key first = {.seed = 9, .purpose = lk_random_purpose("dropout"), .epoch = 3}, second = first;
    second.purpose = lk_random_purpose("second");
    lk_tensor *want = lk_dropout(lk_dropout(x, net.indices[0], 0.25, first), net.indices[0], 0.5, second);
    assert_same_bits(lk_model_forward(net.model, NULL, x, &opts), want);
    assert_same_bits(lk_model_forward(net.model, NULL, x, NULL), x);
    opts.step = 4;
    float *a = values_of(lk_model_forward(net.model, NULL, x, &opts)), *b = values_of(want);
    assert_memory_not_equal(a, b, 192 * sizeof *a);
    free(a);
    free(b);
    close_network(&net);
    lk_scope_end();
}

/* --- batch normalization ------------------------------------------------------------------------------------------ */

static lk_status sum_of_two(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    ++*(int *)user;
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++)
        sums[i] = lk_add(parts[0], parts[1]);
    return sums[1] ? LK_OK : lk_error_status();
}

static lk_layer *normalized_net(void)
{
    return LK_SEQUENTIAL(lk_layer_conv2d(4, 3, NULL), lk_layer_batch_norm(NULL), lk_layer_activation(LK_TANH),
                         lk_layer_conv2d(5, 3, NULL), lk_layer_batch_norm(NULL), lk_layer_activation(LK_RELU),
                         lk_layer_global_avg_pool(), lk_layer_dense(3, NULL));
}

/* Gradients of the mean loss over six samples, with labels 0 0 0 0 1 1, as two shards with statistics over all six. */
static void pass_of_two(network *net, lk_tensor *x, lk_tensor **gradients, lk_tensor **sums)
{
    int syncs = 0, n = lk_model_parameter_count(net->model);
    lk_tensor *parts[2] = {lk_slice(x, 0, 0, 4), lk_slice(x, 0, 4, 6)}, *logits[2], *losses[2], *statistics[4];
    lk_tensor *const *variables[2] = {net->variables, net->variables};
    const int64_t samples[2] = {6, 6};
    const lk_forward_opts opts = {
        .training = true, .statistics = statistics, .sync = sum_of_two, .sync_user = &syncs, .group_samples = samples};
    lk_tape *tape = lk_tape_begin(net->variables, n);
    assert_no_error(lk_model_forward_shards(net->model, 2, variables, parts, &opts, logits) == LK_OK);
    for (int s = 0; s < 2; s++) {
        lk_tensor *wanted = lk_full(net->device, LK_I32, LK_SHAPE(s == 0 ? 4 : 2), s);
        losses[s] = lk_average_loss(lk_sparse_softmax_cross_entropy(logits[s], wanted, LK_REDUCTION_NONE), 6);
    }
    assert_no_error(lk_tape_gradient(tape, lk_add(losses[0], losses[1]), NULL, gradients) == LK_OK);
    lk_tape_release(tape);
    assert_int_equal(syncs, 2);
    for (int i = 0; i < 2; i++)
        sums[i] = lk_add(statistics[i], statistics[2 + i]);
}

/* The same as one shard. */
static void pass_of_one(network *net, lk_tensor *x, lk_tensor **gradients, lk_tensor **sums)
{
    const int32_t wanted[6] = {0, 0, 0, 0, 1, 1};
    lk_tape *tape = lk_tape_begin(net->variables, lk_model_parameter_count(net->model));
    lk_tensor *logits =
        lk_model_forward(net->model, net->variables, x, &(lk_forward_opts){.training = true, .statistics = sums});
    lk_tensor *of_each = lk_sparse_softmax_cross_entropy(
        logits, lk_tensor_from(net->device, LK_I32, LK_SHAPE(6), wanted), LK_REDUCTION_NONE);
    assert_no_error(lk_tape_gradient(tape, lk_average_loss(of_each, 6), NULL, gradients) == LK_OK);
    lk_tape_release(tape);
}

static void test_sync_is_one_big_shard(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(normalized_net(), (lk_model_input){3, 8, 8, 3});
    lk_tensor *x = images(&net, 6), *two[16], *one[16], *sums_of_two[2], *sums_of_one[2];
    pass_of_two(&net, x, two, sums_of_two);
    pass_of_one(&net, x, one, sums_of_one);
    for (int i = 0; i < lk_model_parameter_count(net.model); i++) {
        const char *name = lk_model_variable_name(net.model, i);
        bool before_norm = strncmp(name, "conv", 4) == 0 && strstr(name, ".bias"); /* 0 up to rounding */
        if (!before_norm)
            assert_close(two[i], one[i], 1e-4);
    }
    for (int i = 0; i < 2; i++)
        assert_close(lk_cast(sums_of_two[i], LK_F32), lk_cast(sums_of_one[i], LK_F32), 1e-6);
    close_network(&net);
    lk_scope_end();
}

/* After an update with momentum 0.1 the running statistics have moved a tenth of the way to the batch's, and inference
 * uses them. */
static void test_running_statistics(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(lk_layer_batch_norm(NULL), image);
    lk_tensor *x = images(&net, 6), *sums[1];
    lk_forward_opts opts = {.training = true, .statistics = sums};
    assert_no_error(lk_model_forward(net.model, net.variables, x, &opts) != NULL);
    lk_tensor *mean = lk_mean(x, &(lk_reduce_opts){.n_axes = 3, .axes = {0, 2, 3}, .keepdim = true});
    lk_tensor *off = lk_sub(x, mean);
    lk_tensor *variance =
        lk_mul_scalar(lk_sum(lk_mul(off, off), &(lk_reduce_opts){.n_axes = 3, .axes = {0, 2, 3}}), 1.0 / (6 * 64 - 1));
    lk_tensor *one = lk_ones(net.device, LK_F32, LK_SCALAR);
    assert_no_error(lk_model_update_statistics(net.model, net.variables, sums, 6, 0, one) == LK_OK);
    assert_true(largest_of(net.variables[2]) == 0); /* skipped */
    assert_no_error(lk_model_update_statistics(net.model, net.variables, sums, 6, 0, NULL) == LK_OK);
    assert_close(net.variables[2], lk_mul_scalar(lk_reshape(mean, LK_SHAPE(3)), 0.1), 1e-5);
    assert_close(net.variables[3], lk_add_scalar(lk_mul_scalar(variance, 0.1), 0.9), 1e-5);
    lk_tensor *want =
        lk_batch_norm_inference(x, net.variables[0], net.variables[1], net.variables[2], net.variables[3], 1e-5);
    assert_same_bits(lk_model_forward(net.model, net.variables, x, NULL), want);
    close_network(&net);
    lk_scope_end();
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

static void test_average_loss(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_device *device = lk_device_open("cpu:0");
    double value;
    lk_tensor *loss = lk_average_loss(lk_arange(device, LK_F32, 5, 0, 1), 4);
    assert_int_equal(lk_tensor_shape(loss).ndim, 0);
    assert_no_error(lk_tensor_item(loss, &value) == LK_OK);
    assert_true(value == 2.5);
    assert_null(lk_average_loss(NULL, 4));
    assert_error(LK_ERR_ARGUMENT, "average_loss: per_example is NULL");
    assert_null(lk_average_loss(lk_arange(device, LK_F32, 5, 0, 1), 0));
    assert_error(LK_ERR_ARGUMENT, "average_loss: global_batch is 0");
    assert_null(lk_average_loss(lk_ones(device, LK_F32, LK_SHAPE(2, 2)), 4));
    assert_error(LK_ERR_SHAPE, "average_loss: per_example has shape [2,2]; it must be [N]");
    lk_scope_end();
    lk_device_release(device);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void test_inference_holds_few_activations(void **state)
{
    (void)state;
    enum { DEPTH = 30, SAMPLES = 64 };
    const int64_t bytes = SAMPLES * 3 * 8 * 8 * (int64_t)sizeof(float);
    lk_layer *layers[DEPTH];
    for (int i = 0; i < DEPTH; i++)
        layers[i] = lk_layer_activation(LK_RELU);
    lk_scope_begin();
    network net = open_layers(lk_layer_sequential(layers, DEPTH), image);
    lk_tensor *x = images(&net, SAMPLES);
    int64_t before, peak;
    assert_no_error(lk_tensor_wait(x) == LK_OK);
    lk_device_memory(net.device, &before, &peak);
    assert_no_error(lk_tensor_wait(lk_model_forward(net.model, NULL, x, NULL)) == LK_OK);
    lk_device_memory(net.device, &before, &peak);
    assert_true(peak <= 5 * bytes);
    close_network(&net);
    lk_scope_end();
}

static bool build_and_run(lk_device *device, lk_tensor *x)
{
    lk_tensor *variables[32], *statistics[4], *y = NULL;
    lk_model *model = lk_model_build("test", lk_layer_add(normalized_net(), lk_layer_named("x", normalized_net())),
                                     (lk_model_input){3, 8, 8, 3});
    if (model && lk_model_init(model, device, 1, variables) == LK_OK)
        y = lk_model_forward(model, variables, x, &(lk_forward_opts){.training = true, .statistics = statistics});
    lk_model_release(model);
    return y != NULL;
}

/* Each allocation of building and running fails once; a leak checker then finds nothing. */
static void test_allocation_failures(void **state)
{
    (void)state;
    lk_device *device = lk_device_open("cpu:0");
    failing f = fail_every(1);
    do {
        lk_scope_begin();
        lk_tensor *x = lk_ones(device, LK_F32, LK_SHAPE(2, 3, 8, 8));
        lk_device_sync(device);
        fail_next(&f);
        bool made = build_and_run(device, x);
        lk_status status = lk_device_sync(device);
        stop_failing(&f);
        if (!made || status != LK_OK)
            assert_error(LK_ERR_MEMORY, "");
        assert_true(made || f.reached);
        lk_scope_end();
    } while (f.reached);
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_names_follow_the_tree),
        cmocka_unit_test(test_buffers_come_last),
        cmocka_unit_test(test_kept_bytes),
        cmocka_unit_test(test_constructors_refuse),
        cmocka_unit_test(test_failures_nest),
        cmocka_unit_test(test_a_layer_has_one_place),
        cmocka_unit_test(test_builds_refuse),
        cmocka_unit_test(test_forward_refuses),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_pools_and_reshapes),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_own_layers),
        cmocka_unit_test(test_own_layers_that_are_wrong),
        cmocka_unit_test(test_initializers),
        cmocka_unit_test(test_initializers_of_dense),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_sync_is_one_big_shard),
        cmocka_unit_test(test_running_statistics),
        cmocka_unit_test(test_average_loss),
        cmocka_unit_test(test_inference_holds_few_activations),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
