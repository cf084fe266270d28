#include "train/processes.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/device_spec.h"
#include "core/topology.h"
#include "dist/process/group.h"
#include "dist/service/cluster.h"
#include "dist/service/network_messages.h"
#include "dist/sum/shard_sum.h"
#include "train/parameter_server/ps_membership.h"
#include "train/plan/gpu_shares.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* The message that each rank sends to all others. */
typedef struct introduction {
    uint64_t cores; /* lk__topology_set */
    int devices;    /* 0: not known yet */
    char kind[16];  /* of the devices */
} introduction;

static bool processes_are_neighbors(lk_group *group, const introduction *all, int a, int b)
{
    return all[a].cores == all[b].cores && strcmp(lk__group_host(group, a), lk__group_host(group, b)) == 0;
}

/* Returns every process's introduction, [processes], which the caller frees; NULL: failure, as lk_error_status() says.
 */
static introduction *processes_introduce(lk_group *group, int devices, const char *kind)
{
    introduction mine;
    memset(&mine, 0, sizeof mine); /* padding is sent too */
    mine.cores = lk__topology_set();
    mine.devices = devices;
    snprintf(mine.kind, sizeof mine.kind, "%s", kind);
    return lk__group_gather_new(group, &mine, sizeof mine);
}

static lk_status processes_join_cluster(lk_trainer *trainer, const lk_cluster *cluster, lk_group **group)
{
    lk_plan *plan = &trainer->plan;
    const lk_server_config *servers = &trainer->config.servers;
    const lk_network_place place = {servers->listen, servers->keys, servers->join_timeout, .has_options = true};
    LK_TRY(lk__network_use_cluster(cluster, &place));
    LK_TRY(lk__group_open(group));
    plan->process = lk__group_rank(*group);
    plan->processes = lk__group_ranks(*group);
    return cluster ? lk__cluster_check_processes(cluster, plan->processes) : LK_OK;
}

static lk_status processes_join(lk_trainer *trainer, lk_group **group)
{
    lk_cluster *cluster;
    LK_TRY(lk__cluster_open(trainer->config.devices.cluster, &cluster));
    lk_status status = processes_join_cluster(trainer, cluster, group);
    lk__cluster_release(cluster);
    return status;
}

lk_status lk__join_processes(lk_trainer *trainer, int *cores)
{
    lk_plan *plan = &trainer->plan;
    lk_group *group;
    plan->processes = 1;
    *cores = lk__topology_cores();
    if (lk_strategy_kind_of(trainer->config.devices.strategy) != LK_STRATEGY_SYNCHRONOUS)
        return LK_OK;
    LK_TRY(processes_join(trainer, &group));
    introduction *all = processes_introduce(group, 0, "");
    if (!all)
        return lk_error_status();
    int sharing = 1;
    for (int rank = 0; rank < plan->processes; rank++)
        sharing += rank != plan->process && processes_are_neighbors(group, all, rank, plan->process);
    *cores = *cores > sharing ? *cores / sharing : 1;
    lk__free(all);
    return LK_OK;
}

/* Devices opened from now on take the cores behind those of `before` others. */
static void processes_set_first_core(int before, const lk_device_spec_entry *first)
{
    int cores = lk__topology_cores(), number = lk__backend_of_kind(first->kind)->offload ? first->index : 0;
    lk__topology_begin_at((before + cores - number % cores) % cores); /* opening a GPU adds its number */
}

/* Processes on one machine that may use the same cores take them in the order of ranks. */
static void processes_take_cores(lk_group *group, const introduction *all, int here, const lk_device_spec_entry *first)
{
    int before = 0, total = 0, cores = lk__topology_cores();
    for (int rank = 0; rank < lk__group_ranks(group); rank++) {
        if (!processes_are_neighbors(group, all, rank, here))
            continue;
        before += rank < here ? all[rank].devices : 0;
        total += all[rank].devices;
    }
    bool has_gpus = lk__backend_of_kind(all[here].kind)->offload;
    processes_set_first_core(before, first);
    if (total > cores && before == 0 && !has_gpus)
        lk__log(LK_LOG_WARNING,
                "%d devices of several processes share %d core%s of %s: more devices than cores gain no speed", total,
                cores, cores == 1 ? "" : "s", lk__group_host(group, here));
}

