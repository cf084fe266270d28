/* A replica of the variables on every device, equal to the last bit: each applies the same sums. */
#include "base/status.h"
#include "dist/collective.h"
#include "dist/strategy.h"
#include "lockstep/ops.h"

static lk_status check(lk_device *const *devices, int n_devices)
{
    (void)devices, (void)n_devices;
    return LK_OK;
}

static lk_status place(lk_place at, lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables)
{
    for (int r = 0; r < strategy->n_devices; r++) {
        for (int i = 0; i < n; i++) {
            lk_tensor *copy = lk_copy_at(at, initial[i], strategy->devices[r]);
            if (!copy)
                return lk_error_status();
            variables[r * n + i] = lk_tensor_retain(copy);
        }
    }
    return LK_OK;
}

static lk_status reduce(lk_place at, lk_strategy *strategy, int64_t shards, const lk_tree_node *nodes, int64_t n_nodes,
                        int n, lk_tensor **sums)
{
    lk_tensor *replicas[LK_MAX_DEVICES];
    for (int i = 0; i < n; i++) {
        LK_TRY(lk__tree_allreduce(at, strategy->devices, strategy->n_devices, &lk__transport_inproc, shards, nodes,
                                  n_nodes, i, replicas));
        for (int r = 0; r < strategy->n_devices; r++)
            sums[r * n + i] = replicas[r];
    }
    return LK_OK;
}

const lk_strategy_table lk__strategy_mirrored = {
    .name = "mirrored",
    .check = check,
    .place = place,
    .reduce = reduce,
};
