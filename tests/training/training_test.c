/* LeNet learns, from generated images and, if they are there, from real ones. */
#include "training.h"

#include "lockstep/ops.h"
#include "train/trainer.h"

#include <math.h>

/* With the recipe's weights, N(0, 0.01), the network stays on a plateau for thousands of steps. These are scaled by
 * their number of inputs (He et al., ICCV 2015, equation 10), so that it learns at once. */
static void start_at_he(lk_trainer *trainer)
{
    for (int i = 0; i < trainer->n_parameters; i++) {
        lk_shape shape = lk_model_variable_shape(trainer->model, i);
        if (shape.ndim < 2)
            continue;
        int64_t inputs = shape.ndim == 4 ? shape.dim[1] * shape.dim[2] * shape.dim[3] : shape.dim[0];
        lk_random_key key = {.seed = 1, .purpose = lk_random_purpose(lk_model_variable_name(trainer->model, i))};
        lk_scope_begin();
        lk_tensor *values = lk_normal(trainer->devices[0], LK_F32, shape, 0, sqrt(2.0 / (double)inputs), key);
        for (int r = 0; r < trainer->n_devices; r++)
            assert_ok(lk_copy_into(lk_trainer_variables(trainer, r)[i], values));
        lk_scope_end();
    }
}

static double mean(lk_mean m)
{
    return m.sum / (double)m.count;
}

static outcome learns(const char *data, int dtype, double most_loss)
{
    lk_train_config config = small_training();
    config.data.name = data;
    config.execution.dtype = dtype;
    config.data.limit_train = 1500;
    config.data.limit_val = 500;
    config.batch_size = 16;
    config.optimizer.base_lr = 0.05;
    config.devices.spec = "2xcpu";
    lk_trainer *trainer = new_trainer(&config);
    start_at_he(trainer);
    outcome out = fit(trainer);
    lk_trainer_release(trainer);
    for (int e = 0; e < out.n_epochs; e++)
        print_message("%s, epoch %d: training loss %.4f, validation accuracy %.4f\n", data, e + 1,
                      mean(out.epochs[e].train.loss), mean(out.epochs[e].val.accuracy));
    /* With ten classes, chance gives a loss of 2.30 and an accuracy of 0.10. */
    assert_true(mean(out.epochs[1].train.loss) < most_loss);
    assert_true(mean(out.epochs[1].val.accuracy) > 0.4);
    return out;
}

static void needs_data(void)
{
    if (getenv("LOCKSTEP_DATA"))
        return;
    print_message("SKIP: LOCKSTEP_DATA is not set to a directory with fashion-mnist and mnist\n");
    skip();
}

static void learns_fashion_mnist(void **state)
{
    (void)state;
    needs_data();
    learns("fashion-mnist", LK_PRECISION_F32, 1.3);
}

static void learns_mnist(void **state)
{
    (void)state;
    needs_data();
    learns("mnist", LK_PRECISION_F32, 0.9);
}

static void learns_from_generated_images(void **state)
{
    (void)state;
    outcome f32 = learns("synthetic", LK_PRECISION_F32, 1.5), bf16 = learns("synthetic", LK_PRECISION_BF16, 1.5);
    assert_string_not_equal(bf16.result.digest, f32.result.digest);
    assert_true(fabs(mean(bf16.epochs[0].train.loss) - mean(f32.epochs[0].train.loss)) < 0.05);
}

/* There are ten classes, and the first weights are so small that all are about equally likely: the loss is ln 10. */
static void the_first_loss_is_that_of_chance(void **state)
{
    (void)state;
    lk_metrics metrics;
    lk_train_config config = small_training();
    config.data.limit_val = 1000;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_evaluate(trainer, &metrics));
    lk_trainer_release(trainer);
    assert_int_equal(metrics.loss.count, 1000);
    assert_true(fabs(mean(metrics.loss) - log(10)) < 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_fashion_mnist),
        cmocka_unit_test(learns_mnist),
        cmocka_unit_test(learns_from_generated_images),
        cmocka_unit_test(the_first_loss_is_that_of_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
