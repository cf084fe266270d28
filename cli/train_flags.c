#include "train_flags.h"

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
