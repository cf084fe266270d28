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
static lk_status place_slice(const allreduce *job, lk_tensor *destination, int64_t begin, lk_tensor *part)
{
    lk_tensor *view = lk_slice_at(job->at, destination, 0, begin, begin + lk_tensor_count(part));
    return view ? lk_copy_into_at(job->at, view, part) : lk_error_status();
}

static lk_status reduce_slices(const allreduce *job, int64_t count, lk_tensor **flat)
{
    lk_tensor *parts[LK_MAX_DEVICES];
    for (int d = 0; d < job->n_devices; d++) {
        lk_range slice = lk_part(count, job->n_devices, d);
        LK_TRY(sum_on(job, d, slice, &parts[d]));
        LK_TRY(place_slice(job, flat[d], slice.begin, parts[d]));
    }
    for (int d = 0; d < job->n_devices; d++) {
        for (int j = 1; j < job->n_devices; j++) { /* each device starts with another neighbour */
            int from = (d + j) % job->n_devices;
            lk_tensor *part = job->transport->reach(job->at, parts[from], job->devices[d]);
            if (!part)
                return lk_error_status();
            LK_TRY(place_slice(job, flat[d], lk_part(count, job->n_devices, from).begin, part));
        }
    }
    return LK_OK;
}

static lk_status reduce_large(const allreduce *job, const lk_tensor *like, lk_tensor **sums)
{
    lk_tensor *flat[LK_MAX_DEVICES];
    int64_t count = lk_tensor_count(like);
    for (int d = 0; d < job->n_devices; d++) {
        flat[d] = lk_tensor_new(job->devices[d], like->dtype, LK_SHAPE(count));
        if (!flat[d])
            return lk_error_status();
    }
    LK_TRY(reduce_slices(job, count, flat));
    for (int d = 0; d < job->n_devices; d++) {
        lk_tensor *sum = lk_reshape_at(job->at, flat[d], like->shape);
        if (!sum)
            return lk_error_status();
        sums[d] = lk_tensor_retain(sum);
    }
    return LK_OK;
}

lk_status lk__tree_allreduce(lk_place at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                             int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums)
{
    allreduce job = {at, devices, n_devices, transport, shards, nodes, n_nodes, i};
    for (int d = 0; d < n_devices; d++)
        sums[d] = NULL;
    const lk_tensor *like = first_present(&job);
    if (!like)
        return LK_OK;
    lk_scope_begin();
    bool small = n_devices == 1 || lk_tensor_count(like) <= SMALL_ELEMENTS;
    lk_status status = small ? reduce_small(&job, sums) : reduce_large(&job, like, sums);
    lk_scope_end();
    for (int d = 0; d < n_devices && status != LK_OK; d++) {
        lk_tensor_release(sums[d]);
        sums[d] = NULL;
    }
    return status;
}
