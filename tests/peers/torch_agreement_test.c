/* One training step of each reference model on two devices, against PyTorch in float64 from the same variables and
 * images, with direct algorithms and, where they differ, with fast ones. torch/torch_agreement.py compares and has the
 * bounds.
 *
 * A gradient jumps where an activation changes its sign, and among a million activations some are so near 0 that
 * rounding in f32 decides their sign. So this side writes the sign of each activation, and PyTorch's side uses it.
 * PyTorch's side also checks that the activations for which it has another sign are few and near 0. The two models
 * without batch-norm are also compared without these masks. */
#include "training.h"
#include "base/folder_testing.h"

#include <libgen.h>

static char source_folder[512]; /* the folder of this file in the source tree */

static FILE *create(const char *file)
{
    FILE *stream = fopen(path_of("%s", file), "wb");
    assert_non_null(stream);
    return stream;
}

static void write_bytes(FILE *stream, const void *bytes, size_t size, size_t count)
{
    assert_int_equal(fwrite(bytes, size, count, stream), count);
}

/* Writes the parameters' tensors, concatenated; a NULL tensor becomes zeros. */
static void write_tensors(const char *file, const lk_model *model, lk_tensor *const *tensors)
{
    FILE *stream = create(file);
    for (int i = 0; i < lk_model_parameter_count(model); i++) {
        size_t count = (size_t)lk_tensor_count(tensors[i]);
        float *values = calloc(count, sizeof *values);
        assert_non_null(values);
        assert_ok(lk_tensor_read(tensors[i], values, count * sizeof *values));
        write_bytes(stream, values, sizeof *values, count);
        free(values);
    }
    assert_int_equal(fclose(stream), 0);
}

/* The samples in the order in which the first epoch uses them. */
static void write_samples(const lk_dataset *dataset, uint64_t seed)
{
    int64_t order[64], count = lk_dataset_count(dataset);
    int64_t pixels = lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset);
    assert_true(count <= 64);
    assert_ok(lk_sample_order(count, seed, 0, true, order));
    FILE *images = create("images"), *labels = create("labels");
    for (int64_t i = 0; i < count; i++) {
        int32_t label = lk_dataset_labels(dataset)[order[i]];
        write_bytes(labels, &label, sizeof label, 1);
        for (int64_t p = 0; p < pixels; p++) {
            float value = (float)(lk_dataset_images(dataset)[order[i] * pixels + p] / 255.0);
            write_bytes(images, &value, sizeof value, 1);
        }
    }
    assert_int_equal(fclose(images), 0);
    assert_int_equal(fclose(labels), 0);
}

static lk_status reduce(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    (void)user;
    return lk_allreduce_recorded(parts, sums, n);
}

/* Writes a byte for each element of a rectifier's output. */
static void write_mask(void *user, const char *path, int shard, lk_tensor *y)
{
    (void)shard;
    const char *name = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
    if (strncmp(name, "relu", strlen("relu")) != 0)
        return;
    size_t count = (size_t)lk_tensor_count(y);
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    assert_ok(lk_tensor_read(y, values, count * sizeof *values));
    for (size_t i = 0; i < count; i++)
        assert_int_not_equal(fputc(values[i] > 0, user), EOF);
    free(values);
}

