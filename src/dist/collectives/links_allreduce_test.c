/* Sums over links: devices of one process, ranks that are threads, and ranks that are processes. Needs GPUs, or the
 * plug-in that emulates them. */
#include "dist/collectives/links_allreduce.h"
#include "dist/dist_testing.h"
#include "dist/transports/host_links.h"
#include "base/mem_testing.h"

#include "core/backend.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHARDS = 8, QUANTITIES = 5, GPUS = 3 };

/* Quantity q of shard s: the shard's values from element 100 q on. */
static const int64_t lengths[QUANTITIES] = {10000, 5, 700, 0, 9000};

static const float *values(int64_t shard, int q)
{
    return values_of(shard) + (ptrdiff_t)100 * q;
}

/* Ranks [first, first + n) of `ranks`. */
typedef struct ranks_here ranks_here;
struct ranks_here {
    lk_device *devices[GPUS];
    int n, first, ranks;
    const lk_transport *transport;
    const lk_links_id *id;
    bool (*meanwhile)(const ranks_here *here); /* called while a sum is in flight; NULL: nothing */
};

static bool is_present(int64_t shard, int round)
{
    return round == 0 || (shard != 3 && shard != 4);
}

/* --- one sum ------------------------------------------------------------------------------------------------------ */

typedef struct one_sum {
    lk_links_allreduce_part parts[SHARDS];
    lk_tensor *values[SHARDS][QUANTITIES];
    lk_tensor *sums[GPUS][QUANTITIES];
    int n_parts;
} one_sum;

static bool make_values(const ranks_here *here, int rank, int64_t shard, lk_tensor **made)
{
    for (int q = 0; q < QUANTITIES; q++) {
        lk_device *device = here->devices[rank - here->first];
        made[q] = lk_tensor_from(device, LK_F32, LK_SHAPE(lengths[q]), values(shard, q));
        if (!made[q])
            return false;
    }
    return true;
}

/* Each shard is a node, of the rank that owns it. */
static bool make_parts(const ranks_here *here, int round, one_sum *one)
{
    for (int rank = 0; rank < here->ranks; rank++) {
        lk_range own = lk_part(SHARDS, here->ranks, rank);
        bool is_here = rank >= here->first && rank < here->first + here->n;
        for (int64_t s = own.begin; s < own.end; s++) {
            if (!is_present(s, round))
                continue;
            lk_tensor **made = one->values[one->n_parts];
            if (is_here && !make_values(here, rank, s, made))
                return false;
            one->parts[one->n_parts++] = (lk_links_allreduce_part){{s, s + 1}, rank, is_here ? made : NULL};
        }
    }
    return true;
}

static void release(one_sum *one)
{
    for (int m = 0; m < SHARDS; m++)
        for (int q = 0; q < QUANTITIES; q++)
            lk_tensor_release(one->values[m][q]);
    for (int d = 0; d < GPUS; d++)
        for (int q = 0; q < QUANTITIES; q++)
            lk_tensor_release(one->sums[d][q]);
}

/* A sum in another order may differ by the rounding errors of eight additions. */
static bool is_near(float have, int q, int64_t i, int round)
{
    double sum = 0, size = 0;
    for (int64_t s = 0; s < SHARDS; s++) {
        double x = is_present(s, round) ? (double)values(s, q)[i] : 0;
        sum += x;
        size += fabs(x);
    }
    return fabs((double)have - sum) <= 8 * 0x1p-24 * size;
}

static bool is_right(lk_tensor *sum, int q, int round, bool by_library)
{
    static _Thread_local float have[TABLE];
    bool present[SHARDS];
    int64_t n = lengths[q], wrong = 0;
    for (int64_t s = 0; s < SHARDS; s++)
        present[s] = is_present(s, round);
    if (!sum || lk_tensor_read(sum, have, (size_t)n * sizeof *have) != LK_OK)
        return false;
    for (int64_t i = 0; i < n; i++) {
        float expected;
        tree_sum(present, 0, SHARDS, i + 100 * q, &expected);
        wrong += by_library ? !is_near(have[i], q, i, round) : memcmp(&have[i], &expected, sizeof expected) != 0;
    }
    if (wrong > 0)
        print_error("quantity %d, round %d: %lld of %lld elements are wrong\n", q, round, (long long)wrong,
                    (long long)n);
    return wrong == 0;
}

