/* Folders of pictures as data sets: classes, order, sizes, and what is broken. */
#include "data/pictures/pictures_testing.h"

#include "data/dataset.h"
#include "lockstep/build.h"

#include <sys/resource.h>
#include <unistd.h>

/* --- samples ------------------------------------------------------------------------------------------------------ */

/* The order depends on names alone: one picture of each class in turn. */
static void samples_are_ordered_by_name(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    assert_string_equal(lk_dataset_name(dataset), "set");
    assert_string_equal(lk_dataset_source(dataset), in_dir("set/train"));
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_height(dataset), SIDE);
    assert_int_equal(lk_dataset_width(dataset), SIDE);
    assert_int_equal(lk_dataset_classes(dataset), 2);
    assert_string_equal(lk_dataset_class_name(dataset, 0), "a");
    assert_string_equal(lk_dataset_class_name(dataset, 1), "b");
    assert_null(lk_dataset_class_name(dataset, 2));
    expect_samples(dataset, seeds_of_set, 5);
    assert_memory_equal(lk_dataset_labels(dataset), ((int32_t[]){0, 1, 0, 1, 1}), 5 * sizeof(int32_t));
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
    assert_string_equal(lk_dataset_source(dataset), in_dir("set/val"));
    assert_int_equal(lk_dataset_labels(dataset)[0], 1);
    lk_dataset_release(dataset);
    make_folder("set/val/c");
    lk_status status = lk_dataset_open(in_dir("set"), LK_SPLIT_TEST, &opts, &dataset);
    expect_failure(status, LK_ERR_FORMAT, "set/val/c: the training set has no class of that name");
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
        assert_memory_equal(lk_dataset_labels(together), lk_dataset_labels(alone), 100 * sizeof(int32_t));
        lk_dataset_release(together);
    }
    lk_dataset_release(alone);
}

/* Two of them exceed the limit on large files. */
static void large_files_wait_for_each_other(void **state)
{
    (void)state;
    enum { FILES = 3, MEGABYTES = 270 };
    if (strstr(lk_build_compiler(), "sanitizers"))
        skip(); /* sanitizers need memory of their own */
    make_folder("set/train/a");
    for (int i = 0; i < FILES; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/train/a/%d.pgm", i);
        make_picture(name, i, SIDE, SIDE, 1);
        assert_int_equal(truncate(in_dir(name), (off_t)MEGABYTES << 20), 0);
    }
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &(lk_dataset_opts){.cache_dir = "none", .threads = FILES});
    getrusage(RUSAGE_SELF, &after);
    expect_samples(dataset, (int[]){0, 1, 2}, FILES);
    lk_dataset_release(dataset);
    assert_true(after.ru_maxrss - before.ru_maxrss < (MEGABYTES + 100) << 10);
}

static void sizes_have_to_agree(void **state)
{
    (void)state;
    make_set();
    make_picture("set/train/a/7.ppm", 3, SIDE, SIDE + 1, 3);
    lk_dataset_opts opts = settings();
    expect_no_set(&opts, LK_ERR_FORMAT, "pictures of several sizes",
                  "train/a/7.ppm of 6x7; they are 6 to 6 high and 6 to 7 wide: --resize HxW");
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
    expect_no_set(&opts, LK_ERR_ARGUMENT, "--resize 6: must be HEIGHTxWIDTH", "from 1 to 65535");
    opts.resize = "8193x8192";
    expect_no_set(&opts, LK_ERR_ARGUMENT, "--resize 8193x8192: must be HEIGHTxWIDTH", "at most 67108864 pixels");
    opts.resize = "65535x1";
    dataset = open_set(LK_SPLIT_TRAIN, &opts);
    assert_int_equal(lk_dataset_height(dataset), 65535);
    lk_dataset_release(dataset);
}

/* Every sample is in one of the two splits, always the same one. */
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
    expect_failure(status, LK_ERR_ARGUMENT, "has no validation set", "--val-split 0.1 to hold out");
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

static void expect_channels(lk_split split, const lk_dataset_opts *opts, int channels)
{
    for (int time = 0; time < 2; time++) { /* decoded, then from the cache */
        lk_dataset *dataset = open_set(split, opts);
        assert_int_equal(lk_dataset_channels(dataset), channels);
        lk_dataset_release(dataset);
    }
}

