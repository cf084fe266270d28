#include "cli/text/progress.h"

#include "cli/cli.h"
#include "cli/text/plan_text.h"
#include "cli/text/scaling_text.h"

#include "lockstep/callbacks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void cli_note_fallback(void)
{
    fputs("note: fashion-mnist is neither here nor could it be fetched; training on synthetic images instead\n",
          stderr);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void progress_print_ledger(const char *what, const lk_ledger_report *ledger)
{
    fprintf(stderr, "  ledger: %lld %s samples used once, %lld unused, %lld more than once\n",
            (long long)ledger->used_once, what, (long long)ledger->unused, (long long)ledger->repeated);
}

/* Prints the metrics that were measured. `prefix`: "" or "val ". */
static void progress_print_metrics(const char *prefix, const lk_metrics *metrics, int64_t k)
{
    if (metrics->loss.count)
        fprintf(stderr, "  %sloss %.4f", prefix, lk_mean_value(metrics->loss));
    if (metrics->accuracy.count)
        fprintf(stderr, "  %saccuracy %.4f", prefix, lk_mean_value(metrics->accuracy));
    if (metrics->top_k.count)
        fprintf(stderr, "  %stop-%lld %.4f", prefix, (long long)k, lk_mean_value(metrics->top_k));
}

static lk_status progress_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    cli_progress *progress = self;
    const lk_plan *plan = progress->plan;
    fprintf(stderr, "epoch %*lld/%lld", plan->epochs > 9 ? 2 : 1, (long long)report->epoch, (long long)plan->epochs);
    progress_print_metrics("", &report->train, plan->top_k);
    progress_print_metrics("val ", &report->val, plan->top_k);
    fprintf(stderr, "  rate %g  %.1f s  %.0f images/s", report->rate, report->seconds, report->images_per_second);
    if (report->skipped_steps)
        fprintf(stderr, "  %lld step%s skipped", (long long)report->skipped_steps,
                report->skipped_steps == 1 ? "" : "s");
    fputc('\n', stderr);
    if (progress->ledger) {
        progress_print_ledger("training", &report->train_ledger);
        if (report->val.loss.count)
            progress_print_ledger("validation", &report->val_ledger);
    }
    return LK_OK;
}

static lk_status progress_train_begin(void *self, lk_trainer *trainer)
{
    cli_progress *progress = self;
    progress->plan = lk_trainer_plan(trainer);
    return LK_OK;
}

/* The plan is not printed in train_begin, where another callback may still refuse to begin. */
static lk_status progress_epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    (void)epoch;
    cli_progress *progress = self;
    if (progress->announced)
        return LK_OK;
    progress->announced = true;
    if (progress->plan->fell_back)
        cli_note_fallback();
    cli_print_plan(progress->plan, lk_trainer_config(trainer));
    return LK_OK;
}

lk_status cli_progress_add(cli_progress *progress, lk_trainer *trainer)
{
    lk_status status = lk_trainer_add(trainer, lk_callback_progress_bar(stderr));
    if (status != LK_OK)
        return status;
    return lk_trainer_add(trainer, (lk_callback){.name = "progress",
                                                 .train_begin = progress_train_begin,
                                                 .epoch_begin = progress_epoch_begin,
                                                 .epoch_end = progress_epoch_end,
                                                 .self = progress});
}

void cli_progress_done(const lk_trainer *trainer, const lk_train_result *result)
{
    const lk_scaling_report *scaling = lk_trainer_scaling(trainer);
    fprintf(stderr, "done: %lld step%s in %.1f s", (long long)result->steps, result->steps == 1 ? "" : "s",
            result->seconds);
    if (isfinite(result->images_per_second))
        fprintf(stderr, ", %.0f images/s", result->images_per_second);
    if (isfinite(result->flops_per_second))
        fprintf(stderr, ", %.1f GFLOP/s", 1e-9 * result->flops_per_second);
    if (result->val.accuracy.count)
        fprintf(stderr, ", val accuracy %.4f", lk_mean_value(result->val.accuracy));
    fputc('\n', stderr);
    if (scaling && (scaling->devices > 1 || scaling->servers > 0))
        cli_print_scaling(scaling, stderr);
    if (result->audits > 0)
        fprintf(stderr, "audit: replicas compared %lld time%s, no difference\n", (long long)result->audits,
                result->audits == 1 ? "" : "s");
    fprintf(stderr, "state digest %s\ndigest %s\n", result->state_digest, result->digest);
}

void cli_clear_line(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

void cli_print_log(void *user, lk_log_level level, const char *message)
{
    (void)user;
    cli_clear_line(); /* a progress bar is redrawn later */
    fprintf(stderr, "%s: ", level == LK_LOG_WARNING ? "warning" : "note");
    cli_print_clean(message, stderr);
    fputc('\n', stderr);
}

void cli_print_log_once(void *user, lk_log_level level, const char *message)
{
    enum { KEPT = 16 };
    static char kept[KEPT][256];
    static int count;
    for (int i = 0; i < count; i++)
        if (strncmp(kept[i], message, sizeof kept[i] - 1) == 0)
            return;
    if (count < KEPT)
        snprintf(kept[count++], sizeof kept[0], "%s", message);
    cli_print_log(user, level, message);
}
