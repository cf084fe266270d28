#include "data/pictures/weighted_semaphore.h"

void lk__semaphore_acquire(lk_weighted_semaphore *semaphore, int64_t amount)
{
    pthread_mutex_lock(&semaphore->lock);
    while (semaphore->held > 0 && amount > semaphore->most - semaphore->held)
        pthread_cond_wait(&semaphore->changed, &semaphore->lock);
    semaphore->held += amount;
    pthread_mutex_unlock(&semaphore->lock);
}

void lk__semaphore_release(lk_weighted_semaphore *semaphore, int64_t amount)
{
    pthread_mutex_lock(&semaphore->lock);
    semaphore->held -= amount;
    pthread_cond_broadcast(&semaphore->changed);
    pthread_mutex_unlock(&semaphore->lock);
}
