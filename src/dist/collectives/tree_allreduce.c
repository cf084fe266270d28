#include "dist/collectives/tree_allreduce.h"

#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "ops/ops.h"

typedef struct allreduce {
    lk_call_site at;
    lk_device *const *devices;
    int n_devices;
    const lk_transport *transport;
    int64_t shards;
    const lk_tree_node *nodes;
    int64_t n_nodes;
    int quantity;
} allreduce;

static const lk_tensor *tree_allreduce_first_present(const allreduce *job)
{
    for (int64_t n = 0; n < job->n_nodes; n++)
        if (job->nodes[n].values && job->nodes[n].values[job->quantity])
            return job->nodes[n].values[job->quantity];
    return NULL;
}

static lk_status tree_allreduce_sum_on(const allreduce *job, int d, lk_range elements, lk_tensor **sum)
{
    return lk__tree_sum(job->at, job->devices[d], job->transport, (lk_range){0, job->shards}, job->nodes, job->n_nodes,
                        job->quantity, elements, sum);
}

/* Every device finishes the whole tree. */
static lk_status tree_allreduce_reduce_small(const allreduce *job, lk_tensor **sums)
{
    for (int d = 0; d < job->n_devices; d++) {
        lk_tensor *sum;
        LK_TRY(tree_allreduce_sum_on(job, d, (lk_range){0, -1}, &sum));
        if (sum && lk_tensor_device(sum) != job->devices[d])
            sum = lk_copy_at(job->at, sum, job->devices[d]);
        if (!sum)
            return lk_error_status();
        sums[d] = lk_tensor_retain(sum);
    }
    return LK_OK;
}

/* Copies `part` to destination[begin …]; both have one dimension. */
static lk_status tree_allreduce_write_slice(lk_call_site at, lk_tensor *destination, int64_t begin, lk_tensor *part)
{
    lk_tensor *view = lk_slice_at(at, destination, 0, begin, begin + lk_tensor_count(part));
    return view ? lk_copy_into_at(at, view, part) : lk_error_status();
}

/* Every device finishes its slice of the tree. */
static lk_status tree_allreduce_begin_large(const allreduce *job, const lk_tensor *like, lk_tensor **sums,
                                            lk_tensor **slices)
{
    lk_tensor *vectors[LK_MAX_DEVICES];
    int64_t count = lk_tensor_count(like);
    for (int d = 0; d < job->n_devices; d++) {
        vectors[d] = lk_tensor_new(job->devices[d], like->dtype, LK_SHAPE(count));
        lk_tensor *sum = vectors[d] ? lk_reshape_at(job->at, vectors[d], like->shape) : NULL;
        if (!sum)
            return lk_error_status();
        sums[d] = lk_tensor_retain(sum);
    }
    for (int d = 0; d < job->n_devices; d++) {
        lk_range slice = lk_part(count, job->n_devices, d);
        lk_tensor *sum;
        LK_TRY(tree_allreduce_sum_on(job, d, slice, &sum));
        slices[d] = lk_tensor_retain(sum);
        LK_TRY(tree_allreduce_write_slice(job->at, vectors[d], slice.begin, sum));
    }
    return LK_OK;
}

void lk__tree_allreduce_release(lk_tensor **tensors, int n)
{
    for (int d = 0; d < n; d++) {
        lk_tensor_release(tensors[d]);
        tensors[d] = NULL;
    }
}

lk_status lk__tree_allreduce_begin(lk_call_site at, lk_device *const *devices, int n_devices,
                                   const lk_transport *transport, int64_t shards, const lk_tree_node *nodes,
                                   int64_t n_nodes, int i, lk_tensor **sums, lk_tensor **slices)
{
    allreduce job = {at, devices, n_devices, transport, shards, nodes, n_nodes, i};
    for (int d = 0; d < n_devices; d++)
        sums[d] = slices[d] = NULL;
    const lk_tensor *like = tree_allreduce_first_present(&job);
    if (!like)
        return LK_OK;
    lk_scope_begin();
    bool is_whole = devices[0]->backend->modules; /* such devices copy whole tensors to each other, no slices */
    bool small = n_devices == 1 || is_whole || lk_tensor_count(like) <= LK_SMALL_QUANTITY;
    lk_status status =
        small ? tree_allreduce_reduce_small(&job, sums) : tree_allreduce_begin_large(&job, like, sums, slices);
    lk_scope_end();
    if (status != LK_OK) {
        lk__tree_allreduce_release(sums, n_devices);
        lk__tree_allreduce_release(slices, n_devices);
    }
    return status;
}

lk_status lk__tree_allreduce_finish(lk_call_site at, lk_device *const *devices, int n_devices,
                                    const lk_transport *transport, lk_tensor *const *sums, lk_tensor *const *slices)
{
    lk_status status = LK_OK;
    if (!slices[0])
        return LK_OK;
    lk_scope_begin();
    for (int d = 0; d < n_devices && status == LK_OK; d++) {
        int64_t count = lk_tensor_count(sums[d]);
        lk_tensor *vector = lk_reshape_at(at, sums[d], LK_SHAPE(count));
        for (int j = 1; j < n_devices && status == LK_OK; j++) {
            int from = (d + j) % n_devices; /* each device starts with another neighbor */
            lk_tensor *slice = transport->reach(at, slices[from], devices[d]);
            status = slice && vector
                         ? tree_allreduce_write_slice(at, vector, lk_part(count, n_devices, from).begin, slice)
                         : lk_error_status();
        }
    }
    lk_scope_end();
    return status;
}

lk_status lk__tree_allreduce(lk_call_site at, lk_device *const *devices, int n_devices, const lk_transport *transport,
                             int64_t shards, const lk_tree_node *nodes, int64_t n_nodes, int i, lk_tensor **sums)
{
    lk_tensor *slices[LK_MAX_DEVICES] = {NULL};
    LK_TRY(lk__tree_allreduce_begin(at, devices, n_devices, transport, shards, nodes, n_nodes, i, sums, slices));
    lk_status status = lk__tree_allreduce_finish(at, devices, n_devices, transport, sums, slices);
    lk__tree_allreduce_release(slices, n_devices);
    if (status != LK_OK)
        lk__tree_allreduce_release(sums, n_devices);
    return status;
}
