#include "dist/collectives/flat_allreduce.h"

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

struct lk_flat {
    lk_device **devices; /* [n] */
    int n, first, ranks;
    const lk_transport *transport;
    const lk_links_table *table;
    const lk_flat_group *group;
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

void lk__flat_release(lk_flat *f)
{
    if (!f)
        return;
    lk_device_release(f->links);
    lk__exchange_buffers_release(&f->buffers);
    for (int i = 0; i < KEPT; i++)
        lk__exchange_plan_release(f->plans[i]);
    pthread_mutex_destroy(&f->lock);
    LK_FREE_ALL(f->devices, f->owned, f->nodes, f);
}

static lk_status flat_allreduce_look_at_processes(void *processes)
{
    return lk__group_look(processes);
}

static lk_status flat_allreduce_open_links(lk_flat *f, const lk_flat_opts *opts)
{
    lk_links_opts links = {.table = f->table,
                           .devices = f->devices,
                           .n = f->n,
                           .has_communicator = f->transport->reduce,
                           .id = opts->id,
                           .first = f->first,
                           .ranks = f->ranks,
                           .others = f->group ? flat_allreduce_look_at_processes : NULL,
                           .user = f->group ? f->group->processes : NULL};
    return lk__links_open(&links, &f->links);
}

lk_status lk__flat_new(const lk_flat_opts *opts, lk_flat **out)
{
    lk_flat *f = lk__calloc(1, sizeof *f);
    if (!f)
        return LK_ERR_MEMORY;
    pthread_mutex_init(&f->lock, NULL);
    f->n = opts->n;
    bool is_part = opts->id || opts->group;
    f->first = is_part ? opts->first : 0;
    f->ranks = is_part ? opts->ranks : opts->n;
    f->transport = opts->transport;
    f->table = opts->table;
    f->group = opts->group;
    f->devices = lk__calloc((size_t)f->n, sizeof(lk_device *));
    f->owned = lk__calloc((size_t)f->ranks, sizeof *f->owned);
    lk_status status = f->devices && f->owned ? LK_OK : LK_ERR_MEMORY;
    for (int d = 0; d < f->n && status == LK_OK; d++)
        f->devices[d] = opts->devices[d];
    f->buffers = (lk_exchange_buffers){.devices = f->devices, .n = f->n};
    if (status == LK_OK)
        status = flat_allreduce_open_links(f, opts);
    if (status == LK_OK)
        *out = f;
    else
        lk__flat_release(f);
    return status;
}

void lk__flat_set_exchange(lk_flat *f, lk_exchange way)
{
    f->way = way;
}

lk_flat_links lk__flat_links(const lk_flat *f)
{
    return (lk_flat_links){f->links, f->table, f->transport};
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

typedef struct flat_job job;

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
} piece;

/* The sizes of an exchange of a row of quantities, which is laid out alike on every rank. */
typedef struct measures {
    int64_t row; /* words */
    bool whole, along_tree;
    bool packed; /* values are copied into rows, not read where they are */
    bool compressed;
} measures;

struct flat_job {
    lk_task exchange;
    lk_refcount references; /* of tasks in flight, and the creator's */
    lk_device *home;        /* the device whose memory holds this job */
    const lk_flat *flat;
    job *next_kept;
    measures of;
    lk_exchange_plan *plan; /* one reference; NULL: the transport's library adds up, not the devices */
    lk_range root;
    lk_dtype dtype;
    int n_nodes, n_quantities, n; /* n: of flat, which may be gone when the last reference is released */

