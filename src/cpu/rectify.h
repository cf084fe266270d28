/* relu of a vector, for kernels that take it as they store their results. */
#ifndef LK_CPU_RECTIFY_H
#define LK_CPU_RECTIFY_H

#include "cpu/vector.h"

#include <string.h>

/* NaN stays. passed: gets a bit for each lane, set where it is above 0. */
LK_BODY vec lk__rectify(vec v, uint8_t *passed)
{
    vec_bits bits = mask_bits(mask_greater(v, vec_zero()));
    memcpy(passed, &bits, sizeof bits);
    return vec_where(mask_unless_not_greater(v, vec_zero()), v);
}

#endif
