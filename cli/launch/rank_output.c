#include "cli/launch/rank_output.h"

#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct cli_rank_line {
    char bytes[8192];
    size_t n;
};

/* Prints the line in one call, because others may write to the same terminal or file. */
static void output_print_line(cli_rank_output *o)
{
    fprintf(stderr, "[%s] %.*s\n", o->name, (int)o->line->n, o->line->bytes);
    if (o->log) {
        fwrite(o->line->bytes, 1, o->line->n, o->log);
        fputc('\n', o->log);
        fflush(o->log);
    }
    o->line->n = 0;
}

void cli_output_flush(cli_rank_output *o)
{
    if (o->line && o->line->n > 0)
        output_print_line(o);
}

static bool output_make_line(cli_rank_output *o)
{
    if (!o->line)
        o->line = calloc(1, sizeof *o->line);
    return o->line;
}

void cli_output_take(cli_rank_output *o, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && output_make_line(o); i++) {
        if (bytes[i] != '\n')
            o->line->bytes[o->line->n++] = bytes[i];
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

void cli_output_close(cli_rank_output *o)
{
    cli_output_flush(o);
    if (o->log)
        fclose(o->log);
    free(o->line);
}
