/* A checkpoint holds the whole state of a training: other replicas can continue from it, and any damage is found. */
#include "small_network.h"
#include "base/folder_testing.h"

#include "base/mem_testing.h"
#include "lockstep/checkpoint.h"
#include "lockstep/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

static char said[1024];

static int make_silent_folder(void **state)
{
    said[0] = '\0';
    return make_test_dir(state);
}

static void keep_message(void *user, lk_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(said, sizeof said, "%s", message);
}

static lk_checkpoint *open_last(const char *path)
{
    lk_checkpoint *checkpoint;
    if (lk_checkpoint_open(path, LK_CHECKPOINT_LAST, &checkpoint) != LK_OK)
        fail_msg("%s", lk_error_message());
    return checkpoint;
}

static lk_train_config momentum_training(void)
{
    lk_train_config config = small_training();
    config.optimizer.momentum = 0.9;
    config.data.normalize = LK_NORMALIZE_STANDARD;
    config.seed = 7;
    return config;
}

static void same_values(lk_tensor *const *have, const lk_checkpoint *checkpoint)
{
    for (int i = 0; i < lk_checkpoint_variable_count(checkpoint); i++) {
        lk_shape shape;
        const float *want = lk_checkpoint_variable(checkpoint, i, NULL, &shape);
        size_t bytes = (size_t)lk_shape_count(shape) * sizeof(float);
        float *values = malloc(bytes);
        assert_non_null(values);
        assert_ok(lk_tensor_read(have[i], values, bytes));
        assert_memory_equal(values, want, bytes);
        free(values);
    }
}

static void holds_the_state_of_a_training(void **state)
{
    (void)state;
    lk_train_config config = momentum_training();
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 4));
    assert_ok(lk_trainer_save(trainer, test_dir));
    lk_checkpoint *checkpoint = open_last(test_dir);
    const lk_checkpoint_info *info = lk_checkpoint_get_info(checkpoint);
    assert_string_equal(info->model, "lenet");
    assert_string_equal(info->data, "synthetic");
    assert_true(info->channels == 1 && info->height == 28 && info->width == 28 && info->classes == 10);
    assert_string_equal(info->class_names[2], lk_dataset_class_name(lk_trainer_dataset(trainer, LK_SPLIT_TRAIN), 2));
    assert_true(info->center && info->standardize && info->mean[0] > 0 && info->deviation[0] > 0);
    assert_true(info->seed == 7 && info->dtype == LK_F32 && !info->model_file);
    assert_true(info->epoch == 1 && info->batch == 1 && info->steps == 4 && info->updates == 4);
    assert_int_equal(info->samples_seen, 67 + 32);
    assert_string_equal(lk_checkpoint_get_setting(checkpoint, "momentum"), "0.9");
    assert_null(lk_checkpoint_get_setting(checkpoint, "momenta"));
    same_values(lk_trainer_variables(trainer, 0), checkpoint);

    lk_model *model = lk_checkpoint_model(checkpoint);
    assert_non_null(model);
    assert_int_equal(lk_model_variable_count(model), lk_checkpoint_variable_count(checkpoint));
    lk_device *device = lk_device_open("cpu");
    lk_tensor *variables[64];
    assert_ok(lk_checkpoint_load(checkpoint, device, variables));
    same_values(variables, checkpoint);
    for (int i = 0; i < lk_checkpoint_variable_count(checkpoint); i++)
        lk_tensor_release(variables[i]);
    assert_null(lk_checkpoint_variable(checkpoint, lk_checkpoint_variable_count(checkpoint), NULL, NULL));
    lk_device_release(device);
    lk_model_release(model);
    lk_checkpoint_release(checkpoint);
    lk_trainer_release(trainer);
}

static lk_replicas *new_replicas(lk_strategy **strategy, const char *name, const char *spec, const lk_model *model,
                                 uint64_t seed)
{
    lk_device *devices[4];
    int n;
    assert_ok(lk_devices_open(spec, devices, 4, &n));
    *strategy = lk_strategy_new(name, devices, n);
    assert_non_null(*strategy);
    lk_devices_release(devices, n);
    lk_replicas *replicas =
        lk_replicas_new(*strategy, model, &(lk_optimizer_opts){.kind = LK_ADAM, .weight_decay = 0.01}, seed);
    assert_non_null(replicas);
    return replicas;
}

