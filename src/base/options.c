/* Tables of options: defaults, environment, the command line, and help. lockstep/options.h documents them. */
#include "base/number.h"
#include "base/status.h"
#include "lockstep/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void *option_value(const lk_option *option, void *config)
{
    return (char *)config + option->offset;
}

static bool option_has_range(const lk_option *option)
{
    if (option->type == LK_OPTION_INT64)
        return option->minimum != 0 || option->maximum != 0;
    return option->type == LK_OPTION_DOUBLE && (option->least != 0 || option->greatest != 0);
}

/* Describes the allowed values for messages and help: "an integer from 1 to 8". */
static void option_describe_values(const lk_option *option, char *text, size_t size)
{
    size_t used = 0;
    switch (option->type) {
    case LK_OPTION_FLAG:
        snprintf(text, size, "true or false");
        break;
    case LK_OPTION_INT64:
        if (!option_has_range(option))
            snprintf(text, size, "an integer");
        else if (option->maximum == INT64_MAX)
            snprintf(text, size, "an integer of at least %" PRId64 " and below 2^63", option->minimum);
        else
            snprintf(text, size, "an integer from %" PRId64 " to %" PRId64, option->minimum, option->maximum);
        break;
    case LK_OPTION_DOUBLE:
        if (!option_has_range(option))
            snprintf(text, size, "a number");
        else if (option->greatest == LK_BELOW_ONE)
            snprintf(text, size, "a number of at least %g and below 1", option->least);
        else
            snprintf(text, size, "a number from %g to %g", option->least, option->greatest);
        break;
    case LK_OPTION_STRING:
        snprintf(text, size, "a text that is not empty");
        break;
    case LK_OPTION_CHOICE:
        for (size_t i = 0; option->choices[i] && used < size; i++) {
            const char *separator = !i ? "" : option->choices[i + 1] ? ", " : " or ";
            used += (size_t)snprintf(text + used, size - used, "%s%s", separator, option->choices[i]);
        }
        break;
    }
}

static bool option_set_int64(const lk_option *option, const char *text, bool any, int64_t *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (!lk__number_starts(text) || *end || errno)
        return false;
    if (!any && option_has_range(option) && (number < option->minimum || number > option->maximum))
        return false;
    *value = number;
    return true;
}

static bool option_set_double(const lk_option *option, const char *text, bool any, double *value)
{
    char *end;
    double number = lk__number_parse(text, &end);
    if (!lk__number_starts(text) || *end || !isfinite(number))
        return false;
    if (!any && option_has_range(option) && (number < option->least || number > option->greatest))
        return false;
    *value = number;
    return true;
}

