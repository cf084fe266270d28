#include "dist/collective.h"

#include "base/status.h"
#include "core/tensor.h"
#include "ops/ops.h"

enum { SMALL_ELEMENTS = 8192 };

typedef struct allreduce {
    lk_place at;
    lk_device *const *devices;
    int n_devices;
    const lk_transport *transport;
    int64_t shards;
    const lk_tree_node *nodes;
    int64_t n_nodes;
    int quantity;
} allreduce;

static const lk_tensor *first_present(const allreduce *job)
{
    for (int64_t n = 0; n < job->n_nodes; n++)
        if (job->nodes[n].values && job->nodes[n].values[job->quantity])
            return job->nodes[n].values[job->quantity];
    return NULL;
}

static lk_status sum_on(const allreduce *job, int d, lk_range elements, lk_tensor **sum)
{
    return lk__tree_sum(job->at, job->devices[d], job->transport, (lk_range){0, job->shards}, job->nodes, job->n_nodes,
                        job->quantity, elements, sum);
}

/* Every device finishes the whole tree. */
static lk_status reduce_small(const allreduce *job, lk_tensor **sums)
{
    for (int d = 0; d < job->n_devices; d++) {
        lk_tensor *sum;
        LK_TRY(sum_on(job, d, (lk_range){0, -1}, &sum));
        if (sum && lk_tensor_device(sum) != job->devices[d])
            sum = lk_copy_at(job->at, sum, job->devices[d]);
        if (!sum)
            return lk_error_status();
        sums[d] = lk_tensor_retain(sum);
    }
    return LK_OK;
}

/* destination[begin …] = part, both flat. */
static lk_status place_slice(lk_place at, lk_tensor *destination, int64_t begin, lk_tensor *part)
{
    lk_tensor *view = lk_slice_at(at, destination, 0, begin, begin + lk_tensor_count(part));
    return view ? lk_copy_into_at(at, view, part) : lk_error_status();
}

static lk_status begin_slices(const allreduce *job, int64_t count, lk_tensor **flat, lk_tensor **slices)
{
    for (int d = 0; d < job->n_devices; d++) {
        lk_range slice = lk_part(count, job->n_devices, d);
        lk_tensor *sum;
        LK_TRY(sum_on(job, d, slice, &sum));
        slices[d] = lk_tensor_retain(sum);
        LK_TRY(place_slice(job->at, flat[d], slice.begin, sum));
    }
    return LK_OK;
}

static lk_status begin_large(const allreduce *job, const lk_tensor *like, lk_tensor **sums, lk_tensor **slices)
{
    lk_tensor *flat[LK_MAX_DEVICES];
    int64_t count = lk_tensor_count(like);
    for (int d = 0; d < job->n_devices; d++) {
        flat[d] = lk_tensor_new(job->devices[d], like->dtype, LK_SHAPE(count));
        lk_tensor *sum = flat[d] ? lk_reshape_at(job->at, flat[d], like->shape) : NULL;
        if (!sum)
            return lk_error_status();
        sums[d] = lk_tensor_retain(sum);
    }
    return begin_slices(job, count, flat, slices);
}

static void release_all(lk_tensor **tensors, int n)
{
    for (int d = 0; d < n; d++) {
        lk_tensor_release(tensors[d]);
        tensors[d] = NULL;
    }
}

lk_status lk__tree_allreduce_begin(lk_place at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                                   int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums,
                                   lk_tensor **slices)
{
    allreduce job = {at, devices, n_devices, transport, shards, nodes, n_nodes, i};
    for (int d = 0; d < n_devices; d++)
        sums[d] = slices[d] = NULL;
    const lk_tensor *like = first_present(&job);
    if (!like)
        return LK_OK;
    lk_scope_begin();
    bool small = n_devices == 1 || lk_tensor_count(like) <= SMALL_ELEMENTS;
    lk_status status = small ? reduce_small(&job, sums) : begin_large(&job, like, sums, slices);
    lk_scope_end();
    if (status != LK_OK) {
        release_all(sums, n_devices);
        release_all(slices, n_devices);
    }
    return status;
}

/* sums[d] gets the slices of the others; each device starts with another neighbour. */
static lk_status collect(lk_place at, int n_devices, const lk_transport *transport, int d, lk_device *device,
                         lk_tensor *sum, lk_tensor *const *slices)
{
    int64_t count = lk_tensor_count(sum);
    lk_tensor *flat = lk_reshape_at(at, sum, LK_SHAPE(count));
    for (int j = 1; j < n_devices; j++) {
        int from = (d + j) % n_devices;
        lk_tensor *slice = transport->reach(at, slices[from], device);
        if (!slice || !flat)
            return lk_error_status();
        LK_TRY(place_slice(at, flat, lk_part(count, n_devices, from).begin, slice));
    }
    return LK_OK;
}

lk_status lk__tree_allreduce_finish(lk_place at, lk_device *const *devices, int n_devices,
                                    const lk_transport *transport, lk_tensor *const *sums, lk_tensor *const *slices)
{
    lk_status status = LK_OK;
    if (!slices[0])
        return LK_OK;
    lk_scope_begin();
    for (int d = 0; d < n_devices && status == LK_OK; d++)
        status = collect(at, n_devices, transport, d, devices[d], sums[d], slices);
    lk_scope_end();
    return status;
}

lk_status lk__tree_allreduce(lk_place at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                             int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums)
{
    lk_tensor *slices[LK_MAX_DEVICES] = {NULL};
    LK_TRY(lk__tree_allreduce_begin(at, devices, n_devices, transport, shards, nodes, n_nodes, i, sums, slices));
    lk_status status = lk__tree_allreduce_finish(at, devices, n_devices, transport, sums, slices);
    release_all(slices, n_devices);
    if (status != LK_OK)
        release_all(sums, n_devices);
    return status;
}
