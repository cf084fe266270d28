/* Tunings as text. */
#ifndef LK_IO_TUNING_FILE_H
#define LK_IO_TUNING_FILE_H

#include "io/bytes.h"
#include "lockstep/tuning.h"

/* Appends what lk_tuning_write writes. */
void lk__tuning_put(const lk_tuning *tuning, lk__bytes *text);

#endif
