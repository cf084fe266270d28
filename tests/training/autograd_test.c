/* The tape: its gradients, who owns them, and which calls it refuses. Values are small integers, so that every sum and
 * product is exact. */
#include "base/status_testing.h"
#include "lockstep/autograd.h"
#include "lockstep/dist.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static lk_device *device, *other;

static int open_devices(void **state)
{
    (void)state;
    device = lk_device_open("cpu:0");
    other = lk_device_open("cpu:1");
    return device && other ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    lk_device_release(device);
    lk_device_release(other);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    lk_error_clear();
    lk_scope_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    lk_scope_end();
    int64_t now = 0, of_other = 0, peak;
    if (lk_wait_all() != LK_OK)
        return -1;
    lk_device_memory(device, &now, &peak);
    lk_device_memory(other, &of_other, &peak);
    return now == 0 && of_other == 0 ? 0 : -1;
}

#define TAPE_TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
#define VALUES(...) ((const float[]){__VA_ARGS__})

/* [count], or [rows, count / rows] */
static lk_tensor *vector_on(lk_device *where, int64_t count, const float *values)
{
    lk_tensor *x = lk_tensor_from(where, LK_F32, LK_SHAPE(count), values);
    assert_non_null(x);
    return x;
}

static lk_tensor *vector(int64_t count, const float *values)
{
    return vector_on(device, count, values);
}

static lk_tensor *matrix(int64_t rows, int64_t columns, const float *values)
{
    return lk_reshape(vector(rows * columns, values), LK_SHAPE(rows, columns));
}

static void check(lk_tensor *x, int64_t count, const float *values)
{
    float have[32];
    if (!x)
        fail_msg("NULL, %s", lk_error_message());
    assert_int_equal(lk_tensor_count(x), count);
    if (lk_tensor_read(x, have, (size_t)count * sizeof *have) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (int64_t i = 0; i < count; i++)
        if (have[i] != values[i])
            fail_msg("[%lld] is %g, expected %g", (long long)i, (double)have[i], (double)values[i]);
}

static lk_tape *watch(int n, lk_tensor *const *watched)
{
    lk_tape *tape = lk_tape_begin(watched, n);
    if (!tape)
        fail_msg("%s", lk_error_message());
    return tape;
}

#define WATCH(...) \
    watch((int)(sizeof((lk_tensor *[]){__VA_ARGS__}) / sizeof(lk_tensor *)), (lk_tensor *[]){__VA_ARGS__})

static void walk(lk_tape *tape, lk_tensor *target, lk_tensor *seed, lk_tensor **gradients)
{
    if (lk_tape_gradient(tape, target, seed, gradients) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_tape_release(tape);
}

/* --- sums of gradients -------------------------------------------------------------------------------------------- */

static void an_operand_may_be_used_twice_in_a_call(void **state)
{
    (void)state;
    lk_tensor *x = vector(3, VALUES(1, -2, 5)), *g;
    lk_tape *tape = WATCH(x);
    walk(tape, lk_mul(x, x), NULL, &g);
    check(g, 3, VALUES(2, -4, 10));
    tape = WATCH(x);
    walk(tape, lk_add(x, x), NULL, &g);
    check(g, 3, VALUES(2, 2, 2));
    tape = WATCH(x);
    walk(tape, lk_sub(x, x), NULL, &g);
    check(g, 3, VALUES(0, 0, 0));
}

static void a_parameter_may_be_used_by_two_calls(void **state)
{
    (void)state;
    lk_tensor *w = vector(3, VALUES(1, 2, 3)), *a = vector(3, VALUES(4, 5, 6)), *b = vector(3, VALUES(7, 8, 9)), *g;
    lk_tape *tape = WATCH(w);
    lk_tensor *y = lk_mul(w, a);
    y = lk_add(lk_sum(y, NULL), lk_sum(lk_mul(lk_mul(w, b), w), NULL));
    walk(tape, y, NULL, &g);
    check(g, 3, VALUES(4 + 2 * 7, 5 + 2 * 2 * 8, 6 + 2 * 3 * 9));
}

/* The sum is (later use) + (earlier use). With these magnitudes any other order gives other bits. */
static void uses_are_added_from_the_last_to_the_first(void **state)
{
    (void)state;
    lk_tensor *x = vector(1, VALUES(1)), *g;
    lk_tape *tape = WATCH(x);
    lk_tensor *first = lk_mul_scalar(x, 1), *second = lk_mul_scalar(x, 0x1p24), *third = lk_mul_scalar(x, 1);
    walk(tape, lk_add(lk_add(first, second), third), NULL, &g);
    volatile float late = 1.0f + 0x1p24f, expected = late + 1.0f;
    check(g, 1, VALUES(expected));
    tape = WATCH(x);
    first = lk_mul_scalar(x, 0x1p24), second = lk_mul_scalar(x, 1), third = lk_mul_scalar(x, 1);
    walk(tape, lk_add(lk_add(first, second), third), NULL, &g);
    check(g, 1, VALUES(0x1p24f + 2));
}

static void a_tensor_may_be_watched_twice(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(3, 4)), *g[2];
    lk_tape *tape = WATCH(x, x);
    walk(tape, lk_mul(x, x), NULL, g);
    assert_ptr_not_equal(g[0], g[1]);
    check(g[0], 2, VALUES(6, 8));
    check(g[1], 2, VALUES(6, 8));
}

static void the_target_may_be_watched(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(3, 4)), *seed = vector(2, VALUES(5, 6)), *g;
    lk_tape *tape = WATCH(x);
    walk(tape, x, NULL, &g);
    check(g, 2, VALUES(1, 1));
    tape = WATCH(x);
    walk(tape, x, seed, &g);
    check(g, 2, VALUES(5, 6));
    assert_ptr_not_equal(g, seed);
}

