#include "cuda/cuda_plugin.h"

#include "base/plugin.h"
#include "cuda/cuda_plans.h"

#include <pthread.h>
#include <stdio.h>

static const lk_plugin plugin = {
    .file = "liblockstep_cuda.so",
    .variable = "LOCKSTEP_CUDA_PLUGIN",
    .subject = "CUDA",
    .symbol = LK_GPU_DRIVER_SYMBOL,
};

static const lk_gpu_driver *driver;
static char why_not[512];
static pthread_once_t asked = PTHREAD_ONCE_INIT;

static void cuda_plugin_load_driver(void)
{
    lk_gpu_driver_fn table;
    *(void **)&table = lk__plugin_symbol(&plugin, why_not, sizeof why_not);
    const lk_gpu_driver *found = table ? table() : NULL;
    if (!table)
        return;
    if (!found || found->interface != LK_GPU_INTERFACE || found->size != sizeof *found)
        snprintf(why_not, sizeof why_not, "%s: is of another version of lockstep", plugin.file);
    else
        driver = found;
    if (driver)
        driver->keep_plans(&lk__cuda_plan_files);
}

const lk_gpu_driver *lk__cuda_driver(const char **reason)
{
    pthread_once(&asked, cuda_plugin_load_driver);
    if (reason)
        *reason = why_not;
    return driver;
}

lk_status lk__cuda_check(const lk_gpu_driver *from, lk_gpu_status status)
{
    switch (status) {
    case LK_GPU_OK:
        return LK_OK;
    case LK_GPU_NO_MEMORY:
        return lk__fail(LK_ERR_MEMORY, "%s", from->error());
    case LK_GPU_UNSUPPORTED:
        return lk__fail(LK_ERR_UNSUPPORTED, "%s", from->error());
    case LK_GPU_NO_ENGINE:
        return lk__fail(LK_ERR_ARGUMENT, "%s", from->error());
    case LK_GPU_LOST:
        return lk__fail(LK_ERR_DEVICE, "%s", from->error());
    default:
        return lk__fail(LK_ERR_BACKEND, "%s", from->error());
    }
}
