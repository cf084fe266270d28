/* Makes every allocation of this layer fail, one after another. The failure must be reported, nothing may leak (under
 * AddressSanitizer), and the same work must succeed afterwards. */
#include "data/data_testing.h"

#include "base/mem.h"
#include "base/mem_testing.h"
#include "lockstep/build.h"

enum { COUNT = 40, MANY = 10000 };

typedef lk_status (*work_fn)(void);

static void fail_everywhere(work_fn work)
{
    failing f = fail_every(1);
    while (fail_next(&f)) {
        lk_status status = work();
        stop_failing(&f);
        if (f.reached)
            expect_failure(status, LK_ERR_MEMORY, "out of memory");
        else
            assert_ok(status);
        assert_true(f.n < MANY);
    }
    assert_true(f.n > 0);
}

static lk_status open_and_release(const char *images, const char *labels)
{
    lk_dataset *dataset = NULL;
    lk_status status = lk_dataset_open_idx(in_dir(images), in_dir(labels), 10, 0, &dataset);
    assert_true((status == LK_OK) == (dataset != NULL));
    lk_dataset_release(dataset);
    return status;
}

static lk_status open_plain(void)
{
    return open_and_release("images", "labels");
}

static lk_status open_gzip(void)
{
    return open_and_release("images.gz", "labels.gz");
}

static lk_status open_synthetic(void)
{
    lk_dataset *dataset = NULL;
    lk_status status = lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = 20}, &dataset);
    assert_true((status == LK_OK) == (dataset != NULL));
    lk_dataset_release(dataset);
    return status;
}

static lk_status open_by_name(void)
{
    lk_dataset *dataset = NULL;
    lk_dataset_opts opts = {.dir = test_dir, .offline = true};
    lk_status status = lk_dataset_open("mnist", LK_SPLIT_TEST, &opts, &dataset);
    assert_true((status == LK_OK) == (dataset != NULL));
    lk_dataset_release(dataset);
    return status;
}

/* --- the user's own ----------------------------------------------------------------------------------------------- */

static const char *own;
static lk_dataset_opts own_opts;

static lk_status open_own(void)
{
    lk_dataset *dataset = NULL;
    lk_status status = lk_dataset_open(in_dir(own), LK_SPLIT_TRAIN, &own_opts, &dataset);
    assert_true((status == LK_OK) == (dataset != NULL));
    lk_dataset_release(dataset);
    return status;
}

static void write_text(const char *name, const char *text)
{
    bytes file = {0};
    append(&file, text, strlen(text));
    write_file(in_dir(name), &file);
    drop(&file);
}

static void make_own_files(void)
{
    static const char *const folders[] = {"set", "set/train", "set/train/a", "set/train/b", "cifar"};
    for (int i = 0; i < 5; i++)
        assert_int_equal(mkdir(in_dir(folders[i]), 0777), 0);
    uint8_t pixels[5 * 4 * 3] = {1, 2, 3};
    bytes png = png_of(pixels, 5, 4, lk_build_has("libpng") ? 3 : 1), record = {0};
    write_file(in_dir(lk_build_has("libpng") ? "set/train/a/1.png" : "set/train/a/1.txt"), &png);
    write_text("set/train/a/2.pgm", "P2 1 1 9 4");
    write_text("set/train/b/1.pgm", "P2 2 1 9 4 5");
    write_text("set/train/b/2.pgm", "P2 2 1 9 4");
    for (int i = 0; i < 3073; i++)
        append(&record, "\1", 1);
    write_file(in_dir("cifar/data_batch_1.bin"), &record);
    for (int i = 2; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "cifar/data_batch_%d.bin", i);
        write_file(in_dir(name), &record);
    }
    write_text("rows.csv", "label,1x1,1x2\n1,2,3\n0,5,6\nx\n1,5,6\n");
    drop(&png);
    drop(&record);
}

static lk_status make_ledger(void)
{
    lk_ledger *ledger = NULL;
    lk_status status = lk_ledger_new(COUNT, &ledger);
    assert_true((status == LK_OK) == (ledger != NULL));
    lk_ledger_release(ledger);
    return status;
}

static lk_dataset *samples;
static lk_channel_moments moments;
static int workers;

static const lk_augment_opts everything = {.width_shift = 0.2,
                                           .height_shift = 0.2,
                                           .horizontal_flip = true,
                                           .crop_padding = 1,
                                           .cutout = 2,
                                           .center = true,
                                           .standardize = true};

static lk_status fit_moments(void)
{
    lk_channel_moments fitted;
    lk_status status = lk_dataset_moments(samples, &fitted);
    assert_true((status == LK_OK) == (fitted.mean != NULL));
    lk_channel_moments_free(&fitted);
    return status;
}

static lk_status augment_one(void)
{
    float image[4 * 4];
    return lk_augment_sample(samples, 3, 1, 2, true, &everything, &moments, image);
}

