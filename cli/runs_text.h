/* Records of runs as a person reads them. */
#ifndef LK_CLI_RUNS_TEXT_H
#define LK_CLI_RUNS_TEXT_H

#include "lockstep/runs.h"

#include <stddef.h>

enum { CLI_NUMBER = 24, CLI_TIME = 32, CLI_BEST = 64 };

/* "-" where it is not set. */
const char *cli_run_setting(const lk_run *run, const char *name);

/* "logs/a" for logs/a/epochs.jsonl; the file for another one in that folder. */
void cli_run_name(const char *path, char *text, size_t size);

/* "0.8119 (epoch 3)"; with "training," before the epoch where none was evaluated; "-" where no epoch is over. */
const char *cli_best_text(const lk_run *run, char text[CLI_BEST]);

/* "3.5 s", "12 min 4 s", "2 h 5 min"; "-" for NaN. */
const char *cli_time_text(double seconds, char text[CLI_TIME]);

/* `lockstep runs compare`: gives the exit status. out: a picture's path; NULL: none. */
int cli_compare_runs(const char *path_a, const char *path_b, const char *out);

#endif
