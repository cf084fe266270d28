#include "base/heartbeat.h"

#include "base/thread_end.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Atomic(lk__heart *) lk__heart_of_process;

static _Thread_local lk__heart_thread *own;
static _Thread_local bool has_no_place;
static _Thread_local lk__doing current;

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* What the environment names may be anything: only what a watcher made is taken. */
static lk__heart *map(int descriptor)
{
    struct stat there;
    if (fstat(descriptor, &there) != 0 || !S_ISREG(there.st_mode) || there.st_size != (off_t)sizeof(lk__heart))
        return NULL;
    lk__heart *heart = mmap(NULL, sizeof *heart, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (heart == MAP_FAILED)
        return NULL;
    if (heart->magic != LK_HEART_MAGIC) {
        munmap(heart, sizeof *heart);
        return NULL;
    }
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return heart;
}

static void begin(void)
{
    const char *text = getenv(LK_HEART_VARIABLE);
    char *end;
    long descriptor = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || descriptor < 0 || descriptor > INT32_MAX)
        return;
    atomic_store(&lk__heart_of_process, map((int)descriptor));
}

void lk__heartbeat_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    if (!current.what)
        lk__now(LK_DOING_WORK, "start");
}

/* --- a thread's place --------------------------------------------------------------------------------------------- */

static void leave_place(void)
{
    lk__heart *heart = atomic_load(&lk__heart_of_process);
    atomic_fetch_add(&heart->beats, atomic_load(&own->beats) + 1);
    atomic_store(&own->notes[0].kind, LK_DOING_NOTHING);
    atomic_store(&own->beats, 0);
    atomic_store_explicit(&own->id, 0, memory_order_release);
    own = NULL;
}

static lk__heart_thread *take_place(lk__heart *heart)
{
    int32_t id = (int32_t)gettid();
    for (int i = 0; i < LK_HEART_THREADS; i++) {
        int32_t none = 0;
        lk__heart_thread *place = &heart->threads[i];
        if (atomic_load_explicit(&place->id, memory_order_relaxed) ||
            !atomic_compare_exchange_strong(&place->id, &none, id))
            continue;
        own = place;
        if (lk__at_thread_end(leave_place))
            return place;
        leave_place();
        break;
    }
    has_no_place = true;
    return NULL;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_note(lk__heart_note *note, lk__doing doing)
{
    uint64_t words[LK_DOING_LENGTH / sizeof(uint64_t)] = {0};
    memccpy(words, doing.what, '\0', sizeof words - 1);
    atomic_store_explicit(&note->kind, doing.kind, memory_order_relaxed);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_store_explicit(&note->what[i], words[i], memory_order_relaxed);
}

void lk__heartbeat_write(lk__doing doing)
{
    lk__heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    lk__heart_thread *place = own || has_no_place ? own : take_place(heart);
    doing.what = doing.what ? doing.what : "";
    current = doing;
    if (!place) {
        atomic_fetch_add_explicit(&heart->beats, 1, memory_order_relaxed);
        return;
    }
    uint64_t beats = atomic_load_explicit(&place->beats, memory_order_relaxed) + 1;
    write_note(&place->notes[beats % 2], doing);
    atomic_store_explicit(&place->beats, beats, memory_order_release);
}

lk__doing lk__heartbeat_exchange(lk__doing doing)
{
    lk__doing before = current;
    lk__heartbeat_write(doing);
    return before;
}

void lk__heartbeat_remain(lk__doing doing)
{
    if (current.kind != doing.kind || current.what != doing.what)
        lk__heartbeat_write(doing);
}

void lk__heartbeat_beat(void)
{
    lk__heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    if (heart)
        atomic_fetch_add_explicit(&heart->beats, 1, memory_order_relaxed);
}

void lk__heartbeat_step(int64_t step)
{
    lk__heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    if (heart)
        atomic_store_explicit(&heart->step, step, memory_order_relaxed);
}

void lk__heartbeat_follow(void)
{
    lk__heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    if (heart)
        atomic_store_explicit(&heart->follows, 1, memory_order_relaxed);
}
