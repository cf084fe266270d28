/* Buckets of quantities whose devices share their memory. */
#include "base/status.h"
#include "core/tensor.h"
#include "dist/strategy.h"

static int list_present(const lk_bucket *bucket, int i, lk_tensor **one)
{
    int n = 0;
    for (int64_t node = 0; node < bucket->n_nodes; node++) {
        lk_tensor *value = bucket->nodes[node].values ? bucket->nodes[node].values[i] : NULL;
        if (!value)
            continue;
        *one = value;
        n++;
    }
    return n;
}

/* New tensors for the sum of quantity i. What is there alone, and where it should be, is the sum itself. */
static lk_status make_sums(const lk_bucket *bucket, int i, lk_device *const *devices, int n_devices)
{
    lk_tensor *value = NULL;
    int present = list_present(bucket, i, &value);
    if (present == 0)
        return LK_OK;
    if (present == 1 && n_devices == 1) {
        bucket->sums[i] = lk_tensor_retain(value);
        return LK_OK;
    }
    for (int d = 0; d < n_devices; d++)
        LK_TRY(lk__tensor_new(devices[d], value->dtype, value->shape, &bucket->sums[(int64_t)d * bucket->n + i]));
    return LK_OK;
}

lk_status lk__bucket_begin_shared(const lk_bucket *bucket, lk_device *const *devices, int n_devices)
{
    lk_shared_sum sum = {.devices = devices,
                         .n_devices = n_devices,
                         .root = bucket->root,
                         .nodes = bucket->nodes,
                         .n_nodes = bucket->n_nodes,
                         .quantities = bucket->quantities,
                         .n_quantities = bucket->n_quantities,
                         .results = bucket->sums,
                         .n_results = n_devices,
                         .stride = bucket->n};
    for (int q = 0; q < bucket->n_quantities; q++)
        if (lk__shared_sum_takes(bucket->nodes, bucket->n_nodes, bucket->quantities[q]))
            LK_TRY(make_sums(bucket, bucket->quantities[q], devices, n_devices));
    return lk__shared_sum_begin(&sum, bucket->jobs);
}

lk_status lk__bucket_sum_on(lk_place at, lk_device *device, const lk_bucket *bucket)
{
    LK_TRY(lk__bucket_begin_shared(bucket, &device, 1));
    for (int q = 0; q < bucket->n_quantities; q++) {
        int i = bucket->quantities[q];
        lk_tensor *sum;
        if (bucket->sums[i])
            continue;
        LK_TRY(lk__tree_sum(at, device, &lk__transport_inproc, bucket->root, bucket->nodes, bucket->n_nodes, i,
                            (lk_range){0, -1}, &sum));
        bucket->sums[i] = lk_tensor_retain(sum);
    }
    return LK_OK;
}
