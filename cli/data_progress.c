#include "data_progress.h"

#include "cli.h"
#include "interrupts.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { QUIET_MILLISECONDS = 1000 }; /* what takes no longer is not worth a line */

typedef struct line {
    lk_data_work work;
    struct timespec begin;
    int percent;
    bool drawn;
} line;

static int64_t milliseconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1000 * (int64_t)(now.tv_sec - begin->tv_sec) + (now.tv_nsec - begin->tv_nsec) / 1000000;
}

static void begin(line *l, lk_data_work work)
{
    bool drawn = l->drawn && l->work != LK_DATA_DOWNLOADING; /* another work's line is written over */
    *l = (line){.work = work, .percent = -1, .drawn = drawn};
    clock_gettime(CLOCK_MONOTONIC, &l->begin);
}

static void draw(const line *l, const lk_data_progress *progress)
{
    static const char *const what[] = {
        [LK_DATA_DOWNLOADING] = "",
        [LK_DATA_WAITING] = "waiting for another process that prepares ",
        [LK_DATA_EXAMINING] = "looking at pictures of ",
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

/* Of a download the whole line stays. */
static void end(line *l)
{
    if (l->drawn)
        fputs(l->work == LK_DATA_DOWNLOADING ? "\n" : "\r\033[K", stderr);
    fflush(stderr);
    l->drawn = false;
}

static void show(line *l, const lk_data_progress *progress)
{
    bool waits = progress->work == LK_DATA_WAITING, downloads = progress->work == LK_DATA_DOWNLOADING;
    int percent = waits || progress->total <= 0 ? -1 : (int)(100 * progress->done / progress->total);
    if (progress->work != l->work || (progress->done == 0 && !waits) || l->begin.tv_sec == 0)
        begin(l, progress->work);
    bool changes = percent != l->percent || (waits && !l->drawn);
    if (changes && (downloads ? percent >= 0 : milliseconds_since(&l->begin) >= QUIET_MILLISECONDS)) {
        l->percent = percent;
        draw(l, progress);
        l->drawn = true;
    }
    if (percent == 100)
        end(l);
}

bool cli_show_data_progress(void *user, const lk_data_progress *progress)
{
    static line shown;
    (void)user;
    if (cli_is_interrupted())
        return false;
    if (isatty(STDERR_FILENO))
        show(&shown, progress);
    return true;
}
