/* The packed cache of a folder of pictures: when it is used, when it is made again, and what an interrupt leaves. */
#include "data/pictures/codec.h"
#include "data/pictures/pictures_testing.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

/* Takes the place of libpng's function; weak, because a static libpng has its own, which is linked then. */
const char *png_get_libpng_ver(const void *png);

static const char *png_version = "1.6.0";

__attribute__((weak)) const char *png_get_libpng_ver(const void *png)
{
    (void)png;
    return png_version;
}

/* --- the cache ---------------------------------------------------------------------------------------------------- */

static int count_files(const char *pattern)
{
    glob_t found;
    int count = glob(in_dir(pattern), 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return count;
}

static void find_pack(char path[256])
{
    glob_t found;
    assert_int_equal(glob(in_dir("cache/*.pack"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, 256, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* Changes pixels but not size and time of modification, as an archive that is unpacked again does. A change within the
 * same tick of the file system's clock cannot be noticed. */
static void replace_picture(const char *name, int seed)
{
    struct stat before, after;
    assert_int_equal(stat(in_dir(name), &before), 0);
    const struct timespec times[] = {before.st_mtim, before.st_mtim};
    do {
        make_picture(name, seed, SIDE, SIDE, 1);
        assert_int_equal(utimensat(AT_FDCWD, in_dir(name), times, 0), 0);
        assert_int_equal(stat(in_dir(name), &after), 0);
    } while (memcmp(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim) == 0);
}

/* Opening ends with LK_ERR_INTERRUPTED if it does not use the cache. */
static bool refuse_decoding(void *user, const lk_data_progress *progress)
{
    (void)user;
    return progress->work != LK_DATA_DECODING;
}

static void expect_decoding(lk_dataset_opts *opts)
{
    opts->progress = refuse_decoding;
    expect_no_set(opts, LK_ERR_INTERRUPTED, "interrupted after", "decoded");
}

static void the_cache_is_used(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    opts.progress = refuse_decoding;
    expect_set(&opts);
    /* Another spelling of the path makes no difference either. */
    char path[256];
    lk_dataset *dataset;
    snprintf(path, sizeof path, "%s/../%s/set//", test_dir, strrchr(test_dir, '/') + 1);
    assert_ok(lk_dataset_open(path, LK_SPLIT_TRAIN, &opts, &dataset));
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
    assert_ok(lk_dataset_open(in_dir("set/train/.."), LK_SPLIT_TRAIN, &opts, &dataset));
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
    opts.cache_dir = "none";
    expect_decoding(&opts);
}

/* Some file systems refuse a name with half a character. */
static void a_long_name_is_cut_between_characters(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    lk_dataset *dataset;
    assert_int_equal(rename(in_dir("set"), in_dir("Фотографии грибов наших лесов")), 0);
    assert_ok(lk_dataset_open(in_dir("Фотографии грибов наших лесов"), LK_SPLIT_TRAIN, &opts, &dataset));
    lk_dataset_release(dataset);
    assert_int_equal(count_files("cache/Фотографии грибо-????????????????.pack"), 1);
}

static void a_stale_cache_is_made_anew(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    replace_picture("set/train/a/9.pgm", 99);
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

static void another_libpng_decodes_anew(void **state)
{
    (void)state;
    if (!lk__png_codec.loaded_version || strcmp(lk__png_codec.loaded_version(), png_version) != 0)
        skip();
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    opts.progress = refuse_decoding;
    expect_set(&opts);
    png_version = "1.6.1";
    expect_decoding(&opts);
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

/* The checksums are right, but the marks do not match the number of images. */
static void a_forged_cache_is_made_anew(void **state)
{
    (void)state;
    enum { BODY_SUM = 72, HEADER_SUM = 80, PAGE = 4096, MARKS = PAGE + 5 * VALUES };
    make_set();
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    char path[256];
    uint8_t bytes_of_file[PAGE + 5 * (VALUES + 1)];
    find_pack(path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fread(bytes_of_file, 1, sizeof bytes_of_file, file), sizeof bytes_of_file);
    static const uint8_t marks[][2] = {{0, 1}, {2, 1}, {2, 0}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        memcpy(bytes_of_file + MARKS, marks[i], sizeof marks[i]);
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

/* A later run may be able to read them. */
static void files_that_cannot_be_read_are_not_forgotten(void **state)
{
    (void)state;
    make_set();
    assert_int_equal(mkfifo(in_dir("set/train/a/95.pgm"), 0600), 0);
    lk_dataset_opts opts = settings();
    expect_no_set(&opts, LK_ERR_FORMAT, "1 of 6 pictures cannot be used", "a/95.pgm: is not a regular file");
    opts.skip_bad = true;
    for (int time = 0; time < 2; time++) {
        hear_nothing();
        expect_set(&opts);
        expect_heard("anew in the next run: some of them cannot be read now");
        expect_heard("a/95.pgm: is not a regular file");
    }
}

/* Takes a picture away after all headers have been read. */
static bool hide_picture(void *user, const lk_data_progress *progress)
{
    (void)user;
    if (progress->work == LK_DATA_DECODING && progress->done == 0)
        assert_int_equal(shell("mv set/train/a/9.pgm hidden.pgm"), 0);
    return true;
}

static void files_that_cannot_be_decoded_are_not_forgotten(void **state)
{
    (void)state;
    make_set();
    lk_dataset_opts opts = settings();
    opts.skip_bad = true;
    opts.progress = hide_picture;
    hear_nothing();
    lk_dataset *dataset = open_set(LK_SPLIT_TRAIN, &opts);
    expect_samples(dataset, (int[]){1, 11, 12, 13}, 4);
    lk_dataset_release(dataset);
    expect_heard("a/9.pgm: cannot be opened");
    expect_heard("anew in the next run: some of them cannot be read now");
    assert_int_equal(count_files("cache/*.pack") + count_files("cache/*.tmp"), 0);
    opts.progress = NULL;
    assert_int_equal(shell("mv hidden.pgm set/train/a/9.pgm"), 0);
    expect_set(&opts);
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

/* As in a folder without write permission. */
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
    opts.progress = refuse_decoding;
    hear_nothing();
    expect_set(&opts);
    assert_string_equal(heard, "");
}

/* Because its file stays mapped. */
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

/* --- interrupts --------------------------------------------------------------------------------------------------- */

typedef struct listener {
    int calls, most; /* stops after `most` calls */
    bool seen[LK_DATA_CHECKING + 1];
} listener;

static bool listen(void *user, const lk_data_progress *progress)
{
    listener *l = user;
    assert_string_equal(progress->name, in_dir("set"));
    assert_true(progress->done >= 0 && progress->done <= progress->total);
    l->seen[progress->work] = true;
    return ++l->calls <= l->most;
}

/* An interrupt at any call leaves no half-written file. */
static void an_interrupt_leaves_nothing(void **state)
{
    (void)state;
    make_set();
    listener l = {0};
    lk_dataset_opts opts = settings();
    opts.progress = listen;
    opts.progress_user = &l;
    lk_dataset *dataset = NULL;
    for (l.most = 0; !dataset; l.most++) {
        l.calls = 0;
        opts.threads = l.most % 3;
        lk_status status = lk_dataset_open(in_dir("set"), LK_SPLIT_TRAIN, &opts, &dataset);
        assert_int_equal(count_files("cache/*.tmp"), 0);
        if (status == LK_OK)
            break;
        expect_failure(status, LK_ERR_INTERRUPTED, "set: interrupted");
        assert_null(dataset);
        assert_int_equal(count_files("cache/*.pack"), 0);
    }
    expect_samples(dataset, seeds_of_set, 5);
    lk_dataset_release(dataset);
    assert_true(l.seen[LK_DATA_EXAMINING] && l.seen[LK_DATA_DECODING] && l.seen[LK_DATA_STORING]);
    assert_false(l.seen[LK_DATA_CHECKING]);
    l.calls = l.most = 0;
    expect_no_set(&opts, LK_ERR_INTERRUPTED, "set: interrupted at the cache of its pictures", "");
    assert_true(l.seen[LK_DATA_CHECKING]);
    opts.progress = refuse_decoding;
    expect_set(&opts); /* the finished cache is not lost */
}

/* A process can wait for its own lock, because a flock belongs to the open file. */
static int hold_lock(const char *name)
{
    int fd = open(in_dir(name), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    return fd;
}

static void waiting_can_be_interrupted(void **state)
{
    (void)state;
    make_set();
    listener l = {.most = 1000};
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    char lock[256];
    find_pack(lock);
    assert_int_equal(unlink(lock), 0);
    strcpy(strstr(lock, ".pack"), ".lock");
    int fd = hold_lock(lock + strlen(test_dir) + 1);
    l.most = 3;
    opts.progress = listen;
    opts.progress_user = &l;
    expect_no_set(&opts, LK_ERR_INTERRUPTED, "interrupted while another process decodes its pictures", "");
    assert_int_equal(l.calls, 4);
    assert_true(l.seen[LK_DATA_WAITING]);
    close(fd);
    l.most = 1000;
    expect_set(&opts);
}

static void leftovers_of_killed_processes_are_removed(void **state)
{
    (void)state;
    make_set();
    make_folder("cache");
    make_broken("cache/killed.pack.tmp", "half");
    make_broken("cache/killed.lock", "");
    make_broken("cache/working.pack.tmp", "half");
    int fd = hold_lock("cache/working.lock");
    lk_dataset_opts opts = settings();
    expect_set(&opts);
    close(fd);
    assert_int_equal(count_files("cache/killed.pack.tmp"), 0);
    assert_int_equal(count_files("cache/working.pack.tmp"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(the_cache_is_used),
        FOLDER_TEST(a_long_name_is_cut_between_characters),
        FOLDER_TEST(a_stale_cache_is_made_anew),
        FOLDER_TEST(another_libpng_decodes_anew),
        FOLDER_TEST(a_damaged_cache_is_made_anew),
        FOLDER_TEST(a_forged_cache_is_made_anew),
        FOLDER_TEST(files_that_cannot_be_read_are_not_forgotten),
        FOLDER_TEST(files_that_cannot_be_decoded_are_not_forgotten),
        FOLDER_TEST(without_a_place_for_the_cache_it_works),
        FOLDER_TEST(a_cache_that_cannot_be_locked_is_read),
        FOLDER_TEST(an_open_set_outlives_its_cache),
        FOLDER_TEST(an_interrupt_leaves_nothing),
        FOLDER_TEST(waiting_can_be_interrupted),
        FOLDER_TEST(leftovers_of_killed_processes_are_removed),
    };
    return cmocka_run_group_tests_name("packed_cache", tests, NULL, NULL);
}
