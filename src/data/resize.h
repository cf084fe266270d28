/* Resizing of pictures in bytes. */
#ifndef LK_DATA_RESIZE_H
#define LK_DATA_RESIZE_H

#include "lockstep/status.h"

#include <stdint.h>

/* from [height,width,channels] to `to` [to_height,to_width,channels], bilinear, over all pixels that fall into one
 * where it shrinks. Errors: LK_ERR_MEMORY (no message: `to` is undefined). */
lk_status lk__resize(const uint8_t *from, int64_t height, int64_t width, int64_t channels, uint8_t *to,
                     int64_t to_height, int64_t to_width);

#endif
