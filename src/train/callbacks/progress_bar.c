/* Draws how far an epoch has come, in place, on a terminal. */
#include "lockstep/callbacks.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct progress_bar {
    FILE *stream;
    bool terminal;
    int64_t epochs, samples; /* planned; training samples an epoch */
    bool drawn;              /* a bar stands in the current line */
    double last_drawn;       /* seconds into the epoch */
} progress_bar;

static void clear(progress_bar *bar)
{
    if (bar->drawn) {
        fputs("\r\033[K", bar->stream);
        fflush(bar->stream);
    }
    bar->drawn = false;
}

static void format_seconds(char *text, size_t size, double seconds)
{
    long whole = lround(seconds);
    if (whole >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, size, "%ld:%02ld", whole / 60, whole % 60);
}

static int columns_of(FILE *stream)
{
    struct winsize size;
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* The bar takes what the numbers leave of a line, and goes first where they leave too little: a line that wraps could
 * not be drawn over. */
static void draw(progress_bar *bar, const char *epoch, const char *numbers, int64_t step, int64_t steps)
{
    enum { WIDEST = 24, NARROWEST = 8 };
    char blocks[WIDEST + 4] = "";
    int columns = columns_of(bar->stream) - 1;
    int width = columns - (int)strlen(epoch) - (int)strlen(numbers) - 3;
    if (width > WIDEST)
        width = WIDEST;
    if (width >= NARROWEST) {
        int filled = (int)(step * width / steps);
        blocks[0] = '[';
        memset(blocks + 1, '#', (size_t)filled);
        memset(blocks + 1 + filled, '.', (size_t)(width - filled));
        memcpy(blocks + 1 + width, "] ", 3);
    }
    char line[256];
    snprintf(line, sizeof line, "%s%s%s", epoch, blocks, numbers);
    fprintf(bar->stream, "\r\033[K%.*s", columns, line);
    fflush(bar->stream);
    bar->drawn = true;
}

/* Ten times a second is enough for the eye. */
static bool is_due(const progress_bar *bar, const lk_step_report *report)
{
    return report->step == report->steps || report->seconds - bar->last_drawn >= 0.1 ||
           report->seconds < bar->last_drawn;
}

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    progress_bar *bar = self;
    const lk_plan *plan = lk_trainer_plan(trainer);
    bar->terminal = isatty(fileno(bar->stream));
    bar->epochs = plan->epochs;
    bar->samples = plan->train_samples;
    bar->last_drawn = 0;
    return LK_OK;
}

static lk_status step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    progress_bar *bar = self;
    if (!bar->terminal || !is_due(bar, report))
        return LK_OK;
    bar->last_drawn = report->seconds;
    char epoch[64], numbers[160], eta[32];
    lk_mean loss = report->so_far.loss;
    double speed = report->seconds > 0 ? (double)loss.count / report->seconds : 0;
    /* Of training: how long evaluation takes is not known before the first one. */
    int64_t left = bar->samples * (bar->epochs - report->epoch + 1) - loss.count;
    format_seconds(eta, sizeof eta, speed > 0 ? (double)left / speed : 0);
    snprintf(epoch, sizeof epoch, "epoch %lld/%lld ", (long long)report->epoch, (long long)bar->epochs);
    snprintf(numbers, sizeof numbers, "%lld/%lld  loss %.4f  %.0f images/s  ETA %s", (long long)report->step,
             (long long)report->steps, lk_mean_value(loss), speed, eta);
    draw(bar, epoch, numbers, report->step, report->steps);
    return LK_OK;
}

static lk_status epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)report, (void)stop;
    progress_bar *bar = self;
    clear(bar);
    bar->last_drawn = 0;
    return LK_OK;
}

static lk_status train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    clear(self);
    return LK_OK;
}

lk_callback lk_callback_progress_bar(FILE *stream)
{
    progress_bar *bar = lk__calloc(1, sizeof *bar);
    if (!bar)
        return (lk_callback){0};
    bar->stream = stream;
    return (lk_callback){.name = "progress bar",
                         .train_begin = train_begin,
                         .step_end = step_end,
                         .epoch_end = epoch_end,
                         .train_end = train_end,
                         .release = lk__free,
                         .self = bar};
}
