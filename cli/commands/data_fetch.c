#include "cli/commands/data_command.h"

#include "cli/cli.h"

#include <string.h>

/* Opens both splits whole, so that damaged files are found now and not during other work. */
int cli_data_fetch(data_config *config)
{
    const char *name = config->train.data.name;
    bool known = false;
    for (size_t i = 0; !known && lk_dataset_known_name(i); i++)
        known = strcmp(name, lk_dataset_known_name(i)) == 0;
    if (strcmp(name, "auto") == 0)
        return cli_usage_error("fetch: give the name of a data set: one of %s", lk_dataset_names());
    if (!known)
        return cli_usage_error("fetch %s: must be one of %s", name, lk_dataset_names());
    for (int split = 0; split < 2; split++) {
        lk_dataset *dataset;
        data_config plain = {.train = {.data.dir = config->train.data.dir}, .mirror = config->mirror, .verify = true};
        if (cli_data_open(&plain, name, (lk_split)split, &dataset) != LK_OK)
            return cli_fail();
        printf("%s: %lld images of ", split == LK_SPLIT_TRAIN ? "train" : "test ",
               (long long)lk_dataset_count(dataset));
        cli_data_print_shape(dataset);
        fputs(", ", stdout);
        cli_print_clean(lk_dataset_source(dataset), stdout);
        putchar('\n');
        lk_dataset_release(dataset);
    }
    return 0;
}
