#include "cli/train_flags.h"

#include "cli/cli.h"
#include "cli/text/data_progress.h"

#include <string.h>

/* Parses twice: first to find the recipe, then to let all other options override its settings. */
lk_status cli_parse_train(const lk_option *options, size_t count, int argc, char **argv, void *config,
                          void (*amend)(void *config))
{
    lk_status status = lk_options_defaults(options, count, config);
    if (status == LK_OK)
        status = lk_options_parse(options, count, argc, argv, config, NULL);
    const char *recipe = ((lk_train_config *)config)->recipe;
    if (status == LK_OK)
        status = lk_options_defaults(options, count, config);
    if (status == LK_OK)
        status = lk_train_defaults(recipe, config);
    if (status != LK_OK)
        return status;
    if (amend)
        amend(config);
    ((lk_train_config *)config)->data.progress = cli_show_data_progress;
    return lk_options_parse(options, count, argc, argv, config, NULL);
}

static bool train_flag_names_contain(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

size_t cli_train_options(const lk_option *own, size_t n_own, const char *const *without, lk_option *table)
{
    /* Records, checkpoints, and several processes. */
    static const char *const of_train_alone[] = {"json",
                                                 "log-dir",
                                                 "throughput",
                                                 "total-time",
                                                 "plot",
                                                 "ledger",
                                                 "checkpoint-dir",
                                                 "checkpoint-every",
                                                 "keep",
                                                 "resume",
                                                 "checkpoint-best",
                                                 "override",
                                                 "cluster",
                                                 "compress",
                                                 "role",
                                                 "task-index",
                                                 "servers",
                                                 "coordinator",
                                                 "listen",
                                                 "max-staleness",
                                                 "snapshot-dir",
                                                 "snapshot-every",
                                                 "keys",
                                                 "peer-timeout",
                                                 "join-timeout",
                                                 NULL};
    size_t count = 0;
    for (; count < n_own; count++)
        table[count] = own[count];
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        if (!train_flag_names_contain(option->name, of_train_alone) && !train_flag_names_contain(option->name, without))
            table[count++] = *option;
    }
    return count;
}

int cli_check_one_process(const lk_train_config *config)
{
    if (lk_strategy_kind_of(config->devices.strategy) != LK_STRATEGY_LOCAL)
        return cli_usage_error("--strategy %s: is for `lockstep train`", config->devices.strategy);
    return 0;
}

void cli_interrupt_trainer(void *trainer)
{
    lk_trainer_interrupt(trainer);
}

void cli_leave_out_records(lk_train_config *config)
{
    config->records.log_dir = config->checkpoints.dir = NULL;
    config->checkpoints.resume = config->checkpoints.override = false;
    config->records.throughput = config->records.total_time = config->records.plot = config->records.ledger =
        config->records.json = false;
}
