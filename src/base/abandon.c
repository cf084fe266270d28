#include "base/abandon.h"

#include <pthread.h>

void lk__abandon(lk_abandoned *memory)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static lk_abandoned *all;
    pthread_mutex_lock(&lock);
    memory->next = all;
    all = memory;
    pthread_mutex_unlock(&lock);
}
