#include "base/thread_end.h"

#include <pthread.h>

enum { MOST = 8 };

typedef struct end_list {
    void (*ends[MOST])(void);
    int n;
} end_list;

static _Thread_local end_list own;

static pthread_key_t key;
static bool has_key;

static void run_ends(void *argument)
{
    end_list *list = argument;
    while (list->n > 0)
        list->ends[--list->n]();
}

static void make_thread_key(void)
{
    has_key = pthread_key_create(&key, run_ends) == 0;
}

bool lk__at_thread_end(void (*end)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_thread_key);
    if (!has_key || own.n == MOST || pthread_setspecific(key, &own) != 0)
        return false;
    own.ends[own.n++] = end;
    return true;
}
