/* Every operator through its public function: shapes and dtypes of results, refusals and their messages, empty tensors.
 * Values are checked where this layer decides them; the kernels' values have tests of their own. */
#include "ops/ops.h"
#include "ops/broadcast.h"
#include "ops/conv2d.h"
#include "ops/ops_test.h"

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void test_table(void **state)
{
    (void)state;
    static const char *const views[] = {"reshape", "transpose", "slice", "expand"};
    static const char *const not_differentiable[] = {"full",
                                                     "arange",
                                                     "uniform",
                                                     "normal",
                                                     "gather",
                                                     "prepare_images",
                                                     "pairwise_sum",
                                                     "relu_avg_pool2d",
                                                     "relu_max_pool2d",
                                                     "argmax",
                                                     "in_top_k",
                                                     "squared_norms",
                                                     "update_scales",
                                                     "batch_norm_drop",
                                                     "batch_norm_pool",
                                                     "batch_norm_inference_act",
                                                     "cross_entropy_step"};
    for (int i = 0; i < LK_OP_COUNT; i++) {
        const lk_op *op = lk__op_at(i);
        assert_int_equal(op->id, i);
        bool view = false, differentiable = !strstr(op->name, "_grad") && !strstr(op->name, "_update");
        for (size_t j = 0; j < sizeof views / sizeof *views; j++)
            view |= strcmp(op->name, views[j]) == 0;
        for (size_t j = 0; j < sizeof not_differentiable / sizeof *not_differentiable; j++)
            differentiable &= strcmp(op->name, not_differentiable[j]) != 0;
        assert_int_equal(lk_op_is_view(i), view);
        assert_int_equal(lk_op_is_differentiable(i), differentiable);
        assert_int_equal(op->infer == NULL, view);
    }
    assert_string_equal(lk_op_name(LK_OP_CONV2D_WEIGHT_GRAD), "conv2d_weight_grad");
    assert_null(lk_op_name(LK_OP_COUNT));
    assert_null(lk_op_name(-1));
    assert_false(lk_op_is_view(LK_OP_COUNT));
    assert_false(lk_op_is_differentiable(-1));
#define LK_OP(identifier, name) assert_string_equal(lk_op_name(LK_OP_##identifier), #name);
#include "ops/ops.def"
#undef LK_OP
}

/* The first error is the one that is reported, and NULL passes through every operator. */
static void test_null_passes(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(2, 2)), *none = lk_reshape(x, LK_SHAPE(5));
    char message[256];
    snprintf(message, sizeof message, "%s", lk_error_message());
    assert_null(none);
    lk_pool2d_opts pool = {.kernel = {2, 2}};
    lk_tensor *made[] = {
        lk_copy(none, device),
        lk_cast(none, LK_F32),
        lk_reshape(none, LK_SCALAR),
        lk_flatten(none),
        lk_transpose(none, 0, 1),
        lk_slice(none, 0, 0, 1),
        lk_expand(none, LK_SCALAR),
        lk_concat(&none, 1, 0),
        lk_concat((lk_tensor *[]){x, none}, 2, 0),
        lk_add(x, none),
        lk_sub(none, x),
        lk_mul(none, none),
        lk_div(x, none),
        lk_add_scalar(none, 1),
        lk_mul_scalar(none, 1),
        lk_matmul(x, none),
        lk_conv2d(none, x, NULL, NULL),
        lk_conv2d(x, none, NULL, NULL),
        lk_max_pool2d(none, &pool),
        lk_avg_pool2d(none, &pool),
        lk_global_max_pool2d(none),
        lk_global_avg_pool2d(none),
        lk_relu(none),
        lk_sum(none, NULL),
        lk_mean(none, NULL),
        lk_max(none, NULL),
        lk_argmax(none, 0),
        lk_softmax(none, 0),
        lk_log_softmax(none, 0),
        lk_sparse_softmax_cross_entropy(x, none, LK_REDUCTION_SUM),
        lk_in_top_k(none, x, 1),
        lk__sum_to(LK_HERE, none, LK_SCALAR, false),
        lk__conv2d_input_grad(LK_HERE, none, x, LK_SCALAR, &(lk_conv2d_opts){.groups = 1}),
    };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        assert_null(made[i]);
    assert_int_equal(lk_copy_into(none, x), LK_ERR_SHAPE);
    assert_int_equal(lk_copy_into(x, none), LK_ERR_SHAPE);
    assert_int_equal(lk_add_into(x, none, x), LK_ERR_SHAPE);
    assert_int_equal(lk_sgd_update(x, none, 1), LK_ERR_SHAPE);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
    refused(lk_flatten(NULL), LK_ERR_ARGUMENT, "flatten: x is NULL");
    refused_status(lk_copy_into(x, NULL), LK_ERR_ARGUMENT, "copy: an operand is NULL");
    refused(lk_zeros(NULL, LK_F32, LK_SHAPE(2)), LK_ERR_ARGUMENT, "full: device is NULL");
    refused(lk_max_pool2d(x, NULL), LK_ERR_ARGUMENT, "max_pool2d: opts (the kernel has no default) is NULL");
}

