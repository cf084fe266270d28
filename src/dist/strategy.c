#include "dist/strategy.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "lockstep/ops.h"

#include <string.h>

static const lk_strategy_table *const tables[] = {&lk__strategy_one_device,       &lk__strategy_mirrored,
                                                  &lk__strategy_central_storage,  &lk__strategy_multi_worker,
                                                  &lk__strategy_parameter_server, &lk__strategy_tpu};
enum { TABLE_COUNT = sizeof tables / sizeof tables[0] };

const lk_strategy_table *lk__strategy_table_at(int index)
{
    return index >= 0 && index < TABLE_COUNT ? tables[index] : NULL;
}

const char *lk_strategy_name_at(int index)
{
    const lk_strategy_table *table = lk__strategy_table_at(index);
    return table ? table->name : NULL;
}

static const lk_strategy_table *strategy_table(const char *name)
{
    for (int i = 0; name && i < TABLE_COUNT; i++)
        if (strcmp(name, tables[i]->name) == 0)
            return tables[i];
    return NULL;
}

bool lk__strategy_has(const char *name, unsigned facts)
{
    const lk_strategy_table *table = strategy_table(name);
    return table && (table->facts & facts);
}

lk_strategy_kind lk_strategy_kind_of(const char *name)
{
    if (lk__strategy_has(name, LK_STRATEGY_RANKS))
        return LK_STRATEGY_SYNCHRONOUS;
    return lk__strategy_has(name, LK_STRATEGY_ROLES) ? LK_STRATEGY_ASYNCHRONOUS : LK_STRATEGY_LOCAL;
}

const char *lk__strategy_default(int n_devices)
{
    return n_devices == 1 ? lk__strategy_one_device.name : lk__strategy_mirrored.name;
}

static lk_status strategy_find_table(const char *name, const lk_strategy_table **table)
{
    *table = strategy_table(name);
    if (*table)
        return LK_OK;
    LK_FAIL(LK_ERR_ARGUMENT,
            "unknown strategy '%s': one-device, mirrored, central-storage, multi-worker, parameter-server, tpu",
            name ? name : "");
}

static lk_status strategy_check_devices(lk_device *const *devices, int n_devices)
{
    for (int d = 1; d < n_devices; d++) {
        if (strcmp(lk_device_kind(devices[d]), lk_device_kind(devices[0])) != 0)
            LK_FAIL(LK_ERR_ARGUMENT, "strategy: %s and %s compute different bits; use devices of one kind",
                    lk_device_name(devices[0]), lk_device_name(devices[d]));
        for (int before = 0; before < d; before++)
            if (devices[before] == devices[d])
                LK_FAIL(LK_ERR_ARGUMENT, "strategy: %s is given twice; \"2x%s\" opens two devices in its place",
                        lk_device_name(devices[d]), lk_device_name(devices[d]));
    }
    return LK_OK;
}

lk_status lk__strategy_check_name(const char *name)
{
    const lk_strategy_table *table;
    return strategy_find_table(name, &table);
}

lk_strategy *lk_strategy_new(const char *name, lk_device *const *devices, int n_devices)
{
    const lk_strategy_table *table;
    if (n_devices < 1 || n_devices > LK_MAX_DEVICES) {
        lk__fail(LK_ERR_ARGUMENT, "strategy: %d devices, where 1 to %d are possible", n_devices, LK_MAX_DEVICES);
        return NULL;
    }
    if (strategy_find_table(name, &table) != LK_OK || strategy_check_devices(devices, n_devices) != LK_OK ||
        (table->check && table->check(devices, n_devices) != LK_OK))
        return NULL;
    lk_strategy *strategy = lk__calloc(1, sizeof *strategy);
    if (!strategy)
        return NULL;
    strategy->table = table;
    strategy->n_devices = strategy->ranks = n_devices;
    for (int d = 0; d < n_devices; d++)
        strategy->devices[d] = lk_device_retain(devices[d]);
    if (table->open && table->open(strategy) != LK_OK) {
        lk_strategy_release(strategy);
        return NULL;
    }
    return strategy;
}

void lk_strategy_release(lk_strategy *strategy)
{
    if (!strategy)
        return;
    lk__links_allreduce_release(strategy->allreduce);
    lk__free(strategy->starts);
    lk_device_release(strategy->storage);
    lk_devices_release(strategy->devices, strategy->n_devices);
    lk__free(strategy);
}

/* A single device exchanges nothing, but must still be of a kind that NCCL supports. */
static lk_status strategy_check_nccl(const lk_strategy *strategy)
{
    if (strategy->storage)
        LK_FAIL(LK_ERR_UNSUPPORTED, "NCCL sums on every GPU, strategy central-storage on %s alone",
                lk_device_name(strategy->storage));
    const lk_links_table *links = lk__links_of(strategy->devices[0]);
    if (!links)
        LK_FAIL(LK_ERR_UNSUPPORTED, "NCCL is for GPUs, not for %s", lk_device_name(strategy->devices[0]));
    return links->check_library(strategy->devices, strategy->n_devices);
}

lk_status lk_strategy_set_reduce(lk_strategy *strategy, lk_reduce reduce)
{
    if (reduce == LK_REDUCE_NCCL)
        LK_TRY(strategy_check_nccl(strategy));
    strategy->reduce = reduce;
    return LK_OK;
}

