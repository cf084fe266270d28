/* Grouping: calls of one kind (lk_graphs.kind) that need nothing of each other follow each other in the program, so
 * that the device may start all of them as one. Each call computes what it did before, so the bits do not change. */
#pragma once

#include "program/program.h"

/* Moves calls next to others of their kind, and numbers the groups (lk_call.group). A group's results are ready
 * only when all of them are, so outputs of different opts.buckets are made by different groups, and a group that makes
 * opts.segment_bytes gets no more calls. */
void lk__program_join_neighbors(lk_program *program, const lk_program_opts *opts);

/* Returns whether call i is in the group of the call before it. */
static inline bool lk__program_is_grouped(const lk_program *program, int i)
{
    return program->calls[i].group > 0 && program->calls[i].group == program->calls[i - 1].group;
}
