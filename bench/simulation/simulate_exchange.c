/* Simulates the exchange of a training step: runs under SimGrid's SMPI, in which every rank is a thread of one process
 * and messages take the time that a described network needs. The plans, their steps and the MPI transport are those of
 * the library. Computing is a pause of given length. `../simulate` builds and starts this program.
 *
 *     simulate_exchange WAY STEP ADDING BUCKET
 *
 * WAY: auto, flat, tree, or mpi: MPI_Allreduce, whose additions take no time.
 *
 * STEP: a file with a line for each parameter, in the model's order: its number of words, and the second of the step
 * from which its gradient can be exchanged.
 *
 * ADDING: bytes that a rank reads and writes a second when it adds up; 0: check the sums, on real memory.
 *
 * BUCKET: bytes of gradients that fill a bucket, unless it has most of what is left: see lk__bucket_plan.
 *
 * Each rank prints the second of the step in which it has all sums, and rank 0 the number of buckets. */
#include "base/mem.h"
#include "base/minmax.h"
#include "core/backend.h"
#include "dist/collectives/exchange_run.h"
#include "dist/sum/bucket_plan.h"
#include "dist/sum/remote_nodes.h"
#include "dist/sum/tree.h"

#include <math.h>
#include <mpi.h>
#include <simgrid/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The second of the simulation in which the step begins. Ranks join at different times, but all have one clock. */
enum { START = 1 };

enum { MOST_QUANTITIES = 512, MOST_RANKS = 1024, SHARDS_CHECKED = 3 };

/* The plug-in is linked, not loaded. */
const lk_messages *lk_messages_of_plugin(void);

struct lk_group {
    const lk_messages *table;
    int rank, ranks;
};

typedef struct parameters {
    int n;
    lk_shape shapes[MOST_QUANTITIES];
    lk_dtype dtypes[MOST_QUANTITIES];
    double ready[MOST_QUANTITIES];
    int64_t bytes[MOST_QUANTITIES];
    int buckets[MOST_QUANTITIES];
} parameters;

static double adding; /* bytes per second; 0: really add */

