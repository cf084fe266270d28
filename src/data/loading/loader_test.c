#include "data/data_testing.h"

#include "base/mem.h"
#include "core/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { COUNT = 103, HEIGHT = 5, WIDTH = 3, PIXELS = HEIGHT * WIDTH };

static const int worker_counts[] = {0, 1, 3};
enum { WORKER_COUNTS = sizeof worker_counts / sizeof worker_counts[0] };

static lk_loader *loader_of(lk_dataset *dataset, int64_t batch_size, int workers, bool shuffle)
{
    lk_loader *loader;
    assert_ok(lk_loader_new(
        dataset, &(lk_loader_opts){.batch_size = batch_size, .seed = 3, .shuffle = shuffle, .workers = workers},
        &loader));
    return loader;
}

static lk_batch *next_of(lk_loader *loader)
{
    lk_batch *batch;
    assert_ok(lk_loader_next(loader, &batch));
    return batch;
}

static void check_samples(const lk_batch *batch, const int64_t *order)
{
    assert_int_equal((uintptr_t)batch->images % LK_ALIGNMENT, 0);
    assert_int_equal((uintptr_t)batch->labels % LK_ALIGNMENT, 0);
    assert_int_equal((uintptr_t)batch->indices % LK_ALIGNMENT, 0);
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t sample = order[i];
        assert_int_equal(batch->indices[i], sample);
        assert_int_equal(batch->labels[i], label_of(sample));
        for (int64_t j = 0; j < PIXELS; j++)
            assert_true(batch->images[i * PIXELS + j] == (float)(pixel_of(sample, j) / 255.0));
    }
}

/* Checks the batches of an epoch from `first` on, that the ledger is exact, and that nothing comes after the end. */
static void check_epoch(lk_loader *loader, int64_t batch_size, int64_t epoch, int64_t first, bool shuffle)
{
    int64_t order[COUNT];
    lk_ledger *ledger;
    assert_ok(lk_sample_order(COUNT, 3, epoch, shuffle, order));
    assert_ok(lk_ledger_new(COUNT, &ledger));
    assert_ok(lk_ledger_add(ledger, order, first * batch_size < COUNT ? first * batch_size : COUNT));
    assert_ok(lk_loader_start_at(loader, epoch, first));
    int64_t index = first;
    for (lk_batch *batch; (batch = next_of(loader)); index++) {
        int64_t left = COUNT - index * batch_size;
        assert_int_equal(batch->count, left < batch_size ? left : batch_size);
        assert_int_equal(batch->index, index);
        assert_int_equal(batch->epoch, epoch);
        check_samples(batch, order + index * batch_size);
        assert_ok(lk_ledger_add(ledger, batch->indices, batch->count));
        lk_batch_release(batch);
    }
    assert_int_equal(index, lk_loader_batches(loader));
    assert_null(next_of(loader));
    lk_ledger_report report;
    lk_ledger_check(ledger, &report);
    assert_int_equal(report.used_once, COUNT);
    assert_int_equal(report.first_bad, -1);
    lk_ledger_release(ledger);
}

static void test_every_sample_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 7, 32, 102, 103, 104, 1000};
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int w = 0; w < WORKER_COUNTS; w++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            lk_loader *loader = loader_of(dataset, sizes[s], worker_counts[w], true);
            assert_int_equal(lk_loader_batches(loader), (COUNT + sizes[s] - 1) / sizes[s]);
            for (int64_t epoch = 0; epoch < 3; epoch++)
                check_epoch(loader, sizes[s], epoch, 0, true);
            lk_loader_release(loader);
            loader = loader_of(dataset, sizes[s], worker_counts[w], false);
            check_epoch(loader, sizes[s], 0, 0, false);
            lk_loader_release(loader);
        }
    lk_dataset_release(dataset);
}

static void test_goes_on_at_a_batch(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int w = 0; w < WORKER_COUNTS; w++) {
        lk_loader *loader = loader_of(dataset, 10, worker_counts[w], true);
        for (int64_t first = 0; first <= 11; first++)
            check_epoch(loader, 10, 5, first, true);
        lk_loader_release(loader);
    }
    lk_dataset_release(dataset);
}

/* An epoch that is abandoned in the middle, with some batches held, does not affect the next one. */
static void test_starts_again_in_the_middle(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int w = 0; w < WORKER_COUNTS; w++) {
        lk_loader *loader = loader_of(dataset, 4, worker_counts[w], true);
        for (int left = 0; left < 6; left++) {
            lk_batch *held[6];
            assert_ok(lk_loader_start(loader, 100 + left));
            for (int i = 0; i < left; i++)
                held[i] = next_of(loader);
            check_epoch(loader, 4, left, 0, true);
            for (int i = 0; i < left; i++) {
                assert_int_equal(held[i]->epoch, 100 + left);
                assert_int_equal(held[i]->index, i);
                lk_batch_release(held[i]);
            }
        }
        lk_loader_release(loader);
    }
    lk_dataset_release(dataset);
}

