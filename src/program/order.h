/* Finishes outputs early. The calls that finish an output are recorded during backward or at the very end (a conversion
 * to the plain layout, a copy of a view, a sum over several passes), and nothing inside the program waits for them. The
 * sooner they run, the sooner the output can leave, and the sooner the memory of its operands is free. */
#pragma once

#include "program/program.h"

/* Moves each call that makes only outputs up to where its operands are complete. */
lk_status lk__program_finish_outputs_early(lk_program *program);

/* Sets *finishes to an array [n_calls] that the caller frees: whether a call makes only outputs, or sums that only such
 * sums need. */
lk_status lk__program_find_finishing(const lk_program *program, bool **finishes);
