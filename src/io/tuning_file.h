/* Writes tunings as text. lockstep/tuning.h declares the functions for files. */
#pragma once

#include "io/bytes.h"
#include "lockstep/tuning.h"

/* Appends the text that lk_tuning_write writes to a file. */
void lk__tuning_put(const lk_tuning *tuning, lk_bytes *text);
