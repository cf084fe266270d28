/* The operators of networks: shapes, refusals, empty batches. */
#include "ops/ops_test.h"
#include "ops/conv2d.h"

/* --- networks ----------------------------------------------------------------------------------------------------- */

static void test_conv2d(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(2, 4, 9, 8)), *w = f32(LK_SHAPE(6, 2, 3, 2)), *bias = f32(LK_SHAPE(6));
    lk_conv2d_opts opts = {.stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 1}, .groups = 2};
    check(lk_conv2d(x, w, bias, &opts), LK_F32, LK_SHAPE(2, 6, 4, 4));
    check(lk_conv2d(f32(LK_SHAPE(0, 4, 9, 8)), w, NULL, &opts), LK_F32, LK_SHAPE(0, 6, 4, 4));
    check(lk_conv2d(x, f32(LK_SHAPE(1, 4, 9, 8)), NULL, NULL), LK_F32, LK_SHAPE(2, 1, 1, 1));

    lk_tensor *dbias = NULL;
    lk_conv2d_opts plain = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    lk_tensor *dy = f32(LK_SHAPE(0, 1, 2, 2));
    check(lk__conv2d_input_grad(LK_HERE, dy, f32(LK_SHAPE(1, 1, 2, 2)), LK_SHAPE(0, 1, 3, 3), &plain), LK_F32,
          LK_SHAPE(0, 1, 3, 3));
    lk_tensor *dw =
        lk__conv2d_weight_grad(LK_HERE, dy, f32(LK_SHAPE(0, 1, 3, 3)), LK_SHAPE(1, 1, 2, 2), &plain, false, &dbias);
    check_values(dw, LK_SHAPE(1, 1, 2, 2), VALUES(0, 0, 0, 0));
    check_values(dbias, LK_SHAPE(1), VALUES(0));
    refused(lk__conv2d_input_grad(LK_HERE, dy, f32(LK_SHAPE(1, 1, 2, 2)), LK_SHAPE(0, 1, 4, 3), &plain), LK_ERR_SHAPE,
            "conv2d_input_grad: dy has shape [0,1,2,2]; it must be [0,1,3,2]");
}

