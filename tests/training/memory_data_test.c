/* Trainings on data sets of the program's own: bytes, floats and a function give one digest, for any number of devices
 * and loading threads, resumed or not; wrong settings and a function that fails end with a message. */
#include "base/folder_testing.h"
#include "training.h"
#include "lockstep/checkpoint.h"
#include "lockstep/predict.h"

enum { TRAIN = 67, VAL = 41, PIXELS = 784, CLASSES = 10 };

typedef enum kind { BYTES, FLOATS, FUNCTION } kind;

/* The samples of a split of the synthetic data. */
typedef struct samples {
    lk_dataset *bytes;
    float *floats;
    _Atomic int64_t unreadable; /* the function fails for this sample; -1: for none */
} samples;

static samples splits[2];

static lk_status read_sample(void *user, int64_t index, float *image)
{
    const samples *s = user;
    if (index == s->unreadable)
        return LK_ERR_IO;
    memcpy(image, s->floats + index * PIXELS, PIXELS * sizeof *image);
    return LK_OK;
}

static int set_up(void **state)
{
    for (int i = 0; i < 2; i++) {
        samples *s = &splits[i];
        const lk_dataset_opts opts = {.limit = i == 0 ? TRAIN : VAL};
        assert_ok(lk_dataset_open("synthetic", i == 0 ? LK_SPLIT_TRAIN : LK_SPLIT_TEST, &opts, &s->bytes));
        s->floats = malloc((size_t)opts.limit * PIXELS * sizeof *s->floats);
        assert_non_null(s->floats);
        for (int64_t j = 0; j < opts.limit * PIXELS; j++)
            s->floats[j] = (float)lk_dataset_images(s->bytes)[j] / 255;
        s->unreadable = -1;
    }
    return make_test_dir(state);
}

static int tear_down(void **state)
{
    for (int i = 0; i < 2; i++) {
        lk_dataset_release(splits[i].bytes);
        free(splits[i].floats);
    }
    return remove_test_dir(state);
}

static lk_dataset *make_split(samples *s, kind k, int64_t classes)
{
    lk_dataset *dataset;
    lk_dataset_arrays arrays = {.labels = lk_dataset_labels(s->bytes),
                                .count = lk_dataset_count(s->bytes),
                                .channels = 1,
                                .height = 28,
                                .width = 28,
                                .classes = classes};
    if (k == BYTES)
        arrays.images = lk_dataset_images(s->bytes);
    if (k == FLOATS)
        arrays.floats = s->floats;
    if (k == FUNCTION) {
        arrays.read = read_sample;
        arrays.read_user = s;
    }
    assert_ok(lk_dataset_from_arrays("mine", &arrays, &dataset));
    return dataset;
}

/* small_training on data sets of the given kind. drop_data releases them. */
static lk_train_config training_on(kind k)
{
    lk_train_config config = small_training(), unset;
    assert_ok(lk_train_defaults(NULL, &unset));
    config.data = unset.data;
    config.data.train_set = make_split(&splits[0], k, CLASSES);
    config.data.val_set = make_split(&splits[1], k, CLASSES);
    config.devices.shards = 4;
    config.data.augment = "flip,crop=2";
    return config;
}

static void drop_data(const lk_train_config *config)
{
    lk_dataset_release(config->data.train_set);
    lk_dataset_release(config->data.val_set);
}

static void test_one_digest(void **state)
{
    (void)state;
    lk_train_config named = small_training();
    named.devices.shards = 4;
    named.data.augment = "flip,crop=2";
    outcome want = train(&named);
    static const char *const devices[] = {"1xcpu", "2xcpu", "4xcpu"};
    for (kind k = BYTES; k <= FUNCTION; k++)
        for (int d = 0; d < 3; d++) {
            lk_train_config config = training_on(k);
            config.devices.spec = devices[d];
            config.data.workers = d;
            lk_trainer *trainer = new_trainer(&config);
            drop_data(&config); /* the trainer has references */
            assert_string_equal(lk_trainer_plan(trainer)->data, "mine");
            outcome have = fit_replicas(trainer);
            same(&want, &have);
        }
}