/* Pictures of the training set decide about both splits, in whichever of them they are. */
static void splits_have_the_same_channels(void **state)
{
    (void)state;
    make_set();
    make_picture("set/test/b/2.ppm", 22, SIDE, SIDE, 3);
    lk_dataset_opts opts = settings();
    expect_channels(LK_SPLIT_TRAIN, &opts, 1);
    expect_channels(LK_SPLIT_TEST, &opts, 1);
    assert_int_equal(unlink(in_dir("set/test/b/2.ppm")), 0);
    make_picture("set/train/b/4.ppm", 14, SIDE, SIDE, 3);
    expect_channels(LK_SPLIT_TRAIN, &opts, 3);
    expect_channels(LK_SPLIT_TEST, &opts, 3);
    opts.val_split = 0.4;
    expect_channels(LK_SPLIT_TRAIN, &opts, 3);
    expect_channels(LK_SPLIT_TEST, &opts, 3);
    assert_int_equal(unlink(in_dir("set/train/b/4.ppm")), 0);
    make_picture("set/train/b/4.pgm", 14, SIDE, SIDE, 1);
    expect_channels(LK_SPLIT_TRAIN, &opts, 1);
    expect_channels(LK_SPLIT_TEST, &opts, 1);
}

/* Color is found beyond the pictures that are looked at first. */
static void one_picture_of_many_has_color(void **state)
{
    (void)state;
    make_folder("set/train/a");
    make_folder("set/val/a");
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/train/a/%03d.ppm", i);
        make_picture(name, i, SIDE, SIDE, i == 299 ? 3 : 1);
    }
    make_picture("set/val/a/1.pgm", 1, SIDE, SIDE, 1);
    lk_dataset_opts opts = {.cache_dir = "none"};
    expect_channels(LK_SPLIT_TEST, &opts, 3);
}

/* The source of generated samples is "generated" too, but a folder of that name has all of its samples. */
static void a_folder_may_be_called_generated(void **state)
{
    (void)state;
    char before[PATH_MAX];
    lk_dataset *dataset;
    int64_t empty, first;
    make_folder("generated/a");
    make_folder("generated/b");
    make_picture("generated/b/1.pgm", 1, SIDE, SIDE, 1);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(test_dir), 0);
    lk_dataset_opts opts = {.cache_dir = "none"};
    lk_status status = lk_dataset_open("generated", LK_SPLIT_TRAIN, &opts, &dataset);
    assert_int_equal(chdir(before), 0);
    assert_ok(status);
    assert_string_equal(lk_dataset_source(dataset), "generated");
    assert_ok(lk__dataset_empty_classes(dataset, true, &empty, &first));
    assert_int_equal(empty, 1);
    assert_int_equal(first, 0);
    lk_dataset_release(dataset);
    for (int resized = 0; resized < 2; resized++) {
        opts = (lk_dataset_opts){.limit = 1, .resize = resized ? "7x7" : NULL};
        assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TRAIN, &opts, &dataset));
        assert_ok(lk__dataset_empty_classes(dataset, true, &empty, &first));
        assert_int_equal(empty, 0);
        lk_dataset_release(dataset);
    }
}

static void odd_classes_are_warned_of(void **state)
{
    (void)state;
    lk_dataset_opts opts = settings();
    make_folder("set/Train/x");
    make_folder("set/Test/x");
    make_picture("set/Train/x/1.pgm", 1, SIDE, SIDE, 1);
    make_picture("set/Test/x/2.pgm", 2, SIDE, SIDE, 1);
    hear_nothing();
    lk_dataset_release(open_set(LK_SPLIT_TRAIN, &opts));
    expect_heard("set/Test is taken for a class: the folders of a split are train, and val or test");
    expect_heard("set/Train is taken for a class");
    assert_int_equal(rename(in_dir("set/Train"), in_dir("set/train")), 0);
    hear_nothing();
    lk_dataset_release(open_set(LK_SPLIT_TRAIN, &opts));
    expect_heard("set/train has one class, x: there is nothing to tell apart");
    assert_null(strstr(heard, "is taken for a class"));
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
    make_picture("set/train/1.pgm", 1, SIDE, SIDE, 1);
    assert_int_equal(symlink("gone", in_dir("set/train/b/5.txt")), 0);
    lk_dataset_opts opts = settings();
    hear_nothing();
    expect_no_set(&opts, LK_ERR_FORMAT, "3 of 8 pictures cannot be used (--skip-bad leaves them out): ",
                  "train/a/2.pgm: truncated PGM or PPM data");
    expect_heard("left out: 2 files in ");
    expect_heard("train/b/5.txt");
    expect_heard("left out: 1 picture next to the folders of classes (");
    expect_heard("set/train/1.pgm");
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
    assert_int_equal(symlink("gone.png", in_dir("set/train/a/98.png")), 0);
    assert_int_equal(symlink("99.png", in_dir("set/train/a/99.png")), 0);
    expect_no_set(&opts, LK_ERR_FORMAT, "5 of 10 pictures", "train/a/98.png: cannot be opened: No such file");
    opts.skip_bad = true;
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    expect_samples(dataset, (int[]){1, 11, 12, 2, 13}, 5);
    lk_dataset_release(dataset);
}

