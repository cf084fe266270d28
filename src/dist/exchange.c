/* The collectives as a hand-written training loop calls them: on arrays of tensors. */
#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "dist/collective.h"
#include "lockstep/ops.h"

#include <string.h>

static void release_all(lk_tensor **tensors, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        lk_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

/* --- split, broadcast --------------------------------------------------------------------------------------------- */

static lk_tensor *shard_on(lk_place at, lk_tensor *batch, lk_range samples, lk_device *device)
{
    lk_tensor *view = lk_slice_at(at, batch, 0, samples.begin, samples.end);
    return !view || lk_tensor_device(view) == device ? view : lk_copy_at(at, view, device);
}

lk_status lk_split_batch_at(lk_place at, lk_tensor *batch, int64_t shards, lk_device *const *devices, int n_devices,
                            lk_tensor **parts)
{
    for (int64_t s = 0; s < shards; s++)
        parts[s] = NULL;
    if (!batch)
        return lk_tensor_wait(NULL);
    if (batch->shape.ndim == 0)
        LK_FAIL(LK_ERR_SHAPE, "split_batch: a scalar has no samples");
    if (n_devices < 1 || shards < n_devices)
        LK_FAIL(LK_ERR_ARGUMENT, "split_batch: %lld shards on %d devices", (long long)shards, n_devices);
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int d = 0; d < n_devices && status == LK_OK; d++) {
        lk_range own = lk_part(shards, n_devices, d);
        for (int64_t s = own.begin; s < own.end && status == LK_OK; s++) {
            parts[s] = lk_tensor_retain(shard_on(at, batch, lk_part(batch->shape.dim[0], shards, s), devices[d]));
            status = parts[s] ? LK_OK : lk_error_status();
        }
    }
    lk_scope_end();
    return lk__scope_adopt_all(parts, shards, status);
}

lk_status lk_broadcast_at(lk_place at, lk_tensor *tensor, lk_device *const *devices, int n_devices, lk_tensor **copies)
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

static lk_status wrong_shape(int64_t i, lk_shape shape, lk_shape expected)
{
    char have[128], want[128];
    lk__shape_text(shape, have, sizeof have);
    lk__shape_text(expected, want, sizeof want);
    LK_FAIL(LK_ERR_SHAPE, "allreduce: tensor %lld has shape %s, the first %s", (long long)i, have, want);
}

static lk_status check_arguments(lk_tensor *const *tensors, int64_t n)
{
    const lk_tensor *first = NULL;
    for (int64_t i = 0; i < n; i++) {
        const lk_tensor *tensor = tensors[i];
        if (!tensor)
            continue;
        first = first ? first : tensor;
        if (!lk__shape_equal(tensor->shape, first->shape))
            return wrong_shape(i, tensor->shape, first->shape);
        if (tensor->dtype != first->dtype)
            LK_FAIL(LK_ERR_DTYPE, "allreduce: tensor %lld is %s, the first %s", (long long)i,
                    lk_dtype_name(tensor->dtype), lk_dtype_name(first->dtype));
        if (strcmp(lk_device_kind(lk_tensor_device(tensor)), lk_device_kind(lk_tensor_device(first))) != 0)
            LK_FAIL(LK_ERR_DEVICE, "allreduce: tensors on %s and %s; devices of one kind are needed",
                    lk_device_name(lk_tensor_device(first)), lk_device_name(lk_tensor_device(tensor)));
    }
    return LK_OK;
}

/* The devices of the tensors, each once, in order of appearance. */
static lk_status distinct_devices(lk_tensor *const *tensors, int64_t n, lk_device **devices, int *count)
{
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        int d = 0;
        while (tensors[i] && d < *count && devices[d] != lk_tensor_device(tensors[i]))
            d++;
        if (!tensors[i] || d < *count)
            continue;
        if (d == LK_MAX_DEVICES)
            LK_FAIL(LK_ERR_DEVICE, "allreduce: tensors on more than %d devices", LK_MAX_DEVICES);
        devices[(*count)++] = lk_tensor_device(tensors[i]);
    }
    return LK_OK;
}

static lk_status write_back(lk_place at, lk_tensor *const *tensors, int64_t n, lk_device *const *devices,
                            lk_tensor *const *sums)
{
    for (int64_t i = 0; i < n; i++) {
        int d = 0;
        if (!tensors[i])
            continue;
        while (devices[d] != lk_tensor_device(tensors[i]))
            d++;
        if (sums[d] != tensors[i])
            LK_TRY(lk_copy_into_at(at, tensors[i], sums[d]));
    }
    return LK_OK;
}

lk_status lk_allreduce_at(lk_place at, lk_tensor *const *tensors, int64_t n)
{
    lk_device *devices[LK_MAX_DEVICES];
    lk_tensor *sums[LK_MAX_DEVICES];
    LK_TRY(check_arguments(tensors, n));
    int n_devices;
    LK_TRY(distinct_devices(tensors, n, devices, &n_devices));
    if (n_devices == 0)
        return LK_OK;
    lk_tree_node *nodes = lk__calloc((size_t)n, sizeof *nodes);
    if (!nodes)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        nodes[i] = (lk_tree_node){{i, i + 1}, tensors + i};
    lk_status status = lk__tree_allreduce(at, devices, n_devices, &lk__transport_inproc, n, nodes, n, 0, sums);
    lk__free(nodes);
    if (status != LK_OK)
        return status;
    lk_scope_begin();
    status = write_back(at, tensors, n, devices, sums);
    lk_scope_end();
    release_all(sums, n_devices);
    return status;
}
