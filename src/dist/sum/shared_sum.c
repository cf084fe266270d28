/* The devices write parts of the same results, and the engine would run such writers one after the other. So a part
 * declares even the results that it writes as reads, and further entries on each device, which declare that they write
 * that device's results, keep the order. An entry before the parts, if results are in use, waits for earlier readers.
 * An entry after the parts waits for the parts of all devices. */
#include "dist/sum/shared_sum.h"

#include "base/heartbeat.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/products.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "dist/array_sum.h"
#include "dist/block.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 16 }; /* elements of a cache line, which devices do not share */

/* One quantity: elements [begin, begin + count) of the row of all quantities, which the devices divide. */
typedef struct item {
    int64_t begin, count;
    int first_addend, n_addends;
    bool has_products; /* some addends are left as the factors of products; only one device has the result */
} item;

typedef lk_shared_sum_job job;

typedef struct entry {
    lk_task task;
    job *job;
    lk_range elements;           /* of the row */
    int first_result, n_results; /* the results of each item that it writes */
} entry;

struct lk_shared_sum_job {
    lk_refcount references; /* of entries in flight, and the caller's */
    lk_device *home;        /* the device whose memory holds this job */
    job *next;              /* in the caller's list */
    int n_devices, n_items, n_addends, n_results;
    int64_t elements; /* of the row */
    double flops;
    bool together, in_use;
    bool may_take_over; /* whether a result may take an addend's memory: not if another device may still read it */

    item *items;
    lk_tensor **addends, **results; /* one reference each; results: n_results per item */
    lk_range *ranges;               /* of an item's addends, scratch */
    unsigned char *additions;       /* see lk_array_sum */
    lk_device **devices;
    lk_storage **storages; /* of the addends, then of the results, device by device */
    int *begins;           /* [n_devices + 1]: the results of device d are storages[begins[d] … begins[d + 1]) */
    entry *entries;        /* before the parts, the parts, after the parts */
    int n_entries;

    /* Set by the first entry that runs. */
    pthread_mutex_t lock;
    bool located;
    lk_status status;
    char message[256];
    float **from, **to;
};

static void shared_sum_job_release(job *j)
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

/* Returns whether x can give up its memory: only the job holds it, it covers its whole storage, and the sizes are
 * equal. */
static bool shared_sum_addend_is_free(lk_tensor *x, const lk_storage *like)
{
    const lk_storage *storage = x->storage;
    return storage->device == like->device && storage->bytes == like->bytes && storage->block && !storage->layout &&
           lk__refcount_is_one(&x->references) && lk__refcount_is_one(&storage->references);
}

static bool shared_sum_result_take_over(lk_storage *result, lk_tensor *const *addends, int n)
{
    for (int a = 0; a < n; a++) {
        lk_storage *storage = addends[a]->storage;
        if (!shared_sum_addend_is_free(addends[a], result))
            continue;
        lk__storage_replace(result, storage->block, NULL);
        result->used = result->bytes;
        storage->block = NULL;
        return true;
    }
    return false;
}

static lk_status shared_sum_item_locate(job *j, int i)
{
    const item *it = &j->items[i];
    lk_tensor **addends = j->addends + it->first_addend;
    for (int a = 0; a < it->n_addends; a++) {
        if (!addends[a]->storage->data)
            LK_FAIL(LK_ERR_STATE, "allreduce: a tensor was made by lk_tensor_new and never written");
        if (!it->has_products)
            j->from[it->first_addend + a] = lk__data(addends[a]);
    }
    for (int r = 0; r < j->n_results; r++) {
        lk_tensor *result = j->results[i * j->n_results + r];
        bool may_take_over = j->may_take_over && lk__tensor_is_whole(result);
        if (!j->in_use && !(may_take_over && shared_sum_result_take_over(result->storage, addends, it->n_addends)))
            LK_TRY(lk__storage_allocate(result->storage, result->storage->bytes, NULL));
        j->to[i * j->n_results + r] = lk__data(result);
    }
    return LK_OK;
}

/* The first device that gets here finds the memory of all addends and results. */
static lk_status shared_sum_job_locate(job *j)
{
    pthread_mutex_lock(&j->lock);
    if (!j->located) {
        for (int i = 0; i < j->n_items && j->status == LK_OK; i++)
            j->status = shared_sum_item_locate(j, i);
        if (j->status != LK_OK) {
            snprintf(j->message, sizeof j->message, "%s", lk_error_message());
            lk_error_clear();
        }
        j->located = true;
    }
    lk_status status = j->status;
    pthread_mutex_unlock(&j->lock);
    return status;
}

static lk_status shared_sum_job_outcome(job *j)
{
    pthread_mutex_lock(&j->lock);
    lk_status status = j->status;
    pthread_mutex_unlock(&j->lock);
    return status == LK_OK ? LK_OK : lk__fail(status, "%s", j->message);
}

