/* A checkpoint gives the predictions of its trainer, on any devices and in any batches, and evaluations count
 * correctly.
 */
#include "training.h"
#include "base/folder_testing.h"

#include "base/mem_testing.h"
#include "lockstep/build.h"
#include "lockstep/callbacks.h"
#include "lockstep/predict.h"

#include <fenv.h>
#include <math.h>

enum { IMAGES = 41, CLASSES = 10, MISTAKES = 5 };

static lk_trainer *trainer;
static lk_checkpoint *checkpoint;
static lk_dataset *dataset;

static int train_and_save(void **state)
{
    lk_train_config config = small_training();
    config.model = "keras-cnn";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    trainer = make_test_dir(state) == 0 ? new_trainer(&config) : NULL;
    return trainer && lk_trainer_run(trainer, 6) == LK_OK && lk_trainer_save(trainer, test_dir) == LK_OK &&
                   lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &checkpoint) == LK_OK &&
                   lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = IMAGES}, &dataset) == LK_OK
               ? 0
               : -1;
}

static int remove_all(void **state)
{
    lk_dataset_release(dataset);
    lk_checkpoint_release(checkpoint);
    lk_trainer_release(trainer);
    return remove_test_dir(state);
}

static lk_predictor *new_predictor(const char *devices, int64_t batch_size)
{
    lk_predictor *predictor =
        lk_predictor_new(checkpoint, &(lk_predictor_opts){.devices = devices, .batch_size = batch_size});
    if (!predictor)
        fail_msg("%s", lk_error_message());
    return predictor;
}

/* The implementation depends on the shapes, so bits may differ. */
static void near(const float *have, const float *want)
{
    for (int i = 0; i < IMAGES * CLASSES; i++)
        assert_true(fabsf(have[i] - want[i]) < 1e-5f);
}

static void predicts_as_its_trainer(void **state)
{
    (void)state;
    static float want[IMAGES * CLASSES], have[IMAGES * CLASSES];
    static const struct {
        const char *devices;
        int64_t batch_size;
    } ways[] = {{NULL, 0}, {"cpu:0", 1}, {"2xcpu", 7}, {"3xcpu", 16}, {"2xcpu", 64}};
    assert_ok(lk_trainer_predict(trainer, dataset, want));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        lk_predictor *predictor = new_predictor(ways[i].devices, ways[i].batch_size);
        memset(have, 0, sizeof have);
        assert_ok(lk_predict(predictor, lk_dataset_images(dataset), IMAGES, have));
        near(have, want);
        lk_predictor_release(predictor);
    }
}

/* The variables stay in the memory they were read into, aligned only to a float, until the last device releases them.
 */