static void let_it_get_under_way(void)
{
    poll(NULL, 0, 20);
}

/* Returns the blocks of the devices' allocators to CUDA. */
static bool give_memory_back(const ranks_here *here)
{
    let_it_get_under_way();
    for (int d = 0; d < here->n; d++)
        lk__allocator_trim(here->devices[d]->allocator);
    return true;
}

/* The first sum on a device creates the libraries' handles and workspaces. */
static bool multiply(const ranks_here *here)
{
    static const float values[4] = {1, 2, 3, 4};
    bool right = true;
    let_it_get_under_way();
    lk_scope_begin();
    for (int d = 0; d < here->n && right; d++) {
        lk_tensor *x = lk_tensor_from(here->devices[d], LK_F32, LK_SHAPE(2, 2), values), *y = lk_matmul(x, x);
        float found[4];
        right = y && lk_tensor_read(y, found, sizeof found) == LK_OK && found[0] == 7 && found[3] == 22;
    }
    lk_scope_end();
    return right;
}

/* short_row: of the small quantities alone, which every rank adds up whole. */
static bool sums_up(const ranks_here *here, lk_links_allreduce *allreduce, int round, bool short_row, bool by_library)
{
    static const int all[QUANTITIES] = {0, 1, 2, 3, 4}, small[] = {1, 2};
    const int *quantities = short_row ? small : all;
    int n = short_row ? 2 : QUANTITIES;
    one_sum one = {.n_parts = 0};
    lk_shape shapes[QUANTITIES];
    for (int q = 0; q < QUANTITIES; q++)
        shapes[q] = LK_SHAPE(lengths[q]);
    lk_links_allreduce_sum sum = {.root = {0, SHARDS},
                                  .parts = one.parts,
                                  .quantities = quantities,
                                  .n_quantities = n,
                                  .shapes = shapes,
                                  .dtype = LK_F32,
                                  .by_library = by_library,
                                  .sums = one.sums[0],
                                  .stride = QUANTITIES};
    lk_scope_begin();
    bool right = make_parts(here, round, &one);
    for (int m = 0; m < SHARDS; m++)
        for (int q = 0; q < QUANTITIES; q++)
            lk_tensor_retain(one.values[m][q]);
    lk_scope_end();
    sum.n_parts = one.n_parts;
    right = right && lk__links_allreduce_begin(allreduce, &sum) == LK_OK && (!here->meanwhile || here->meanwhile(here));
    for (int d = 0; d < here->n && right; d++)
        for (int i = 0; i < n && right; i++)
            right = is_right(one.sums[d][quantities[i]], quantities[i], round, by_library);
    release(&one);
    return right;
}

/* The rounds reuse buffers, once with fewer nodes. */
static bool all_sums(const ranks_here *here)
{
    lk_links_allreduce *allreduce = NULL;
    lk_links_allreduce_opts opts = {.table = lk__links_of(here->devices[0]),
                                    .devices = here->devices,
                                    .n = here->n,
                                    .transport = here->transport,
                                    .id = here->id,
                                    .first = here->first,
                                    .ranks = here->ranks};
    bool right = lk__links_allreduce_new(&opts, &allreduce) == LK_OK;
    for (int round = 0; round < 8 && right; round++) {
        lk__links_allreduce_set_exchange(allreduce, round < 4 ? LK_EXCHANGE_FLAT : LK_EXCHANGE_TREE);
        for (int short_row = 0; short_row < 2 && right; short_row++)
            right = sums_up(here, allreduce, round % 2, short_row, false);
    }
    if (right && here->transport->reduce)
        right = sums_up(here, allreduce, 0, false, true) && sums_up(here, allreduce, 1, false, true);
    lk__links_allreduce_release(allreduce);
    if (!right)
        print_error("ranks %d to %d of %d: %s\n", here->first, here->first + here->n - 1, here->ranks,
                    lk_error_message());
    return right;
}

