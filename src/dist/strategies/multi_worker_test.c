/* Processes that have no trainer and find each other by TF_CONFIG. */
#include "base/status_testing.h"
#include "lockstep/build.h"
#include "lockstep/dist.h"
#include "lockstep/ops.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Sets TF_CONFIG of a rank. */
static void describe(int rank, const int ports[RANKS])
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"cluster\": {\"worker\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}, "
             "\"task\": {\"type\": \"worker\", \"index\": %d}}",
             ports[0], ports[1], rank);
    setenv("TF_CONFIG", text, 1);
}

/* Runs `part` in a process for each rank, which has strategy multi-worker with one device there. */
static void run_ranks(bool (*part)(lk_strategy *strategy, int rank))
{
    int ports[RANKS], status;
    pid_t processes[RANKS];
    find_ports(ports);
    for (int rank = 0; rank < RANKS; rank++) {
        processes[rank] = fork();
        assert_true(processes[rank] >= 0);
        if (processes[rank] != 0)
            continue;
        describe(rank, ports);
        lk_device *device = lk_device_open("cpu:0");
        lk_strategy *strategy = lk_strategy_new("multi-worker", &device, 1);
        bool is_right = strategy && part(strategy, rank);
        lk_strategy_release(strategy);
        lk_device_release(device);
        is_right = is_right && lk_leave_processes() == LK_OK;
        if (!is_right)
            fprintf(stderr, "rank %d: %s\n", rank, lk_error_message());
        _exit(!is_right);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(processes[rank], &status, 0), processes[rank]);
        assert_int_equal(status, 0);
    }
}

/* Returns whether the strategy has the devices of all ranks. */
static bool has_all_ranks(lk_strategy *strategy, int rank)
{
    return lk_strategy_ranks(strategy) == RANKS && lk_strategy_first_rank(strategy) == rank;
}

static void a_strategy_joins_the_processes_of_a_description(void **state)
{
    (void)state;
    run_ranks(has_all_ranks);
}

/* Adds up the strategy's shards of a value that is a view with gaps. Returns whether there is a sum. */
static bool sum_views(lk_strategy *strategy, int64_t shards, float sums[6])
{
    lk_device *device = lk_strategy_device(strategy, 0);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, shards, 1);
    lk_range own = lk_part(shards, lk_strategy_ranks(strategy), lk_strategy_first_rank(strategy));
    lk_tensor *out = NULL;
    lk_scope_begin();
    for (int64_t shard = own.begin; shard < own.end; shard++) {
        float values[6];
        for (int i = 0; i < 6; i++)
            values[i] = 1.0F / (float)(7 * shard + i + 1);
        lk_tensor *view = lk_transpose(lk_tensor_from(device, LK_F32, LK_SHAPE(2, 3), values), 0, 1);
        lk_shard_sum_add(sum, shard, &view);
    }
    bool is_there = lk_shard_sum_finish(sum, &out) == LK_OK && lk_tensor_read(out, sums, 6 * sizeof *sums) == LK_OK;
    lk_tensor_release(out);
    lk_scope_end();
    lk_shard_sum_release(sum);
    return is_there;
}

static bool sums_views_with_the_bits_of_one_device(lk_strategy *strategy, int rank)
{
    (void)rank;
    lk_device *device = lk_strategy_device(strategy, 0);
    lk_strategy *one = lk_strategy_new("one-device", &device, 1);
    bool is_right = one;
    for (int64_t shards = RANKS; shards <= 4 * RANKS && is_right; shards++) {
        float have[6], want[6];
        is_right =
            sum_views(strategy, shards, have) && sum_views(one, shards, want) && memcmp(have, want, sizeof have) == 0;
    }
    lk_strategy_release(one);
    return is_right;
}

static void views_with_gaps_are_added_up(void **state)
{
    (void)state;
    run_ranks(sums_views_with_the_bits_of_one_device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strategy_joins_the_processes_of_a_description),
        cmocka_unit_test(views_with_gaps_are_added_up),
    };
    if (!lk_build_has("ZeroMQ")) {
        puts("SKIP: this build has no ZeroMQ");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
