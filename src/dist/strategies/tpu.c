/* Devices of a PJRT plug-in, such as TPUs. They work together like those of `mirrored`. */
#include "base/status.h"
#include "core/backend.h"
#include "dist/strategies/in_process.h"

static lk_status tpu_check(lk_device *const *devices, int n_devices)
{
    (void)n_devices;
    if (devices[0]->backend->modules)
        return LK_OK;
    LK_FAIL(LK_ERR_ARGUMENT, "strategy tpu: is for devices of a PJRT plug-in, and %s is none",
            lk_device_name(devices[0]));
}

const lk_strategy_table lk__strategy_tpu = {
    .name = "tpu",
    .facts = LK_STRATEGY_PLUGIN | LK_STRATEGY_SHARDS,
    .check = tpu_check,
    .open = lk__in_process_open,
    .begin = lk__in_process_begin,
    .finish = lk__in_process_finish,
};