/* Clears errors that nobody waited for, so that they are not reported later. */
static void forget_errors(void)
{
    lk_error_clear();
    lk_wait_all();
    lk_error_clear();
}

static void expect_no_memory(const ranks_here *here)
{
    for (int d = 0; d < here->n; d++) {
        int64_t now, peak;
        assert_ok(lk_device_sync(here->devices[d]));
        lk_device_memory(here->devices[d], &now, &peak);
        assert_int_equal(now, 0);
    }
}

/* --- allocations that fail ---------------------------------------------------------------------------------------- */

static lk_status try_sums(const ranks_here *here)
{
    lk_links_allreduce *allreduce = NULL;
    lk_links_allreduce_opts opts = {
        .table = lk__links_of(here->devices[0]), .devices = here->devices, .n = here->n, .transport = here->transport};
    bool right = lk__links_allreduce_new(&opts, &allreduce) == LK_OK;
    if (right)
        lk__links_allreduce_set_exchange(allreduce, LK_EXCHANGE_TREE);
    right = right && sums_up(here, allreduce, 0, false, false) && sums_up(here, allreduce, 1, true, false) &&
            (!here->transport->reduce || sums_up(here, allreduce, 0, false, true));
    lk__links_allreduce_release(allreduce);
    return right ? LK_OK : lk_error_status();
}

static void fail_each(const char *spec, const lk_transport *transport)
{
    ranks_here here = {.transport = transport};
    int64_t failures = 0;
    assert_ok(lk_devices_open(spec, here.devices, GPUS, &here.n));
    here.ranks = here.n;
    failing f = fail_every(1);
    while (fail_next(&f)) {
        lk_status status = try_sums(&here);
        stop_failing(&f);
        failures += status != LK_OK;
        if (status != LK_OK && (status != LK_ERR_MEMORY || !strstr(lk_error_message(), "out of memory")))
            fail_msg("allocation %lld: %s: '%s'", (long long)f.n, lk_status_name(status), lk_error_message());
        forget_errors();
    }
    print_message("%s, %s: %lld allocations, each refused once: %lld times sums failed\n", spec, transport->name,
                  (long long)f.n, (long long)failures);
    assert_true(failures > f.n / 2);
    assert_ok(try_sums(&here));
    expect_no_memory(&here);
    lk_devices_release(here.devices, here.n);
}

/* Runs rank `rank` alone, on its own GPU. */
static bool run_rank(int rank, int ranks, const lk_links_id *id)
{
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", rank);
    ranks_here here = {.n = 1, .first = rank, .ranks = ranks, .transport = &lk__transport_nccl, .id = id};
    here.devices[0] = lk_device_open(name);
    bool right = here.devices[0] && all_sums(&here);
    lk_device_release(here.devices[0]);
    return right;
}

/* --- one process -------------------------------------------------------------------------------------------------- */

static void needs_gpus(int n)
{
    int there = lk_device_available("cuda");
    if (there >= n)
        return;
    print_message("SKIP: %d GPUs are needed, there are %d\n", n, there);
    skip();
}

static void needs_nccl(void)
{
    lk_device *device = lk_device_open("cuda:0");
    assert_non_null(device);
    lk_status status = lk__links_of(device)->check_library(&device, 1);
    lk_device_release(device);
    if (status == LK_OK)
        return;
    print_message("SKIP: %s\n", lk_error_message());
    lk_error_clear();
    skip();
}

