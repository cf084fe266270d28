#include "io/tuning_file.h"

#include "base/status.h"
#include "core/tuning.h"
#include "io/append_file.h"

#include <stdio.h>
#include <string.h>

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void tuning_file_put_choice(void *user, const char *op, const char *problem, const char *implementation)
{
    lk_bytes *text = user;
    const char *const words[] = {op, " ", problem, " = ", implementation, "\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        lk__bytes_text(text, words[i]);
}

void lk__tuning_put(const lk_tuning *tuning, lk_bytes *text)
{
    lk__bytes_text(text, lk_tuning_machine(tuning));
    lk__bytes_char(text, '\n');
    lk_tuning_visit(tuning, tuning_file_put_choice, text);
}

lk_status lk_tuning_write(const lk_tuning *tuning, const char *path)
{
    lk_bytes text = {0};
    lk__tuning_put(tuning, &text);
    lk_status status = lk__bytes_status(&text);
    if (status == LK_OK)
        status = lk__replace_file(path, text.data, text.size);
    lk__bytes_free(&text);
    return status;
}

/* --- reading: the first line -------------------------------------------------------------------------------------- */

enum { MOST_TEXT = 256 };

/* Copies the next item of the list "a, b, c" at *rest and advances *rest past it. */
static bool tuning_file_next_item(const char **rest, char *item)
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

/* Returns the length of an item without its last word: that of "device" for "device cpu". */
static size_t tuning_file_name_length(const char *item)
{
    const char *space = strrchr(item, ' ');
    return space ? (size_t)(space - item) : 0;
}

static lk_status tuning_file_parse_kind(const char *path, const char *line, char *kind)
{
    char item[MOST_TEXT];
    const char *rest = line;
    while (tuning_file_next_item(&rest, item)) {
        if (sscanf(item, "device %31s", kind) == 1)
            return LK_OK;
    }
    LK_FAIL(LK_ERR_FORMAT,
            "tuning %s, line 1: must say what it is for, as in 'lockstep 0.1.0, device cpu, instruction set avx2, "
            "oneDNN 2.6.3', not '%.80s'",
            path, line);
}

/* The file's first line must equal that of this machine. The message names the first difference. */
static lk_status tuning_file_check_machine(const char *path, const char *line, const lk_tuning *tuning)
{
    char have[MOST_TEXT], want[MOST_TEXT];
    const char *line_rest = line, *machine_rest = lk_tuning_machine(tuning);
    if (strcmp(line, machine_rest) == 0)
        return LK_OK;
    while (tuning_file_next_item(&machine_rest, want)) {
        bool same_name = tuning_file_next_item(&line_rest, have) &&
                         tuning_file_name_length(have) == tuning_file_name_length(want) &&
                         strncmp(have, want, tuning_file_name_length(want)) == 0;
        if (!same_name)
            LK_FAIL(LK_ERR_FORMAT, "tuning %s, line 1: '%s' is missing in '%.160s': a tuning is for one machine", path,
                    want, line);
        if (strcmp(have, want) != 0)
            LK_FAIL(LK_ERR_FORMAT, "tuning %s is for %s, this is %s: measure again with `lockstep tune`", path, have,
                    want);
    }
    LK_FAIL(LK_ERR_FORMAT, "tuning %s, line 1: '%.160s' must be '%s'", path, line, lk_tuning_machine(tuning));
}

static lk_status tuning_file_parse_first_line(const char *path, const char *line, lk_tuning **tuning)
{
    char kind[32];
    LK_TRY(tuning_file_parse_kind(path, line, kind));
    *tuning = lk_tuning_new(kind);
    if (!*tuning && lk_error_status() == LK_ERR_ARGUMENT) {
        lk_error_clear();
        LK_FAIL(LK_ERR_FORMAT, "tuning %s, line 1: there are no devices of kind '%s'", path, kind);
    }
    if (!*tuning)
        return lk_error_status();
    LK_TRY(lk__tuning_set_file(*tuning, path));
    return tuning_file_check_machine(path, line, *tuning);
}

/* --- reading: choices --------------------------------------------------------------------------------------------- */

/* Adds the file and the line number to an error of lk_tuning_set. */
static lk_status tuning_file_add_location(const char *path, int number, lk_status status)
{
    char message[512];
    if (status != LK_ERR_ARGUMENT)
        return status;
    snprintf(message, sizeof message, "%s", lk_error_message());
    lk_error_clear();
    LK_FAIL(LK_ERR_FORMAT, "tuning %s, line %d: %s", path, number, message);
}

/* Parses a line such as "conv2d f32 x… = direct:avx2", which is modified. */
static lk_status tuning_file_parse_choice(const char *path, int number, char *line, lk_tuning *tuning)
{
    char *problem = strchr(line, ' '), *equals = strstr(line, " = ");
    if (!problem || !equals || problem >= equals)
        LK_FAIL(LK_ERR_FORMAT, "tuning %s, line %d: must be 'OPERATOR PROBLEM = IMPLEMENTATION', not '%.80s'", path,
                number, line);
    *problem = *equals = '\0';
    return tuning_file_add_location(path, number, lk_tuning_set(tuning, line, problem + 1, equals + 3));
}

/* Returns the line at *rest without trailing space and advances *rest past it; NULL at the end. */
static char *tuning_file_next_line(char **rest)
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

static lk_status tuning_file_parse(const char *path, char *text, lk_tuning **tuning)
{
    char *line = tuning_file_next_line(&text);
    LK_TRY(tuning_file_parse_first_line(path, line ? line : "", tuning));
    for (int number = 2; (line = tuning_file_next_line(&text)); number++)
        if (*line && *line != '#')
            LK_TRY(tuning_file_parse_choice(path, number, line, *tuning));
    return LK_OK;
}

lk_tuning *lk_tuning_read(const char *path)
{
    enum { MOST = 1 << 20 };
    lk_tuning *tuning = NULL;
    lk_bytes text = {0};
    int error = lk__bytes_read_file(&text, path, MOST);
    lk_status status = error              ? lk__fail(LK_ERR_IO, "tuning %s: cannot be read: %s", path, strerror(error))
                       : text.size > MOST ? lk__fail(LK_ERR_FORMAT, "tuning %s: has more than %d bytes", path, MOST)
                                          : LK_OK;
    /* A loss of power can leave zeros at the end of a file. What is behind them must not be left out in silence. */
    if (status == LK_OK && text.size > 0 && memchr(text.data, '\0', text.size))
        status = lk__fail(LK_ERR_FORMAT, "tuning %s: has a zero byte, so it is no text", path);
    lk__bytes_char(&text, '\0');
    if (status == LK_OK)
        status = lk__bytes_status(&text);
    if (status == LK_OK)
        status = tuning_file_parse(path, (char *)text.data, &tuning);
    lk__bytes_free(&text);
    if (status == LK_OK)
        return tuning;
    lk_tuning_release(tuning);
    return NULL;
}
