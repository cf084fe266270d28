/* What the process that supervises a rank tells the launcher, wherever the rank is: records on its standard error,
 * which mpirun passes on. All are of one size, which divides the pieces in which mpirun reads, so that those of several
 * ranks are never mixed. */
#ifndef LK_CLI_RANK_RECORD_H
#define LK_CLI_RANK_RECORD_H

#include "lockstep/heartbeat.h"

#include <stdbool.h>
#include <stddef.h>

enum { CLI_RECORD_BYTES = 512, CLI_RECORD_MARK = 8, CLI_RECORD_DATA = CLI_RECORD_BYTES - CLI_RECORD_MARK - 16 };

enum { CLI_RANK_INTERRUPTED = 130 }; /* the exit status of a rank that an interrupt has ended */

#define CLI_RANK_VARIABLE "LOCKSTEP_RANK" /* a rank's number, where it was not started by MPI */

typedef enum cli_record_kind {
    CLI_RECORD_HOST,   /* its name. The first record of a rank */
    CLI_RECORD_STDOUT, /* what the rank wrote */
    CLI_RECORD_STDERR,
    CLI_RECORD_HEART, /* lk_heart_report */
    CLI_RECORD_END,   /* cli_rank_end; not sent where whoever started the supervisor has ended it */
    CLI_RECORD_KINDS
} cli_record_kind;

typedef struct cli_rank_end {
    lk_heart_report heart;
    bool of_supervisor; /* how that ended, and the rank because of it */
    bool by_signal;
    int number; /* the signal's, or the exit status */
} cli_rank_end;

typedef struct cli_record {
    char mark[CLI_RECORD_MARK];
    int rank, kind, bytes;
    int reserved;
    char data[CLI_RECORD_DATA];
} cli_record;

/* Sends `bytes` of `data` as so many records as it takes. False: nobody reads them any more. */
bool cli_record_send(int rank, cli_record_kind kind, const void *data, size_t bytes);

/* What comes from mpirun: records, and between them lines of its own. Gives how many of bytes[0 … n) were looked at: a
 * record that has begun is looked at when it is whole. Either function may be called several times. */
size_t cli_record_parse(const char *bytes, size_t n, void *user,
                        void (*on_record)(void *user, const cli_record *record),
                        void (*on_text)(void *user, const char *text, size_t bytes));

#endif