/* --- what does not contribute ------------------------------------------------------------------------------------- */

static void gradients_of_unused_operands_are_null(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *y = vector(2, VALUES(3, 4)), *z = vector(2, VALUES(5, 6)), *g[3];
    lk_tape *tape = WATCH(x, y, z);
    lk_tensor *unused = lk_mul(y, y); /* recorded, but the target does not depend on it */
    walk(tape, lk_mul(x, z), NULL, g);
    check(g[0], 2, VALUES(5, 6));
    assert_null(g[1]);
    check(g[2], 2, VALUES(1, 2));
    check(unused, 2, VALUES(9, 16));
}

static lk_status step(lk_strategy *strategy, lk_shard_sum *sum, lk_tensor **parameters)
{
    enum { PARAMETERS = 3 };
    lk_tensor *sums[2 * PARAMETERS];
    for (int r = 0; r < 2; r++) {
        lk_tensor **own = parameters + PARAMETERS * r, *gradients[PARAMETERS];
        lk_scope_begin();
        lk_tape *tape = lk_tape_begin(own, PARAMETERS);
        lk_tensor *x = vector_on(lk_strategy_device(strategy, r), 2, r ? VALUES(1, 2) : VALUES(3, 4));
        lk_tensor *loss = lk_sum(lk_mul(own[0], x), NULL);
        if (r == 0) /* the last parameter contributes on one device only */
            loss = lk_add(loss, lk_sum(own[2], NULL));
        walk(tape, loss, NULL, gradients);
        assert_null(gradients[1]);
        assert_true((gradients[2] != NULL) == (r == 0));
        assert_int_equal(lk_shard_sum_add(sum, r, gradients), LK_OK);
        lk_scope_end();
    }
    lk_status status = lk_shard_sum_finish(sum, sums);
    for (int r = 0; r < 2 && status == LK_OK; r++)
        status = lk_sgd(parameters + PARAMETERS * r, sums + PARAMETERS * r, PARAMETERS, 0.5);
    for (int i = 0; i < 2 * PARAMETERS; i++)
        lk_tensor_release(sums[i]);
    return status;
}

static void training_continues_without_a_gradient(void **state)
{
    (void)state;
    lk_tensor *parameters[6];
    lk_strategy *strategy = lk_strategy_new("mirrored", (lk_device *[]){device, other}, 2);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, 2, 3);
    lk_tensor *initial[3] = {vector(2, VALUES(10, 20)), vector(3, VALUES(1, 2, 3)), vector(2, VALUES(7, 8))};
    assert_int_equal(lk_strategy_distribute(strategy, initial, 3, parameters), LK_OK);
    for (int s = 0; s < 3; s++)
        assert_int_equal(step(strategy, sum, parameters), LK_OK);
    for (int r = 0; r < 2; r++) {
        check(parameters[3 * r], 2, VALUES(10 - 3 * 0.5f * 4, 20 - 3 * 0.5f * 6));
        check(parameters[3 * r + 1], 3, VALUES(1, 2, 3));
        check(parameters[3 * r + 2], 2, VALUES(7 - 3 * 0.5f, 8 - 3 * 0.5f));
    }
    for (int i = 0; i < 6; i++)
        lk_tensor_release(parameters[i]);
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
}

