/* dense_act and cross_entropy_step: refusals, and results for simple numbers. */
#include "ops/ops_test.h"

static lk_status run(lk_call *call, const lk_op *op, int n_out, const void *attrs, size_t size)
{
    call->op = op;
    call->place = LK_HERE;
    call->n_in = 3;
    call->n_out = n_out;
    memcpy(call->attrs.bytes, attrs, size);
    return lk__call(call);
}

static lk_tensor *dense(lk_tensor *x, lk_tensor *w, lk_tensor *bias, bool relu)
{
    lk_dense_act_attrs attrs = {.relu = relu};
    lk_call call = {.in = {x, w, bias}};
    return run(&call, &lk__op_dense_act, 1, &attrs, sizeof attrs) == LK_OK ? call.out[0] : NULL;
}

static void test_dense(void **state)
{
    (void)state;
    lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(1, 2), VALUES(1, -2));
    lk_tensor *w = lk_tensor_from(device, LK_F32, LK_SHAPE(2, 3), VALUES(1, 2, 3, 4, 1, 1));
    lk_tensor *bias = lk_tensor_from(device, LK_F32, LK_SHAPE(3), VALUES(8, -1, 0));
    check_values(dense(x, w, bias, true), LK_SHAPE(1, 3), VALUES(1, 0, 1));
    check_values(dense(x, w, bias, false), LK_SHAPE(1, 3), VALUES(1, -1, 1));
    check_values(dense(x, w, NULL, true), LK_SHAPE(1, 3), VALUES(0, 0, 1));
}

static void test_dense_refuses(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(2, 3)), *w = f32(LK_SHAPE(3, 4));
    refused(dense(f32(LK_SHAPE(2)), w, NULL, true), LK_ERR_SHAPE, "dense_act: x has shape [2]; it must have 2 axes");
    refused(dense(x, f32(LK_SHAPE(5, 4)), NULL, true), LK_ERR_SHAPE, "dense_act: w has shape [5,4]; it must be [3,4]");
    refused(dense(x, w, f32(LK_SHAPE(3)), true), LK_ERR_SHAPE, "dense_act: bias has shape [3]; it must be [4]");
    refused(dense(x, ones(LK_F64, LK_SHAPE(3, 4)), NULL, true), LK_ERR_DTYPE, "dense_act: w is f64; it must be f32");
}

static lk_status step(lk_call *call, double smoothing, int k)
{
    lk_cross_entropy_step_attrs attrs = {.smoothing = smoothing, .k = k};
    return run(call, &lk__op_cross_entropy_step, k ? 3 : 2, &attrs, sizeof attrs);
}

static void test_step(void **state)
{
    (void)state;
    int32_t labels[] = {1, 0};
    lk_tensor *half = lk_full(device, LK_F32, LK_SCALAR, 0.5);
    lk_tensor *logits = lk_tensor_from(device, LK_F32, LK_SHAPE(2, 2), VALUES(0, 0, -200, 200));
    lk_call call = {.in = {half, logits, lk_tensor_from(device, LK_I32, LK_SHAPE(2), labels)}};
    assert_int_equal(step(&call, 0, 1), LK_OK);
    check_values(call.out[0], LK_SCALAR, VALUES((float)(0.693147180559945309 + 400)));
    check_values(call.out[1], LK_SHAPE(2, 2), VALUES(0.25F, -0.25F, -0.5F, 0.5F));
    check_values(call.out[2], LK_SCALAR, VALUES(0));
}

static void test_step_refuses(void **state)
{
    (void)state;
    int64_t far[] = {0, 7};
    lk_tensor *one = f32(LK_SCALAR), *logits = f32(LK_SHAPE(2, 3)), *labels = lk_zeros(device, LK_I64, LK_SHAPE(2));
    lk_call call = {.in = {one, logits, labels}};
    refused_status(step(&call, 1.5, 0), LK_ERR_ARGUMENT,
                   "cross_entropy_step: smoothing is 1.5; it must be between 0 and 1");
    refused_status(step(&call, 0, 4), LK_ERR_ARGUMENT,
                   "cross_entropy_step: k is 4; with logits [2,3] it must be between 1 and 3");
    call.in[0] = f32(LK_SHAPE(2));
    refused_status(step(&call, 0, 0), LK_ERR_SHAPE, "cross_entropy_step: dloss has shape [2]; it must be []");
    call = (lk_call){.in = {one, logits, lk_tensor_from(device, LK_I64, LK_SHAPE(2), far)}};
    assert_int_equal(step(&call, 0, 0), LK_OK);
    assert_int_equal(lk_tensor_wait(call.out[1]), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "cross_entropy_step: label 7 at index 1 is not in [0, 3)"));
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_dense),
        OPERATOR_TEST(test_dense_refuses),
        OPERATOR_TEST(test_step),
        OPERATOR_TEST(test_step_refuses),
    };
    return RUN_OPERATOR_TESTS(tests);
}
