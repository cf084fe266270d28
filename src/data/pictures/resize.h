/* Resizes pictures of bytes, and converts colors to gray. */
#pragma once

#include "lockstep/status.h"

#include <stdint.h>

/* Returns the gray of ITU-R 601, with weights of 16 fractional bits, rounded. */
static inline uint8_t lk__gray(uint8_t red, uint8_t green, uint8_t blue)
{
    return (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

/* Resizes `from` [height,width,channels] to `to` [to_height,to_width,channels]: bilinear when enlarging, a weighted
 * mean of all pixels that fall into one when shrinking. Errors: LK_ERR_MEMORY (no message; `to` is undefined). */
lk_status lk__resize(const uint8_t *from, int64_t height, int64_t width, int64_t channels, uint8_t *to,
                     int64_t to_height, int64_t to_width);
