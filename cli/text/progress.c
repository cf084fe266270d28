#include "cli/text/progress.h"

#include "cli/cli.h"
#include "cli/text/plan_text.h"
#include "cli/text/repeat_text.h"
#include "cli/text/scaling_text.h"

#include "lockstep/callbacks.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

/* The fields of the line of an epoch, or of the last one. Those of least worth are left out where a terminal is too
 * narrow. */
typedef struct epoch_line {
    struct {
        char text[64];
        int worth;
    } fields[12];
    int n;
} epoch_line;

enum { WORTH_RATE, WORTH_SECONDS, WORTH_SPEED, WORTH_TOP_K, WORTH_ACCURACY, WORTH_LOSS, WORTH_MOST };

static void LK_PRINTF(3, 4) epoch_line_add(epoch_line *line, int worth, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line->fields[line->n].text, sizeof line->fields[0].text, format, arguments);
    va_end(arguments);
    line->fields[line->n++].worth = worth;
}

/* Adds the metrics that were measured. `prefix`: "" or "val ". */
static void epoch_line_add_metrics(epoch_line *line, const char *prefix, const lk_metrics *metrics, int64_t k)
{
    if (metrics->loss.count)
        epoch_line_add(line, WORTH_LOSS, "  %sloss %.4f", prefix, lk_mean_value(metrics->loss));
    if (metrics->accuracy.count)
        epoch_line_add(line, *prefix ? WORTH_MOST : WORTH_ACCURACY, "  %saccuracy %.4f", prefix,
                       lk_mean_value(metrics->accuracy));
    if (metrics->top_k.count)
        epoch_line_add(line, WORTH_TOP_K, "  %stop-%lld %.4f", prefix, (long long)k, lk_mean_value(metrics->top_k));
}

/* Prints the fields that fit into a line, without its end. */
static void epoch_line_print(const epoch_line *line)
{
    int columns = cli_columns(stderr), least = 0, width;
    do {
        width = 0;
        for (int i = 0; i < line->n; i++)
            width += line->fields[i].worth >= least ? (int)strlen(line->fields[i].text) : 0;
    } while (width > columns && ++least < WORTH_MOST);
    for (int i = 0; i < line->n; i++)
        if (line->fields[i].worth >= least)
            fputs(line->fields[i].text, stderr);
}

/* Says so, once, if an epoch's loss is within 0.2% of that of equal probabilities, which looks like a fault. */
static void progress_note_guesses(cli_progress *progress, const lk_epoch_report *report)
{
    double classes = (double)progress->plan->classes, loss = lk_mean_value(report->train.loss);
    if (progress->has_warned || classes < 2 || !(fabs(loss - log(classes)) <= 0.002 * log(classes)))
        return;
    progress->has_warned = true;
    cli_printf_wrapped(stderr, "note: ",
                       "the network still guesses: %.4f is the loss of equal probabilities for %.0f classes. Weights "
                       "that begin small, as lenet's, take some hundred steps before the loss falls.",
                       log(classes), classes);
}

static lk_status progress_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    cli_progress *progress = self;
    const lk_plan *plan = progress->plan;
    epoch_line line = {.n = 0};
    epoch_line_add(&line, WORTH_MOST, "epoch %*lld/%lld", plan->epochs > 9 ? 2 : 1, (long long)report->epoch,
                   (long long)plan->epochs);
    epoch_line_add_metrics(&line, "", &report->train, plan->top_k);
    epoch_line_add_metrics(&line, "val ", &report->val, plan->top_k);
    epoch_line_add(&line, WORTH_RATE, "  rate %g", report->rate);
    epoch_line_add(&line, WORTH_SECONDS, "  %.1f s", report->seconds);
    epoch_line_add(&line, WORTH_SPEED, "  %.0f images/s", report->images_per_second);
    if (report->skipped_steps)
        epoch_line_add(&line, WORTH_MOST, "  %lld step%s skipped", (long long)report->skipped_steps,
                       report->skipped_steps == 1 ? "" : "s");
    epoch_line_print(&line);
    fputc('\n', stderr);
    progress_note_guesses(progress, report);
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

static bool progress_is_named(const char *path)
{
    return path && *path;
}

