/* Reads what the supervisors of ranks send to the launcher, and mpirun's own lines between it. The first byte of the
 * input is the number of ranks, and the second says how many bytes arrive at a time. 0x1e in the input begins a record
 * that is written shorter: its rank, kind and size, a byte each, and as many bytes of data; the rest are zeros. */
#include "fuzz.h"

#include "cli/cli.h"
#include "cli/launch/launch_hosts.h"
#include "cli/launch/launch_mpirun.h"
#include "cli/launch/launch_ranks.h"
#include "cli/text/progress.h"

#include <string.h>

enum { MOST_BYTES = 1 << 16 };

static cli_ranks *ranks;

int cli_error(const char *format, ...)
{
    (void)format;
    return 1;
}

int cli_columns(FILE *stream)
{
    (void)stream;
    return 80;
}

bool cli_can_redraw(void)
{
    return false;
}

void cli_clear_line(void)
{
}

/* No mpirun is started. */
bool cli_hosts_next(const char **text, char name[CLI_HOST_NAME], int *slots)
{
    (void)text, (void)name, (void)slots;
    return false;
}

bool cli_host_is_local(const char *name)
{
    (void)name;
    return false;
}

static void on_record(void *user, const cli_record *record)
{
    (void)user;
    cli_ranks_take(ranks, record);
    cli_ranks_advance_time(ranks, 0.5);
}

static void on_text(void *user, const char *text, size_t bytes)
{
    char *line = strndup(text, bytes);
    int rank, number;
    (void)user;
    FUZZ_CHECK(line);
    if (cli_mpirun_names_killed(line, &rank, &number))
        cli_ranks_note_lost(ranks, rank, true, number);
    free(line);
}

/* Writes the input as it would arrive; returns its size. */
static size_t expand(const uint8_t *data, size_t size, char *bytes)
{
    size_t n = 0;
    for (size_t at = 0; at < size && n + sizeof(cli_record) <= MOST_BYTES; at++) {
        if (data[at] != 0x1e || size - at < 4) {
            bytes[n++] = (char)data[at];
            continue;
        }
        cli_record record = {
            .mark = "\036lkrank", .rank = (int8_t)data[at + 1], .kind = data[at + 2], .bytes = data[at + 3]};
        size_t given = data[at + 3] < size - at - 4 ? data[at + 3] : size - at - 4;
        memcpy(record.data, data + at + 4, given);
        memcpy(bytes + n, &record, sizeof record);
        n += sizeof record;
        at += 3 + given;
    }
    return n;
}

static void arrive(const char *bytes, size_t n, size_t piece)
{
    static char waiting[MOST_BYTES];
    size_t n_waiting = 0;
    for (size_t at = 0; at < n; at += piece) {
        size_t more = n - at < piece ? n - at : piece;
        memcpy(waiting + n_waiting, bytes + at, more);
        n_waiting += more;
        size_t done = cli_record_parse(waiting, n_waiting, NULL, on_record, on_text);
        FUZZ_CHECK(done <= n_waiting && n_waiting - done < sizeof(cli_record));
        n_waiting -= done;
        memmove(waiting, waiting + done, n_waiting);
    }
}

/* Decides what the launcher would, and prints it. */
static void look(int n, bool are_started)
{
    bool is_stalled = cli_ranks_any_stalled(ranks, 1, false, are_started);
    if (is_stalled)
        cli_ranks_print_stalled(ranks);
    for (int i = 0; i < n; i++) {
        if (cli_ranks_is_stopped(ranks, i))
            cli_ranks_print_stalled(ranks);
        cli_ranks_print_end(ranks, i);
    }
    for (int rank; (rank = cli_ranks_next_ended(ranks, 0)) >= 0;)
        FUZZ_CHECK(rank < n && cli_ranks_next_unheard(ranks, 1e9) < 0);
    if (cli_ranks_failure(ranks) != CLI_NO_FAILURE)
        cli_ranks_print_failed(ranks);
    FUZZ_CHECK(cli_ranks_count_present(ranks) <= n);
    cli_ranks_all_ended(ranks, 0);
    cli_ranks_begin_again(ranks, 0);
    cli_ranks_status(ranks, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char bytes[MOST_BYTES];
    static FILE *nothing;
    FILE *out = stdout, *error = stderr;
    if (size < 2)
        return 0;
    if (!nothing)
        nothing = fopen("/dev/null", "w");
    int n = data[0] % 8 + 1;
    ranks = cli_ranks_new(n, NULL, NULL, false);
    FUZZ_CHECK(ranks && nothing);
    stdout = stderr = nothing;
    arrive(bytes, expand(data + 2, size - 2, bytes), (size_t)data[1] * 8 + 1);
    look(n, size % 2);
    cli_ranks_release(ranks);
    stdout = out;
    stderr = error;
    return 0;
}
