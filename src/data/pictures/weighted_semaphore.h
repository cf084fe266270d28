/* A weighted semaphore: bounds the total amount of something that threads hold at a time. */
#pragma once

#include <pthread.h>
#include <stdint.h>

typedef struct lk_weighted_semaphore {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t most, held;
} lk_weighted_semaphore;

#define LK__SEMAPHORE(most)                                            \
    {                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, (most), 0 \
    }

/* Waits until `amount` fits below `most`, or nothing is held: an amount above `most` is granted alone. A thread that
 * holds one semaphore may acquire another one if all threads acquire them in the same order. */
void lk__semaphore_acquire(lk_weighted_semaphore *semaphore, int64_t amount);
void lk__semaphore_release(lk_weighted_semaphore *semaphore, int64_t amount);