/* Runs the forward pass of the trainer's next step, on one device. */
static void write_masks(lk_trainer *trainer, bool sync)
{
    enum { SHARDS = 3 };
    const lk_model *model = lk_trainer_model(trainer);
    const lk_dataset *data = lk_trainer_dataset(trainer, LK_SPLIT_TRAIN);
    lk_device *device = lk_strategy_device(lk_trainer_strategy(trainer), 0);
    lk_tensor *const *of_shard[SHARDS], *x[SHARDS], *logits[SHARDS];
    lk_loader_opts opts = {
        .batch_size = lk_dataset_count(data), .seed = lk_trainer_plan(trainer)->seed, .shuffle = true};
    lk_loader *loader;
    lk_batch *batch;
    assert_int_equal(lk_trainer_plan(trainer)->shards, SHARDS);
    assert_ok(lk_loader_new((lk_dataset *)(uintptr_t)data, &opts, &loader));
    assert_ok(lk_loader_start(loader, 0));
    assert_ok(lk_loader_next(loader, &batch));
    lk_scope_begin();
    lk_model_input image = lk_model_get_input(model);
    int64_t all_samples[SHARDS];
    for (int s = 0; s < SHARDS; s++) {
        lk_range samples = lk_part(batch->count, SHARDS, s);
        all_samples[s] = batch->count;
        lk_shape shape = LK_SHAPE(samples.end - samples.begin, image.channels, image.height, image.width);
        const float *pixels = batch->images + samples.begin * image.channels * image.height * image.width;
        x[s] = lk_tensor_from(device, LK_F32, shape, pixels);
        of_shard[s] = lk_trainer_variables(trainer, 0);
    }
    FILE *stream = create("masks");
    lk_forward_opts forward = {.training = true,
                               .sync = sync ? reduce : NULL,
                               .group_samples = all_samples,
                               .visit = write_mask,
                               .visit_user = stream};
    assert_ok(lk_model_forward_shards(model, SHARDS, of_shard, x, &forward, logits));
    assert_int_equal(fclose(stream), 0);
    lk_scope_end();
    lk_batch_release(batch);
    lk_loader_release(loader);
}

static void write_about(const char *name, const lk_trainer *trainer, bool sync, lk_algorithms algorithms, double loss)
{
    const lk_model *model = lk_trainer_model(trainer);
    const lk_dataset *data = lk_trainer_dataset(trainer, LK_SPLIT_TRAIN);
    FILE *stream = create("about.json");
    fprintf(stream, "{\"model\": \"%s\", \"algorithms\": \"%s\", \"sync\": %s, \"shards\": %lld, \"loss\": %.17g,\n",
            name, algorithms == LK_ALGORITHMS_FAST ? "fast" : "direct", sync ? "true" : "false",
            (long long)lk_trainer_plan(trainer)->shards, loss);
    fprintf(stream, "\"images\": [%lld, %lld, %lld, %lld], \"parameters\": [", (long long)lk_dataset_count(data),
            (long long)lk_dataset_channels(data), (long long)lk_dataset_height(data),
            (long long)lk_dataset_width(data));
    for (int i = 0; i < lk_model_parameter_count(model); i++) {
        lk_shape shape = lk_model_variable_shape(model, i);
        fprintf(stream, "%s\n[\"%s\", [", i ? "," : "", lk_model_variable_name(model, i));
        for (int d = 0; d < shape.ndim; d++)
            fprintf(stream, "%s%lld", d ? ", " : "", (long long)shape.dim[d]);
        fprintf(stream, "]]");
    }
    fprintf(stream, "]}\n");
    assert_int_equal(fclose(stream), 0);
}

static lk_status keep_loss(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    *(double *)self = report->batch.loss.sum / (double)report->batch.loss.count;
    return LK_OK;
}

