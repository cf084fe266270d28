/* A network with PyTorch's weights computes PyTorch's logits, and PyTorch reads the weights that the library writes. */
#include "training.h"
#include "base/folder_testing.h"

#include "io/safetensors.h"
#include "lockstep/checkpoint.h"
#include "lockstep/export.h"
#include "io/safetensors_write.h"

#include <libgen.h>
#include <math.h>

enum { IMAGES = 2, PIXELS = 28 * 28, CLASSES = 10 };

static char source_folder[1024];

/* Runs tests/peers/torch/torch_weights.py and returns its exit status. */
static int torch(const char *what)
{
    char command[2048];
    const char *interpreter = getenv("PYTHON");
    snprintf(command, sizeof command, "'%s' '%s/torch/torch_weights.py' %s %s", interpreter ? interpreter : "python3",
             source_folder, what, test_dir);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void read_tensor(const char *path, const char *tensor, float *values)
{
    lk_safetensors *file;
    assert_ok(lk__safetensors_open(path, &file));
    const lk_safetensor *found = lk__safetensors_find(file, tensor);
    assert_non_null(found);
    assert_ok(lk__safetensors_read(file, found, values));
    lk__safetensors_close(file);
}

static void compare_logits(const char *path, const lk_model *model, lk_replicas *replicas, lk_device *device)
{
    float images[IMAGES * PIXELS], want[IMAGES * CLASSES], have[IMAGES * CLASSES];
    read_tensor(path, "images", images);
    read_tensor(path, "logits", want);
    lk_scope_begin();
    lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(IMAGES, 1, 28, 28), images);
    lk_tensor *logits = lk_model_forward(model, lk_replicas_variables(replicas, 0), x, NULL);
    assert_ok(lk_tensor_read(logits, have, sizeof have));
    lk_scope_end();
    double largest = 0, farthest = 0;
    for (int i = 0; i < IMAGES * CLASSES; i++) {
        largest = fmax(largest, fabs(want[i]));
        farthest = fmax(farthest, fabs(want[i] - have[i]));
    }
    assert_true(largest > 0);
    if (farthest > 1e-4 * largest)
        fail_msg("logits are off by %g of %g", farthest, largest);
}

