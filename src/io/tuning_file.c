/* Tunings as files: see lockstep/tuning.h. */
#include "io/tuning_file.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void put_line(void *user, const char *op, const char *problem, const char *implementation)
{
    lk__bytes *text = user;
    const char *const words[] = {op, " ", problem, " = ", implementation, "\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        lk__bytes_text(text, words[i]);
}

void lk__tuning_put(const lk_tuning *tuning, lk__bytes *text)
{
    lk__bytes_text(text, lk_tuning_machine(tuning));
    lk__bytes_char(text, '\n');
    lk_tuning_visit(tuning, put_line, text);
}

lk_status lk_tuning_write(const lk_tuning *tuning, const char *path)
{
    lk__bytes text = {0};
    lk__tuning_put(tuning, &text);
    lk_status status = lk__bytes_status(&text);
    if (status == LK_OK)
        status = lk__replace_file(path, text.data, text.size);
    lk__bytes_free(&text);
    return status;
}

/* --- reading: the first line -------------------------------------------------------------------------------------- */

enum { MOST_TEXT = 256 };

/* The item of a list "a, b, c" that *rest is at, without its end; *rest goes on behind it. */
static bool next_item(const char **rest, char *item)
{
    size_t length = strcspn(*rest, ",");
    if (length == 0 || length >= MOST_TEXT)
        return false;
    memcpy(item, *rest, length);
    item[length] = '\0';
    *rest += length;
    *rest += strspn(*rest, ", ");
    return true;
}

/* "device" of "device cpu", all but an item's last word. */
static size_t name_length(const char *item)
{
    const char *space = strrchr(item, ' ');
    return space ? (size_t)(space - item) : 0;
}

static lk_status parse_kind(const char *path, const char *line, char *kind)
{
    char item[MOST_TEXT];
    const char *rest = line;
    while (next_item(&rest, item)) {
        if (sscanf(item, "device %31s", kind) == 1)
            return LK_OK;
    }
    LK_FAIL(LK_ERR_FORMAT,
            "tuning %s, line 1: must say what it is for, as in 'lockstep 0.1.0, device cpu, instruction set avx2, "
            "oneDNN 2.6.3', not '%.80s'",
            path, line);
}

/* What is different is named. */
static lk_status check_machine(const char *path, const char *line, const lk_tuning *tuning)
{
    char have[MOST_TEXT], want[MOST_TEXT];
    const char *line_rest = line, *machine_rest = lk_tuning_machine(tuning);
    if (strcmp(line, machine_rest) == 0)
        return LK_OK;
    while (next_item(&machine_rest, want)) {
        bool is_there = next_item(&line_rest, have) && name_length(have) == name_length(want) &&
                        strncmp(have, want, name_length(want)) == 0;
        if (!is_there)
            LK_FAIL(LK_ERR_FORMAT, "tuning %s, line 1: '%s' is missing in '%.160s': a tuning is for one machine", path,
                    want, line);
        if (strcmp(have, want) != 0)
            LK_FAIL(LK_ERR_FORMAT, "tuning %s is for %s, this is %s: measure again with `lockstep tune`", path, have,
                    want);
    }
    LK_FAIL(LK_ERR_FORMAT, "tuning %s, line 1: '%.160s' must be '%s'", path, line, lk_tuning_machine(tuning));
}

static lk_status start(const char *path, const char *line, lk_tuning **tuning)
{
    char kind[32];
    LK_TRY(parse_kind(path, line, kind));
    *tuning = lk_tuning_new(kind);
    if (!*tuning && lk_error_status() == LK_ERR_ARGUMENT) {
        lk_error_clear();
        LK_FAIL(LK_ERR_FORMAT, "tuning %s, line 1: there are no devices of kind '%s'", path, kind);
    }
    return *tuning ? check_machine(path, line, *tuning) : lk_error_status();
}

/* --- reading: choices --------------------------------------------------------------------------------------------- */

/* An error of lk_tuning_set, with its place. */
static lk_status add_place(const char *path, int number, lk_status status)
{
    char message[512];
    if (status != LK_ERR_ARGUMENT)
        return status;
    snprintf(message, sizeof message, "%s", lk_error_message());
    lk_error_clear();
    LK_FAIL(LK_ERR_FORMAT, "tuning %s, line %d: %s", path, number, message);
}

/* "conv2d f32 x… = direct:avx2", which is taken apart. */
static lk_status read_choice(const char *path, int number, char *line, lk_tuning *tuning)
{
    char *problem = strchr(line, ' '), *equals = strstr(line, " = ");
    if (!problem || !equals || problem >= equals)
        LK_FAIL(LK_ERR_FORMAT, "tuning %s, line %d: must be 'OPERATOR PROBLEM = IMPLEMENTATION', not '%.80s'", path,
                number, line);
    *problem = *equals = '\0';
    return add_place(path, number, lk_tuning_set(tuning, line, problem + 1, equals + 3));
}

/* The line at *rest, without its end; *rest goes on behind it. NULL: there is none. */
static char *next_line(char **rest)
{
    char *line = *rest;
    if (!*line)
        return NULL;
    size_t length = strcspn(line, "\n");
    *rest = line + length + (line[length] == '\n');
    while (length > 0 && strchr(" \t\r", line[length - 1]))
        length--;
    line[length] = '\0';
    return line;
}

static lk_status parse(const char *path, char *text, lk_tuning **tuning)
{
    char *line = next_line(&text);
    LK_TRY(start(path, line ? line : "", tuning));
    for (int number = 2; (line = next_line(&text)); number++)
        if (*line && *line != '#')
            LK_TRY(read_choice(path, number, line, *tuning));
    return LK_OK;
}

static lk_status read_all(const char *path, lk__bytes *text)
{
    char buffer[4096];
    FILE *file = fopen(path, "r");
    if (!file)
        LK_FAIL(LK_ERR_IO, "tuning %s: cannot be read: %s", path, strerror(errno));
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
        lk__bytes_put(text, buffer, n);
    bool failed = ferror(file);
    int error = errno;
    fclose(file);
    if (failed)
        LK_FAIL(LK_ERR_IO, "tuning %s: cannot be read: %s", path, strerror(error));
    lk__bytes_char(text, '\0');
    return lk__bytes_status(text);
}

lk_tuning *lk_tuning_read(const char *path)
{
    lk_tuning *tuning = NULL;
    lk__bytes text = {0};
    lk_status status = read_all(path, &text);
    if (status == LK_OK)
        status = parse(path, (char *)text.data, &tuning);
    lk__bytes_free(&text);
    if (status == LK_OK)
        return tuning;
    lk_tuning_release(tuning);
    return NULL;
}
