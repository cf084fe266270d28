/* Sharing: calls in branches that derive something from variables alone, such as bf16 copies or another order, give the
 * same result in every branch. */
#pragma once

#include "program/program.h"

/* Makes such results once, before the first branch. */
lk_status lk__program_share(lk_program *program);
