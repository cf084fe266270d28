/* Segments: pieces of a program that are pushed one by one, so that outputs leave while the rest is computed. */
#pragma once

#include "program/program.h"

/* Cuts the program; see lk_program_opts. Call it after lk__program_find_values. */
lk_status lk__program_cut(lk_program *program, size_t segment_bytes);
