/* Memory that kernels keep between replays: see core/kept.h. */
#pragma once

#include "program/program.h"

/* Lets kernels keep at most `bytes` bytes: see lk_program_opts. Call it after lk__program_find_values. */
lk_status lk__program_keep(lk_program *program, size_t bytes);

/* Call it before a segment of a replay if a variable has changed: kernels then recompute what they kept. */
void lk__program_forget_kept(lk_program *program, const lk_segment *segment);

/* Returns whether a replay may leave out call i: a cast of a variable, if all calls that would read the result have
 * kept what they derive from it. */
bool lk__program_leaves_out(const lk_program *program, int i);

/* Returns the bytes kept now. */
size_t lk__program_kept_bytes(const lk_program *program);

void lk__program_drop_kept(lk_program *program);
