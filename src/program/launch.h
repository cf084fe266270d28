/* Starting a segment's calls. */
#pragma once

#include "program/program.h"

/* Points the value's storage to its slot in the memory at `base`; NULL: to nothing. */
void lk__value_use_slot(lk_value *value, const char *base);

/* Returns the memory that the value got outside its slot, if any. */
void lk__value_give_back(const lk_program *program, lk_value *value);

/* Runs a segment's calls. `base` is the plan's memory, which then also has slots for inputs and outputs; NULL: inputs
 * and outputs are in the caller's memory. On the device's thread. */
lk_status lk__program_launch(lk_program *program, lk_segment *segment, uint64_t step, const char *base);

/* From any thread, once no replay is left. */
void lk__program_drop_graphs(lk_program *program);

/* Returns whether something outside of the program sees the storage. user: the lk_program. For lk_modules.compile. */
bool lk__program_keeps(void *user, lk_storage *storage);
