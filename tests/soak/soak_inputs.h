/* The files that a case reads: a model file and data sets of a few hundred images. */
#pragma once

#include "soak_case.h"

/* Writes them into a folder. Returns false, with a line on standard error, if that fails. */
bool soak_inputs_write(const soak_case *given, const char *folder);
