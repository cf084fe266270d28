#include "dist/collectives/flat_allreduce.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "dist/block.h"
#include "dist/transports/exchange_buffers.h"

#include <pthread.h>

/* Buffers are counted in words of four bytes for every dtype. */
enum {
    WORD = sizeof(float),
    ALIGN = 64 /* words: quantities and slices begin at multiples of this, for any kernel that reads them */
};

struct lk_flat {
    lk_device **devices; /* [n] */
    int n, first, ranks;
    const lk_transport *transport;
    const lk_links_table *table;
    const lk_flat_group *group;
    lk_device *links;
    pthread_mutex_t lock; /* guards the buffers and the order of pushing: all ranks exchange in one order */
    lk_exchange_buffers buffers;
};

/* --- opening and closing ------------------------------------------------------------------------------------------ */

void lk__flat_release(lk_flat *f)
{
    if (!f)
        return;
    lk_device_release(f->links);
    lk__exchange_buffers_release(&f->buffers);
    pthread_mutex_destroy(&f->lock);
    lk__free(f->devices);
    lk__free(f);
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
    lk_status status = f->devices ? LK_OK : LK_ERR_MEMORY;
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

/* --- jobs --------------------------------------------------------------------------------------------------------- */

typedef struct flat_job job;

/* Copies the values of a device's nodes into its buffer, in the device's own stream. */
typedef struct packing {
    lk_task task;
    job *job;
    int device, first, n; /* the job's pieces [first, first + n) */
} packing;

/* Quantity q of node m, a node of the device. */
typedef struct piece {
    lk_tensor *value; /* holds a reference */
    int m, q;
} piece;

struct flat_job {
    lk_task exchange;
    lk_refcount references; /* of tasks in flight, and the creator's */
    lk_device *home;        /* the device whose memory holds this job */
    const lk_flat *flat;
    job *next_kept;
    lk_flat_exchange e;
    lk_range root;
    lk_dtype dtype;
    bool by_library;  /* the transport's library adds up, not the devices */
    lk_flat_span all; /* the packed row */

    lk_range *ranges;     /* [n_nodes] */
    lk_flat_node *nodes;  /* [n_nodes] */
    lk_flat_span *spans;  /* [n_quantities] */
    const float **values; /* [n_nodes * n_quantities] */
    lk_tensor **buffers;  /* [n]: one reference each */
    lk_storage **storage; /* [n]: of the buffers */
    packing *packings;    /* [n] */
    int n_pieces;
    piece *pieces;
    lk_storage **reads;    /* [n_pieces]: storages of the pieces' values */
    lk_links_copy *copies; /* [n_pieces] */
};

static void flat_allreduce_job_release(job *j)
{
    if (!lk__refcount_release(&j->references))
        return;
    for (int i = 0; i < j->n_pieces; i++)
        lk_tensor_release(j->pieces[i].value);
    for (int d = 0; d < j->e.n; d++)
        lk_tensor_release(j->buffers[d]);
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

static lk_status flat_allreduce_pack_on(lk_device *device, const packing *p)
{
    const job *j = p->job;
    lk_storage *storage = j->storage[p->device];
    LK_TRY(lk__storage_allocate(storage, storage->bytes, NULL));
    j->e.buffers[p->device] = storage->data;
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        float *row = lk__flat_own_row(&j->e, p->device, from->m);
        LK_TRY(flat_allreduce_check_written(from->value));
        j->copies[i] =
            (lk_links_copy){lk__data(from->value), row + j->spans[from->q].begin, flat_allreduce_words_in(from->value)};
    }
    return j->e.table->pack(device, j->copies + p->first, p->n);
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
    if (!j->e.values)
        return flat_allreduce_pack_on(j->e.links, p);
    lk_storage *storage = j->storage[d];
    LK_TRY(lk__storage_allocate(storage, storage->bytes, NULL));
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        LK_TRY(flat_allreduce_check_written(from->value));
        j->values[from->m * j->e.n_spans + from->q] = lk__data(from->value);
    }
    return LK_OK;
}

static int64_t flat_allreduce_elements_in(const job *j, int64_t words)
{
    return words * WORD / (int64_t)lk_dtype_size(j->dtype);
}

