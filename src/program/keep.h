/* Memory that kernels keep between replays: see core/kept.h. */
#pragma once

#include "program/program.h"

/* Lets kernels keep at most `bytes` bytes: see lk_program_opts. Call it after lk__program_find_values. */
lk_status lk__program_keep(lk_program *program, size_t bytes);

/* Call it when a variable has changed: kernels then recompute what they kept. */
void lk__program_forget_kept(lk_program *program);

/* Returns the bytes kept now. */
size_t lk__program_kept_bytes(const lk_program *program);

void lk__program_drop_kept(lk_program *program);
