#include "train/trainer_devices.h"

#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/strategy.h"
#include "dist/sum/remote_nodes.h"
#include "train/plan/agreement.h"
#include "train/plan/choices.h"
#include "train/plan/plan.h"
#include "train/processes.h"
#include "train/trainer.h"
#include "lockstep/pjrt.h"

#include <stdio.h>
#include <string.h>

int64_t lk__trainer_segment_bytes(const lk_trainer *trainer)
{
    int64_t bytes = (int64_t)(1e6 * trainer->config.devices.bucket_mb);
    return trainer->strategy->group ? lk__min(bytes, LK_REMOTE_BUCKET_BYTES) : bytes;
}

int64_t lk__trainer_bucket_bytes(const lk_trainer *trainer)
{
    int64_t all = trainer->plan.parameters * (int64_t)sizeof(float), bytes = lk__trainer_segment_bytes(trainer);
    return bytes > 0 ? lk__min(bytes, all) : all;
}

/* Every rank adds up all nodes of a sum in bf16. */
static lk_status trainer_devices_plan_compression(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    int nodes;
    plan->compressed = trainer->config.devices.compress != 0;
    LK_TRY(lk_strategy_set_compression(trainer->strategy, plan->compressed));
    if (plan->compressed && !lk__links_allreduce_takes_flat(trainer->strategy->allreduce, plan->shards, &nodes))
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "--compress bf16: %lld shards on %d devices are %d nodes of the tree, and sums in bf16 take at most %d; "
            "use fewer --devices, or fewer --shards, which change results",
            (long long)plan->shards, plan->devices, nodes, LK_LINKS_ALLREDUCE_PARTS);
    return LK_OK;
}

static lk_status trainer_devices_plan_reduction(lk_trainer *trainer)
{
    char reason[512];
    LK_TRY(trainer_devices_plan_compression(trainer));
    LK_TRY(lk_strategy_set_exchange(trainer->strategy, (lk_exchange)trainer->config.devices.exchange));
    trainer->plan.reduce = (lk_reduce)trainer->config.devices.reduce;
    if (lk_strategy_set_reduce(trainer->strategy, trainer->plan.reduce) == LK_OK) {
        trainer->plan.exchange = lk_strategy_exchange(trainer->strategy, lk__trainer_bucket_bytes(trainer));
        return LK_OK;
    }
    snprintf(reason, sizeof reason, "%s", lk_error_message());
    lk_error_clear();
    LK_FAIL(LK_ERR_ARGUMENT, "--reduce nccl: %s", reason);
}

/* If a device of the trainer also stores, both use the same lk_device and so the same queue. */
static lk_device *trainer_devices_open_storage(const lk_trainer *trainer)
{
    lk_device *device = lk_device_open(trainer->config.devices.storage);
    for (int d = 0; device && d < trainer->n_devices; d++) {
        if (strcmp(lk_device_name(trainer->devices[d]), lk_device_name(device)) != 0)
            continue;
        lk_device_release(device);
        return lk_device_retain(trainer->devices[d]);
    }
    return device;
}

static lk_status trainer_devices_set_storage(lk_trainer *trainer)
{
    const char *spec = trainer->config.devices.storage;
    int count = 1;
    if (spec)
        LK_TRY(lk_devices_count(spec, &count));
    if (count != 1)
        LK_FAIL(LK_ERR_ARGUMENT, "--storage %s: names %d devices; must be one, as in cpu:0", spec, count);
    if (spec) {
        lk_device *device = trainer_devices_open_storage(trainer);
        lk_status status = device ? lk_strategy_set_storage(trainer->strategy, device) : lk_error_status();
        lk_device_release(device);
        LK_TRY(status);
    }
    lk_device *storage = lk_strategy_storage(trainer->strategy);
    trainer->plan.storage = storage ? lk_device_name(storage) : NULL;
    return LK_OK;
}

