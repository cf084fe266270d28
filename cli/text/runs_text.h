/* Prints records of runs for people. */
#pragma once

#include "lockstep/runs.h"

#include <stddef.h>

enum { CLI_NUMBER = 24, CLI_TIME = 32, CLI_BEST = 64 };

/* Returns the value of a setting, or "-" if it is not set. */
const char *cli_run_setting(const lk_run *run, const char *name);

/* Writes the name that every command takes for the run: "logs/a" for logs/a/epochs.jsonl if it is the folder's only
 * run, else the path itself, because a folder stands for its last run. */
void cli_run_name(const char *path, char *text, size_t size);

/* Returns "finished", "trains" or "interrupted", as pages about runs say it. */
const char *cli_run_state(const lk_run *run);

/* Returns "0.8119 (epoch 3)", or "0.8119 (training, epoch 3)" if no epoch was evaluated, or "-" before the first
 * epoch. */
const char *cli_best_text(const lk_run *run, char text[CLI_BEST]);

/* Returns "3.5 s", "12 min 4 s", "2 h 5 min", or "-" for NaN. */
const char *cli_time_text(double seconds, char text[CLI_TIME]);

/* Runs `lockstep runs compare` and returns the exit status. out: path of a picture; NULL: none. */
int cli_compare_runs(const char *path_a, const char *path_b, const char *out);
