/* Trainings in bf16 on kernels for bf16, emulated: the same bits on any number of devices. */
#include "training.h"

#include "core/backend.h"
#include "cpu/isa.h"
#include "train/trainer.h"

static const char *const lanes = "lanes:emulatedbf16";

/* A shard has 24 images, which fill one and a half vectors. The shards of the last batch have one or none, which are
 * too few for lanes. */
static lk_train_config bf16_training(const char *model)
{
    lk_train_config config = training_of(99, 20, 96, 4);
    config.model = model;
    config.execution.dtype = LK_PRECISION_BF16;
    return config;
}

typedef struct seen {
    int forward, gradients, others;
} seen;

static void count_convolutions(void *user, const char *op, const char *problem, const char *implementation)
{
    seen *s = user;
    bool native = strcmp(implementation, lanes) == 0 && strncmp(problem, "bf16 ", 5) == 0;
    if (strcmp(op, "conv_block") == 0)
        s->forward += native;
    else if (strcmp(op, "conv_block_grad") == 0)
        s->gradients += native;
}

/* Trains on `spec`, and checks that all convolutions, forward and backward, ran on kernels for bf16. */
static outcome train_on(const lk_train_config *base, const char *spec, int convolutions)
{
    lk_train_config config = *base;
    config.devices.spec = spec;
    lk_trainer *trainer = new_trainer(&config);
    outcome out = fit(trainer);
    seen s = {0};
    assert_ok(lk_device_implementations(trainer->devices[0], count_convolutions, &s));
    assert_true(s.forward >= convolutions && s.gradients >= convolutions);
    same_replicas(trainer, out.result.digest);
    lk_trainer_release(trainer);
    return out;
}

static void check_model(const char *model, int convolutions)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "4xcpu"};
    lk_train_config config = bf16_training(model);
    outcome first = train_on(&config, specs[0], convolutions);
    for (size_t i = 1; i < sizeof specs / sizeof *specs; i++) {
        outcome out = train_on(&config, specs[i], convolutions);
        same(&first, &out);
    }
    lk__isa_force(&lk__isa_emulated);
    config.devices.spec = "1xcpu";
    outcome on_f32 = train(&config);
    lk__isa_force(&lk__isa_emulatedbf16);
    assert_string_not_equal(on_f32.result.digest, first.result.digest);
    for (int e = 0; e < first.n_epochs; e++) {
        lk_mean have = first.epochs[e].train.loss, want = on_f32.epochs[e].train.loss;
        assert_float_equal(have.sum / (double)have.count, want.sum / (double)want.count, 0.02);
    }
}

static void lenet_has_the_same_bits(void **state)
{
    (void)state;
    check_model("lenet", 2);
}

static void keras_cnn_has_the_same_bits(void **state)
{
    (void)state;
    check_model("keras-cnn", 1);
}

static int use_bf16_kernels(void **state)
{
    (void)state;
    lk__isa_force(&lk__isa_emulatedbf16);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_has_the_same_bits),
        cmocka_unit_test(keras_cnn_has_the_same_bits),
    };
    if (!lk__isa_runs(&lk__isa_emulatedbf16)) {
        puts("SKIP: this processor has no AVX2");
        return 77;
    }
    return cmocka_run_group_tests(tests, use_bf16_kernels, NULL);
}
