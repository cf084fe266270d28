/* Makes folders of pictures for tests, and checks the samples read from them. */
#pragma once

#include "data/data_testing.h"

enum { SIDE = 6, VALUES = SIDE * SIDE };

/* --- folders ------------------------------------------------------------------------------------------------------ */

static inline void make_folder(const char *name)
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

static inline void fill(uint8_t *pixels, int64_t count, int seed)
{
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (uint8_t)(seed * 37 + i * 11);
}

/* Writes a PGM or PPM file of the given size, with pixels that depend on the seed. */
static inline void make_picture(const char *name, int seed, uint32_t height, uint32_t width, int channels)
{
    uint8_t pixels[64 * 64 * 3];
    fill(pixels, (int64_t)height * width * channels, seed);
    bool png = strstr(name, ".png") != NULL;
    bytes file = (png ? png_of : ppm_of)(pixels, height, width, channels);
    write_file(in_dir(name), &file);
    drop(&file);
}

static inline void make_broken(const char *name, const char *text)
{
    bytes file = {0};
    append(&file, text, strlen(text));
    write_file(in_dir(name), &file);
    drop(&file);
}

/* Two classes, of which `b` has one picture more. The files are not written in the order of their names. */
static inline void make_set(void)
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

static inline lk_dataset_opts settings(void)
{
    static char cache[256];
    snprintf(cache, sizeof cache, "%s/cache", test_dir);
    return (lk_dataset_opts){.cache_dir = cache, .offline = true};
}

static inline lk_dataset *open_set(lk_split split, const lk_dataset_opts *opts)
{
    lk_dataset *dataset;
    assert_ok(lk_dataset_open(in_dir("set"), split, opts, &dataset));
    return dataset;
}

/* Sample i has the pixels of seeds[i]. */
static inline void expect_samples(const lk_dataset *dataset, const int *seeds, int count)
{
    assert_int_equal(lk_dataset_count(dataset), count);
    for (int i = 0; i < count; i++) {
        uint8_t pixels[VALUES];
        fill(pixels, VALUES, seeds[i]);
        assert_memory_equal(lk_dataset_images(dataset) + (size_t)i * VALUES, pixels, VALUES);
    }
}

static const int seeds_of_set[] = {1, 11, 2, 12, 13};

static inline void expect_set(const lk_dataset_opts *opts)
{
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, opts);
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
}

static inline void expect_no_set(const lk_dataset_opts *opts, lk_status expected, const char *text, const char *second)
{
    lk_dataset *dataset;
    lk_status status = lk_dataset_open(in_dir("set"), LK_SPLIT_TRAIN, opts, &dataset);
    assert_null(dataset);
    expect_failure(status, expected, text, second);
}
