#include "base/whole_io.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 1 << 20, HALF = SIZE / 2 };

static unsigned char sent[SIZE], received[SIZE];

static void ignore(int signal)
{
    (void)signal;
}

static void *write_to_pipe(void *user)
{
    int fd = *(int *)user;
    int error = lk__write_whole(fd, sent, SIZE);
    close(fd);
    return error ? user : NULL;
}

/* A pipe takes and gives fewer bytes at once than are asked for. */
static void test_a_pipe_under_signals(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 31 >> 3);
    struct sigaction action = {.sa_handler = ignore}, before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_to_pipe, &ends[1]), 0);
    for (int i = 0; i < 20; i++) {
        pthread_kill(writer, SIGUSR1); /* it cannot end yet: the pipe is full */
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    assert_int_equal(lk__read_whole(ends[0], received, HALF), HALF);
    assert_int_equal(lk__read_whole(ends[0], received + HALF, SIZE), HALF);
    assert_int_equal(lk__read_whole(ends[0], received, 1), 0);
    assert_memory_equal(sent, received, SIZE);
    void *failed = NULL;
    pthread_join(writer, &failed);
    assert_null(failed);
    close(ends[0]);
    sigaction(SIGUSR1, &before, NULL);
}

static void test_a_closed_descriptor_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(lk__write_whole(-1, sent, 1), EBADF);
    assert_int_equal(lk__read_whole(-1, received, 1), -1);
    assert_int_equal(errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pipe_under_signals),
        cmocka_unit_test(test_a_closed_descriptor_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
