/* The fused updates and the norms: refusals, and the order in which norms are summed. */
#include "ops/ops_test.h"
#include "ops/update.h"
#include "ops/fused_update.h"
#include "ops/squared_norms.h"

static const lk_update_control no_control;

static void test_refused_updates(void **state)
{
    (void)state;
    lk_momentum_attrs momentum = {.rate = 0.1};
    lk_adam_attrs adam = {.step = strtod("nan", NULL)};
    lk_tensor *w = f32(LK_SHAPE(8)), *g = f32(LK_SHAPE(8)), *wide = f32(LK_SHAPE(16));
    refused_status(lk__momentum_update(LK_HERE, w, NULL, NULL, &no_control, &momentum), LK_ERR_ARGUMENT,
                   "momentum_update: an operand is NULL");
    refused_status(lk__momentum_update(LK_HERE, w, wide, NULL, &no_control, &momentum), LK_ERR_SHAPE,
                   "momentum_update: g has shape [16]; it must be [8]");
    refused_status(lk__momentum_update(LK_HERE, f32(LK_SHAPE(2, 4)), g, NULL, &no_control, &momentum), LK_ERR_SHAPE,
                   "momentum_update: w has shape [2,4]; it must have 1 axes");
    refused_status(lk__momentum_update(LK_HERE, w, ones(LK_F64, LK_SHAPE(8)), NULL, &no_control, &momentum),
                   LK_ERR_DTYPE, "momentum_update: g is f64; it must be f32");
    refused_status(lk__momentum_update(LK_HERE, ones(LK_I32, LK_SHAPE(8)), g, NULL, &no_control, &momentum),
                   LK_ERR_DTYPE, "momentum_update: w is i32; it must be f32 or f64");
    lk_tensor *gaps = lk_reshape(lk_slice(f32(LK_SHAPE(8, 2)), 1, 0, 1), LK_SHAPE(8));
    refused_status(lk__momentum_update(LK_HERE, w, gaps, NULL, &no_control, &momentum), LK_ERR_ARGUMENT,
                   "momentum_update: g is a view with gaps; it must be dense");
    lk_update_control control = {.skip = f32(LK_SHAPE(1))};
    refused_status(lk__momentum_update(LK_HERE, w, g, NULL, &control, &momentum), LK_ERR_SHAPE,
                   "momentum_update: skip has shape [1]; it must be []");
    refused_status(lk__adam_update(LK_HERE, w, g, f32(LK_SHAPE(8)), f32(LK_SHAPE(8)), &no_control, &adam),
                   LK_ERR_ARGUMENT, "adam_update: step is nan; it must be finite");
    lk_tensor *on_other = lk_full(other, LK_F32, LK_SHAPE(8), 1);
    refused_status(lk__momentum_update(LK_HERE, w, on_other, NULL, &no_control, &momentum), LK_ERR_DEVICE,
                   "momentum_update: operands on ref:0 and on ref:1; copy one with lk_copy first");
}

static lk_tensor *segments_at(int64_t begin, int64_t middle, int64_t end)
{
    return lk_tensor_from(device, LK_I64, LK_SHAPE(3), (int64_t[]){begin, middle, end});
}

/* The segments' bounds are known only when the kernel runs. */
static void refused_later(lk_tensor *made, const char *message)
{
    assert_int_equal(lk_tensor_wait(made), LK_ERR_ARGUMENT);
    if (strncmp(lk_error_message(), message, strlen(message)) != 0)
        fail_msg("'%s' does not start with '%s'", lk_error_message(), message);
    lk_error_clear();
}