static void sum_beside(const char *spec, const lk_transport *transport, bool (*meanwhile)(const ranks_here *here))
{
    ranks_here here = {.transport = transport, .meanwhile = meanwhile};
    assert_ok(lk_devices_open(spec, here.devices, GPUS, &here.n));
    here.ranks = here.n;
    bool right = all_sums(&here);
    expect_no_memory(&here);
    lk_devices_release(here.devices, here.n);
    assert_true(right);
}

static void sum_over(const char *spec, const lk_transport *transport)
{
    sum_beside(spec, transport, NULL);
}

static void devices_of_one_gpu(void **state)
{
    (void)state;
    needs_gpus(1);
    sum_over("2xcuda:0", &lk__transport_peer);
    sum_over("3xcuda:0", &lk__transport_peer);
}

static void peers(void **state)
{
    (void)state;
    needs_gpus(2);
    sum_over("2xcuda", &lk__transport_peer);
    if (lk_device_available("cuda") >= 3)
        sum_over("3xcuda", &lk__transport_peer);
}

static void nccl_in_one_thread(void **state)
{
    (void)state;
    needs_gpus(2);
    needs_nccl();
    sum_over("2xcuda", &lk__transport_nccl);
    if (lk_device_available("cuda") >= 3)
        sum_over("3xcuda", &lk__transport_nccl);
}

/* cudaFree waits for kernels, so it must not wait for one that waits for another GPU's. */
static void memory_goes_back_meanwhile(void **state)
{
    (void)state;
    needs_gpus(2);
    needs_nccl();
    sum_beside("2xcuda", &lk__transport_nccl, give_memory_back);
    sum_beside("2xcuda", &lk__transport_peer, give_memory_back);
}

/* The libraries' work on first use must not wait for it either. */
static void libraries_start_meanwhile(void **state)
{
    (void)state;
    needs_gpus(2);
    needs_nccl();
    sum_beside("2xcuda", &lk__transport_nccl, multiply);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    needs_gpus(2);
    values_of(0);
    fail_each("2xcuda", &lk__transport_peer);
    needs_nccl();
    fail_each("2xcuda", &lk__transport_nccl);
}

static bool is_taken(const lk_links_allreduce *allreduce, lk_range root, const lk_range *nodes, int n, int per_rank,
                     bool compressed)
{
    lk_links_allreduce_part parts[LK_LINKS_ALLREDUCE_PARTS + 1];
    for (int m = 0; m < n; m++)
        parts[m] = (lk_links_allreduce_part){nodes[m], m / per_rank, NULL};
    return lk__links_allreduce_takes_tree(
        allreduce, &(lk_links_allreduce_sum){
                       .root = root, .parts = parts, .n_parts = n, .dtype = LK_F32, .compressed = compressed});
}

/* A tree that is too wide or too deep for a kernel is exchanged along the tree, unless its sums are compressed or one
 * rank has too many nodes: then it is left to operators. */
