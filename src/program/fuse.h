/* Fusion: sequences of operators that one kernel can do become one call. */
#pragma once

#include "program/program.h"

/* The version of the fusion rules and of the rounding of fused operators: raise it whenever programs give other
 * bits. */
enum { LK_FUSION_VERSION = 2 };

lk_status lk__program_fuse(lk_program *program);

/* Leaves out copies of results that nothing else reads. Never changes bits. */
lk_status lk__program_skip_copies(lk_program *program);