/* Says where things were saved, and which command shows them. */
static void progress_print_places(const lk_train_config *config)
{
    const struct {
        const char *what, *command, *folder, *argument;
    } places[] = {{"checkpoints", "predict", config->checkpoints.dir, " PICTURE"},
                  {"records", "report", config->records.log_dir, ""}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (!progress_is_named(places[i].folder))
            continue;
        fprintf(stderr, "  %-11s ", places[i].what);
        cli_print_clean(places[i].folder, stderr);
        fprintf(stderr, ": lockstep %s ", places[i].command);
        cli_put_word(stderr, places[i].folder);
        fprintf(stderr, "%s\n", places[i].argument);
    }
}

/* The result stands last and alone. */
void cli_progress_done(const cli_progress *progress, const lk_trainer *trainer, const lk_train_result *result)
{
    const lk_scaling_report *scaling = lk_trainer_scaling(trainer);
    bool has_others = scaling && (scaling->devices > 1 || scaling->servers > 0);
    if (result->audits > 0)
        fprintf(stderr, "audit: replicas compared %lld time%s, no difference\n", (long long)result->audits,
                result->audits == 1 ? "" : "s");
    if (progress->verbose && isfinite(result->flops_per_second))
        fprintf(stderr, "%.1f GFLOP/s\n", 1e-9 * result->flops_per_second);
    if (has_others)
        cli_print_scaling(scaling, progress->verbose, stderr);
    fprintf(stderr, "state digest %s\n", result->state_digest);
    epoch_line line = {.n = 0};
    epoch_line_add(&line, WORTH_MOST, "done: %lld step%s in %.1f s", (long long)result->steps,
                   result->steps == 1 ? "" : "s", result->seconds);
    if (isfinite(result->images_per_second))
        epoch_line_add(&line, WORTH_SPEED, ", %.0f images/s%s", result->images_per_second,
                       result->resumed_steps > 0 && result->resumed_steps < result->steps ? " since it was resumed"
                                                                                          : "");
    if (result->val.accuracy.count)
        epoch_line_add(&line, WORTH_MOST, ", val accuracy %.4f", lk_mean_value(result->val.accuracy));
    cli_set_bold(true);
    epoch_line_print(&line);
    cli_set_bold(false);
    fputc('\n', stderr);
    progress_print_places(lk_trainer_config(trainer));
    fprintf(stderr, "digest %s\n", result->digest);
}

/* --- the terminal ------------------------------------------------------------------------------------------------- */

int cli_columns(FILE *stream)
{
    struct winsize size;
    int file = fileno(stream);
    return isatty(file) && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : INT_MAX;
}

static void progress_write_wrapped(const char *before, const char *text, int columns, FILE *stream)
{
    int indent = cli_text_width(before), used = indent;
    cli_print_clean(before, stream);
    while (*text) {
        char word[256];
        int gap = (int)strspn(text, " "), length = (int)strcspn(text + gap, " ");
        length = length < (int)sizeof word ? length : (int)sizeof word - 1;
        snprintf(word, sizeof word, "%.*s", length, text + gap);
        text += gap + length;
        if (used > indent && used + gap + cli_text_width(word) > columns) {
            fprintf(stream, "\n%*s", indent, "");
            used = indent;
        } else {
            fprintf(stream, "%*s", gap, "");
            used += gap;
        }
        cli_print_clean(word, stream);
        used += cli_text_width(word);
    }
    fputc('\n', stream);
}

/* Prints in one call, because others may write to the same terminal or file. */
void cli_print_wrapped(const char *before, const char *text, FILE *stream)
{
    char *lines = NULL;
    size_t size;
    FILE *memory = open_memstream(&lines, &size);
    if (memory) {
        progress_write_wrapped(before, text, cli_columns(stream), memory);
        fclose(memory);
    }
    if (lines)
        fwrite(lines, 1, size, stream);
    free(lines);
}

void cli_printf_wrapped(FILE *stream, const char *before, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    cli_print_wrapped(before, text, stream);
    free(text);
}

bool cli_can_redraw(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

void cli_set_bold(bool is_bold)
{
    const char *none = getenv("NO_COLOR"); /* no-color.org: set and not empty */
    if (cli_can_redraw() && !(none && *none))
        fputs(is_bold ? "\033[1m" : "\033[0m", stderr);
}

void cli_clear_line(void)
{
    if (cli_can_redraw())
        fputs("\r\033[K", stderr);
}

void cli_print_log(void *user, lk_log_level level, const char *message)
{
    (void)user;
    cli_clear_line(); /* a progress bar is redrawn later */
    cli_print_wrapped(level == LK_LOG_WARNING ? "warning: " : "note: ", message, stderr);
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
