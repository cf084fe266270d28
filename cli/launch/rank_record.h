/* Records that a rank's supervisor sends to the launcher. It writes them to its standard error, which mpirun passes on
 * from other machines. All records have one size, which divides the size of mpirun's reads, so that records of several
 * ranks are never mixed. */
#pragma once

#include "lockstep/heartbeat.h"

#include <stdbool.h>
#include <stddef.h>

enum { CLI_RECORD_BYTES = 512, CLI_RECORD_MARK = 8, CLI_RECORD_DATA = CLI_RECORD_BYTES - CLI_RECORD_MARK - 16 };

/* Set for the supervisor of rank 0 if the launcher's standard error is a terminal: the columns that a line of the rank
 * may have; 0: unknown. The rank's standard error is then a terminal of its own. */
#define CLI_TERMINAL_VARIABLE "LOCKSTEP_TERMINAL"

/* Exit statuses of a rank ended by an interrupt, and of one that ended because it was itself asked to leave an elastic
 * training. */
enum { CLI_RANK_INTERRUPTED = 130, CLI_RANK_LEFT = 143 };

typedef enum cli_record_kind {
    CLI_RECORD_HOST,   /* the machine's name; the first record of a rank */
    CLI_RECORD_JOB,    /* mpirun's number of the job, as text; sent only under mpirun */
    CLI_RECORD_STDOUT, /* the rank's output */
    CLI_RECORD_STDERR,
    CLI_RECORD_HEART, /* lk_heart_report */
    CLI_RECORD_END,   /* cli_rank_end; not sent if the supervisor was told to end */
    CLI_RECORD_KINDS
} cli_record_kind;

typedef struct cli_rank_end {
    lk_heart_report heart; /* first */
    bool of_supervisor;    /* the supervisor ended this way, and the rank with it */
    bool by_signal;
    int number; /* signal number or exit status */
} cli_rank_end;

typedef struct cli_record {
    char mark[CLI_RECORD_MARK];
    int rank, kind, bytes;
    int reserved;
    char data[CLI_RECORD_DATA];
} cli_record;

/* Sends `bytes` bytes of data in as many records as needed. Returns false if the launcher no longer reads them. */
bool cli_record_send(int rank, cli_record_kind kind, const void *data, size_t bytes);

/* Parses mpirun's output: records, and mpirun's own lines between them. Returns how many of bytes[0 … n) were handled;
 * an incomplete record at the end is not. May call either function several times. */
size_t cli_record_parse(const char *bytes, size_t n, void *user,
                        void (*on_record)(void *user, const cli_record *record),
                        void (*on_text)(void *user, const char *text, size_t bytes));
