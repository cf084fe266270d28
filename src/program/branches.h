/* Branches: calls that need not wait for each other. Between two calls outside branches, the calls of different
 * branches may run in any order, or at the same time; those of one branch run in their order. */
#pragma once

#include "program/program.h"

/* Returns whether any call is in a branch. */
bool lk__program_has_branches(const lk_program *program);

/* Returns whether no other branch has calls: nothing runs at the same time as those of `branch`. */
bool lk__program_is_only_branch(const lk_program *program, int branch);

/* Takes all calls out of their branches if one of them needs what a concurrent branch makes. Call it after
 * lk__program_find_values, which it repeats then. */
lk_status lk__program_check_branches(lk_program *program);

/* Sets first[i] and last[i] to the first and the last call that may run at the same time as call i. */
void lk__program_find_concurrent(const lk_program *program, int *first, int *last);
