#pragma once

#include "program/recompute.h"

/* Replaces the calls of the pass by the steps of the recomputation. */
lk_status lk__program_remake(const lk_recomputation *r);