static lk_status shared_sum_entry_add(const job *j, const entry *e)
{
    for (int i = 0; i < j->n_items; i++) {
        const item *it = &j->items[i];
        lk_device *device = e->task.device;
        if (it->has_products) {
            LK_TRY(device->backend->products->add(device, j->addends + it->first_addend,
                                                  j->additions + it->first_addend, it->n_addends, j->to[i]));
            continue;
        }
        int64_t begin = e->elements.begin - it->begin, end = e->elements.end - it->begin;
        lk_array_sum sum = {.addends = (const float *const *)j->from + it->first_addend,
                            .additions = j->additions + it->first_addend,
                            .n_addends = it->n_addends,
                            .results = j->to + i * j->n_results + e->first_result,
                            .n_results = e->n_results};
        lk__array_sum(&sum, lk__max(begin, 0), lk__min(end, it->count));
    }
    return LK_OK;
}

/* Shows the work in a trace, as an operator on as many elements. */
static void shared_sum_entry_trace(const entry *e, int64_t began)
{
    static const lk_op op = {.name = "tree sum", .id = -1};
    lk_tensor row = {.dtype = LK_F32, .shape = LK_SHAPE(e->elements.end - e->elements.begin)};
    lk_call call = {.op = &op, .n_in = 1, .in = {&row}};
    if (began)
        lk__trace_end_call(&call, began);
}

/* If devices work together, the entry after the parts reports the error. */
static lk_status shared_sum_part_run(lk_task *task)
{
    const entry *e = (const entry *)task;
    int64_t began = lk__trace_begin();
    lk__activity_set(LK_ACTIVITY_OPERATOR, "tree sum");
    if (shared_sum_job_locate(e->job) != LK_OK)
        return e->job->together ? LK_OK : shared_sum_job_outcome(e->job);
    LK_TRY(shared_sum_entry_add(e->job, e));
    shared_sum_entry_trace(e, began);
    return LK_OK;
}

static lk_status shared_sum_before_run(lk_task *task)
{
    (void)task;
    return LK_OK;
}

static lk_status shared_sum_after_run(lk_task *task)
{
    return shared_sum_job_outcome(((const entry *)task)->job);
}