static lk_status strategy_check_rounding(bool compressed, lk_exchange exchange)
{
    if (compressed && exchange == LK_EXCHANGE_TREE)
        LK_FAIL(LK_ERR_ARGUMENT, "exchange along the tree: not in bf16, because every step would round the sums");
    return LK_OK;
}

lk_status lk_strategy_set_compression(lk_strategy *strategy, bool compressed)
{
    const lk_backend *backend = strategy->devices[0]->backend;
    if (compressed && (!strategy->group || backend->links || backend->modules))
        LK_FAIL(LK_ERR_ARGUMENT, "exchange in bf16: strategy multi-worker on CPU devices has it, not %s on %s",
                strategy->table->name, lk_device_name(strategy->devices[0]));
    LK_TRY(strategy_check_rounding(compressed, strategy->exchange));
    strategy->compressed = compressed;
    return LK_OK;
}

lk_status lk_strategy_set_exchange(lk_strategy *strategy, lk_exchange exchange)
{
    LK_TRY(strategy_check_rounding(strategy->compressed, exchange));
    strategy->exchange = exchange;
    if (strategy->allreduce)
        lk__links_allreduce_set_exchange(strategy->allreduce, exchange);
    return LK_OK;
}

lk_status lk_strategy_set_sharded(lk_strategy *strategy, bool sharded)
{
    if (sharded && !(strategy->table->facts & LK_STRATEGY_SHARDS))
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "strategy %s: its devices cannot share the optimizer's state; those of mirrored, multi-worker and tpu can",
            strategy->table->name);
    strategy->sharded = sharded;
    return LK_OK;
}

lk_exchange lk_strategy_exchange(const lk_strategy *strategy, int64_t bytes)
{
    bool is_gathered = strategy->devices[0]->backend->modules;
    if (!strategy->allreduce || strategy->ranks == 1 || strategy->reduce == LK_REDUCE_NCCL || is_gathered)
        return LK_EXCHANGE_AUTO;
    return lk__links_allreduce_way(strategy->allreduce, bytes, strategy->compressed);
}

lk_status lk_strategy_set_storage(lk_strategy *strategy, lk_device *device)
{
    lk_device *before = strategy->storage;
    if (!before)
        LK_FAIL(LK_ERR_ARGUMENT,
                "strategy %s: has no storing device: each device has its own variables; central-storage has one",
                strategy->table->name);
    if (!device)
        LK_FAIL(LK_ERR_ARGUMENT, "strategy %s: the storing device is NULL", strategy->table->name);
    strategy->storage = lk_device_retain(device);
    lk_device_release(before);
    return LK_OK;
}

lk_device *lk_strategy_storage(const lk_strategy *strategy)
{
    return strategy->storage;
}

bool lk__has_separate_storage(const lk_strategy *strategy)
{
    bool computes = !strategy->storage;
    for (int d = 0; d < strategy->n_devices; d++)
        computes |= strategy->devices[d] == strategy->storage;
    return !computes;
}

const char *lk_strategy_transport(const lk_strategy *strategy)
{
    return strategy->transport;
}

const char *lk_strategy_name(const lk_strategy *strategy)
{
    return strategy->table->name;
}

int lk_strategy_num_replicas(const lk_strategy *strategy)
{
    return strategy->n_devices;
}

int lk_strategy_ranks(const lk_strategy *strategy)
{
    return strategy->ranks;
}

int lk_strategy_first_rank(const lk_strategy *strategy)
{
    return strategy->first;
}

lk_device *lk_strategy_device(const lk_strategy *strategy, int replica)
{
    return replica >= 0 && replica < strategy->n_devices ? strategy->devices[replica] : NULL;
}

static lk_status strategy_copy_variables(lk_device *device, lk_tensor *const *initial, int n, lk_tensor **variables)
{
    for (int i = 0; i < n; i++) {
        lk_tensor *copy = lk_copy(initial[i], device);
        if (!copy)
            return lk_error_status();
        variables[i] = lk_tensor_retain(copy);
    }
    return LK_OK;
}

static lk_status strategy_copy_to_owners(lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables)
{
    if (strategy->storage)
        return strategy_copy_variables(strategy->storage, initial, n, variables);
    for (int r = 0; r < strategy->n_devices; r++)
        LK_TRY(strategy_copy_variables(strategy->devices[r], initial, n, variables + (int64_t)r * n));
    return LK_OK;
}

int lk_strategy_owners(const lk_strategy *strategy)
{
    return strategy->storage ? 1 : strategy->n_devices;
}

lk_status lk_strategy_distribute(lk_strategy *strategy, lk_tensor *const *initial, int n, lk_tensor **variables)
{
    int total = lk_strategy_owners(strategy) * n;
    memset(variables, 0, (size_t)total * sizeof *variables);
    lk_scope_begin();
    lk_status status = strategy_copy_to_owners(strategy, initial, n, variables);
    lk_scope_end();
    for (int i = 0; i < total && status != LK_OK; i++) {
        lk_tensor_release(variables[i]);
        variables[i] = NULL;
    }
    return status;
}
