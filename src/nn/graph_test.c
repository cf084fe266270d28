/* Models as graphs: order, inputs, variables, and which layers cannot be in one. */
#include "base/mem_testing.h"
#include "nn/nn_testing.h"

static const lk_model_input image = {.channels = 3, .height = 8, .width = 8, .classes = 4};

static lk_layer *conv(const char *name, bool no_bias)
{
    return lk_layer_named(name, lk_layer_conv2d(5, 3, &(lk_conv2d_layer_opts){.same = true, .no_bias = no_bias}));
}

static lk_layer *some_layers(void)
{
    lk_layer *body = LK_SEQUENTIAL(conv("a", true), lk_layer_batch_norm(NULL), lk_layer_dropout(0.5));
    return LK_SEQUENTIAL(lk_layer_named("block", lk_layer_add(body, conv("b", false))), lk_layer_activation(LK_ELU),
                         lk_layer_max_pool(3, &(lk_pool_layer_opts){.stride = 2, .padding = 1}), lk_layer_flatten(),
                         lk_layer_named("out", lk_layer_dense(4, NULL)));
}

typedef struct expectation {
    lk_node_kind kind;
    const char *name;
    int input[LK_NODE_INPUTS];
    const char *variable[LK_NODE_VARIABLES];
} expectation;

static void test_nodes_follow_the_forward_pass(void **state)
{
    (void)state;
    static const expectation expected[] = {
        {LK_NODE_INPUT, "images", {-1, -1}, {0}},
        {LK_NODE_CONV2D, "block.a", {0, -1}, {"block.a.weight"}},
        {LK_NODE_BATCH_NORM,
         "block.batch_norm",
         {1, -1},
         {"block.batch_norm.weight", "block.batch_norm.bias", "block.batch_norm.running_mean",
          "block.batch_norm.running_var"}},
        {LK_NODE_CONV2D, "block.b", {0, -1}, {"block.b.weight", "block.b.bias"}},
        {LK_NODE_ADD, "block", {2, 3}, {0}},
        {LK_NODE_ACTIVATION, "elu", {4, -1}, {0}},
        {LK_NODE_MAX_POOL, "max_pool", {5, -1}, {0}},
        {LK_NODE_RESHAPE, "flatten", {6, -1}, {0}},
        {LK_NODE_DENSE, "out", {7, -1}, {"out.weight", "out.bias"}},
    };
    lk_model *model = lk_model_build(NULL, some_layers(), image);
    lk_graph graph;
    assert_no_error(model && lk_model_graph(model, &graph) == LK_OK);
    assert_int_equal(graph.n, sizeof expected / sizeof expected[0]);
    for (int i = 0; i < graph.n; i++) {
        const lk_node *node = &graph.nodes[i];
        assert_int_equal(node->kind, expected[i].kind);
        assert_string_equal(node->name, expected[i].name);
        assert_memory_equal(node->input, expected[i].input, sizeof node->input);
        for (int v = 0; v < LK_NODE_VARIABLES; v++) {
            const char *name = node->variable[v] < 0 ? NULL : lk_model_variable_name(model, node->variable[v]);
            assert_true(!name == !expected[i].variable[v]);
            if (name)
                assert_string_equal(name, expected[i].variable[v]);
        }
    }
    assert_true(graph.nodes[2].epsilon == 1e-5);
    assert_true(graph.nodes[5].activation == LK_ELU && graph.nodes[5].alpha == 1);
    assert_true(graph.nodes[6].kernel[0] == 3 && graph.nodes[6].stride[0] == 2 && graph.nodes[6].padding[0] == 1);
    assert_int_equal(lk_shape_count(graph.nodes[7].output), 80);
    lk_graph_free(&graph);
    lk_model_release(model);
}

static lk_tensor *twice(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call, (void)config;
    return lk_add(x, x);
}

static void describe_as_relu(const void *config, lk_node *node)
{
    (void)config;
    node->kind = LK_NODE_ACTIVATION;
    node->activation = LK_RELU;
}

static void test_layers_of_ones_own(void **state)
{
    (void)state;
    static const lk_layer_table table = {.kind = "mine", .forward = twice, .describe = describe_as_relu};
    lk_layer *own = lk_layer_new(&table, NULL, 0, NULL, 0);
    lk_model *model = lk_model_build("net", LK_SEQUENTIAL(own, lk_layer_flatten(), lk_layer_dense(4, NULL)), image);
    lk_graph graph;
    assert_no_error(model && lk_model_graph(model, &graph) == LK_OK);
    assert_int_equal(graph.n, 4);
    assert_string_equal(graph.nodes[1].name, "mine");
    assert_true(graph.nodes[1].kind == LK_NODE_ACTIVATION && graph.nodes[1].activation == LK_RELU);
    assert_int_equal(lk_shape_count(graph.nodes[1].output), 192);
    lk_graph_free(&graph);
    lk_model_release(model);
}

static void test_layers_that_say_nothing(void **state)
{
    (void)state;
    static const lk_layer_table table = {.kind = "twice", .forward = twice};
    lk_layer *own = lk_layer_named("mine", lk_layer_new(&table, NULL, 0, NULL, 0));
    lk_model *model = lk_model_build("net", LK_SEQUENTIAL(own, lk_layer_flatten(), lk_layer_dense(4, NULL)), image);
    lk_graph graph;
    assert_no_error(model != NULL);
    assert_int_equal(lk_model_graph(model, &graph), LK_ERR_UNSUPPORTED);
    assert_error(LK_ERR_UNSUPPORTED,
                 "net: layer 'mine' of kind 'twice' does not say what it computes (lk_layer_table.describe)");
    assert_null(graph.nodes);
    lk_model_release(model);
}

static void test_failed_allocations_leave_nothing(void **state)
{
    (void)state;
    lk_model *model = lk_model_new("resnet18", image);
    lk_graph graph;
    assert_no_error(model != NULL);
    failing f = fail_every(1);
    while (fail_next(&f)) {
        stop_failing_with(&f, lk_model_graph(model, &graph));
        assert_true((graph.nodes == NULL) == f.reached);
    }
    assert_true(f.n > 1);
    lk_graph_free(&graph);
    lk_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_follow_the_forward_pass),
        cmocka_unit_test(test_layers_of_ones_own),
        cmocka_unit_test(test_layers_that_say_nothing),
        cmocka_unit_test(test_failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
