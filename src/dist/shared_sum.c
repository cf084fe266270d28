/* To the engine a part only reads what it works on, results included, or the parts would run one after the other. What
 * brackets them makes that safe: before, on each device, an entry that writes its results where these are in use, so
 * that earlier readers are waited for; behind, another one, for which the parts of all devices are earlier readers. */
#include "dist/shared_sum.h"

#include "base/heartbeat.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "dist/array_sum.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SMALL_ELEMENTS = 8192, /* up to here a device does it alone: hops count, not bytes */
    LINE = 16,             /* elements of a cache line: devices do not share one */
};

/* One quantity. Its elements are begin … begin + count of the row of all quantities, which devices divide. */
typedef struct item {
    int64_t begin, count;
    int first_addend, n_addends;
} item;

typedef lk_shared_sum_job job;

typedef struct entry {
    lk_task task;
    job *job;
    lk_range elements;         /* of the row */
    int first_result, results; /* that it writes, of each item */
} entry;

struct lk_shared_sum_job {
    lk_refcount references; /* of entries under way, and the caller's */
    lk_device *home;        /* whose memory this is in */
    job *next;              /* in the caller's list */
    int n_devices, n_items, n_addends, n_results;
    int64_t elements; /* of the row */
    double flops;
    bool together, in_use;
    bool may_take_over; /* else a device may still read an addend that another one's result would overwrite */

    item *items;
    lk_tensor **addends, **results; /* results: n_results of each item. One reference each */
    unsigned char *additions;       /* see lk_array_sum */
    lk_device **devices;
    lk_storage **storages; /* of the addends, then of the results, device by device: */
    int *begins;           /* [n_devices + 1]: where those of each device begin */
    entry *entries;        /* before, parts, behind */
    int n_entries;

    /* Known when the first entry runs. */
    pthread_mutex_t lock;
    bool placed;
    lk_status status;
    char message[256];
    float **from, **to;
};

static void release_job(job *j)
{
    if (!lk__refcount_release(&j->references))
        return;
    for (int i = 0; i < j->n_addends; i++)
        lk_tensor_release(j->addends[i]);
    for (int i = 0; i < j->n_items * j->n_results; i++)
        lk_tensor_release(j->results[i]);
    pthread_mutex_destroy(&j->lock);
    lk_device *home = j->home;
    lk__device_free(home, j);
    lk__device_release_memory(home);
}

/* --- on the devices' threads -------------------------------------------------------------------------------------- */

/* Nobody but the job holds it, and it is all of its memory. */
static bool is_free(lk_tensor *x, const lk_storage *like)
{
    const lk_storage *storage = x->storage;
    return storage->device == like->device && storage->bytes == like->bytes && storage->block &&
           lk__refcount_is_one(&x->references) && lk__refcount_is_one(&storage->references);
}

static bool take_over(lk_storage *result, lk_tensor *const *addends, int n)
{
    for (int a = 0; a < n; a++) {
        lk_storage *storage = addends[a]->storage;
        if (!is_free(addends[a], result))
            continue;
        lk__storage_replace(result, storage->block, NULL);
        result->used = result->bytes;
        storage->block = NULL;
        return true;
    }
    return false;
}

static lk_status place_item(job *j, int i)
{
    const item *it = &j->items[i];
    lk_tensor **addends = j->addends + it->first_addend;
    for (int a = 0; a < it->n_addends; a++) {
        if (!addends[a]->storage->data)
            LK_FAIL(LK_ERR_STATE, "allreduce: a tensor was made by lk_tensor_new and never written");
        j->from[it->first_addend + a] = lk__data(addends[a]);
    }
    for (int r = 0; r < j->n_results; r++) {
        lk_tensor *result = j->results[i * j->n_results + r];
        if (!j->in_use && !(j->may_take_over && take_over(result->storage, addends, it->n_addends)))
            LK_TRY(lk__storage_allocate(result->storage, result->storage->bytes, NULL));
        j->to[i * j->n_results + r] = lk__data(result);
    }
    return LK_OK;
}