/* --- views, copies, devices --------------------------------------------------------------------------------------- */

static void gradients_pass_through_views(void **state)
{
    (void)state;
    lk_tensor *x = matrix(2, 3, VALUES(1, 2, 3, 4, 5, 6)), *g;
    lk_tensor *seed = vector(4, VALUES(10, 20, 30, 40));
    lk_tape *tape = WATCH(x);
    /* columns 1 and 2, transposed to [3 - 1, 2], flattened: elements 2, 5, 3, 6 */
    lk_tensor *y = lk_reshape(lk_transpose(lk_slice(x, 1, 1, 3), 0, 1), LK_SHAPE(4));
    check(y, 4, VALUES(2, 5, 3, 6));
    walk(tape, y, seed, &g);
    check(g, 6, VALUES(0, 10, 30, 0, 20, 40));
}

static void slices_may_overlap(void **state)
{
    (void)state;
    lk_tensor *x = vector(4, VALUES(1, 2, 3, 4)), *g;
    lk_tape *tape = WATCH(x);
    lk_tensor *y = lk_mul(lk_slice(x, 0, 0, 3), lk_slice(x, 0, 1, 4));
    walk(tape, y, NULL, &g);
    check(g, 4, VALUES(2, 1 + 3, 2 + 4, 3));
}

static void gradients_pass_through_expansion(void **state)
{
    (void)state;
    lk_tensor *x = matrix(1, 2, VALUES(1, 2)), *g;
    lk_tape *tape = WATCH(x);
    lk_tensor *y = lk_mul(lk_expand(x, LK_SHAPE(3, 2)), matrix(3, 2, VALUES(1, 2, 3, 4, 5, 6)));
    walk(tape, y, NULL, &g);
    check(g, 2, VALUES(9, 12));
    lk_tensor *b = vector(1, VALUES(3));
    tape = WATCH(b);
    walk(tape, lk_add(matrix(2, 2, VALUES(1, 2, 3, 4)), b), NULL, &g);
    check(g, 1, VALUES(4));
}

static void gradients_pass_through_concatenation(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *y = vector(1, VALUES(3)), *g[2];
    lk_tape *tape = WATCH(x, y);
    lk_tensor *joined = lk_concat((lk_tensor *[]){x, y, x}, 3, 0);
    walk(tape, joined, vector(5, VALUES(1, 10, 100, 1000, 10000)), g);
    check(g[0], 2, VALUES(1001, 10010));
    check(g[1], 1, VALUES(100));
}

static void gradients_pass_through_copies_to_another_device(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *w = vector_on(other, 2, VALUES(5, 7)), *g[2];
    lk_tape *tape = WATCH(x, w);
    lk_tensor *there = lk_mul(lk_copy(x, other), w);
    lk_tensor *back = lk_add(lk_copy(there, device), x);
    walk(tape, back, NULL, g);
    assert_ptr_equal(lk_tensor_device(g[0]), device);
    assert_ptr_equal(lk_tensor_device(g[1]), other);
    check(g[0], 2, VALUES(6, 8));
    check(g[1], 2, VALUES(1, 2));
}

static void gradients_pass_through_casts(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *g;
    lk_tape *tape = WATCH(x);
    walk(tape, lk_sum(lk_mul_scalar(lk_cast(x, LK_F64), 3), NULL), NULL, &g);
    assert_int_equal(lk_tensor_dtype(g), LK_F32);
    check(g, 2, VALUES(3, 3));
}

