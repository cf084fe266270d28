#include "train/step/groups.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "dist/sum/shard_sum.h"
#include "dist/sum/tree.h"
#include "train/trainer.h"

static lk_range groups_find(const lk_plan *plan, int64_t shard)
{
    return lk__tree_group(plan->shards, plan->batch_size, plan->batch_norm_group, shard);
}

/* The groups need sums of their own only if all shards run together (lk__runs_shards_together). A worker of a parameter
 * server makes these sums for each task. */
static lk_status groups_make_sum(lk_trainer *trainer)
{
    lk_trainer_sums *sums = &trainer->sums;
    bool spans = lk__groups_span_devices(trainer, sums->train, 0);
    if (trainer->config.execution.recompute && spans)
        lk__log(LK_LOG_WARNING, "--recompute has no effect: devices share groups of batch-norm (see --bn)");
    bool is_eager = trainer->config.execution.executor == LK_EXECUTOR_EAGER;
    if (trainer->server.has_optimizer || !(spans || is_eager))
        return LK_OK;
    sums->sync = lk__shard_sum_new_below(trainer->strategy, trainer->plan.shards, sums->n_groups, sums->groups);
    return sums->sync ? LK_OK : lk_error_status();
}

lk_status lk__plan_groups(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    lk_trainer_sums *sums = &trainer->sums;
    int64_t n = 0;
    for (int64_t s = 0; s < plan->shards; s = groups_find(plan, s).end)
        n++;
    if (n == plan->shards || !lk_model_has_batch_norm(trainer->model))
        return LK_OK;
    sums->groups = lk__calloc((size_t)n, sizeof *sums->groups);
    if (!sums->groups)
        return LK_ERR_MEMORY;
    for (int64_t s = 0; s < plan->shards; s = groups_find(plan, s).end)
        sums->groups[sums->n_groups++] = groups_find(plan, s);
    trainer->plan.batch_norm_groups = n;
    return groups_make_sum(trainer);
}

int lk__group_number(const lk_trainer *trainer, int64_t shard)
{
    int g = 0;
    while (trainer->sums.groups[g].end <= shard)
        g++;
    return g;
}

lk_range lk__group_of(const lk_trainer *trainer, int64_t shard)
{
    return trainer->sums.groups ? groups_find(&trainer->plan, shard) : (lk_range){shard, shard + 1};
}

int64_t lk__group_nodes(const lk_trainer *trainer)
{
    int64_t shards = trainer->plan.shards, most = shards;
    for (lk_range group = {0, 0}; group.end < shards;) {
        int64_t nodes = 1;
        group = lk__group_of(trainer, group.end);
        for (lk_range node = {0, shards}; node.end - node.begin > group.end - group.begin; nodes *= 2) {
            int64_t middle = lk__tree_middle(node);
            if (group.begin < middle)
                node.end = middle;
            else
                node.begin = middle;
        }
        most = lk__min(most, nodes);
    }
    return most;
}

bool lk__groups_span_devices(const lk_trainer *trainer, const lk_shard_sum *sum, int64_t first)
{
    int ranks = lk_strategy_ranks(trainer->strategy);
    if (trainer->devices[0]->backend->modules)
        return trainer->sums.groups;
    for (int rank = 1; rank < ranks; rank++) {
        int64_t begin = first + lk_part(lk__shard_sum_shards(sum), ranks, rank).begin;
        if (lk__group_of(trainer, begin).begin != begin)
            return true;
    }
    return false;
}