/* --- creation ----------------------------------------------------------------------------------------------------- */

static void test_creation(void **state)
{
    (void)state;
    lk_random_key key = {.seed = 1, .purpose = 2};
    check(lk_zeros(device, LK_U8, LK_SHAPE(2, 3)), LK_U8, LK_SHAPE(2, 3));
    check(lk_ones(device, LK_F64, LK_SCALAR), LK_F64, LK_SCALAR);
    check(lk_zeros(device, LK_F32, LK_SHAPE(0, 3)), LK_F32, LK_SHAPE(0, 3));
    check_values(lk_arange(device, LK_F32, 3, 1, 0.5), LK_SHAPE(3), VALUES(1, 1.5f, 2));
    check(lk_arange(device, LK_I64, 0, 1, 1), LK_I64, LK_SHAPE(0));
    check(lk_uniform(device, LK_F32, LK_SHAPE(5), -1, 1, key), LK_F32, LK_SHAPE(5));
    check(lk_normal(device, LK_BF16, LK_SHAPE(5, 3), 0, 1, key), LK_BF16, LK_SHAPE(5, 3));

    refused(lk_zeros(device, LK_F32, LK_SHAPE(2, -3)), LK_ERR_SHAPE,
            "full: shape [2,-3] has a negative size; sizes start at 0");
    refused(lk_zeros(device, LK_F32, LK_SHAPE(INT64_MAX, 2)), LK_ERR_SHAPE,
            "full: shape [9223372036854775807,2] has more than 2^63 - 1 elements");
    refused(lk_zeros(device, LK_F32, LK_SHAPE(0, INT64_MAX, 2)), LK_ERR_SHAPE,
            "full: shape [0,9223372036854775807,2] has more than 2^63 - 1 elements");
    refused(lk_zeros(device, (lk_dtype)77, LK_SHAPE(2)), LK_ERR_DTYPE,
            "full: the result has dtype 77, which is none; it must be f32, bf16, f64, i32, i64 or u8");
    refused(lk_zeros(device, LK_F32, ((lk_shape){.ndim = 7})), LK_ERR_SHAPE, "full: 7 axes; a tensor has 0 to 6");
    refused(lk_arange(device, LK_F32, -1, 0, 1), LK_ERR_SHAPE, "arange: count is -1; it must be 0 or more");
    refused(lk_uniform(device, LK_I32, LK_SHAPE(2), 0, 1, key), LK_ERR_DTYPE,
            "uniform: the result is i32; it must be f32, bf16 or f64");
    refused(lk_uniform(device, LK_F32, LK_SHAPE(2), 1, 0, key), LK_ERR_ARGUMENT,
            "uniform: low is 1 and high 0; they and high - low must be finite, and low not above high");
    refused(lk_normal(device, LK_F32, LK_SHAPE(2), 0, -1, key), LK_ERR_ARGUMENT,
            "normal: mean is 0 and std -1; they must be finite, and std not negative");
    refused(lk_normal(device, LK_F32, LK_SHAPE(1, INT64_C(1) << 35), 0, 1, key), LK_ERR_SHAPE,
            "normal: shape [1,34359738368] has 34359738368 elements; one random stream has 2^34");
    key.epoch = INT64_C(1) << 32;
    refused(lk_normal(device, LK_F32, LK_SHAPE(2), 0, 1, key), LK_ERR_ARGUMENT,
            "normal: the key's epoch is 4294967296 and its sample 0; both must be below 2^32");
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static void test_copy(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(2, 3));
    lk_tensor *far = lk_copy(lk_transpose(x, 0, 1), other);
    check_values(far, LK_SHAPE(3, 2), VALUES(0, 3, 1, 4, 2, 5));
    assert_ptr_equal(lk_tensor_device(far), other);
    assert_true(lk__tensor_is_dense(far));

    lk_tensor *y = lk_zeros(device, LK_F32, LK_SHAPE(2, 3));
    assert_int_equal(lk_copy_into(lk_slice(y, 1, 1, 3), lk_transpose(lk_slice(far, 0, 0, 2), 0, 1)), LK_OK);
    check_values(y, LK_SHAPE(2, 3), VALUES(0, 0, 1, 0, 3, 4));

    refused_status(lk_copy_into(y, far), LK_ERR_SHAPE, "copy: writes [3,2] into a tensor of shape [2,3]");
    refused_status(lk_copy_into(y, ones(LK_I32, LK_SHAPE(2, 3))), LK_ERR_DTYPE,
                   "copy: writes i32 into a tensor of f32");
    refused_status(lk_copy_into(lk_expand(f32(LK_SHAPE(3)), LK_SHAPE(2, 3)), x), LK_ERR_ARGUMENT,
                   "copy: the tensor to write to, [2,3], is an expanded view: its elements are not its own");
}

