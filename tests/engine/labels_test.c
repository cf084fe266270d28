/* A label that is no class gives an error that names it on CPU devices, and a loss of NaN for its sample on GPUs. */
#include "testing.h"

#include <math.h>

enum { SAMPLES = 4, CLASSES = 10 };

static const int64_t wrong[SAMPLES] = {0, 9, -1, 12};

static lk_tensor *logits_on(lk_device *device)
{
    return lk_uniform(device, LK_F32, LK_SHAPE(SAMPLES, CLASSES), -1, 1, (lk_random_key){.seed = 1});
}

static void an_error_names_wrong_labels(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *labels = lk_tensor_from(device, LK_I64, LK_SHAPE(SAMPLES), wrong);
    lk_tensor *loss = lk_sparse_softmax_cross_entropy(logits_on(device), labels, LK_REDUCTION_NONE);
    assert_int_equal(lk_tensor_wait(loss), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "label -1 at index 2 is not in [0, 10)"));
    lk_error_clear();
    lk_scope_end();
    lk_device_sync(device);
    lk_error_clear();
    lk_device_release(device);
}

static void expect_nan(lk_tensor *rows, int64_t of_each)
{
    double *values = read_values(rows);
    for (int64_t i = 0; i < SAMPLES * of_each; i++)
        assert_int_equal(isnan(values[i]) != 0, i / of_each >= 2);
    free(values);
}

static void on_gpus_their_losses_are_nan(void **state)
{
    (void)state;
    if (lk_device_available("cuda") == 0) {
        print_message("SKIP: there is no GPU\n");
        skip();
    }
    lk_device *device = open_device("cuda");
    lk_scope_begin();
    lk_tensor *labels = lk_tensor_from(device, LK_I64, LK_SHAPE(SAMPLES), wrong), *logits = logits_on(device),
              *gradient;
    lk_tape *tape = lk_tape_begin(&logits, 1);
    assert_non_null(tape);
    lk_tensor *loss = lk_sparse_softmax_cross_entropy(logits, labels, LK_REDUCTION_NONE);
    assert_int_equal(lk_tape_gradient(tape, loss, lk_ones(device, LK_F32, LK_SHAPE(SAMPLES)), &gradient), LK_OK);
    lk_tape_release(tape);
    expect_nan(loss, 1);
    expect_nan(gradient, CLASSES);
    expect_nan(lk_in_top_k(logits, labels, 3), 1);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_names_wrong_labels),
        cmocka_unit_test(on_gpus_their_losses_are_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
