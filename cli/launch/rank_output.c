#include "cli/launch/rank_output.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct cli_rank_line {
    char bytes[8192];
    size_t n;
    bool returned; /* the last byte was a carriage return */
    bool redrawn;  /* the line was begun anew, so it is no line that stays */
};

static void output_check_log(cli_rank_output *o, bool is_written)
{
    if (!is_written && !o->log_failed)
        cli_error("--log-dir: the log of [%s] cannot be written: %s", o->name, strerror(errno));
    o->log_failed |= !is_written;
}

/* Writes the line without the terminal's control sequences, such as those of bold type. */
static void output_log_line(cli_rank_output *o)
{
    const char *byte = o->line->bytes, *end = byte + o->line->n;
    for (; byte < end; byte++) {
        if (*byte != '\033') {
            fputc(*byte, o->log);
            continue;
        }
        while (byte + 1 < end && !isalpha((unsigned char)*byte))
            byte++;
    }
    fputc('\n', o->log);
    output_check_log(o, fflush(o->log) == 0);
}

static void output_begin_line(cli_rank_output *o, bool redrawn)
{
    o->line->n = 0;
    o->line->redrawn = redrawn;
    o->line->returned = false;
}

/* Prints the line in one call, because others may write to the same terminal or file. */
static void output_print_line(cli_rank_output *o)
{
    cli_clear_line();
    fprintf(stderr, "[%s] %.*s\n", o->name, (int)o->line->n, o->line->bytes);
    if (o->log)
        output_log_line(o);
    output_begin_line(o, false);
}

void cli_output_draw(const cli_rank_output *o)
{
    if (!o->line || !o->line->redrawn || !cli_can_redraw())
        return;
    int n = (int)o->line->n, most = cli_columns(stderr) - (int)strlen(o->name) - 4;
    if (n > 0 && most > 0)
        fprintf(stderr, "\r\033[K[%s] %.*s", o->name, n < most ? n : most, o->line->bytes);
    else
        cli_clear_line();
}

void cli_output_flush(cli_rank_output *o)
{
    if (!o->line || o->line->n == 0)
        return;
    if (!o->line->redrawn) {
        output_print_line(o);
        return;
    }
    cli_clear_line();
    output_begin_line(o, false);
}

static bool output_make_line(cli_rank_output *o)
{
    if (!o->line)
        o->line = calloc(1, sizeof *o->line);
    return o->line;
}

void cli_output_take(cli_rank_output *o, const char *bytes, size_t n)
{
    static const char clears[] = "\033[K"; /* follows a carriage return */
    for (size_t i = 0; i < n && output_make_line(o); i++) {
        if (o->line->returned && bytes[i] != '\n')
            output_begin_line(o, true);
        o->line->returned = bytes[i] == '\r';
        if (bytes[i] != '\n' && bytes[i] != '\r')
            o->line->bytes[o->line->n++] = bytes[i];
        if (o->line->redrawn && o->line->n == strlen(clears) && memcmp(o->line->bytes, clears, o->line->n) == 0)
            o->line->n = 0;
        if (bytes[i] == '\n' || o->line->n == sizeof o->line->bytes)
            output_print_line(o);
    }
}

bool cli_output_open_log(cli_rank_output *o, const char *title, const char *folder, bool appends)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s%s.log", folder, *title ? "rank-" : "", o->name) >= sizeof path)
        errno = ENAMETOOLONG;
    else
        o->log = fopen(path, appends ? "ae" : "we");
    if (!o->log)
        cli_error("--log-dir: %s: %s", path, strerror(errno));
    return o->log;
}

bool cli_output_close(cli_rank_output *o)
{
    cli_output_flush(o);
    if (o->log)
        output_check_log(o, fclose(o->log) == 0);
    free(o->line);
    return !o->log_failed;
}