static void update(lk_replicas *replicas, lk_strategy *strategy, const lk_model *model, float value)
{
    int k = lk_strategy_num_replicas(strategy), n = lk_model_parameter_count(model),
        m = n + lk_model_statistics_count(model);
    lk_tensor **sums = calloc((size_t)(k * m), sizeof *sums);
    assert_non_null(sums);
    for (int r = 0; r < k; r++)
        for (int i = 0; i < n; i++)
            sums[r * m + i] =
                lk_full(lk_strategy_device(strategy, r), LK_F32, lk_model_variable_shape(model, i), value * (i + 1));
    assert_ok(lk_replicas_apply(replicas, sums, m, 8, 0.01));
    for (int i = 0; i < k * m; i++)
        lk_tensor_release(sums[i]);
    free(sums);
}

static lk_model *dense_model(int64_t units)
{
    lk_model *model =
        lk_model_build("own",
                       LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_named("first", lk_layer_dense(units, NULL)),
                                     lk_layer_activation(LK_TANH), lk_layer_named("second", lk_layer_dense(3, NULL))),
                       (lk_model_input){1, 4, 5, 3});
    assert_non_null(model);
    return model;
}

/* A hand-written loop saves in the middle of training, and another one continues on other devices with the same bits,
 * including the optimizer's state. */
static void hand_written_loops_resume(void **state)
{
    (void)state;
    static const char *const strategies[][2] = {
        {"one-device", "cpu"}, {"mirrored", "cpu:0,cpu:1"}, {"central-storage", "cpu:0,cpu:1"}};
    lk_model *model = dense_model(7);
    lk_strategy *strategy, *other;
    lk_replicas *replicas = new_replicas(&strategy, "mirrored", "cpu:0,cpu:1", model, 1);
    update(replicas, strategy, model, 0.5f);
    update(replicas, strategy, model, -0.25f);
    assert_ok(lk_replicas_save(replicas, test_dir, &(lk_checkpoint_info){.epoch = 2, .steps = 2, .seed = UINT64_MAX}));
    update(replicas, strategy, model, 2);
    char want[33], have[33];
    assert_ok(lk_replicas_digest(replicas, 0, want));
    lk_checkpoint *checkpoint = open_last(test_dir);
    assert_true(lk_checkpoint_get_info(checkpoint)->seed == UINT64_MAX);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->updates, 2);
    for (int i = 0; i < 3; i++) {
        lk_replicas *resumed = new_replicas(&other, strategies[i][0], strategies[i][1], model, 2);
        assert_ok(lk_replicas_restore(resumed, checkpoint));
        same_values(lk_replicas_variables(resumed, lk_strategy_num_replicas(other) - 1), checkpoint);
        update(resumed, other, model, 2);
        for (int r = 0; r < lk_strategy_num_replicas(other); r++) {
            assert_ok(lk_replicas_digest(resumed, r, have));
            assert_string_equal(have, want);
        }
        lk_replicas_release(resumed);
        lk_strategy_release(other);
    }
    lk_model *again = lk_checkpoint_model(checkpoint);
    assert_non_null(again);
    assert_string_equal(lk_model_variable_name(again, 0), "first.weight");
    lk_model_release(again);
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);

    lk_model *wider = dense_model(8);
    replicas = new_replicas(&strategy, "one-device", "cpu", wider, 1);
    assert_int_equal(lk_replicas_restore(replicas, checkpoint), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), "first.weight"));
    lk_error_clear();
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);
    lk_model_release(wider);
    lk_checkpoint_release(checkpoint);
    lk_model_release(model);
}