/* Neither 1 + 2^-12 is a bf16 number, nor 1 + 2^-9, the sum over two uses of one cast. */
static void gradients_of_casts_to_bf16_are_summed_in_f32(void **state)
{
    (void)state;
    lk_tensor *w = matrix(1, 2, VALUES(3, 5)), *bias = vector(2, VALUES(1, 2)), *g[2];
    lk_tensor *x = lk_cast(matrix(2, 1, VALUES(1, 1)), LK_BF16);
    lk_tensor *rows = lk_cast(matrix(2, 2, VALUES(1, 1, 0x1p-12f, 0x1p-12f)), LK_BF16);
    lk_tape *tape = WATCH(w, bias);
    lk_tensor *y = lk_add(lk_matmul(x, lk_cast(w, LK_BF16)), lk_cast(bias, LK_BF16));
    walk(tape, y, rows, g);
    assert_int_equal(lk_tensor_dtype(g[0]), LK_F32);
    assert_int_equal(lk_tensor_dtype(g[1]), LK_F32);
    check(g[0], 2, VALUES(1 + 0x1p-12f, 1 + 0x1p-12f));
    check(g[1], 2, VALUES(1 + 0x1p-12f, 1 + 0x1p-12f));
    tape = WATCH(bias);
    lk_tensor *b = lk_cast(bias, LK_BF16);
    y = lk_add(b, lk_mul_scalar(b, 0x1p-9));
    walk(tape, y, NULL, g);
    assert_int_equal(lk_tensor_dtype(g[0]), LK_F32);
    check(g[0], 2, VALUES(1 + 0x1p-9f, 1 + 0x1p-9f));
}

/* --- whose the gradients are -------------------------------------------------------------------------------------- */

/* Addition and subtraction pass on the gradient that they get, reshape and sum give views of it; nevertheless each
 * gradient has memory of its own. */
static void gradients_share_no_memory(void **state)
{
    (void)state;
    static const float marks[2] = {-1, -1};
    lk_tensor *a = vector(2, VALUES(1, 2)), *b = vector(2, VALUES(3, 4)), *c = matrix(1, 2, VALUES(5, 6)),
              *seed = vector(2, VALUES(7, 8)), *g[3];
    lk_tape *tape = WATCH(a, b, c);
    walk(tape, lk_add(lk_add(a, b), lk_reshape(c, LK_SHAPE(2))), seed, g);
    for (int i = 0; i < 3; i++) {
        check(g[i], 2, VALUES(7, 8));
        assert_int_equal(lk_tensor_write(g[i], marks, sizeof marks), LK_OK);
        for (int j = i + 1; j < 3; j++)
            check(g[j], 2, VALUES(7, 8));
        check(seed, 2, VALUES(7, 8));
    }
    check(a, 2, VALUES(1, 2));

    tape = WATCH(a, b);
    walk(tape, lk_add(lk_sum(a, NULL), lk_sum(b, NULL)), NULL, g);
    assert_int_equal(lk_tensor_write(g[0], marks, sizeof marks), LK_OK);
    check(g[0], 2, marks);
    check(g[1], 2, VALUES(1, 1));
    assert_int_equal(lk_add_into(g[1], g[1], g[0]), LK_OK);
    check(g[1], 2, VALUES(0, 0));
}

static void mark(lk_tensor *x)
{
    static const float marks[2] = {-1, -1};
    assert_int_equal(lk_tensor_write(x, marks, sizeof marks), LK_OK);
}

/* Addition passes the product's gradient on to both operands, as one tensor. The gradient of c is the seed, which is
 * watched as well. */
static void operands_with_one_gradient_get_copies(void **state)
{
    (void)state;
    lk_tensor *a = vector(2, VALUES(1, 2)), *b = vector(2, VALUES(3, 4)), *c = vector(2, VALUES(5, 6)),
              *w = vector(2, VALUES(7, 8)), *g[5];
    lk_tape *tape = WATCH(a, b, a, c, w);
    walk(tape, lk_add(lk_mul(lk_add(a, b), w), c), w, g);
    for (int i = 0; i < 3; i++) {
        check(g[i], 2, VALUES(49, 64));
        mark(g[i]);
    }
    check(g[3], 2, VALUES(7, 8));
    mark(g[3]);
    check(w, 2, VALUES(7, 8));
    check(g[4], 2, VALUES(28, 48));
}

static void a_gradient_outlives_tape_and_operands(void **state)
{
    (void)state;
    lk_tensor *g;
    lk_scope_begin();
    lk_tensor *x = vector(2, VALUES(3, 4));
    lk_tape *tape = WATCH(x);
    walk(tape, lk_mul(x, x), NULL, &g);
    lk_tensor_retain(g);
    lk_scope_end();
    check(g, 2, VALUES(6, 8));
    lk_tensor_release(g);
}

