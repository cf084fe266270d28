/* For tests: a device that another thread releases while its own thread still has work. */
#pragma once

#include "base/status_testing.h"
#include "core/backend.h"
#include "core/queue.h"

#include <sched.h>
#include <semaphore.h>
#include <unistd.h>

typedef struct slow_release {
    lk_task task;
    sem_t may_run;
    atomic_bool has_run;
    lk_device *device;
    pthread_t thread;
} slow_release;

static lk_status slow_release_run(lk_task *task)
{
    slow_release *r = (slow_release *)task;
    sem_wait(&r->may_run);
    usleep(50000); /* whoever does not wait for the device comes before the end of this */
    atomic_store(&r->has_run, true);
    return LK_OK;
}

static void slow_release_keep(lk_task *task)
{
    (void)task;
}

/* Pushes the work that is left when the device is released. */
static inline void hold_up(slow_release *r, lk_device *device)
{
    *r = (slow_release){.device = device};
    r->task = (lk_task){.device = device, .run = slow_release_run, .release = slow_release_keep};
    sem_init(&r->may_run, 0, 0);
    assert_ok(lk__engine_push_task(&r->task));
}

static void *slow_release_main(void *argument)
{
    lk_device_release(((slow_release *)argument)->device);
    return NULL;
}

/* On return another thread is in lk_device_release, and the work that was left may run. */
static inline void begin_release(slow_release *r)
{
    lk_queue *queue = r->device->queue;
    assert_int_equal(pthread_create(&r->thread, NULL, slow_release_main, r), 0);
    while (!atomic_load(&queue->stop))
        sched_yield();
    sem_post(&r->may_run);
}

static inline void end_release(slow_release *r)
{
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    sem_destroy(&r->may_run);
}
