#include "dist/collectives/links_allreduce.h"

#include "base/abandon.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "dist/block.h"
#include "dist/collectives/exchange_run.h"
#include "dist/transports/exchange_buffers.h"

#include <pthread.h>
#include <string.h>

/* Buffers are counted in words of four bytes for every dtype. KEPT: plans, one for each bucket and size of batch. */
enum { WORD = sizeof(float), KEPT = 64 };

struct lk_links_allreduce {
    lk_device **devices; /* [n] */
    int n, first, ranks;
    const lk_transport *transport;
    const lk_links_table *table;
    const lk_exchange_group *group;
    lk_exchange way;
    lk_device *links;
    pthread_mutex_t lock; /* guards all members below and the order of pushing: all ranks exchange in one order */
    lk_exchange_buffers buffers;
    lk_exchange_plan *plans[KEPT]; /* one reference each */
    int next_plan;                 /* the one to be replaced next */
    lk_range *owned;               /* [ranks], like nodes for the next plan */
    lk_exchange_node *nodes;
    int64_t node_capacity;
};

/* --- opening and closing ------------------------------------------------------------------------------------------ */

void lk__links_allreduce_release(lk_links_allreduce *a)
{
    if (!a)
        return;
    lk_device_release(a->links);
    lk__exchange_buffers_release(&a->buffers);
    for (int i = 0; i < KEPT; i++)
        lk__exchange_plan_release(a->plans[i]);
    pthread_mutex_destroy(&a->lock);
    LK_FREE_ALL(a->devices, a->owned, a->nodes, a);
}

static lk_status links_allreduce_look_at_processes(void *processes)
{
    return lk__group_look(processes);
}

static lk_status links_allreduce_open_links(lk_links_allreduce *a, const lk_links_allreduce_opts *opts)
{
    lk_links_opts links = {.table = a->table,
                           .devices = a->devices,
                           .n = a->n,
                           .has_communicator = a->transport->reduce,
                           .id = opts->id,
                           .first = a->first,
                           .ranks = a->ranks,
                           .others = a->group ? links_allreduce_look_at_processes : NULL,
                           .user = a->group ? a->group->processes : NULL};
    return lk__links_open(&links, &a->links);
}

lk_status lk__links_allreduce_new(const lk_links_allreduce_opts *opts, lk_links_allreduce **out)
{
    lk_links_allreduce *a = lk__calloc(1, sizeof *a);
    if (!a)
        return LK_ERR_MEMORY;
    pthread_mutex_init(&a->lock, NULL);
    a->n = opts->n;
    bool is_part = opts->id || opts->group;
    a->first = is_part ? opts->first : 0;
    a->ranks = is_part ? opts->ranks : opts->n;
    a->transport = opts->transport;
    a->table = opts->table;
    a->group = opts->group;
    a->devices = lk__calloc((size_t)a->n, sizeof(lk_device *));
    a->owned = lk__calloc((size_t)a->ranks, sizeof *a->owned);
    lk_status status = a->devices && a->owned ? LK_OK : LK_ERR_MEMORY;
    for (int d = 0; d < a->n && status == LK_OK; d++)
        a->devices[d] = opts->devices[d];
    a->buffers = (lk_exchange_buffers){.devices = a->devices, .n = a->n};
    if (status == LK_OK)
        status = links_allreduce_open_links(a, opts);
    if (status == LK_OK)
        *out = a;
    else
        lk__links_allreduce_release(a);
    return status;
}

void lk__links_allreduce_set_exchange(lk_links_allreduce *a, lk_exchange way)
{
    a->way = way;
}

