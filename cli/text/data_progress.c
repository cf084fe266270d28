#include "cli/text/data_progress.h"

#include "cli/cli.h"
#include "cli/cli_clock.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"

#include <stdio.h>

enum { QUIET_MILLISECONDS = 1000 }; /* shorter work shows no line */

typedef struct line {
    lk_data_work work;
    int64_t begin;
    int percent;
    bool drawn;
} line;

static void progress_line_begin(line *l, lk_data_work work)
{
    bool drawn = l->drawn && l->work != LK_DATA_DOWNLOADING; /* overwritten by the next line */
    *l = (line){.work = work, .percent = -1, .drawn = drawn};
    l->begin = cli_milliseconds();
}

static void progress_line_draw(const line *l, const lk_data_progress *progress)
{
    static const char *const what[] = {
        [LK_DATA_DOWNLOADING] = "",
        [LK_DATA_WAITING] = "waiting for another process that prepares ",
        [LK_DATA_EXAMINING] = "reading headers of pictures of ",
        [LK_DATA_DECODING] = "decoding pictures of ",
        [LK_DATA_STORING] = "storing the decoded pictures of ",
        [LK_DATA_CHECKING] = "checking the decoded pictures of ",
    };
    bool pictures = l->work == LK_DATA_EXAMINING || l->work == LK_DATA_DECODING;
    fprintf(stderr, "\r\033[K%s", what[l->work]);
    cli_print_clean(progress->name, stderr);
    if (l->percent >= 0 && pictures)
        fprintf(stderr, " %3d%% of %lld", l->percent, (long long)progress->total);
    else if (l->percent >= 0)
        fprintf(stderr, " %3d%% of %.1f MB", l->percent, (double)progress->total / 1e6);
    fflush(stderr);
}

/* Keeps the line of a download on the screen, and clears any other. */
static void progress_line_end(line *l)
{
    if (l->drawn)
        fputs(l->work == LK_DATA_DOWNLOADING ? "\n" : "\r\033[K", stderr);
    fflush(stderr);
    l->drawn = false;
}

static void progress_line_show(line *l, const lk_data_progress *progress)
{
    bool waits = progress->work == LK_DATA_WAITING, downloads = progress->work == LK_DATA_DOWNLOADING;
    int percent = waits || progress->total <= 0 ? -1 : (int)(100 * progress->done / progress->total);
    if (progress->work != l->work || (progress->done == 0 && !waits) || l->begin == 0)
        progress_line_begin(l, progress->work);
    bool changes = percent != l->percent || (waits && !l->drawn);
    if (changes && (downloads ? percent >= 0 : cli_milliseconds() - l->begin >= QUIET_MILLISECONDS)) {
        l->percent = percent;
        progress_line_draw(l, progress);
        l->drawn = true;
    }
    if (percent == 100)
        progress_line_end(l);
}

bool cli_show_data_progress(void *user, const lk_data_progress *progress)
{
    static line shown;
    (void)user;
    if (cli_is_interrupted())
        return false;
    if (cli_can_redraw())
        progress_line_show(&shown, progress);
    return true;
}
