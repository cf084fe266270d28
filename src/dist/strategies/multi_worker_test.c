/* Processes that have no trainer and find each other by TF_CONFIG. */
#include "base/status_testing.h"
#include "lockstep/build.h"
#include "lockstep/dist.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2 };

/* Finds free ports of 127.0.0.1. */
static void find_ports(int ports[RANKS])
{
    int sockets[RANKS];
    for (int i = 0; i < RANKS; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(sockets[i], (struct sockaddr *)&address, size), 0);
        assert_int_equal(getsockname(sockets[i], (struct sockaddr *)&address, &size), 0);
        ports[i] = ntohs(address.sin_port);
    }
    for (int i = 0; i < RANKS; i++)
        close(sockets[i]);
}

/* Returns whether the strategy has the devices of all ranks. */
static bool joins(int rank, const int ports[RANKS])
{
    char text[256];
    lk_device *device = lk_device_open("cpu:0");
    snprintf(text, sizeof text,
             "{\"cluster\": {\"worker\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}, "
             "\"task\": {\"type\": \"worker\", \"index\": %d}}",
             ports[0], ports[1], rank);
    setenv("TF_CONFIG", text, 1);
    lk_strategy *strategy = lk_strategy_new("multi-worker", &device, 1);
    bool is_whole = strategy && lk_strategy_ranks(strategy) == RANKS && lk_strategy_first_rank(strategy) == rank;
    lk_strategy_release(strategy);
    lk_device_release(device);
    if (strategy && lk_leave_processes() == LK_OK)
        return is_whole;
    fprintf(stderr, "rank %d: %s\n", rank, lk_error_message());
    return false;
}

static void a_strategy_joins_the_processes_of_a_description(void **state)
{
    (void)state;
    int ports[RANKS], status;
    pid_t processes[RANKS];
    find_ports(ports);
    for (int rank = 0; rank < RANKS; rank++) {
        processes[rank] = fork();
        assert_true(processes[rank] >= 0);
        if (processes[rank] == 0)
            _exit(!joins(rank, ports));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(processes[rank], &status, 0), processes[rank]);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_strategy_joins_the_processes_of_a_description)};
    if (!lk_build_has("ZeroMQ")) {
        puts("SKIP: this build has no ZeroMQ");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