lk_exchange_links lk__links_allreduce_describe(const lk_links_allreduce *a)
{
    return (lk_exchange_links){a->links, a->table, a->transport};
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

typedef struct links_allreduce_job job;

/* Copies the values of a device's nodes into its buffer, in the device's own stream. */
typedef struct packing {
    lk_task task;
    job *job;
    int device, first, n; /* the job's pieces [first, first + n) */
} packing;

/* Quantity q of node m, which is node `position` of its device. */
typedef struct piece {
    lk_tensor *value; /* holds a reference */
    int m, position, q;
    int span; /* of the row, that has the quantity */
} piece;

/* The sizes of an exchange of a row of quantities, which is laid out alike on every rank. */
typedef struct measures {
    lk_exchange_row row;
    bool along_tree;
    bool packed; /* all values are copied into rows, not only small ones */
    bool compressed;
} measures;

struct links_allreduce_job {
    lk_task exchange;
    lk_refcount references; /* of tasks in flight, and the creator's */
    lk_device *home;        /* the device whose memory holds this job */
    const lk_links_allreduce *allreduce;
    lk_abandoned abandoned;
    measures of;
    lk_exchange_plan *plan; /* one reference; NULL: the transport's library adds up, not the devices */
    lk_range root;
    lk_dtype dtype;
    int n_nodes, n_quantities, n; /* n: of `allreduce`, which may be gone when the last reference is released */

    lk_exchange_node *nodes; /* [n_nodes] */
    int64_t *begins;         /* [n_quantities]: their first words in the row */
    lk_exchange_span *spans; /* [of.row.n_spans] */
    const float **values;    /* [n_nodes * of.row.n_spans]: of this process's nodes, where they are */
    float **buffers;         /* [n], like sums */
    float **sums;            /* rows in the buffers */
    lk_tensor **taken;       /* [n]: the buffers, one reference each */
    lk_storage **storage;    /* [n]: of the buffers */
    packing *packings;       /* [n] */
    int n_pieces;
    piece *pieces;
    lk_storage **reads;     /* [n_pieces]: storages of the pieces' values */
    lk_links_copy *copies;  /* [n_pieces] */
    lk_transfer *transfers; /* of one step */
};

static void links_allreduce_job_release(job *j)
{
    if (!lk__refcount_release(&j->references))
        return;
    for (int i = 0; i < j->n_pieces; i++)
        lk_tensor_release(j->pieces[i].value);
    for (int d = 0; d < j->n; d++)
        lk_tensor_release(j->taken[d]);
    lk__exchange_plan_release(j->plan);
    lk_device *home = j->home;
    lk__device_free(home, j);
    lk__device_release_memory(home);
}

static void links_allreduce_packing_release(lk_task *task)
{
    links_allreduce_job_release(((packing *)task)->job);
}

static void links_allreduce_exchange_release(lk_task *task)
{
    links_allreduce_job_release((job *)task);
}

/* --- on the devices' threads -------------------------------------------------------------------------------------- */

static int64_t links_allreduce_words_in(const lk_tensor *x)
{
    return lk_tensor_count(x) * (int64_t)lk_dtype_size(x->dtype) / WORD;
}

static lk_status links_allreduce_check_written(const lk_tensor *value)
{
    if (!value->storage->data)
        LK_FAIL(LK_ERR_STATE, "allreduce: a tensor was made by lk_tensor_new and never written");
    return LK_OK;
}

/* The first word of the sum's row in device d's buffer. */
static int64_t links_allreduce_sum_begin(const job *j, int d)
{
    int own = 0;
    for (int m = 0; m < j->n_nodes; m++)
        own += j->nodes[m].rank == j->allreduce->first + d;
    return lk__exchange_sum_begin(own, j->of.row.words, !j->of.packed);
}

/* The words that are copied of a node of device d. If others are read in place, they lie behind what the plan needs. */
static float *links_allreduce_copied_row(const job *j, int d, int position)
{
    int64_t begin = j->of.packed ? position * j->of.row.words : j->plan->words[d] + position * j->of.row.copied;
    return (float *)j->storage[d]->data + begin;
}

/* Copies values into rows, and notes where others are that are read in place. */
static lk_status links_allreduce_pack_on(lk_device *device, const packing *p)
{
    const job *j = p->job;
    lk_storage *storage = j->storage[p->device];
    int n = 0;
    LK_TRY(lk__storage_allocate(storage, storage->bytes, NULL));
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        float *row = links_allreduce_copied_row(j, p->device, from->position);
        bool is_copied = j->of.packed || j->begins[from->q] < j->of.row.copied;
        LK_TRY(links_allreduce_check_written(from->value));
        const float *value = lk__data(from->value);
        if (!j->of.packed)
            j->values[from->m * j->of.row.n_spans + from->span] = is_copied ? row : value;
        if (is_copied)
            j->copies[p->first + n++] =
                (lk_links_copy){value, row + j->begins[from->q], links_allreduce_words_in(from->value)};
    }
    return j->allreduce->table->pack(device, j->copies + p->first, n);
}

static lk_status links_allreduce_packing_run(lk_task *task)
{
    return links_allreduce_pack_on(task->device, (const packing *)task);
}

/* --- on the links' thread ----------------------------------------------------------------------------------------- */

