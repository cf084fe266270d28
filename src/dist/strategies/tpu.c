/* Devices of a PJRT plug-in, such as TPUs. The strategy finds and names them, but cannot train on them: there are no
 * kernels for them, and no lk_device represents one. */
#include "base/status.h"
#include "dist/strategy.h"
#include "lockstep/pjrt.h"

#include <stdio.h>

static lk_status tpu_check(lk_device *const *devices, int n_devices)
{
    (void)n_devices;
    LK_FAIL(LK_ERR_ARGUMENT, "strategy tpu: is for devices of a PJRT plug-in, and %s is none",
            lk_device_name(devices[0]));
}

static lk_status tpu_find(const char *plugin)
{
    lk_pjrt *pjrt;
    LK_TRY(lk_pjrt_find(plugin, &pjrt));
    int others = pjrt->n_devices - 1;
    char more[32] = "";
    if (others > 0)
        snprintf(more, sizeof more, " and %d more", others);
    lk_status status = lk__fail(LK_ERR_UNSUPPORTED,
                                "strategy tpu: cannot train: there are no kernels for devices of a PJRT plug-in. %s "
                                "(platform %s, PJRT %d.%d) has %s%s. Train with --devices cpu or cuda",
                                pjrt->path, pjrt->platform, pjrt->major, pjrt->minor,
                                others < 0 ? "no device" : pjrt->devices[0], more);
    lk_pjrt_release(pjrt);
    return status;
}

const lk_strategy_table lk__strategy_tpu = {
    .name = "tpu",
    .facts = LK_STRATEGY_PLUGIN,
    .check = tpu_check,
    .find = tpu_find,
};
