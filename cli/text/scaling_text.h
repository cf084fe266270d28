/* Prints scaling reports for people. */
#pragma once

#include "lockstep/scaling.h"

#include <stdio.h>

/* The few lines that end a run on several devices. */
void cli_print_scaling(const lk_scaling_report *report, FILE *stream);
/* The whole report. */
void cli_print_scaling_table(const lk_scaling_report *report, FILE *stream);
