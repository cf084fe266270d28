/* Loads initial weights from safetensors files into a small network; and into a network that this project provides,
 * whose variables may have PyTorch's names. For that one the file is filled with zeros up to the size of the network's
 * values, so that inputs can be small. */
#include "fuzz_safetensors.h"

#include "lockstep/checkpoint.h"
#include "lockstep/device.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/replicas.h"

#include <string.h>

enum { LENGTH = 8, MOST_VALUES = 4096 };

typedef struct network {
    lk_model *model;
    lk_replicas *replicas;
    size_t bytes; /* of all variables */
} network;

static struct {
    lk_device *device;
    lk_strategy *strategy;
    network small, named;
} made;

static void network_make(network *n, const char *name, lk_model_input input)
{
    n->model = lk_model_new(name, input);
    FUZZ_CHECK(n->model);
    n->replicas = lk_replicas_new(made.strategy, n->model, NULL, 0);
    FUZZ_CHECK(n->replicas);
    for (int i = 0; i < lk_model_variable_count(n->model); i++)
        n->bytes += (size_t)lk_shape_count(lk_model_variable_shape(n->model, i)) * sizeof(float);
    FUZZ_CHECK(n->bytes <= MOST_VALUES * sizeof(float));
}

static void make(void)
{
    static const char text[] = "conv2d 2 kernel=1\nbatch_norm\nflatten\ndense classes\n";
    setenv("LOCKSTEP_ENGINE", "sync", 1);
    made.device = lk_device_open("cpu:0");
    FUZZ_CHECK(made.device);
    made.strategy = lk_strategy_new("one-device", &made.device, 1);
    FUZZ_CHECK(made.strategy);
    network_make(&made.small, fuzz_file((const uint8_t *)text, sizeof text - 1), (lk_model_input){1, 2, 2, 2});
    network_make(&made.named, "keras-cnn", (lk_model_input){1, 4, 4, 2});
}

static void network_load(network *n, const char *path)
{
    static float values[MOST_VALUES];
    if (!fuzz_went_well(lk_replicas_load_weights(n->replicas, path, NULL)))
        return;
    for (int i = 0; i < lk_model_variable_count(n->model); i++) {
        size_t count = (size_t)lk_shape_count(lk_model_variable_shape(n->model, i));
        FUZZ_CHECK(lk_tensor_read(lk_replicas_variables(n->replicas, 0)[i], values, count * sizeof *values) == LK_OK);
    }
}

/* The input, followed by as many zeros as its values lack. */
static const char *filled_file(const uint8_t *data, size_t size)
{
    static uint8_t file[(1 << 16) + MOST_VALUES * sizeof(float)];
    uint64_t header = 0;
    if (size >= LENGTH)
        memcpy(&header, data, LENGTH);
    if (size > 1 << 16 || size < LENGTH || header > size - LENGTH)
        return fuzz_file(data, size);
    size_t whole = LENGTH + (size_t)header + made.named.bytes;
    memset(file, 0, sizeof file);
    memcpy(file, data, size);
    return fuzz_file(file, size > whole ? size : whole);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    return fuzz_safetensors_mutate(data, size, most, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!made.device)
        make();
    network_load(&made.small, fuzz_file(data, size));
    network_load(&made.named, filled_file(data, size));
    return 0;
}
