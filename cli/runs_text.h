/* Records of runs as a person reads them. */
#ifndef LK_CLI_RUNS_TEXT_H
#define LK_CLI_RUNS_TEXT_H

#include "lockstep/runs.h"

#include <stddef.h>

enum { CLI_NUMBER = 24, CLI_TIME = 32 };

/* "-" where it is not set. */
const char *cli_run_setting(const lk_run *run, const char *name);

/* "logs/a" for logs/a/epochs.jsonl; the file for another one in that folder. */
void cli_run_name(const char *path, char *text, size_t size);

/* "0.8119"; "-" for NaN. */
const char *cli_share_text(double share, char text[CLI_NUMBER]);

/* "3.5 s", "12 min 4 s", "2 h 5 min"; "-" for NaN. */
const char *cli_time_text(double seconds, char text[CLI_TIME]);

/* `lockstep runs compare`: gives the exit status. out: a picture's path; NULL: none. */
int cli_compare_runs(const char *path_a, const char *path_b, const char *out);

#endif
