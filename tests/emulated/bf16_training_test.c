/* Trainings in bf16 on kernels for bf16, emulated: the same bits on any number of devices. */
#include "training.h"

#include "core/backend.h"
#include "cpu/isa.h"
#include "train/trainer.h"

/* The instruction sets under test, and the one in use. */
static const lk_isa *const isas[] = {&lk__isa_emulatedbf16, &lk__isa_emulatedamxbf16};
static const lk_isa *used;

/* A shard has 24 images, which fill one and a half vectors. The shards of the last batch have one or none, which are
 * too few for lanes. */
static lk_train_config bf16_training(const char *model)
{
    lk_train_config config = training_of(99, 20, 96, 4);
    config.model = model;
    config.epochs = 1;
    config.execution.dtype = LK_PRECISION_BF16;
    return config;
}

/* Operators and how many problems of each run on kernels for bf16. */
typedef struct native {
    const char *op;
    int want, seen;
} native;

enum { MOST_NATIVE = 5 };

static void count_native(void *user, const char *op, const char *problem, const char *implementation)
{
    for (native *n = user; n->op; n++)
        if (strcmp(op, n->op) == 0 && strncmp(problem, "bf16 ", 5) == 0)
            n->seen += strcmp(implementation, used->bf16->lanes->name) == 0 ||
                       strcmp(implementation, used->bf16->dense->name) == 0;
}

/* Trains on `spec`, and checks that these operators ran on kernels for bf16. */
static outcome train_on(const lk_train_config *base, const char *spec, const native *operators)
{
    native counted[MOST_NATIVE + 1] = {{0}};
    lk_train_config config = *base;
    config.devices.spec = spec;
    lk_trainer *trainer = new_trainer(&config);
    outcome out = fit(trainer);
    for (int i = 0; operators[i].op; i++)
        counted[i] = operators[i];
    assert_ok(lk_device_implementations(trainer->devices[0], count_native, counted));
    for (native *n = counted; n->op; n++)
        if (n->seen < n->want)
            fail_msg("%s: %d of %d problems ran on kernels for bf16", n->op, n->seen, n->want);
    same_replicas(trainer, out.result.digest);
    lk_trainer_release(trainer);
    return out;
}

static void check_model_on(const lk_isa *isa, const char *model, lk_fuse_mode fuse, const native *operators)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "4xcpu"};
    used = isa;
    lk__isa_force(isa);
    lk_train_config config = bf16_training(model);
    config.execution.fuse = fuse;
    outcome first = train_on(&config, specs[0], operators);
    for (size_t i = 1; i < sizeof specs / sizeof *specs; i++) {
        outcome out = train_on(&config, specs[i], operators);
        same(&first, &out);
    }
    lk__isa_force(&lk__isa_emulated);
    config.devices.spec = "1xcpu";
    outcome on_f32 = train(&config);
    assert_string_not_equal(on_f32.result.digest, first.result.digest);
    for (int e = 0; e < first.n_epochs; e++) {
        lk_mean have = first.epochs[e].train.loss, want = on_f32.epochs[e].train.loss;
        assert_float_equal(have.sum / (double)have.count, want.sum / (double)want.count, 0.02);
    }
}

static void check_model(const char *model, lk_fuse_mode fuse, const native *operators)
{
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        check_model_on(isas[i], model, fuse, operators);
}

static void lenet_has_the_same_bits(void **state)
{
    (void)state;
    static const native fused[] = {
        {"conv_block", 2, 0}, {"conv_block_grad", 2, 0}, {"dense_act", 2, 0}, {"matmul", 4, 0}, {0}};
    check_model("lenet", LK_FUSE_ON, fused);
}

static void lenet_has_the_same_bits_without_fusion(void **state)
{
    (void)state;
    static const native apart[MOST_NATIVE + 1] = {{"conv2d", 2, 0},
                                                  {"conv2d_input_grad", 1, 0},
                                                  {"avg_pool2d", 2, 0},
                                                  {"conv2d_weight_grad", 2, 0},
                                                  {"avg_pool2d_grad", 2, 0}};
    check_model("lenet", LK_FUSE_OFF, apart);
}

static void keras_cnn_has_the_same_bits(void **state)
{
    (void)state;
    static const native fused[] = {{"conv_block", 1, 0}, {"conv_block_grad", 1, 0}, {0}};
    check_model("keras-cnn", LK_FUSE_ON, fused);
}

/* Dense layers alone, of 784, 512, 512 and 10 units. One device leaves the gradients of their weights as factors. */
static void mlp_has_the_same_bits(void **state)
{
    (void)state;
    static const native layers[] = {{"dense_act", 3, 0}, {"matmul", 5, 0}, {0}};
    check_model(LK_TEST_DATA "/../../bench/networks/mlp.lk", LK_FUSE_ON, layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_has_the_same_bits),
        cmocka_unit_test(lenet_has_the_same_bits_without_fusion),
        cmocka_unit_test(keras_cnn_has_the_same_bits),
        cmocka_unit_test(mlp_has_the_same_bits),
    };
    if (!lk__isa_runs(&lk__isa_emulatedamxbf16)) {
        puts("SKIP: this processor has no AVX2");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
