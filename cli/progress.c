#include "progress.h"

#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static double mean(lk_mean m)
{
    double value = m.count ? m.sum / (double)m.count : NAN;
    return isnan(value) ? NAN : value; /* without a sign, which printf would show */
}

static void print_plan(const lk_plan *plan)
{
    long long shards = plan->shards, devices = plan->devices, batch = plan->batch_size;
    fprintf(stderr, "%s (%lld parameters) on %s (", plan->model, (long long)plan->parameters, plan->data);
    cli_print_clean(plan->source, stderr);
    fputs(")\n", stderr);
    fprintf(stderr, "  data      %lld training images, %lld for validation\n", (long long)plan->train_samples,
            (long long)plan->val_samples);
    fprintf(stderr, "  devices   %lld, strategy %s\n", devices, plan->strategy);
    fprintf(stderr, "  batch     %lld in %lld shard%s, ", batch, shards, shards == 1 ? "" : "s");
    if (batch % devices == 0 && shards % devices == 0)
        fprintf(stderr, "%lld samples a device\n", batch / devices);
    else
        fprintf(stderr, "about %.0f samples a device\n", (double)batch / (double)devices);
    fprintf(stderr, "  training  %lld epoch%s of %lld step%s, SGD, rate %g, seed %llu\n", (long long)plan->epochs,
            plan->epochs == 1 ? "" : "s", (long long)plan->steps_per_epoch, plan->steps_per_epoch == 1 ? "" : "s",
            plan->learning_rate, (unsigned long long)plan->seed);
}

void cli_note_fallback(void)
{
    fputs("note: fashion-mnist is neither here nor could it be fetched; training on synthetic images instead\n",
          stderr);
}

void cli_progress_start(cli_progress *progress, const lk_plan *plan)
{
    progress->plan = plan;
    progress->terminal = isatty(STDERR_FILENO);
    if (plan->fell_back)
        cli_note_fallback();
    print_plan(plan);
}

void cli_progress_clear(cli_progress *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}

static void format_seconds(char *text, size_t size, double seconds)
{
    long whole = lround(seconds);
    if (whole >= 3600)
        snprintf(text, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, size, "%ld:%02ld", whole / 60, whole % 60);
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* The bar takes what the numbers leave of a line, and goes first where they leave too little: a line that wraps could
 * not be drawn over. */
static void draw(const char *epoch, const char *numbers, int64_t step, int64_t steps)
{
    enum { WIDEST = 24, NARROWEST = 8 };
    char bar[WIDEST + 4] = "";
    int columns = terminal_columns() - 1;
    int width = columns - (int)strlen(epoch) - (int)strlen(numbers) - 3;
    if (width > WIDEST)
        width = WIDEST;
    if (width >= NARROWEST) {
        int filled = (int)(step * width / steps);
        bar[0] = '[';
        memset(bar + 1, '#', (size_t)filled);
        memset(bar + 1 + filled, '.', (size_t)(width - filled));
        memcpy(bar + 1 + width, "] ", 3);
    }
    char line[256];
    snprintf(line, sizeof line, "%s%s%s", epoch, bar, numbers);
    fprintf(stderr, "\r\033[K%.*s", columns, line);
}

void cli_progress_step(cli_progress *progress, const lk_step_report *report)
{
    /* Ten times a second is enough for the eye. */
    if (!progress->terminal || (report->step < report->steps && report->seconds - progress->last_drawn < 0.1 &&
                                report->seconds >= progress->last_drawn))
        return;
    progress->last_drawn = report->seconds;
    char epoch[64], numbers[160], eta[32];
    double rate = report->seconds > 0 ? (double)report->loss.count / report->seconds : 0;
    /* Of training: how long evaluation takes is not known before the first one. */
    int64_t epochs_left = progress->plan->epochs - report->epoch;
    int64_t left = progress->plan->train_samples * (epochs_left + 1) - report->loss.count;
    format_seconds(eta, sizeof eta, rate > 0 ? (double)left / rate : 0);
    snprintf(epoch, sizeof epoch, "epoch %lld/%lld ", (long long)report->epoch, (long long)progress->plan->epochs);
    snprintf(numbers, sizeof numbers, "%lld/%lld  loss %.4f  %.0f images/s  ETA %s", (long long)report->step,
             (long long)report->steps, mean(report->loss), rate, eta);
    draw(epoch, numbers, report->step, report->steps);
    progress->drawn = true;
}

static void print_ledger(const char *what, const lk_ledger_report *ledger)
{
    fprintf(stderr, "  ledger: %lld %s samples used once, %lld unused, %lld more than once\n",
            (long long)ledger->used_once, what, (long long)ledger->unused, (long long)ledger->repeated);
}

void cli_progress_epoch(cli_progress *progress, const lk_epoch_report *report)
{
    cli_progress_clear(progress);
    progress->last_drawn = 0;
    fprintf(stderr, "epoch %*lld/%lld  loss %.4f  accuracy %.4f", progress->plan->epochs > 9 ? 2 : 1,
            (long long)report->epoch, (long long)progress->plan->epochs, mean(report->train_loss),
            mean(report->train_accuracy));
    if (report->val_loss.count)
        fprintf(stderr, "  val loss %.4f  val accuracy %.4f", mean(report->val_loss), mean(report->val_accuracy));
    fprintf(stderr, "  %.1f s  %.0f images/s\n", report->seconds, report->images_per_second);
    if (report->train_ledger.used_once) {
        print_ledger("training", &report->train_ledger);
        if (report->val_ledger.used_once)
            print_ledger("validation", &report->val_ledger);
    }
}

void cli_progress_done(cli_progress *progress, const lk_train_result *result)
{
    cli_progress_clear(progress);
    fprintf(stderr, "done: %lld step%s in %.1f s", (long long)result->steps, result->steps == 1 ? "" : "s",
            result->seconds);
    if (isfinite(result->images_per_second))
        fprintf(stderr, ", %.0f images/s, %.1f GFLOP/s", result->images_per_second, 1e-9 * result->flops_per_second);
    if (result->val_accuracy.count)
        fprintf(stderr, ", val accuracy %.4f", mean(result->val_accuracy));
    fprintf(stderr, "\ndigest %s\n", result->digest);
}

void cli_print_log(void *user, lk_log_level level, const char *message)
{
    cli_progress_clear(user);
    fprintf(stderr, "%s: ", level == LK_LOG_WARNING ? "warning" : "note");
    cli_print_clean(message, stderr);
    fputc('\n', stderr);
}
