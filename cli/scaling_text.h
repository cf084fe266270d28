/* A scaling report in words: the few lines that end a run on several devices, and all of it. */
#ifndef LK_CLI_SCALING_TEXT_H
#define LK_CLI_SCALING_TEXT_H

#include "lockstep/scaling.h"

#include <stdio.h>

void cli_print_scaling(const lk_scaling_report *report, FILE *stream);
void cli_print_scaling_table(const lk_scaling_report *report, FILE *stream);

#endif