/* Normalization by moments and the trainer's other uses of data sets. */
static void test_normalized_and_predicted(void **state)
{
    (void)state;
    char first[33] = "";
    for (int d = 1; d <= 2; d++) {
        lk_train_config config = training_on(FUNCTION);
        config.devices.spec = d == 1 ? "1xcpu" : "2xcpu";
        config.data.normalize = LK_NORMALIZE_STANDARD;
        lk_trainer *trainer = new_trainer(&config);
        outcome out = fit(trainer);
        float *probabilities = malloc(VAL * CLASSES * sizeof *probabilities);
        assert_non_null(probabilities);
        assert_ok(lk_trainer_predict(trainer, config.data.val_set, probabilities));
        int right = 0;
        for (int64_t i = 0; i < VAL; i++) {
            int64_t top;
            lk_top_classes(probabilities + i * CLASSES, CLASSES, 1, &top);
            right += top == lk_dataset_labels(config.data.val_set)[i];
        }
        assert_int_equal(right, (int64_t)out.result.val.accuracy.sum);
        free(probabilities);
        assert_true(d == 1 || strcmp(first, out.result.digest) == 0);
        memcpy(first, out.result.digest, sizeof first);
        lk_trainer_release(trainer);
        drop_data(&config);
    }
}

/* A training that was interrupted in the middle of an epoch goes on to the same bits, on another number of devices.
 * Other images are noticed. A checkpoint's network is evaluated on the function's images. */
static void test_resumed(void **state)
{
    (void)state;
    const char *folder = path_of("checkpoints");
    lk_train_config config = training_on(FUNCTION);
    outcome want = train(&config);
    config.checkpoints.dir = folder;
    config.checkpoints.every = "1";
    config.devices.spec = "2xcpu";
    lk_trainer *trainer = new_trainer(&config);
    lk_train_result result;
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "stop", .step_end = interrupt_in_second_epoch}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_trainer_release(trainer);
    config.checkpoints.resume = true;
    const float before = splits[0].floats[0];
    splits[0].floats[0] = before + 1;
    lk_error_clear();
    assert_null(lk_trainer_new(&config));
    assert_non_null(strstr(lk_error_message(), "the training set (its hash)"));
    splits[0].floats[0] = before;
    config.devices.spec = "1xcpu";
    trainer = new_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_string_equal(result.digest, want.result.digest);
    lk_trainer_release(trainer);

    lk_checkpoint *checkpoint;
    lk_evaluation evaluation;
    assert_ok(lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &checkpoint));
    lk_predictor *predictor = lk_predictor_new(checkpoint, NULL);
    assert_non_null(predictor);
    assert_ok(lk_evaluate(predictor, config.data.val_set, 3, &evaluation));
    assert_int_equal(evaluation.count - evaluation.wrong, (int64_t)want.result.val.accuracy.sum);
    lk_evaluation_free(&evaluation);
    lk_predictor_release(predictor);
    lk_checkpoint_release(checkpoint);
    drop_data(&config);
}

static void test_function_fails(void **state)
{
    (void)state;
    for (int workers = 0; workers < 3; workers++) {
        lk_train_config config = training_on(FUNCTION);
        config.data.workers = workers;
        lk_trainer *trainer = new_trainer(&config);
        lk_train_result result;
        splits[0].unreadable = 13;
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_IO);
        assert_non_null(strstr(lk_error_message(),
                               "data set mine: the program's function failed to read sample 13: input/output error"));
        splits[0].unreadable = -1;
        lk_trainer_release(trainer);
        drop_data(&config);
    }
}

static void refused(const lk_train_config *config, const char *message)
{
    lk_error_clear();
    assert_null(lk_trainer_new(config));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    if (!strstr(lk_error_message(), message))
        fail_msg("'%s', expected '%s'", lk_error_message(), message);
}

static void test_wrong_settings(void **state)
{
    (void)state;
    lk_train_config good = training_on(FLOATS), config = good;
    config.data.limit_train = 10;
    refused(&config, "--limit-train: must not be set with a data set that the program gives");
    config = good;
    config.data.resize = "8x8";
    refused(&config, "--resize: must not be set");
    config = good;
    config.data.memory = LK_DATA_ON_DEVICE;
    refused(&config, "--data-on device: must be with images of bytes, and those of mine are floats");
    config = good;
    config.data.train_set = NULL;
    refused(&config, "a val_set without a train_set");
    config = good;
    config.data.val_set = make_split(&splits[1], FLOATS, CLASSES + 1);
    refused(&config, "validation set mine: 11 classes, expected at most the 10 of the training set");
    lk_dataset_release(config.data.val_set);
    config = good;
    config.data.val_set = NULL;
    config.stop.early_stop = 2;
    refused(&config, "--early-stop: needs an evaluation, and the program gives no validation set");
    drop_data(&good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_digest),     cmocka_unit_test(test_normalized_and_predicted),
        cmocka_unit_test(test_resumed),        cmocka_unit_test(test_function_fails),
        cmocka_unit_test(test_wrong_settings),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
