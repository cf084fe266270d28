/* Data sets by name: the known names, the folders that are searched, and the real data if they are on this machine. */
#include "data/data_testing.h"

#include "data/catalog/catalog.h"

#include <xxhash.h>

static char *saved_home, *saved_cache, *saved_data;

static void set_or_unset(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* Hides the user's cache and the real data. */
static int make_empty_world(void **state)
{
    if (make_test_dir(state) != 0)
        return -1;
    unsetenv("LOCKSTEP_DATA");
    setenv("HOME", in_dir("home"), 1);
    setenv("XDG_CACHE_HOME", in_dir("cache"), 1);
    return 0;
}

static int restore_world(void **state)
{
    set_or_unset("HOME", saved_home);
    set_or_unset("XDG_CACHE_HOME", saved_cache);
    set_or_unset("LOCKSTEP_DATA", saved_data);
    return remove_test_dir(state);
}

static void make_dir(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s", in_dir(name));
    for (char *slash = path + strlen(test_dir); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    mkdir(path, 0777);
}

/* Writes a training set of `count` samples, a number by which tests recognize it. */
static void put(const char *dir, const char *suffix, uint32_t count)
{
    char images[256], labels[256];
    make_dir(dir);
    snprintf(images, sizeof images, "%s/%s/train-images-idx3-ubyte%s", test_dir, dir, suffix);
    snprintf(labels, sizeof labels, "%s/%s/train-labels-idx1-ubyte%s", test_dir, dir, suffix);
    write_pair(images, labels, count, 2, 2);
}

static lk_status open_mnist(const char *dir, lk_dataset **dataset)
{
    return lk_dataset_open("mnist", LK_SPLIT_TRAIN, &(lk_dataset_opts){.dir = dir, .offline = true}, dataset);
}

static void expect_mnist(const char *dir, int64_t count, const char *source)
{
    lk_dataset *dataset;
    assert_ok(open_mnist(dir, &dataset));
    assert_int_equal(lk_dataset_count(dataset), count);
    assert_string_equal(lk_dataset_source(dataset), in_dir(source));
    assert_string_equal(lk_dataset_name(dataset), "mnist");
    assert_string_equal(lk_dataset_class_name(dataset, 9), "9");
    assert_null(lk_dataset_class_name(dataset, 10));
    assert_null(lk_dataset_class_name(dataset, -1));
    lk_dataset_release(dataset);
}

static void test_names(void **state)
{
    (void)state;
    char joined[256] = "";
    size_t count = 0;
    for (; lk_dataset_known_name(count); count++) {
        if (count) {
            assert_true(strcmp(lk_dataset_known_name(count - 1), lk_dataset_known_name(count)) < 0);
            strcat(joined, ", ");
        }
        strcat(joined, lk_dataset_known_name(count));
        assert_non_null(lk__catalog_find(lk_dataset_known_name(count)));
    }
    assert_string_equal(joined, lk_dataset_names());
    assert_string_equal(joined, "fashion-mnist, mnist, synthetic");
    lk_dataset *dataset;
    expect_failure(lk_dataset_open("x", LK_SPLIT_TRAIN, NULL, &dataset), LK_ERR_ARGUMENT, "unknown data set 'x'",
                   "fashion-mnist, mnist, synthetic");
    expect_failure(lk_dataset_open(NULL, LK_SPLIT_TRAIN, NULL, &dataset), LK_ERR_ARGUMENT, "unknown data set");
    expect_failure(lk_dataset_open("mnist", (lk_split)2, NULL, &dataset), LK_ERR_ARGUMENT, "split 2");
}

static void test_order_of_places(void **state)
{
    (void)state;
    lk_dataset *dataset;
    expect_failure(open_mnist(in_dir("given"), &dataset), LK_ERR_NOT_FOUND, "no train-images-idx3-ubyte[.gz]",
                   in_dir("given/mnist"), "$LOCKSTEP_DATA (not set)", in_dir("cache/lockstep/mnist"), "switched off");
    expect_failure(open_mnist(NULL, &dataset), LK_ERR_NOT_FOUND, "ubyte[.gz] in $LOCKSTEP_DATA (not set), ");

    put("home/.cache/lockstep/mnist", "", 1);
    unsetenv("XDG_CACHE_HOME");
    expect_mnist(in_dir("given"), 1, "home/.cache/lockstep/mnist/train-images-idx3-ubyte");
    setenv("XDG_CACHE_HOME", "relative", 1);
    expect_mnist(NULL, 1, "home/.cache/lockstep/mnist/train-images-idx3-ubyte");
    setenv("XDG_CACHE_HOME", in_dir("cache"), 1);
    put("cache/lockstep/mnist", ".gz", 2);
    expect_mnist(in_dir("given"), 2, "cache/lockstep/mnist/train-images-idx3-ubyte.gz");
    put("env/mnist", ".gz", 3);
    setenv("LOCKSTEP_DATA", in_dir("env"), 1);
    hear_nothing();
    expect_mnist(in_dir("given"), 3, "env/mnist/train-images-idx3-ubyte.gz");
    expect_heard("given, does not exist: taking ");
    put("given/fashion-mnist", "", 4);
    hear_nothing();
    expect_mnist(in_dir("given"), 3, "env/mnist/train-images-idx3-ubyte.gz");
    assert_string_equal(heard, "");
    put("given/mnist", ".gz", 5);
    expect_mnist(in_dir("given"), 5, "given/mnist/train-images-idx3-ubyte.gz");
    expect_mnist(NULL, 3, "env/mnist/train-images-idx3-ubyte.gz");
    put("given/mnist", "", 6);
    expect_mnist(in_dir("given"), 6, "given/mnist/train-images-idx3-ubyte");
}

/* The next folder holds a sound set, but it must not be used. */
static void test_damage_is_never_skipped(void **state)
{
    (void)state;
    lk_dataset *dataset;
    put("env/mnist", "", 3);
    setenv("LOCKSTEP_DATA", in_dir("env"), 1);
    put("given/mnist", "", 5);
    assert_int_equal(truncate(in_dir("given/mnist/train-images-idx3-ubyte"), 20), 0);
    expect_failure(open_mnist(in_dir("given"), &dataset), LK_ERR_FORMAT,
                   in_dir("given/mnist/train-images-idx3-ubyte: truncated"));
    assert_null(dataset);
    assert_int_equal(unlink(in_dir("given/mnist/train-images-idx3-ubyte")), 0);
    expect_failure(open_mnist(in_dir("given"), &dataset), LK_ERR_IO,
                   in_dir("given/mnist/train-labels-idx1-ubyte is there"), "train-images-idx3-ubyte.gz is beside it");
    assert_int_equal(unlink(in_dir("given/mnist/train-labels-idx1-ubyte")), 0);
    expect_mnist(in_dir("given"), 3, "env/mnist/train-images-idx3-ubyte");
    /* A dangling link counts as absent, a loop of links as an error. */
    assert_int_equal(symlink("train-images-idx3-ubyte", in_dir("given/mnist/train-images-idx3-ubyte")), 0);
    expect_failure(open_mnist(in_dir("given"), &dataset), LK_ERR_IO, "cannot be examined");
}

static void test_other_split_is_another_pair(void **state)
{
    (void)state;
    lk_dataset *dataset;
    put("given/mnist", "", 5);
    expect_failure(
        lk_dataset_open("mnist", LK_SPLIT_TEST, &(lk_dataset_opts){.dir = in_dir("given"), .offline = true}, &dataset),
        LK_ERR_NOT_FOUND, "t10k-images-idx3-ubyte[.gz] and t10k-labels-idx1-ubyte[.gz]");
}

static void test_needs_a_place_for_downloads(void **state)
{
    (void)state;
    lk_dataset *dataset;
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    expect_failure(lk_dataset_open("mnist", LK_SPLIT_TRAIN, NULL, &dataset), LK_ERR_NOT_FOUND, "the cache (not set)",
                   "HOME");
}

/* The catalog's checksum of a file must be that of its content, header and data. */
static void check_sum(const lk_remote_file *file, const void *data, size_t size, int dims, const int64_t *dim)
{
    bytes whole = {0};
    append_u32(&whole, 0x00000800 + (uint32_t)dims);
    for (int i = 0; i < dims; i++)
        append_u32(&whole, (uint32_t)dim[i]);
    append(&whole, data, size);
    assert_int_equal(whole.size, file->bytes);
    XXH128_hash_t sum = XXH3_128bits(whole.data, whole.size);
    assert_true(sum.high64 == file->xxh3_high);
    assert_true(sum.low64 == file->xxh3_low);
    drop(&whole);
}

static void check_real(const char *name, lk_split split, int64_t count, const int32_t first_labels[5])
{
    lk_dataset *dataset;
    lk_status status = lk_dataset_open(name, split, &(lk_dataset_opts){.dir = saved_data, .offline = true}, &dataset);
    assert_ok(status);
    assert_int_equal(lk_dataset_count(dataset), count);
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_height(dataset), 28);
    assert_int_equal(lk_dataset_width(dataset), 28);
    assert_int_equal(lk_dataset_classes(dataset), 10);
    assert_memory_equal(lk_dataset_labels(dataset), first_labels, 5 * sizeof *first_labels);
    const lk_remote_file *files = lk__catalog_find(name)->files[split];
    check_sum(&files[LK__IMAGES], lk_dataset_images(dataset), (size_t)count * 784, 3, (const int64_t[]){count, 28, 28});
    uint8_t *labels = malloc((size_t)count);
    assert_non_null(labels);
    for (int64_t i = 0; i < count; i++)
        labels[i] = (uint8_t)lk_dataset_labels(dataset)[i];
    check_sum(&files[LK__LABELS], labels, (size_t)count, 1, &count);
    free(labels);
    lk_dataset_release(dataset);
}

static void test_real_data(void **state)
{
    (void)state;
    if (!saved_data) {
        print_message("SKIP: LOCKSTEP_DATA is not set, so there are no real data sets to read\n");
        skip();
    }
    check_real("fashion-mnist", LK_SPLIT_TRAIN, 60000, (const int32_t[]){9, 0, 0, 3, 0});
    check_real("fashion-mnist", LK_SPLIT_TEST, 10000, (const int32_t[]){9, 2, 1, 1, 6});
    check_real("mnist", LK_SPLIT_TRAIN, 60000, (const int32_t[]){5, 0, 4, 1, 9});
    check_real("mnist", LK_SPLIT_TEST, 10000, (const int32_t[]){7, 2, 1, 0, 4});
}

#define IN_EMPTY_WORLD(test) cmocka_unit_test_setup_teardown(test, make_empty_world, restore_world)

static char *copy_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? strdup(value) : NULL;
}

int main(void)
{
    saved_home = copy_of("HOME");
    saved_cache = copy_of("XDG_CACHE_HOME");
    saved_data = copy_of("LOCKSTEP_DATA");
    const struct CMUnitTest tests[] = {
        IN_EMPTY_WORLD(test_names),
        IN_EMPTY_WORLD(test_order_of_places),
        IN_EMPTY_WORLD(test_damage_is_never_skipped),
        IN_EMPTY_WORLD(test_other_split_is_another_pair),
        IN_EMPTY_WORLD(test_needs_a_place_for_downloads),
        IN_EMPTY_WORLD(test_real_data),
    };
    int failures = cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
    free(saved_home);
    free(saved_cache);
    free(saved_data);
    return failures;
}