    lk_exchange_node *nodes; /* [n_nodes] */
    lk_exchange_span *spans; /* [n_quantities] */
    const float **values;    /* [n_nodes * n_quantities]: of this process's nodes, where they are */
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

static void flat_allreduce_job_release(job *j)
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

static void flat_allreduce_packing_release(lk_task *task)
{
    flat_allreduce_job_release(((packing *)task)->job);
}

static void flat_allreduce_exchange_release(lk_task *task)
{
    flat_allreduce_job_release((job *)task);
}

/* --- on the devices' threads -------------------------------------------------------------------------------------- */

static int64_t flat_allreduce_words_in(const lk_tensor *x)
{
    return lk_tensor_count(x) * (int64_t)lk_dtype_size(x->dtype) / WORD;
}

static lk_status flat_allreduce_check_written(const lk_tensor *value)
{
    if (!value->storage->data)
        LK_FAIL(LK_ERR_STATE, "allreduce: a tensor was made by lk_tensor_new and never written");
    return LK_OK;
}

/* The first word of the sum's row in device d's buffer. */
static int64_t flat_allreduce_sum_begin(const job *j, int d)
{
    int own = 0;
    for (int m = 0; m < j->n_nodes; m++)
        own += j->nodes[m].rank == j->flat->first + d;
    return lk__exchange_sum_begin(own, j->of.row, !j->of.packed);
}

static lk_status flat_allreduce_pack_on(lk_device *device, const packing *p)
{
    const job *j = p->job;
    lk_storage *storage = j->storage[p->device];
    LK_TRY(lk__storage_allocate(storage, storage->bytes, NULL));
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        float *row = (float *)storage->data + from->position * j->of.row;
        LK_TRY(flat_allreduce_check_written(from->value));
        j->copies[i] =
            (lk_links_copy){lk__data(from->value), row + j->spans[from->q].begin, flat_allreduce_words_in(from->value)};
    }
    return j->flat->table->pack(device, j->copies + p->first, p->n);
}

static lk_status flat_allreduce_packing_run(lk_task *task)
{
    return flat_allreduce_pack_on(task->device, (const packing *)task);
}

/* --- on the links' thread ----------------------------------------------------------------------------------------- */

/* Packs device d's values, or notes where they are if they are read in place. */
static lk_status flat_allreduce_prepare_values(const job *j, int d)
{
    const packing *p = &j->packings[d];
    if (j->of.packed)
        return flat_allreduce_pack_on(j->flat->links, p);
    lk_storage *storage = j->storage[d];
    LK_TRY(lk__storage_allocate(storage, storage->bytes, NULL));
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        LK_TRY(flat_allreduce_check_written(from->value));
        j->values[from->m * j->n_quantities + from->q] = lk__data(from->value);
    }
    return LK_OK;
}

static int64_t flat_allreduce_elements_in(const job *j, int64_t words)
{
    return words * WORD / (int64_t)lk_dtype_size(j->dtype);
}

/* Adds up only device d's own nodes, over the whole row, for the transport's reduction. */
static lk_status flat_allreduce_sum_own(const job *j, int d)
{
    const lk_flat *f = j->flat;
    lk_links_sum sum = {.y = j->sums[d], .dtype = j->dtype, .count = flat_allreduce_elements_in(j, j->of.row)};
    lk_range ranges[LK_FLAT_PARTS];
    for (int m = 0; m < j->n_nodes; m++) {
        if (j->nodes[m].rank != f->first + d)
            continue;
        ranges[sum.n_addends] = j->nodes[m].range;
        sum.addends[sum.n_addends] = j->buffers[d] + sum.n_addends * j->of.row;
        sum.n_addends++;
    }
    if (sum.n_addends == 0)
        return f->table->clear(f->links, d, sum.y, j->of.row);
    lk__tree_postfix(j->root, ranges, sum.n_addends, sum.additions);
    return f->table->sum(f->links, d, &sum);
}

static lk_status flat_allreduce_reduce(const job *j)
{
    const lk_flat *f = j->flat;
    for (int d = 0; d < f->n; d++)
        LK_TRY(flat_allreduce_sum_own(j, d));
    return f->transport->reduce(&(lk_transport_rows){f->links, f->table, f->n, f->first, j->sums, j->of.row});
}

/* Keeps the job's memory for the rest of the process, because the transport may still write to it. */
static void flat_allreduce_job_keep(job *j)
{
    static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
    static job *kept;
    lk__refcount_retain(&j->references);
    lk__device_retain_memory(j->flat->links);
    pthread_mutex_lock(&keeping);
    j->next_kept = kept;
    kept = j;
    pthread_mutex_unlock(&keeping);
}

