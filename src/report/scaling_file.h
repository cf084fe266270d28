/* Scaling reports as JSON. */
#pragma once

#include "io/bytes.h"
#include "lockstep/scaling.h"

/* Sets reals to NAN, counts to 0 and texts to "". */
void lk__scaling_clear(lk_scaling_report *report);

/* Writes the report as a JSON object, the member `name` of an outer one. name NULL: it is not a member. */
void lk__scaling_put(lk_bytes *out, const char *name, const lk_scaling_report *report);

/* Like lk_scaling_read, but the path must be that of a file. may_be_pipe: the caller named this very file, which may
 * then be a pipe that is waited for; else it was found in a folder, and must be a regular file. */
lk_status lk__scaling_read_file(const char *path, bool may_be_pipe, lk_scaling_report *report);
