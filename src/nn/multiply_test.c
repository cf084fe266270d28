/* The product of two branches: values, gradients, and what it refuses. */
#include "base/mem_testing.h"
#include "lockstep/autograd.h"
#include "nn/nn_testing.h"

static const lk_model_input image = {.channels = 3, .height = 8, .width = 8, .classes = 0};

/* The sum of the squares of what squeeze-and-excitation gives. */
static double excited(const lk_model *model, lk_tensor *const *variables, lk_tensor *x, lk_tensor **sum)
{
    lk_tensor *y = lk_model_forward(model, variables, x, NULL);
    double value;
    *sum = lk_sum(lk_mul(y, y), NULL);
    assert_no_error(*sum && lk_tensor_item(*sum, &value) == LK_OK);
    return value;
}

/* Factors for each channel, and gradients through both branches against differences. */
static void test_multiply(void **state)
{
    (void)state;
    enum { BATCH = 2 };
    lk_device *device = lk_device_open("cpu");
    lk_layer *factors =
        LK_SEQUENTIAL(lk_layer_global_avg_pool(), lk_layer_dense(3, NULL), lk_layer_activation(LK_SIGMOID));
    lk_model *model = lk_model_build("test", lk_layer_multiply(lk_layer_conv2d(3, 1, NULL), factors), image);
    assert_no_error(model != NULL);
    lk_tensor *variables[4], *gradients[4], *sum;
    assert_int_equal(lk_model_variable_count(model), 4);
    assert_no_error(lk_model_init(model, device, 3, variables) == LK_OK);
    lk_scope_begin();
    lk_tensor *x = lk_uniform(device, LK_F32, LK_SHAPE(BATCH, 3, 8, 8), -1, 1, (lk_random_key){.seed = 5});
    lk_tensor *means = lk_mean(x, &(lk_reduce_opts){.n_axes = 2, .axes = {2, 3}});
    lk_tensor *want = lk_sigmoid(lk_add(lk_matmul(means, variables[2]), variables[3]));
    want = lk_mul(lk_conv2d(x, variables[0], variables[1], NULL), lk_reshape(want, LK_SHAPE(BATCH, 3, 1, 1)));
    assert_close(lk_model_forward(model, variables, x, NULL), want, 1e-6);

    lk_tape *tape = lk_tape_begin(variables, 4);
    excited(model, variables, x, &sum);
    assert_no_error(lk_tape_gradient(tape, sum, NULL, gradients) == LK_OK);
    lk_tape_release(tape);
    for (int v = 0; v < 4; v++) {
        float *values = values_of(variables[v]), *gradient = values_of(gradients[v]), before = values[1];
        size_t bytes = (size_t)lk_tensor_count(variables[v]) * sizeof *values;
        const float step = 1e-2f;
        double side[2];
        for (int i = 0; i < 2; i++) {
            values[1] = i == 0 ? before - step : before + step;
            assert_no_error(lk_tensor_write(variables[v], values, bytes) == LK_OK);
            side[i] = excited(model, variables, x, &sum);
        }
        double difference = (side[1] - side[0]) / (2 * (double)step);
        if (!(fabs(difference - gradient[1]) <= 2e-3 * (1 + fabs(difference))))
            fail_msg("variable %d: gradient %g, by differences %g", v, gradient[1], difference);
        values[1] = before;
        assert_no_error(lk_tensor_write(variables[v], values, bytes) == LK_OK);
        free(values);
        free(gradient);
    }
    lk_scope_end();
    for (int v = 0; v < 4; v++)
        lk_tensor_release(variables[v]);
    lk_model_release(model);
    lk_device_release(device);
}

static void test_multiply_refuses(void **state)
{
    (void)state;
    assert_null(lk_model_build("test", lk_layer_multiply(lk_layer_identity(), lk_layer_max_pool(2, NULL)), image));
    assert_error(LK_ERR_SHAPE, "the body gives [1,3,8,8] and the factors are [1,3,4,4]; expected equal shapes, or one");
    lk_layer *factors = LK_SEQUENTIAL(lk_layer_global_avg_pool(), lk_layer_dense(2, NULL));
    assert_null(lk_model_build("test", lk_layer_multiply(lk_layer_identity(), factors), image));
    assert_error(LK_ERR_SHAPE, "the factors are [1,2]; expected equal shapes, or one factor a channel");
    assert_null(lk_layer_multiply(lk_layer_identity(), NULL));
    assert_error(LK_ERR_ARGUMENT, "multiply: layer 2 of 2 is NULL");
}

static void test_multiply_is_a_node(void **state)
{
    (void)state;
    lk_graph graph;
    lk_model *model = lk_model_build("test", lk_layer_multiply(lk_layer_identity(), lk_layer_global_avg_pool()), image);
    assert_no_error(model && lk_model_graph(model, &graph) == LK_OK);
    assert_int_equal(graph.n, 3);
    assert_int_equal(graph.nodes[2].kind, LK_NODE_MULTIPLY);
    assert_true(graph.nodes[2].input[0] == 0 && graph.nodes[2].input[1] == 1);
    lk_graph_free(&graph);
    lk_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multiply),
        cmocka_unit_test(test_multiply_refuses),
        cmocka_unit_test(test_multiply_is_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
