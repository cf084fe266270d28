/* Processes that have no trainer and find each other by TF_CONFIG. */
#include "base/status_testing.h"
#include "dist/process/group.h"
#include "dist/service/cluster.h"
#include "dist/service/network_messages.h"
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

enum { RANKS = 2, MOST_PORTS = 6 };

/* Finds n free ports of 127.0.0.1. */
static void find_ports(int n, int *ports)
{
    int sockets[MOST_PORTS];
    for (int i = 0; i < n; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(sockets[i], (struct sockaddr *)&address, size), 0);
        assert_int_equal(getsockname(sockets[i], (struct sockaddr *)&address, &size), 0);
        ports[i] = ntohs(address.sin_port);
    }
    for (int i = 0; i < n; i++)
        close(sockets[i]);
}

/* Sets TF_CONFIG of one of n ranks. */
static void describe(int rank, int n, const int *ports)
{
    char text[256];
    int used = snprintf(text, sizeof text, "{\"cluster\": {\"worker\": [");
    for (int i = 0; i < n; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s\"127.0.0.1:%d\"", i ? ", " : "", ports[i]);
    snprintf(text + used, sizeof text - (size_t)used, "]}, \"task\": {\"type\": \"worker\", \"index\": %d}}", rank);
    setenv("TF_CONFIG", text, 1);
}

static void expect_success(pid_t process)
{
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
}

/* Runs `part` in a process for each rank, which has strategy multi-worker with one device there. */
static void run_ranks(bool (*part)(lk_strategy *strategy, int rank))
{
    int ports[RANKS];
    pid_t processes[RANKS];
    find_ports(RANKS, ports);
    for (int rank = 0; rank < RANKS; rank++) {
        processes[rank] = fork();
        assert_true(processes[rank] >= 0);
        if (processes[rank] != 0)
            continue;
        describe(rank, RANKS, ports);
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
    for (int rank = 0; rank < RANKS; rank++)
        expect_success(processes[rank]);
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

static bool sums_in_bf16_do_not_go_along_the_tree(lk_strategy *strategy, int rank)
{
    (void)rank;
    bool is_right = lk_strategy_set_exchange(strategy, LK_EXCHANGE_TREE) == LK_OK &&
                    lk_strategy_set_compression(strategy, true) == LK_ERR_ARGUMENT;
    lk_error_clear();
    is_right = is_right && lk_strategy_set_exchange(strategy, LK_EXCHANGE_AUTO) == LK_OK &&
               lk_strategy_set_compression(strategy, true) == LK_OK &&
               lk_strategy_set_exchange(strategy, LK_EXCHANGE_TREE) == LK_ERR_ARGUMENT;
    lk_error_clear();
    return is_right;
}

static void compression_and_the_tree_exclude_each_other(void **state)
{
    (void)state;
    run_ranks(sums_in_bf16_do_not_go_along_the_tree);
}

/* --- processes that do not come ----------------------------------------------------------------------------------- */

/* Starts one of three processes. It succeeds if it fails because of worker `missing`, with this end of the message. */
static pid_t start_in_vain(int rank, const int ports[3], double timeout, int missing, const char *end)
{
    pid_t process = fork();
    assert_true(process >= 0);
    if (process != 0)
        return process;
    char expected[128];
    lk_cluster *cluster = NULL;
    lk_group *group;
    snprintf(expected, sizeof expected, "worker %d at 127.0.0.1:%d%s", missing, ports[missing], end);
    describe(rank, 3, ports);
    bool is_right = lk__cluster_open(NULL, &cluster) == LK_OK &&
                    lk__network_use_cluster(cluster, &(lk_network_place){.join_timeout = timeout}) == LK_OK &&
                    lk__group_open(&group) == LK_ERR_BACKEND && strcmp(lk_error_message(), expected) == 0;
    if (!is_right)
        fprintf(stderr, "rank %d: '%s', and not '%s'\n", rank, lk_error_message(), expected);
    lk__cluster_release(cluster);
    _exit(!is_right);
}

/* Worker 2 never comes to the first three processes. In the second three worker 0 has ended when worker 2 comes. */
static void the_process_that_has_not_come_is_named(void **state)
{
    (void)state;
    int ports[6], *other_ports = ports + 3;
    find_ports(6, ports);
    pid_t waiting[] = {
        start_in_vain(0, ports, 5, 2, " has not come within 5 s"),
        start_in_vain(1, ports, 15, 2, " has not come within 15 s"),
        start_in_vain(1, other_ports, 15, 0, " came and ended, and has not come again within 15 s"),
    };
    expect_success(start_in_vain(0, other_ports, 5, 2, " has not come within 5 s"));
    expect_success(start_in_vain(2, other_ports, 5, 0, " has not come within 5 s"));
    for (int i = 0; i < 3; i++)
        expect_success(waiting[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strategy_joins_the_processes_of_a_description),
        cmocka_unit_test(views_with_gaps_are_added_up),
        cmocka_unit_test(compression_and_the_tree_exclude_each_other),
        cmocka_unit_test(the_process_that_has_not_come_is_named),
    };
    if (!lk_build_has("ZeroMQ")) {
        puts("SKIP: this build has no ZeroMQ");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
