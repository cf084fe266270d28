/* The public collectives, which a hand-written training loop calls on arrays of tensors. */
#include "base/mem.h"
#include "base/status.h"
#include "core/scope.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "dist/collectives/tree_allreduce.h"
#include "dist/sum/shared_sum.h"
#include "lockstep/ops.h"

#include <string.h>

/* --- split, broadcast --------------------------------------------------------------------------------------------- */

/* Returns the samples as a view of the batch, or as a copy if the batch is on another device. */
static lk_tensor *exchange_shard_on(lk_call_site at, lk_tensor *batch, lk_range samples, lk_device *device)
{
    lk_tensor *view = lk_slice_at(at, batch, 0, samples.begin, samples.end);
    return !view || lk_tensor_device(view) == device ? view : lk_copy_at(at, view, device);
}

lk_status lk_split_batch_at(lk_call_site at, lk_tensor *batch, int64_t shards, lk_device *const *devices, int n_devices,
                            lk_tensor **parts)
{
    for (int64_t s = 0; s < shards; s++)
        parts[s] = NULL;
    if (!batch)
        return lk_tensor_wait(NULL); /* the error that left no batch */
    if (batch->shape.ndim == 0)
        LK_FAIL(LK_ERR_SHAPE, "split_batch: a scalar has no samples");
    if (n_devices < 1 || shards < n_devices)
        LK_FAIL(LK_ERR_ARGUMENT, "split_batch: %lld shards on %d devices", (long long)shards, n_devices);
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int d = 0; d < n_devices && status == LK_OK; d++) {
        lk_range own = lk_part(shards, n_devices, d);
        for (int64_t s = own.begin; s < own.end && status == LK_OK; s++) {
            parts[s] =
                lk_tensor_retain(exchange_shard_on(at, batch, lk_part(batch->shape.dim[0], shards, s), devices[d]));
            status = parts[s] ? LK_OK : lk_error_status();
        }
    }
    lk_scope_end();
    return lk__scope_adopt_all(parts, shards, status);
}

lk_status lk_broadcast_at(lk_call_site at, lk_tensor *tensor, lk_device *const *devices, int n_devices,
                          lk_tensor **copies)
{
    lk_status status = LK_OK;
    memset(copies, 0, (size_t)n_devices * sizeof *copies);
    lk_scope_begin();
    for (int d = 0; d < n_devices && status == LK_OK; d++) {
        copies[d] = lk_tensor_retain(lk_copy_at(at, tensor, devices[d]));
        status = copies[d] ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    return lk__scope_adopt_all(copies, n_devices, status);
}

/* --- all-reduce --------------------------------------------------------------------------------------------------- */

static lk_status exchange_allreduce_check(lk_tensor *const *tensors, int64_t n)
{
    const lk_tensor *first = NULL;
    for (int64_t i = 0; i < n; i++) {
        const lk_tensor *tensor = tensors[i];
        if (!tensor)
            continue;
        first = first ? first : tensor;
        if (!lk__shape_equal(tensor->shape, first->shape)) {
            char have[128], want[128];
            lk__shape_text(tensor->shape, have, sizeof have);
            lk__shape_text(first->shape, want, sizeof want);
            LK_FAIL(LK_ERR_SHAPE, "allreduce: tensor %lld has shape %s, the first %s", (long long)i, have, want);
        }
        if (tensor->dtype != first->dtype)
            LK_FAIL(LK_ERR_DTYPE, "allreduce: tensor %lld is %s, the first %s", (long long)i,
                    lk_dtype_name(tensor->dtype), lk_dtype_name(first->dtype));
        if (strcmp(lk_device_kind(lk_tensor_device(tensor)), lk_device_kind(lk_tensor_device(first))) != 0)
            LK_FAIL(LK_ERR_DEVICE, "allreduce: tensors on %s and %s; devices of one kind are needed",
                    lk_device_name(lk_tensor_device(first)), lk_device_name(lk_tensor_device(tensor)));
    }
    return LK_OK;
}

/* Lists the devices of the tensors, each once, in order of appearance. */
static lk_status exchange_list_devices(lk_tensor *const *tensors, int64_t n, lk_device **devices, int *count)
{
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!tensors[i])
            continue;
        int d = 0;
        while (d < *count && devices[d] != lk_tensor_device(tensors[i]))
            d++;
        if (d == LK_MAX_DEVICES)
            LK_FAIL(LK_ERR_DEVICE, "allreduce: tensors on more than %d devices", LK_MAX_DEVICES);
        if (d == *count)
            devices[(*count)++] = lk_tensor_device(tensors[i]);
    }
    return LK_OK;
}

/* The result of a reduction: a sum on each of the tensors' devices, one reference each. */
typedef struct reduced {
    lk_device *devices[LK_MAX_DEVICES];
    lk_tensor *sums[LK_MAX_DEVICES];
    int n;
} reduced;

static lk_status exchange_allreduce_to_sums(lk_call_site at, lk_tensor *const *tensors, int64_t n, reduced *result)
{
    LK_TRY(exchange_list_devices(tensors, n, result->devices, &result->n));
    if (result->n == 0)
        return LK_OK;
    lk_tree_node *nodes = lk__calloc((size_t)n, sizeof *nodes);
    if (!nodes)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        nodes[i] = (lk_tree_node){.range = {i, i + 1}, .values = tensors + i};
    lk_phase before = lk__phase_set(result->n > 1 ? LK_PHASE_EXCHANGE : LK_PHASE_SHARD_SUM);
    lk_status status =
        lk__tree_allreduce(at, result->devices, result->n, &lk__transport_inproc, n, nodes, n, 0, result->sums);
    lk__phase_set(before);
    lk__free(nodes);
    return status;
}