static bool option_set_choice(const lk_option *option, const char *text, int *value)
{
    for (int i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool option_set_flag(const char *text, bool *value)
{
    bool yes = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (!yes && strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
        return false;
    *value = yes;
    return true;
}

/* Sets the option's value from `text`. Returns false if the text is not a value of the option. `any` accepts numbers
 * outside the range too: defaults may be. */
static bool option_set_value(const lk_option *option, void *config, const char *text, bool any)
{
    void *value = option_value(option, config);
    switch (option->type) {
    case LK_OPTION_FLAG:
        return option_set_flag(text, value);
    case LK_OPTION_INT64:
        return option_set_int64(option, text, any, value);
    case LK_OPTION_DOUBLE:
        return option_set_double(option, text, any, value);
    case LK_OPTION_STRING:
        *(const char **)value = text;
        return any || *text;
    case LK_OPTION_CHOICE:
        return option_set_choice(option, text, value);
    }
    return false;
}

/* `before` and `between` are the characters around the name: "--" and " ", or "" and "=". */
static lk_status option_refuse_value(const lk_option *option, const char *before, const char *name, const char *between,
                                     const char *text)
{
    char expected[256];
    option_describe_values(option, expected, sizeof expected);
    LK_FAIL(LK_ERR_ARGUMENT, "%s%s%s%.200s: must be %s", before, name, between, *text ? text : "''", expected);
}

static void option_set_zero(const lk_option *option, void *config)
{
    static const size_t sizes[] = {[LK_OPTION_FLAG] = sizeof(bool),
                                   [LK_OPTION_INT64] = sizeof(int64_t),
                                   [LK_OPTION_DOUBLE] = sizeof(double),
                                   [LK_OPTION_STRING] = sizeof(const char *),
                                   [LK_OPTION_CHOICE] = sizeof(int)};
    memset(option_value(option, config), 0, sizes[option->type]);
}

lk_status lk_options_defaults(const lk_option *options, size_t count, void *config)
{
    for (size_t i = 0; i < count; i++) {
        const lk_option *option = &options[i];
        option_set_zero(option, config);
        if (option->default_text && !option_set_value(option, config, option->default_text, true))
            return option_refuse_value(option, "default of --", option->name, " ", option->default_text);
        const char *text = option->environment ? getenv(option->environment) : NULL;
        if (text && *text && !option_set_value(option, config, text, false))
            return option_refuse_value(option, "", option->environment, "=", text);
    }
    return LK_OK;
}

static const lk_option *option_find(const lk_option *options, size_t count, const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        const lk_option *option = &options[i];
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

/* Returns whether `word` is one of the parts of a name between hyphens: "lr" is a part of "base-lr". */
static bool option_name_has_part(const char *name, const char *word)
{
    size_t length = strlen(word);
    for (const char *part = name; part; part = strchr(part, '-')) {
        part += *part == '-';
        if (length > 0 && strncmp(part, word, length) == 0 && (part[length] == '-' || part[length] == '\0'))
            return true;
    }
    return false;
}

/* Lists the options whose names contain the word: "--base-lr, --min-lr" for "lr"; empty if there is none. */
static void option_list_names_with(const char *word, const lk_option *options, size_t count, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        if (option_name_has_part(options[i].name, word))
            used += (size_t)snprintf(text + used, size - used, "%s--%s", used ? ", " : "", options[i].name);
}

static lk_status option_fail_unknown(const lk_option *options, size_t count, const char *name, size_t length)
{
    char word[64], alike[256];
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), name);
    const char *near = lk_nearest_word(word, options, count, sizeof *options);
    if (!near && strncmp(word, "no-", 3) == 0)
        near = lk_nearest_word(word + 3, options, count, sizeof *options);
    if (near)
        LK_FAIL(LK_ERR_ARGUMENT, "unknown option '--%s': did you mean '--%s'?", word, near);
    option_list_names_with(word, options, count, alike, sizeof alike);
    if (*alike)
        LK_FAIL(LK_ERR_ARGUMENT, "unknown option '--%s': did you mean %s?", word, alike);
    LK_FAIL(LK_ERR_ARGUMENT, "unknown option '--%s': see --help for those there are", word);
}

lk_status lk_options_set(const lk_option *options, size_t count, void *config, const char *name, const char *text)
{
    const lk_option *option = option_find(options, count, name, strlen(name));
    if (!option)
        return option_fail_unknown(options, count, name, strlen(name));
    if (!option_set_value(option, config, text, false))
        return option_refuse_value(option, "--", name, " ", text);
    return LK_OK;
}

/* Finds the option that the first `length` letters of `name` mean; *yes is false for the "no-" of a flag. */
static const lk_option *option_resolve(const lk_option *options, size_t count, const char *name, size_t length,
                                       bool *yes)
{
    const lk_option *option = option_find(options, count, name, length);
    *yes = true;
    if (option || strncmp(name, "no-", 3) != 0)
        return option;
    option = option_find(options, count, name + 3, length - 3);
    *yes = false;
    return option && option->type == LK_OPTION_FLAG ? option : NULL;
}

/* Parses the option at argv[0]; `argc` arguments are left. *used receives how many it took. */
static lk_status option_parse(const lk_option *options, size_t count, int argc, char **argv, void *config, int *used)
{
    const char *name = argv[0] + 2;
    size_t length = strcspn(name, "=");
    const char *text = name[length] ? name + length + 1 : NULL;
    bool yes;
    const lk_option *option = option_resolve(options, count, name, length, &yes);
    *used = 1;
    if (!option)
        return option_fail_unknown(options, count, name, length);
    if (option->type == LK_OPTION_FLAG) {
        if (text)
            LK_FAIL(LK_ERR_ARGUMENT, "--%.*s takes no value, but has '%.200s'", (int)length, name, text);
        *(bool *)option_value(option, config) = yes;
        return LK_OK;
    }
    if (!text) {
        if (argc < 2 || strncmp(argv[1], "--", 2) == 0)
            LK_FAIL(LK_ERR_ARGUMENT, "--%s: a value is missing (--%s %s)", option->name, option->name, option->value);
        text = argv[1];
        *used = 2;
    }
    if (!option_set_value(option, config, text, false))
        return option_refuse_value(option, "--", option->name, " ", text);
    return LK_OK;
}

lk_status lk_options_parse(const lk_option *options, size_t count, int argc, char **argv, void *config,
                           int *positionals)
{
    int kept = 0;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        if (!ended && strcmp(argv[i], "--") == 0) {
            ended = true;
        } else if (!ended && strncmp(argv[i], "--", 2) == 0) {
            int used;
            LK_TRY(option_parse(options, count, argc - i, argv + i, config, &used));
            i += used - 1;
        } else if (!ended && argv[i][0] == '-' && argv[i][1]) {
            LK_FAIL(LK_ERR_ARGUMENT, "unknown option '%.200s': options begin with two hyphens", argv[i]);
        } else if (positionals) {
            argv[kept++] = argv[i];
        } else {
            LK_FAIL(LK_ERR_ARGUMENT, "unexpected argument '%.200s'", argv[i]);
        }
    }
    if (positionals)
        *positionals = kept;
    return LK_OK;
}

lk_status lk_options_text(const lk_option *option, const void *config, char *text, size_t size)
{
    const void *value = (const char *)config + option->offset;
    const char *string;
    int length = -1, n_choices = 0;
    switch (option->type) {
    case LK_OPTION_FLAG:
        length = snprintf(text, size, "%s", *(const bool *)value ? "true" : "false");
        break;
    case LK_OPTION_INT64:
        length = snprintf(text, size, "%" PRId64, *(const int64_t *)value);
        break;
    case LK_OPTION_DOUBLE:
        length = lk__number_print(*(const double *)value, text, size);
        break;
    case LK_OPTION_STRING:
        string = *(const char *const *)value;
        length = snprintf(text, size, "%s", string ? string : "");
        break;
    case LK_OPTION_CHOICE:
        while (option->choices[n_choices])
            n_choices++;
        if (*(const int *)value < 0 || *(const int *)value >= n_choices)
            LK_FAIL(LK_ERR_ARGUMENT, "--%s: its value %d is none of the %d choices", option->name, *(const int *)value,
                    n_choices);
        length = snprintf(text, size, "%s", option->choices[*(const int *)value]);
        break;
    }
    if (length < 0 || (size_t)length >= size)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: its value does not fit %zu bytes", option->name, size);
    return LK_OK;
}

/* Help starts its second column at HELP_INDENT and breaks lines at HELP_WIDTH, or where a narrower terminal ends. */
enum { HELP_INDENT = 28, HELP_LEAST = 50, HELP_WIDTH = 100 };

static size_t option_help_width(FILE *stream)
{
    struct winsize window;
    bool is_terminal = isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &window) == 0;
    return is_terminal && window.ws_col >= HELP_LEAST && window.ws_col < HELP_WIDTH ? window.ws_col : HELP_WIDTH;
}

