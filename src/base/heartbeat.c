#include "base/heartbeat.h"

#include "base/thread.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Atomic(lk_heart *) lk__heart_of_process;

static _Thread_local lk_heart_thread *own;
static _Thread_local bool has_no_slot;
static _Thread_local lk_activity current;

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* The environment may name any descriptor; only memory that a watcher made is accepted. */
static lk_heart *heartbeat_map(int descriptor)
{
    struct stat there;
    if (fstat(descriptor, &there) != 0 || !S_ISREG(there.st_mode) || there.st_size != (off_t)sizeof(lk_heart))
        return NULL;
    lk_heart *heart = mmap(NULL, sizeof *heart, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (heart == MAP_FAILED)
        return NULL;
    if (heart->magic != LK_HEART_MAGIC) {
        munmap(heart, sizeof *heart);
        return NULL;
    }
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return heart;
}

static void heartbeat_open(void)
{
    const char *text = getenv(LK_HEART_VARIABLE);
    char *end;
    long descriptor = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || descriptor < 0 || descriptor > INT32_MAX)
        return;
    atomic_store(&lk__heart_of_process, heartbeat_map((int)descriptor));
}

void lk__heartbeat_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, heartbeat_open);
    if (!current.what)
        lk__activity_set(LK_ACTIVITY_WORK, "start");
}

/* --- the slot of a thread ----------------------------------------------------------------------------------------- */

static void heartbeat_leave_slot(void)
{
    lk_heart *heart = atomic_load(&lk__heart_of_process);
    atomic_fetch_add(&heart->beats, atomic_load(&own->beats) + 1);
    atomic_store(&own->notes[0].kind, LK_ACTIVITY_NONE);
    atomic_store(&own->beats, 0);
    atomic_store_explicit(&own->id, 0, memory_order_release);
    own = NULL;
}

static lk_heart_thread *heartbeat_take_slot(lk_heart *heart)
{
    int32_t id = (int32_t)gettid();
    for (int i = 0; i < LK_HEART_THREADS; i++) {
        int32_t none = 0;
        lk_heart_thread *slot = &heart->threads[i];
        if (atomic_load_explicit(&slot->id, memory_order_relaxed) ||
            !atomic_compare_exchange_strong(&slot->id, &none, id))
            continue;
        own = slot;
        if (lk__at_thread_end(heartbeat_leave_slot))
            return slot;
        heartbeat_leave_slot();
        break;
    }
    has_no_slot = true;
    return NULL;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void heartbeat_write_note(lk_heart_note *note, lk_activity activity)
{
    uint64_t words[LK_ACTIVITY_LENGTH / sizeof(uint64_t)] = {0};
    memccpy(words, activity.what, '\0', sizeof words - 1);
    atomic_store_explicit(&note->kind, activity.kind, memory_order_relaxed);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_store_explicit(&note->what[i], words[i], memory_order_relaxed);
}

void lk__heartbeat_write(lk_activity activity)
{
    lk_heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    lk_heart_thread *slot = own || has_no_slot ? own : heartbeat_take_slot(heart);
    activity.what = activity.what ? activity.what : "";
    current = activity;
    if (!slot) {
        atomic_fetch_add_explicit(&heart->beats, 1, memory_order_relaxed);
        return;
    }
    uint64_t beats = atomic_load_explicit(&slot->beats, memory_order_relaxed) + 1;
    heartbeat_write_note(&slot->notes[beats % 2], activity);
    atomic_store_explicit(&slot->beats, beats, memory_order_release);
}

lk_activity lk__heartbeat_exchange(lk_activity activity)
{
    lk_activity before = current;
    lk__heartbeat_write(activity);
    return before;
}

void lk__heartbeat_remain(lk_activity activity)
{
    if (current.kind != activity.kind || current.what != activity.what)
        lk__heartbeat_write(activity);
}

void lk__heartbeat_beat(void)
{
    lk_heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    if (heart)
        atomic_fetch_add_explicit(&heart->beats, 1, memory_order_relaxed);
}

void lk__heartbeat_step(int64_t step)
{
    lk_heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    if (heart)
        atomic_store_explicit(&heart->step, step, memory_order_relaxed);
}

void lk__heartbeat_follow(void)
{
    lk_heart *heart = atomic_load_explicit(&lk__heart_of_process, memory_order_relaxed);
    if (heart)
        atomic_store_explicit(&heart->follows, 1, memory_order_relaxed);
}