/* Adds up device d's slice of the whole tree. */
static lk_status flat_allreduce_finish_tree(const job *j, int d)
{
    const lk_flat_exchange *e = &j->e;
    lk_links_sum sum = {.dtype = j->dtype, .n_addends = e->n_nodes};
    lk__tree_postfix(j->root, j->ranges, e->n_nodes, sum.additions);
    for (int s = 0; s < e->n_spans; s++) {
        lk_range words = lk__flat_span_part(e, s, e->first + d);
        if (words.begin == words.end)
            continue;
        for (int m = 0; m < e->n_nodes; m++)
            sum.addends[m] = lk__flat_words(e, d, m, s, words.begin);
        sum.y = lk__flat_sum_row(e, d) + words.begin;
        sum.count = flat_allreduce_elements_in(j, words.end - words.begin);
        LK_TRY(e->table->sum(e->links, d, &sum));
    }
    return LK_OK;
}

/* Adds up only device d's own nodes, over the whole row, for the transport's reduction. */
static lk_status flat_allreduce_sum_own(const job *j, int d)
{
    const lk_flat_exchange *e = &j->e;
    lk_links_sum sum = {.y = lk__flat_sum_row(e, d), .dtype = j->dtype, .count = flat_allreduce_elements_in(j, e->row)};
    lk_range ranges[LK_FLAT_PARTS];
    for (int m = 0; m < e->n_nodes; m++) {
        if (j->nodes[m].rank != e->first + d)
            continue;
        ranges[sum.n_addends] = j->ranges[m];
        sum.addends[sum.n_addends++] = lk__flat_own_row(e, d, m);
    }
    if (sum.n_addends == 0)
        return e->table->clear(e->links, d, sum.y, e->row);
    lk__tree_postfix(j->root, ranges, sum.n_addends, sum.additions);
    return e->table->sum(e->links, d, &sum);
}

static lk_status flat_allreduce_on_each(const job *j, lk_status (*fn)(const job *, int))
{
    for (int d = 0; d < j->e.n; d++)
        LK_TRY(fn(j, d));
    return LK_OK;
}

/* Keeps the job's memory for the rest of the process, because the transport may still write to it. */
static void flat_allreduce_job_keep(job *j)
{
    static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
    static job *kept;
    lk__refcount_retain(&j->references);
    lk__device_retain_memory(j->e.links);
    pthread_mutex_lock(&keeping);
    j->next_kept = kept;
    kept = j;
    pthread_mutex_unlock(&keeping);
}

static lk_status flat_allreduce_job_exchange(job *j)
{
    const lk_transport *transport = j->flat->transport;
    if (j->e.group)
        LK_TRY(lk__group_check(j->e.group->processes));
    lk__activity_set(j->e.n < j->e.ranks ? LK_ACTIVITY_WAIT_REMOTE : LK_ACTIVITY_OPERATOR, "exchange");
    if (j->e.table->in_place)
        LK_TRY(flat_allreduce_on_each(j, flat_allreduce_prepare_values));
    for (int d = 0; d < j->e.n; d++)
        j->e.buffers[d] = j->storage[d]->data;
    if (j->by_library) {
        LK_TRY(flat_allreduce_on_each(j, flat_allreduce_sum_own));
        return transport->reduce(&j->e);
    }
    LK_TRY(transport->scatter(&j->e));
    LK_TRY(flat_allreduce_on_each(j, flat_allreduce_finish_tree));
    return j->e.slice ? transport->gather(&j->e) : LK_OK;
}

