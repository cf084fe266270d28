#include "train/strategy_options.h"

#include "base/status.h"

#include <string.h>

/* Where it is not given an option has the value that its default is, or one that stands for "unset". */
typedef struct strategy_option {
    const char *name;
    const char *strategy, *other; /* that take it; other NULL: none */
    bool is_given;
} strategy_option;

static bool takes(const strategy_option *option, const char *strategy)
{
    return strategy &&
           (strcmp(strategy, option->strategy) == 0 || (option->other && strcmp(strategy, option->other) == 0));
}

lk_status lk__check_strategy_options(const lk_train_config *config)
{
    static const char asynchronous[] = "parameter-server", several[] = "multi-worker";
    const char *strategy = config->strategy;
    const strategy_option options[] = {
        {"pjrt", "tpu", NULL, config->pjrt != NULL},
        {"storage", "central-storage", NULL, config->storage != NULL},
        {"compress", several, NULL, config->compress != 0},
        {"cluster", several, asynchronous, config->cluster != NULL},
        {"role", asynchronous, NULL, config->role != 0},
        {"task-index", asynchronous, NULL, config->task_index >= 0},
        {"servers", asynchronous, NULL, config->servers > 0},
        {"coordinator", asynchronous, NULL, config->coordinator != NULL},
        {"listen", asynchronous, NULL, config->listen != NULL},
        {"max-staleness", asynchronous, NULL, config->max_staleness >= 0},
        {"snapshot-dir", asynchronous, NULL, config->snapshot_dir != NULL},
        {"snapshot-every", asynchronous, NULL, config->snapshot_every > 0},
        {"keys", asynchronous, NULL, config->keys != NULL},
        {"peer-timeout", asynchronous, NULL, config->peer_timeout > 0},
        {"join-timeout", asynchronous, NULL, config->join_timeout > 0},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const strategy_option *o = &options[i];
        if (o->is_given && !takes(o, strategy))
            LK_FAIL(LK_ERR_ARGUMENT, "--%s: is for --strategy %s%s%s%s%s", o->name, o->strategy,
                    o->other ? " and " : "", o->other ? o->other : "", strategy ? ", not " : "",
                    strategy ? strategy : "");
    }
    return LK_OK;
}
