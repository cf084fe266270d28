#include "data/gate.h"

void lk__gate_enter(lk__gate *gate, int64_t amount)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->inside > 0 && amount > gate->most - gate->inside)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->inside += amount;
    pthread_mutex_unlock(&gate->lock);
}

void lk__gate_leave(lk__gate *gate, int64_t amount)
{
    pthread_mutex_lock(&gate->lock);
    gate->inside -= amount;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}
