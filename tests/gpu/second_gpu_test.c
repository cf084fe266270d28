/* Threads that have chosen no GPU use the second one. CUDA must not use the first GPU for them, which would make a
 * context there; the emulated plug-in ends a program in which that has happened. Needs two GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/ops.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { COUNT = 1000 };

typedef struct shared {
    lk_device *device;
    lk_tensor *x, *y;
    float values[COUNT], read[COUNT];
    bool right;
} shared;

static void *open_device(void *argument)
{
    shared *s = argument;
    s->device = lk_device_open("cuda:1");
    s->right = s->device;
    return NULL;
}

static void *make_tensor(void *argument)
{
    shared *s = argument;
    s->x = lk_tensor_from(s->device, LK_F32, LK_SHAPE(COUNT), s->values);
    s->right = s->x;
    return NULL;
}

static void *compute(void *argument)
{
    shared *s = argument;
    s->y = lk_relu(s->x);
    s->right = s->y;
    return NULL;
}

static void *read_tensor(void *argument)
{
    shared *s = argument;
    s->right = lk_tensor_read(s->y, s->read, sizeof s->read) == LK_OK;
    return NULL;
}

static void *wait_for_device(void *argument)
{
    shared *s = argument;
    s->right = lk_device_sync(s->device) == LK_OK;
    return NULL;
}

static void *let_go(void *argument)
{
    shared *s = argument;
    lk_tensor_release(s->x);
    lk_tensor_release(s->y);
    return NULL;
}

static void *close_device(void *argument)
{
    shared *s = argument;
    lk_device_release(s->device);
    return NULL;
}

static void each_on_a_thread_of_its_own(void **state)
{
    (void)state;
    static void *(*const parts[])(void *) = {open_device,     make_tensor, compute,     read_tensor,
                                             wait_for_device, let_go,      close_device};
    static shared s;
    if (lk_device_available("cuda") < 2) {
        print_message("SKIP: two GPUs are needed, there are %d\n", lk_device_available("cuda"));
        skip();
    }
    for (int i = 0; i < COUNT; i++)
        s.values[i] = (float)(i % 7 - 3);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, parts[i], &s), 0);
        pthread_join(thread, NULL);
        assert_true(s.right);
    }
    for (int i = 0; i < COUNT; i++)
        assert_true(s.read[i] == (s.values[i] > 0 ? s.values[i] : 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_on_a_thread_of_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
