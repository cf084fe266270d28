#include "cli/text/repeat_text.h"

#include "lockstep/train.h"

#include <stdio.h>
#include <string.h>

void cli_put_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, out);
    fputc('\'', out);
}

static void repeat_text_put_option(FILE *out, const lk_option *option, const char *value)
{
    bool is_flag = option->type == LK_OPTION_FLAG;
    fprintf(out, " \\\n    --%s%s", is_flag && strcmp(value, "yes") != 0 ? "no-" : "", option->name);
    if (is_flag)
        return;
    fputc(' ', out);
    cli_put_word(out, value);
}

/* Returns whether a value was no UTF-8. The records have replacement characters instead of its bytes. */
static bool repeat_text_is_damaged(const lk_run *run)
{
    for (int i = 0; i < run->n_settings; i++)
        if (strstr(run->settings[i].value, "\xEF\xBF\xBD"))
            return true;
    return false;
}

char *cli_repeat_command(const lk_run *run)
{
    char *text = NULL;
    size_t size;
    const char *recipe = lk_run_get_setting(run, "recipe");
    bool has_recipe = recipe && *recipe;
    FILE *out =
        run->repeatable && run->n_settings > 0 && !repeat_text_is_damaged(run) ? open_memstream(&text, &size) : NULL;
    if (!out)
        return NULL;
    fputs("lockstep train", out);
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        const char *value = lk_run_get_setting(run, option->name);
        if (!value)
            continue;
        /* It is recorded as empty if it is not set. A recipe may set it. */
        if (!*value && has_recipe && strcmp(option->name, "target-accuracy") == 0)
            value = "-1";
        const char *default_text = option->type == LK_OPTION_FLAG ? "no" : option->default_text;
        bool is_default = default_text && strcmp(value, default_text) == 0;
        bool is_named = strcmp(option->name, "model") == 0 || strcmp(option->name, "data") == 0;
        if (*value && (!is_default || is_named || has_recipe))
            repeat_text_put_option(out, option, value);
    }
    return fclose(out) == 0 ? text : NULL;
}
