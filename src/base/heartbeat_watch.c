/* The watcher's side of a heartbeat: makes the shared memory and reads it. */
#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/heartbeat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct lk_heartbeat {
    lk_heart *heart;
    int descriptor;
    /* as of the previous look */
    uint64_t beats, used, transferred;
    double looked; /* time of the previous look; 0: there was none */
    double silent;
};

/* Largest number of seconds that counts between two looks. A watcher that looks less often was itself held up, and the
 * watched process may have been too. */
#define MOST_BETWEEN 1.0

/* How many times as long a process may wait for a disk. It does nothing meanwhile that could be seen, and may end well;
 * a disk that is gone never answers. */
#define DISK_PATIENCE 10

/* --- the shared memory -------------------------------------------------------------------------------------------- */

static lk_status heartbeat_watch_open_memory(lk_heartbeat *h)
{
    h->descriptor = memfd_create("lockstep heartbeat", MFD_CLOEXEC);
    if (h->descriptor < 0 || ftruncate(h->descriptor, sizeof *h->heart) != 0)
        LK_FAIL(LK_ERR_IO, "heartbeat: no shared memory: %s", strerror(errno));
    void *memory = mmap(NULL, sizeof *h->heart, PROT_READ | PROT_WRITE, MAP_SHARED, h->descriptor, 0);
    if (memory == MAP_FAILED)
        LK_FAIL(LK_ERR_IO, "heartbeat: no shared memory: %s", strerror(errno));
    h->heart = memory;
    h->heart->magic = LK_HEART_MAGIC;
    return LK_OK;
}

lk_status lk_heartbeat_new(lk_heartbeat **heartbeat)
{
    *heartbeat = NULL;
    lk_heartbeat *h = lk__calloc(1, sizeof *h);
    if (!h)
        return LK_ERR_MEMORY;
    lk_status status = heartbeat_watch_open_memory(h);
    if (status == LK_OK)
        *heartbeat = h;
    else
        lk_heartbeat_release(h);
    return status;
}

void lk_heartbeat_release(lk_heartbeat *h)
{
    if (!h)
        return;
    if (h->heart)
        munmap(h->heart, sizeof *h->heart);
    if (h->descriptor >= 0)
        close(h->descriptor);
    lk__free(h);
}

int lk_heartbeat_descriptor(const lk_heartbeat *h)
{
    return h->descriptor;
}

/* --- the system's files ------------------------------------------------------------------------------------------- */

/* Reads a file; gives an empty text if it is gone. */
static void heartbeat_watch_read_file(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    text[n] = '\0';
    if (file)
        fclose(file);
}

/* Returns the text after n more words. */
static const char *heartbeat_watch_skip_words(const char *text, int n)
{
    for (; n > 0; n--) {
        text += strspn(text, " ");
        text += strcspn(text, " ");
    }
    return text;
}

/* Reads /proc/.../stat, see proc(5): the state follows the name, which may contain anything, and the times in ticks are
 * ten fields after it. Returns the state, or 0 if the process is gone. */
static char heartbeat_watch_read_stat(const char *path, uint64_t *used)
{
    enum { BETWEEN = 10 };
    char text[1024], *end;
    heartbeat_watch_read_file(path, text, sizeof text);
    const char *behind = strrchr(text, ')');
    if (!behind || strlen(behind) < 3)
        return '\0';
    uint64_t user = strtoull(heartbeat_watch_skip_words(behind + 3, BETWEEN), &end, 10);
    *used += user + strtoull(end, NULL, 10);
    return behind[2];
}