/* Ends the simulation: a rank that is missing would leave the others waiting. */
static void stop(const char *why)
{
    fprintf(stderr, "simulate_exchange: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static void check(lk_status status)
{
    if (status != LK_OK)
        stop(lk_error_message());
}

/* --- what the transport needs of the library -------------------------------------------------------------------------
 */

void *lk__device_calloc(lk_device *device, size_t count, size_t size)
{
    (void)device;
    return lk__calloc(count, size);
}

void lk__device_free(lk_device *device, void *memory)
{
    (void)device;
    lk__free(memory);
}

size_t lk_dtype_size(lk_dtype dtype)
{
    return dtype == LK_F32 ? sizeof(float) : 0; /* there is nothing else here */
}

/* Like the library's, but waits in place of polling, since each poll would take simulated time. */
lk_status lk__group_exchange(lk_group *group, lk_channel channel, const lk_group_message *messages, int n)
{
    char error[LK_MESSAGES_ERROR];
    lk_message *in_flight = lk__calloc((size_t)n + 1, sizeof *in_flight);
    if (!in_flight)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        if (group->table->begin(messages[i].is_sent, channel, messages[i].other, messages[i].data, messages[i].bytes,
                                &in_flight[i], error) != LK_MESSAGES_OK)
            stop(error);
    for (int i = 0; i < n; i++)
        MPI_Wait((MPI_Request *)(void *)&in_flight[i], MPI_STATUS_IGNORE);
    lk__free(in_flight);
    return LK_OK;
}

/* MPI's messages go to one rank each. */
size_t lk__group_most_to_all(const lk_group *group)
{
    return group->table->most_to_all;
}

/* SMPI promises a single thread, which is all that there is here, but the plug-in asks for more. */
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    *provided = wanted;
    return MPI_Init(argc, argv);
}

static void pause_for(double seconds)
{
    double whole = floor(seconds);
    struct timespec time = {(time_t)whole, (long)((seconds - whole) * 1e9)};
    if (seconds > 0)
        nanosleep(&time, NULL);
}

static lk_status sum_words(lk_device *links, int on, const lk_links_sum *s)
{
    float *y = s->y;
    (void)links, (void)on;
    if (adding > 0)
        pause_for((double)s->count * (s->n_addends + 1) * sizeof *y / adding);
    for (int64_t i = 0; i < s->count && adding <= 0; i++) {
        float stack[LK_LINKS_LEVELS + 1];
        int depth = 0;
        for (int a = 0; a < s->n_addends; a++) {
            stack[depth++] = ((const float *)s->addends[a])[i];
            for (int n = 0; n < s->additions[a]; n++, depth--)
                stack[depth - 2] += stack[depth - 1];
        }
        y[i] = stack[0];
    }
    return LK_OK;
}

static const lk_links_table links = {.in_place = true, .sum = sum_words};

/* --- the step -------------------------------------------------------------------------------------------------------
 */

static void read_parameters(const char *path, parameters *p)
{
    long long words;
    FILE *file = fopen(path, "r");
    if (!file)
        stop("the step's file cannot be read");
    for (p->n = 0; p->n < MOST_QUANTITIES && fscanf(file, "%lld %lf", &words, &p->ready[p->n]) == 2; p->n++) {
        p->shapes[p->n] = LK_SHAPE(words);
        p->dtypes[p->n] = LK_F32;
        p->bytes[p->n] = words * (int64_t)sizeof(float);
    }
    if (p->n == 0 || !feof(file))
        stop("the step's file is not: words and a second, for each of at most 512 parameters");
    fclose(file);
}

/* Spread over magnitudes, so that another order of additions would give other bits. */
static float value_of(int64_t shard, int64_t word)
{
    uint32_t x = (uint32_t)(shard * 7919 + word + 1) * UINT32_C(2654435761);
    return ldexpf((float)(x >> 8) - (float)(1 << 23), (int)(x & 15));
}

/* The tree in plain C. */
static float sum_of(lk_range shards, int64_t word)
{
    if (shards.end - shards.begin == 1)
        return value_of(shards.begin, word);
    int64_t middle = lk__tree_middle(shards);
    return sum_of((lk_range){shards.begin, middle}, word) + sum_of((lk_range){middle, shards.end}, word);
}

/* The memory of a rank. If it only simulates, all ranks share it, and nothing is copied. */
static float *memory_new(int64_t words)
{
    size_t bytes = (size_t)lk__max(words, 1) * sizeof(float);
    float *memory = adding > 0 ? SMPI_SHARED_MALLOC(bytes) : malloc(bytes);
    if (!memory)
        stop("out of memory");
    return memory;
}

static void memory_free(float *memory)
{
    if (adding > 0)
        SMPI_SHARED_FREE(memory);
    else
        free(memory);
}

/* The quantities of a bucket as they are exchanged: in one row. */
typedef struct bucket_row {
    lk_exchange_row of;
    lk_exchange_span spans[MOST_QUANTITIES];
} bucket_row;

static void exchange(lk_group *group, lk_exchange way, const bucket_row *row, int64_t shards)
{
    int n = row->of.n_spans;
    static lk_range owned[MOST_RANKS];
    static int starts[MOST_RANKS + 1];
    lk_range cover[LK_TREE_COVER];
    int n_nodes = 0, first_own = 0, own = 0;
    for (int r = 0; r <= group->ranks; r++)
        starts[r] = r;
    lk_exchange_node *nodes = lk__calloc((size_t)shards, sizeof *nodes);
    for (int r = 0; r < group->ranks && nodes; r++) {
        owned[r] = lk_part(shards, group->ranks, r);
        int nodes_of_rank = lk__tree_cover(shards, owned[r], cover);
        if (r == group->rank)
            first_own = n_nodes, own = nodes_of_rank;
        for (int i = 0; i < nodes_of_rank; i++)
            nodes[n_nodes++] = (lk_exchange_node){cover[i], r};
    }
    const float **values = lk__calloc((size_t)n_nodes * (size_t)n, sizeof *values);
    if (!values)
        stop("out of memory");
    float *mine = memory_new(own * row->of.words);
    for (int m = 0; m < own; m++)
        for (int s = 0; s < n; s++) {
            float *of = mine + m * row->of.words + row->spans[s].begin;
            values[(first_own + m) * n + s] = of;
            for (int64_t i = 0; i < row->spans[s].words && adding <= 0; i++)
                of[i] = sum_of(nodes[first_own + m].range, row->spans[s].begin + i);
        }
    bool along_tree = lk__exchange_row_takes_tree(&lk__transport_mpi.cost, way, group->ranks, row->of.words, false);
    lk_exchange_plan_opts opts = {.owned = owned,
                                  .ranks = group->ranks,
                                  .nodes = nodes,
                                  .n_nodes = n_nodes,
                                  .row = row->of.words,
                                  .whole = row->of.whole,
                                  .in_place = true,
                                  .flat = along_tree ? 2 : (int)lk__max(2, group->ranks),
                                  .first = group->rank,
                                  .n = 1};
    lk_exchange_plan *plan;
    check(lk__exchange_plan_new(&opts, &plan));
    float *buffer = memory_new(plan->words[0]);
    float *sum = buffer + lk__exchange_sum_begin(own, opts.row, opts.in_place);
    lk_transfer *list = lk__calloc(lk__exchange_transfers(plan, n) + 1, sizeof *list);
    if (!list)
        stop("out of memory");
    check(lk__exchange_run(&(lk_exchange_run){.plan = plan,
                                              .transport = &lk__transport_mpi,
                                              .table = &links,
                                              .group = &(lk_exchange_group){group, starts},
                                              .dtype = LK_F32,
                                              .along_tree = along_tree,
                                              .n_spans = n,
                                              .spans = row->spans,
                                              .values = values,
                                              .buffers = &buffer,
                                              .sums = &sum,
                                              .list = list}));
    for (int s = 0; s < n && adding <= 0; s++)
        for (int64_t i = row->spans[s].begin; i < row->spans[s].begin + row->spans[s].words; i++)
            if (sum[i] != sum_of((lk_range){0, shards}, i))
                stop("a sum is wrong");
    memory_free(buffer);
    memory_free(mine);
    lk__free(list);
    lk__free(values);
    lk__free(nodes);
    lk__exchange_plan_release(plan);
}

static void allreduce(int64_t words)
{
    float *x = memory_new(words), *y = memory_new(words);
    MPI_Allreduce(x, y, (int)words, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    memory_free(y);
    memory_free(x);
}

static lk_exchange way_of(const char *name)
{
    return strcmp(name, "flat") == 0   ? LK_EXCHANGE_FLAT
           : strcmp(name, "tree") == 0 ? LK_EXCHANGE_TREE
                                       : LK_EXCHANGE_AUTO;
}

static void run_step(lk_group *group, const char *way, const parameters *p)
{
    bucket_row row;
    lk_remote_nodes *remote;
    const int *bucket;
    const double began = START;
    lk_remote_nodes_opts opts = {.shards = group->ranks,
                                 .first = group->rank,
                                 .k = 1,
                                 .ranks = group->ranks,
                                 .n = p->n,
                                 .shapes = p->shapes,
                                 .dtypes = p->dtypes};
    if (MPI_Wtime() > began)
        stop("joining took too long");
    check(lk__remote_nodes_new(&opts, &remote));
    lk__remote_nodes_set_buckets(remote, p->n, p->buckets);
    for (int i = 0; i < p->n; i++)
        lk__remote_nodes_learn(remote, i, true);
    for (int done = 0, n; (n = lk__remote_nodes_bucket(remote, done, &bucket)) > 0; done += n) {
        double ready = 0;
        for (int i = 0; i < n; i++)
            ready = fmax(ready, p->ready[bucket[i]]);
        pause_for(began + ready - MPI_Wtime());
        row.of = lk__exchange_row_lay_out(p->shapes, LK_F32, bucket, n, NULL, row.spans);
        if (strcmp(way, "mpi") == 0)
            allreduce(row.of.words);
        else
            exchange(group, way_of(way), &row, adding > 0 ? group->ranks : (int64_t)SHARDS_CHECKED * group->ranks - 1);
    }
    lk__remote_nodes_release(remote);
    printf("%.9f\n", MPI_Wtime() - began);
}

/* SMPI finds it in each rank's copy of this program. */
__attribute__((visibility("default"))) int main(int argc, char **argv)
{
    char error[LK_MESSAGES_ERROR];
    static parameters p;
    lk_group group = {.table = lk_messages_of_plugin()};
    if (argc != 5)
        stop("give a way, a file, bytes per second and bytes of a bucket");
    adding = strtod(argv[3], NULL);
    read_parameters(argv[2], &p);
    /* As in a replay SMPI moves no data, also not into the memory that MPI_Allreduce allocates. */
    if (strcmp(argv[1], "mpi") == 0) {
        smpi_replay_init(sg_actor_get_property_value(sg_actor_self(), "instance_id"),
                         atoi(sg_actor_get_property_value(sg_actor_self(), "rank")), 0);
        MPI_Comm_rank(MPI_COMM_WORLD, &group.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &group.ranks);
    } else if (group.table->open(&group.rank, &group.ranks, error) != LK_MESSAGES_OK) {
        stop(error);
    }
    if (group.ranks > MOST_RANKS)
        stop("there can be at most 1,024 ranks");
    int buckets = lk__bucket_plan(p.bytes, p.n, atoll(argv[4]), true, p.buckets);
    if (group.rank == 0)
        printf("%d buckets\n", buckets);
    run_step(&group, argv[1], &p);
    MPI_Finalize();
    return 0;
}