/* Shifting a tensor by one along itself must not read what it just wrote. */
static void test_overlap(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(5));
    assert_int_equal(lk_copy_into(lk_slice(x, 0, 1, 5), lk_slice(x, 0, 0, 4)), LK_OK);
    check_values(x, LK_SHAPE(5), VALUES(0, 0, 1, 2, 3));

    x = counting(LK_SHAPE(5));
    assert_int_equal(lk_add_into(lk_slice(x, 0, 1, 5), lk_slice(x, 0, 1, 5), lk_slice(x, 0, 0, 4)), LK_OK);
    check_values(x, LK_SHAPE(5), VALUES(0, 1, 3, 5, 7));

    x = counting(LK_SHAPE(2, 2));
    assert_int_equal(lk_copy_into(x, lk_transpose(x, 0, 1)), LK_OK);
    check_values(x, LK_SHAPE(2, 2), VALUES(0, 2, 1, 3));
}

static void test_cast(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(3));
    for (int dtype = 0; dtype < LK_DTYPE_COUNT; dtype++) {
        lk_tensor *y = lk_cast(x, (lk_dtype)dtype);
        check(y, (lk_dtype)dtype, LK_SHAPE(3));
        check_values(lk_cast(y, LK_F32), LK_SHAPE(3), VALUES(0, 1, 2));
    }
    refused(lk_cast(x, LK_DTYPE_COUNT), LK_ERR_DTYPE,
            "cast: the result has dtype 6, which is none; it must be f32, bf16, f64, i32, i64 or u8");
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