/* Writes the variables of the folder's checkpoint, under the given names. */
static void give_back(const char *checkpoint_folder, const char *path, lk_export_names names)
{
    lk_checkpoint *checkpoint;
    assert_ok(lk_checkpoint_open_model(checkpoint_folder, LK_CHECKPOINT_LAST, &checkpoint));
    if (lk_export_checkpoint(checkpoint, LK_EXPORT_SAFETENSORS, path, &(lk_export_opts){.names = names}) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_checkpoint_release(checkpoint);
}

/* `pytorch`: the script's name for the network. */
static void takes_over(const char *name, const char *pytorch)
{
    char want[33], have[33], back[256];
    bool is_book = strcmp(name, pytorch) != 0;
    lk_device *device = lk_device_open("cpu");
    lk_strategy *strategy = lk_strategy_new("one-device", &device, 1);
    lk_model *model = lk_model_new(name, (lk_model_input){1, 28, 28, CLASSES});
    assert_true(strategy && model);
    lk_replicas *replicas = lk_replicas_new(strategy, model, NULL, 1);
    assert_non_null(replicas);
    if (lk_replicas_load_weights(replicas, path_of("%s.safetensors", pytorch), NULL) != LK_OK)
        fail_msg("%s", lk_error_message());
    compare_logits(path_of("%s.outputs", pytorch), model, replicas, device);
    assert_ok(lk_replicas_digest(replicas, 0, want));
    assert_ok(lk_replicas_save(replicas, path_of("%s", pytorch), &(lk_checkpoint_info){.steps = 1}));
    lk_replicas_release(replicas);
    snprintf(back, sizeof back, "%s", path_of("%s.back", pytorch));
    give_back(path_of("%s", pytorch), back, is_book ? LK_EXPORT_NAMES_BOOK : LK_EXPORT_NAMES_TORCH);

    /* The library's own names work too. */
    replicas = lk_replicas_new(strategy, model, NULL, 2);
    assert_non_null(replicas);
    assert_ok(lk_replicas_load_weights(replicas, path_of("%s/checkpoint-00000001/model.safetensors", pytorch), NULL));
    assert_ok(lk_replicas_digest(replicas, 0, have));
    assert_string_equal(have, want);
    lk_replicas_release(replicas);
    lk_model_release(model);
    lk_strategy_release(strategy);
    lk_device_release(device);
}

static void takes_pytorchs_weights(void **state)
{
    (void)state;
    static const char *const models[][2] = {{"lenet", "lenet"},         {"keras-cnn", "keras-cnn"},
                                            {"resnet18", "resnet18"},   {"resnet18", "resnet18-book"},
                                            {"wrn-16-10", "wrn-16-10"}, {"fast-cnn", "fast-cnn"}};
    int status = torch("write");
    if (status == 77 || status == 127) {
        printf("SKIP: python3 (or $PYTHON) has no PyTorch\n");
        skip();
    }
    assert_int_equal(status, 0);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        takes_over(models[i][0], models[i][1]);
    assert_int_equal(torch("check"), 0);
}

/* Weights written under PyTorch's names load with the same bits; `dense` is stored in PyTorch's shape. */
static void write_and_load(const char *name, lk_export_names names, const char *dense, lk_shape shape)
{
    char want[33], have[33], path[256];
    lk_device *device = lk_device_open("cpu");
    lk_strategy *strategy = lk_strategy_new("one-device", &device, 1);
    lk_model *model = lk_model_new(name, (lk_model_input){3, 36, 32, 7});
    assert_true(strategy && model);
    lk_replicas *replicas = lk_replicas_new(strategy, model, NULL, 1),
                *others = lk_replicas_new(strategy, model, NULL, 2);
    assert_true(replicas && others);
    assert_ok(lk_replicas_digest(replicas, 0, want));
    assert_ok(lk_replicas_save(replicas, path_of("%s", name), &(lk_checkpoint_info){.steps = 1}));
    snprintf(path, sizeof path, "%s", path_of("%s.safetensors", name));
    give_back(path_of("%s", name), path, names);
    assert_ok(lk_replicas_load_weights(others, path, NULL));
    assert_ok(lk_replicas_digest(others, 0, have));
    assert_string_equal(have, want);
    lk_safetensors *file;
    assert_ok(lk__safetensors_open(path, &file));
    const lk_safetensor *found = lk__safetensors_find(file, dense);
    assert_non_null(found);
    assert_memory_equal(&found->shape, &shape, sizeof shape);
    lk__safetensors_close(file);
    lk_replicas_release(replicas);
    lk_replicas_release(others);
    lk_model_release(model);
    lk_strategy_release(strategy);
    lk_device_release(device);
}

static void writes_the_weights_that_it_loads(void **state)
{
    (void)state;
    write_and_load("lenet", LK_EXPORT_NAMES_TORCH, "9.weight", LK_SHAPE(7, 128));
    write_and_load("keras-cnn", LK_EXPORT_NAMES_TORCH, "6.weight", LK_SHAPE(7, 64));
    write_and_load("wrn-16-10", LK_EXPORT_NAMES_TORCH, "13.weight", LK_SHAPE(7, 640));
    write_and_load("fast-cnn", LK_EXPORT_NAMES_TORCH, "18.weight", LK_SHAPE(7, 256));
    write_and_load("resnet18", LK_EXPORT_NAMES_BOOK, "fc.1.weight", LK_SHAPE(7, 512));
}

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static const float zeros[5408 * 64];

static void write_weights(const lk_safetensors_entry *entries, int n)
{
    char path[128];
    int64_t bytes;
    uint64_t hash;
    snprintf(path, sizeof path, "%s/weights.safetensors", test_dir);
    assert_ok(lk__safetensors_write(path, entries, n, NULL, &bytes, &hash));
}

static void refused(const char *message)
{
    char path[128];
    lk_train_config config = small_training();
    config.model = "keras-cnn";
    snprintf(path, sizeof path, "%s/weights.safetensors", test_dir);
    config.checkpoints.weights = path;
    lk_error_clear();
    assert_null(lk_trainer_new(&config));
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    if (!strstr(lk_error_message(), message))
        fail_msg("'%s' is not in '%s'", message, lk_error_message());
    lk_error_clear();
}

/* Weights of modules that are compiled, in a LightningModule, in DistributedDataParallel, or nested in these. */
static void looks_inside_wrappers(void **state)
{
    (void)state;
    const lk_safetensors_entry entries[] = {
        {"_orig_mod.0.weight", LK_SHAPE(32, 1, 3, 3), zeros},    {"model.0.bias", LK_SHAPE(32), zeros},
        {"model._orig_mod.4.weight", LK_SHAPE(64, 5408), zeros}, {"_orig_mod.module.4.bias", LK_SHAPE(64), zeros},
        {"module._orig_mod.6.weight", LK_SHAPE(10, 64), zeros},  {"6.bias", LK_SHAPE(10), zeros}};
    lk_train_config config = small_training();
    char path[128];
    write_weights(entries, sizeof entries / sizeof *entries);
    config.model = "keras-cnn";
    snprintf(path, sizeof path, "%s/weights.safetensors", test_dir);
    config.checkpoints.weights = path;
    lk_trainer_release(new_trainer(&config));
}

static void refuses_weights_that_do_not_fit(void **state)
{
    (void)state;
    lk_safetensors_entry entries[] = {
        {"module.0.weight", LK_SHAPE(32, 1, 3, 3), zeros}, {"module.0.bias", LK_SHAPE(32), zeros},
        {"module.4.weight", LK_SHAPE(64, 5408), zeros},    {"module.4.bias", LK_SHAPE(64), zeros},
        {"module.6.weight", LK_SHAPE(10, 64), zeros},      {"module.6.bias", LK_SHAPE(10), zeros},
        {"module.7.weight", LK_SHAPE(10, 64), zeros}};
    enum { ALL = 6 };
    lk_train_config config = small_training();
    char path[128];
    write_weights(entries, ALL);
    config.model = "keras-cnn";
    snprintf(path, sizeof path, "%s/weights.safetensors", test_dir);
    config.checkpoints.weights = path;
    lk_trainer_release(new_trainer(&config));
    write_weights(entries, ALL + 1);
    refused("has a tensor module.7.weight, which is none of the 6 variables of model keras-cnn");
    entries[2].name = "module.5.weight";
    write_weights(entries, ALL);
    refused("has no 4.weight, which is dense1.weight of model keras-cnn");
    entries[2] = (lk_safetensors_entry){"module.4.weight", LK_SHAPE(5408, 64), zeros};
    write_weights(entries, ALL);
    refused("4.weight has shape [5408,64], and as dense1.weight of model keras-cnn it must have [64,5408]");
    entries[2].shape = LK_SHAPE(64, 5408);
    entries[0].name = "module.9.weight"; /* the first, or the last, may be the missing one */
    write_weights(entries, ALL);
    refused("has no 0.weight, which is conv1.weight of model keras-cnn");
    entries[0].name = "module.0.weight";
    write_weights(entries, ALL - 1);
    refused("has no 6.bias, which is dense2.bias of model keras-cnn");
    float bias[10] = {[7] = NAN};
    entries[5].values = bias;
    write_weights(entries, ALL);
    refused("module.6.bias has the value nan at 7");
    static float inputs[5408 * 64]; /* is transposed: the message has the place in the file */
    inputs[100] = INFINITY;
    entries[5].values = zeros;
    entries[2].values = inputs;
    write_weights(entries, ALL);
    refused("module.4.weight has the value inf at 100");
    write_weights(&entries[ALL], 1);
    refused("nor as PyTorch calls them");
}

int main(void)
{
    char file[] = __FILE__;
    snprintf(source_folder, sizeof source_folder, "%s", dirname(file));
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(takes_pytorchs_weights),
        FOLDER_TEST(writes_the_weights_that_it_loads),
        FOLDER_TEST(looks_inside_wrappers),
        FOLDER_TEST(refuses_weights_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
