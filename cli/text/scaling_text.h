/* Prints scaling reports for people. */
#pragma once

#include "lockstep/scaling.h"

#include <stdio.h>

/* The end of a run on several devices: the speed-up and, if `verbose`, a few lines about where a step's time went. */
void cli_print_scaling(const lk_scaling_report *report, bool verbose, FILE *stream);
/* The whole report. */
void cli_print_scaling_table(const lk_scaling_report *report, FILE *stream);