/* Names all devices of the plug-in, but at most as many as shards. */
static lk_status trainer_devices_of_plugin(int64_t shards, lk__spec_text devices)
{
    char text[1024];
    LK_TRY(lk_device_describe_kind("pjrt", text, sizeof text));
    const char *kind = lk_device_available("tpu") > 0 ? "tpu" : "pjrt";
    int n = lk_device_available(kind);
    if (n == 0)
        LK_FAIL(LK_ERR_DEVICE, "strategy tpu: the plug-in has no device (%s)", text);
    snprintf(devices, sizeof(lk__spec_text), "%lldx%s", (long long)lk__min(n, shards), kind);
    return LK_OK;
}

/* bf16 if all devices multiply it faster. */
static void trainer_devices_choose_dtype(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    if (trainer->config.execution.dtype != LK_PRECISION_AUTO)
        return;
    plan->dtype = LK_BF16;
    for (int d = 0; d < trainer->n_devices && plan->dtype == LK_BF16; d++) {
        const lk_device *device = trainer->devices[d];
        plan->dtype_reason = device->backend->bf16_is_fast ? device->backend->bf16_is_fast(device) : NULL;
        if (!plan->dtype_reason)
            plan->dtype = LK_F32;
    }
    if (!plan->dtype_reason)
        plan->dtype_reason = "the devices do not multiply bf16 faster";
}

lk_status lk__trainer_devices_open(lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    lk_plan *plan = &trainer->plan;
    lk__spec_text devices;
    int cores;
    if (config->devices.strategy)
        LK_TRY(lk__strategy_check_name(config->devices.strategy));
    if (config->devices.pjrt)
        LK_TRY(lk_pjrt_use(config->devices.pjrt));
    LK_TRY(lk__join_processes(trainer, &cores));
    LK_TRY(lk__agree_on_options(trainer));
    plan->shards = lk__plan_shards(config, plan->batch_size, 1);
    if (config->devices.spec) {
        if (snprintf(devices, sizeof devices, "%s", config->devices.spec) >= (int)sizeof devices)
            LK_FAIL(LK_ERR_ARGUMENT, "--devices: longer than %zu characters", sizeof devices - 1);
    } else if (lk__strategy_has(config->devices.strategy, LK_STRATEGY_PLUGIN)) {
        LK_TRY(trainer_devices_of_plugin(plan->shards, devices));
    } else {
        lk_range own = lk_part(plan->shards, plan->processes, plan->process);
        int64_t most = lk__min(cores, LK_MAX_DEVICES);
        snprintf(devices, sizeof devices, "%lldxcpu", (long long)lk__max(lk__min(most, own.end - own.begin), 1));
    }
    LK_TRY(lk__count_devices(trainer, devices));
    LK_TRY(lk__check_shards(plan->shards, plan->batch_size, plan->devices));

    LK_TRY(lk_devices_open(devices, trainer->devices, LK_MAX_DEVICES, &trainer->n_devices));
    trainer_devices_choose_dtype(trainer);
    LK_TRY(lk__use_algorithms(trainer));
    trainer->strategy =
        lk_strategy_new(config->devices.strategy ? config->devices.strategy : lk__strategy_default(trainer->n_devices),
                        trainer->devices, trainer->n_devices);
    if (!trainer->strategy)
        return lk_error_status();
    if (config->devices.pjrt && !trainer->devices[0]->backend->modules)
        LK_FAIL(LK_ERR_ARGUMENT, "--pjrt: %s has no use for a plug-in; devices pjrt:0, tpu:0 and --strategy tpu have",
                lk_device_name(trainer->devices[0]));
    plan->strategy = lk_strategy_name(trainer->strategy);
    plan->transport = lk_strategy_transport(trainer->strategy);
    LK_TRY(trainer_devices_set_storage(trainer));
    LK_TRY(lk_strategy_set_sharded(trainer->strategy, config->devices.optimizer_state != 0));
    return trainer_devices_plan_reduction(trainer);
}