static void keeps_model_files(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/tiny.lk", test_dir);
    static const char text[] = "flatten\nhidden: dense 12\nrelu\ndense classes\n";
    put_bytes(path, text, strlen(text));
    lk_train_config config = small_training();
    config.model = path;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_save(trainer, test_dir));
    lk_trainer_release(trainer);
    assert_int_equal(unlink(path), 0);
    lk_checkpoint *checkpoint = open_last(test_dir);
    assert_string_equal(lk_checkpoint_get_info(checkpoint)->model, path);
    lk_model *model = lk_checkpoint_model(checkpoint);
    assert_non_null(model);
    assert_string_equal(lk_model_variable_name(model, 0), "hidden.weight");
    lk_model_release(model);
    lk_checkpoint_release(checkpoint);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static void save_at(int64_t steps, uint64_t seed)
{
    lk_model *model = dense_model(7);
    lk_strategy *strategy;
    lk_replicas *replicas = new_replicas(&strategy, "one-device", "cpu", model, seed);
    assert_ok(lk_replicas_save(replicas, test_dir, &(lk_checkpoint_info){.steps = steps, .seed = seed}));
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);
    lk_model_release(model);
}

static const char *file_of(int64_t steps, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/checkpoint-%08lld/%s", test_dir, (long long)steps, name);
    return path;
}

static void flip_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 0x10, file);
    assert_int_equal(fclose(file), 0);
}

static void cut(const char *path)
{
    struct stat there;
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(truncate(path, there.st_size / 2), 0);
}

/* The older checkpoint is opened, and the warning contains `says`. Then saves the newer one again. */
static void expect_damage(const char *says)
{
    lk_checkpoint *checkpoint = open_last(test_dir);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, 10);
    lk_checkpoint_release(checkpoint);
    if (!strstr(said, says) || !strstr(said, "checkpoint-00000010 is used"))
        fail_msg("'%s' is not in '%s'", says, said);
    assert_int_equal(lk_error_status(), LK_OK);
    said[0] = '\0';
    save_at(20, 2);
    checkpoint = open_last(test_dir);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, 20);
    assert_string_equal(said, "");
    lk_checkpoint_release(checkpoint);
}

static void finds_every_damage(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"};
    lk_log_set(keep_message, NULL, LK_LOG_WARNING);
    save_at(10, 1);
    save_at(20, 2);
    for (int i = 0; i < 4; i++) {
        flip_byte(file_of(20, files[i]), 20);
        expect_damage(files[i]);
        flip_byte(file_of(20, files[i]), -20);
        expect_damage(i < 3 ? files[i] : "");
        cut(file_of(20, files[i]));
        expect_damage(files[i]);
        assert_int_equal(unlink(file_of(20, files[i])), 0);
        expect_damage(files[i]);
        assert_int_equal(unlink(file_of(20, files[i])), 0);
        assert_int_equal(mkdir(file_of(20, files[i]), 0700), 0);
        lk_checkpoint *checkpoint = open_last(test_dir);
        assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, 10);
        lk_checkpoint_release(checkpoint);
        assert_int_equal(rmdir(file_of(20, files[i])), 0);
        save_at(20, 2);
        said[0] = '\0';
    }
    /* If both are damaged, the message is about the newer one. */
    flip_byte(file_of(20, files[0]), -1);
    flip_byte(file_of(10, files[2]), 9);
    lk_checkpoint *checkpoint;
    assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &checkpoint), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), "checkpoint-00000020/model.safetensors"));
    lk_error_clear();
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
}

static int64_t steps_of_model(void)
{
    lk_checkpoint *checkpoint;
    assert_ok(lk_checkpoint_open_model(test_dir, LK_CHECKPOINT_LAST, &checkpoint));
    int64_t steps = lk_checkpoint_get_info(checkpoint)->steps;
    assert_non_null(lk_checkpoint_variable(checkpoint, 0, NULL, NULL));
    lk_checkpoint_release(checkpoint);
    return steps;
}

