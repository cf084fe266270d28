#include "cli/launch/launch_ranks.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct rank {
    cli_rank_output output;
    char host[256];
    lk_heart_report heart;
    double unheard;  /* seconds since its last record */
    bool is_present; /* its supervisor has been heard from */
    bool has_ended;
    bool is_given; /* cli_ranks_next_ended has returned it */
    cli_rank_end end;
} rank;

struct cli_ranks {
    int n;
    int first_failed, stalled; /* -1: none */
    double silence;            /* seconds without progress of the stalled rank */
    double since_end;          /* seconds since a rank last ended */
    const char *title;         /* printed before a name: "rank " */
    bool is_mid_line;          /* rank 0's standard output has not ended its line */
    char last[1024];           /* the last line about a rank that was printed */
    rank ranks[];
};

/* --- records ------------------------------------------------------------------------------------------------------ */

static bool end_is_failure(const cli_rank_end *end)
{
    bool is_proper = end->number == 0 || end->number == CLI_RANK_INTERRUPTED || end->number == CLI_RANK_LEFT;
    return end->by_signal || !is_proper;
}

static cli_failure launch_ranks_failure_of(const cli_rank_end *end)
{
    if (!end_is_failure(end))
        return CLI_NO_FAILURE;
    return end->by_signal ? CLI_FAILURE_SIGNAL : end->heart.follows ? CLI_FAILURE_FOLLOWS : CLI_FAILURE_ERROR;
}

cli_failure cli_ranks_failure(const cli_ranks *ranks)
{
    return ranks->first_failed < 0 ? CLI_NO_FAILURE : launch_ranks_failure_of(&ranks->ranks[ranks->first_failed].end);
}

static void ranks_take_end(cli_ranks *ranks, rank *r, const cli_rank_end *end)
{
    ranks->since_end = 0;
    r->has_ended = true;
    r->end = *end;
    r->heart = end->heart;
    cli_output_flush(&r->output);
    if (launch_ranks_failure_of(end) > cli_ranks_failure(ranks))
        ranks->first_failed = (int)(r - ranks->ranks);
}

static bool record_has_flag(const cli_record *record, size_t offset)
{
    return record->data[offset] == 0 || record->data[offset] == 1;
}

/* Reads a report, which has come through pipes and other programs. Returns false if it is damaged. */
static bool record_read_heart(const cli_record *record, size_t bytes, lk_heart_report *heart)
{
    if ((size_t)record->bytes != bytes || !record_has_flag(record, offsetof(lk_heart_report, follows)))
        return false;
    memcpy(heart, record->data, sizeof *heart);
    heart->operation[sizeof heart->operation - 1] = '\0';
    return (unsigned)heart->state <= LK_HEART_GONE && heart->silent >= 0;
}

/* The same for the end of a rank, which begins with a report. */
static bool record_read_end(const cli_record *record, cli_rank_end *end)
{
    lk_heart_report heart;
    if (!record_read_heart(record, sizeof *end, &heart) ||
        !record_has_flag(record, offsetof(cli_rank_end, of_supervisor)) ||
        !record_has_flag(record, offsetof(cli_rank_end, by_signal)))
        return false;
    memcpy(end, record->data, sizeof *end);
    end->heart = heart;
    return true;
}

/* Draws the bar of rank 0 again below what was printed. */
static void ranks_take_output(cli_ranks *ranks, rank *r, const cli_record *record)
{
    if (record->kind == CLI_RECORD_STDERR || r > ranks->ranks) {
        cli_output_take(&r->output, record->data, (size_t)record->bytes);
    } else if (record->bytes > 0) {
        if (!ranks->is_mid_line)
            cli_clear_line();
        fwrite(record->data, 1, (size_t)record->bytes, stdout);
        fflush(stdout);
        ranks->is_mid_line = record->data[record->bytes - 1] != '\n';
    }
    if (!ranks->is_mid_line)
        cli_output_draw(&ranks->ranks[0].output);
}