static int prepared_batches(const lk_trace *trace)
{
    int n = 0;
    for (const lk_trace_track *track = trace->tracks; track; track = track->next)
        for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
            for (int i = 0; i < chunk->n; i++)
                n += chunk->events[i].kind == LK_TRACE_PREPARE;
    return n;
}

/* An epoch may be started ahead of its use; starting it again at the same batch drops nothing. */
static void test_keeps_what_was_prepared_ahead(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int w = 0; w < WORKER_COUNTS; w++) {
        lk_loader *loader = loader_of(dataset, 4, worker_counts[w], true);
        assert_ok(lk_trace_start(NULL));
        assert_ok(lk_loader_start(loader, 7));
        for (int64_t i = 0; i < 20; i++) {
            assert_ok(lk_loader_start_at(loader, 7, i));
            lk_batch *batch = next_of(loader);
            assert_int_equal(batch->index, i);
            lk_batch_release(batch);
        }
        check_epoch(loader, 4, 7, 20, true);
        lk_loader_release(loader);
        lk_trace *trace = lk_trace_stop();
        assert_non_null(trace);
        assert_int_equal(prepared_batches(trace), (COUNT + 3) / 4);
        lk_trace_release(trace);
    }
    lk_dataset_release(dataset);
}

/* A caller that holds all batches of an epoch never waits, and may keep them longer than loader and data set. */
static void test_batches_outlive_the_loader(void **state)
{
    (void)state;
    for (int w = 0; w < WORKER_COUNTS; w++) {
        lk_batch *held[COUNT];
        int64_t order[COUNT];
        lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
        lk_loader *loader = loader_of(dataset, 1, worker_counts[w], true);
        lk_dataset_release(dataset);
        assert_ok(lk_loader_start(loader, 0));
        for (int i = 0; i < COUNT; i++)
            assert_non_null(held[i] = next_of(loader));
        assert_ptr_equal(lk_batch_retain(held[0]), held[0]);
        lk_batch_release(held[0]);
        lk_loader_release(loader);
        assert_ok(lk_sample_order(COUNT, 3, 0, true, order));
        for (int i = 0; i < COUNT; i++) {
            check_samples(held[i], order + i);
            lk_batch_release(held[i]);
        }
    }
    assert_null(lk_batch_retain(NULL));
    lk_batch_release(NULL);
    lk_loader_release(NULL);
}

/* The same batches, without images. */
static void test_no_images(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int w = 0; w < WORKER_COUNTS; w++) {
        int64_t order[COUNT], seen = 0;
        lk_loader *loader;
        lk_loader_opts opts = {
            .batch_size = 10, .seed = 3, .shuffle = true, .workers = worker_counts[w], .no_images = true};
        assert_ok(lk_loader_new(dataset, &opts, &loader));
        assert_ok(lk_sample_order(COUNT, 3, 2, true, order));
        assert_ok(lk_loader_start(loader, 2));
        for (lk_batch *batch; (batch = next_of(loader)); lk_batch_release(batch)) {
            assert_null(batch->images);
            for (int64_t i = 0; i < batch->count; i++, seen++) {
                assert_int_equal(batch->indices[i], order[seen]);
                assert_int_equal(batch->labels[i], label_of(order[seen]));
            }
        }
        assert_int_equal(seen, COUNT);
        lk_loader_release(loader);
    }
    lk_dataset_release(dataset);
}

static void test_releases_while_workers_run(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int i = 0; i < 50; i++) {
        lk_loader *loader = loader_of(dataset, 1 + i % 5, 1 + i % 4, true);
        lk_batch *batch = NULL;
        if (i % 3) {
            assert_ok(lk_loader_start(loader, i));
            batch = i % 3 == 2 ? next_of(loader) : NULL;
        }
        lk_loader_release(loader);
        lk_batch_release(batch);
    }
    lk_dataset_release(dataset);
}

static void *release_all(void *batches)
{
    for (lk_batch **batch = batches; *batch; batch++)
        lk_batch_release(*batch);
    return NULL;
}

/* Several threads hold every batch, and release it, as devices do. */
static void test_releases_from_other_threads(void **state)
{
    (void)state;
    enum { THREADS = 3, HELD = 35 };
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    lk_loader *loader = loader_of(dataset, 3, 2, true);
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        lk_batch *held[HELD + 1] = {NULL};
        pthread_t threads[THREADS];
        assert_ok(lk_loader_start(loader, epoch));
        for (int i = 0; i < HELD; i++) {
            held[i] = next_of(loader);
            for (int t = 1; t < THREADS; t++)
                lk_batch_retain(held[i]);
        }
        for (int t = 0; t < THREADS; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, release_all, held), 0);
        check_epoch(loader, 3, epoch + 10, 0, true);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
    }
    lk_loader_release(loader);
    lk_dataset_release(dataset);
}