static void outlives_its_checkpoint(void **state)
{
    (void)state;
    static float want[IMAGES * CLASSES], have[IMAGES * CLASSES];
    char path[128], runs[128];
    lk_checkpoint *odd;
    int uneven = 0;
    snprintf(path, sizeof path, "%s/odd.lk", test_dir);
    snprintf(runs, sizeof runs, "%s/odd", test_dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("conv2d 3 kernel=5\nbatch_norm\nrelu\nconv2d 7 kernel=3 stride=2\nbatch_norm\nrelu\nmax_pool 2\nflatten\n"
          "dense 19\nrelu\ndense classes\n",
          file);
    assert_int_equal(fclose(file), 0);
    lk_train_config config = small_training();
    config.model = path;
    lk_trainer *owner = new_trainer(&config);
    assert_ok(lk_trainer_run(owner, 3));
    assert_ok(lk_trainer_save(owner, runs));
    assert_ok(lk_trainer_predict(owner, dataset, want));
    lk_trainer_release(owner);
    for (int round = 0; round < 2; round++) {
        assert_ok(lk_checkpoint_open_model(runs, LK_CHECKPOINT_LAST, &odd));
        for (int i = 0; i < lk_checkpoint_variable_count(odd); i++)
            uneven += (uintptr_t)lk_checkpoint_variable(odd, i, NULL, NULL) % 32 != 0;
        lk_predictor *predictor =
            lk_predictor_new(odd, &(lk_predictor_opts){.devices = round ? "2xcpu" : "cpu", .batch_size = 8});
        assert_non_null(predictor);
        lk_checkpoint_release(odd);
        assert_ok(lk_predict(predictor, lk_dataset_images(dataset), IMAGES, have));
        near(have, want);
        lk_predictor_release(predictor);
    }
    assert_true(uneven > 0);
}

static int64_t likeliest(const float *probabilities)
{
    int64_t top;
    lk_top_classes(probabilities, CLASSES, 1, &top);
    return top;
}

static void evaluates_as_its_trainer(void **state)
{
    (void)state;
    static float probabilities[IMAGES * CLASSES];
    lk_metrics metrics;
    lk_evaluation e;
    int64_t confusion[CLASSES][CLASSES] = {{0}};
    assert_ok(lk_trainer_evaluate(trainer, &metrics));
    lk_predictor *predictor = new_predictor("2xcpu", 8);
    assert_ok(lk_predict(predictor, lk_dataset_images(dataset), IMAGES, probabilities));
    for (int i = 0; i < IMAGES; i++)
        confusion[lk_dataset_labels(dataset)[i]][likeliest(probabilities + i * CLASSES)]++;
    assert_ok(lk_evaluate(predictor, dataset, MISTAKES, &e));
    assert_int_equal(e.count, IMAGES);
    assert_int_equal(e.accuracy.count, IMAGES);
    assert_true(e.accuracy.sum == metrics.accuracy.sum && e.accuracy.sum < IMAGES);
    assert_true(fabs(e.loss.sum - metrics.loss.sum) < 1e-3);
    assert_int_equal(e.wrong, IMAGES - (int64_t)e.accuracy.sum);
    assert_memory_equal(e.confusion, confusion, sizeof confusion);
    lk_evaluation_free(&e);
    lk_predictor_release(predictor);
}

static void rates_classes(void **state)
{
    (void)state;
    lk_evaluation e;
    lk_predictor *predictor = new_predictor(NULL, 0);
    assert_ok(lk_evaluate(predictor, dataset, 0, &e));
    assert_int_equal(e.n_mistakes, 0);
    for (int64_t c = 0; c < CLASSES; c++) {
        double right = (double)e.confusion[c * CLASSES + c], row = 0, column = 0;
        for (int64_t k = 0; k < CLASSES; k++) {
            row += (double)e.confusion[c * CLASSES + k];
            column += (double)e.confusion[k * CLASSES + c];
        }
        assert_true(row > 0 ? e.recall[c] == right / row : isnan(e.recall[c]));
        assert_true(column > 0 ? e.precision[c] == right / column : isnan(e.precision[c]));
        if (right > 0)
            assert_true(fabs(e.f1[c] - 2 / (1 / e.precision[c] + 1 / e.recall[c])) < 1e-12);
    }
    lk_evaluation_free(&e);
    lk_predictor_release(predictor);
}

/* A matrix of 65,536 classes would take 34 GB. */
static void rates_many_classes_without_a_matrix(void **state)
{
    (void)state;
    enum { MANY = LK_CONFUSION_MOST + 1 };
    static uint8_t pixels[MANY];
    static int32_t labels[MANY];
    double right = 0;
    int predicted = 0;
    char path[128], runs[128];
    lk_checkpoint *saved;
    lk_dataset *many;
    lk_evaluation e;
    for (int i = 0; i < MANY; i++) {
        pixels[i] = (uint8_t)(i / 17);
        labels[i] = i;
    }
    assert_ok(lk_dataset_from_arrays(
        "many",
        &(lk_dataset_arrays){
            .images = pixels, .labels = labels, .count = MANY, .channels = 1, .height = 1, .width = 1, .classes = MANY},
        &many));
    snprintf(path, sizeof path, "%s/many.lk", test_dir);
    snprintf(runs, sizeof runs, "%s/many", test_dir);
    put_file(path, "flatten\ndense classes\n");
    lk_train_config config;
    assert_ok(lk_train_defaults(NULL, &config));
    config.model = path;
    config.data.train_set = config.data.val_set = many;
    config.batch_size = 1024;
    lk_trainer *owner = new_trainer(&config);
    assert_ok(lk_trainer_run(owner, 2));
    assert_ok(lk_trainer_save(owner, runs));
    lk_trainer_release(owner);
    assert_ok(lk_checkpoint_open_model(runs, LK_CHECKPOINT_LAST, &saved));
    lk_predictor *predictor = lk_predictor_new(saved, NULL);
    assert_non_null(predictor);
    assert_ok(lk_evaluate(predictor, many, 0, &e));
    assert_null(e.confusion);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(e.labeled[i], 1);
        right += e.recall[i];
        predicted += !isnan(e.precision[i]);
    }
    assert_true(predicted > 0 && right == e.accuracy.sum);
    char *text = lk_evaluation_json(&e, many, NULL);
    assert_non_null(strstr(text, "\"confusion\":null"));
    lk_free(text);
    assert_int_equal(lk_evaluation_draw(&e, NULL, NULL, path), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_evaluation_free(&e);
    lk_predictor_release(predictor);
    lk_checkpoint_release(saved);
    lk_dataset_release(many);
}

static void keeps_the_worst_mistakes(void **state)
{
    (void)state;
    static float probabilities[IMAGES * CLASSES];
    lk_evaluation e;
    lk_predictor *predictor = new_predictor(NULL, 4);
    assert_ok(lk_predict(predictor, lk_dataset_images(dataset), IMAGES, probabilities));
    assert_ok(lk_evaluate(predictor, dataset, MISTAKES, &e));
    assert_int_equal(e.n_mistakes, MISTAKES);
    for (int64_t m = 0; m < e.n_mistakes; m++) {
        const lk_mistake *mistake = &e.mistakes[m];
        const float *row = probabilities + mistake->sample * CLASSES;
        assert_int_equal(mistake->label, lk_dataset_labels(dataset)[mistake->sample]);
        assert_int_equal(mistake->predicted, likeliest(row));
        assert_true(mistake->label != mistake->predicted);
        assert_true(fabsf(mistake->label_probability - row[mistake->label]) < 1e-6f);
        assert_true(m == 0 || mistake->label_probability >= e.mistakes[m - 1].label_probability);
    }
    /* No other mistake is worse than the reported ones. */
    int64_t worse = 0;
    for (int i = 0; i < IMAGES; i++) {
        const float *row = probabilities + i * CLASSES;
        int64_t label = lk_dataset_labels(dataset)[i];
        worse += likeliest(row) != label && row[label] < e.mistakes[MISTAKES - 1].label_probability - 1e-6f;
    }
    assert_true(worse < MISTAKES);
    lk_evaluation_free(&e);
    lk_predictor_release(predictor);
}

static char *sheet_with_name(const lk_evaluation *e, const char *name, size_t *size)
{
    const char *names[CLASSES];
    for (int c = 0; c < CLASSES; c++)
        names[c] = name;
    assert_ok(lk_evaluation_sheet(e, dataset, names, path_of("sheet.png")));
    return contents_of(path_of("sheet.png"), size);
}

/* The 121 bytes of a name in a caption end in the middle of the 41st character. */
static void cuts_names_between_characters(void **state)
{
    (void)state;
#define TEN "\u72ac\u72ac\u72ac\u72ac\u72ac\u72ac\u72ac\u72ac\u72ac\u72ac"
    size_t size, size_cut;
    lk_evaluation e;
    if (!lk_build_has("libcairo")) {
        printf("SKIP: this build has no libcairo\n");
        skip();
    }
    lk_predictor *predictor = new_predictor(NULL, 0);
    assert_ok(lk_evaluate(predictor, dataset, 1, &e));
    char *whole = sheet_with_name(&e, TEN TEN TEN TEN, &size),
         *cut = sheet_with_name(&e, TEN TEN TEN TEN "\u72ac", &size_cut);
    assert_true(size > 100);
    assert_int_equal(size_cut, size);
    assert_memory_equal(cut, whole, size);
    free(whole);
    free(cut);
    lk_evaluation_free(&e);
    lk_predictor_release(predictor);
}

/* Four images of this size fit on a sheet; memory for all of the mistakes would be more than there is. */
static void draws_mistakes_that_fit(void **state)
{
    (void)state;
    lk_dataset *high;
    lk_mistake mistakes[4] = {{0}};
    lk_evaluation e = {.mistakes = mistakes, .n_mistakes = INT64_C(1) << 40};
    if (!lk_build_has("libcairo")) {
        printf("SKIP: this build has no libcairo\n");
        skip();
    }
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = 1, .resize = "4000x4"}, &high));
    assert_ok(lk_evaluation_sheet(&e, high, NULL, path_of("sheet.png")));
    lk_dataset_release(high);
}

