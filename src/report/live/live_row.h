/* Rows of the list of runs. */
#pragma once

#include "report/live/live_runs.h"

/* Appends the row of a run, without a line break. It shows run->problem if run->run is NULL. */
void lk__live_put_row(lk_bytes *out, const lk_live_run *run);

/* Appends the names of the columns. */
void lk__live_put_columns(lk_bytes *out);

/* Appends a path for an address: bytes that mean something in one as %XX. */
void lk__live_put_path(lk_bytes *out, const char *path);
