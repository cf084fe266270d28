#include "base/thread.h"

#include <stddef.h>

/* Bytes of a thread's stack. oneDNN compiles its kernels on the calling thread and needs some 100 KiB. */
enum { LEAST_STACK = 1 << 20 };

int lk__thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
    pthread_attr_t attributes;
    size_t stack;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < LEAST_STACK)
        pthread_attr_setstacksize(&attributes, LEAST_STACK);
    error = pthread_create(thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

/* --- the end of a thread ------------------------------------------------------------------------------------------ */

enum { MOST = 8 };

typedef struct end_list {
    void (*ends[MOST])(void);
    int n;
} end_list;

static _Thread_local end_list own;

static pthread_key_t key;
static bool has_key;

static void thread_run_ends(void *argument)
{
    end_list *list = argument;
    while (list->n > 0)
        list->ends[--list->n]();
}

static void thread_make_key(void)
{
    has_key = pthread_key_create(&key, thread_run_ends) == 0;
}

bool lk__at_thread_end(void (*end)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, thread_make_key);
    if (!has_key || own.n == MOST || pthread_setspecific(key, &own) != 0)
        return false;
    own.ends[own.n++] = end;
    return true;
}

/* --- waits with a time limit -------------------------------------------------------------------------------------- */

void lk__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec lk__deadline_after(int64_t milliseconds)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t nanoseconds = time.tv_nsec + milliseconds * 1000000;
    return (struct timespec){.tv_sec = time.tv_sec + (time_t)(nanoseconds / 1000000000),
                             .tv_nsec = (long)(nanoseconds % 1000000000)};
}
