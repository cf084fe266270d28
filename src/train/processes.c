/* A trainer's place among the processes that train together. */
#include "train/trainer.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/device_spec.h"
#include "core/topology.h"
#include "dist/cluster.h"
#include "dist/group.h"
#include "dist/strategy.h"
#include "train/gpu_shares.h"

#include <stdio.h>
#include <string.h>

/* What ranks tell each other. */
typedef struct introduction {
    uint64_t cores; /* lk__topology_set */
    int devices;    /* 0: not known yet */
    char kind[16];  /* of the devices */
} introduction;

static bool are_neighbours(lk_group *group, const introduction *all, int a, int b)
{
    return all[a].cores == all[b].cores && strcmp(lk__group_host(group, a), lk__group_host(group, b)) == 0;
}

/* all[processes]: to be freed. */
static lk_status introduce(lk_group *group, int devices, const char *kind, introduction **all)
{
    introduction mine;
    memset(&mine, 0, sizeof mine); /* gaps are sent too */
    mine.cores = lk__topology_set();
    mine.devices = devices;
    snprintf(mine.kind, sizeof mine.kind, "%s", kind);
    *all = lk__calloc((size_t)lk__group_ranks(group), sizeof **all);
    lk_status status = *all ? lk__group_gather(group, &mine, sizeof mine, *all) : LK_ERR_MEMORY;
    if (status != LK_OK)
        lk__free(*all);
    return status;
}

static lk_status check_cluster(const lk_trainer *trainer)
{
    lk_cluster *cluster;
    LK_TRY(lk__cluster_open(trainer->config.cluster, &cluster));
    lk_status status = cluster ? lk__cluster_check_processes(cluster, trainer->plan.processes) : LK_OK;
    lk__cluster_release(cluster);
    return status;
}

lk_status lk__join_processes(lk_trainer *trainer, int *cores)
{
    lk_plan *plan = &trainer->plan;
    lk_group *group;
    introduction *all;
    plan->processes = 1;
    *cores = lk__topology_cores();
    if (!trainer->config.strategy || strcmp(trainer->config.strategy, "multi-worker") != 0)
        return LK_OK;
    LK_TRY(lk__group_open(&group));
    plan->process = lk__group_rank(group);
    plan->processes = lk__group_ranks(group);
    LK_TRY(check_cluster(trainer));
    LK_TRY(introduce(group, 0, "", &all));
    int sharing = 1;
    for (int rank = 0; rank < plan->processes; rank++)
        sharing += rank != plan->process && are_neighbours(group, all, rank, plan->process);
    *cores = *cores > sharing ? *cores / sharing : 1;
    lk__free(all);
    return LK_OK;
}

/* Devices get the cores behind those of `before` others. */
static void begin_behind(int before, const lk_device_spec_entry *first)
{
    int cores = lk__topology_cores(), number = lk__backend_of_kind(first->kind)->offload ? first->index : 0;
    lk__topology_begin_at((before + cores - number % cores) % cores); /* a device's number decides too */
}

/* Of processes on one machine that have the same cores to choose from, each takes those behind the ones that processes
 * before it take. */
static void take_cores(lk_group *group, const introduction *all, int here, const lk_device_spec_entry *first)
{
    int before = 0, together = 0, cores = lk__topology_cores();
    for (int rank = 0; rank < lk__group_ranks(group); rank++) {
        if (!are_neighbours(group, all, rank, here))
            continue;
        before += rank < here ? all[rank].devices : 0;
        together += all[rank].devices;
    }
    bool has_gpus = lk__backend_of_kind(all[here].kind)->offload;
    begin_behind(before, first);
    if (together > cores && before == 0 && !has_gpus)
        lk__log(LK_LOG_WARNING,
                "%d devices of several processes share %d core%s of %s: more devices than cores gain no speed",
                together, cores, cores == 1 ? "" : "s", lk__group_host(group, here));
}

/* Processes with GPUs and those without would wait for different messages. */
static lk_status check_kinds(lk_group *group, const introduction *all)
{
    for (int rank = 1; rank < lk__group_ranks(group); rank++)
        if (strcmp(all[rank].kind, all[0].kind) != 0)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "rank %d on %s has another kind of devices: %s, where rank 0 has %s; all processes have to be "
                    "started alike",
                    rank, lk__group_host(group, rank), all[rank].kind, all[0].kind);
    return LK_OK;
}