/* Processes with GPUs and processes without would wait for different messages. */
static lk_status processes_check_kinds(lk_group *group, const introduction *all)
{
    for (int rank = 1; rank < lk__group_ranks(group); rank++)
        if (strcmp(all[rank].kind, all[0].kind) != 0)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "rank %d on %s has another kind of devices: %s, where rank 0 has %s; all processes have to be "
                    "started alike",
                    rank, lk__group_host(group, rank), all[rank].kind, all[0].kind);
    return LK_OK;
}

static bool processes_spec_has_numbers(const char *spec)
{
    return strchr(spec, ':');
}

static lk_status processes_describe_gpus(const char *spec, const lk_device_spec_entry *entries, int n,
                                         lk_gpu_share *share)
{
    const lk_backend *backend = lk__backend_of_kind(entries[0].kind);
    int seen = backend->available();
    share->devices = n;
    share->seen = seen < LK_GPUS_SEEN ? seen : LK_GPUS_SEEN;
    for (int i = 0; i < n; i++)
        share->numbers[i] = processes_spec_has_numbers(spec) ? entries[i].index : -1;
    for (int i = 0; i < share->seen; i++)
        LK_TRY(backend->identify(i, &share->gpus[i]));
    return LK_OK;
}

static void processes_write_spec(const lk_device_spec_entry *entries, int n, lk__spec_text spec)
{
    int used = 0;
    for (int i = 0; i < n; i++)
        used += snprintf(spec + used, sizeof(lk__spec_text) - (size_t)used, "%s%s:%d", i ? "," : "", entries[i].kind,
                         entries[i].index);
}

/* Moves the shares of this process's machine to the front of all[ranks], in the order of ranks. Returns this process's
 * share. */
static lk_gpu_share *processes_select_neighbors(lk_group *group, lk_gpu_share *all, int here, int *n)
{
    lk_gpu_share *own = NULL;
    *n = 0;
    for (int rank = 0; rank < lk__group_ranks(group); rank++) {
        if (strcmp(lk__group_host(group, rank), lk__group_host(group, here)) != 0)
            continue;
        if (rank == here)
            own = all + *n;
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): all[ranks] */
        memmove(all + (*n)++, all + rank, sizeof *all);
    }
    return own;
}

/* "2xcuda" means two GPUs that no other process of the machine takes, even one that may use other cores. Numbers in a
 * spec are used as they are. */
static lk_status processes_take_gpus(lk_group *group, lk_device_spec_entry *entries, int n, lk__spec_text spec)
{
    int neighbors;
    if (!lk__backend_of_kind(entries[0].kind)->identify)
        return LK_OK;
    lk_gpu_share *mine = lk__calloc(1, sizeof *mine), *all = NULL;
    lk_status status = mine ? processes_describe_gpus(spec, entries, n, mine) : LK_ERR_MEMORY;
    if (status == LK_OK) {
        all = lk__group_gather_new(group, mine, sizeof *mine);
        status = all ? LK_OK : lk_error_status();
    }
    if (status == LK_OK && !processes_spec_has_numbers(spec)) {
        const lk_gpu_share *own = processes_select_neighbors(group, all, lk__group_rank(group), &neighbors);
        lk__gpu_shares_assign(all, neighbors);
        for (int i = 0; i < n; i++)
            entries[i].index = own->numbers[i];
        processes_write_spec(entries, n, spec);
    }
    lk__free(mine);
    lk__free(all);
    return status;
}