static void shared_sum_entry_release(lk_task *task)
{
    shared_sum_job_release(((const entry *)task)->job);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static void shared_sum_job_list_item(job *j, const lk_shared_sum *sum, int i)
{
    item *it = &j->items[j->n_items];
    it->first_addend = j->n_addends;
    it->has_products = false;
    for (int64_t m = 0; m < sum->n_nodes; m++) {
        lk_tensor *value = sum->nodes[m].values ? sum->nodes[m].values[i] : NULL;
        if (!value)
            continue;
        j->ranges[j->n_addends - it->first_addend] = sum->nodes[m].range;
        j->addends[j->n_addends++] = lk_tensor_retain(value);
        it->has_products |= value->storage->is_product && sum->n_devices == 1 && sum->n_results == 1;
    }
    it->n_addends = j->n_addends - it->first_addend;
    lk__tree_postfix(sum->root, j->ranges, it->n_addends, j->additions + it->first_addend);
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

/* Returns the bytes of a job with its arrays, which are one block. If `j` is not NULL, it begins that block, and its
 * array pointers are set. */
static size_t shared_sum_job_lay_out(job *j, const lk_shared_sum *sum)
{
    size_t n = (size_t)sum->n_quantities, k = (size_t)sum->n_devices, used = 0;
    size_t addends = n * (size_t)sum->n_nodes, results = n * (size_t)sum->n_results;
    job no_job, *to = j ? j : &no_job;
    lk__block_part(j, &used, 1, sizeof *j);
    to->items = lk__block_part(j, &used, n, sizeof *to->items);
    to->addends = lk__block_part(j, &used, addends, sizeof *to->addends);
    to->results = lk__block_part(j, &used, results, sizeof *to->results);
    to->ranges = lk__block_part(j, &used, (size_t)sum->n_nodes, sizeof *to->ranges);
    to->additions = lk__block_part(j, &used, addends, sizeof *to->additions);
    to->devices = lk__block_part(j, &used, k, sizeof *to->devices);
    to->storages = lk__block_part(j, &used, addends + results, sizeof *to->storages);
    to->begins = lk__block_part(j, &used, k + 1, sizeof *to->begins);
    to->entries = lk__block_part(j, &used, 3 * k, sizeof *to->entries);
    to->from = lk__block_part(j, &used, addends, sizeof *to->from);
    to->to = lk__block_part(j, &used, results, sizeof *to->to);
    return used;
}

static job *shared_sum_job_new(const lk_shared_sum *sum)
{
    lk_device *home = sum->devices[0];
    job *j = lk__device_calloc(home, 1, shared_sum_job_lay_out(NULL, sum));
    if (!j)
        return NULL;
    shared_sum_job_lay_out(j, sum);
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

static void shared_sum_job_list_storages(job *j)
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

/* Products may stay their factors only where one device adds up for itself (has_products). */
static lk_status shared_sum_job_make_plain(const job *j)
{
    for (int i = 0; i < j->n_items; i++)
        for (int a = 0; a < j->items[i].n_addends && !j->items[i].has_products; a++)
            LK_TRY(lk__tensor_make_plain(j->addends[j->items[i].first_addend + a]));
    for (int r = 0; j->in_use && r < j->n_items * j->n_results; r++)
        LK_TRY(lk__tensor_make_plain(j->results[r]));
    return LK_OK;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static lk_status shared_sum_job_push(job *j, lk_task task, lk_range elements, int first_result, int n_results)
{
    entry *e = &j->entries[j->n_entries++];
    *e = (entry){task, j, elements, first_result, n_results};
    e->task.release = shared_sum_entry_release;
    lk__refcount_retain(&j->references);
    lk_status status = lk__engine_push_task(&e->task);
    if (status != LK_OK)
        shared_sum_job_release(j);
    return status;
}

/* Every device computes its own results; results in use may be addends, so one device computes all of those. */
static lk_status shared_sum_job_push_alone(job *j)
{
    lk_range all = {0, j->elements};
    int n = j->in_use ? 1 : j->n_devices;
    for (int d = 0; d < n; d++) {
        int begin = j->begins[d], end = j->begins[j->in_use ? j->n_devices : d + 1];
        if (begin == end)
            continue; /* the only result is on another device */
        lk_task task = {.device = j->devices[d],
                        .reads = j->storages,
                        .writes = j->storages + begin,
                        .n_reads = j->n_addends,
                        .n_writes = end - begin,
                        .flops = j->flops,
                        .run = shared_sum_part_run};
        LK_TRY(shared_sum_job_push(j, task, all, j->in_use || j->n_results == 1 ? 0 : d, j->in_use ? j->n_results : 1));
    }
    return LK_OK;
}

/* Pushes entries before the parts (no reads) or after them: see the top of this file. */
static lk_status shared_sum_job_push_brackets(job *j, int n_reads, lk_status (*run)(lk_task *))
{
    for (int d = 0; d < j->n_devices; d++) {
        lk_task task = {.device = j->devices[d],
                        .reads = j->storages,
                        .writes = j->storages + j->begins[d],
                        .n_reads = n_reads,
                        .n_writes = j->begins[d + 1] - j->begins[d],
                        .run = run};
        LK_TRY(shared_sum_job_push(j, task, (lk_range){0, 0}, 0, 0));
    }
    return LK_OK;
}

static lk_status shared_sum_job_push_parts(job *j)
{
    for (int d = 0; d < j->n_devices; d++) {
        lk_range lines = lk_part(j->elements / LINE, j->n_devices, d);
        lk_task task = {.device = j->devices[d],
                        .reads = j->storages,
                        .n_reads = j->begins[j->n_devices],
                        .flops = j->flops / j->n_devices,
                        .run = shared_sum_part_run};
        LK_TRY(shared_sum_job_push(j, task, (lk_range){lines.begin * LINE, lines.end * LINE}, 0, j->n_results));
    }
    return LK_OK;
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

static lk_status shared_sum_job_prepare(job *j, const lk_shared_sum *sum)
{
    for (int q = 0; q < sum->n_quantities; q++) {
        int i = sum->quantities ? sum->quantities[q] : q;
        if (sum->results[i])
            shared_sum_job_list_item(j, sum, i);
    }
    shared_sum_job_list_storages(j);
    j->together = sum->n_devices > 1 && j->elements > LK_SMALL_QUANTITY;
    j->may_take_over = j->together || sum->n_results == 1;
    return shared_sum_job_make_plain(j);
}

lk_status lk__shared_sum_begin(const lk_shared_sum *sum, job **begun)
{
    job *j = shared_sum_job_new(sum);
    if (!j)
        return LK_ERR_MEMORY;
    lk_status status = shared_sum_job_prepare(j, sum);
    if (status == LK_OK && j->n_items > 0 && j->together && j->in_use)
        status = shared_sum_job_push_brackets(j, 0, shared_sum_before_run);
    if (status == LK_OK && j->n_items > 0)
        status = j->together ? shared_sum_job_push_parts(j) : shared_sum_job_push_alone(j);
    if (status == LK_OK && j->together) {
        j->next = *begun;
        *begun = j;
    } else {
        shared_sum_job_release(j);
    }
    return status;
}

lk_status lk__shared_sum_finish(job *begun)
{
    for (job *j = begun; j; j = j->next)
        LK_TRY(shared_sum_job_push_brackets(j, j->n_addends, shared_sum_after_run));
    return LK_OK;
}

void lk__shared_sum_release(job **begun)
{
    while (*begun) {
        job *j = *begun;
        *begun = j->next;
        shared_sum_job_release(j);
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
