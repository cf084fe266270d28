/* Tunings as text: see lockstep/tuning.h. */
#pragma once

#include "io/bytes.h"
#include "lockstep/tuning.h"

/* Appends the text that lk_tuning_write writes to a file. */
void lk__tuning_put(const lk_tuning *tuning, lk_bytes *text);
