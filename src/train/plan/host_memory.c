#include "train/plan/host_memory.h"

#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "train/trainer.h"
#include "lockstep/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

/* Returns a limit of the process's control group, as containers have; INT64_MAX: none can be read. */
static int64_t host_memory_group_limit(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "re");
    if (file && !fgets(text, sizeof text, file))
        *text = '\0';
    if (file)
        fclose(file);
    bool is_number = *text >= '0' && *text <= '9'; /* else "max", or no file */
    return is_number ? strtoll(text, NULL, 10) : INT64_MAX;
}

/* Returns the most memory that this process can get, with swap space. *name: what limits it, as the message says it. */
static int64_t host_memory_limit(const char **name)
{
    struct sysinfo system;
    struct rlimit addresses;
    int64_t limit = INT64_MAX, group = host_memory_group_limit("/sys/fs/cgroup/memory.max"), swap = 0;
    *name = "this machine has";
    if (sysinfo(&system) == 0) {
        limit = (int64_t)((system.totalram + system.totalswap) * system.mem_unit);
        swap = lk__min((int64_t)(system.totalswap * system.mem_unit),
                       host_memory_group_limit("/sys/fs/cgroup/memory.swap.max"));
    }
    if (group < limit - swap) {
        limit = group + swap;
        *name = "the control group (memory.max) allows";
    }
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur < (rlim_t)limit) {
        limit = (int64_t)addresses.rlim_cur;
        *name = "the limit of addresses (ulimit -v) allows";
    }
    return limit;
}

lk_status lk__check_host_memory(const lk_trainer *trainer)
{
    lk_memory_estimate e;
    const char *limited_by;
    char devices[32];
    lk_train_config config = trainer->config;
    for (int d = 0; d < trainer->n_devices; d++)
        if (trainer->devices[d]->backend->offload)
            return LK_OK;
    snprintf(devices, sizeof devices, "%dxcpu", trainer->n_devices);
    config.devices.spec = devices;
    /* With several processes this one has some of the shards, at least one for each device. */
    config.devices.shards = trainer->plan.processes > 1 ? trainer->n_devices : trainer->plan.shards;
    config.accumulate = lk__min(config.accumulate, trainer->plan.steps_per_epoch);
    LK_TRY(lk_estimate_memory(&config, trainer->model, false, &e));
    if (config.devices.optimizer_state) { /* divided among the devices of all processes, not of this one alone */
        double kept = e.optimizer * e.devices / trainer->plan.devices;
        e.least -= e.devices * (e.optimizer - kept);
        e.optimizer = kept;
    }
    double limit = (double)host_memory_limit(&limited_by);
    if (e.least > limit)
        LK_FAIL(
            LK_ERR_MEMORY,
            "%s does not fit: training on %d device%s needs %.1f MiB at least (variables %.1f MiB, optimizer's state "
            "%.1f MiB, the rest gradients), and %s %.1f MiB",
            lk_model_name(trainer->model), e.devices, e.devices == 1 ? "" : "s", e.least / (1 << 20),
            e.variables / (1 << 20), e.optimizer / (1 << 20), limited_by, limit / (1 << 20));
    return LK_OK;
}
