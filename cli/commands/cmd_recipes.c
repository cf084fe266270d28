#include "cli/cli.h"
#include "cli/text/progress.h"

#include "lockstep/train.h"

#include <string.h>

static void list_recipes(void)
{
    const lk_recipe *recipe;
    char before[80];
    for (int i = 0; (recipe = lk_recipe_at(i)); i++) {
        snprintf(before, sizeof before, "%-18s ", recipe->name);
        cli_print_wrapped(before, recipe->about, stdout);
    }
}

/* Prints a setting as an option: "throughput=true" as --throughput. */
static void recipes_print_setting(const char *setting)
{
    size_t name = strcspn(setting, "=");
    const char *value = setting + name + 1;
    if (strcmp(value, "true") == 0)
        printf("  --%.*s\n", (int)name, setting);
    else if (strcmp(value, "false") == 0)
        printf("  --no-%.*s\n", (int)name, setting);
    else
        printf("  --%.*s %s\n", (int)name, setting, value);
}

static int unknown_recipe(const char *name)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES];
    const lk_recipe *recipe;
    size_t count = 0;
    for (; count < MAX_NAMES && (recipe = lk_recipe_at((int)count)); count++)
        names[count] = recipe->name;
    const char *near = lk_nearest_word(name, names, count, sizeof names[0]);
    if (near)
        return cli_usage_error("unknown recipe '%s': did you mean '%s'?", name, near);
    return cli_usage_error("unknown recipe '%s': see 'lockstep recipes' for a list", name);
}

static int describe_recipe(const char *name)
{
    const lk_recipe *recipe;
    for (int i = 0; (recipe = lk_recipe_at(i)); i++) {
        if (strcmp(recipe->name, name) != 0)
            continue;
        cli_print_wrapped("", recipe->about, stdout);
        for (const char *const *setting = recipe->settings; *setting; setting++)
            recipes_print_setting(*setting);
        return 0;
    }
    return unknown_recipe(name);
}

static int recipes_run(int argc, char **argv)
{
    int count;
    if (cli_parse(&cmd_recipes, argc, argv, NULL, &count) != LK_OK)
        return cli_fail();
    if (count > 1)
        return cli_usage_error("unexpected argument '%s': one recipe is described at a time", argv[1]);
    if (count == 1)
        return describe_recipe(argv[0]);
    list_recipes();
    return 0;
}

const cli_command cmd_recipes = {
    .name = "recipes",
    .summary = "List the recipes, or the settings of one",
    .arguments = "[NAME]",
    .details =
        "'lockstep train --recipe NAME' trains with the settings of a recipe. Other options override them, before or\n"
        "after --recipe.\n",
    .run = recipes_run,
};
