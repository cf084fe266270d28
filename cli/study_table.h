#ifndef LK_CLI_STUDY_TABLE_H
#define LK_CLI_STUDY_TABLE_H

#include "lockstep/study.h"

#include <stdio.h>

/* A line a value: the mean, its interval, and what else was measured. */
void cli_print_study(const lk_study *study, FILE *stream);

#endif