static void orders_classes(void **state)
{
    (void)state;
    static const float probabilities[] = {0.1f, 0.4f, 0.1f, 0.3f, 0.1f};
    static const int64_t want[] = {1, 3, 0, 2, 4};
    int64_t top[5];
    for (int k = 0; k <= 5; k++) {
        memset(top, 0xFF, sizeof top);
        lk_top_classes(probabilities, 5, k, top);
        assert_memory_equal(top, want, (size_t)k * sizeof *top);
        assert_true(k == 5 || top[k] == -1);
    }
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    lk_dataset *other;
    lk_evaluation e;
    float probabilities[CLASSES];
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = 4, .resize = "20x30"}, &other));
    lk_predictor *predictor = new_predictor(NULL, 0);
    expect_error(lk_evaluate(predictor, other, 1, &e), LK_ERR_SHAPE,
                 "synthetic: its images are 1x20x30, the network takes 1x28x28");
    expect_error(lk_predict(predictor, lk_dataset_images(dataset), 0, probabilities), LK_ERR_ARGUMENT,
                 "prediction: 0 images; at least 1");
    assert_int_equal(lk_predict_bytes(predictor, "none", 4, "a text", probabilities), LK_ERR_FORMAT);
    assert_non_null(strstr(lk_error_message(), "a text: "));
    lk_error_clear();
    lk_predictor_release(predictor);
    lk_dataset_release(other);
    assert_null(lk_predictor_new(checkpoint, &(lk_predictor_opts){.devices = "gpu"}));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static lk_tensor *forward_own(lk_layer_call *call, const void *config, lk_tensor *x)
{
    (void)call, (void)config;
    return lk_tanh(x);
}