static void option_print_wrapped(const char *text, FILE *stream)
{
    size_t width = option_help_width(stream) - HELP_INDENT;
    while (strlen(text) > width) {
        size_t length = width;
        while (length && text[length] != ' ')
            length--;
        if (!length)
            length = strcspn(text, " ");
        fprintf(stream, "%.*s\n%*s", (int)length, text, HELP_INDENT, "");
        text += length + strspn(text + length, " ");
    }
    fprintf(stream, "%s\n", text);
}

/* Returns whether help shows the default. A default outside the option's range means "unset", and is not shown. */
static bool option_shows_default(const lk_option *option)
{
    union {
        bool flag;
        int64_t integer;
        double number;
        const char *string;
        int choice;
    } scratch;
    lk_option alone = *option;
    alone.offset = 0;
    return option->type != LK_OPTION_FLAG && option->default_text && *option->default_text &&
           option_set_value(&alone, &scratch, option->default_text, false);
}

/* Appends to `text`, and adds to *used the length that the addition would have if it fit. */
LK_PRINTF(4, 5)
static void option_append_text(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(*used < size ? text + *used : NULL, *used < size ? size - *used : 0, format, arguments);
    va_end(arguments);
    *used += length > 0 ? (size_t)length : 0;
}

lk_status lk_option_describe(const lk_option *option, char *text, size_t size)
{
    size_t used = 0;
    option_append_text(text, size, &used, "%s", option->help);
    if (option_has_range(option) || option->type == LK_OPTION_CHOICE) {
        char values[256];
        option_describe_values(option, values, sizeof values);
        option_append_text(text, size, &used, "; %s", values);
    }
    if (option_shows_default(option))
        option_append_text(text, size, &used, " (default %s)", option->default_text);
    if (option->environment)
        option_append_text(text, size, &used, " [$%s]", option->environment);
    if (used >= size)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: its description does not fit %zu bytes", option->name, size);
    return LK_OK;
}

const char *lk_option_heading(const lk_option *options, size_t index)
{
    const char *group = options[index].group, *before = index > 0 ? options[index - 1].group : NULL;
    return group && before && strcmp(group, before) == 0 ? NULL : group;
}

void lk_options_help(const lk_option *options, size_t count, FILE *stream)
{
    for (size_t i = 0; i < count; i++) {
        const lk_option *option = &options[i];
        const char *heading = lk_option_heading(options, i);
        if (heading)
            fprintf(stream, "%s%s:\n", i > 0 ? "\n" : "", heading);
        bool takes_value = option->type != LK_OPTION_FLAG;
        int column =
            fprintf(stream, "  --%s%s%s", option->name, takes_value ? " " : "", takes_value ? option->value : "");
        if (column > HELP_INDENT - 2) {
            fputc('\n', stream);
            column = 0;
        }
        fprintf(stream, "%*s", HELP_INDENT - column, "");

        char text[1024];
        lk_option_describe(option, text, sizeof text);
        option_print_wrapped(text, stream);
    }
}
