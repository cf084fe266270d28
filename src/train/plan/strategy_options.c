#include "train/plan/strategy_options.h"

#include "base/status.h"
#include "dist/strategy.h"

#include <stdio.h>

/* An option that is not given has its default, which is a value that stands for "unset". */
typedef struct strategy_option {
    const char *name;
    unsigned facts; /* a strategy with one of them takes the option */
    bool is_given;
} strategy_option;

/* Writes the names of the strategies that have one of `facts`: "a", "a and b", or "a, b and c". */
static void strategy_options_name_takers(unsigned facts, char *names, size_t size)
{
    const lk_strategy_table *table;
    const char *last = "";
    size_t used = 0;
    for (int i = 0; (table = lk__strategy_table_at(i)) && used < size; i++) {
        if (!(table->facts & facts))
            continue;
        if (*last)
            used += (size_t)snprintf(names + used, size - used, "%s%s", used > 0 ? ", " : "", last);
        last = table->name;
    }
    if (used < size)
        snprintf(names + used, size - used, "%s%s", used > 0 ? " and " : "", last);
}

lk_status lk__check_strategy_options(const lk_train_config *config)
{
    const char *strategy = config->devices.strategy;
    const strategy_option options[] = {
        {"storage", LK_STRATEGY_STORES, config->devices.storage != NULL},
        {"optimizer-state", LK_STRATEGY_SHARDS, strategy && config->devices.optimizer_state != 0},
        {"compress", LK_STRATEGY_RANKS, config->devices.compress != 0},
        {"cluster", LK_STRATEGY_PROCESSES, config->devices.cluster != NULL},
        {"role", LK_STRATEGY_ROLES, config->servers.role != 0},
        {"task-index", LK_STRATEGY_ROLES, config->servers.task_index >= 0},
        {"servers", LK_STRATEGY_ROLES, config->servers.count > 0},
        {"coordinator", LK_STRATEGY_ROLES, config->servers.coordinator != NULL},
        {"listen", LK_STRATEGY_PROCESSES, config->servers.listen != NULL},
        {"max-staleness", LK_STRATEGY_ROLES, config->servers.max_staleness >= 0},
        {"snapshot-dir", LK_STRATEGY_ROLES, config->servers.snapshot_dir != NULL},
        {"snapshot-every", LK_STRATEGY_ROLES, config->servers.snapshot_every > 0},
        {"keys", LK_STRATEGY_PROCESSES, config->servers.keys != NULL},
        {"peer-timeout", LK_STRATEGY_ROLES, config->servers.peer_timeout > 0},
        {"join-timeout", LK_STRATEGY_PROCESSES, config->servers.join_timeout > 0},
    };
    if (strategy)
        LK_TRY(lk__strategy_check_name(strategy));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char takers[128] = "";
        if (!options[i].is_given || lk__strategy_has(strategy, options[i].facts))
            continue;
        strategy_options_name_takers(options[i].facts, takers, sizeof takers);
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: is for --strategy %s%s%s", options[i].name, takers, strategy ? ", not " : "",
                strategy ? strategy : "");
    }
    return LK_OK;
}