static bool has_numbers(const char *spec)
{
    return strchr(spec, ':');
}

static lk_status describe_share(const char *spec, const lk_device_spec_entry *entries, int n, lk_gpu_share *share)
{
    const lk_backend *backend = lk__backend_of_kind(entries[0].kind);
    int seen = backend->available();
    share->devices = n;
    share->seen = seen < LK_GPUS_SEEN ? seen : LK_GPUS_SEEN;
    for (int i = 0; i < n; i++)
        share->numbers[i] = has_numbers(spec) ? entries[i].index : -1;
    for (int i = 0; i < share->seen; i++)
        LK_TRY(backend->identify(i, &share->gpus[i]));
    return LK_OK;
}

static void write_spec(const lk_device_spec_entry *entries, int n, lk__spec_text spec)
{
    int used = 0;
    for (int i = 0; i < n; i++)
        used += snprintf(spec + used, sizeof(lk__spec_text) - (size_t)used, "%s%s:%d", i ? "," : "", entries[i].kind,
                         entries[i].index);
}

/* all[ranks]; those of this process's machine come to stand first, in the order of ranks. */
static lk_gpu_share *of_this_machine(lk_group *group, lk_gpu_share *all, int here, int *n)
{
    lk_gpu_share *own = NULL;
    *n = 0;
    for (int rank = 0; rank < lk__group_ranks(group); rank++) {
        if (strcmp(lk__group_host(group, rank), lk__group_host(group, here)) != 0)
            continue;
        if (rank == here)
            own = all + *n;
        memmove(all + (*n)++, all + rank, sizeof *all);
    }
    return own;
}

/* "2xcuda" is two GPUs that no other process of the machine takes, whichever cores these have; a spec with numbers is
 * taken at its word. */
static lk_status take_gpus(lk_group *group, lk_device_spec_entry *entries, int n, lk__spec_text spec)
{
    int neighbours;
    if (!lk__backend_of_kind(entries[0].kind)->identify)
        return LK_OK;
    lk_gpu_share *mine = lk__calloc(1, sizeof *mine), *all = lk__calloc((size_t)lk__group_ranks(group), sizeof *all);
    lk_status status = mine && all ? describe_share(spec, entries, n, mine) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = lk__group_gather(group, mine, sizeof *mine, all);
    if (status == LK_OK && !has_numbers(spec)) {
        const lk_gpu_share *own = of_this_machine(group, all, lk__group_rank(group), &neighbours);
        lk__gpu_shares_assign(all, neighbours);
        for (int i = 0; i < n; i++)
            entries[i].index = own->numbers[i];
        write_spec(entries, n, spec);
    }
    lk__free(mine);
    lk__free(all);
    return status;
}

/* Which cores and GPUs. */
static lk_status take_own(lk_group *group, const introduction *all, lk__spec_text spec)
{
    lk_device_spec_entry entries[LK_MAX_DEVICES];
    int n;
    LK_TRY(check_kinds(group, all));
    LK_TRY(lk__device_spec_parse(spec, entries, LK_MAX_DEVICES, &n));
    LK_TRY(take_gpus(group, entries, n, spec));
    take_cores(group, all, lk__group_rank(group), entries);
    return LK_OK;
}

/* A worker that a chief gives work has cores and GPUs behind those of the workers before it on its machine. */
static lk_status take_seat(lk_trainer *trainer, lk_device_spec_entry *entries, lk__spec_text spec)
{
    int n = trainer->plan.devices, before;
    LK_TRY(lk__ps_take_seat(trainer, n, &before));
    const lk_backend *backend = lk__backend_of_kind(entries[0].kind);
    int gpus = backend->identify && !has_numbers(spec) ? backend->available() : 0;
    for (int i = 0; i < n && gpus > 0; i++)
        entries[i].index = (before + i) % gpus;
    if (gpus > 0)
        write_spec(entries, n, spec);
    begin_behind(before, entries);
    return LK_OK;
}