static void test_conv2d_refuses(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(32, 3, 28, 28)), *w = f32(LK_SHAPE(20, 3, 3, 3));
    refused(lk_conv2d(x, f32(LK_SHAPE(20, 1, 3, 3)), NULL, NULL), LK_ERR_SHAPE,
            "conv2d: x has 3 channels (shape [32,3,28,28]) but w [20,1,3,3] takes 1 x groups 1");
    refused(lk_conv2d(x, f32(LK_SHAPE(20, 1, 3, 3)), NULL, &(lk_conv2d_opts){.groups = 3}), LK_ERR_SHAPE,
            "conv2d: w [20,1,3,3] makes 20 channels, which 3 groups do not divide");
    refused(lk_conv2d(f32(LK_SHAPE(3, 28, 28)), w, NULL, NULL), LK_ERR_SHAPE,
            "conv2d: x has shape [3,28,28]; it must be [N, C, H, W]");
    refused(lk_conv2d(x, f32(LK_SHAPE(20, 27)), NULL, NULL), LK_ERR_SHAPE,
            "conv2d: w has shape [20,27]; it must be [O, C / groups, KH, KW]");
    refused(lk_conv2d(x, f32(LK_SHAPE(20, 3, 0, 3)), NULL, NULL), LK_ERR_SHAPE,
            "conv2d: x [32,3,28,28], w [20,3,0,3]: no size but that of the batch may be 0");
    refused(lk_conv2d(x, w, f32(LK_SHAPE(3)), NULL), LK_ERR_SHAPE, "conv2d: bias has shape [3]; it must be [20]");
    refused(lk_conv2d(x, f32(LK_SHAPE(20, 3, 33, 3)), NULL, &(lk_conv2d_opts){.padding = {2, 0}}), LK_ERR_SHAPE,
            "conv2d: a kernel of 33 with dilation 1 does not fit into H = 28 with padding 2 on both sides");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.dilation = {1, 14}}), LK_ERR_SHAPE,
            "conv2d: a kernel of 3 with dilation 14 does not fit into W = 28 with padding 0 on both sides");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.dilation = {INT32_MAX, 1}}), LK_ERR_SHAPE,
            "conv2d: a kernel of 3 with dilation 2147483647 does not fit into H = 28 with padding 0 on both sides");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.dilation = {INT64_C(1) << 31, 1}}), LK_ERR_ARGUMENT,
            "conv2d: dilation of 2147483648 along H; it must be at least 1 and below 2^31");
    refused(
        lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.stride = {1, INT64_C(1) << 31}}), LK_ERR_ARGUMENT,
        "conv2d: stride of 2147483648 along W; it must be at least 1, and together with W and its padding below 2^31");
    refused(
        lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.stride = {INT32_MAX - 29, 1}, .padding = {1, 0}}), LK_ERR_ARGUMENT,
        "conv2d: stride of 2147483618 along H; it must be at least 1, and together with H and its padding below 2^31");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.stride = {-1, 1}}), LK_ERR_ARGUMENT,
            "conv2d: stride of -1 along H; it must be at least 1, and together with H and its padding below 2^31");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.dilation = {1, -2}}), LK_ERR_ARGUMENT,
            "conv2d: dilation of -2 along W; it must be at least 1 and below 2^31");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.groups = -1}), LK_ERR_ARGUMENT,
            "conv2d: groups is -1; it must be at least 1");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {-1, 0}}), LK_ERR_ARGUMENT,
            "conv2d: padding of -1 along H; it must be at least 0, and H with padding below 2^31");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {0, INT64_MAX}}), LK_ERR_ARGUMENT,
            "conv2d: padding of 9223372036854775807 along W; it must be at least 0, and W with padding below 2^31");
    refused(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {0, 1 << 30}, .stride = {1, 1 << 30}}), LK_ERR_ARGUMENT,
            "conv2d: padding of 1073741824 along W; it must be at least 0, and W with padding below 2^31");
    refused(lk_conv2d(ones(LK_U8, LK_SHAPE(1, 3, 5, 5)), w, NULL, NULL), LK_ERR_DTYPE,
            "conv2d: x is u8; it must be f32, bf16 or f64");
    refused(lk_conv2d(x, ones(LK_BF16, LK_SHAPE(20, 3, 3, 3)), NULL, NULL), LK_ERR_DTYPE,
            "conv2d: operands are f32 and bf16; they must have one dtype (lk_cast converts)");
}

static void test_pool2d(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(1, 1, 3, 4));
    lk_pool2d_opts opts = {.kernel = {2, 2}};
    check_values(lk_max_pool2d(x, &opts), LK_SHAPE(1, 1, 1, 2), VALUES(5, 7));
    check_values(lk_avg_pool2d(x, &opts), LK_SHAPE(1, 1, 1, 2), VALUES(2.5f, 4.5f));
    check_values(lk_global_max_pool2d(x), LK_SHAPE(1, 1, 1, 1), VALUES(11));
    check_values(lk_global_avg_pool2d(x), LK_SHAPE(1, 1, 1, 1), VALUES(5.5f));
    opts = (lk_pool2d_opts){.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}};
    check(lk_max_pool2d(f32(LK_SHAPE(0, 2, 5, 5)), &opts), LK_F32, LK_SHAPE(0, 2, 3, 6));
    check(lk_avg_pool2d(f32(LK_SHAPE(2, 2, 5, 5)), &opts), LK_F32, LK_SHAPE(2, 2, 3, 6));

    refused(lk_max_pool2d(f32(LK_SHAPE(0, 1, 65536, 32768)), &opts), LK_ERR_SHAPE,
            "max_pool2d: planes of 65536x32768 pixels; positions in them are 32-bit integers");
    refused(lk_max_pool2d(x, &(lk_pool2d_opts){.kernel = {0, 2}}), LK_ERR_ARGUMENT,
            "max_pool2d: kernel of 0 along H; it must be at least 1");
    refused(lk_avg_pool2d(x, &(lk_pool2d_opts){.kernel = {3, 3}, .padding = {1, 2}}), LK_ERR_ARGUMENT,
            "avg_pool2d: padding of 2 along W; it must be at most 1, half the kernel of 3");
    refused(lk_max_pool2d(x, &(lk_pool2d_opts){.kernel = {3, 3}, .stride = {-1, 1}}), LK_ERR_ARGUMENT,
            "max_pool2d: stride of -1 along H; it must be at least 1, and together with H and its padding below 2^31");
    refused(lk_max_pool2d(x, &(lk_pool2d_opts){.kernel = {4, 1}}), LK_ERR_SHAPE,
            "max_pool2d: a kernel of 4 with dilation 1 does not fit into H = 3 with padding 0 on both sides");
    refused(lk_global_avg_pool2d(f32(LK_SHAPE(2, 2, 0, 5))), LK_ERR_SHAPE,
            "avg_pool2d: x has shape [2,2,0,5]; no size but that of the batch may be 0");
    refused(lk_global_max_pool2d(f32(LK_SHAPE(2, 2))), LK_ERR_SHAPE,
            "max_pool2d: x has shape [2,2]; it must be [N, C, H, W]");
    refused(lk_avg_pool2d(ones(LK_I64, LK_SHAPE(1, 1, 3, 3)), &opts), LK_ERR_DTYPE,
            "avg_pool2d: x is i64; it must be f32, bf16 or f64");
}

