#include "cli/text/completion.h"

#include "lockstep/data.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/optim.h"
#include "lockstep/train.h"

#include <ctype.h>
#include <string.h>

static const char *completion_dataset_at(int index)
{
    return lk_dataset_known_name((size_t)index);
}

static const char *completion_recipe_at(int index)
{
    const lk_recipe *recipe = lk_recipe_at(index);
    return recipe ? recipe->name : NULL;
}

static const char *completion_algorithms_at(int index)
{
    static const char *const names[] = {"fast", "direct", NULL};
    return names[index];
}

/* Options whose values are names that the library knows. They are the same for every command. */
static const struct {
    const char *option, *command; /* command: the one whose argument is such a name; NULL: none */
    const char *(*name_at)(int index);
    cli_paths paths; /* also accepted as values */
} named[] = {
    {"model", NULL, lk_model_name_at, CLI_FILES},
    {"data", "data", completion_dataset_at, CLI_FILES},
    {"recipe", "recipes", completion_recipe_at, CLI_NO_PATHS},
    {"strategy", NULL, lk_strategy_name_at, CLI_NO_PATHS},
    {"optimizer", NULL, lk_optimizer_name, CLI_NO_PATHS},
    {"algorithms", NULL, completion_algorithms_at, CLI_FILES},
};
enum { NAMED = sizeof named / sizeof *named };

static void completion_add(cli_completion *c, const char *word, size_t length)
{
    size_t used = strlen(c->words);
    snprintf(c->words + used, sizeof c->words - used, "%s%.*s", used ? " " : "", (int)length, word);
}

static void completion_add_named(cli_completion *c, int row)
{
    const char *name;
    for (int i = 0; (name = named[row].name_at(i)); i++)
        completion_add(c, name, strlen(name));
    c->paths = named[row].paths;
}

cli_completion cli_complete_value(const lk_option *option)
{
    cli_completion c = {.words = ""};
    for (size_t i = 0; option->type == LK_OPTION_CHOICE && option->choices[i]; i++)
        completion_add(&c, option->choices[i], strlen(option->choices[i]));
    if (option->type != LK_OPTION_STRING)
        return c;
    if (strstr(option->value, "DIR"))
        c.paths = CLI_FOLDERS;
    else if (strstr(option->value, "FILE"))
        c.paths = CLI_FILES;
    for (int i = 0; i < NAMED; i++)
        if (strcmp(option->name, named[i].option) == 0)
            completion_add_named(&c, i);
    return c;
}

/* Adds the words of a usage line that are in lower case: they are typed literally. */
static void completion_add_literals(cli_completion *c, const char *usage)
{
    while (*usage) {
        size_t length = strspn(usage, "abcdefghijklmnopqrstuvwxyz-");
        if (length > 1 && islower((unsigned char)usage[0]))
            completion_add(c, usage, length);
        usage += length ? length : 1;
    }
}

/* Usage lines describe arguments as "[COMMAND]", "RUN FILE…" or "info [NAME] | preview [NAME]". */
cli_completion cli_complete_argument(const cli_command *command)
{
    const char *usage = command->arguments ? command->arguments : "";
    const cli_command *other;
    cli_completion c = {.words = ""};
    completion_add_literals(&c, usage);
    for (size_t i = 0; strstr(usage, "COMMAND") && (other = cli_listed_command(i)); i++)
        completion_add(&c, other->name, strlen(other->name));
    if (strstr(usage, "FILE"))
        c.paths = CLI_FILES;
    else if (strstr(usage, "DIR") || strstr(usage, "RUN") || strstr(usage, "FOLDER"))
        c.paths = CLI_FOLDERS;
    for (int i = 0; i < NAMED; i++)
        if (named[i].command && strcmp(command->name, named[i].command) == 0)
            completion_add_named(&c, i);
    return c;
}