static int64_t links_allreduce_elements_in(const job *j, int64_t words)
{
    return words * WORD / (int64_t)lk_dtype_size(j->dtype);
}

/* Adds up only device d's own nodes, over the whole row, for the transport's reduction. */
static lk_status links_allreduce_sum_own(const job *j, int d)
{
    const lk_links_allreduce *a = j->allreduce;
    lk_links_sum sum = {.y = j->sums[d], .dtype = j->dtype, .count = links_allreduce_elements_in(j, j->of.row.words)};
    lk_range ranges[LK_LINKS_ALLREDUCE_PARTS];
    for (int m = 0; m < j->n_nodes; m++) {
        if (j->nodes[m].rank != a->first + d)
            continue;
        ranges[sum.n_addends] = j->nodes[m].range;
        sum.addends[sum.n_addends] = j->buffers[d] + sum.n_addends * j->of.row.words;
        sum.n_addends++;
    }
    if (sum.n_addends == 0)
        return a->table->clear(a->links, d, sum.y, j->of.row.words);
    lk__tree_postfix(j->root, ranges, sum.n_addends, sum.additions);
    return a->table->sum(a->links, d, &sum);
}

static lk_status links_allreduce_reduce(const job *j)
{
    const lk_links_allreduce *a = j->allreduce;
    for (int d = 0; d < a->n; d++)
        LK_TRY(links_allreduce_sum_own(j, d));
    return a->transport->reduce(&(lk_transport_rows){a->links, a->table, a->n, a->first, j->sums, j->of.row.words});
}

/* Keeps the job's memory for the rest of the process, because the transport may still write to it. */
static void links_allreduce_job_keep(job *j)
{
    lk__refcount_retain(&j->references);
    lk__device_retain_memory(j->allreduce->links);
    lk__abandon(&j->abandoned);
}

static lk_status links_allreduce_job_exchange(job *j)
{
    const lk_links_allreduce *a = j->allreduce;
    if (a->group)
        LK_TRY(lk__group_check(a->group->processes));
    lk__activity_set(a->n < a->ranks ? LK_ACTIVITY_WAIT_REMOTE : LK_ACTIVITY_OPERATOR, "exchange");
    for (int d = 0; d < a->n && a->table->in_place; d++)
        LK_TRY(links_allreduce_pack_on(a->links, &j->packings[d]));
    for (int d = 0; d < a->n; d++) {
        j->buffers[d] = j->storage[d]->data;
        j->sums[d] = j->buffers[d] + links_allreduce_sum_begin(j, d);
    }
    if (!j->plan)
        return links_allreduce_reduce(j);
    return lk__exchange_run(&(lk_exchange_run){.plan = j->plan,
                                               .transport = a->transport,
                                               .links = a->links,
                                               .table = a->table,
                                               .group = a->group,
                                               .dtype = j->dtype,
                                               .along_tree = j->of.along_tree,
                                               .compressed = j->of.compressed,
                                               .n_spans = j->of.row.n_spans,
                                               .spans = j->spans,
                                               .values = j->values,
                                               .buffers = j->buffers,
                                               .sums = j->sums,
                                               .list = j->transfers});
}

static void links_allreduce_leave_out(lk_task *task, lk_status status, const char *why)
{
    const job *j = (const job *)task;
    if (j->allreduce->group)
        lk__group_give_up(j->allreduce->group->processes, status, why);
}

