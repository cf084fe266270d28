#include "train_flags.h"

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
    return lk_options_parse(options, count, argc, argv, config, NULL);
}

static bool is_of_records(const char *name)
{
    static const char *const names[] = {"json", "log-dir", "throughput", "total-time", "plot", "ledger"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

size_t cli_train_options(const lk_option *own, size_t n_own, const char *without, lk_option *table)
{
    size_t count = 0;
    for (; count < n_own; count++)
        table[count] = own[count];
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const char *name = lk_train_options[i].name;
        if (!is_of_records(name) && !(without && strcmp(without, name) == 0))
            table[count++] = lk_train_options[i];
    }
    return count;
}

void cli_leave_out_records(lk_train_config *config)
{
    config->log_dir = NULL;
    config->throughput = config->total_time = config->plot = config->ledger = config->json = false;
}