static void trees_that_are_taken(void **state)
{
    (void)state;
    lk_links_allreduce *allreduce;
    ranks_here here = {.n = 0};
    assert_ok(lk_devices_open("3xcpu:0", here.devices, GPUS, &here.n));
    lk_links_allreduce_opts opts = {
        .table = &lk__host_links, .devices = here.devices, .n = here.n, .transport = &lk__transport_mpi};
    assert_ok(lk__links_allreduce_new(&opts, &allreduce));

    lk_range leaves[LK_LINKS_ALLREDUCE_PARTS + 1];
    for (int i = 0; i <= LK_LINKS_ALLREDUCE_PARTS; i++)
        leaves[i] = (lk_range){i, i + 1};
    lk_range many = {0, LK_LINKS_ALLREDUCE_PARTS}, more = {0, LK_LINKS_ALLREDUCE_PARTS + 1};
    assert_true(is_taken(allreduce, many, leaves, LK_LINKS_ALLREDUCE_PARTS, LK_LINKS_ALLREDUCE_PARTS, true));
    assert_true(is_taken(allreduce, more, leaves, LK_LINKS_ALLREDUCE_PARTS + 1, LK_LINKS_ALLREDUCE_PARTS / 2, false));
    assert_false(is_taken(allreduce, more, leaves, LK_LINKS_ALLREDUCE_PARTS + 1, LK_LINKS_ALLREDUCE_PARTS / 2, true));
    assert_false(
        is_taken(allreduce, more, leaves, LK_LINKS_ALLREDUCE_PARTS + 1, LK_LINKS_ALLREDUCE_PARTS / 2 + 1, false));

    /* Each node is the left half of the rest, so n sums wait at one time. */
    int64_t begin = 0, end = (int64_t)1 << 40;
    lk_range root = {begin, end}, halves[LK_LINKS_ALLREDUCE_PARTS];
    for (int i = 0; i < 40; i++) {
        halves[i] = (lk_range){begin, begin + (end - begin) / 2};
        begin = halves[i].end;
    }
    assert_true(is_taken(allreduce, root, halves, LK_LINKS_LEVELS + 1, LK_LINKS_ALLREDUCE_PARTS, true));
    assert_true(is_taken(allreduce, root, halves, LK_LINKS_LEVELS + 2, 1, false));
    assert_false(is_taken(allreduce, root, halves, LK_LINKS_LEVELS + 2, 1, true));

    int nodes;
    assert_true(lk__links_allreduce_takes_flat(allreduce, 8, &nodes)); /* of 0-2, 2-5 and 5-8 */
    assert_int_equal(nodes, 1 + 2 + 2);
    assert_false(lk__links_allreduce_takes_flat(allreduce, (int64_t)1 << 50, &nodes));
    assert_true(nodes > LK_LINKS_ALLREDUCE_PARTS);
    lk__links_allreduce_release(allreduce);
    lk_devices_release(here.devices, here.n);
}

/* --- several ranks ------------------------------------------------------------------------------------------------ */

typedef struct rank_thread {
    pthread_t thread;
    int rank, ranks;
    const lk_links_id *id;
    bool right;
} rank_thread;

static void *rank_main(void *argument)
{
    rank_thread *self = argument;
    self->right = run_rank(self->rank, self->ranks, self->id);
    return NULL;
}

static lk_status make_id(lk_links_id *id)
{
    lk_device *device = lk_device_open("cuda:0");
    if (!device)
        return lk_error_status();
    lk_status status = lk__links_of(device)->new_id(id);
    lk_device_release(device);
    return status;
}

static void ranks_in_threads(void **state)
{
    (void)state;
    lk_links_id id;
    needs_gpus(2);
    needs_nccl();
    assert_ok(make_id(&id));
    values_of(0); /* fill the table before the threads need it */
    rank_thread threads[2] = {{.rank = 0, .ranks = 2, .id = &id}, {.rank = 1, .ranks = 2, .id = &id}};
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]), 0);
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r].thread, NULL);
    assert_true(threads[0].right);
    assert_true(threads[1].right);
}

/* --- ranks that are missing --------------------------------------------------------------------------------------- */

static void complains(const char *text)
{
    if (!strstr(lk_error_message(), text))
        print_error("not '%s', but '%s'\n", text, lk_error_message());
    assert_non_null(strstr(lk_error_message(), text));
    forget_errors();
}

static void a_rank_that_is_not_started(void **state)
{
    (void)state;
    lk_links_id id;
    lk_links_allreduce *allreduce = NULL;
    needs_gpus(1);
    needs_nccl();
    assert_ok(make_id(&id));
    setenv("LOCKSTEP_EXCHANGE_TIMEOUT", "1", 1);
    lk_device *device = lk_device_open("cuda:0");
    lk_links_allreduce_opts opts = {.table = lk__links_of(device),
                                    .devices = &device,
                                    .n = 1,
                                    .transport = &lk__transport_nccl,
                                    .id = &id,
                                    .ranks = 2};
    lk_status status = lk__links_allreduce_new(&opts, &allreduce);
    unsetenv("LOCKSTEP_EXCHANGE_TIMEOUT");
    lk_device_release(device);
    assert_int_equal(status, LK_ERR_DEVICE);
    complains("connecting GPUs has stood still for 1 s; of 2 ranks, rank 0 on cuda:0 waits: ");
}