static const lk_layer_table own_table = {.kind = "own", .forward = forward_own};

static lk_model *model_in_c(bool is_own)
{
    lk_layer *middle = is_own ? lk_layer_new(&own_table, NULL, 0, NULL, 0) : lk_layer_activation(LK_TANH);
    return lk_model_build("in-c",
                          LK_SEQUENTIAL(lk_layer_conv2d(4, 5, &(lk_conv2d_layer_opts){.stride = 3}), middle,
                                        lk_layer_dropout(0.2), lk_layer_flatten(), lk_layer_dense(CLASSES, NULL)),
                          (lk_model_input){1, 28, 28, CLASSES});
}

/* A network that was built in C is built again from the checkpoint or, with layers of its own, by its program. */
static void predicts_with_networks_built_in_c(void **state)
{
    (void)state;
    static float want[IMAGES * CLASSES], have[IMAGES * CLASSES];
    for (int is_own = 0; is_own < 2; is_own++) {
        char folder[128];
        lk_checkpoint *saved;
        lk_train_config config = small_training();
        snprintf(folder, sizeof folder, "%s/in-c-%d", test_dir, is_own);
        lk_trainer *maker = lk_trainer_new_with(&config, model_in_c(is_own));
        assert_non_null(maker);
        assert_ok(lk_trainer_run(maker, 3));
        assert_ok(lk_trainer_save(maker, folder));
        assert_ok(lk_trainer_predict(maker, dataset, want));
        lk_trainer_release(maker);
        assert_ok(lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &saved));
        lk_predictor *predictor = lk_predictor_new(saved, NULL);
        if (is_own) {
            assert_null(predictor);
            assert_int_equal(lk_error_status(), LK_ERR_UNSUPPORTED);
            lk_error_clear();
            predictor = lk_predictor_new_with(saved, model_in_c(true), NULL);
        }
        assert_non_null(predictor);
        assert_ok(lk_predict(predictor, lk_dataset_images(dataset), IMAGES, have));
        near(have, want);
        lk_predictor_release(predictor);
        lk_checkpoint_release(saved);
    }
    assert_null(lk_predictor_new_with(checkpoint, model_in_c(true), NULL));
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    lk_error_clear();
}

