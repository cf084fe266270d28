/* With kernels for bf16, too, every number of devices has the same bits. The kernels are emulated. */
#include "training.h"

#include "cpu/isa.h"

static lk_train_config in_bf16(const char *model, int64_t shards)
{
    lk_train_config config = small_training();
    config.model = model;
    config.execution.dtype = LK_PRECISION_BF16;
    config.data.limit_train = 2 * shards - 1;
    config.data.limit_val = 2;
    config.batch_size = shards + 1;
    config.devices.shards = shards;
    config.epochs = 1;
    config.optimizer.momentum = -1;
    return config;
}

static outcome train_on(lk_train_config config, const char *devices, const lk_isa *isa)
{
    config.devices.spec = devices;
    lk__isa_force(isa);
    outcome out = train(&config);
    lk__isa_force(NULL);
    return out;
}

/* Returns what every number of devices gives. */
static outcome train_everywhere(lk_train_config config, const lk_isa *isa)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "4xcpu"};
    outcome first = train_on(config, specs[0], isa);
    for (size_t n = 1; n < sizeof specs / sizeof *specs; n++) {
        outcome other = train_on(config, specs[n], isa);
        same(&first, &other);
    }
    return first;
}

/* Stand-ins, on the same kernels for f32, give other bits, so the kernels for bf16 did run; and tiles give others
 * still.
 */
static void resnet20(void **state)
{
    (void)state;
    if (!lk__isa_runs(&lk__isa_emulatedamxbf16)) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    lk_train_config config = in_bf16(LK_TEST_DATA "/../../bench/networks/resnet20.lk", 4);
    outcome on_stand_ins = train_on(config, "1xcpu", &lk__isa_emulated);
    outcome on_vectors = train_everywhere(config, &lk__isa_emulatedbf16);
    outcome on_tiles = train_everywhere(config, &lk__isa_emulatedamxbf16);
    assert_string_not_equal(on_vectors.result.digest, on_stand_ins.result.digest);
    assert_string_not_equal(on_tiles.result.digest, on_vectors.result.digest);
}

/* Dense layers alone. One device leaves the gradients of their weights as factors. */
static void mlp(void **state)
{
    (void)state;
    if (!lk__isa_runs(&lk__isa_emulatedamxbf16)) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    lk_train_config config = in_bf16(LK_TEST_DATA "/../../bench/networks/mlp.lk", 8);
    outcome on_vectors = train_on(config, "1xcpu", &lk__isa_emulatedbf16);
    outcome on_tiles = train_everywhere(config, &lk__isa_emulatedamxbf16);
    assert_string_not_equal(on_tiles.result.digest, on_vectors.result.digest);
}

/* Auto is bf16 on tiles and on AMD's AVX512_BF16, and f32 elsewhere. */
static void automatic(void **state)
{
    (void)state;
    if (!lk__isa_runs(&lk__isa_emulatedamxbf16)) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    static const lk_isa *const without[] = {&lk__isa_emulated, &lk__isa_emulatedbf16};
    lk_train_config config = in_bf16("lenet", 8), f32 = config, choice = config;
    f32.execution.dtype = LK_PRECISION_F32;
    choice.execution.dtype = LK_PRECISION_AUTO;
    outcome on_tiles = train_everywhere(choice, &lk__isa_emulatedamxbf16);
    outcome wanted = train_on(config, "1xcpu", &lk__isa_emulatedamxbf16);
    same(&on_tiles, &wanted);
    for (int i = 0; i < 2; i++) {
        outcome in_f32 = train_on(f32, "2xcpu", without[i]), chosen = train_on(choice, "2xcpu", without[i]);
        same(&in_f32, &chosen);
    }
    if (lk__isa_runs(&lk__isa_avx512bf16)) {
        lk_train_config fast = lk__isa_pairs_are_fast() ? config : f32;
        outcome expected = train_on(fast, "2xcpu", &lk__isa_avx512bf16);
        outcome chosen = train_on(choice, "2xcpu", &lk__isa_avx512bf16);
        same(&expected, &chosen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet20),
        cmocka_unit_test(automatic),
        cmocka_unit_test(mlp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
