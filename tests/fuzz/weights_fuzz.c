/* Loads initial weights from safetensors files into a small network. */
#include "fuzz_safetensors.h"

#include "lockstep/checkpoint.h"
#include "lockstep/device.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/replicas.h"

#include <string.h>

static struct {
    lk_device *device;
    lk_model *model;
    lk_strategy *strategy;
    lk_replicas *replicas;
} made;

static void make(void)
{
    static const char text[] = "conv2d 2 kernel=1\nbatch_norm\nflatten\ndense classes\n";
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    made.device = lk_device_open("cpu:0");
    FUZZ_CHECK(made.device);
    made.model = lk_model_new(fuzz_file((const uint8_t *)text, sizeof text - 1), (lk_model_input){1, 2, 2, 2});
    made.strategy = lk_strategy_new("one-device", &made.device, 1);
    FUZZ_CHECK(made.model && made.strategy);
    made.replicas = lk_replicas_new(made.strategy, made.model, NULL, 0);
    FUZZ_CHECK(made.replicas);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    return fuzz_safetensors_mutate(data, size, most, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!made.replicas)
        make();
    if (!fuzz_went_well(lk_replicas_load_weights(made.replicas, fuzz_file(data, size))))
        return 0;
    for (int i = 0; i < lk_model_variable_count(made.model); i++) {
        float values[64];
        size_t count = (size_t)lk_shape_count(lk_model_variable_shape(made.model, i));
        FUZZ_CHECK(count <= sizeof values / sizeof *values);
        FUZZ_CHECK(lk_tensor_read(lk_replicas_variables(made.replicas, 0)[i], values, count * sizeof *values) == LK_OK);
    }
    return 0;
}