/* Runs python3, or $PYTHON, and returns its exit status. */
static int python(const char *arguments)
{
    char command[2048];
    const char *interpreter = getenv("PYTHON");
    snprintf(command, sizeof command, "'%s' %s", interpreter ? interpreter : "python3", arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void compare(void)
{
    char arguments[1300];
    snprintf(arguments, sizeof arguments, "'%s/torch/torch_agreement.py' '%s'", source_folder, test_dir);
    assert_int_equal(python(arguments), 0);
}

/* `name` is the model's name in PyTorch's script, `model` the one in the library. */
static void agree(const char *name, const char *model, int samples, bool sync, int seed, lk_algorithms algorithms)
{
    lk_train_config config = small_training();
    config.model = model;
    config.devices.spec = "2xcpu";
    config.devices.shards = 3;
    config.execution.algorithms = algorithms == LK_ALGORITHMS_FAST ? "fast" : "direct";
    config.batch_size = config.data.limit_train = samples;
    config.data.limit_val = 0;
    config.epochs = 1;
    config.seed = seed;
    config.batch_norm.mode = sync ? LK_BN_SYNC : LK_BN_SHARD;
    lk_trainer *trainer = new_trainer(&config);
    double loss = 0;
    lk_train_result result;
    write_tensors("parameters", lk_trainer_model(trainer), lk_trainer_variables(trainer, 0));
    write_samples(lk_trainer_dataset(trainer, LK_SPLIT_TRAIN), lk_trainer_plan(trainer)->seed);
    write_masks(trainer, sync);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "loss", .step_end = keep_loss, .self = &loss}));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(result.steps, 1);
    write_tensors("gradients", lk_trainer_model(trainer), lk_trainer_gradients(trainer));
    write_about(name, trainer, sync, algorithms, loss);
    lk_trainer_release(trainer);

    compare();
}

/* With these seeds, no two values in a pooling window of keras-cnn are so near to each other that rounding decides
 * which is larger; see docs/reproducibility.md. */
enum { SEEDS = 3 };

static void lenet(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++)
        agree("lenet", "lenet", 23, true, seed, LK_ALGORITHMS_DIRECT);
}

static void lenet_fast(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++)
        agree("lenet", "lenet", 24, true, seed, LK_ALGORITHMS_FAST);
}

static void keras_cnn(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++)
        agree("keras-cnn", "keras-cnn", 23, true, seed, LK_ALGORITHMS_DIRECT);
}

static void resnet18(void **state)
{
    (void)state;
    agree("resnet18", "resnet18", 10, true, 0, LK_ALGORITHMS_DIRECT);
}

static void resnet18_fast(void **state)
{
    (void)state;
    agree("resnet18", "resnet18", 10, true, 0, LK_ALGORITHMS_FAST);
}

static void resnet18_by_shards(void **state)
{
    (void)state;
    agree("resnet18", "resnet18", 10, false, 0, LK_ALGORITHMS_DIRECT);
}

/* Removes the dropout from the model's file. */
static void agree_wrn_16_10(lk_algorithms algorithms)
{
    char line[512], path[600];
    snprintf(path, sizeof path, "%s/../../examples/models/wrn-16-10.lk", source_folder);
    FILE *from = fopen(path, "r"), *to = create("model.lk");
    assert_non_null(from);
    int dropped = 0;
    while (fgets(line, sizeof line, from)) {
        bool dropout = strncmp(line + strspn(line, " \t"), "dropout", strlen("dropout")) == 0;
        dropped += dropout;
        if (!dropout)
            assert_true(fputs(line, to) >= 0);
    }
    fclose(from);
    assert_int_equal(fclose(to), 0);
    assert_true(dropped > 0);
    snprintf(path, sizeof path, "%s/model.lk", test_dir);
    agree("wrn-16-10", path, 7, true, 0, algorithms);
}

static void wrn_16_10(void **state)
{
    (void)state;
    agree_wrn_16_10(LK_ALGORITHMS_DIRECT);
}

static void wrn_16_10_fast(void **state)
{
    (void)state;
    agree_wrn_16_10(LK_ALGORITHMS_FAST);
}

int main(void)
{
    char file[] = __FILE__;
    if (python("-c 'import torch' 2>/dev/null") != 0) {
        printf("SKIP: python3 (or $PYTHON) has no PyTorch\n");
        return 77;
    }
    snprintf(source_folder, sizeof source_folder, "%s", dirname(file));
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(lenet),     FOLDER_TEST(lenet_fast),     FOLDER_TEST(keras_cnn),
        FOLDER_TEST(resnet18),  FOLDER_TEST(resnet18_fast),  FOLDER_TEST(resnet18_by_shards),
        FOLDER_TEST(wrn_16_10), FOLDER_TEST(wrn_16_10_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
