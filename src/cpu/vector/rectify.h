/* relu of one vector, for kernels that apply it as they store their results. NaN stays NaN; -0 becomes +0. */
#pragma once

#include "cpu/vector/vector.h"

#include <string.h>

LK_BODY vec lk__rectified(vec v)
{
    return vec_where(mask_unless_not_greater(v, vec_zero()), v);
}

/* The same; `passed` receives a bit for each lane, set where v is above 0. */
LK_BODY vec lk__rectify(vec v, uint8_t *passed)
{
    vec_bits bits = mask_bits(mask_greater(v, vec_zero()));
    memcpy(passed, &bits, sizeof bits);
    return lk__rectified(v);
}
