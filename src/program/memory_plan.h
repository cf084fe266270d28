#pragma once

#include "program/program.h"

/* Gives the values inside the program their slots. The slots are as large as the last replay needed or, with
 * `by_shapes`, as plain tensors: for offload devices, where layouts take no more bytes and memory is planned before the
 * first replay. */
lk_status lk__program_plan_memory(lk_program *program, bool by_shapes);
