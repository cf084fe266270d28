#pragma once

#include "program/program.h"

/* Orders the calls of branches so that segments of `segment_bytes` bytes of outputs can be cut. Does nothing if that is
 * 0. */
lk_status lk__program_order_branches(lk_program *program, size_t segment_bytes);
