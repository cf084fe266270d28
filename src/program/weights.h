/* Weights in a kernel's own order. If a call in a branch would reorder a variable for itself, a cast before it does so
 * instead, and several calls can share the cast. */
#pragma once

#include "program/program.h"

/* Puts a cast before each call in a branch that would reorder a variable for itself: LK_KERNEL_LAYS_OUT_WEIGHTS. */
lk_status lk__program_lay_out_weights(lk_program *program);
