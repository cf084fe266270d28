/* Networks with the weights of PyTorch's make what PyTorch makes of an image, and PyTorch reads what is written here.
 */
#include "training.h"
#include "test_folder.h"

#include "io/safetensors.h"
#include "lockstep/checkpoint.h"
#include "lockstep/export.h"

#include <libgen.h>
#include <math.h>

enum { IMAGES = 2, PIXELS = 28 * 28, CLASSES = 10 };

static char source_folder[1024];

/* Exit status of tests/torch/torch_weights.py. */
static int torch(const char *what)
{
    char command[2048];
    const char *interpreter = getenv("PYTHON");
    snprintf(command, sizeof command, "'%s' '%s/torch/torch_weights.py' %s %s", interpreter ? interpreter : "python3",
             source_folder, what, folder);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* `name` in the folder, with what follows; valid until the next call. */
static const char *path_of(const char *name, const char *more)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, more);
    return path;
}

static void read_tensor(const char *path, const char *tensor, float *values)
{
    lk__safetensors *file;
    assert_ok(lk__safetensors_open(path, &file));
    const lk__safetensor *found = lk__safetensors_find(file, tensor);
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

/* What the folder's checkpoint holds, written under PyTorch's names. */
static void give_back(const char *checkpoint_folder, const char *path, lk_export_names names)
{
    lk_checkpoint *checkpoint;
    assert_ok(lk_checkpoint_open_model(checkpoint_folder, LK_CHECKPOINT_LAST, &checkpoint));
    if (lk_export_checkpoint(checkpoint, LK_EXPORT_SAFETENSORS, path, &(lk_export_opts){.names = names}) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_checkpoint_release(checkpoint);
}

/* `pytorch`: what the script calls the network. */
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
    if (lk_replicas_load_weights(replicas, path_of(pytorch, ".safetensors")) != LK_OK)
        fail_msg("%s", lk_error_message());
    compare_logits(path_of(pytorch, ".outputs"), model, replicas, device);
    assert_ok(lk_replicas_digest(replicas, 0, want));
    assert_ok(lk_replicas_save(replicas, path_of(pytorch, ""), &(lk_checkpoint_info){.steps = 1}));
    lk_replicas_release(replicas);
    snprintf(back, sizeof back, "%s", path_of(pytorch, ".back"));
    give_back(path_of(pytorch, ""), back, is_book ? LK_EXPORT_NAMES_BOOK : LK_EXPORT_NAMES_TORCH);

    /* And by the names that they have here. */
    replicas = lk_replicas_new(strategy, model, NULL, 2);
    assert_non_null(replicas);
    assert_ok(lk_replicas_load_weights(replicas, path_of(pytorch, "/checkpoint-00000001/model.safetensors")));
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
    static const char *const models[][2] = {{"lenet", "lenet"},
                                            {"keras-cnn", "keras-cnn"},
                                            {"resnet18", "resnet18"},
                                            {"resnet18", "resnet18-book"},
                                            {"wrn-16-10", "wrn-16-10"}};
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

/* What is written under PyTorch's names is taken as what it was, and lies as there. */
static void comes_back(const char *name, lk_export_names names, const char *dense, lk_shape shape)
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
    assert_ok(lk_replicas_save(replicas, path_of(name, ""), &(lk_checkpoint_info){.steps = 1}));
    snprintf(path, sizeof path, "%s", path_of(name, ".safetensors"));
    give_back(path_of(name, ""), path, names);
    assert_ok(lk_replicas_load_weights(others, path));
    assert_ok(lk_replicas_digest(others, 0, have));
    assert_string_equal(have, want);
    lk__safetensors *file;
    assert_ok(lk__safetensors_open(path, &file));
    const lk__safetensor *found = lk__safetensors_find(file, dense);
    assert_non_null(found);
    assert_memory_equal(&found->shape, &shape, sizeof shape);
    lk__safetensors_close(file);
    lk_replicas_release(replicas);
    lk_replicas_release(others);
    lk_model_release(model);
    lk_strategy_release(strategy);
    lk_device_release(device);
}

static void gives_back_what_it_takes(void **state)
{
    (void)state;
    comes_back("lenet", LK_EXPORT_NAMES_TORCH, "9.weight", LK_SHAPE(7, 128));
    comes_back("keras-cnn", LK_EXPORT_NAMES_TORCH, "6.weight", LK_SHAPE(7, 64));
    comes_back("wrn-16-10", LK_EXPORT_NAMES_TORCH, "13.weight", LK_SHAPE(7, 640));
    comes_back("resnet18", LK_EXPORT_NAMES_BOOK, "fc.1.weight", LK_SHAPE(7, 512));
}

/* --- what does not fit -------------------------------------------------------------------------------------------- */

static const float zeros[5408 * 64];

static void write_weights(const lk__safetensors_entry *entries, int n)
{
    char path[128];
    int64_t bytes;
    uint64_t hash;
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    assert_ok(lk__safetensors_write(path, entries, n, NULL, &bytes, &hash));
}

static void refused(const char *message)
{
    char path[128];
    lk_train_config config = small_training();
    config.model = "keras-cnn";
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    config.weights = path;
    lk_error_clear();
    assert_null(lk_trainer_new(&config));
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    if (!strstr(lk_error_message(), message))
        fail_msg("'%s' is not in '%s'", message, lk_error_message());
    lk_error_clear();
}

/* Compiled, in a LightningModule, in DistributedDataParallel, and one in another. */
static void looks_behind_wrappers(void **state)
{
    (void)state;
    const lk__safetensors_entry entries[] = {
        {"_orig_mod.0.weight", LK_SHAPE(32, 1, 3, 3), zeros},    {"model.0.bias", LK_SHAPE(32), zeros},
        {"model._orig_mod.4.weight", LK_SHAPE(64, 5408), zeros}, {"_orig_mod.module.4.bias", LK_SHAPE(64), zeros},
        {"module._orig_mod.6.weight", LK_SHAPE(10, 64), zeros},  {"6.bias", LK_SHAPE(10), zeros}};
    lk_train_config config = small_training();
    char path[128];
    write_weights(entries, sizeof entries / sizeof *entries);
    config.model = "keras-cnn";
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    config.weights = path;
    lk_trainer_release(new_trainer(&config));
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    lk__safetensors_entry entries[] = {
        {"module.0.weight", LK_SHAPE(32, 1, 3, 3), zeros}, {"module.0.bias", LK_SHAPE(32), zeros},
        {"module.4.weight", LK_SHAPE(64, 5408), zeros},    {"module.4.bias", LK_SHAPE(64), zeros},
        {"module.6.weight", LK_SHAPE(10, 64), zeros},      {"module.6.bias", LK_SHAPE(10), zeros},
        {"module.7.weight", LK_SHAPE(10, 64), zeros}};
    enum { ALL = 6 };
    lk_train_config config = small_training();
    char path[128];
    write_weights(entries, ALL);
    config.model = "keras-cnn";
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    config.weights = path;
    lk_trainer_release(new_trainer(&config));
    write_weights(entries, ALL + 1);
    refused("has a tensor module.7.weight, which is none of the 6 variables of model keras-cnn");
    entries[2].name = "module.5.weight";
    write_weights(entries, ALL);
    refused("has no 4.weight, which is dense1.weight of model keras-cnn");
    entries[2] = (lk__safetensors_entry){"module.4.weight", LK_SHAPE(5408, 64), zeros};
    write_weights(entries, ALL);
    refused("4.weight has shape [5408,64], and as dense1.weight of model keras-cnn it must have [64,5408]");
    entries[2].shape = LK_SHAPE(64, 5408);
    entries[0].name = "module.9.weight"; /* also where it is the first, or the last, that is missing */
    write_weights(entries, ALL);
    refused("has no 0.weight, which is conv1.weight of model keras-cnn");
    entries[0].name = "module.0.weight";
    write_weights(entries, ALL - 1);
    refused("has no 6.bias, which is dense2.bias of model keras-cnn");
    write_weights(&entries[ALL], 1);
    refused("nor as PyTorch calls them");
}

int main(void)
{
    char file[] = __FILE__;
    snprintf(source_folder, sizeof source_folder, "%s", dirname(file));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes_pytorchs_weights, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(gives_back_what_it_takes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(looks_behind_wrappers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(refuses_what_does_not_fit, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