static lk_status flat_allreduce_job_exchange(job *j)
{
    const lk_flat *f = j->flat;
    if (f->group)
        LK_TRY(lk__group_check(f->group->processes));
    lk__activity_set(f->n < f->ranks ? LK_ACTIVITY_WAIT_REMOTE : LK_ACTIVITY_OPERATOR, "exchange");
    for (int d = 0; d < f->n && f->table->in_place; d++)
        LK_TRY(flat_allreduce_prepare_values(j, d));
    for (int d = 0; d < f->n; d++) {
        j->buffers[d] = j->storage[d]->data;
        j->sums[d] = j->buffers[d] + flat_allreduce_sum_begin(j, d);
    }
    if (!j->plan)
        return flat_allreduce_reduce(j);
    return lk__exchange_run(&(lk_exchange_run){.plan = j->plan,
                                               .transport = f->transport,
                                               .links = f->links,
                                               .table = f->table,
                                               .group = f->group,
                                               .dtype = j->dtype,
                                               .along_tree = j->of.along_tree,
                                               .compressed = j->of.compressed,
                                               .n_quantities = j->n_quantities,
                                               .spans = j->spans,
                                               .values = j->values,
                                               .buffers = j->buffers,
                                               .sums = j->sums,
                                               .list = j->transfers});
}

static void flat_allreduce_leave_out(lk_task *task, lk_status status, const char *why)
{
    const job *j = (const job *)task;
    if (j->flat->group)
        lk__group_give_up(j->flat->group->processes, status, why);
}