/* lk_checkpoint_open_model checks the size of the optimizer's file but not its content. */
static void a_model_needs_no_optimizer(void **state)
{
    (void)state;
    lk_checkpoint *checkpoint;
    lk_log_set(keep_message, NULL, LK_LOG_WARNING);
    save_at(10, 1);
    save_at(20, 2);
    said[0] = '\0';
    flip_byte(file_of(20, "optimizer.safetensors"), -20);
    assert_int_equal(steps_of_model(), 20);
    assert_string_equal(said, "");
    assert_ok(lk_checkpoint_open_model(test_dir, LK_CHECKPOINT_LAST, &checkpoint));
    lk_strategy *strategy;
    lk_model *model = dense_model(7);
    lk_replicas *replicas = new_replicas(&strategy, "one-device", "cpu", model, 3);
    assert_int_equal(lk_replicas_restore(replicas, checkpoint), LK_ERR_STATE);
    assert_non_null(strstr(lk_error_message(), "was opened without its optimizer's state"));
    lk_error_clear();
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);
    lk_model_release(model);
    lk_checkpoint_release(checkpoint);
    expect_damage("optimizer.safetensors");
    cut(file_of(20, "optimizer.safetensors"));
    assert_int_equal(steps_of_model(), 10);
    expect_damage("optimizer.safetensors");
    flip_byte(file_of(20, "model.safetensors"), -20);
    assert_int_equal(steps_of_model(), 10);
    expect_damage("model.safetensors");
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
}

static void write_text(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static void manifests_list_only_files_of_the_checkpoint(void **state)
{
    (void)state;
    lk_checkpoint *checkpoint;
    static const char *const texts[] = {
        "{\"files\":{\"model.safetensors\":{\"bytes\":1,\"xxh3\":\"0\"},\"state.json\":{},\"../x\":{\"bytes\":0}}}",
        "{\"files\":{\"state.json\":{\"bytes\":1,\"xxh3\":\"0\"}}}",
        "{}",
        "[1,2",
        "{\"files\":{\"model.safetensors\":{\"bytes\":-1,\"xxh3\":\"0\"},\"state.json\":7}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        save_at(10, 1);
        write_text(file_of(10, "manifest.json"), texts[i]);
        assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &checkpoint), LK_ERR_FORMAT);
        lk_error_clear();
    }
}

/* Another program may write such a file, with the right hash. */
static void refuses_a_dtype_that_it_does_not_know(void **state)
{
    (void)state;
    char hash[2][20];
    size_t size;
    lk_checkpoint *checkpoint;
    save_at(10, 1);
    char *text = contents_of(file_of(10, "state.json"), &size),
         *manifest = contents_of(file_of(10, "manifest.json"), NULL);
    snprintf(hash[0], sizeof hash[0], "%016" PRIx64, (uint64_t)XXH3_64bits(text, size));
    char *dtype = strstr(text, "\"dtype\":\"f32\""), *listed = strstr(manifest, hash[0]);
    assert_true(dtype && listed);
    memcpy(strstr(dtype, "f32"), "f64", 3);
    snprintf(hash[1], sizeof hash[1], "%016" PRIx64, (uint64_t)XXH3_64bits(text, size));
    memcpy(listed, hash[1], 16);
    write_text(file_of(10, "state.json"), text);
    write_text(file_of(10, "manifest.json"), manifest);
    free(text);
    free(manifest);
    assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &checkpoint), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), "state.json: dtype is missing, or not what it should be"));
    lk_error_clear();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void fail_each_allocation(lk_status (*open)(const char *, lk_checkpoint_which, lk_checkpoint **))
{
    lk_checkpoint *checkpoint;
    for (failing f = fail_every(1); fail_next(&f);) {
        stop_failing_with(&f, open(test_dir, LK_CHECKPOINT_LAST, &checkpoint));
        lk_checkpoint_release(checkpoint);
    }
}

