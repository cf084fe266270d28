/* Prints the results of a sweep for people. */
#pragma once

#include "lockstep/study.h"

#include <stdio.h>

/* Prints a line per value: the mean, its interval, and other measured quantities. */
void cli_print_study(const lk_study *study, FILE *stream);
