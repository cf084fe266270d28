/* Prints scaling reports for people. */
#pragma once

#include "lockstep/scaling.h"

#include <stdio.h>

/* The end of a run on several devices: the speed-up and, if `verbose`, a few lines about where a step's time went. */
void cli_print_scaling(const lk_scaling_report *report, bool verbose, FILE *stream);
/* Returns whether other processes took more than a tenth of the cores' time. */
bool cli_is_disturbed(const lk_scaling_report *report);

/* Prints the share of time that other processes took the cores, if it is above a tenth. */
void cli_print_other_processes(const lk_scaling_report *report, const char *indent, FILE *stream);

/* The whole report. */
void cli_print_scaling_table(const lk_scaling_report *report, FILE *stream);