/* Holds every batch of an epoch, so that the pool has to grow. */
static lk_status run_epoch(void)
{
    lk_loader *loader;
    lk_batch *held[COUNT];
    int count = 0;
    lk_status status = lk_loader_new(
        samples,
        &(lk_loader_opts){
            .batch_size = 3, .shuffle = true, .workers = workers, .augment = &everything, .moments = &moments},
        &loader);
    if (status != LK_OK)
        return status;
    status = lk_loader_start(loader, 0);
    for (lk_batch *batch; status == LK_OK; held[count++] = batch) {
        status = lk_loader_next(loader, &batch);
        if (!batch)
            break;
    }
    assert_true(status != LK_OK || count == lk_loader_batches(loader));
    lk_loader_release(loader);
    while (count)
        lk_batch_release(held[--count]);
    return status;
}

static int make_files(void **state)
{
    if (make_test_dir(state) != 0)
        return -1;
    write_pair(in_dir("images"), in_dir("labels"), COUNT, 4, 4);
    write_pair(in_dir("images.gz"), in_dir("labels.gz"), COUNT, 60, 60);
    assert_int_equal(mkdir(in_dir("mnist"), 0777), 0);
    write_pair(in_dir("mnist/t10k-images-idx3-ubyte"), in_dir("mnist/t10k-labels-idx1-ubyte"), COUNT, 4, 4);
    return 0;
}

static void test_opening(void **state)
{
    (void)state;
    fail_everywhere(open_plain);
    fail_everywhere(open_gzip);
    fail_everywhere(open_synthetic);
    fail_everywhere(open_by_name);
}

static void test_own_data(void **state)
{
    (void)state;
    make_own_files();
    own = "set";
    own_opts = (lk_dataset_opts){.resize = "3x3", .skip_bad = true, .cache_dir = "none"};
    fail_everywhere(open_own);
    own_opts.threads = 3;
    fail_everywhere(open_own);
    own_opts.cache_dir = in_dir("cache");
    fail_everywhere(open_own);
    own = "cifar";
    own_opts = (lk_dataset_opts){.resize = "3x3", .channels = 1, .val_split = 0.5};
    fail_everywhere(open_own);
    own = "rows.csv";
    own_opts = (lk_dataset_opts){.skip_bad = true};
    fail_everywhere(open_own);
}

static void test_ledger(void **state)
{
    (void)state;
    fail_everywhere(make_ledger);
}

static void test_epoch(void **state)
{
    (void)state;
    samples = open_pair(COUNT, 4, 4);
    assert_ok(lk_dataset_moments(samples, &moments));
    for (workers = 0; workers < 4; workers++)
        fail_everywhere(run_epoch);
    lk_channel_moments_free(&moments);
    lk_dataset_release(samples);
}

static void test_augmentation(void **state)
{
    (void)state;
    samples = open_pair(COUNT, 4, 4);
    assert_ok(lk_dataset_moments(samples, &moments));
    fail_everywhere(fit_moments);
    fail_everywhere(augment_one);
    lk_channel_moments_free(&moments);
    lk_dataset_release(samples);
}

/* After a failure the loader can be started again. */
static void test_loader_recovers(void **state)
{
    (void)state;
    enum { HELD = 20 };
    lk_dataset *dataset = open_pair(COUNT, 4, 4);
    for (int w = 0; w < 4; w++) {
        lk_batch *held[HELD], *batch;
        lk_loader *loader;
        lk_loader_opts opts = {.batch_size = 2, .workers = w, .depth = 1};
        assert_ok(lk_loader_new(dataset, &opts, &loader));
        assert_ok(lk_loader_start(loader, 0));
        lk__mem_fail_at(0);
        lk_status status = LK_OK;
        int count = 0;
        while (count < HELD && (status = lk_loader_next(loader, &held[count])) == LK_OK)
            count++;
        lk__mem_fail_at(-1);
        expect_failure(status, LK_ERR_MEMORY, "out of memory");
        expect_failure(lk_loader_next(loader, &batch), LK_ERR_STATE, "lk_loader_start");
        assert_ok(lk_loader_start(loader, 1));
        for (int i = 0; i < HELD; i++) {
            assert_ok(lk_loader_next(loader, &batch));
            assert_int_equal(batch->index, i);
            lk_batch_release(batch);
        }
        assert_ok(lk_loader_next(loader, &batch));
        assert_null(batch);
        while (count)
            lk_batch_release(held[--count]);
        lk_loader_release(loader);
    }
    lk_dataset_release(dataset);
}

#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, make_files, remove_test_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FILES(test_own_data), WITH_FILES(test_opening),      WITH_FILES(test_ledger),
        WITH_FILES(test_epoch),    WITH_FILES(test_augmentation), WITH_FILES(test_loader_recovers),
    };
    return cmocka_run_group_tests_name("data_memory", tests, NULL, NULL);
}
