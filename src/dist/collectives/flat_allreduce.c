#include "dist/flat.h"
#include "dist/flat_rooms.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "core/trace.h"

#include <pthread.h>
#include <string.h>

/* What lies in a room is counted in words of four bytes, whatever its dtype. */
enum {
    WORD = sizeof(float),
    ALIGN = 64
}; /* words: quantities and slices begin at multiples, whatever kernel reads them */

struct lk_flat {
    lk_device **devices; /* [n] */
    int n, first, ranks;
    const lk_transport *transport;
    const lk_links_table *table;
    const lk_flat_group *group;
    lk_device *links;
    pthread_mutex_t lock; /* of the rooms, and of pushing: ranks exchange in one order */
    lk_rooms rooms;
};

/* --- opening and closing ------------------------------------------------------------------------------------------ */

void lk__flat_release(lk_flat *f)
{
    if (!f)
        return;
    lk_device_release(f->links);
    lk__rooms_release(&f->rooms);
    pthread_mutex_destroy(&f->lock);
    lk__free(f->devices);
    lk__free(f);
}

static lk_status look_at_processes(void *processes)
{
    return lk__group_look(processes);
}

static lk_status open_links(lk_flat *f, const lk_flat_opts *opts)
{
    lk_links_opts links = {.table = f->table,
                           .devices = f->devices,
                           .n = f->n,
                           .has_communicator = f->transport->reduce,
                           .id = opts->id,
                           .first = f->first,
                           .ranks = f->ranks,
                           .others = f->group ? look_at_processes : NULL,
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
    f->rooms = (lk_rooms){.devices = f->devices, .n = f->n};
    if (status == LK_OK)
        status = open_links(f, opts);
    if (status == LK_OK)
        *out = f;
    else
        lk__flat_release(f);
    return status;
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

typedef struct flat_job job;

/* Copies the values of a device's nodes into its room, on its own stream. */
typedef struct packing {
    lk_task task;
    job *job;
    int device, first, n; /* of the job's pieces */
} packing;

/* Quantity q of node m, one of the device's. */
typedef struct piece {
    lk_tensor *value; /* a reference */
    int m, q;
} piece;

struct flat_job {
    lk_task exchange;
    lk_refcount references; /* of tasks under way, and the maker's */
    lk_device *home;        /* whose memory this is in */
    const lk_flat *flat;
    job *next_kept;
    lk_flat_exchange e;
    lk_range root;
    lk_dtype dtype;
    bool by_library;
    lk_flat_span all;

    lk_range *ranges;     /* [n_nodes] */
    lk_flat_node *nodes;  /* [n_nodes] */
    lk_flat_span *spans;  /* [n_quantities] */
    const float **values; /* [n_nodes * n_quantities] */
    lk_tensor **rooms;    /* [n]: one reference each */
    lk_storage **storage; /* [n]: of these */
    packing *packings;    /* [n] */
    int n_pieces;
    piece *pieces;
    lk_storage **reads;    /* [n_pieces] */
    lk_links_copy *copies; /* [n_pieces] */
};

static void release_job(job *j)
{
    if (!lk__refcount_release(&j->references))
        return;
    for (int i = 0; i < j->n_pieces; i++)
        lk_tensor_release(j->pieces[i].value);
    for (int d = 0; d < j->e.n; d++)
        lk_tensor_release(j->rooms[d]);
    lk_device *home = j->home;
    lk__device_free(home, j);
    lk__device_release_memory(home);
}

static void release_packing(lk_task *task)
{
    release_job(((packing *)task)->job);
}

static void release_exchange(lk_task *task)
{
    release_job((job *)task);
}

/* --- on the devices' threads -------------------------------------------------------------------------------------- */

static int64_t words_in(const lk_tensor *x)
{
    return lk_tensor_count(x) * (int64_t)lk_dtype_size(x->dtype) / WORD;
}

static lk_status check_written(const lk_tensor *value)
{
    if (!value->storage->data)
        LK_FAIL(LK_ERR_STATE, "allreduce: a tensor was made by lk_tensor_new and never written");
    return LK_OK;
}

static lk_status pack_on(lk_device *device, const packing *p)
{
    const job *j = p->job;
    lk_storage *room = j->storage[p->device];
    LK_TRY(lk__storage_allocate(room, room->bytes, NULL));
    j->e.rooms[p->device] = room->data;
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        float *row = lk__flat_own_row(&j->e, p->device, from->m);
        LK_TRY(check_written(from->value));
        j->copies[i] = (lk_links_copy){lk__data(from->value), row + j->spans[from->q].begin, words_in(from->value)};
    }
    return j->e.table->pack(device, j->copies + p->first, p->n);
}

static lk_status pack(lk_task *task)
{
    return pack_on(task->device, (const packing *)task);
}

/* --- on the links' thread ----------------------------------------------------------------------------------------- */

/* Nothing is packed: what the devices have stays where it is. */
static lk_status find_on(const job *j, int d)
{
    const packing *p = &j->packings[d];
    lk_storage *room = j->storage[d];
    LK_TRY(lk__storage_allocate(room, room->bytes, NULL));
    for (int i = p->first; i < p->first + p->n; i++) {
        const piece *from = &j->pieces[i];
        LK_TRY(check_written(from->value));
        j->values[from->m * j->e.n_spans + from->q] = lk__data(from->value);
    }
    return LK_OK;
}

static lk_status bring(const job *j, int d)
{
    return j->e.values ? find_on(j, d) : pack_on(j->e.links, &j->packings[d]);
}

static int64_t elements_in(const job *j, int64_t words)
{
    return words * WORD / (int64_t)lk_dtype_size(j->dtype);
}

/* Device d's chunk of the whole tree. */
static lk_status finish_tree(const job *j, int d)
{
    const lk_flat_exchange *e = &j->e;
    lk_links_sum sum = {.dtype = j->dtype, .n_addends = e->n_nodes};
    lk__tree_postfix(j->root, j->ranges, e->n_nodes, sum.additions);
    for (int s = 0; s < e->n_spans; s++) {
        lk_range words = lk__flat_shared(e, s, e->first + d);
        if (words.begin == words.end)
            continue;
        for (int m = 0; m < e->n_nodes; m++)
            sum.addends[m] = lk__flat_words(e, d, m, s, words.begin);
        sum.y = lk__flat_sum_row(e, d) + words.begin;
        sum.count = elements_in(j, words.end - words.begin);
        LK_TRY(e->table->sum(e->links, d, &sum));
    }
    return LK_OK;
}

/* What device d has by itself, in all of the sum's row. */
static lk_status sum_own(const job *j, int d)
{
    const lk_flat_exchange *e = &j->e;
    lk_links_sum sum = {.y = lk__flat_sum_row(e, d), .dtype = j->dtype, .count = elements_in(j, e->row)};
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

static lk_status on_each(const job *j, lk_status (*fn)(const job *, int))
{
    for (int d = 0; d < j->e.n; d++)
        LK_TRY(fn(j, d));
    return LK_OK;
}

/* Nobody else gets the memory that the job works on. */
static void keep_for_good(job *j)
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

static lk_status exchange(job *j)
{
    const lk_transport *transport = j->flat->transport;
    if (j->e.group)
        LK_TRY(lk__group_check(j->e.group->processes));
    lk__now(j->e.n < j->e.ranks ? LK_DOING_OTHERS : LK_DOING_OPERATOR, "exchange");
    if (j->e.table->in_place)
        LK_TRY(on_each(j, bring));
    for (int d = 0; d < j->e.n; d++)
        j->e.rooms[d] = j->storage[d]->data;
    if (j->by_library) {
        LK_TRY(on_each(j, sum_own));
        return transport->reduce(&j->e);
    }
    LK_TRY(transport->scatter(&j->e));
    LK_TRY(on_each(j, finish_tree));
    return j->e.slice ? transport->gather(&j->e) : LK_OK;
}

static void leave_out_exchange(lk_task *task, lk_status status, const char *why)
{
    const job *j = (const job *)task;
    if (j->e.group)
        lk__group_give_up(j->e.group->processes, status, why);
}

static lk_status run_exchange(lk_task *task)
{
    job *j = (job *)task;
    lk_status status = exchange(j);
    if (status != LK_OK && j->flat->transport->is_late)
        keep_for_good(j);
    if (status != LK_OK)
        leave_out_exchange(task, status, lk_error_message());
    return status;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static int64_t aligned(int64_t words)
{
    return (words + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t words_of(const lk_flat_sum *sum, int q)
{
    return lk_shape_count(sum->shapes[sum->quantities[q]]) * (int64_t)lk_dtype_size(sum->dtype) / WORD;
}

static int count_pieces(const lk_flat_sum *sum)
{
    int n = 0;
    for (int m = 0; m < sum->n_parts; m++)
        n += sum->parts[m].values ? sum->n_quantities : 0;
    return n;
}

/* Room for `count` items behind the first *used bytes of a block; NULL: there is no block yet. */
static void *place(void *block, size_t *used, size_t count, size_t size)
{
    void *here = block ? (char *)block + *used : NULL;
    *used += (count * size + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    return here;
}

/* A job and its arrays are one block: gives its bytes, and sets the arrays of `j`, which begins it, if it is there. */
static size_t lay_out(job *j, const lk_flat *f, const lk_flat_sum *sum)
{
    size_t n = (size_t)f->n, nodes = (size_t)sum->n_parts, quantities = (size_t)sum->n_quantities;
    size_t pieces = (size_t)count_pieces(sum), used = 0;
    job no_job, *to = j ? j : &no_job;
    place(j, &used, 1, sizeof *j);
    to->ranges = place(j, &used, nodes, sizeof *to->ranges);
    to->nodes = place(j, &used, nodes, sizeof *to->nodes);
    to->spans = place(j, &used, quantities, sizeof *to->spans);
    to->values = place(j, &used, f->table->in_place ? nodes * quantities : 0, sizeof *to->values);
    to->rooms = place(j, &used, n, sizeof *to->rooms);
    to->storage = place(j, &used, n, sizeof *to->storage);
    to->packings = place(j, &used, n, sizeof *to->packings);
    to->pieces = place(j, &used, pieces, sizeof *to->pieces);
    to->reads = place(j, &used, pieces, sizeof *to->reads);
    to->copies = place(j, &used, pieces, sizeof *to->copies);
    to->e.rooms = place(j, &used, n, sizeof *to->e.rooms);
    return used;
}

static void list_nodes(job *j, const lk_flat_sum *sum)
{
    for (int m = 0; m < sum->n_parts; m++) {
        j->ranges[m] = sum->parts[m].range;
        j->nodes[m] = (lk_flat_node){.rank = sum->parts[m].rank};
        for (int i = 0; i < m; i++)
            j->nodes[m].place += j->nodes[i].rank == j->nodes[m].rank;
    }
}

static job *new_job(const lk_flat *f, const lk_flat_sum *sum)
{
    lk_device *home = f->devices[0];
    job *j = lk__device_calloc(home, 1, lay_out(NULL, f, sum));
    if (!j)
        return NULL;
    lay_out(j, f, sum);
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
    list_nodes(j, sum);
    return j;
}

/* Spans of a row that is packed are one, for it lies together. */
static void measure(job *j, const lk_flat_sum *sum)
{
    lk_flat_exchange *e = &j->e;
    int64_t row = 0;
    for (int q = 0; q < sum->n_quantities; q++) {
        j->spans[q] = (lk_flat_span){row, words_of(sum, q)};
        row += aligned(j->spans[q].words);
    }
    bool whole = sum->whole && !sum->by_library;
    e->slice = whole ? 0 : aligned((row + e->ranks - 1) / e->ranks);
    e->row = whole ? row : e->slice * e->ranks;
    e->compressed = sum->compressed && e->slice > 0 && sum->dtype == LK_F32;
    bool in_place = e->table->in_place && !whole;
    j->all = (lk_flat_span){0, e->row};
    e->spans = in_place ? j->spans : &j->all;
    e->n_spans = in_place ? sum->n_quantities : 1;
    e->values = in_place ? j->values : NULL;
}

static lk_status list_pieces(job *j, const lk_flat_sum *sum, int d)
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

/* sums: views of the sum's row. */
static lk_status make_sums(const job *j, const lk_flat_sum *sum, int d)
{
    int64_t begin = lk__flat_sum_begin(&j->e, d);
    for (int q = 0; q < sum->n_quantities; q++) {
        lk_tensor view = {.dtype = sum->dtype,
                          .shape = sum->shapes[sum->quantities[q]],
                          .offset = elements_in(j, begin + j->spans[q].begin)};
        lk__shape_strides(view.shape, view.strides);
        lk_tensor **out = &sum->sums[(int64_t)d * sum->stride + sum->quantities[q]];
        *out = lk__tensor_over(j->storage[d], &view);
        if (!*out)
            return LK_ERR_MEMORY;
    }
    return LK_OK;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static lk_status push(job *j, lk_task *task)
{
    lk__refcount_retain(&j->references);
    lk_status status = lk__engine_push_task(task);
    if (status != LK_OK)
        release_job(j);
    return status;
}

/* A device without a node makes its room all the same. */
static lk_status push_packing(job *j, int d)
{
    packing *p = &j->packings[d];
    p->task = (lk_task){.device = j->flat->devices[d],
                        .reads = j->reads + p->first,
                        .writes = j->storage + d,
                        .n_reads = p->n,
                        .n_writes = 1,
                        .run = pack,
                        .release = release_packing};
    return push(j, &p->task);
}

static lk_status push_all(job *j)
{
    bool in_place = j->e.table->in_place;
    for (int d = 0; d < j->e.n && !in_place; d++)
        LK_TRY(push_packing(j, d));
    j->exchange = (lk_task){.device = j->e.links,
                            .reads = j->reads,
                            .n_reads = in_place ? j->n_pieces : 0,
                            .writes = j->storage,
                            .n_writes = j->e.n,
                            .run = run_exchange,
                            .leave_out = leave_out_exchange,
                            .release = release_exchange};
    return push(j, &j->exchange);
}

static lk_status prepare(lk_flat *f, job *j, const lk_flat_sum *sum)
{
    measure(j, sum);
    LK_TRY(lk__rooms_take(&f->rooms, f->links, lk__flat_room_words(&j->e), j->rooms));
    for (int d = 0; d < f->n; d++)
        j->storage[d] = j->rooms[d]->storage;
    for (int d = 0; d < f->n; d++) {
        LK_TRY(list_pieces(j, sum, d));
        LK_TRY(make_sums(j, sum, d));
    }
    return LK_OK;
}

lk_status lk__flat_allreduce(lk_flat *f, const lk_flat_sum *sum)
{
    if (sum->by_library && !f->transport->reduce)
        LK_FAIL(LK_ERR_UNSUPPORTED, "allreduce: %s have no reduction of their own", f->transport->name);
    job *j = new_job(f, sum);
    if (!j)
        return LK_ERR_MEMORY;
    pthread_mutex_lock(&f->lock);
    lk_status status = prepare(f, j, sum);
    if (status == LK_OK)
        status = push_all(j);
    pthread_mutex_unlock(&f->lock);
    release_job(j);
    return status;
}

static int64_t nodes_of(int64_t shards, lk_range own)
{
    int64_t n = 0;
    for (; own.end > own.begin; n++)
        own.end = lk__tree_completed(shards, own, own.end - 1).begin;
    return n;
}

int64_t lk__flat_room_bytes(const lk_flat *f, int64_t shards, int64_t bytes)
{
    int64_t nodes = 0, least = INT64_MAX;
    for (int rank = 0; rank < f->ranks; rank++)
        nodes += nodes_of(shards, lk_part(shards, f->ranks, rank));
    for (int rank = f->first; rank < f->first + f->n; rank++) {
        int64_t own = nodes_of(shards, lk_part(shards, f->ranks, rank));
        int64_t room = own * bytes + (nodes - own) * (bytes / f->ranks) + bytes;
        least = room < least ? room : least;
    }
    return least;
}

/* --- what it takes ------------------------------------------------------------------------------------------------ */

bool lk__flat_takes_tree(lk_range root, const lk_range *nodes, int n_nodes)
{
    unsigned char additions[LK_FLAT_PARTS];
    return n_nodes <= LK_FLAT_PARTS && lk__tree_postfix(root, nodes, n_nodes, additions) <= LK_LINKS_LEVELS;
}

bool lk__flat_takes(const lk_flat *f, const lk_tensor *x)
{
    return (f->table->dtypes & LK_DTYPE_BIT(x->dtype)) && lk__tensor_is_dense(x) && !lk__capturing();
}