/* Lowers counts[processes] until there are at most `shards` devices in all: a process with the most gives one up. */
static lk_status processes_limit_devices(const lk_plan *plan, int *counts)
{
    int64_t total = 0;
    if (plan->processes > plan->shards)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--shards: a batch of %lld has %lld by default, too few for %d processes; start at most %lld, or use a "
                "larger --batch-size or --shards",
                (long long)plan->batch_size, (long long)plan->shards, plan->processes, (long long)plan->shards);
    for (int p = 0; p < plan->processes; p++)
        total += counts[p];
    for (; total > plan->shards; total--) {
        int fullest = 0;
        for (int p = 1; p < plan->processes; p++)
            if (counts[p] >= counts[fullest])
                fullest = p;
        counts[fullest]--;
    }
    return LK_OK;
}

/* A device without a shard would have no work, so the last ones are left out, unless --shards says how many there must
 * be. Lowers *n. */
static lk_status processes_leave_idle(const lk_trainer *trainer, lk_group *group, const lk_device_spec_entry *entries,
                                      int *n, lk__spec_text spec)
{
    const lk_plan *plan = &trainer->plan;
    const int asked = *n;
    int *counts = n;
    if (trainer->config.devices.shards && !trainer->resumed)
        return LK_OK;
    if (group)
        counts = lk__group_gather_new(group, &asked, sizeof asked);
    if (!counts)
        return lk_error_status();
    lk_status status = processes_limit_devices(plan, counts);
    *n = counts[plan->process];
    if (counts != n)
        lk__free(counts);
    if (status != LK_OK || *n == asked)
        return status;
    if (processes_spec_has_numbers(spec))
        processes_write_spec(entries, *n, spec);
    else
        snprintf(spec, sizeof(lk__spec_text), "%dx%s", *n, entries[0].kind);
    lk__log(
        LK_LOG_WARNING,
        "%d of %d devices stay%s idle, from %s:%d on: a batch of %lld has %lld shard%s, and a device needs one; use a "
        "larger --batch-size or more --shards, which change results",
        asked - *n, asked, asked - *n == 1 ? "s" : "", entries[*n].kind, entries[*n].index, (long long)plan->batch_size,
        (long long)plan->shards, plan->shards == 1 ? "" : "s");
    return LK_OK;
}

/* A worker of strategy parameter-server takes cores and GPUs behind those of earlier workers on its machine. */
static lk_status processes_take_seat(lk_trainer *trainer, lk_device_spec_entry *entries, lk__spec_text spec)
{
    int n = trainer->plan.devices, before;
    LK_TRY(lk__ps_take_seat(trainer, n, &before));
    const lk_backend *backend = lk__backend_of_kind(entries[0].kind);
    int gpus = backend->identify && !processes_spec_has_numbers(spec) ? backend->available() : 0;
    for (int i = 0; i < n && gpus > 0; i++)
        entries[i].index = (before + i) % gpus;
    if (gpus > 0)
        processes_write_spec(entries, n, spec);
    processes_set_first_core(before, entries);
    return LK_OK;
}

lk_status lk__count_devices(lk_trainer *trainer, lk__spec_text spec)
{
    lk_plan *plan = &trainer->plan;
    lk_group *group = NULL;
    lk_device_spec_entry entries[LK_MAX_DEVICES];
    int own;
    LK_TRY(lk__device_spec_parse(spec, entries, LK_MAX_DEVICES, &own));
    if (plan->processes > 1)
        LK_TRY(lk__group_open(&group));
    LK_TRY(processes_leave_idle(trainer, group, entries, &own, spec));
    plan->devices = own;
    if (trainer->server.role == LK_TRAIN_WORKER)
        return processes_take_seat(trainer, entries, spec);
    if (!group)
        return LK_OK;
    introduction *all = processes_introduce(group, own, entries[0].kind);
    if (!all)
        return lk_error_status();
    lk_status status = processes_check_kinds(group, all);
    if (status == LK_OK)
        status = processes_take_gpus(group, entries, own, spec);
    if (status == LK_OK)
        processes_take_cores(group, all, plan->process, entries);
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
    double *all = lk__group_gather_new(group, value, sizeof *value);
    if (!all)
        return lk_error_status();
    *value = all[0];
    for (int rank = 1; rank < processes; rank++)
        *value += all[rank];
    lk__free(all);
    return LK_OK;
}