lk_status lk__count_devices(lk_trainer *trainer, lk__spec_text spec)
{
    lk_plan *plan = &trainer->plan;
    lk_group *group;
    introduction *all;
    lk_device_spec_entry entries[LK_MAX_DEVICES];
    LK_TRY(lk__device_spec_parse(spec, entries, LK_MAX_DEVICES, &plan->devices));
    if (trainer->role == LK_TRAIN_WORKER)
        return take_seat(trainer, entries, spec);
    if (plan->processes == 1)
        return LK_OK;
    LK_TRY(lk__group_open(&group));
    LK_TRY(introduce(group, plan->devices, entries[0].kind, &all));
    lk_status status = take_own(group, all, spec);
    plan->devices = 0;
    for (int rank = 0; rank < plan->processes; rank++)
        plan->devices += all[rank].devices;
    lk__free(all);
    return status;
}

lk_status lk__add_over_processes(const lk_trainer *trainer, double *value)
{
    lk_group *group;
    int processes = trainer->plan.processes;
    if (processes == 1)
        return LK_OK;
    LK_TRY(lk__group_open(&group));
    double *all = lk__calloc((size_t)processes, sizeof *all);
    lk_status status = all ? lk__group_gather(group, value, sizeof *value, all) : LK_ERR_MEMORY;
    for (int rank = 0; rank < processes && status == LK_OK; rank++)
        *value = rank ? *value + all[rank] : all[0];
    lk__free(all);
    return status;
}

lk_status lk__or_give_up(const lk_trainer *trainer, lk_status status)
{
    if (status != LK_OK && status != LK_ERR_INTERRUPTED && trainer->plan.processes > 1)
        lk__processes_give_up(status);
    return status;
}

/* --- ending together ---------------------------------------------------------------------------------------------- */

bool lk__is_interrupted(const lk_trainer *trainer)
{
    return trainer->vote_sum ? trainer->voted_to_end : atomic_load(&trainer->interrupted);
}

bool lk__end_interruption(lk_trainer *trainer)
{
    bool was = lk__is_interrupted(trainer);
    if (was || !trainer->vote_sum)
        atomic_store(&trainer->interrupted, false);
    trainer->voted_to_end = false;
    return was;
}

lk_status lk__plan_votes(lk_trainer *trainer)
{
    if (trainer->plan.processes == 1)
        return LK_OK;
    trainer->vote_sum = lk_shard_sum_new(trainer->strategy, trainer->plan.shards, 1);
    return trainer->vote_sum ? LK_OK : lk_error_status();
}

static lk_status add_votes(lk_trainer *trainer)
{
    float vote = atomic_load(&trainer->interrupted);
    lk_shard_sum *sum = trainer->vote_sum;
    lk__shard_sum_start(sum, trainer->plan.shards); /* every shard has one, also where it has no samples */
    for (int d = 0; d < trainer->n_devices; d++) {
        lk_range own = lk__shard_sum_owned(sum, d);
        lk_tensor *value = lk_tensor_from(trainer->devices[d], LK_F32, LK_SCALAR, &vote);
        if (!value)
            return lk_error_status();
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(lk_shard_sum_add(sum, s, &value));
    }
    return LK_OK;
}

lk_status lk__push_vote(lk_trainer *trainer, lk_tensor **votes)
{
    lk_tensor *sums[LK_MAX_DEVICES];
    *votes = NULL;
    if (!trainer->vote_sum)
        return LK_OK;
    lk_scope_begin();
    lk_status status = add_votes(trainer);
    lk_scope_end();
    lk_status finished = lk_shard_sum_finish(trainer->vote_sum, sums);
    if (status == LK_OK)
        status = finished;
    for (int d = 1; d < trainer->n_devices; d++)
        lk_tensor_release(sums[d]);
    *votes = sums[0];
    return status;
}

lk_status lk__merge_ledger(const lk_trainer *trainer, lk_ledger *ledger)
{
    lk_group *group;
    int processes = trainer->plan.processes;
    int64_t count;
    if (processes == 1)
        return LK_OK;
    LK_TRY(lk__group_open(&group));
    const uint8_t *own = lk_ledger_uses(ledger, &count);
    uint8_t *all = lk__calloc((size_t)processes, (size_t)count);
    lk_status status = all ? lk__group_gather(group, own, (size_t)count, all) : LK_ERR_MEMORY;
    for (int rank = 0; rank < processes && status == LK_OK; rank++)
        if (rank != lk__group_rank(group))
            lk_ledger_add_uses(ledger, all + rank * count);
    lk__free(all);
    return status;
}
