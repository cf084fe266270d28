#include "data/pictures/decode.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "base/thread.h"
#include "data/pictures/picture.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

typedef lk_status (*work_fn)(lk_decode_job *job, int64_t i, lk_picture_memory *memory, lk_encoded *encoded);

/* Shared by the threads that work through the files of a job. */
typedef struct file_loop {
    lk_decode_job *job;
    work_fn work;
    lk_data_work what;
    pthread_t caller; /* the only thread that reports progress */
    _Atomic int64_t next, done;
    _Atomic bool out_of_memory, interrupted, unreadable;
} file_loop;

/* Applies loop->work to a file. False: out of memory, which ends the loop. Any other failure is noted as the file's
 * problem. */
static bool decode_loop_visit_file(file_loop *loop, int64_t i, lk_picture_memory *memory)
{
    lk_encoded encoded;
    lk_status status = loop->work(loop->job, i, memory, &encoded);
    if (status == LK_OK)
        return true;
    if (status == LK_ERR_IO)
        atomic_store(&loop->unreadable, true);
    if (status != LK_ERR_MEMORY)
        loop->job->problems[i] = lk__strdup(encoded.problem);
    return loop->job->problems[i] != NULL;
}

static bool decode_loop_may_continue(file_loop *loop)
{
    if (pthread_equal(pthread_self(), loop->caller) &&
        !lk__report_progress(loop->job->reporter, loop->what, atomic_load(&loop->done), loop->job->count))
        atomic_store(&loop->interrupted, true);
    return !atomic_load(&loop->out_of_memory) && !atomic_load(&loop->interrupted);
}

static void *decode_loop_run(void *argument)
{
    file_loop *loop = argument;
    lk_picture_memory memory = {0};
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WORK, "decode pictures");
    while (decode_loop_may_continue(loop)) {
        int64_t i = atomic_fetch_add(&loop->next, 1);
        if (i >= loop->job->count)
            break;
        if (!loop->job->problems[i] && !decode_loop_visit_file(loop, i, &memory))
            atomic_store(&loop->out_of_memory, true);
        atomic_fetch_add(&loop->done, 1);
        lk__heartbeat_beat();
    }
    lk__activity_end(before);
    lk__picture_memory_free(&memory);
    return NULL;
}

/* Runs `work` on every file. If a thread cannot be started the others do its share. */
static lk_status decode_visit_all_files(lk_decode_job *job, work_fn work, lk_data_work what)
{
    file_loop loop = {.job = job, .work = work, .what = what, .caller = pthread_self()};
    int wanted = job->threads > 1 ? job->threads - 1 : 0, started = 0;
    pthread_t *threads = wanted ? lk__calloc((size_t)wanted, sizeof *threads) : NULL;
    if (wanted && !threads)
        return LK_ERR_MEMORY;
    while (started < wanted && lk__thread_start(&threads[started], decode_loop_run, &loop) == 0)
        started++;
    decode_loop_run(&loop);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    lk__free(threads);
    job->unreadable |= atomic_load(&loop.unreadable);
    if (atomic_load(&loop.out_of_memory))
        LK_FAIL(LK_ERR_MEMORY, "out of memory while pictures are decoded");
    if (atomic_load(&loop.interrupted) || !lk__report_progress(job->reporter, what, job->count, job->count))
        LK_FAIL(LK_ERR_INTERRUPTED, "%s: interrupted after %" PRId64 " of %" PRId64 " pictures were %s",
                job->reporter->name, atomic_load(&loop.done), job->count,
                what == LK_DATA_DECODING ? "decoded" : "examined");
    return LK_OK;
}

static lk_status decode_examine_file(lk_decode_job *job, int64_t i, lk_picture_memory *memory, lk_encoded *encoded)
{
    return lk__picture_read_header(job->files[i].path, memory, encoded, &job->headers[i]);
}

static lk_status decode_file(lk_decode_job *job, int64_t i, lk_picture_memory *memory, lk_encoded *encoded)
{
    const lk_image *wanted = &job->wanted;
    lk_status status = lk__picture_read_file(job->files[i].path, memory, encoded);
    if (status != LK_OK)
        return status;
    return lk__picture_decode(encoded, wanted, memory,
                              job->images + i * wanted->channels * wanted->height * wanted->width);
}

lk_status lk__examine_files(lk_decode_job *job)
{
    return decode_visit_all_files(job, decode_examine_file, LK_DATA_EXAMINING);
}

lk_status lk__decode_files(lk_decode_job *job)
{
    return decode_visit_all_files(job, decode_file, LK_DATA_DECODING);
}

lk_status lk__check_one_size(const lk_decode_job *job)
{
    int64_t first = -1, other = -1;
    lk_image least = {0}, most = {0};
    for (int64_t i = 0; i < job->count; i++) {
        const lk_image *header = &job->headers[i];
        if (job->problems[i])
            continue;
        if (first < 0) {
            first = i;
            least = most = *header;
        }
        if (other < 0 && (header->height != job->headers[first].height || header->width != job->headers[first].width))
            other = i;
        least.height = lk__min(least.height, header->height);
        least.width = lk__min(least.width, header->width);
        most.height = lk__max(most.height, header->height);
        most.width = lk__max(most.width, header->width);
    }
    if (other < 0)
        return LK_OK;
    const lk_image *a = &job->headers[first], *b = &job->headers[other];
    LK_FAIL(LK_ERR_FORMAT,
            "%s: pictures of several sizes, as %s of %" PRId64 "x%" PRId64 " and %s of %" PRId64 "x%" PRId64
            "; they are %" PRId64 " to %" PRId64 " high and %" PRId64 " to %" PRId64
            " wide: --resize HxW gives all of them one",
            job->reporter->name, job->files[first].path, a->height, a->width, job->files[other].path, b->height,
            b->width, least.height, most.height, least.width, most.width);
}