/* If a parameter is changed in place after the walk, gradients that are still being computed do not change. */
static void updates_wait_for_the_walk(void **state)
{
    (void)state;
    lk_tensor *w = vector(2, VALUES(1, 1)), *x = vector(2, VALUES(2, 3));
    for (int i = 0; i < 4; i++) {
        lk_tensor *g;
        lk_scope_begin();
        lk_tape *tape = WATCH(w);
        walk(tape, lk_mul(lk_mul(w, x), w), NULL, &g); /* 2 w x */
        assert_int_equal(lk_sgd_update(w, g, 0.125), LK_OK);
        lk_scope_end();
    }
    check(w, 2, VALUES(0.0625f, 0.00390625f)); /* times 1 - x / 4, four times */
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void one_tape_at_a_time(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *g;
    lk_tape *tape = WATCH(x);
    lk_tensor *y = lk_mul(x, x);
    assert_null(lk_tape_begin(&x, 1));
    expect_error(lk_error_status(), LK_ERR_STATE, "tape: one is open in this thread already");
    y = lk_mul(y, x);
    walk(tape, y, NULL, &g);
    check(g, 2, VALUES(3, 12));
    lk_tape_release(WATCH(x)); /* never walked */
    lk_tape_release(WATCH(x));
    lk_tape_release(NULL);
}

static void a_tape_is_used_once(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *g;
    lk_tape *tape = WATCH(x);
    lk_tensor *y = lk_mul(x, x);
    assert_int_equal(lk_tape_gradient(tape, y, NULL, &g), LK_OK);
    expect_error(lk_tape_gradient(tape, y, NULL, &g), LK_ERR_STATE, "gradient: this tape was used already");
    assert_null(g);
    lk_tape_release(tape);
}

static void null_is_refused(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2));
    assert_null(lk_tape_begin((lk_tensor *[]){x, NULL}, 2));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "tape: watched tensor 1 is NULL");
    lk_tape_release(watch(0, NULL));
}

static void a_target_must_be_recorded(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *before = lk_mul(x, x), *g = x;
    lk_tape *tape = WATCH(x);
    lk_status status = lk_tape_gradient_at((lk_call_site){"net.c", 7}, tape, before, NULL, &g);
    expect_error(status, LK_ERR_ARGUMENT,
                 "gradient: the target at net.c:7 does not depend on anything the tape watches");
    assert_null(g);
    lk_tape_release(tape);
    tape = WATCH(x);
    g = x;
    expect_error(lk_tape_gradient(tape, NULL, NULL, &g), LK_ERR_ARGUMENT, "gradient: the target is NULL");
    assert_null(g);
    lk_tape_release(tape);
    expect_error(lk_tape_gradient(NULL, x, NULL, &g), LK_ERR_ARGUMENT, "gradient: the tape is NULL");
}

static void an_operator_without_a_gradient_is_refused(void **state)
{
    (void)state;
    static const int32_t label_values[2] = {0, 1};
    lk_tensor *x = matrix(2, 2, VALUES(1, 2, 3, 4)), *g;
    lk_tensor *labels = lk_tensor_from(device, LK_I32, LK_SHAPE(2), label_values);
    lk_tape *tape = WATCH(x);
    lk_tensor *hits = lk_in_top_k_at((lk_call_site){"net.c", 8}, x, labels, 1);
    expect_error(lk_tape_gradient(tape, lk_sum(hits, NULL), NULL, &g), LK_ERR_ARGUMENT,
                 "gradient: in_top_k, called at net.c:8, has none");
    lk_tape_release(tape);
    tape = WATCH(x); /* it does no harm if the target does not depend on it */
    hits = lk_in_top_k(x, labels, 1);
    walk(tape, lk_mul(x, x), NULL, &g);
    check(g, 4, VALUES(2, 4, 6, 8));
}

static void seeds_have_the_targets_shape_and_dtype(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *g = x;
    lk_tape *tape = WATCH(x);
    expect_error(lk_tape_gradient(tape, lk_mul(x, x), vector(3, VALUES(1, 1, 1)), &g), LK_ERR_SHAPE,
                 "gradient: the seed's shape is not the target's");
    assert_null(g);
    lk_tape_release(tape);
    tape = WATCH(x);
    lk_tensor *wide = lk_ones(device, LK_F64, LK_SHAPE(2));
    expect_error(lk_tape_gradient(tape, lk_mul(x, x), wide, &g), LK_ERR_DTYPE,
                 "gradient: the seed is f64, the target f32");
    lk_tape_release(tape);
}