/* The older checkpoint stays, whichever allocation fails. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    lk_model *model = dense_model(7);
    lk_strategy *strategy;
    lk_replicas *replicas = new_replicas(&strategy, "one-device", "cpu", model, 3);
    lk_checkpoint *checkpoint;
    save_at(10, 1);
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_status status = lk_replicas_save(replicas, test_dir, &(lk_checkpoint_info){.steps = 10, .seed = 3});
        stop_failing(&f);
        assert_true(status == LK_ERR_MEMORY || !f.reached);
        lk_error_clear();
        checkpoint = open_last(test_dir);
        assert_true(lk_checkpoint_get_info(checkpoint)->seed == (status == LK_OK ? 3 : 1));
        lk_checkpoint_release(checkpoint);
    }
    fail_each_allocation(lk_checkpoint_open);
    fail_each_allocation(lk_checkpoint_open_model);
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);
    lk_model_release(model);
}

/* A loop that looks for the smallest loss and has none yet saves infinity. Values that could not be read again are not
 * written. */
static void loops_keep_values_of_their_own(void **state)
{
    (void)state;
    lk_model *model = dense_model(7);
    lk_strategy *strategy;
    lk_replicas *replicas = new_replicas(&strategy, "one-device", "cpu", model, 1);
    assert_ok(lk_replicas_save(replicas, test_dir,
                               &(lk_checkpoint_info){.epoch = 1, .steps = 3, .metric = "loss", .best = INFINITY}));
    lk_checkpoint *checkpoint = open_last(test_dir);
    const lk_checkpoint_info *info = lk_checkpoint_get_info(checkpoint);
    assert_true(strcmp(info->metric, "loss") == 0 && info->best == INFINITY);
    lk_checkpoint_release(checkpoint);
    const struct {
        lk_checkpoint_info info;
        const char *message;
    } refused[] = {
        {{.steps = -1}, "steps -1"},
        {{.samples_seen = (INT64_C(1) << 53) + 1}, "samples_seen 9007199254740993: each must be from 0 to 2^53"},
        {{.center = true}, "mean or deviation is NULL"},
        {{.center = true, .mean = (double[]){NAN}, .deviation = (double[]){1}}, "channel 0 has mean nan"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(lk_replicas_save(replicas, test_dir, &refused[i].info), LK_ERR_ARGUMENT);
        assert_non_null(strstr(lk_error_message(), refused[i].message));
        lk_error_clear();
    }
    char metric[65] = "";
    memset(metric, 'm', sizeof metric - 1);
    assert_int_equal(lk_replicas_save(replicas, test_dir, &(lk_checkpoint_info){.metric = metric}), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "has 64 bytes, and may have 63"));
    lk_error_clear();
    metric[63] = '\0';
    assert_ok(lk_replicas_save(replicas, test_dir, &(lk_checkpoint_info){.steps = 4, .metric = metric}));
    lk_best best;
    assert_ok(lk__checkpoint_read_best(test_dir, &best));
    assert_string_equal(best.metric, metric);
    enum { MOST = 64 << 20 };
    char *value = malloc(MOST + 1);
    assert_non_null(value);
    memset(value, 'v', MOST);
    value[MOST] = '\0';
    lk_checkpoint_setting setting = {"long", value};
    lk_checkpoint_info long_info = {.steps = 5, .settings = &setting, .n_settings = 1};
    assert_int_equal(lk_replicas_save(replicas, test_dir, &long_info), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "may have 67108864"));
    lk_error_clear();
    value[MOST - (1 << 16)] = '\0';
    assert_ok(lk_replicas_save(replicas, test_dir, &long_info));
    checkpoint = open_last(test_dir);
    assert_string_equal(lk_checkpoint_get_info(checkpoint)->settings[0].value, value);
    lk_checkpoint_release(checkpoint);
    free(value);
    lk_replicas_release(replicas);

    /* Without an optimizer no updates are counted, whatever the loop says of them. */
    replicas = lk_replicas_new(strategy, model, NULL, 1);
    assert_ok(lk_replicas_save(replicas, test_dir, &(lk_checkpoint_info){.steps = INT64_C(1) << 53, .updates = -3}));
    checkpoint = open_last(test_dir);
    assert_true(lk_checkpoint_get_info(checkpoint)->steps == INT64_C(1) << 53);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->updates, 0);
    lk_checkpoint_release(checkpoint);
    lk_replicas_release(replicas);
    lk_strategy_release(strategy);
    lk_model_release(model);
}