lk_status lk__or_give_up(const lk_trainer *trainer, lk_status status)
{
    if (status != LK_OK && trainer->plan.processes > 1)
        lk__processes_give_up(status);
    return status;
}

/* --- ending together ---------------------------------------------------------------------------------------------- */

bool lk__is_interrupted(const lk_trainer *trainer)
{
    return trainer->sums.votes ? trainer->progress.voted_to_end : atomic_load(&trainer->progress.interrupted);
}

bool lk__end_interruption(lk_trainer *trainer)
{
    bool was = lk__is_interrupted(trainer);
    if (was || !trainer->sums.votes)
        atomic_store(&trainer->progress.interrupted, false);
    trainer->progress.voted_to_end = false;
    return was;
}

lk_status lk__plan_votes(lk_trainer *trainer)
{
    if (trainer->plan.processes == 1)
        return LK_OK;
    trainer->sums.votes = lk_shard_sum_new(trainer->strategy, trainer->plan.shards, 1);
    return trainer->sums.votes ? LK_OK : lk_error_status();
}

bool lk__vote_to_rest(lk_trainer *trainer, bool wants)
{
    if (!trainer->sums.votes)
        return wants;
    trainer->progress.wants_rest = wants;
    return trainer->progress.voted_to_rest;
}

void lk__end_rest_vote(lk_trainer *trainer)
{
    trainer->progress.wants_rest = trainer->progress.voted_to_rest = false;
}

lk_status lk__push_vote(lk_trainer *trainer, lk_tensor **votes)
{
    lk_shard_sum *sum = trainer->sums.votes;
    lk_tensor *sums[LK_MAX_DEVICES];
    float vote[LK_VOTES] = {atomic_load(&trainer->progress.interrupted), trainer->progress.wants_rest};
    lk_status status = LK_OK;
    *votes = NULL;
    if (!sum)
        return LK_OK;
    lk_scope_begin();
    lk_shard_sum_start(sum, trainer->plan.shards); /* every shard votes, even if it has no samples */
    for (int d = 0; d < trainer->n_devices && status == LK_OK; d++) {
        lk_range own = lk__shard_sum_owned(sum, d);
        lk_tensor *value = lk_tensor_from(trainer->devices[d], LK_F32, LK_SHAPE(LK_VOTES), vote);
        status = value ? LK_OK : lk_error_status();
        for (int64_t s = own.begin; s < own.end && status == LK_OK; s++)
            status = lk_shard_sum_add(sum, s, &value);
    }
    lk_scope_end();
    lk_status finished = lk_shard_sum_finish(sum, sums);
    if (status == LK_OK)
        status = finished;
    for (int d = 1; d < trainer->n_devices; d++)
        lk_tensor_release(sums[d]);
    *votes = sums[0];
    return status;
}

lk_status lk__follow_first(const lk_trainer *trainer, bool *decision)
{
    lk_group *group;
    if (trainer->plan.processes == 1)
        return LK_OK;
    LK_TRY(lk__group_open(&group));
    return lk__group_broadcast(group, 0, decision, sizeof *decision);
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
    uint8_t *all = lk__group_gather_new(group, own, (size_t)count);
    if (!all)
        return lk_error_status();
    for (int rank = 0; rank < processes; rank++)
        if (rank != lk__group_rank(group))
            lk_ledger_add_uses(ledger, all + rank * count);
    lk__free(all);
    return LK_OK;
}
