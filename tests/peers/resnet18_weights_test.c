/* A file with the names of torchvision's ResNet-18 loads into examples/models/resnet18-torchvision.lk, and the network
 * then gives PyTorch's logits; a head of another size is skipped. */
#include "training.h"
#include "base/folder_testing.h"

#include "io/safetensors_write.h"
#include "lockstep/checkpoint.h"
#include "lockstep/log.h"
#include "torch_resnet18.h"

#include <libgen.h>
#include <math.h>

enum { TENSORS = sizeof resnet18_tensors / sizeof *resnet18_tensors, IMAGES = 2, SIZE = 64, CLASSES = 10 };

static char model_path[1024], log_text[8192];

/* torch_resnet18.py's noise(). */
static double noise(int tensor, int64_t i)
{
    uint32_t word = (uint32_t)i * 2654435761u + (uint32_t)tensor * 40503u + 12345u;
    word = (word ^ word >> 15) * 2246822519u;
    return (double)(word >> 8) / 16777216 - 0.5;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static float *values_of(int tensor)
{
    const char *name = resnet18_tensors[tensor].name;
    lk_shape shape = resnet18_tensors[tensor].shape;
    int64_t count = lk_shape_count(shape);
    bool around_one = ends_with(name, "running_var") || (shape.ndim == 1 && ends_with(name, "weight"));
    double scale = shape.ndim > 1 ? sqrt(12 / (double)(count / shape.dim[0])) : around_one ? 0.5 : 1;
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(noise(tensor, i) * scale + around_one);
    return values;
}

/* Writes the state_dict, with a num_batches_tracked as PyTorch has them. */
static void write_state(const char *path)
{
    static const float batches = 100;
    lk_safetensors_entry entries[TENSORS + 1] = {{"bn1.num_batches_tracked", {.ndim = 0}, &batches}};
    int64_t bytes;
    uint64_t hash;
    for (int i = 0; i < TENSORS; i++)
        entries[i + 1] = (lk_safetensors_entry){resnet18_tensors[i].name, resnet18_tensors[i].shape, values_of(i)};
    assert_ok(lk__safetensors_write(path, entries, TENSORS + 1, NULL, &bytes, &hash));
    for (int i = 0; i < TENSORS; i++)
        free((float *)entries[i + 1].values);
}

typedef struct network {
    lk_device *device;
    lk_strategy *strategy;
    lk_model *model;
    lk_replicas *replicas;
} network;

static network open_network(int64_t classes)
{
    network n = {.device = lk_device_open("cpu")};
    n.strategy = lk_strategy_new("one-device", &n.device, 1);
    n.model = lk_model_new(model_path, (lk_model_input){3, SIZE, SIZE, classes});
    if (!n.model)
        fail_msg("%s", lk_error_message());
    n.replicas = lk_replicas_new(n.strategy, n.model, NULL, 1);
    assert_non_null(n.replicas);
    return n;
}

static void close_network(network *n)
{
    lk_replicas_release(n->replicas);
    lk_model_release(n->model);
    lk_strategy_release(n->strategy);
    lk_device_release(n->device);
}

static void gives_pytorchs_logits(void **state)
{
    (void)state;
    enum { PIXELS = IMAGES * 3 * SIZE * SIZE };
    static float images[PIXELS];
    float have[IMAGES * CLASSES];
    network n = open_network(CLASSES);
    if (lk_replicas_load_weights(n.replicas, in_dir("resnet18.safetensors"), NULL) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (int i = 0; i < PIXELS; i++)
        images[i] = (float)noise(TENSORS, i);
    lk_scope_begin();
    lk_tensor *x = lk_tensor_from(n.device, LK_F32, LK_SHAPE(IMAGES, 3, SIZE, SIZE), images);
    lk_tensor *logits = lk_model_forward(n.model, lk_replicas_variables(n.replicas, 0), x, NULL);
    assert_ok(lk_tensor_read(logits, have, sizeof have));
    lk_scope_end();
    for (int i = 0; i < IMAGES * CLASSES; i++)
        if (!(fabs(have[i] - resnet18_logits[i]) < 2e-5))
            fail_msg("logit %d is %.9g, PyTorch's %.9g", i, have[i], resnet18_logits[i]);
    close_network(&n);
}

static void keep_log(void *user, lk_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), "%s\n", message);
}

static void skips_another_head(void **state)
{
    (void)state;
    network n = open_network(7);
    const char *path = in_dir("resnet18.safetensors");
    assert_int_equal(lk_replicas_load_weights(n.replicas, path, NULL), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), "fc.weight has shape [10,512], and as fc.weight of model "));
    assert_non_null(strstr(lk_error_message(), "it must have [7,512]"));
    lk_error_clear();
    assert_int_equal(lk_replicas_load_weights(n.replicas, path, "fc,head"), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "--weights-skip head: fits no variable of model "));
    lk_error_clear();
    assert_int_equal(lk_replicas_load_weights(n.replicas, path, "*"), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "nothing is left to take"));
    lk_error_clear();

    float before[7 * 512], after[7 * 512], first[64 * 3 * 49], *want = values_of(0);
    int head = 0, conv = 0;
    for (int i = 0; i < lk_model_variable_count(n.model); i++) {
        head = strcmp(lk_model_variable_name(n.model, i), "fc.weight") == 0 ? i : head;
        conv = strcmp(lk_model_variable_name(n.model, i), "conv1.weight") == 0 ? i : conv;
    }
    assert_ok(lk_tensor_read(lk_replicas_variables(n.replicas, 0)[head], before, sizeof before));
    lk_log_set(keep_log, NULL, LK_LOG_INFO);
    assert_ok(lk_replicas_load_weights(n.replicas, path, "fc"));
    lk_log_set(NULL, NULL, LK_LOG_INFO);
    assert_ok(lk_tensor_read(lk_replicas_variables(n.replicas, 0)[head], after, sizeof after));
    assert_ok(lk_tensor_read(lk_replicas_variables(n.replicas, 0)[conv], first, sizeof first));
    assert_memory_equal(before, after, sizeof before);
    assert_memory_equal(first, want, sizeof first);
    free(want);
    assert_non_null(strstr(log_text, "--weights: taken: conv1.weight, bn1.weight"));
    assert_non_null(strstr(log_text, "--weights: skipped: fc.weight, fc.bias\n"));
    assert_null(strstr(log_text, "not in"));
    close_network(&n);
}

static int set_up(void **state)
{
    make_test_dir(state);
    write_state(in_dir("resnet18.safetensors"));
    return 0;
}

int main(void)
{
    char source[1024];
    snprintf(source, sizeof source, "%s", __FILE__);
    snprintf(model_path, sizeof model_path, "%s/../../examples/models/resnet18-torchvision.lk", dirname(source));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_pytorchs_logits),
        cmocka_unit_test(skips_another_head),
    };
    return cmocka_run_group_tests(tests, set_up, remove_test_dir);
}