static void test_relu_and_softmax(void **state)
{
    (void)state;
    lk_tensor *x = lk_add_scalar(counting(LK_SHAPE(3)), -1);
    check_values(lk_relu(x), LK_SHAPE(3), VALUES(0, 0, 1));
    check(lk_softmax(f32(LK_SHAPE(2, 3, 4)), -2), LK_F32, LK_SHAPE(2, 3, 4));
    check_values(lk_softmax(f32(LK_SHAPE(2, 4)), 1), LK_SHAPE(2, 4),
                 VALUES(.25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f));
    check(lk_log_softmax(f32(LK_SHAPE(0, 3)), 1), LK_F32, LK_SHAPE(0, 3));
    check(lk_softmax(f32(LK_SHAPE(3, 0)), 1), LK_F32, LK_SHAPE(3, 0));
    refused(lk_relu(ones(LK_I32, LK_SHAPE(2))), LK_ERR_DTYPE, "relu: x is i32; it must be f32, bf16 or f64");
    refused(lk_softmax(ones(LK_I32, LK_SHAPE(2)), 0), LK_ERR_DTYPE, "softmax: x is i32; it must be f32, bf16 or f64");
    refused(lk_log_softmax(x, 1), LK_ERR_SHAPE, "log_softmax: axis 1 of a tensor with 1 dimension");
    refused(lk_softmax(f32(LK_SCALAR), 0), LK_ERR_SHAPE, "softmax: axis 0 of a tensor with 0 dimensions");
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

static void test_reductions(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(2, 3));
    lk_reduce_opts last = {.n_axes = 1, .axes = {-1}}, first_kept = {.n_axes = 1, .axes = {0}, .keepdim = true};
    check_values(lk_sum(x, NULL), LK_SCALAR, VALUES(15));
    check_values(lk_mean(x, &last), LK_SHAPE(2), VALUES(1, 4));
    check_values(lk_max(x, &first_kept), LK_SHAPE(1, 3), VALUES(3, 4, 5));
    check_values(lk_sum(x, &(lk_reduce_opts){.keepdim = true}), LK_SHAPE(1, 1), VALUES(15));
    check_values(lk_sum(lk_transpose(x, 0, 1), &last), LK_SHAPE(3), VALUES(3, 5, 7));
    check_values(lk_mean(f32(LK_SCALAR), NULL), LK_SCALAR, VALUES(1));
    check(lk_max(ones(LK_U8, LK_SHAPE(2)), NULL), LK_U8, LK_SCALAR);
    check(lk_argmax(x, 0), LK_I64, LK_SHAPE(3));
    check_values(lk_cast(lk_argmax(x, -1), LK_F32), LK_SHAPE(2), VALUES(2, 2));

    lk_tensor *empty = f32(LK_SHAPE(0, 3));
    check_values(lk_sum(empty, NULL), LK_SCALAR, VALUES(0));
    check_values(lk_sum(empty, &first_kept), LK_SHAPE(1, 3), VALUES(0, 0, 0));
    check(lk_mean(empty, &last), LK_F32, LK_SHAPE(0));
    check(lk_max(empty, &last), LK_F32, LK_SHAPE(0));
    check(lk_argmax(empty, 1), LK_I64, LK_SHAPE(0));
    refused(lk_mean(empty, NULL), LK_ERR_SHAPE,
            "mean: over no elements: x has shape [0,3]; every reduced axis must have at least 1");
    refused(lk_max(empty, &first_kept), LK_ERR_SHAPE,
            "max: over no elements: x has shape [0,3]; every reduced axis must have at least 1");
    refused(lk_argmax(empty, 0), LK_ERR_SHAPE,
            "argmax: over no elements: x has shape [0,3]; every reduced axis must have at least 1");

    refused(lk_mean(ones(LK_I32, LK_SHAPE(2)), NULL), LK_ERR_DTYPE, "mean: x is i32; it must be f32, bf16 or f64");
    refused(lk_sum(x, &(lk_reduce_opts){.n_axes = 2, .axes = {1, -1}}), LK_ERR_ARGUMENT, "sum: axis 1 is named twice");
    refused(lk_sum(x, &(lk_reduce_opts){.n_axes = 7}), LK_ERR_ARGUMENT, "sum: n_axes is 7; it must be between 0 and 6");
    refused(lk_max(x, &(lk_reduce_opts){.n_axes = 1, .axes = {2}}), LK_ERR_SHAPE,
            "max: axis 2 of a tensor with 2 dimensions");
}