static uint64_t heartbeat_watch_number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static uint64_t heartbeat_watch_transferred(int64_t process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/io", process);
    heartbeat_watch_read_file(path, text, sizeof text);
    return heartbeat_watch_number_after(text, "rchar: ") + heartbeat_watch_number_after(text, "wchar: ");
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

typedef struct view {
    uint64_t beats;
    uint64_t used; /* ticks used by threads that are at work */
    bool any, works;
    bool waits_for_disk; /* a thread at work does */
    lk_activity_kind kind;
    char what[LK_ACTIVITY_LENGTH];
} view;

/* Reads a note, again if the thread wrote meanwhile. After TRIES attempts it takes what it has, which may be a mixture
 * of two activities. That does no harm: a thread that writes so often was in both. */
static lk_activity_kind heartbeat_watch_read_note(const lk_heart_thread *thread, char what[LK_ACTIVITY_LENGTH],
                                                  uint64_t *beats)
{
    enum { TRIES = 8 };
    uint64_t words[LK_ACTIVITY_LENGTH / sizeof(uint64_t)];
    uint32_t kind = 0;
    for (int i = 0; i < TRIES; i++) {
        *beats = atomic_load_explicit(&thread->beats, memory_order_acquire);
        const lk_heart_note *note = &thread->notes[*beats % 2];
        kind = atomic_load_explicit(&note->kind, memory_order_relaxed);
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            words[w] = atomic_load_explicit(&note->what[w], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&thread->beats, memory_order_relaxed) == *beats)
            break;
    }
    memcpy(what, words, LK_ACTIVITY_LENGTH);
    what[LK_ACTIVITY_LENGTH - 1] = '\0';
    return kind < LK_ACTIVITY_KINDS ? (lk_activity_kind)kind : LK_ACTIVITY_NONE;
}

static void heartbeat_watch_thread(const lk_heart_thread *thread, int64_t process, view *v)
{
    char what[LK_ACTIVITY_LENGTH];
    uint64_t beats;
    int32_t id = atomic_load_explicit(&thread->id, memory_order_acquire);
    if (!id)
        return;
    lk_activity_kind kind = heartbeat_watch_read_note(thread, what, &beats);
    v->any = true;
    v->beats += beats;
    if (kind == LK_ACTIVITY_WORK || kind == LK_ACTIVITY_OPERATOR) {
        char path[96];
        v->works = true;
        snprintf(path, sizeof path, "/proc/%" PRId64 "/task/%" PRId32 "/stat", process, id);
        v->waits_for_disk |= heartbeat_watch_read_stat(path, &v->used) == 'D';
    }
    if (kind > v->kind) {
        v->kind = kind;
        memcpy(v->what, what, sizeof what);
    }
}

static view heartbeat_watch_threads(const lk_heart *heart, int64_t process)
{
    view v = {.beats = atomic_load(&heart->beats)};
    for (int i = 0; i < LK_HEART_THREADS; i++)
        heartbeat_watch_thread(&heart->threads[i], process, &v);
    if (!v.any)
        v = (view){.works = true, .kind = LK_ACTIVITY_WORK, .what = "start"};
    return v;
}

static lk_heart_state heartbeat_watch_state(char system_state, const view *v)
{
    switch (system_state) {
    case '\0':
    case 'Z':
    case 'X':
        return LK_HEART_GONE;
    case 'T':
    case 't':
        return LK_HEART_STOPPED;
    default:
        return v->works                             ? LK_HEART_WORKS
               : v->kind == LK_ACTIVITY_WAIT_REMOTE ? LK_HEART_WAITS_FOR_OTHERS
                                                    : LK_HEART_WAITS;
    }
}

void lk_heartbeat_look(lk_heartbeat *h, int64_t process, lk_heart_report *report)
{
    char path[64];
    uint64_t of_process = 0;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", process);
    char state = heartbeat_watch_read_stat(path, &of_process);
    view v = heartbeat_watch_threads(h->heart, process);
    uint64_t used = v.any ? v.used : of_process,
             transferred = v.works ? heartbeat_watch_transferred(process) : h->transferred;
    double time = lk__seconds(), since = h->looked > 0 ? time - h->looked : 0;
    since = since < MOST_BETWEEN ? since : MOST_BETWEEN;
    if (v.waits_for_disk)
        since /= DISK_PATIENCE;
    bool goes_on = v.beats != h->beats || used != h->used || transferred != h->transferred;
    h->silent = goes_on ? 0 : h->silent + since;
    h->looked = time;
    h->beats = v.beats;
    h->used = used;
    h->transferred = transferred;
    *report = (lk_heart_report){.state = heartbeat_watch_state(state, &v),
                                .step = atomic_load_explicit(&h->heart->step, memory_order_relaxed),
                                .silent = h->silent,
                                .follows = atomic_load_explicit(&h->heart->follows, memory_order_relaxed) != 0};
    memcpy(report->operation, v.what, sizeof v.what);
}
