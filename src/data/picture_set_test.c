/* Folders of pictures as data sets: classes, order, sizes, what is broken, and the packed cache. */
#include "data/data_testing.h"

#include "lockstep/build.h"

#include <glob.h>
#include <utime.h>
#include <xxhash.h>

enum { SIDE = 6, VALUES = SIDE * SIDE };

/* --- folders ------------------------------------------------------------------------------------------------------ */

static void make_folder(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    for (char *slash = strchr(path + strlen(test_dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    mkdir(path, 0700);
}

static void fill(uint8_t *pixels, int64_t count, int seed)
{
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (uint8_t)(seed * 37 + i * 11);
}

/* DIR/NAME.pgm or .ppm of given sizes, with pixels of the seed. */
static void make_picture(const char *name, int seed, uint32_t height, uint32_t width, int channels)
{
    uint8_t pixels[64 * 64 * 3];
    fill(pixels, (int64_t)height * width * channels, seed);
    bool png = strstr(name, ".png") != NULL;
    bytes file = (png ? png_of : ppm_of)(pixels, height, width, channels);
    write_file(in_dir(name), &file);
    drop(&file);
}

static void make_broken(const char *name, const char *text)
{
    bytes file = {0};
    append(&file, text, strlen(text));
    write_file(in_dir(name), &file);
    drop(&file);
}

/* Two classes, `b` with one picture more; written in an order that is not that of names. */
static void make_set(void)
{
    static const char *const folders[] = {"set/train/b", "set/train/a", "set/test/a", "set/test/b"};
    for (int i = 0; i < 4; i++)
        make_folder(folders[i]);
    make_picture("set/train/b/2.pgm", 12, SIDE, SIDE, 1);
    make_picture("set/train/a/10.pgm", 1, SIDE, SIDE, 1);
    make_picture("set/train/b/1.PGM", 11, SIDE, SIDE, 1);
    make_picture("set/train/a/9.pgm", 2, SIDE, SIDE, 1);
    make_picture("set/train/b/3.pgm", 13, SIDE, SIDE, 1);
    make_picture("set/test/a/1.pgm", 21, SIDE, SIDE, 1);
}

static lk_dataset_opts settings(void)
{
    static char cache[256];
    snprintf(cache, sizeof cache, "%s/cache", test_dir);
    return (lk_dataset_opts){.cache_dir = cache, .offline = true};
}

static lk_dataset *open_set(lk_split split, const lk_dataset_opts *opts)
{
    lk_dataset *dataset;
    expect_ok(lk_dataset_open(in_dir("set"), split, opts, &dataset));
    return dataset;
}

/* Sample i has the pixels of seeds[i]. */
static void expect_samples(const lk_dataset *dataset, const int *seeds, int count)
{
    assert_int_equal(lk_dataset_count(dataset), count);
    for (int i = 0; i < count; i++) {
        uint8_t pixels[VALUES];
        fill(pixels, VALUES, seeds[i]);
        assert_memory_equal(lk_dataset_images(dataset) + (size_t)i * VALUES, pixels, VALUES);
    }
}

static const int seeds_of_set[] = {1, 11, 2, 12, 13};

static void expect_set(const lk_dataset_opts *opts)
{
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, opts);
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
}

static void expect_no_set(const lk_dataset_opts *opts, lk_status expected, const char *text, const char *second)
{
    lk_dataset *dataset;
    lk_status status = lk_dataset_open(in_dir("set"), LK_SPLIT_TRAIN, opts, &dataset);
    assert_null(dataset);
    expect_error(status, expected, text, second, NULL);
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

/* By names alone: one of each class in turn. */
static void samples_are_ordered_by_name(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    assert_string_equal(lk_dataset_name(dataset), "set");
    assert_string_equal(lk_dataset_source(dataset), in_dir("set"));
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_height(dataset), SIDE);
    assert_int_equal(lk_dataset_width(dataset), SIDE);
    assert_int_equal(lk_dataset_classes(dataset), 2);
    assert_string_equal(lk_dataset_class_name(dataset, 0), "a");
    assert_string_equal(lk_dataset_class_name(dataset, 1), "b");
    assert_null(lk_dataset_class_name(dataset, 2));
    expect_samples(dataset, seeds_of_set, 5);
    assert_memory_equal(lk_dataset_labels(dataset), ((uint8_t[]){0, 1, 0, 1, 1}), 5);
    assert_string_equal(lk_dataset_sample_name(dataset, 0), "train/a/10.pgm");
    assert_string_equal(lk_dataset_sample_name(dataset, 1), "train/b/1.PGM");
    assert_string_equal(lk_dataset_sample_name(dataset, 4), "train/b/3.pgm");
    assert_null(lk_dataset_sample_name(dataset, 5));
    lk_dataset_release(dataset);
    dataset = open_set(LK_SPLIT_TEST, &opts);
    expect_samples(dataset, (int[]){21}, 1);
    assert_int_equal(lk_dataset_classes(dataset), 2);
    lk_dataset_release(dataset);
    opts.limit = 2;
    dataset = open_set(LK_SPLIT_TRAIN, &opts);
    expect_samples(dataset, seeds_of_set, 2);
    lk_dataset_release(dataset);
}

static void val_is_taken_before_test(void **state)
{
    (void)state;
    make_set();
    make_folder("set/val/b");
    make_picture("set/val/b/1.pgm", 31, SIDE, SIDE, 1);
    lk_dataset_opts opts = settings();
    lk_dataset *dataset = open_set(LK_SPLIT_TEST, &opts);
    expect_samples(dataset, (int[]){31}, 1);
    assert_int_equal(lk_dataset_labels(dataset)[0], 1);
    lk_dataset_release(dataset);
    make_folder("set/val/c");
    lk_status status = lk_dataset_open(in_dir("set"), LK_SPLIT_TEST, &opts, &dataset);
    expect_error(status, LK_ERR_FORMAT, "set/val/c: the training set has no class of that name", NULL);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    if (!lk_build_has("libpng"))
        skip();
    make_folder("set/train/a");
    for (int i = 0; i < 100; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/train/a/%02d.%s", i, i % 3 ? "png" : "ppm");
        make_picture(name, i, 20 + (uint32_t)i % 7, 31, i % 5 ? 3 : 1);
    }
    lk_dataset_opts opts = {.cache_dir = "none", .resize = "9x8"};
    lk_dataset *alone = open_set(LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_channels(alone), 3);
    assert_int_equal(lk_dataset_height(alone), 9);
    assert_int_equal(lk_dataset_width(alone), 8);
    for (opts.threads = 1; opts.threads <= 5; opts.threads += 2) {
        lk_dataset *together = open_set(LK_SPLIT_TRAIN, &opts);
        assert_memory_equal(lk_dataset_images(together), lk_dataset_images(alone), 100 * 3 * 9 * 8);
        assert_memory_equal(lk_dataset_labels(together), lk_dataset_labels(alone), 100);
        lk_dataset_release(together);
    }
    lk_dataset_release(alone);
}

static void sizes_have_to_agree(void **state)
{
    (void)state;
    make_set();
    make_picture("set/train/a/7.ppm", 3, SIDE, SIDE + 1, 3);
    lk_dataset_opts opts = settings();
    expect_no_set(&opts, LK_ERR_FORMAT, "pictures of several sizes", "train/a/7.ppm of 6x7: --resize HxW");
    opts.resize = "6x6";
    opts.channels = 1;
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_count(dataset), 6);
    lk_dataset_release(dataset);
    opts.channels = 0;
    dataset = open_set(LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_channels(dataset), 3);
    lk_dataset_release(dataset);
    opts.resize = "6";
    expect_no_set(&opts, LK_ERR_ARGUMENT, "--resize 6: must be HEIGHTxWIDTH", "8192");
}

/* Every sample is in one of the two, the same one each time. */
static void a_share_is_held_out(void **state)
{
    (void)state;
    make_folder("set/x");
    make_folder("set/y");
    for (int i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%c/%02d.pgm", i < 30 ? 'x' : 'y', i);
        make_picture(name, i, SIDE, SIDE, 1);
    }
    lk_dataset_opts opts = settings();
    lk_dataset *test;
    lk_status status = lk_dataset_open(in_dir("set"), LK_SPLIT_TEST, &opts, &test);
    expect_error(status, LK_ERR_ARGUMENT, "has no validation set", "--val-split 0.1 holds out", NULL);
    opts.val_split = 0.2;
    lk_dataset *train = open_set(LK_SPLIT_TRAIN, &opts);
    test = open_set(LK_SPLIT_TEST, &opts);
    assert_int_equal(lk_dataset_count(train), 32);
    assert_int_equal(lk_dataset_count(test), 8);
    int of_y = 0, seen[40] = {0};
    for (int i = 0; i < 40; i++) {
        const char *name = i < 32 ? lk_dataset_sample_name(train, i) : lk_dataset_sample_name(test, i - 32);
        seen[atoi(name + 2)]++;
        of_y += i >= 32 && name[0] == 'y';
    }
    for (int i = 0; i < 40; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(of_y, 2);
    lk_dataset_release(train);
    lk_dataset_release(test);
}

/* --- what is broken ----------------------------------------------------------------------------------------------- */

static void broken_pictures_are_named(void **state)
{
    (void)state;
    make_set();
    make_broken("set/train/a/2.pgm", "P5\n6 6\n255\n12345");
    make_broken("set/train/b/2.png", "<html>no picture</html>");
    make_broken("set/train/b/4.png", "");
    make_broken("set/train/b/notes.txt", "not looked at");
    lk_dataset_opts opts = settings();
    hear_nothing();
    expect_no_set(&opts, LK_ERR_FORMAT, "3 of 8 pictures cannot be used (--skip-bad leaves them out): ",
                  "train/a/2.pgm: truncated PGM or PPM data");
    expect_heard("1 files of ");
    expect_heard("train/b/notes.txt");
    opts.skip_bad = true;
    for (int time = 0; time < 2; time++) {
        hear_nothing();
        lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
        expect_samples(dataset, (int[]){1, 11, 12, 2, 13}, 5);
        assert_string_equal(lk_dataset_sample_name(dataset, 3), "train/a/9.pgm");
        lk_dataset_release(dataset);
        expect_heard("train/a/2.pgm");
        expect_heard("train/b/2.png");
        expect_heard("3 of 8 pictures of ");
    }
    opts.skip_bad = false;
    expect_no_set(&opts, LK_ERR_FORMAT, "3 of 8 pictures", "train/b/4.png: is empty");
}

static void nothing_to_train_with(void **state)
{
    (void)state;
    lk_dataset_opts opts = settings();
    make_folder("set");
    expect_no_set(&opts, LK_ERR_ARGUMENT, "nothing to train with", "train/CLASS/");
    make_folder("set/train");
    expect_no_set(&opts, LK_ERR_FORMAT, "set/train: no folders in it", "one for each class");
    make_folder("set/train/a");
    expect_no_set(&opts, LK_ERR_FORMAT, "set/train: no pictures", ".png");
    make_broken("set/train/a/1.png", "x");
    opts.skip_bad = true;
    expect_no_set(&opts, LK_ERR_FORMAT, "none of its 1 pictures can be used", "1.png");
    lk_dataset *dataset;
    lk_status status = lk_dataset_open(in_dir("none"), LK_SPLIT_TRAIN, NULL, &dataset);
    expect_error(status, LK_ERR_ARGUMENT, "unknown data set", "or the path of a folder or file", NULL);
    assert_int_equal(symlink(".", in_dir("set/train/a/loop")), 0);
    expect_no_set(&opts, LK_ERR_FORMAT, "more than 16 folders below that of a class", "loop/loop");
}

/* --- the cache ---------------------------------------------------------------------------------------------------- */

static void find_pack(char path[256])
{
    glob_t found;
    assert_int_equal(glob(in_dir("cache/*.pack"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, 256, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* Other pixels, of which size and time say nothing: what is decoded anew shows. */
static void change_in_secret(const char *name, int seed)
{
    struct stat before;
    assert_int_equal(stat(in_dir(name), &before), 0);
    make_picture(name, seed, SIDE, SIDE, 1);
    const struct timespec times[] = {before.st_mtim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, in_dir(name), times, 0), 0);
}

static void the_cache_is_used(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    change_in_secret("set/train/a/9.pgm", 99);
    expect_set(&opts);
    /* Nor does it matter how the folder is called. */
    char path[256];
    lk_dataset *dataset;
    snprintf(path, sizeof path, "%s/../%s/set//", test_dir, strrchr(test_dir, '/') + 1);
    expect_ok(lk_dataset_open(path, LK_SPLIT_TRAIN, &opts, &dataset));
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
    opts.cache_dir = "none";
    dataset = open_set(LK_SPLIT_TRAIN, &opts);
    expect_samples(dataset, (int[]){1, 11, 99, 12, 13}, 5);
    lk_dataset_release(dataset);
}

static void a_stale_cache_is_made_anew(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    change_in_secret("set/train/a/9.pgm", 99);
    assert_int_equal(utime(in_dir("set/train/b/1.PGM"), &(struct utimbuf){1000, 1000}), 0);
    hear_nothing();
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    expect_samples(dataset, (int[]){1, 11, 99, 12, 13}, 5);
    expect_heard("is of other pictures: made anew");
    lk_dataset_release(dataset);
    make_picture("set/train/a/95.pgm", 5, SIDE, SIDE, 1);
    dataset = open_set(LK_SPLIT_TRAIN, &opts);
    expect_samples(dataset, (int[]){1, 11, 99, 12, 5, 13}, 6);
    lk_dataset_release(dataset);
}

static void a_damaged_cache_is_made_anew(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    char path[256];
    find_pack(path);
    static const long places[] = {0, 8, 20, 70, 80, 4096, 4100};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        fseek(file, places[i], SEEK_SET);
        int byte = fgetc(file);
        fseek(file, places[i], SEEK_SET);
        fputc(byte ^ 0x10, file);
        fclose(file);
        hear_nothing();
        expect_set(&opts);
        expect_heard("is damaged: made anew");
    }
    static const off_t sizes[] = {0, 100, 4096, 4100};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(truncate(path, sizes[i]), 0);
        hear_nothing();
        expect_set(&opts);
        expect_heard("is damaged: made anew");
    }
    hear_nothing();
    expect_set(&opts);
    assert_string_equal(heard, "");
}

/* Its sums are right, and a label is of no class. */
static void a_forged_cache_is_made_anew(void **state)
{
    (void)state;
    enum { BODY_SUM = 72, HEADER_SUM = 80, PAGE = 4096, LABELS = PAGE + 5 * VALUES };
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    char path[256];
    uint8_t bytes_of_file[PAGE + 5 * (VALUES + 2)];
    find_pack(path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fread(bytes_of_file, 1, sizeof bytes_of_file, file), sizeof bytes_of_file);
    for (int label = 1; label < 200; label += 198) {
        bytes_of_file[LABELS] = (uint8_t)label;
        XXH64_hash_t sum = XXH3_64bits(bytes_of_file + PAGE, sizeof bytes_of_file - PAGE);
        memcpy(bytes_of_file + BODY_SUM, &sum, sizeof sum);
        sum = XXH3_64bits(bytes_of_file, HEADER_SUM);
        memcpy(bytes_of_file + HEADER_SUM, &sum, sizeof sum);
        bytes forged = {.data = bytes_of_file, .size = sizeof bytes_of_file};
        write_file(path, &forged);
        hear_nothing();
        expect_set(&opts);
        expect_heard("is damaged: made anew");
    }
    fclose(file);
}

static void without_a_place_for_the_cache_it_works(void **state)
{
    (void)state;
    make_set();
    make_broken("cache", "a file where the folder would be");
    lk_dataset_opts opts = settings();
    hear_nothing();
    expect_set(&opts);
    expect_heard("no cache for the pictures of ");
    expect_heard("Not a directory");
}

/* As in a folder that only others may write to. */
static void a_cache_that_cannot_be_locked_is_read(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    char lock[256];
    find_pack(lock);
    strcpy(strstr(lock, ".pack"), ".lock");
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(mkdir(lock, 0700), 0);
    change_in_secret("set/train/a/9.pgm", 99);
    hear_nothing();
    expect_set(&opts);
    assert_string_equal(heard, "");
}

/* Its file is mapped. */
static void an_open_set_outlives_its_cache(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    char path[256];
    find_pack(path);
    assert_int_equal(unlink(path), 0);
    expect_set(&opts);
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_test_dir, remove_test_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(samples_are_ordered_by_name),
        IN_DIR(val_is_taken_before_test),
        IN_DIR(threads_change_nothing),
        IN_DIR(sizes_have_to_agree),
        IN_DIR(a_share_is_held_out),
        IN_DIR(broken_pictures_are_named),
        IN_DIR(nothing_to_train_with),
        IN_DIR(the_cache_is_used),
        IN_DIR(a_stale_cache_is_made_anew),
        IN_DIR(a_damaged_cache_is_made_anew),
        IN_DIR(a_forged_cache_is_made_anew),
        IN_DIR(without_a_place_for_the_cache_it_works),
        IN_DIR(a_cache_that_cannot_be_locked_is_read),
        IN_DIR(an_open_set_outlives_its_cache),
    };
    return cmocka_run_group_tests_name("picture_set", tests, NULL, NULL);
}