static void test_labels(void **state)
{
    (void)state;
    lk_tensor *logits = f32(LK_SHAPE(4, 3)), *labels = ones(LK_I64, LK_SHAPE(4));
    check(lk_sparse_softmax_cross_entropy(logits, labels, LK_REDUCTION_NONE), LK_F32, LK_SHAPE(4));
    check(lk_sparse_softmax_cross_entropy(logits, labels, LK_REDUCTION_MEAN), LK_F32, LK_SCALAR);
    check_values(lk_in_top_k(logits, labels, 1), LK_SHAPE(4), VALUES(0, 0, 0, 0));
    check_values(lk_in_top_k(logits, lk_cast(labels, LK_I32), 2), LK_SHAPE(4), VALUES(1, 1, 1, 1));

    lk_tensor *none = f32(LK_SHAPE(0, 3)), *no_labels = ones(LK_I32, LK_SHAPE(0));
    check_values(lk_sparse_softmax_cross_entropy(none, no_labels, LK_REDUCTION_SUM), LK_SCALAR, VALUES(0));
    check(lk_sparse_softmax_cross_entropy(none, no_labels, LK_REDUCTION_NONE), LK_F32, LK_SHAPE(0));
    check(lk_in_top_k(none, no_labels, 1), LK_F32, LK_SHAPE(0));
    refused(lk_sparse_softmax_cross_entropy(none, no_labels, LK_REDUCTION_MEAN), LK_ERR_SHAPE,
            "sparse_softmax_cross_entropy: the mean over no samples: logits have shape [0,3]");

    refused(lk_sparse_softmax_cross_entropy(logits, ones(LK_F32, LK_SHAPE(4)), LK_REDUCTION_SUM), LK_ERR_DTYPE,
            "sparse_softmax_cross_entropy: labels is f32; it must be i32 or i64");
    refused(lk_sparse_softmax_cross_entropy(labels, labels, LK_REDUCTION_SUM), LK_ERR_DTYPE,
            "sparse_softmax_cross_entropy: logits is i64; it must be f32, bf16 or f64");
    refused(lk_sparse_softmax_cross_entropy(logits, labels, (lk_reduction)9), LK_ERR_ARGUMENT,
            "sparse_softmax_cross_entropy: reduction 9; it must be one of none, sum, mean");
    refused(lk_in_top_k(logits, no_labels, 1), LK_ERR_SHAPE, "in_top_k: labels have shape [0]; logits [4,3] need [4]");
    refused(lk_in_top_k(f32(LK_SHAPE(4)), labels, 1), LK_ERR_SHAPE,
            "in_top_k: logits have shape [4]; it must be [N, C] with C at least 1");
    refused(lk_in_top_k(logits, labels, 4), LK_ERR_ARGUMENT,
            "in_top_k: k is 4; with logits [4,3] it must be between 1 and 3");
    refused(lk_in_top_k(logits, labels, 0), LK_ERR_ARGUMENT,
            "in_top_k: k is 0; with logits [4,3] it must be between 1 and 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_conv2d),           OPERATOR_TEST(test_conv2d_refuses), OPERATOR_TEST(test_pool2d),
        OPERATOR_TEST(test_relu_and_softmax), OPERATOR_TEST(test_reductions),     OPERATOR_TEST(test_labels),
    };
    return RUN_OPERATOR_TESTS(tests);
}