static void test_refused_segments(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(8));
    refused(lk__squared_norms(LK_HERE, x, lk_zeros(device, LK_I64, LK_SHAPE(0))), LK_ERR_SHAPE,
            "squared_norms: offsets is empty; n segments have n + 1 offsets");
    refused(lk__squared_norms(LK_HERE, x, f32(LK_SHAPE(2))), LK_ERR_DTYPE,
            "squared_norms: offsets is f32; it must be i64");
    refused_later(lk__squared_norms(LK_HERE, x, segments_at(0, 5, 4)),
                  "squared_norms: segment 1 is [5, 4); segments ascend within [0, 8)");
    refused_later(lk__squared_norms(LK_HERE, x, segments_at(0, 5, 9)),
                  "squared_norms: segment 1 is [5, 9); segments ascend within [0, 8)");
    refused_later(lk__squared_norms(LK_HERE, x, segments_at(-1, 5, 8)),
                  "squared_norms: segment 0 is [-1, 5); segments ascend within [0, 8)");
}

/* Adds up five blocks, the last with 33 elements, in the order that ops/update.h states. */
static void test_order_of_norms(void **state)
{
    (void)state;
    enum { N = 4 * LK_NORM_BLOCK + LK_NORM_LANES + 1, BLOCKS = 5 };
    static float x[N];
    static double lane[BLOCKS][LK_NORM_LANES];
    lk_random_key key = {.seed = 3};
    lk_tensor *values = lk_normal(device, LK_F32, LK_SHAPE(N), 0, 1, key);
    assert_int_equal(lk_tensor_read(values, x, sizeof x), LK_OK);
    double in_order = 0, have;
    for (int i = 0; i < N; i++) {
        lane[i / LK_NORM_BLOCK][i % LK_NORM_LANES] += (double)x[i] * (double)x[i];
        in_order += (double)x[i] * (double)x[i];
    }
    for (int b = 0; b < BLOCKS; b++)
        for (int h = LK_NORM_LANES / 2; h > 0; h /= 2)
            for (int j = 0; j < h; j++)
                lane[b][j] += lane[b][j + h];
    double want = ((lane[0][0] + lane[1][0]) + (lane[2][0] + lane[3][0])) + lane[4][0];
    int64_t offsets[] = {0, N};
    lk_tensor *norms = lk__squared_norms(LK_HERE, values, lk_tensor_from(device, LK_I64, LK_SHAPE(2), offsets));
    assert_int_equal(lk_tensor_read(norms, &have, sizeof have), LK_OK);
    assert_true(have == want);
    assert_true(have != in_order); /* otherwise the order would make no difference */
}

static void test_refused_scales(void **state)
{
    (void)state;
    lk_update_scales_attrs attrs = {.clip_norm = 1};
    lk_update_scales scales = {NULL};
    lk_tensor *norms = ones(LK_F64, LK_SHAPE(3)), *skip = f32(LK_SCALAR);
    refused_status(lk__update_scales(LK_HERE, &(lk_update_norms){.skip = skip}, &attrs, &scales), LK_ERR_ARGUMENT,
                   "update_scales: an operand is NULL");
    refused_status(
        lk__update_scales(LK_HERE, &(lk_update_norms){.skip = skip, .gradients = f32(LK_SHAPE(3))}, &attrs, &scales),
        LK_ERR_DTYPE, "update_scales: the gradients' norms is f32; it must be f64");
    lk_update_norms given = {.skip = skip, .gradients = norms, .parameters = norms};
    refused_status(lk__update_scales(LK_HERE, &given, &attrs, &scales), LK_ERR_ARGUMENT,
                   "update_scales: an operand is NULL");
    given.adapted = f32(LK_SHAPE(2));
    refused_status(lk__update_scales(LK_HERE, &given, &attrs, &scales), LK_ERR_SHAPE,
                   "update_scales: adapted has shape [2]; it must be [3]");
    given.loss = f32(LK_SHAPE(1));
    refused_status(lk__update_scales(LK_HERE, &given, &attrs, &scales), LK_ERR_SHAPE,
                   "update_scales: the loss has shape [1]; it must be []");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_refused_updates),
        OPERATOR_TEST(test_refused_segments),
        OPERATOR_TEST(test_order_of_norms),
        OPERATOR_TEST(test_refused_scales),
    };
    return RUN_OPERATOR_TESTS(tests);
}
