#pragma once

#include "program/program.h"

/* Orders the calls of branches so that segments of opts.segment_bytes or buckets can be cut. Does nothing if that is
 * 0. */
lk_status lk__program_order_branches(lk_program *program, const lk_program_opts *opts);