static lk_status links_allreduce_exchange_run(lk_task *task)
{
    job *j = (job *)task;
    lk_status status = links_allreduce_job_exchange(j);
    if (status != LK_OK && j->allreduce->transport->is_late)
        links_allreduce_job_keep(j);
    if (status != LK_OK)
        links_allreduce_leave_out(task, status, lk_error_message());
    return status;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static int64_t links_allreduce_align_words(int64_t words)
{
    return lk__divide_up(words, LK_EXCHANGE_ALIGN) * LK_EXCHANGE_ALIGN;
}

static bool links_allreduce_goes_along_tree(const lk_links_allreduce *a, int64_t ranks, int64_t words, bool compressed)
{
    return lk__exchange_row_takes_tree(&a->transport->cost, a->way, ranks, words, compressed);
}

/* The same for a sum of one quantity. */
static bool links_allreduce_sends_along_tree(const lk_links_allreduce *a, int64_t ranks, int64_t bytes, bool compressed)
{
    bool is_rounded = compressed && bytes > LK_SMALL_QUANTITY * WORD;
    return links_allreduce_goes_along_tree(a, ranks, lk__divide_up(bytes, WORD), is_rounded);
}

const lk_transport_cost *lk__links_allreduce_cost(const lk_links_allreduce *a)
{
    return &a->transport->cost;
}

lk_exchange lk__links_allreduce_way(const lk_links_allreduce *a, int64_t bytes, bool compressed)
{
    return links_allreduce_sends_along_tree(a, a->ranks, bytes, compressed) ? LK_EXCHANGE_TREE : LK_EXCHANGE_FLAT;
}

int64_t lk__links_allreduce_tree_devices(const lk_links_allreduce *a, int64_t bytes, bool compressed, int64_t most)
{
    int64_t ranks = 2;
    while (ranks <= most && !links_allreduce_sends_along_tree(a, ranks, bytes, compressed))
        ranks *= 2;
    return ranks <= most ? ranks : 0;
}

/* A library collects slices of equal length. A rank does not round its own values, so compressed sums depend on which
 * slices are whose. */
static int64_t links_allreduce_row_words(const lk_links_allreduce *a, int64_t words, bool equal_slices)
{
    return equal_slices ? links_allreduce_align_words(lk__divide_up(words, a->ranks)) * a->ranks
                        : links_allreduce_align_words(words);
}

/* Returns whether a device can add up all nodes at once. ranges: those of the first LK_LINKS_ALLREDUCE_PARTS. */
static bool links_allreduce_ranges_fit_flat(lk_range root, const lk_range *ranges, int n)
{
    unsigned char additions[LK_LINKS_ALLREDUCE_PARTS];
    return n <= LK_LINKS_ALLREDUCE_PARTS && lk__tree_postfix(root, ranges, n, additions) <= LK_LINKS_LEVELS;
}

static bool links_allreduce_fits_flat(const lk_links_allreduce_sum *sum)
{
    lk_range ranges[LK_LINKS_ALLREDUCE_PARTS];
    for (int m = 0; m < sum->n_parts && m < LK_LINKS_ALLREDUCE_PARTS; m++)
        ranges[m] = sum->parts[m].range;
    return links_allreduce_ranges_fit_flat(sum->root, ranges, sum->n_parts);
}

bool lk__links_allreduce_takes_flat(const lk_links_allreduce *a, int64_t shards, int *nodes)
{
    lk_range ranges[LK_LINKS_ALLREDUCE_PARTS], cover[LK_TREE_COVER];
    *nodes = 0;
    for (int r = 0; r < a->ranks; r++) {
        int count = lk__tree_cover(shards, lk_part(shards, a->ranks, r), cover);
        for (int i = 0; i < count; i++, (*nodes)++)
            if (*nodes < LK_LINKS_ALLREDUCE_PARTS)
                ranges[*nodes] = cover[i];
    }
    return links_allreduce_ranges_fit_flat((lk_range){0, shards}, ranges, *nodes);
}

static lk_exchange_row links_allreduce_lay_out(const lk_links_allreduce_sum *sum, int64_t *begins,
                                               lk_exchange_span *spans)
{
    return lk__exchange_row_lay_out(sum->shapes, sum->dtype, sum->quantities, sum->n_quantities, begins, spans);
}

static bool links_allreduce_is_compressed(const lk_links_allreduce_sum *sum)
{
    return sum->compressed && sum->dtype == LK_F32 && !sum->by_library;
}

static measures links_allreduce_measure(const lk_links_allreduce *a, const lk_links_allreduce_sum *sum)
{
    measures of = {.row = links_allreduce_lay_out(sum, NULL, NULL), .packed = !a->table->in_place};
    of.row.whole &= !sum->by_library;
    of.compressed = links_allreduce_is_compressed(sum);
    of.along_tree = !sum->by_library && (!links_allreduce_fits_flat(sum) ||
                                         links_allreduce_goes_along_tree(a, a->ranks, of.row.words, of.compressed));
    of.row.words = links_allreduce_row_words(
        a, of.row.words, of.compressed || (a->transport->gather && !of.along_tree && !of.row.whole));
    return of;
}

/* Finds the plan among those that are kept, or makes it. */
static lk_status links_allreduce_find_plan(lk_links_allreduce *a, const lk_exchange_plan_opts *opts,
                                           lk_exchange_plan **plan)
{
    for (int i = 0; i < KEPT && a->plans[i]; i++) {
        if (!lk__exchange_plan_is_for(a->plans[i], opts))
            continue;
        *plan = a->plans[i];
        lk__refcount_retain(&(*plan)->references);
        return LK_OK;
    }
    LK_TRY(lk__exchange_plan_new(opts, plan));
    lk__refcount_retain(&(*plan)->references);
    lk__exchange_plan_release(a->plans[a->next_plan]);
    a->plans[a->next_plan] = *plan;
    a->next_plan = (a->next_plan + 1) % KEPT;
    return LK_OK;
}

static lk_exchange_plan_opts links_allreduce_plan_opts(const lk_links_allreduce *a, const measures *of, int n_nodes)
{
    return (lk_exchange_plan_opts){.owned = a->owned,
                                   .ranks = a->ranks,
                                   .nodes = a->nodes,
                                   .n_nodes = n_nodes,
                                   .row = of->row.words,
                                   .whole = of->row.whole,
                                   .in_place = !of->packed,
                                   .flat = of->along_tree ? 2 : (int)lk__max(2, a->ranks),
                                   .first = a->first,
                                   .n = a->n};
}

static lk_status links_allreduce_plan(lk_links_allreduce *a, const lk_links_allreduce_sum *sum, const measures *of,
                                      lk_exchange_plan **plan)
{
    LK_TRY(LK_GROW(a->nodes, &a->node_capacity, sum->n_parts));
    for (int m = 0; m < sum->n_parts; m++)
        a->nodes[m] = (lk_exchange_node){sum->parts[m].range, sum->parts[m].rank};
    for (int r = 0; r < a->ranks; r++)
        a->owned[r] = lk_part(sum->root.end, a->ranks, r);
    lk_exchange_plan_opts opts = links_allreduce_plan_opts(a, of, sum->n_parts);
    return links_allreduce_find_plan(a, &opts, plan);
}

static int links_allreduce_count_pieces(const lk_links_allreduce_sum *sum)
{
    int n = 0;
    for (int m = 0; m < sum->n_parts; m++)
        n += sum->parts[m].values ? sum->n_quantities : 0;
    return n;
}

/* Returns the bytes of a job with its arrays, which are one block. If `j` is not NULL, it begins that block, and its
 * array pointers are set. */
static size_t links_allreduce_job_lay_out(job *j, const lk_links_allreduce *a, const lk_links_allreduce_sum *sum,
                                          const measures *of, const lk_exchange_plan *plan)
{
    size_t n = (size_t)a->n, nodes = (size_t)sum->n_parts, quantities = (size_t)sum->n_quantities;
    size_t pieces = (size_t)links_allreduce_count_pieces(sum), used = 0;
    job no_job, *to = j ? j : &no_job;
    lk__block_part(j, &used, 1, sizeof *j);
    to->nodes = lk__block_part(j, &used, nodes, sizeof *to->nodes);
    to->begins = lk__block_part(j, &used, quantities, sizeof *to->begins);
    to->spans = lk__block_part(j, &used, quantities, sizeof *to->spans);
    to->values = lk__block_part(j, &used, of->packed ? 0 : nodes * quantities, sizeof *to->values);
    to->buffers = lk__block_part(j, &used, n, sizeof *to->buffers);
    to->sums = lk__block_part(j, &used, n, sizeof *to->sums);
    to->taken = lk__block_part(j, &used, n, sizeof *to->taken);
    to->storage = lk__block_part(j, &used, n, sizeof *to->storage);
    to->packings = lk__block_part(j, &used, n, sizeof *to->packings);
    to->pieces = lk__block_part(j, &used, pieces, sizeof *to->pieces);
    to->reads = lk__block_part(j, &used, pieces, sizeof *to->reads);
    to->copies = lk__block_part(j, &used, pieces, sizeof *to->copies);
    to->transfers =
        lk__block_part(j, &used, plan ? lk__exchange_transfers(plan, of->row.n_spans) : 0, sizeof *to->transfers);
    return used;
}

/* Takes over the reference to the plan. */
static job *links_allreduce_job_new(const lk_links_allreduce *a, const lk_links_allreduce_sum *sum, const measures *of,
                                    lk_exchange_plan *plan)
{
    lk_device *home = a->devices[0];
    job *j = lk__device_calloc(home, 1, links_allreduce_job_lay_out(NULL, a, sum, of, plan));
    if (!j) {
        lk__exchange_plan_release(plan);
        return NULL;
    }
    links_allreduce_job_lay_out(j, a, sum, of, plan);
    lk__refcount_init(&j->references);
    lk__device_retain_memory(home);
    j->home = home;
    j->allreduce = a;
    j->of = *of;
    j->plan = plan;
    j->root = sum->root;
    j->dtype = sum->dtype;
    j->n_nodes = sum->n_parts;
    j->n_quantities = sum->n_quantities;
    j->n = a->n;
    for (int m = 0; m < sum->n_parts; m++)
        j->nodes[m] = (lk_exchange_node){sum->parts[m].range, sum->parts[m].rank};
    links_allreduce_lay_out(sum, j->begins, j->spans);
    return j;
}

static lk_status links_allreduce_job_list_pieces(job *j, const lk_links_allreduce_sum *sum, int d)
{
    packing *p = &j->packings[d];
    int position = 0;
    p->job = j;
    p->device = d;
    p->first = j->n_pieces;
    for (int m = 0; m < sum->n_parts; m++) {
        if (sum->parts[m].rank != j->allreduce->first + d)
            continue;
        int span = j->of.row.copied > 0;
        for (int q = 0; q < sum->n_quantities; q++) {
            lk_tensor *value = sum->parts[m].values[sum->quantities[q]];
            if (lk_tensor_count(value) == 0) /* has no place in the row */
                continue;
            LK_TRY(lk__tensor_make_plain(value));
            j->pieces[j->n_pieces] =
                (piece){lk_tensor_retain(value), m, position, q, j->begins[q] < j->of.row.copied ? 0 : span++};
            j->reads[j->n_pieces++] = value->storage;
        }
        position++;
    }
    p->n = j->n_pieces - p->first;
    return LK_OK;
}

/* Makes the sums on device d, as views of the sum's row. */
static lk_status links_allreduce_job_make_sums(const job *j, const lk_links_allreduce_sum *sum, int d)
{
    int64_t begin = links_allreduce_sum_begin(j, d);
    for (int q = 0; q < sum->n_quantities; q++) {
        lk_tensor view = {.dtype = sum->dtype,
                          .shape = sum->shapes[sum->quantities[q]],
                          .offset = links_allreduce_elements_in(j, begin + j->begins[q])};
        lk__shape_strides(view.shape, view.strides);
        lk_tensor **out = &sum->sums[(int64_t)d * sum->stride + sum->quantities[q]];
        *out = lk__tensor_over(j->storage[d], &view);
        if (!*out)
            return LK_ERR_MEMORY;
    }
    return LK_OK;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static lk_status links_allreduce_job_push(job *j, lk_task *task)
{
    lk__refcount_retain(&j->references);
    lk_status status = lk__engine_push_task(task);
    if (status != LK_OK)
        links_allreduce_job_release(j);
    return status;
}

static lk_status links_allreduce_job_push_all(job *j)
{
    const lk_links_allreduce *a = j->allreduce;
    bool in_place = a->table->in_place;
    for (int d = 0; d < a->n && !in_place; d++) { /* a device without a node still allocates its buffer this way */
        packing *p = &j->packings[d];
        p->task = (lk_task){.device = a->devices[d],
                            .reads = j->reads + p->first,
                            .writes = j->storage + d,
                            .n_reads = p->n,
                            .n_writes = 1,
                            .run = links_allreduce_packing_run,
                            .release = links_allreduce_packing_release};
        LK_TRY(links_allreduce_job_push(j, &p->task));
    }
    j->exchange = (lk_task){.device = a->links,
                            .reads = j->reads,
                            .n_reads = in_place ? j->n_pieces : 0,
                            .writes = j->storage,
                            .n_writes = a->n,
                            .run = links_allreduce_exchange_run,
                            .leave_out = links_allreduce_leave_out,
                            .release = links_allreduce_exchange_release};
    return links_allreduce_job_push(j, &j->exchange);
}

static int64_t links_allreduce_buffer_words(const job *j, int d)
{
    if (!j->plan)
        return links_allreduce_sum_begin(j, d) + j->of.row.words;
    int own = 0;
    for (int m = 0; m < j->n_nodes && !j->of.packed; m++)
        own += j->nodes[m].rank == j->allreduce->first + d;
    return j->plan->words[d] + own * j->of.row.copied;
}

static lk_status links_allreduce_job_prepare(lk_links_allreduce *a, job *j, const lk_links_allreduce_sum *sum)
{
    int64_t words = 0;
    for (int d = 0; d < a->n; d++)
        words = lk__max(words, links_allreduce_buffer_words(j, d));
    LK_TRY(lk__exchange_buffers_take(&a->buffers, a->links, words, j->taken));
    for (int d = 0; d < a->n; d++)
        j->storage[d] = j->taken[d]->storage;
    for (int d = 0; d < a->n; d++) {
        LK_TRY(links_allreduce_job_list_pieces(j, sum, d));
        LK_TRY(links_allreduce_job_make_sums(j, sum, d));
    }
    return LK_OK;
}

static lk_status links_allreduce_begin(lk_links_allreduce *a, const lk_links_allreduce_sum *sum)
{
    measures of = links_allreduce_measure(a, sum);
    lk_exchange_plan *plan = NULL;
    if (!sum->by_library)
        LK_TRY(links_allreduce_plan(a, sum, &of, &plan));
    job *j = links_allreduce_job_new(a, sum, &of, plan);
    if (!j)
        return LK_ERR_MEMORY;
    lk_status status = links_allreduce_job_prepare(a, j, sum);
    if (status == LK_OK)
        status = links_allreduce_job_push_all(j);
    links_allreduce_job_release(j);
    return status;
}

lk_status lk__links_allreduce_begin(lk_links_allreduce *a, const lk_links_allreduce_sum *sum)
{
    if (sum->by_library && !a->transport->reduce)
        LK_FAIL(LK_ERR_UNSUPPORTED, "allreduce: %s have no reduction of their own", a->transport->name);
    pthread_mutex_lock(&a->lock);
    lk_status status = links_allreduce_begin(a, sum);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* Plans an exchange of everything at once. */
static lk_status links_allreduce_plan_all(lk_links_allreduce *a, int64_t shards, int64_t bytes, lk_exchange_plan **plan)
{
    measures of = {.row.words = links_allreduce_align_words(bytes / WORD), .packed = true};
    int n = 0;
    of.along_tree = links_allreduce_goes_along_tree(a, a->ranks, of.row.words, false);
    for (int r = 0; r < a->ranks; r++) {
        lk_range cover[LK_TREE_COVER];
        a->owned[r] = lk_part(shards, a->ranks, r);
        int count = lk__tree_cover(shards, a->owned[r], cover);
        LK_TRY(LK_GROW(a->nodes, &a->node_capacity, n + count));
        for (int i = 0; i < count; i++)
            a->nodes[n++] = (lk_exchange_node){cover[i], r};
    }
    lk_exchange_plan_opts opts = links_allreduce_plan_opts(a, &of, n);
    return lk__exchange_plan_new(&opts, plan);
}

int64_t lk__links_allreduce_buffer_bytes(lk_links_allreduce *a, int64_t shards, int64_t bytes)
{
    lk_exchange_plan *plan = NULL;
    int64_t least = 0;
    pthread_mutex_lock(&a->lock);
    if (links_allreduce_plan_all(a, shards, bytes, &plan) == LK_OK)
        least = plan->words[0] * WORD;
    else
        lk_error_clear(); /* the exchange itself will report it */
    pthread_mutex_unlock(&a->lock);
    for (int d = 1; plan && d < a->n; d++)
        least = lk__min(least, plan->words[d] * WORD);
    lk__exchange_plan_release(plan);
    return least;
}

/* --- supported sums ----------------------------------------------------------------------------------------------- */

/* By the library a rank adds up its own nodes only. */
bool lk__links_allreduce_takes_tree(const lk_links_allreduce *a, const lk_links_allreduce_sum *sum)
{
    int most = 0, own = 0;
    for (int m = 0; m < sum->n_parts; m++) {
        own = m > 0 && sum->parts[m].rank == sum->parts[m - 1].rank ? own + 1 : 1;
        most = own > most ? own : most;
    }
    if (links_allreduce_fits_flat(sum))
        return true;
    return most <= LK_LINKS_ALLREDUCE_PARTS / 2 &&
           (sum->by_library || (a->ranks > 2 && !links_allreduce_is_compressed(sum)));
}

bool lk__links_allreduce_takes(const lk_links_allreduce *a, const lk_tensor *x)
{
    return (a->table->dtypes & LK_DTYPE_BIT(x->dtype)) && lk__tensor_is_dense(x) && !lk__capturing();
}