/* Seconds that a present rank may take to begin, on a machine that others also use. */
#define PATIENCE "6"

/* Takes part in 1 + `sums` sums. */
typedef struct leaving_rank {
    pthread_t thread;
    int rank, sums;
    bool dies;     /* released with the process */
    bool may_fail; /* the first sum too */
    const lk_links_id *id;
    bool right;
    lk_status status; /* of the last sum */
    char message[512];
} leaving_rank;

static bool sum_and_leave(leaving_rank *self, const ranks_here *here)
{
    lk_links_allreduce *allreduce = NULL;
    lk_links_allreduce_opts opts = {.table = lk__links_of(here->devices[0]),
                                    .devices = here->devices,
                                    .n = 1,
                                    .transport = here->transport,
                                    .id = here->id,
                                    .first = here->first,
                                    .ranks = here->ranks};
    bool right = lk__links_allreduce_new(&opts, &allreduce) == LK_OK;
    for (int i = 0; i <= self->sums && right; i++) {
        bool succeeds = sums_up(here, allreduce, 0, false, false);
        self->status = succeeds ? LK_OK : lk_error_status();
        snprintf(self->message, sizeof self->message, "%s", lk_error_message());
        right = succeeds || i > 0 || self->may_fail;
    }
    if (self->dies)
        raise(SIGKILL);
    lk__links_allreduce_release(allreduce);
    return right;
}

static void *leaving_main(void *argument)
{
    leaving_rank *self = argument;
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", self->rank);
    ranks_here here = {.n = 1, .first = self->rank, .ranks = 2, .transport = &lk__transport_nccl, .id = self->id};
    here.devices[0] = lk_device_open(name);
    self->right = here.devices[0] && sum_and_leave(self, &here);
    lk_device_release(here.devices[0]);
    lk_error_clear();
    return NULL;
}

/* Rank 1 exits while rank 0 has one more sum to make, and another after that. */
static void a_rank_that_leaves(void **state)
{
    (void)state;
    lk_links_id id;
    needs_gpus(2);
    needs_nccl();
    assert_ok(make_id(&id));
    values_of(0);
    setenv("LOCKSTEP_EXCHANGE_TIMEOUT", PATIENCE, 1);
    leaving_rank ranks[2] = {{.rank = 0, .sums = 2, .id = &id}, {.rank = 1, .id = &id}};
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, leaving_main, &ranks[r]), 0);
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    unsetenv("LOCKSTEP_EXCHANGE_TIMEOUT");
    assert_true(ranks[0].right);
    assert_true(ranks[1].right);
    assert_int_equal(ranks[0].status, LK_ERR_DEVICE);
    lk__fail(LK_ERR_DEVICE, "%s", ranks[0].message);
    complains("the exchange between GPUs has stood still for " PATIENCE " s; of 2 ranks, rank 0 on cuda:0 waits: ");
}

/* Starts this program again as rank `rank`, which writes its id to descriptor 1, or reads it from descriptor 0. `how`:
 * --rank, or --leaving-rank, in which rank 1 dies. */
static pid_t start_rank(char *how, int rank, const int between[2])
{
    extern char **environ;
    pid_t child;
    char text[8];
    snprintf(text, sizeof text, "%d", rank);
    char *arguments[] = {"links_allreduce_test", how, text, NULL};
    posix_spawn_file_actions_t files;
    assert_int_equal(posix_spawn_file_actions_init(&files), 0);
    posix_spawn_file_actions_adddup2(&files, rank == 0 ? between[1] : between[0], rank == 0 ? 1 : 0);
    int failed = posix_spawn(&child, "/proc/self/exe", &files, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    assert_int_equal(failed, 0);
    return child;
}

enum { PROCESSES = 2 };

/* Waits a limited time. Ends a rank that hangs, or whose peer has failed. `killed`: this rank must be killed, the
 * others must succeed. */
static bool all_end_well(const pid_t children[PROCESSES], int killed)
{
    enum { SECONDS = 120 };
    bool right = true;
    int left = PROCESSES;
    for (int tenths = 0; left > 0; tenths++) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            bool is_to_die = killed >= 0 && ended == children[killed];
            left--;
            right = right && (is_to_die ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                        : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        } else {
            poll(NULL, 0, 100);
        }
        for (int r = 0; r < PROCESSES && left > 0 && (!right || tenths > 10 * SECONDS); r++)
            kill(children[r], SIGKILL);
    }
    return right;
}