static void test_steady_state_allocates_nothing(void **state)
{
    (void)state;
    enum { HELD = 4 };
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    for (int w = 0; w < WORKER_COUNTS; w++) {
        lk_loader *loader = loader_of(dataset, 4, worker_counts[w], true);
        lk_batch *held[HELD] = {NULL};
        lk__mem_fail_at(-1);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            assert_ok(lk_loader_start(loader, epoch));
            int64_t i = 0;
            for (lk_batch *batch; (batch = next_of(loader)); i++) {
                lk_batch_release(held[i % HELD]);
                held[i % HELD] = batch;
            }
        }
        assert_int_equal(lk__mem_allocations(), 0);
        for (int i = 0; i < HELD; i++)
            lk_batch_release(held[i]);
        lk_loader_release(loader);
    }
    lk_dataset_release(dataset);
}

static atomic_bool has_failed;

/* Sample 2 fails after sample 3, which another worker reads ahead. */
static lk_status read_one_pixel(void *user, int64_t index, float *image)
{
    (void)user;
    *image = 0;
    if (index == 3)
        atomic_store(&has_failed, true);
    while (index == 2 && !atomic_load(&has_failed))
        usleep(1000);
    return index < 2 ? LK_OK : index == 2 ? LK_ERR_FORMAT : LK_ERR_IO;
}

static void test_an_error_is_of_the_batch_that_is_due(void **state)
{
    (void)state;
    const lk_dataset_arrays arrays = {.read = read_one_pixel,
                                      .labels = (int32_t[4]){0},
                                      .count = 4,
                                      .channels = 1,
                                      .height = 1,
                                      .width = 1,
                                      .classes = 1};
    lk_dataset *dataset;
    assert_ok(lk_dataset_from_arrays("pixels", &arrays, &dataset));
    lk_loader *loader = loader_of(dataset, 1, 2, false);
    lk_batch *batch;
    assert_ok(lk_loader_start(loader, 0));
    lk_batch_release(next_of(loader));
    lk_batch_release(next_of(loader));
    expect_failure(lk_loader_next(loader, &batch), LK_ERR_FORMAT, "failed to read sample 2: ");
    lk_loader_release(loader);
    lk_dataset_release(dataset);
}

static void test_refuses_misuse(void **state)
{
    (void)state;
    lk_dataset *dataset = open_pair(COUNT, HEIGHT, WIDTH);
    lk_loader *loader;
    lk_batch *batch;
    expect_failure(lk_loader_new(dataset, &(lk_loader_opts){.batch_size = 0}, &loader), LK_ERR_ARGUMENT,
                   "batch size 0");
    assert_null(loader);
    expect_failure(lk_loader_new(dataset, &(lk_loader_opts){.batch_size = 1, .workers = -1}, &loader), LK_ERR_ARGUMENT,
                   "-1 loader workers");
    expect_failure(lk_loader_new(dataset, &(lk_loader_opts){.batch_size = 1, .depth = -1}, &loader), LK_ERR_ARGUMENT,
                   "depth -1");
    for (int w = 0; w < WORKER_COUNTS; w++) {
        loader = loader_of(dataset, 10, worker_counts[w], true);
        expect_failure(lk_loader_next(loader, &batch), LK_ERR_STATE, "lk_loader_start");
        expect_failure(lk_loader_start_at(loader, 0, -1), LK_ERR_ARGUMENT, "first batch -1: expected 0 to 11");
        expect_failure(lk_loader_start_at(loader, 0, 12), LK_ERR_ARGUMENT, "first batch 12");
        expect_failure(lk_loader_start(loader, -1), LK_ERR_ARGUMENT, "epoch -1");
        expect_failure(lk_loader_next(loader, &batch), LK_ERR_STATE, "lk_loader_start");
        lk_loader_release(loader);
    }
    lk_dataset_release(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_every_sample_once),
        FOLDER_TEST(test_goes_on_at_a_batch),
        FOLDER_TEST(test_starts_again_in_the_middle),
        FOLDER_TEST(test_keeps_what_was_prepared_ahead),
        FOLDER_TEST(test_batches_outlive_the_loader),
        FOLDER_TEST(test_no_images),
        FOLDER_TEST(test_releases_while_workers_run),
        FOLDER_TEST(test_releases_from_other_threads),
        FOLDER_TEST(test_steady_state_allocates_nothing),
        FOLDER_TEST(test_an_error_is_of_the_batch_that_is_due),
        FOLDER_TEST(test_refuses_misuse),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