static void flat_allreduce_leave_out(lk_task *task, lk_status status, const char *why)
{
    const job *j = (const job *)task;
    if (j->e.group)
        lk__group_give_up(j->e.group->processes, status, why);
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
    return (words + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t flat_allreduce_quantity_words(const lk_flat_sum *sum, int q)
{
    return lk_shape_count(sum->shapes[sum->quantities[q]]) * (int64_t)lk_dtype_size(sum->dtype) / WORD;
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
static size_t flat_allreduce_job_lay_out(job *j, const lk_flat *f, const lk_flat_sum *sum)
{
    size_t n = (size_t)f->n, nodes = (size_t)sum->n_parts, quantities = (size_t)sum->n_quantities;
    size_t pieces = (size_t)flat_allreduce_count_pieces(sum), used = 0;
    job no_job, *to = j ? j : &no_job;
    lk__block_part(j, &used, 1, sizeof *j);
    to->ranges = lk__block_part(j, &used, nodes, sizeof *to->ranges);
    to->nodes = lk__block_part(j, &used, nodes, sizeof *to->nodes);
    to->spans = lk__block_part(j, &used, quantities, sizeof *to->spans);
    to->values = lk__block_part(j, &used, f->table->in_place ? nodes * quantities : 0, sizeof *to->values);
    to->buffers = lk__block_part(j, &used, n, sizeof *to->buffers);
    to->storage = lk__block_part(j, &used, n, sizeof *to->storage);
    to->packings = lk__block_part(j, &used, n, sizeof *to->packings);
    to->pieces = lk__block_part(j, &used, pieces, sizeof *to->pieces);
    to->reads = lk__block_part(j, &used, pieces, sizeof *to->reads);
    to->copies = lk__block_part(j, &used, pieces, sizeof *to->copies);
    to->e.buffers = lk__block_part(j, &used, n, sizeof *to->e.buffers);
    return used;
}

static job *flat_allreduce_job_new(const lk_flat *f, const lk_flat_sum *sum)
{
    lk_device *home = f->devices[0];
    job *j = lk__device_calloc(home, 1, flat_allreduce_job_lay_out(NULL, f, sum));
    if (!j)
        return NULL;
    flat_allreduce_job_lay_out(j, f, sum);
    lk__refcount_init(&j->references);
    lk__device_retain_memory(home);
    j->home = home;
    j->flat = f;
    j->root = sum->root;
    j->dtype = sum->dtype;
    j->by_library = sum->by_library;
    j->e.links = f->links;
    j->e.table = f->table;
    j->e.group = f->group;
    j->e.n = f->n;
    j->e.first = f->first;
    j->e.ranks = f->ranks;
    j->e.nodes = j->nodes;
    j->e.n_nodes = sum->n_parts;
    for (int m = 0; m < sum->n_parts; m++) {
        j->ranges[m] = sum->parts[m].range;
        j->nodes[m] = (lk_flat_node){.rank = sum->parts[m].rank};
        for (int i = 0; i < m; i++)
            j->nodes[m].position += j->nodes[i].rank == j->nodes[m].rank;
    }
    return j;
}

/* Sets the sizes of the exchange. A packed row is one contiguous span. */
static void flat_allreduce_job_measure(job *j, const lk_flat_sum *sum)
{
    lk_flat_exchange *e = &j->e;
    int64_t row = 0;
    for (int q = 0; q < sum->n_quantities; q++) {
        j->spans[q] = (lk_flat_span){row, flat_allreduce_quantity_words(sum, q)};
        row += flat_allreduce_align_words(j->spans[q].words);
    }
    bool whole = sum->whole && !sum->by_library;
    e->slice = whole ? 0 : flat_allreduce_align_words((row + e->ranks - 1) / e->ranks);
    e->row = whole ? row : e->slice * e->ranks;
    e->compressed = sum->compressed && e->slice > 0 && sum->dtype == LK_F32;
    bool in_place = e->table->in_place && !whole;
    j->all = (lk_flat_span){0, e->row};
    e->spans = in_place ? j->spans : &j->all;
    e->n_spans = in_place ? sum->n_quantities : 1;
    e->values = in_place ? j->values : NULL;
}

static lk_status flat_allreduce_job_list_pieces(job *j, const lk_flat_sum *sum, int d)
{
    packing *p = &j->packings[d];
    p->job = j;
    p->device = d;
    p->first = j->n_pieces;
    for (int m = 0; m < sum->n_parts; m++) {
        if (sum->parts[m].rank != j->e.first + d)
            continue;
        for (int q = 0; q < sum->n_quantities; q++) {
            lk_tensor *value = sum->parts[m].values[sum->quantities[q]];
            LK_TRY(lk__tensor_make_plain(value));
            j->pieces[j->n_pieces] = (piece){lk_tensor_retain(value), m, q};
            j->reads[j->n_pieces++] = value->storage;
        }
    }
    p->n = j->n_pieces - p->first;
    return LK_OK;
}

/* Makes the sums on device d, as views of the sum's row. */
static lk_status flat_allreduce_job_make_sums(const job *j, const lk_flat_sum *sum, int d)
{
    int64_t begin = lk__flat_sum_begin(&j->e, d);
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
    bool in_place = j->e.table->in_place;
    for (int d = 0; d < j->e.n && !in_place; d++) { /* a device without a node still allocates its buffer this way */
        packing *p = &j->packings[d];
        p->task = (lk_task){.device = j->flat->devices[d],
                            .reads = j->reads + p->first,
                            .writes = j->storage + d,
                            .n_reads = p->n,
                            .n_writes = 1,
                            .run = flat_allreduce_packing_run,
                            .release = flat_allreduce_packing_release};
        LK_TRY(flat_allreduce_job_push(j, &p->task));
    }
    j->exchange = (lk_task){.device = j->e.links,
                            .reads = j->reads,
                            .n_reads = in_place ? j->n_pieces : 0,
                            .writes = j->storage,
                            .n_writes = j->e.n,
                            .run = flat_allreduce_exchange_run,
                            .leave_out = flat_allreduce_leave_out,
                            .release = flat_allreduce_exchange_release};
    return flat_allreduce_job_push(j, &j->exchange);
}

static lk_status flat_allreduce_job_prepare(lk_flat *f, job *j, const lk_flat_sum *sum)
{
    flat_allreduce_job_measure(j, sum);
    LK_TRY(lk__exchange_buffers_take(&f->buffers, f->links, lk__flat_buffer_words(&j->e), j->buffers));
    for (int d = 0; d < f->n; d++)
        j->storage[d] = j->buffers[d]->storage;
    for (int d = 0; d < f->n; d++) {
        LK_TRY(flat_allreduce_job_list_pieces(j, sum, d));
        LK_TRY(flat_allreduce_job_make_sums(j, sum, d));
    }
    return LK_OK;
}

lk_status lk__flat_allreduce(lk_flat *f, const lk_flat_sum *sum)
{
    if (sum->by_library && !f->transport->reduce)
        LK_FAIL(LK_ERR_UNSUPPORTED, "allreduce: %s have no reduction of their own", f->transport->name);
    job *j = flat_allreduce_job_new(f, sum);
    if (!j)
        return LK_ERR_MEMORY;
    pthread_mutex_lock(&f->lock);
    lk_status status = flat_allreduce_job_prepare(f, j, sum);
    if (status == LK_OK)
        status = flat_allreduce_job_push_all(j);
    pthread_mutex_unlock(&f->lock);
    flat_allreduce_job_release(j);
    return status;
}

static int64_t flat_allreduce_count_nodes(int64_t shards, int rank, int ranks)
{
    lk_range nodes[LK_TREE_COVER];
    return lk__tree_cover(shards, lk_part(shards, ranks, rank), nodes);
}

int64_t lk__flat_buffer_bytes(const lk_flat *f, int64_t shards, int64_t bytes)
{
    int64_t nodes = 0, least = INT64_MAX;
    for (int rank = 0; rank < f->ranks; rank++)
        nodes += flat_allreduce_count_nodes(shards, rank, f->ranks);
    for (int rank = f->first; rank < f->first + f->n; rank++) {
        int64_t own = flat_allreduce_count_nodes(shards, rank, f->ranks);
        int64_t needed = own * bytes + (nodes - own) * (bytes / f->ranks) + bytes;
        least = lk__min(least, needed);
    }
    return least;
}

/* --- supported sums ----------------------------------------------------------------------------------------------- */

bool lk__flat_takes_tree(lk_range root, const lk_range *nodes, int n_nodes)
{
    unsigned char additions[LK_FLAT_PARTS];
    return n_nodes <= LK_FLAT_PARTS && lk__tree_postfix(root, nodes, n_nodes, additions) <= LK_LINKS_LEVELS;
}

bool lk__flat_takes(const lk_flat *f, const lk_tensor *x)
{
    return (f->table->dtypes & LK_DTYPE_BIT(x->dtype)) && lk__tensor_is_dense(x) && !lk__capturing();
}
