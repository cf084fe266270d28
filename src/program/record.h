#pragma once

#include "program/program.h"

/* Adds a call at the end, with its own references to the tensors. */
lk_status lk__program_append(lk_program *program, const lk_call *call);

/* For the function that is recorded: the pass goes on with another piece of its samples, which has forward and backward
 * parts of its own for lk_program_opts.recompute. Does nothing outside of recording. */
void lk__program_next_piece(void);
