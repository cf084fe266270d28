/* Passes in bf16: what is cast and what is not, and what the layers compute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/autograd.h"
#include "nn/nn_testing.h"

static const lk_model_input image = {.channels = 3, .height = 8, .width = 8, .classes = 5};

static lk_layer *layers(void)
{
    return LK_SEQUENTIAL(lk_layer_conv2d(4, 3, NULL), lk_layer_batch_norm(NULL), lk_layer_activation(LK_RELU),
                         lk_layer_flatten(), lk_layer_dense(5, NULL));
}

static lk_tensor *rounded(lk_tensor *x)
{
    return lk_cast(x, LK_BF16);
}

static void expect_bf16(void *user, const char *path, int shard, lk_tensor *y)
{
    (void)shard;
    if (lk_tensor_dtype(y) != LK_BF16)
        fail_msg("the output of %s is %s", path, lk_dtype_name(lk_tensor_dtype(y)));
    ++*(int *)user;
}

/* The operators that the layers stand for, applied to the inputs that they should get. */
static lk_tensor *by_hand(network *net, lk_tensor *x, lk_tensor **sums)
{
    lk_tensor *const *v = net->variables;
    lk_tensor *y = lk_conv2d(rounded(x), rounded(v[0]), rounded(v[1]), NULL);
    y = lk_flatten(lk_relu(lk_batch_norm(y, v[2], v[3], 1e-5, sums)));
    return lk_cast(lk_add(lk_matmul(y, rounded(v[4])), rounded(v[5])), LK_F32);
}

static void gradients(lk_tape *tape, lk_tensor *logits, lk_tensor **out)
{
    assert_no_error(lk_tape_gradient(tape, lk_sum(lk_mul(logits, logits), NULL), NULL, out) == LK_OK);
    lk_tape_release(tape);
}

static void training(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(layers(), image);
    int n = lk_model_parameter_count(net.model), visits = 0;
    lk_tensor *x = images(&net, 4), *have[8], *want[8], *sums[1], *sums_by_hand;
    assert_int_equal(n, 6);
    const lk_forward_opts opts = {
        .training = true, .dtype = LK_BF16, .statistics = sums, .visit = expect_bf16, .visit_user = &visits};
    lk_tape *tape = lk_tape_begin(net.variables, n);
    lk_tensor *logits = lk_model_forward(net.model, net.variables, x, &opts);
    gradients(tape, logits, have);
    assert_int_equal(visits, 5);
    tape = lk_tape_begin(net.variables, n);
    lk_tensor *by_hands = by_hand(&net, x, &sums_by_hand);
    gradients(tape, by_hands, want);
    assert_int_equal(lk_tensor_dtype(logits), LK_F32);
    assert_same_bits(logits, by_hands);
    assert_int_equal(lk_tensor_dtype(sums[0]), LK_F64);
    assert_same_bits(lk_cast(sums[0], LK_F32), lk_cast(sums_by_hand, LK_F32));
    for (int i = 0; i < n; i++) {
        assert_int_equal(lk_tensor_dtype(have[i]), LK_F32);
        assert_same_bits(have[i], want[i]);
    }
    close_network(&net);
    lk_scope_end();
}

static void inference_is_close_to_f32(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(layers(), image);
    lk_tensor *x = images(&net, 4);
    lk_tensor *bf16 = lk_model_forward(net.model, net.variables, x, &(lk_forward_opts){.dtype = LK_BF16});
    lk_tensor *f32 = lk_model_forward(net.model, net.variables, x, NULL);
    assert_close(bf16, f32, 0.02);
    assert_true(largest_of(lk_sub(bf16, f32)) > 0);
    close_network(&net);
    lk_scope_end();
}

static void other_dtypes_are_refused(void **state)
{
    (void)state;
    lk_scope_begin();
    network net = open_layers(layers(), image);
    assert_null(lk_model_forward(net.model, net.variables, images(&net, 1), &(lk_forward_opts){.dtype = LK_F64}));
    assert_error(LK_ERR_DTYPE, "test: a forward pass in f64; it must be in f32 or bf16");
    close_network(&net);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training),
        cmocka_unit_test(inference_is_close_to_f32),
        cmocka_unit_test(other_dtypes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
