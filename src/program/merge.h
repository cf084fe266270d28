/* Merging: passes over shards of one size make the same calls, and little of what these do depends on which shard a
 * sample is in. One call may then do the work of all of them (lk_call.parts): the operands that differ between shards
 * lie one after the other in memory, and those that are the same, such as weights, are there once. An operand's shape
 * is the shard's with its outermost axis, or a new one for a scalar, as many times as long. The bits are those of
 * separate calls, so a kernel takes the shape of a shard where a choice depends on the shape, and sums over samples
 * are those of each shard. */
#pragma once

#include "program/program.h"

/* Returns whether passes like this program's may be merged even if some of their calls stay apart. */
bool lk__program_may_merge(const lk_program *program);

/* Merges neighboring passes whose calls are alike, if none uses what another one writes and the device's backend takes
 * all of the merged calls, or lets those that it does not take stay apart: then they follow each other. Merged calls of
 * all branches are in none. */
lk_status lk__program_merge(lk_program *program);