static void nothing_to_train_with(void **state)
{
    (void)state;
    lk_dataset_opts opts = settings();
    make_folder("set");
    expect_no_set(&opts, LK_ERR_FORMAT, "nothing to train with", "train/CLASS/");
    make_folder("set/train");
    expect_no_set(&opts, LK_ERR_FORMAT, "set/train: no folders in it", "one for each class");
    make_folder("set/train/a");
    expect_no_set(&opts, LK_ERR_FORMAT, "set/train: no pictures", ".png");
    make_broken("set/train/a/1.png", "x");
    opts.skip_bad = true;
    expect_no_set(&opts, LK_ERR_FORMAT, "none of its 1 pictures can be used", "1.png");
    lk_dataset *dataset;
    lk_status status = lk_dataset_open(in_dir("none"), LK_SPLIT_TRAIN, NULL, &dataset);
    expect_failure(status, LK_ERR_ARGUMENT, "unknown data set", "or the path of a folder or file");
    assert_int_equal(symlink(".", in_dir("set/train/a/loop")), 0);
    expect_no_set(&opts, LK_ERR_FORMAT, "more than 16 folders below that of a class", "loop/loop");
}

/* --- many classes ------------------------------------------------------------------------------------------------- */

static void more_classes_than_a_byte_has(void **state)
{
    (void)state;
    enum { CLASSES = 300 };
    for (int label = 0; label < CLASSES; label++)
        for (int i = 0; i < 2; i++) {
            char name[64];
            snprintf(name, sizeof name, "set/class%03d", label);
            make_folder(name);
            snprintf(name, sizeof name, "set/class%03d/%d.pgm", label, i);
            make_picture(name, 2 * label + i, SIDE, SIDE, 1);
        }
    lk_dataset_opts opts = settings();
    for (int time = 0; time < 2; time++) { /* decoded, then from the cache */
        lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
        assert_int_equal(lk_dataset_classes(dataset), CLASSES);
        assert_int_equal(lk_dataset_count(dataset), 2 * CLASSES);
        for (int i = 0; i < 2 * CLASSES; i++)
            assert_int_equal(lk_dataset_labels(dataset)[i], i % CLASSES);
        assert_string_equal(lk_dataset_class_name(dataset, 299), "class299");
        int64_t counts[CLASSES];
        lk_dataset_class_counts(dataset, counts);
        assert_int_equal(counts[299], 2);
        lk_dataset_release(dataset);
    }
    opts.val_split = 0.5;
    for (int split = 0; split < 2; split++) {
        lk_dataset *dataset = open_set((lk_split)split, &opts);
        assert_int_equal(lk_dataset_count(dataset), CLASSES);
        for (int i = 0; i < CLASSES; i++)
            assert_int_equal(lk_dataset_labels(dataset)[i], atoi(lk_dataset_sample_name(dataset, i) + strlen("class")));
        int64_t counts[CLASSES];
        lk_dataset_class_counts(dataset, counts);
        for (int label = 0; label < CLASSES; label++)
            assert_int_equal(counts[label], 1);
        lk_dataset_release(dataset);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(samples_are_ordered_by_name),
        FOLDER_TEST(val_is_taken_before_test),
        FOLDER_TEST(threads_change_nothing),
        FOLDER_TEST(sizes_have_to_agree),
        FOLDER_TEST(a_share_is_held_out),
        FOLDER_TEST(splits_have_the_same_channels),
        FOLDER_TEST(one_picture_of_many_has_color),
        FOLDER_TEST(a_folder_may_be_called_generated),
        FOLDER_TEST(more_classes_than_a_byte_has),
        FOLDER_TEST(broken_pictures_are_named),
        FOLDER_TEST(odd_classes_are_warned_of),
        FOLDER_TEST(nothing_to_train_with),
        FOLDER_TEST(large_files_wait_for_each_other),
    };
    return cmocka_run_group_tests_name("picture_set", tests, NULL, NULL);
}