static lk_status place_all(job *j)
{
    lk_status status = LK_OK;
    for (int i = 0; i < j->n_items && status == LK_OK; i++)
        status = place_item(j, i);
    return status;
}

/* Whoever comes first finds out where everything is. */
static lk_status place(job *j)
{
    pthread_mutex_lock(&j->lock);
    if (!j->placed) {
        j->status = place_all(j);
        if (j->status != LK_OK) {
            snprintf(j->message, sizeof j->message, "%s", lk_error_message());
            lk_error_clear();
        }
        j->placed = true;
    }
    lk_status status = j->status;
    pthread_mutex_unlock(&j->lock);
    return status;
}

static lk_status outcome(job *j)
{
    pthread_mutex_lock(&j->lock);
    lk_status status = j->status;
    pthread_mutex_unlock(&j->lock);
    return status == LK_OK ? LK_OK : lk__fail(status, "%s", j->message);
}

static void add_items(const job *j, const entry *e)
{
    for (int i = 0; i < j->n_items; i++) {
        const item *it = &j->items[i];
        int64_t begin = e->elements.begin - it->begin, end = e->elements.end - it->begin;
        lk_array_sum sum = {.addends = (const float *const *)j->from + it->first_addend,
                            .additions = j->additions + it->first_addend,
                            .n_addends = it->n_addends,
                            .results = j->to + i * j->n_results + e->first_result,
                            .n_results = e->results};
        lk__array_sum(&sum, begin > 0 ? begin : 0, end < it->count ? end : it->count);
    }
}

/* What a recording shows: an operator on as many elements. */
static void show(const entry *e, int64_t began)
{
    static const lk_op op = {.name = "tree sum", .id = -1};
    lk_tensor row = {.dtype = LK_F32, .shape = LK_SHAPE(e->elements.end - e->elements.begin)};
    lk_call call = {.op = &op, .n_in = 1, .in = {&row}};
    if (began)
        lk__trace_end_call(&call, began);
}

/* Where devices work together, whoever takes the results over says what went wrong. */
static lk_status run_part(lk_task *task)
{
    const entry *e = (const entry *)task;
    int64_t began = lk__trace_begin();
    lk__now(LK_DOING_OPERATOR, "tree sum");
    if (place(e->job) != LK_OK)
        return e->job->together ? LK_OK : outcome(e->job);
    add_items(e->job, e);
    show(e, began);
    return LK_OK;
}

static lk_status run_before(lk_task *task)
{
    (void)task;
    return LK_OK;
}

static lk_status run_behind(lk_task *task)
{
    return outcome(((const entry *)task)->job);
}

