#include "data/decode.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/picture.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

typedef lk_status (*work_fn)(lk__decode_job *job, int64_t i, lk__picture_memory *memory, lk__encoded *encoded);

typedef struct crew {
    lk__decode_job *job;
    work_fn work;
    lk_data_work what;
    pthread_t caller; /* who alone tells how it goes on */
    _Atomic int64_t next, done;
    _Atomic bool out_of_memory, interrupted, unreadable;
} crew;

/* Only memory ends the work; of what is wrong with a file a note is left. */
static bool do_one(crew *c, int64_t i, lk__picture_memory *memory)
{
    lk__encoded encoded;
    lk_status status = c->work(c->job, i, memory, &encoded);
    if (status == LK_OK)
        return true;
    if (status == LK_ERR_IO)
        atomic_store(&c->unreadable, true);
    if (status != LK_ERR_MEMORY)
        c->job->problems[i] = lk__strdup(encoded.problem);
    return c->job->problems[i] != NULL;
}

static bool goes_on(crew *c)
{
    if (pthread_equal(pthread_self(), c->caller) &&
        !lk__opening_goes_on(c->job->opening, c->what, atomic_load(&c->done), c->job->count))
        atomic_store(&c->interrupted, true);
    return !atomic_load(&c->out_of_memory) && !atomic_load(&c->interrupted);
}

static void *take_part(void *argument)
{
    crew *c = argument;
    lk__picture_memory memory = {0};
    lk__doing before = lk__now_for_a_while(LK_DOING_WORK, "decode pictures");
    while (goes_on(c)) {
        int64_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->job->count)
            break;
        if (!c->job->problems[i] && !do_one(c, i, &memory))
            atomic_store(&c->out_of_memory, true);
        atomic_fetch_add(&c->done, 1);
        lk__heartbeat_beat();
    }
    lk__now_again(before);
    lk__picture_memory_free(&memory);
    return NULL;
}

/* A thread that cannot be started is one fewer. */
static lk_status work_together(lk__decode_job *job, work_fn work, lk_data_work what)
{
    crew c = {.job = job, .work = work, .what = what, .caller = pthread_self()};
    int wanted = job->threads > 1 ? job->threads - 1 : 0, started = 0;
    pthread_t *threads = wanted ? lk__calloc((size_t)wanted, sizeof *threads) : NULL;
    if (wanted && !threads)
        return LK_ERR_MEMORY;
    while (started < wanted && pthread_create(&threads[started], NULL, take_part, &c) == 0)
        started++;
    take_part(&c);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    lk__free(threads);
    job->unreadable |= atomic_load(&c.unreadable);
    if (atomic_load(&c.out_of_memory))
        LK_FAIL(LK_ERR_MEMORY, "out of memory while pictures are decoded");
    if (atomic_load(&c.interrupted) || !lk__opening_goes_on(job->opening, what, job->count, job->count))
        LK_FAIL(LK_ERR_INTERRUPTED, "%s: interrupted after %" PRId64 " of %" PRId64 " pictures were %s",
                job->opening->name, atomic_load(&c.done), job->count,
                what == LK_DATA_DECODING ? "decoded" : "examined");
    return LK_OK;
}

static lk_status examine(lk__decode_job *job, int64_t i, lk__picture_memory *memory, lk__encoded *encoded)
{
    return lk__picture_read_header(job->files[i].path, memory, encoded, &job->headers[i]);
}

static lk_status decode(lk__decode_job *job, int64_t i, lk__picture_memory *memory, lk__encoded *encoded)
{
    const lk_image *wanted = &job->wanted;
    lk_status status = lk__picture_read_file(job->files[i].path, memory, encoded);
    if (status != LK_OK)
        return status;
    return lk__picture_decode(encoded, wanted, memory,
                              job->images + i * wanted->channels * wanted->height * wanted->width);
}

lk_status lk__examine_files(lk__decode_job *job)
{
    return work_together(job, examine, LK_DATA_EXAMINING);
}

lk_status lk__decode_files(lk__decode_job *job)
{
    return work_together(job, decode, LK_DATA_DECODING);
}

static void widen(lk_image *least, lk_image *most, const lk_image *header)
{
    least->height = header->height < least->height ? header->height : least->height;
    least->width = header->width < least->width ? header->width : least->width;
    most->height = header->height > most->height ? header->height : most->height;
    most->width = header->width > most->width ? header->width : most->width;
}

lk_status lk__check_one_size(const lk__decode_job *job)
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
        if (other < 0 && (header->height != least.height || header->width != least.width))
            other = i;
        widen(&least, &most, header);
    }
    if (other < 0)
        return LK_OK;
    const lk_image *a = &job->headers[first], *b = &job->headers[other];
    LK_FAIL(LK_ERR_FORMAT,
            "%s: pictures of several sizes, as %s of %" PRId64 "x%" PRId64 " and %s of %" PRId64 "x%" PRId64
            "; they are %" PRId64 " to %" PRId64 " high and %" PRId64 " to %" PRId64
            " wide: --resize HxW gives all of them one",
            job->opening->name, job->files[first].path, a->height, a->width, job->files[other].path, b->height,
            b->width, least.height, most.height, least.width, most.width);
}