void cli_ranks_take(cli_ranks *ranks, const cli_record *record)
{
    lk_heart_report heart;
    cli_rank_end end;
    if (record->rank >= ranks->n)
        return;
    rank *r = &ranks->ranks[record->rank];
    r->unheard = 0;
    switch (record->kind) {
    case CLI_RECORD_HOST:
        snprintf(r->host, sizeof r->host, "%.*s", record->bytes, record->data);
        r->is_present = true;
        break;
    case CLI_RECORD_STDOUT:
    case CLI_RECORD_STDERR:
        ranks_take_output(ranks, r, record);
        break;
    case CLI_RECORD_HEART:
        if (record_read_heart(record, sizeof heart, &heart))
            r->heart = heart;
        break;
    case CLI_RECORD_END:
        if (record_read_end(record, &end))
            ranks_take_end(ranks, r, &end);
        break;
    default:
        break;
    }
}

void cli_ranks_advance_time(cli_ranks *ranks, double seconds)
{
    seconds = seconds < 1 ? seconds : 1;
    for (int i = 0; i < ranks->n; i++)
        ranks->ranks[i].unheard += seconds;
    ranks->since_end += seconds;
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

/* Returns the seconds without progress. For a rank that waits for others they count only from the last end of a rank,
 * because it may be about to continue. */
static double rank_silence(const cli_ranks *ranks, const rank *r)
{
    double silent = r->heart.silent + r->unheard;
    bool may_go_on = r->heart.state == LK_HEART_WAITS_FOR_OTHERS && silent > ranks->since_end;
    return may_go_on ? ranks->since_end : silent;
}

/* Returns the state of a rank. It counts as stopped if its supervisor was silent for `seconds`. */
static lk_heart_state rank_state(const rank *r, double seconds)
{
    return r->unheard >= seconds ? LK_HEART_STOPPED : r->heart.state;
}

/* Returns whether a is likelier than b to be the cause if neither makes progress. */
static bool rank_is_likelier(const rank *a, const rank *b, double seconds)
{
    lk_heart_state of_a = rank_state(a, seconds), of_b = rank_state(b, seconds);
    return of_a != of_b ? of_a < of_b : a->heart.step < b->heart.step;
}

/* A rank that waits for others is not the cause while another rank makes progress. */
bool cli_ranks_any_stalled(cli_ranks *ranks, double seconds, bool all, bool are_started)
{
    bool all_silent = true;
    int culprit = -1;
    for (int i = 0; i < ranks->n; i++) {
        const rank *r = &ranks->ranks[i];
        bool is_silent = (r->is_present || are_started) && !r->has_ended && rank_silence(ranks, r) >= seconds;
        all_silent = all_silent && (is_silent || r->has_ended);
        if (is_silent && (culprit < 0 || rank_is_likelier(r, &ranks->ranks[culprit], seconds)))
            culprit = i;
    }
    if (culprit < 0)
        return false;
    if (!all_silent && (all || rank_state(&ranks->ranks[culprit], seconds) == LK_HEART_WAITS_FOR_OTHERS))
        return false;
    ranks->stalled = culprit;
    ranks->silence = rank_silence(ranks, &ranks->ranks[culprit]);
    return true;
}

int cli_ranks_count_present(const cli_ranks *ranks)
{
    int n = 0;
    for (int i = 0; i < ranks->n; i++)
        n += ranks->ranks[i].is_present;
    return n;
}

bool cli_ranks_all_ended(const cli_ranks *ranks, int first)
{
    for (int i = first; i < ranks->n; i++)
        if (!ranks->ranks[i].has_ended)
            return false;
    return true;
}

/* --- ranks that may come and go ----------------------------------------------------------------------------------- */

int cli_ranks_next_ended(cli_ranks *ranks, double patience)
{
    for (int i = 0; i < ranks->n; i++) {
        rank *r = &ranks->ranks[i];
        bool may_be_echo = i > 0 && r->end.number != 0 && !r->end.by_signal && r->unheard < patience;
        if (!r->has_ended || r->is_given || may_be_echo)
            continue;
        r->is_given = true;
        return i;
    }
    return -1;
}

bool cli_ranks_has_failed(const cli_ranks *ranks, int i)
{
    return ranks->ranks[i].has_ended && end_is_failure(&ranks->ranks[i].end);
}

bool cli_ranks_was_interrupted(const cli_ranks *ranks, int i)
{
    const rank *r = &ranks->ranks[i];
    return r->has_ended && !r->end.by_signal && r->end.number == CLI_RANK_INTERRUPTED;
}

bool cli_ranks_was_killed(const cli_ranks *ranks, int i)
{
    return ranks->ranks[i].has_ended && (ranks->ranks[i].end.by_signal || ranks->ranks[i].end.of_supervisor);
}

bool cli_ranks_has_left(const cli_ranks *ranks, int i)
{
    const rank *r = &ranks->ranks[i];
    return r->has_ended && !r->end.by_signal && r->end.number == CLI_RANK_LEFT;
}

int cli_ranks_stalled(const cli_ranks *ranks, double seconds)
{
    bool waits = ranks->stalled >= 0 && rank_state(&ranks->ranks[ranks->stalled], seconds) == LK_HEART_WAITS_FOR_OTHERS;
    return waits ? -1 : ranks->stalled;
}

int64_t cli_ranks_step(const cli_ranks *ranks, bool of_all)
{
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < ranks->n; i++) {
        int64_t step = ranks->ranks[i].heart.step;
        least = step < least ? step : least;
        most = step > most ? step : most;
    }
    return of_all ? least : most;
}

