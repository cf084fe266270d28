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

/* Stand-ins, on the same kernels for f32, give other bits, so the kernels for bf16 did run. */
static void resnet20(void **state)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "4xcpu"};
    enum { SPECS = sizeof specs / sizeof *specs };
    (void)state;
    if (!lk__isa_runs(&lk__isa_emulatedbf16)) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    lk_train_config config = in_bf16(LK_TEST_DATA "/../../bench/networks/resnet20.lk", SPECS);
    outcome first = train_on(config, specs[0], &lk__isa_emulatedbf16);
    for (int n = 1; n < SPECS; n++) {
        outcome other = train_on(config, specs[n], &lk__isa_emulatedbf16);
        same(&first, &other);
    }
    outcome on_stand_ins = train_on(config, specs[0], &lk__isa_emulated);
    assert_string_not_equal(first.result.digest, on_stand_ins.result.digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet20),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
