/* From training to a program without the library: a checkpoint exported as C gives the trainer's probabilities for the
 * bytes of the data set's images, which it prepares in the same way. */
#include "training.h"
#include "base/folder_testing.h"

#include "lockstep/export.h"

#include <math.h>

static const char model[] = "conv2d 6 kernel=3 padding=same bias=no\n"
                            "batch_norm\n"
                            "relu\n"
                            "max_pool 2\n"
                            "dropout 0.1\n"
                            "flatten\n"
                            "dense classes\n";

static const char program[] = "#include \"net.h\"\n"
                              "#include <stdio.h>\n"
                              "int main(void)\n"
                              "{\n"
                              "    static unsigned char image[NET_CHANNELS * NET_HEIGHT * NET_WIDTH];\n"
                              "    static float scratch[NET_SCRATCH];\n"
                              "    float probabilities[NET_CLASSES];\n"
                              "    while (fread(image, sizeof image, 1, stdin) == 1) {\n"
                              "        net_classify_bytes(image, scratch, probabilities);\n"
                              "        fwrite(probabilities, sizeof probabilities, 1, stdout);\n"
                              "    }\n"
                              "    return 0;\n"
                              "}\n";

/* The tolerance is far smaller than the difference between samples. */
static void compare(lk_trainer *trainer)
{
    enum { SAMPLES = 41 };
    const lk_dataset *data = lk_trainer_dataset(trainer, LK_SPLIT_TEST);
    lk_dataset *samples = (lk_dataset *)(uintptr_t)data;
    int64_t classes = lk_dataset_classes(data), pixels = lk_dataset_height(data) * lk_dataset_width(data);
    float *want = calloc((size_t)(SAMPLES * classes), sizeof *want);
    assert_non_null(want);
    assert_int_equal(lk_dataset_count(data), SAMPLES);
    assert_int_equal(lk_dataset_channels(data), 1);
    assert_ok(lk_trainer_predict(trainer, samples, want));
    put_bytes(path_of("images"), lk_dataset_images(data), (size_t)(SAMPLES * pixels));
    assert_int_equal(shell("./program <images >probabilities"), 0);
    size_t size;
    float *have = contents_of(path_of("probabilities"), &size);
    assert_int_equal(size, (size_t)(SAMPLES * classes) * sizeof *have);
    double difference = 0, spread = 0;
    for (int64_t i = 0; i < SAMPLES * classes; i++) {
        difference = fmax(difference, fabs((double)have[i] - want[i]));
        spread = fmax(spread, fabs((double)want[i] - want[i % classes]));
    }
    printf("probabilities: %.2e apart, %.2f over the samples\n", difference, spread);
    assert_true(spread > 0.01);
    assert_true(difference < 1e-5);
    free(have);
    free(want);
}

static void check(int normalize)
{
    lk_train_config config = small_training();
    lk_checkpoint *checkpoint;
    put_bytes(path_of("net.lk"), model, strlen(model));
    char name[600];
    snprintf(name, sizeof name, "%s", path_of("net.lk"));
    config.model = name;
    config.data.normalize = normalize;
    lk_trainer *trainer = new_trainer(&config);
    lk_train_result result;
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_ok(lk_trainer_save(trainer, path_of("run")));
    assert_int_equal(remove(name), 0);
    assert_ok(lk_checkpoint_open(path_of("run"), LK_CHECKPOINT_LAST, &checkpoint));
    assert_ok(lk_export_checkpoint(checkpoint, LK_EXPORT_C, path_of("net.c"), NULL));
    lk_checkpoint_release(checkpoint);
    put_bytes(path_of("main.c"), program, strlen(program));
    assert_int_equal(shell("gcc -O2 -o program main.c net.c -lm"), 0);
    compare(trainer);
    lk_trainer_release(trainer);
}

static void images_as_they_are(void **state)
{
    (void)state;
    check(LK_NORMALIZE_NONE);
}

static void images_centered(void **state)
{
    (void)state;
    check(LK_NORMALIZE_CENTER);
}

static void images_standardized(void **state)
{
    (void)state;
    check(LK_NORMALIZE_STANDARD);
}

int main(void)
{
    if (system("command -v gcc >/dev/null") != 0) {
        printf("SKIP: there is no gcc\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(images_as_they_are),
        FOLDER_TEST(images_centered),
        FOLDER_TEST(images_standardized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