static void run_processes(char *how, int killed)
{
    int between[2];
    pid_t children[PROCESSES];
    needs_gpus(PROCESSES);
    needs_nccl();
    assert_int_equal(pipe(between), 0);
    for (int r = 0; r < PROCESSES; r++)
        children[r] = start_rank(how, r, between);
    close(between[0]);
    close(between[1]);
    assert_true(all_end_well(children, killed));
}

static void ranks_in_processes(void **state)
{
    (void)state;
    run_processes("--rank", -1);
}

/* Its process exits without telling anybody. */
static void a_rank_that_dies(void **state)
{
    (void)state;
    setenv("LOCKSTEP_EXCHANGE_TIMEOUT", PATIENCE, 1);
    run_processes("--leaving-rank", 1);
    /* As if nobody told NCCL: the ranks reach each other's memory. */
    setenv("LOCKSTEP_EMULATED_NCCL_SILENT", "1", 1);
    run_processes("--leaving-rank", 1);
    unsetenv("LOCKSTEP_EMULATED_NCCL_SILENT");
    unsetenv("LOCKSTEP_EXCHANGE_TIMEOUT");
}

/* The error of the other rank: NCCL's or the time limit's, perhaps before it has its part of the first sum. */
static bool outlives(int rank, const lk_links_id *id)
{
    leaving_rank self = {.rank = rank, .sums = rank == 0 ? 2 : 0, .dies = rank == 1, .may_fail = rank == 0, .id = id};
    values_of(0);
    leaving_main(&self);
    bool is_named = strstr(self.message, "the exchange between GPUs has stood still for " PATIENCE
                                         " s; of 2 ranks, rank 0 on cuda:0 waits") ||
                    strstr(self.message, "NCCL: exchange between GPUs: ");
    if (!is_named)
        fprintf(stderr, "rank %d is told '%s'\n", rank, self.message);
    return self.right && self.status != LK_OK && is_named;
}

/* A rank started by the test; returns 0 if all is right. */
static int rank_process(int rank, bool leaves)
{
    lk_links_id id;
    bool has_id = rank == 0 ? make_id(&id) == LK_OK && write(STDOUT_FILENO, &id, sizeof id) == (ssize_t)sizeof id
                            : read(STDIN_FILENO, &id, sizeof id) == (ssize_t)sizeof id;
    if (!has_id) {
        fprintf(stderr, "rank %d has no id: %s\n", rank, lk_error_message());
        return 1;
    }
    return (leaves ? outlives(rank, &id) : run_rank(rank, PROCESSES, &id)) ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && (strcmp(argv[1], "--rank") == 0 || strcmp(argv[1], "--leaving-rank") == 0))
        return rank_process(atoi(argv[2]), strcmp(argv[1], "--leaving-rank") == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_that_are_taken),
        cmocka_unit_test(devices_of_one_gpu),
        cmocka_unit_test(peers),
        cmocka_unit_test(nccl_in_one_thread),
        cmocka_unit_test(memory_goes_back_meanwhile),
        cmocka_unit_test(libraries_start_meanwhile),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(ranks_in_threads),
        cmocka_unit_test(ranks_in_processes),
        cmocka_unit_test(a_rank_that_is_not_started),
        cmocka_unit_test(a_rank_that_leaves),
        cmocka_unit_test(a_rank_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