static void release_entry(lk_task *task)
{
    release_job(((const entry *)task)->job);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

/* Postfix: the two halves, then their addition, where both are there. */
static bool list_addends(job *j, lk_range root, const lk_tree_node *nodes, int64_t n_nodes, int i)
{
    if (n_nodes == 1) {
        lk_tensor *value = nodes[0].values ? nodes[0].values[i] : NULL;
        if (value)
            j->addends[j->n_addends++] = lk_tensor_retain(value);
        return value;
    }
    int64_t middle = lk__tree_middle(root), n_left = 0;
    while (n_left < n_nodes && nodes[n_left].range.end <= middle)
        n_left++;
    bool left = list_addends(j, (lk_range){root.begin, middle}, nodes, n_left, i);
    bool right = list_addends(j, (lk_range){middle, root.end}, nodes + n_left, n_nodes - n_left, i);
    if (left && right)
        j->additions[j->n_addends - 1]++;
    return left || right;
}

static void list_item(job *j, const lk_shared_sum *sum, int i)
{
    item *it = &j->items[j->n_items];
    it->first_addend = j->n_addends;
    list_addends(j, sum->root, sum->nodes, sum->n_nodes, i);
    it->n_addends = j->n_addends - it->first_addend;
    if (it->n_addends == 1 && j->n_results == 1 && j->addends[it->first_addend] == sum->results[i]) {
        lk_tensor_release(j->addends[--j->n_addends]);
        return;
    }
    it->begin = j->elements;
    it->count = lk_tensor_count(sum->results[i]);
    for (int r = 0; r < j->n_results; r++)
        j->results[j->n_items * j->n_results + r] = lk_tensor_retain(sum->results[r * sum->stride + i]);
    j->elements += (it->count + LINE - 1) / LINE * LINE;
    j->flops += (double)it->count * (it->n_addends - 1);
    j->n_items++;
}

/* Room for `count` items behind the first *used bytes of a block; NULL: there is no block yet. */
static void *room(void *block, size_t *used, size_t count, size_t size)
{
    void *place = block ? (char *)block + *used : NULL;
    *used += (count * size + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    return place;
}

/* A job and its arrays are one block: gives its bytes, and sets the arrays of `j`, which begins it, if it is there. */
static size_t lay_out(job *j, const lk_shared_sum *sum)
{
    size_t n = (size_t)sum->n_quantities, k = (size_t)sum->n_devices, used = 0;
    size_t addends = n * (size_t)sum->n_nodes, results = n * (size_t)sum->n_results;
    job no_job, *to = j ? j : &no_job;
    room(j, &used, 1, sizeof *j);
    to->items = room(j, &used, n, sizeof *to->items);
    to->addends = room(j, &used, addends, sizeof *to->addends);
    to->results = room(j, &used, results, sizeof *to->results);
    to->additions = room(j, &used, addends, sizeof *to->additions);
    to->devices = room(j, &used, k, sizeof *to->devices);
    to->storages = room(j, &used, addends + results, sizeof *to->storages);
    to->begins = room(j, &used, k + 1, sizeof *to->begins);
    to->entries = room(j, &used, 3 * k, sizeof *to->entries);
    to->from = room(j, &used, addends, sizeof *to->from);
    to->to = room(j, &used, results, sizeof *to->to);
    return used;
}

static job *new_job(const lk_shared_sum *sum)
{
    lk_device *home = sum->devices[0];
    job *j = lk__device_calloc(home, 1, lay_out(NULL, sum));
    if (!j)
        return NULL;
    lay_out(j, sum);
    lk__refcount_init(&j->references);
    pthread_mutex_init(&j->lock, NULL);
    lk__device_retain_memory(home);
    j->home = home;
    j->n_devices = sum->n_devices;
    j->n_results = sum->n_results;
    j->in_use = sum->in_use;
    memcpy(j->devices, sum->devices, (size_t)sum->n_devices * sizeof(lk_device *));
    return j;
}

static void list_storages(job *j)
{
    int n = 0;
    for (int a = 0; a < j->n_addends; a++)
        j->storages[n++] = j->addends[a]->storage;
    for (int d = 0; d < j->n_devices; d++) {
        j->begins[d] = n;
        for (int r = 0; r < j->n_items * j->n_results; r++)
            if (lk_tensor_device(j->results[r]) == j->devices[d])
                j->storages[n++] = j->results[r]->storage;
    }
    j->begins[j->n_devices] = n;
}

static lk_status make_plain(const job *j)
{
    for (int a = 0; a < j->n_addends; a++)
        LK_TRY(lk__tensor_make_plain(j->addends[a]));
    for (int r = 0; j->in_use && r < j->n_items * j->n_results; r++)
        LK_TRY(lk__tensor_make_plain(j->results[r]));
    return LK_OK;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static lk_status push(job *j, lk_task task, lk_range elements, int first_result, int results)
{
    entry *e = &j->entries[j->n_entries++];
    *e = (entry){task, j, elements, first_result, results};
    e->task.release = release_entry;
    lk__refcount_retain(&j->references);
    lk_status status = lk__engine_push_task(&e->task);
    if (status != LK_OK)
        release_job(j);
    return status;
}

/* Every device finishes its own results; one device does it for all where results are in use, and so addends. */
static lk_status push_alone(job *j)
{
    lk_range all = {0, j->elements};
    int n = j->in_use ? 1 : j->n_devices;
    for (int d = 0; d < n; d++) {
        int begin = j->begins[d], end = j->begins[j->in_use ? j->n_devices : d + 1];
        if (begin == end)
            continue; /* there is one result, on another device */
        lk_task task = {.device = j->devices[d],
                        .reads = j->storages,
                        .writes = j->storages + begin,
                        .n_reads = j->n_addends,
                        .n_writes = end - begin,
                        .flops = j->flops,
                        .run = run_part};
        LK_TRY(push(j, task, all, j->in_use || j->n_results == 1 ? 0 : d, j->in_use ? j->n_results : 1));
    }
    return LK_OK;
}

static lk_status push_brackets(job *j, int n_reads, lk_status (*run)(lk_task *))
{
    for (int d = 0; d < j->n_devices; d++) {
        lk_task task = {.device = j->devices[d],
                        .reads = j->storages,
                        .writes = j->storages + j->begins[d],
                        .n_reads = n_reads,
                        .n_writes = j->begins[d + 1] - j->begins[d],
                        .run = run};
        LK_TRY(push(j, task, (lk_range){0, 0}, 0, 0));
    }
    return LK_OK;
}

static lk_status push_parts(job *j)
{
    for (int d = 0; d < j->n_devices; d++) {
        lk_range lines = lk_part(j->elements / LINE, j->n_devices, d);
        lk_task task = {.device = j->devices[d],
                        .reads = j->storages,
                        .n_reads = j->begins[j->n_devices],
                        .flops = j->flops / j->n_devices,
                        .run = run_part};
        LK_TRY(push(j, task, (lk_range){lines.begin * LINE, lines.end * LINE}, 0, j->n_results));
    }
    return LK_OK;
}

static lk_status push_together(job *j)
{
    if (j->in_use)
        LK_TRY(push_brackets(j, 0, run_before));
    return push_parts(j);
}

bool lk__shared_sum_takes(const lk_tree_node *nodes, int64_t n_nodes, int i)
{
    for (int64_t n = 0; n < n_nodes; n++) {
        const lk_tensor *x = nodes[n].values ? nodes[n].values[i] : NULL;
        if (x && (x->dtype != LK_F32 || x->storage->device->backend->offload || !lk__tensor_is_dense(x)))
            return false;
    }
    return !lk__capturing();
}

static lk_status prepare(job *j, const lk_shared_sum *sum)
{
    for (int q = 0; q < sum->n_quantities; q++) {
        int i = sum->quantities ? sum->quantities[q] : q;
        if (sum->results[i])
            list_item(j, sum, i);
    }
    list_storages(j);
    j->together = sum->n_devices > 1 && j->elements > SMALL_ELEMENTS;
    j->may_take_over = j->together || sum->n_results == 1;
    return make_plain(j);
}

lk_status lk__shared_sum_begin(const lk_shared_sum *sum, job **begun)
{
    job *j = new_job(sum);
    if (!j)
        return LK_ERR_MEMORY;
    lk_status status = prepare(j, sum);
    if (status == LK_OK && j->n_items > 0)
        status = j->together ? push_together(j) : push_alone(j);
    if (status == LK_OK && j->together) {
        j->next = *begun;
        *begun = j;
    } else {
        release_job(j);
    }
    return status;
}

lk_status lk__shared_sum_finish(job *begun)
{
    for (job *j = begun; j; j = j->next)
        LK_TRY(push_brackets(j, j->n_addends, run_behind));
    return LK_OK;
}

void lk__shared_sum_release(job **begun)
{
    while (*begun) {
        job *j = *begun;
        *begun = j->next;
        release_job(j);
    }
}

lk_status lk__shared_sum(const lk_shared_sum *sum)
{
    job *begun = NULL;
    LK_TRY(lk__shared_sum_begin(sum, &begun));
    lk_status status = lk__shared_sum_finish(begun);
    lk__shared_sum_release(&begun);
    return status;
}