typedef struct foreign {
    lk_tape *tape;
    lk_tensor *target;
    lk_status walked;
    bool own_tape;
} foreign;

static void *walk_elsewhere(void *argument)
{
    foreign *f = argument;
    lk_tensor *g;
    f->walked = lk_tape_gradient(f->tape, f->target, NULL, &g);
    lk_tape *own = lk_tape_begin(&f->target, 1);
    f->own_tape = own != NULL;
    lk_tape_release(own);
    return NULL;
}

static void a_tape_belongs_to_its_thread(void **state)
{
    (void)state;
    pthread_t thread;
    lk_tensor *x = vector(2, VALUES(1, 2)), *g;
    lk_tape *tape = WATCH(x);
    foreign f = {.tape = tape, .target = lk_mul(x, x)};
    assert_int_equal(pthread_create(&thread, NULL, walk_elsewhere, &f), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(f.walked, LK_ERR_STATE);
    assert_true(f.own_tape);
    walk(tape, lk_mul(f.target, x), NULL, &g);
    check(g, 2, VALUES(3, 12));
}

static void a_tape_grows(void **state)
{
    (void)state;
    lk_tensor *x = vector(1, VALUES(1)), *y = x, *g;
    lk_tape *tape = WATCH(x);
    for (int i = 0; i < 500; i++)
        y = lk_add(y, x);
    walk(tape, y, NULL, &g);
    check(g, 1, VALUES(501));
}

/* Two targets: each depends on tensors of its own and on a shared one. */
static void a_tape_may_have_several_targets(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *y = vector(2, VALUES(3, 4)), *both = vector(2, VALUES(5, 6)), *g[3];
    lk_tape *tape = lk_tape_begin((lk_tensor *[]){x, y, both}, 3);
    lk_tensor *targets[] = {lk_mul(x, both), lk_mul(y, both)};
    lk_tensor *seeds[] = {vector(2, VALUES(10, 100)), NULL};
    assert_int_equal(lk_tape_gradients(tape, targets, seeds, 2, g), LK_OK);
    lk_tape_release(tape);
    check(g[0], 2, VALUES(50, 600));
    check(g[1], 2, VALUES(5, 6));
    check(g[2], 2, VALUES(13, 204));
}

/* L = a total + b total with total = x^2 + y^2 on both devices: dL/dx = 2 x (a + b). */
static void gradients_pass_through_a_reduction(void **state)
{
    (void)state;
    lk_tensor *x = vector(2, VALUES(1, 2)), *y = vector_on(other, 2, VALUES(3, 4)), *g[2], *totals[2];
    lk_tensor *a = vector(2, VALUES(1, 10)), *b = vector_on(other, 2, VALUES(2, 20));
    lk_tape *tape = lk_tape_begin((lk_tensor *[]){x, y}, 2);
    lk_tensor *squares[] = {lk_mul(x, x), lk_mul(y, y)};
    assert_int_equal(lk_allreduce_recorded(squares, totals, 2), LK_OK);
    check(totals[0], 2, VALUES(10, 20));
    check(totals[1], 2, VALUES(10, 20));
    lk_tensor *targets[] = {lk_mul(totals[0], a), lk_mul(totals[1], b)};
    assert_int_equal(lk_tape_gradients(tape, targets, NULL, 2, g), LK_OK);
    lk_tape_release(tape);
    check(g[0], 2, VALUES(6, 120));
    check(g[1], 2, VALUES(18, 240));
    assert_ptr_equal(lk_tensor_device(g[1]), other);
}

/* Only one output is used; the other one contributes zeros. */
static void gradients_pass_through_half_a_reduction(void **state)
{
    (void)state;
    lk_tensor *x = vector(1, VALUES(7)), *y = vector(1, VALUES(8)), *g[2], *totals[2];
    lk_tape *tape = lk_tape_begin((lk_tensor *[]){x, y}, 2);
    assert_int_equal(lk_allreduce_recorded(((lk_tensor *[]){x, y}), totals, 2), LK_OK);
    assert_int_equal(lk_tape_gradient(tape, lk_mul_scalar(totals[1], 3), NULL, g), LK_OK);
    lk_tape_release(tape);
    check(g[0], 1, VALUES(3));
    check(g[1], 1, VALUES(3));
}

static void gradients_may_be_attached(void **state)
{
    (void)state;
    lk_tensor *w = vector(2, VALUES(3, 5)), *unused = vector(1, VALUES(7)), *bare = vector(2, VALUES(2, 4));
    lk_tensor *watched[] = {w, unused, bare};
    assert_null(lk_tensor_grad(w));
    assert_int_equal(lk_tensor_attach_grad(w), LK_OK);
    assert_int_equal(lk_tensor_attach_grad(unused), LK_OK);
    lk_tensor *gradient = lk_tensor_grad(w);
    check(gradient, 2, VALUES(0, 0));
    assert_int_equal(lk_copy_into(lk_tensor_grad(unused), vector(1, VALUES(9))), LK_OK);
    for (int i = 0; i < 2; i++) { /* a second pass replaces the first one's gradient */
        lk_tape *tape = lk_tape_begin(watched, 3);
        assert_int_equal(lk_tape_backward(tape, lk_mul(w, bare)), LK_OK);
        lk_tape_release(tape);
        assert_ptr_equal(lk_tensor_grad(w), gradient);
        check(gradient, 2, VALUES(2, 4));
        check(lk_tensor_grad(unused), 1, VALUES(0));
        assert_null(lk_tensor_grad(bare));
    }
    assert_null(lk_tensor_grad(lk_slice(w, 0, 0, 1)));
    assert_int_equal(lk_tensor_attach_grad(w), LK_OK);
    check(gradient, 2, VALUES(0, 0));
}

static void attached_gradients_survive_errors(void **state)
{
    (void)state;
    lk_tensor *w = vector(2, VALUES(3, 5)), *whole = lk_zeros(device, LK_I32, LK_SHAPE(2));
    assert_int_equal(lk_tensor_attach_grad(NULL), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_tensor_attach_grad(whole), LK_ERR_DTYPE);
    lk_error_clear();
    assert_int_equal(lk_tape_backward(NULL, w), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_tensor_attach_grad(w), LK_OK);
    assert_int_equal(lk_copy_into(lk_tensor_grad(w), vector(2, VALUES(1, 2))), LK_OK);
    lk_tape *tape = lk_tape_begin(&w, 1);
    assert_int_equal(lk_tape_backward(tape, NULL), LK_ERR_ARGUMENT);
    lk_tape_release(tape);
    lk_error_clear();
    check(lk_tensor_grad(w), 2, VALUES(1, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TAPE_TEST(a_tape_may_have_several_targets),
        TAPE_TEST(gradients_pass_through_a_reduction),
        TAPE_TEST(gradients_pass_through_half_a_reduction),
        TAPE_TEST(an_operand_may_be_used_twice_in_a_call),
        TAPE_TEST(a_parameter_may_be_used_by_two_calls),
        TAPE_TEST(uses_are_added_from_the_last_to_the_first),
        TAPE_TEST(a_tensor_may_be_watched_twice),
        TAPE_TEST(the_target_may_be_watched),
        TAPE_TEST(gradients_of_unused_operands_are_null),
        TAPE_TEST(training_continues_without_a_gradient),
        TAPE_TEST(gradients_pass_through_views),
        TAPE_TEST(slices_may_overlap),
        TAPE_TEST(gradients_pass_through_expansion),
        TAPE_TEST(gradients_pass_through_concatenation),
        TAPE_TEST(gradients_pass_through_copies_to_another_device),
        TAPE_TEST(gradients_pass_through_casts),
        TAPE_TEST(gradients_of_casts_to_bf16_are_summed_in_f32),
        TAPE_TEST(gradients_share_no_memory),
        TAPE_TEST(operands_with_one_gradient_get_copies),
        TAPE_TEST(a_gradient_outlives_tape_and_operands),
        TAPE_TEST(updates_wait_for_the_walk),
        TAPE_TEST(one_tape_at_a_time),
        TAPE_TEST(a_tape_is_used_once),
        TAPE_TEST(null_is_refused),
        TAPE_TEST(a_target_must_be_recorded),
        TAPE_TEST(an_operator_without_a_gradient_is_refused),
        TAPE_TEST(seeds_have_the_targets_shape_and_dtype),
        TAPE_TEST(a_tape_belongs_to_its_thread),
        TAPE_TEST(a_tape_grows),
        TAPE_TEST(gradients_may_be_attached),
        TAPE_TEST(attached_gradients_survive_errors),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