/* A folder whose name is only similar to a checkpoint's is ignored and stays. */
static void other_names_are_no_checkpoints(void **state)
{
    (void)state;
    static const char *const names[] = {"checkpoint-9", "checkpoint-0000000009", "checkpoint-00000009x",
                                        "checkpoint-99999999999999999999", "checkpoint-+0000009"};
    char path[256];
    save_at(2, 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", test_dir, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    lk_checkpoint *checkpoint = open_last(test_dir);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, 2);
    lk_checkpoint_release(checkpoint);
    /* A link to a checkpoint that was moved away counts as damaged. */
    snprintf(path, sizeof path, "%s/checkpoint-00000009", test_dir);
    assert_int_equal(symlink("nowhere", path), 0);
    checkpoint = open_last(test_dir);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, 2);
    lk_checkpoint_release(checkpoint);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", test_dir, names[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

/* On file systems that cannot exchange two folders, such as NFS, a save renames twice and may be killed in between. */
static void finds_a_checkpoint_that_was_being_replaced(void **state)
{
    (void)state;
    char path[128], replaced[128];
    snprintf(path, sizeof path, "%s/checkpoint-00000007", test_dir);
    snprintf(replaced, sizeof replaced, "%s/.replaced-checkpoint-00000007", test_dir);
    save_at(7, 3);
    assert_int_equal(rename(path, replaced), 0);
    lk_checkpoint *checkpoint = open_last(test_dir);
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, 7);
    lk_checkpoint_release(checkpoint);
    assert_int_equal(rename(path, replaced), 0);
    save_at(8, 4);
    assert_int_equal(access(path, F_OK), 0);
    /* If both are there, the new one has replaced the old one. */
    assert_int_equal(mkdir(replaced, 0700), 0);
    save_at(9, 5);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(access(replaced, F_OK), -1);
}

typedef struct exchanger {
    char one[128], other[128];
    atomic_int due; /* 1: an exchange is to happen; -1: end */
    int delay;      /* of the next exchange, in microseconds */
} exchanger;

static int exchange_folders(const exchanger *e)
{
    return renameat2(AT_FDCWD, e->one, AT_FDCWD, e->other, RENAME_EXCHANGE);
}

static void *exchange_when_due(void *argument)
{
    exchanger *e = argument;
    for (int due; (due = atomic_load(&e->due)) >= 0; sched_yield()) {
        if (due == 0)
            continue;
        usleep((useconds_t)e->delay);
        exchange_folders(e);
        atomic_store(&e->due, 0);
    }
    return NULL;
}

/* A reader that finds the manifest of the old checkpoint and files of the new one reads again. */
static void a_checkpoint_may_be_replaced_while_it_is_read(void **state)
{
    (void)state;
    enum { TIMES = 300, LONGEST = 250 };
    pthread_t thread;
    static exchanger e;
    snprintf(e.one, sizeof e.one, "%s/checkpoint-00000007", test_dir);
    snprintf(e.other, sizeof e.other, "%s/other", test_dir);
    save_at(7, 3);
    assert_int_equal(rename(e.one, e.other), 0);
    save_at(7, 4);
    if (exchange_folders(&e) != 0) {
        printf("SKIP: the file system cannot exchange folders\n");
        skip();
    }
    assert_int_equal(pthread_create(&thread, NULL, exchange_when_due, &e), 0);
    for (int i = 0; i < TIMES; i++) {
        e.delay = i * 7 % LONGEST;
        atomic_store(&e.due, 1);
        lk_checkpoint_release(open_last(i % 2 ? test_dir : e.one));
        while (atomic_load(&e.due) == 1)
            sched_yield();
    }
    atomic_store(&e.due, -1);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void put_best(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/best.json", test_dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "{\"checkpoint\":\"%s\",\"metric\":\"val_accuracy\",\"value\":1,\"epoch\":1}", name) > 0);
    assert_int_equal(fclose(file), 0);
}

