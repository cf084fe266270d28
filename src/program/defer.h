/* Outputs that are products of matrices may stay their factors: see core/products.h. */
#pragma once

#include "lockstep/program.h"

/* Lets replays return such outputs as their factors if the program itself does not read them. Only a sum over shards
 * takes those. Call it before the first replay. */
void lk__program_defer_products(lk_program *program);
