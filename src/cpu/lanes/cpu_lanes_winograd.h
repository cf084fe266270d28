/* Chooses the convolutions with images in the vector lanes that run on lanes_winograd.h. */
#pragma once

#include "cpu/lanes/lanes_winograd.h"
#include "ops/conv_problem.h"

/* Returns the functions for lk__isa(), which must not be NULL. */
const lk_lanes_winograd *lk__lanes_winograd(void);

/* The name that lk_device_implementations shows. Static. */
const char *lk__cpu_lanes_winograd_name(void);

/* Returns whether Winograd can run this problem; lanes.h must be able to. */
bool lk__cpu_lanes_winograd_takes(const lk_conv_problem *problem);

/* Returns whether Winograd is faster, a function of the shape. For conv_block it decides about y and dx. */
bool lk__cpu_lanes_winograd_is_worth(const lk_conv_problem *problem);

/* Returns whether conv_block's dw should be summed by Winograd too. */
bool lk__cpu_lanes_winograd_sums(const lk_lanes_block *block);
