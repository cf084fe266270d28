/* batch_norm_act and related operators: refusals, and results for simple numbers. */
#include "lockstep/autograd.h"
#include "ops/ops_test.h"

static lk_status run(lk_call *call, const lk_op *op, int n_in, int n_out)
{
    lk_batch_norm_attrs attrs = {.count = 4, .epsilon = 0};
    call->op = op;
    call->place = (lk_call_site){"net.c", 12};
    call->n_in = n_in;
    call->n_out = n_out;
    memcpy(call->attrs.bytes, &attrs, sizeof attrs);
    return lk__call(call);
}

static lk_tensor *vector(const float *values)
{
    return lk_tensor_from(device, LK_F32, LK_SHAPE(1), values);
}

/* Returns one channel with mean 2 and variance 1. */
static lk_tensor *channel(void)
{
    return lk_tensor_from(device, LK_F32, LK_SHAPE(4, 1), VALUES(1, 3, 1, 3));
}

static void test_residual_and_relu(void **state)
{
    (void)state;
    lk_tensor *gamma = vector(VALUES(2)), *beta = vector(VALUES(1));
    lk_tensor *residual = lk_tensor_from(device, LK_F32, LK_SHAPE(4, 1), VALUES(0, 0.5, 5, -4));
    lk_call with = {.in = {channel(), gamma, beta, residual}}, without = {.in = {channel(), gamma, beta}};
    assert_int_equal(run(&with, &lk__op_batch_norm_act, 4, 2), LK_OK);
    check_values(with.out[0], LK_SHAPE(4, 1), VALUES(0, 3.5, 4, 0));
    assert_int_equal(run(&without, &lk__op_batch_norm_act, 4, 2), LK_OK);
    check_values(without.out[0], LK_SHAPE(4, 1), VALUES(0, 3, 0, 3));
    lk_call given = {.in = {channel(), gamma, beta, vector(VALUES(1)), vector(VALUES(4)), residual}};
    assert_int_equal(run(&given, &lk__op_batch_norm_inference_act, 6, 1), LK_OK);
    check_values(given.out[0], LK_SHAPE(4, 1), VALUES(1, 3.5, 6, 0));
}

/* The gradient uses nothing but the sign of y, so y need not be the result for x. */
static void test_gradient(void **state)
{
    (void)state;
    double sums[] = {8, 20};
    lk_tensor *dy = lk_tensor_from(device, LK_F32, LK_SHAPE(4, 1), VALUES(1, 2, 4, 8));
    lk_tensor *y = lk_tensor_from(device, LK_F32, LK_SHAPE(4, 1), VALUES(0, 3.5, 4, 0));
    lk_call call = {.in = {dy, y, channel(), vector(VALUES(2)), lk_tensor_from(device, LK_F64, LK_SHAPE(2, 1), sums)}};
    assert_int_equal(run(&call, &lk__op_batch_norm_act_grad, 5, 4), LK_OK);
    check_values(call.out[3], LK_SHAPE(4, 1), VALUES(0, 2, 4, 0));
    check_values(call.out[2], LK_SHAPE(1), VALUES(6));
    check_values(call.out[1], LK_SHAPE(1), VALUES(-2));
    check_values(call.out[0], LK_SHAPE(4, 1), VALUES(-4, 2, 4, -2));
}

static void test_refuses(void **state)
{
    (void)state;
    lk_tensor *x = channel(), *v = f32(LK_SHAPE(1)), *sums = lk_channel_sums(x), *wide = f32(LK_SHAPE(4, 2));
    lk_call call = {.in = {x, v, v, wide}};
    refused_status(run(&call, &lk__op_batch_norm_act, 4, 2), LK_ERR_SHAPE,
                   "batch_norm_act: residual has shape [4,2]; it must be [4,1]");
    call = (lk_call){.in = {x, v, f32(LK_SHAPE(3)), NULL}};
    refused_status(run(&call, &lk__op_batch_norm_act, 4, 2), LK_ERR_SHAPE,
                   "batch_norm_act: beta has shape [3]; it must be [1]");
    call = (lk_call){.in = {x, v, v, v, ones(LK_F64, LK_SHAPE(1)), NULL}};
    refused_status(run(&call, &lk__op_batch_norm_inference_act, 6, 1), LK_ERR_DTYPE,
                   "batch_norm_inference_act: variance is f64; it must be f32");
    call = (lk_call){.in = {x, wide, x, v, sums}};
    refused_status(run(&call, &lk__op_batch_norm_act_grad, 5, 3), LK_ERR_SHAPE,
                   "batch_norm_act_grad: y has shape [4,2]; it must be [4,1]");
    call = (lk_call){.in = {x, x, x, v, v}};
    refused_status(run(&call, &lk__op_batch_norm_act_grad, 5, 3), LK_ERR_DTYPE,
                   "batch_norm_act_grad: sums is f32; it must be f64");
}

static void test_sums_have_no_gradient(void **state)
{
    (void)state;
    lk_tensor *x = channel(), *v = f32(LK_SHAPE(1)), *g;
    lk_tape *tape = lk_tape_begin(&x, 1);
    lk_call call = {.in = {x, v, v, NULL}};
    assert_int_equal(run(&call, &lk__op_batch_norm_act, 4, 2), LK_OK);
    refused_status(lk_tape_gradient(tape, call.out[1], NULL, &g), LK_ERR_ARGUMENT,
                   "gradient: the sums that batch_norm_act, called at net.c:12, gave have none; those of "
                   "lk_channel_sums do");
    lk_tape_release(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_residual_and_relu),
        OPERATOR_TEST(test_gradient),
        OPERATOR_TEST(test_refuses),
        OPERATOR_TEST(test_sums_have_no_gradient),
    };
    return RUN_OPERATOR_TESTS(tests);
}