static lk_model *flat_model(int64_t channels, int64_t width)
{
    return lk_model_build("flat", LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_dense(CLASSES, NULL)),
                          (lk_model_input){channels, 28, width, CLASSES});
}

/* The variables are alike, but the checkpoint has one mean, and the network takes two channels. */
static void refuses_other_channels(void **state)
{
    (void)state;
    char folder[128];
    lk_checkpoint *saved;
    lk_train_config config = small_training();
    snprintf(folder, sizeof folder, "%s/flat", test_dir);
    lk_trainer *maker = lk_trainer_new_with(&config, flat_model(1, 28));
    assert_non_null(maker);
    assert_ok(lk_trainer_run(maker, 1));
    assert_ok(lk_trainer_save(maker, folder));
    lk_trainer_release(maker);
    assert_ok(lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &saved));
    assert_null(lk_predictor_new_with(saved, flat_model(2, 14), NULL));
    assert_non_null(strstr(lk_error_message(), "is of 1 channels and 10 classes, and model flat has 2 and 10"));
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    lk_error_clear();
    lk_checkpoint_release(saved);
}

/* Probabilities do not depend on the caller's rounding mode. */
static void predicts_in_any_rounding_mode(void **state)
{
    (void)state;
    static float want[IMAGES * CLASSES], have[IMAGES * CLASSES];
    lk_predictor *predictor = new_predictor(NULL, 0);
    assert_ok(lk_predict(predictor, lk_dataset_images(dataset), IMAGES, want));
    fesetround(FE_UPWARD);
    lk_status status = lk_predict(predictor, lk_dataset_images(dataset), IMAGES, have);
    fesetround(FE_TONEAREST);
    lk_predictor_release(predictor);
    assert_ok(status);
    assert_memory_equal(have, want, sizeof want);
}

/* An allocation fails, in any thread: the call succeeds or ends in LK_ERR_MEMORY. */
static void survives_failed_allocations(void **state)
{
    (void)state;
    for (failing f = fail_every(5); fail_next(&f);) {
        lk_evaluation e = {0};
        char *text = NULL;
        lk_predictor *predictor = lk_predictor_new(checkpoint, &(lk_predictor_opts){.devices = "2xcpu"});
        lk_status status = predictor ? lk_evaluate(predictor, dataset, MISTAKES, &e) : lk_error_status();
        if (status == LK_OK) {
            text = lk_evaluation_json(&e, dataset, NULL);
            status = text ? LK_OK : lk_error_status();
        }
        stop_failing(&f);
        if (status != LK_OK)
            assert_int_equal(status, LK_ERR_MEMORY);
        assert_true(status != LK_OK || (e.count == IMAGES && e.n_mistakes == MISTAKES));
        lk_free(text);
        lk_evaluation_free(&e);
        lk_predictor_release(predictor);
        lk_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicts_as_its_trainer),
        cmocka_unit_test(outlives_its_checkpoint),
        cmocka_unit_test(evaluates_as_its_trainer),
        cmocka_unit_test(rates_classes),
        cmocka_unit_test(rates_many_classes_without_a_matrix),
        cmocka_unit_test(keeps_the_worst_mistakes),
        cmocka_unit_test(cuts_names_between_characters),
        cmocka_unit_test(draws_mistakes_that_fit),
        cmocka_unit_test(orders_classes),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(predicts_with_networks_built_in_c),
        cmocka_unit_test(refuses_other_channels),
        cmocka_unit_test(predicts_in_any_rounding_mode),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, train_and_save, remove_all);
}