bool cli_ranks_is_stopped(cli_ranks *ranks, int i)
{
    const rank *r = &ranks->ranks[i];
    if (r->has_ended || r->heart.state != LK_HEART_STOPPED)
        return false;
    ranks->stalled = i;
    ranks->silence = rank_silence(ranks, r);
    return true;
}

int cli_ranks_next_unheard(cli_ranks *ranks, double seconds)
{
    for (int i = 0; i < ranks->n; i++) {
        rank *r = &ranks->ranks[i];
        if (r->has_ended || r->unheard < seconds)
            continue;
        cli_clear_line();
        fprintf(stderr, "lockstep: the supervisor of %s has not been heard for %.0f s, and is ended\n", r->output.name,
                r->unheard);
        r->unheard = 0;
        return i;
    }
    return -1;
}

void cli_ranks_note_lost(cli_ranks *ranks, int i, bool by_signal, int number)
{
    if (i >= ranks->n || ranks->ranks[i].has_ended)
        return;
    rank *r = &ranks->ranks[i];
    const cli_rank_end end = {.heart = r->heart, .of_supervisor = true, .by_signal = by_signal, .number = number};
    ranks_take_end(ranks, r, &end);
}

void cli_ranks_begin_again(cli_ranks *ranks, int i)
{
    rank *r = &ranks->ranks[i];
    r->has_ended = r->is_given = r->is_present = false;
    r->heart = (lk_heart_report){.state = LK_HEART_WORKS};
    r->unheard = 0;
    if (ranks->first_failed == i)
        ranks->first_failed = -1;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

int cli_ranks_status(const cli_ranks *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (ranks->ranks[i].has_ended &&
            (ranks->ranks[i].end.number == CLI_RANK_INTERRUPTED || cli_ranks_has_left(ranks, i)))
            return CLI_RANK_INTERRUPTED;
    return 0;
}

const char *cli_ranks_last_line(const cli_ranks *ranks)
{
    return ranks->last;
}

/* Prints a line about a rank: its name, its machine, the text, its step and its operation. Before it, prints the
 * incomplete lines of all ranks. */
static void ranks_print_last(cli_ranks *ranks, rank *r, const char *format, ...) LK_PRINTF(3, 4);

static void ranks_print_last(cli_ranks *ranks, rank *r, const char *format, ...)
{
    char what[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    for (int i = 0; i < ranks->n; i++)
        cli_output_flush(&ranks->ranks[i].output);
    snprintf(ranks->last, sizeof ranks->last, "%s%s%s%s%s, step %lld, in %s", ranks->title, r->output.name,
             *r->host ? " on " : "", r->host, what, (long long)r->heart.step,
             *r->heart.operation ? r->heart.operation : "start");
    fprintf(stderr, "%s\n", ranks->last);
    if (r->output.log)
        fprintf(r->output.log, "%s\n", ranks->last);
}

void cli_ranks_blame(cli_ranks *ranks, int i)
{
    ranks->first_failed = i;
}

void cli_ranks_print_end(cli_ranks *ranks, int i)
{
    rank *r = &ranks->ranks[i];
    bool of_supervisor = r->end.of_supervisor;
    const char *whose = of_supervisor ? ": its supervisor (lockstep rank)" : "";
    if (r->end.by_signal)
        ranks_print_last(ranks, r, "%s %skilled by signal %d", whose, of_supervisor ? "was " : "", r->end.number);
    else
        ranks_print_last(ranks, r, "%s exited with status %d", whose, r->end.number);
}

int cli_ranks_print_failed(cli_ranks *ranks)
{
    const rank *r = &ranks->ranks[ranks->first_failed];
    cli_ranks_print_end(ranks, ranks->first_failed);
    return r->end.by_signal ? 1 : r->end.number;
}

int cli_ranks_print_stalled(cli_ranks *ranks)
{
    rank *r = &ranks->ranks[ranks->stalled];
    bool is_heard = r->unheard < ranks->silence / 2; /* else its supervisor hangs, or what lies between */
    ranks_print_last(ranks, r, ": no progress for %.0f s%s", ranks->silence,
                     is_heard ? "" : ", and no word from its supervisor (lockstep rank)");
    return 1;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static bool launch_ranks_logs_make_folder(const char *path)
{
    struct stat there;
    if (mkdir(path, 0777) == 0)
        return true;
    int reason = errno == EEXIST ? ENOTDIR : errno; /* before stat changes it */
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
        return true;
    cli_error("--log-dir %s: %s", path, strerror(reason));
    return false;
}

static bool ranks_open_logs(cli_ranks *ranks, const char *log_dir, bool appends)
{
    if (!launch_ranks_logs_make_folder(log_dir))
        return false;
    for (int i = 0; i < ranks->n; i++)
        if (!cli_output_open_log(&ranks->ranks[i].output, ranks->title, log_dir, appends))
            return false;
    return true;
}

cli_ranks *cli_ranks_new(int n, const char (*names)[CLI_RANK_NAME], const char *log_dir, bool appends)
{
    cli_ranks *ranks = calloc(1, sizeof *ranks + (size_t)n * sizeof *ranks->ranks);
    if (!ranks) {
        cli_error("%d ranks: %s", n, strerror(errno));
        return NULL;
    }
    ranks->n = n;
    ranks->first_failed = ranks->stalled = -1;
    ranks->title = names ? "" : "rank ";
    for (int i = 0; i < n; i++) {
        char *name = ranks->ranks[i].output.name;
        if (names)
            memcpy(name, names[i], sizeof names[i]);
        else
            snprintf(name, CLI_RANK_NAME, "%d", i);
    }
    if (!log_dir || !*log_dir || ranks_open_logs(ranks, log_dir, appends))
        return ranks;
    cli_ranks_release(ranks);
    return NULL;
}

bool cli_ranks_release(cli_ranks *ranks)
{
    bool is_written = true;
    for (int i = 0; ranks && i < ranks->n; i++)
        is_written &= cli_output_close(&ranks->ranks[i].output);
    free(ranks);
    return is_written;
}