static void test_arithmetic(void **state)
{
    (void)state;
    lk_tensor *row = counting(LK_SHAPE(3)), *column = counting(LK_SHAPE(2, 1));
    check_values(lk_add(row, column), LK_SHAPE(2, 3), VALUES(0, 1, 2, 1, 2, 3));
    check_values(lk_sub(column, row), LK_SHAPE(2, 3), VALUES(0, -1, -2, 1, 0, -1));
    check_values(lk_mul(row, column), LK_SHAPE(2, 3), VALUES(0, 0, 0, 0, 1, 2));
    check_values(lk_div(row, lk_add_scalar(column, 1)), LK_SHAPE(2, 3), VALUES(0, 1, 2, 0, 0.5f, 1));
    check_values(lk_mul_scalar(row, -2), LK_SHAPE(3), VALUES(-0.0f, -2, -4));
    check(lk_add(ones(LK_I64, LK_SHAPE(2)), ones(LK_I64, LK_SCALAR)), LK_I64, LK_SHAPE(2));
    check(lk_add(f32(LK_SHAPE(0, 3)), row), LK_F32, LK_SHAPE(0, 3));
    check(lk_mul_scalar(f32(LK_SHAPE(0)), 2), LK_F32, LK_SHAPE(0));

    refused(lk_add(row, f32(LK_SHAPE(2))), LK_ERR_SHAPE,
            "add: shapes [3] and [2] do not broadcast: axis -1 has 3 and 2");
    refused(lk_div(row, ones(LK_F64, LK_SHAPE(3))), LK_ERR_DTYPE,
            "div: operands are f32 and f64; they must have one dtype (lk_cast converts)");
    refused(lk_mul(row, lk_copy(row, other)), LK_ERR_DEVICE,
            "mul: operands on ref:0 and on ref:1; copy one with lk_copy first");

    lk_tensor *sum = f32(LK_SHAPE(2, 3));
    assert_int_equal(lk_add_into(sum, sum, row), LK_OK);
    check_values(sum, LK_SHAPE(2, 3), VALUES(1, 2, 3, 1, 2, 3));
    refused_status(lk_add_into(row, row, column), LK_ERR_SHAPE, "add: writes [2,3] into a tensor of shape [3]");
    refused_status(lk_add_into(sum, sum, lk_copy(row, other)), LK_ERR_DEVICE,
                   "add: an operand on ref:1 is to be written into a tensor on ref:0; copy it with lk_copy first");
}

static void test_sum_to(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(2, 2, 3));
    check_values(lk__sum_to(LK_HERE, x, LK_SHAPE(3), false), LK_SHAPE(3), VALUES(18, 22, 26));
    check_values(lk__sum_to(LK_HERE, x, LK_SHAPE(2, 1), false), LK_SHAPE(2, 1), VALUES(24, 42));
    check_values(lk__sum_to(LK_HERE, x, LK_SCALAR, false), LK_SCALAR, VALUES(66));
    assert_ptr_equal(lk__sum_to(LK_HERE, x, x->shape, false), x);
    check_values(lk__sum_to(LK_HERE, f32(LK_SHAPE(0, 2)), LK_SHAPE(1, 2), false), LK_SHAPE(1, 2), VALUES(0, 0));
    check_values(lk__sum_to(LK_HERE, f32(LK_SHAPE(1, 2)), LK_SHAPE(2), false), LK_SHAPE(2), VALUES(1, 1));
}