static void reports_a_missing_checkpoint(void **state)
{
    (void)state;
    lk_checkpoint *checkpoint;
    char path[128];
    snprintf(path, sizeof path, "%s/nowhere", test_dir);
    assert_int_equal(lk_checkpoint_open(path, LK_CHECKPOINT_LAST, &checkpoint), LK_ERR_NOT_FOUND);
    lk_error_clear();
    assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &checkpoint), LK_ERR_NOT_FOUND);
    lk_error_clear();
    assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_BEST, &checkpoint), LK_ERR_NOT_FOUND);
    lk_error_clear();
    put_best("checkpoint-00000003");
    assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_BEST, &checkpoint), LK_ERR_NOT_FOUND);
    assert_non_null(strstr(lk_error_message(), "/best.json: names checkpoint-00000003, which is not there"));
    lk_error_clear();
    /* Files that a killed process left unfinished do not count, and the next save removes them. */
    snprintf(path, sizeof path, "%s/.unfinished-checkpoint-00000030", test_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &checkpoint), LK_ERR_NOT_FOUND);
    lk_error_clear();
    save_at(10, 1);
    assert_int_equal(access(path, F_OK), -1);
}

static void fit_in_memory(lk_trainer *trainer)
{
    lk_train_result result;
    assert_ok(lk_trainer_add(trainer, lk_callback_memory_checkpoints(test_dir)));
    assert_ok(lk_trainer_fit(trainer, &result));
}

static void in_memory_old_files_are_overwritten(void **state)
{
    (void)state;
    char path[400], spare[500];
    int64_t *numbers;
    int n;
    lk_train_config config = momentum_training();
    snprintf(path, sizeof path, "%s/rank-0", test_dir);
    snprintf(spare, sizeof spare, "%s/%s", path, LK_SPARE);
    lk_trainer *trainer = new_trainer(&config);
    fit_in_memory(trainer);
    assert_int_equal(access(spare, F_OK), 0);
    assert_ok(lk__checkpoint_list(path, &numbers, &n));
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++) { /* opening compares hashes and sizes */
        char one[500];
        snprintf(one, sizeof one, "%s/checkpoint-%08" PRId64, path, numbers[i]);
        lk_checkpoint *checkpoint = open_last(one);
        if (i == n - 1)
            same_values(lk_trainer_variables(trainer, 0), checkpoint);
        lk_checkpoint_release(checkpoint);
    }
    lk__free(numbers);
    lk_trainer_release(trainer);
    /* Files that an earlier training has left are removed, not overwritten. */
    snprintf(spare, sizeof spare, "%s/%s/file", path, LK_SPARE);
    FILE *file = fopen(spare, "w");
    assert_non_null(file);
    fclose(file);
    trainer = new_trainer(&config);
    fit_in_memory(trainer);
    assert_int_equal(access(spare, F_OK), -1);
    assert_ok(lk__checkpoint_list(path, &numbers, &n));
    assert_int_equal(n, 2);
    lk__free(numbers);
    lk_trainer_release(trainer);
}

#define SILENT_TEST(function) cmocka_unit_test_setup_teardown(function, make_silent_folder, remove_test_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SILENT_TEST(holds_the_state_of_a_training),
        SILENT_TEST(hand_written_loops_resume),
        SILENT_TEST(keeps_model_files),
        SILENT_TEST(finds_every_damage),
        SILENT_TEST(a_model_needs_no_optimizer),
        SILENT_TEST(manifests_list_only_files_of_the_checkpoint),
        SILENT_TEST(refuses_a_dtype_that_it_does_not_know),
        SILENT_TEST(every_allocation_may_fail),
        FOLDER_TEST(loops_keep_values_of_their_own),
        FOLDER_TEST(other_names_are_no_checkpoints),
        SILENT_TEST(finds_a_checkpoint_that_was_being_replaced),
        SILENT_TEST(a_checkpoint_may_be_replaced_while_it_is_read),
        SILENT_TEST(reports_a_missing_checkpoint),
        SILENT_TEST(in_memory_old_files_are_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
