/* A gate that bounds what threads take of something at a time. */
#ifndef LK_DATA_GATE_H
#define LK_DATA_GATE_H

#include <pthread.h>
#include <stdint.h>

typedef struct lk__gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t most, inside;
} lk__gate;

#define LK__GATE(most)                                                 \
    {                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, (most), 0 \
    }

/* Waits until no more than `most` are inside with these, or nobody else is. Whoever is inside may enter another gate,
 * if all enter them in the same order. */
void lk__gate_enter(lk__gate *gate, int64_t amount);
void lk__gate_leave(lk__gate *gate, int64_t amount);

#endif
