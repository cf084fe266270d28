/* Segments: pieces of a program that are pushed one by one, so that outputs leave while the rest is computed. */
#pragma once

#include "program/program.h"

/* Cuts the program; see lk_program_opts. Call it after lk__program_find_values. */
lk_status lk__program_cut(lk_program *program, const lk_program_opts *opts);

/* Sets ends[c] if call c is the last to finish a bucket after which a segment ends (lk_program_opts.buckets), or, with
 * level[n_calls], ends[l] if a call of level l is. ends: has a false for every call or level. Errors: LK_ERR_MEMORY. */
lk_status lk__program_find_bucket_ends(const lk_program *program, const lk_program_opts *opts, const int *level,
                                       bool *ends);
