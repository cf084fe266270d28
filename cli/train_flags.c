#include "train_flags.h"

#include "cli.h"
#include "data_progress.h"

#include <string.h>

/* Read twice: once for the recipe, whose settings are then overridden by all other flags. */
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
    ((lk_train_config *)config)->data_progress = cli_show_data_progress;
    return lk_options_parse(options, count, argc, argv, config, NULL);
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

size_t cli_train_options(const lk_option *own, size_t n_own, const char *const *without, lk_option *table)
{
    static const char *const records[] = {
        "json", "log-dir", "throughput",      "total-time", "plot", "ledger", "checkpoint-dir", "checkpoint-every",
        "keep", "resume",  "checkpoint-best", "override",   NULL};
    size_t count = 0;
    for (; count < n_own; count++)
        table[count] = own[count];
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        if (!is_one_of(option->name, records) && !is_one_of(option->name, without))
            table[count++] = *option;
    }
    return count;
}

int cli_check_one_process(const lk_train_config *config)
{
    static const char *const of_processes[] = {"multi-worker", "parameter-server", NULL};
    if (config->strategy && is_one_of(config->strategy, of_processes))
        return cli_usage_error("--strategy %s: is for `lockstep train`", config->strategy);
    return 0;
}

void cli_leave_out_records(lk_train_config *config)
{
    config->log_dir = config->checkpoint_dir = NULL;
    config->resume = config->override = false;
    config->throughput = config->total_time = config->plot = config->ledger = config->json = false;
}

void cli_leave_out_evaluation(lk_train_config *config)
{
    config->limit_val = 0;
    config->target_accuracy = config->patience = -1;
    config->early_stop = 0;
    config->precise_batch_norm = 0;
}