static void test_matmul(void **state)
{
    (void)state;
    lk_tensor *a = counting(LK_SHAPE(2, 3));
    check_values(lk_matmul(a, lk_transpose(a, 0, 1)), LK_SHAPE(2, 2), VALUES(5, 14, 14, 50));
    check(lk_matmul(f32(LK_SHAPE(0, 3)), f32(LK_SHAPE(3, 4))), LK_F32, LK_SHAPE(0, 4));
    check_values(lk_matmul(f32(LK_SHAPE(1, 0)), f32(LK_SHAPE(0, 2))), LK_SHAPE(1, 2), VALUES(0, 0));
    refused(lk_matmul(a, a), LK_ERR_SHAPE, "matmul: a [2,3] has 3 columns but b [2,3] has 2 rows");
    refused(lk_matmul(f32(LK_SHAPE(3)), a), LK_ERR_SHAPE, "matmul: a has shape [3]; it must have 2 axes");
    refused(lk_matmul(ones(LK_I32, LK_SHAPE(2, 2)), a), LK_ERR_DTYPE, "matmul: a is i32; it must be f32, bf16 or f64");
    refused(lk_matmul(ones(LK_F64, LK_SHAPE(2, 2)), a), LK_ERR_DTYPE,
            "matmul: operands are f64 and f32; they must have one dtype (lk_cast converts)");
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static void test_sgd_update(void **state)
{
    (void)state;
    lk_tensor *parameter = counting(LK_SHAPE(3)), *gradient = f32(LK_SHAPE(3));
    assert_int_equal(lk_sgd_update(parameter, gradient, 0.5), LK_OK);
    check_values(parameter, LK_SHAPE(3), VALUES(-0.5f, 0.5f, 1.5f));
    assert_int_equal(lk_sgd_update(lk_slice(parameter, 0, 1, 2), lk_slice(gradient, 0, 0, 1), 1), LK_OK);
    check_values(parameter, LK_SHAPE(3), VALUES(-0.5f, -0.5f, 1.5f));

    refused_status(lk_sgd_update(parameter, f32(LK_SHAPE(4)), 1), LK_ERR_SHAPE,
                   "sgd_update: the gradient has shape [4]; it must be [3]");
    refused_status(lk_sgd_update(parameter, ones(LK_F64, LK_SHAPE(3)), 1), LK_ERR_DTYPE,
                   "sgd_update: the gradient is f64; it must be f32");
    refused_status(lk_sgd_update(ones(LK_BF16, LK_SHAPE(3)), gradient, 1), LK_ERR_DTYPE,
                   "sgd_update: the parameter is bf16; it must be f32 or f64");
    refused_status(lk_sgd_update(parameter, gradient, strtod("inf", NULL)), LK_ERR_ARGUMENT,
                   "sgd_update: rate is inf; it must be finite in f32");
    refused_status(lk_sgd_update(parameter, gradient, 1e39), LK_ERR_ARGUMENT,
                   "sgd_update: rate is 1e+39; it must be finite in f32");
    assert_int_equal(lk_sgd_update(ones(LK_F64, LK_SHAPE(3)), ones(LK_F64, LK_SHAPE(3)), 1e39), LK_OK);
}

/* --- flops -------------------------------------------------------------------------------------------------------- */

static void test_flops(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(2, 4, 8, 8)), *w = f32(LK_SHAPE(6, 2, 3, 3)), *y = f32(LK_SHAPE(2, 6, 6, 6));
    lk_call call = {.op = &lk__op_conv2d, .n_in = 3, .n_out = 1, .in = {x, w}, .out = {y}};
    assert_true(lk__op_conv2d.flops(&call) == 2.0 * 2 * 6 * 6 * 6 * 2 * 3 * 3);
    lk_call matmul = {.op = &lk__op_matmul, .n_in = 2, .n_out = 1};
    matmul.in[0] = f32(LK_SHAPE(2, 3));
    matmul.in[1] = f32(LK_SHAPE(3, 5));
    matmul.out[0] = f32(LK_SHAPE(2, 5));
    assert_true(lk__op_matmul.flops(&matmul) == 60.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_table),      OPERATOR_TEST(test_null_passes), OPERATOR_TEST(test_creation),
        OPERATOR_TEST(test_copy),       OPERATOR_TEST(test_overlap),     OPERATOR_TEST(test_cast),
        OPERATOR_TEST(test_arithmetic), OPERATOR_TEST(test_sum_to),      OPERATOR_TEST(test_matmul),
        OPERATOR_TEST(test_sgd_update), OPERATOR_TEST(test_flops),
    };
    return RUN_OPERATOR_TESTS(tests);
}