static lk_status flat_allreduce_exchange_run(lk_task *task)
{
    job *j = (job *)task;
    lk_status status = flat_allreduce_job_exchange(j);
    if (status != LK_OK && j->flat->transport->is_late)
        flat_allreduce_job_keep(j);
    if (status != LK_OK)
        flat_allreduce_leave_out(task, status, lk_error_message());
    return status;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static int64_t flat_allreduce_align_words(int64_t words)
{
    return lk__divide_up(words, LK_EXCHANGE_ALIGN) * LK_EXCHANGE_ALIGN;
}

static int64_t flat_allreduce_quantity_words(const lk_flat_sum *sum, int q)
{
    return lk_shape_count(sum->shapes[sum->quantities[q]]) * (int64_t)lk_dtype_size(sum->dtype) / WORD;
}

/* Rounded, words cannot go along the tree: its sums would be rounded at every step, and their bits depend on the way.
 */
static bool flat_allreduce_goes_along_tree(const lk_flat *f, int64_t ranks, int64_t words, bool whole, bool compressed)
{
    if (ranks <= 2 || compressed)
        return false;
    if (ranks > LK_FLAT_PARTS || f->way != LK_EXCHANGE_AUTO)
        return ranks > LK_FLAT_PARTS || f->way == LK_EXCHANGE_TREE;
    return lk__exchange_tree_is_faster(&f->transport->cost, (int)ranks, words * WORD, whole);
}

/* The same for a sum of one quantity. */
static bool flat_allreduce_sends_along_tree(const lk_flat *f, int64_t ranks, int64_t bytes, bool compressed)
{
    bool whole = bytes <= LK_SMALL_QUANTITY * WORD;
    return flat_allreduce_goes_along_tree(f, ranks, lk__divide_up(bytes, WORD), whole, compressed && !whole);
}

lk_exchange lk__flat_exchange(const lk_flat *f, int64_t bytes, bool compressed)
{
    return flat_allreduce_sends_along_tree(f, f->ranks, bytes, compressed) ? LK_EXCHANGE_TREE : LK_EXCHANGE_FLAT;
}

int64_t lk__flat_tree_devices(const lk_flat *f, int64_t bytes, bool compressed, int64_t most)
{
    int64_t ranks = 2;
    while (ranks <= most && !flat_allreduce_sends_along_tree(f, ranks, bytes, compressed))
        ranks *= 2;
    return ranks <= most ? ranks : 0;
}

/* A library collects slices of equal length. A rank does not round its own values, so compressed sums depend on which
 * slices are whose. */
static int64_t flat_allreduce_row_words(const lk_flat *f, int64_t words, bool equal_slices)
{
    return equal_slices ? flat_allreduce_align_words(lk__divide_up(words, f->ranks)) * f->ranks
                        : flat_allreduce_align_words(words);
}

/* Returns whether a device can add up all nodes at once. */
static bool flat_allreduce_fits_flat(const lk_flat_sum *sum)
{
    lk_range ranges[LK_FLAT_PARTS];
    unsigned char additions[LK_FLAT_PARTS];
    if (sum->n_parts > LK_FLAT_PARTS)
        return false;
    for (int m = 0; m < sum->n_parts; m++)
        ranges[m] = sum->parts[m].range;
    return lk__tree_postfix(sum->root, ranges, sum->n_parts, additions) <= LK_LINKS_LEVELS;
}

static bool flat_allreduce_is_compressed(const lk_flat_sum *sum)
{
    return sum->compressed && !sum->whole && sum->dtype == LK_F32;
}

static measures flat_allreduce_measure(const lk_flat *f, const lk_flat_sum *sum)
{
    measures of = {.whole = sum->whole && !sum->by_library};
    for (int q = 0; q < sum->n_quantities; q++)
        of.row += flat_allreduce_align_words(flat_allreduce_quantity_words(sum, q));
    of.compressed = !sum->by_library && flat_allreduce_is_compressed(sum);
    of.along_tree = !sum->by_library && (!flat_allreduce_fits_flat(sum) ||
                                         flat_allreduce_goes_along_tree(f, f->ranks, of.row, of.whole, of.compressed));
    of.packed = !f->table->in_place || of.whole;
    of.row =
        flat_allreduce_row_words(f, of.row, of.compressed || (f->transport->gather && !of.along_tree && !of.whole));
    return of;
}

/* Finds the plan among those that are kept, or makes it. */
static lk_status flat_allreduce_find_plan(lk_flat *f, const lk_exchange_plan_opts *opts, lk_exchange_plan **plan)
{
    for (int i = 0; i < KEPT && f->plans[i]; i++) {
        if (!lk__exchange_plan_is_for(f->plans[i], opts))
            continue;
        *plan = f->plans[i];
        lk__refcount_retain(&(*plan)->references);
        return LK_OK;
    }
    LK_TRY(lk__exchange_plan_new(opts, plan));
    lk__refcount_retain(&(*plan)->references);
    lk__exchange_plan_release(f->plans[f->next_plan]);
    f->plans[f->next_plan] = *plan;
    f->next_plan = (f->next_plan + 1) % KEPT;
    return LK_OK;
}

static lk_exchange_plan_opts flat_allreduce_plan_opts(const lk_flat *f, const measures *of, int n_nodes)
{
    return (lk_exchange_plan_opts){.owned = f->owned,
                                   .ranks = f->ranks,
                                   .nodes = f->nodes,
                                   .n_nodes = n_nodes,
                                   .row = of->row,
                                   .whole = of->whole,
                                   .in_place = !of->packed,
                                   .flat = of->along_tree ? 2 : (int)lk__max(2, f->ranks),
                                   .first = f->first,
                                   .n = f->n};
}

static lk_status flat_allreduce_plan(lk_flat *f, const lk_flat_sum *sum, const measures *of, lk_exchange_plan **plan)
{
    LK_TRY(LK_GROW(f->nodes, &f->node_capacity, sum->n_parts));
    for (int m = 0; m < sum->n_parts; m++)
        f->nodes[m] = (lk_exchange_node){sum->parts[m].range, sum->parts[m].rank};
    for (int r = 0; r < f->ranks; r++)
        f->owned[r] = lk_part(sum->root.end, f->ranks, r);
    lk_exchange_plan_opts opts = flat_allreduce_plan_opts(f, of, sum->n_parts);
    return flat_allreduce_find_plan(f, &opts, plan);
}

static int flat_allreduce_count_pieces(const lk_flat_sum *sum)
{
    int n = 0;
    for (int m = 0; m < sum->n_parts; m++)
        n += sum->parts[m].values ? sum->n_quantities : 0;
    return n;
}

/* Returns the bytes of a job with its arrays, which are one block. If `j` is not NULL, it begins that block, and its
 * array pointers are set. */
static size_t flat_allreduce_job_lay_out(job *j, const lk_flat *f, const lk_flat_sum *sum, const measures *of,
                                         const lk_exchange_plan *plan)
{
    size_t n = (size_t)f->n, nodes = (size_t)sum->n_parts, quantities = (size_t)sum->n_quantities;
    size_t pieces = (size_t)flat_allreduce_count_pieces(sum), used = 0;
    job no_job, *to = j ? j : &no_job;
    lk__block_part(j, &used, 1, sizeof *j);
    to->nodes = lk__block_part(j, &used, nodes, sizeof *to->nodes);
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
        lk__block_part(j, &used, plan ? lk__exchange_transfers(plan, sum->n_quantities) : 0, sizeof *to->transfers);
    return used;
}

/* Takes over the reference to the plan. */
static job *flat_allreduce_job_new(const lk_flat *f, const lk_flat_sum *sum, const measures *of, lk_exchange_plan *plan)
{
    lk_device *home = f->devices[0];
    job *j = lk__device_calloc(home, 1, flat_allreduce_job_lay_out(NULL, f, sum, of, plan));
    if (!j) {
        lk__exchange_plan_release(plan);
        return NULL;
    }
    flat_allreduce_job_lay_out(j, f, sum, of, plan);
    lk__refcount_init(&j->references);
    lk__device_retain_memory(home);
    j->home = home;
    j->flat = f;
    j->of = *of;
    j->plan = plan;
    j->root = sum->root;
    j->dtype = sum->dtype;
    j->n_nodes = sum->n_parts;
    j->n_quantities = sum->n_quantities;
    j->n = f->n;
    for (int m = 0; m < sum->n_parts; m++)
        j->nodes[m] = (lk_exchange_node){sum->parts[m].range, sum->parts[m].rank};
    int64_t begin = 0;
    for (int q = 0; q < sum->n_quantities; q++) {
        j->spans[q] = (lk_exchange_span){begin, flat_allreduce_quantity_words(sum, q)};
        begin += flat_allreduce_align_words(j->spans[q].words);
    }
    return j;
}

static lk_status flat_allreduce_job_list_pieces(job *j, const lk_flat_sum *sum, int d)
{
    packing *p = &j->packings[d];
    int position = 0;
    p->job = j;
    p->device = d;
    p->first = j->n_pieces;
    for (int m = 0; m < sum->n_parts; m++) {
        if (sum->parts[m].rank != j->flat->first + d)
            continue;
        for (int q = 0; q < sum->n_quantities; q++) {
            lk_tensor *value = sum->parts[m].values[sum->quantities[q]];
            LK_TRY(lk__tensor_make_plain(value));
            j->pieces[j->n_pieces] = (piece){lk_tensor_retain(value), m, position, q};
            j->reads[j->n_pieces++] = value->storage;
        }
        position++;
    }
    p->n = j->n_pieces - p->first;
    return LK_OK;
}

/* Makes the sums on device d, as views of the sum's row. */
static lk_status flat_allreduce_job_make_sums(const job *j, const lk_flat_sum *sum, int d)
{
    int64_t begin = flat_allreduce_sum_begin(j, d);
    for (int q = 0; q < sum->n_quantities; q++) {
        lk_tensor view = {.dtype = sum->dtype,
                          .shape = sum->shapes[sum->quantities[q]],
                          .offset = flat_allreduce_elements_in(j, begin + j->spans[q].begin)};
        lk__shape_strides(view.shape, view.strides);
        lk_tensor **out = &sum->sums[(int64_t)d * sum->stride + sum->quantities[q]];
        *out = lk__tensor_over(j->storage[d], &view);
        if (!*out)
            return LK_ERR_MEMORY;
    }
    return LK_OK;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static lk_status flat_allreduce_job_push(job *j, lk_task *task)
{
    lk__refcount_retain(&j->references);
    lk_status status = lk__engine_push_task(task);
    if (status != LK_OK)
        flat_allreduce_job_release(j);
    return status;
}

static lk_status flat_allreduce_job_push_all(job *j)
{
    const lk_flat *f = j->flat;
    bool in_place = f->table->in_place;
    for (int d = 0; d < f->n && !in_place; d++) { /* a device without a node still allocates its buffer this way */
        packing *p = &j->packings[d];
        p->task = (lk_task){.device = f->devices[d],
                            .reads = j->reads + p->first,
                            .writes = j->storage + d,
                            .n_reads = p->n,
                            .n_writes = 1,
                            .run = flat_allreduce_packing_run,
                            .release = flat_allreduce_packing_release};
        LK_TRY(flat_allreduce_job_push(j, &p->task));
    }
    j->exchange = (lk_task){.device = f->links,
                            .reads = j->reads,
                            .n_reads = in_place ? j->n_pieces : 0,
                            .writes = j->storage,
                            .n_writes = f->n,
                            .run = flat_allreduce_exchange_run,
                            .leave_out = flat_allreduce_leave_out,
                            .release = flat_allreduce_exchange_release};
    return flat_allreduce_job_push(j, &j->exchange);
}

static lk_status flat_allreduce_job_prepare(lk_flat *f, job *j, const lk_flat_sum *sum)
{
    int64_t words = 0;
    for (int d = 0; d < f->n; d++)
        words = lk__max(words, j->plan ? j->plan->words[d] : flat_allreduce_sum_begin(j, d) + j->of.row);
    LK_TRY(lk__exchange_buffers_take(&f->buffers, f->links, words, j->taken));
    for (int d = 0; d < f->n; d++)
        j->storage[d] = j->taken[d]->storage;
    for (int d = 0; d < f->n; d++) {
        LK_TRY(flat_allreduce_job_list_pieces(j, sum, d));
        LK_TRY(flat_allreduce_job_make_sums(j, sum, d));
    }
    return LK_OK;
}

static lk_status flat_allreduce_begin(lk_flat *f, const lk_flat_sum *sum)
{
    measures of = flat_allreduce_measure(f, sum);
    lk_exchange_plan *plan = NULL;
    if (!sum->by_library)
        LK_TRY(flat_allreduce_plan(f, sum, &of, &plan));
    job *j = flat_allreduce_job_new(f, sum, &of, plan);
    if (!j)
        return LK_ERR_MEMORY;
    lk_status status = flat_allreduce_job_prepare(f, j, sum);
    if (status == LK_OK)
        status = flat_allreduce_job_push_all(j);
    flat_allreduce_job_release(j);
    return status;
}

lk_status lk__flat_allreduce(lk_flat *f, const lk_flat_sum *sum)
{
    if (sum->by_library && !f->transport->reduce)
        LK_FAIL(LK_ERR_UNSUPPORTED, "allreduce: %s have no reduction of their own", f->transport->name);
    pthread_mutex_lock(&f->lock);
    lk_status status = flat_allreduce_begin(f, sum);
    pthread_mutex_unlock(&f->lock);
    return status;
}

/* Plans an exchange of everything at once. */
static lk_status flat_allreduce_plan_all(lk_flat *f, int64_t shards, int64_t bytes, lk_exchange_plan **plan)
{
    measures of = {.row = flat_allreduce_align_words(bytes / WORD), .packed = true};
    int n = 0;
    of.along_tree = flat_allreduce_goes_along_tree(f, f->ranks, of.row, false, false);
    for (int r = 0; r < f->ranks; r++) {
        lk_range cover[LK_TREE_COVER];
        f->owned[r] = lk_part(shards, f->ranks, r);
        int count = lk__tree_cover(shards, f->owned[r], cover);
        LK_TRY(LK_GROW(f->nodes, &f->node_capacity, n + count));
        for (int i = 0; i < count; i++)
            f->nodes[n++] = (lk_exchange_node){cover[i], r};
    }
    lk_exchange_plan_opts opts = flat_allreduce_plan_opts(f, &of, n);
    return lk__exchange_plan_new(&opts, plan);
}

int64_t lk__flat_buffer_bytes(lk_flat *f, int64_t shards, int64_t bytes)
{
    lk_exchange_plan *plan = NULL;
    int64_t least = 0;
    pthread_mutex_lock(&f->lock);
    if (flat_allreduce_plan_all(f, shards, bytes, &plan) == LK_OK)
        least = plan->words[0] * WORD;
    else
        lk_error_clear(); /* the exchange itself will report it */
    pthread_mutex_unlock(&f->lock);
    for (int d = 1; plan && d < f->n; d++)
        least = lk__min(least, plan->words[d] * WORD);
    lk__exchange_plan_release(plan);
    return least;
}

/* --- supported sums ----------------------------------------------------------------------------------------------- */

/* By the library a rank adds up its own nodes only. */
bool lk__flat_takes_tree(const lk_flat *f, const lk_flat_sum *sum)
{
    int most = 0, own = 0;
    for (int m = 0; m < sum->n_parts; m++) {
        own = m > 0 && sum->parts[m].rank == sum->parts[m - 1].rank ? own + 1 : 1;
        most = own > most ? own : most;
    }
    if (flat_allreduce_fits_flat(sum))
        return true;
    return most <= LK_FLAT_PARTS / 2 && (sum->by_library || (f->ranks > 2 && !flat_allreduce_is_compressed(sum)));
}

bool lk__flat_takes(const lk_flat *f, const lk_tensor *x)
{
    return (f->table->dtypes & LK_DTYPE_BIT(x->dtype)) && lk__tensor_is_dense(x) && !lk__capturing();
}