static lk_tensor *exchange_sum_for(const reduced *result, const lk_tensor *tensor)
{
    int d = 0;
    while (result->devices[d] != lk_tensor_device(tensor))
        d++;
    return result->sums[d];
}

/* Computes the sums as new tensors, and copies them into the tensors. */
static lk_status exchange_allreduce_by_copies(lk_call_site at, lk_tensor *const *tensors, int64_t n)
{
    reduced result;
    LK_TRY(exchange_allreduce_to_sums(at, tensors, n, &result));
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int64_t i = 0; i < n && status == LK_OK; i++) {
        lk_tensor *sum = tensors[i] ? exchange_sum_for(&result, tensors[i]) : NULL;
        if (sum != tensors[i])
            status = lk_copy_into_at(at, tensors[i], sum);
    }
    lk_scope_end();
    lk__tree_allreduce_release(result.sums, result.n);
    return status;
}

/* Returns whether tensors of one storage all have the same offset: then none of them overlap in part. */
static bool exchange_are_disjoint(lk_tensor *const *tensors, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            if (tensors[i] && tensors[j] && tensors[i]->storage == tensors[j]->storage &&
                tensors[i]->offset != tensors[j]->offset)
                return false;
    return true;
}

/* nodes and results: scratch for n tensors. */
static lk_status exchange_allreduce_in_place(lk_tensor *const *tensors, int64_t n, lk_tree_node *nodes,
                                             lk_tensor **results)
{
    lk_device *devices[LK_MAX_DEVICES];
    lk_shared_sum sum = {.devices = devices,
                         .root = {0, n},
                         .nodes = nodes,
                         .n_nodes = n,
                         .n_quantities = 1,
                         .stride = 1,
                         .in_use = true};
    LK_TRY(exchange_list_devices(tensors, n, devices, &sum.n_devices));
    for (int64_t i = 0; i < n; i++)
        if (tensors[i])
            results[sum.n_results++] = tensors[i];
    sum.results = results;
    lk_phase before = lk__phase_set(sum.n_devices > 1 ? LK_PHASE_EXCHANGE : LK_PHASE_SHARD_SUM);
    lk_status status = sum.n_results > 1 ? lk__shared_sum(&sum) : LK_OK;
    lk__phase_set(before);
    return status;
}

lk_status lk_allreduce_at(lk_call_site at, lk_tensor *const *tensors, int64_t n)
{
    LK_TRY(exchange_allreduce_check(tensors, n));
    lk_tree_node *nodes = lk__calloc((size_t)n, sizeof *nodes);
    lk_tensor **results = lk__calloc((size_t)n, sizeof(lk_tensor *));
    lk_status status = nodes && results ? LK_OK : LK_ERR_MEMORY;
    for (int64_t i = 0; i < n && status == LK_OK; i++)
        nodes[i] = (lk_tree_node){.range = {i, i + 1}, .values = tensors + i};
    if (status == LK_OK)
        status = exchange_are_disjoint(tensors, n) && lk__shared_sum_takes(nodes, n, 0)
                     ? exchange_allreduce_in_place(tensors, n, nodes, results)
                     : exchange_allreduce_by_copies(at, tensors, n);
    lk__free(nodes);
    lk__free(results);
    return status;
}

/* Gives tensors of one device different views of one sum, because a tape tells tensors apart by object. */
static lk_status exchange_allreduce_to_views(lk_call_site at, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    reduced result;
    LK_TRY(exchange_allreduce_check(parts, n));
    LK_TRY(exchange_allreduce_to_sums(at, parts, n, &result));
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int i = 0; i < n && status == LK_OK; i++) {
        lk_tensor *sum = exchange_sum_for(&result, parts[i]);
        sums[i] = lk_tensor_retain(lk_reshape_at(at, sum, sum->shape));
        status = sums[i] ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    status = lk__scope_adopt_all(sums, n, status);
    lk__tree_allreduce_release(result.sums, result.n);
    return status;
}

static lk_status exchange_allreduce_gradient(void *user, lk_call_site at, lk_tensor *const *dout, lk_tensor **din,
                                             int n)
{
    (void)user;
    return lk_allreduce_recorded_at(at, dout, din, n);
}

lk_status lk_allreduce_recorded_at(lk_call_site at, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int i = 0; i < n; i++)
        if (!parts[i])
            return lk_error_status() != LK_OK ? lk_error_status() : lk__fail(LK_ERR_ARGUMENT, "allreduce: NULL");
    lk_recorder recorder = lk__recorder_set((lk_recorder){0});
    lk_status status = exchange_allreduce_to_views(at, parts, sums, n);
    lk__recorder_set(recorder);
    LK_TRY(status);
    lk_function function = {"allreduce", at, n, parts, sums, exchange_allreduce_gradient, NULL};
    status = recorder.record_function ? recorder.record_function(recorder.self, &function) : LK_OK;
    if (status != LK_OK)
        memset(sums, 0, (size_t)n * sizeof *sums); /* the open scope has them */
    return status;
}
