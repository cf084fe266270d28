/* Pictures in files: PNG, JPEG, PGM and PPM, as bytes for a network. */
#ifndef LOCKSTEP_IMAGE_H
#define LOCKSTEP_IMAGE_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_image {
    int64_t channels, height, width; /* channels: 1 (grey) or 3 (red, green, blue) */
    uint8_t *pixels;                 /* u8 [C,H,W], freed by lk_image_free; NULL where only the header was read */
} lk_image;

typedef struct lk_image_opts {
    int64_t channels;      /* 1: grey, by ITU-R 601's weights; 3: colour, grey repeated; 0: as the file has it */
    int64_t height, width; /* resized to; both 0: as the file has it */
} lk_image_opts;

/* The largest picture that is decoded, its longest side, and the largest side that one is resized to. */
#define LK_IMAGE_MAX_PIXELS (INT64_C(1) << 26)
enum { LK_IMAGE_MAX_FILE_SIDE = 65535, LK_IMAGE_MAX_SIDE = 8192 };

/* Reads a picture; `opts` NULL means as the file has it. What it is shows in its first bytes, not in its name. Palettes
 * are looked up, 16 bits become 8, transparency is left out; what a file says of gamma, colour profiles or orientation
 * is not looked at. Resizing is bilinear, and wider by the factor where it shrinks (a triangle filter over all pixels
 * that fall into one), in fixed point: the same bytes on every machine, and Pillow 11's. What JPEG is decoded to
 * is libjpeg-turbo's choice.
 *
 * The header is looked at before memory is taken: pictures above LK_IMAGE_MAX_PIXELS or LK_IMAGE_MAX_FILE_SIDE are
 * refused, and so are files above 512 MiB. Of pictures above 4 million pixels, and of files above 16 MiB, the process
 * has as many in memory at a time as the largest one may take. Errors, with the path in the message:
 * LK_ERR_ARGUMENT (opts), LK_ERR_IO (cannot be read), LK_ERR_FORMAT (no picture, damaged, truncated, too large, or of a
 * format that this build does not read), LK_ERR_MEMORY. */
LK_API lk_status lk_image_read(const char *path, const lk_image_opts *opts, lk_image *image);

/* The same of a file's bytes in memory; `name` is what messages call them. */
LK_API lk_status lk_image_decode(const void *bytes, size_t size, const char *name, const lk_image_opts *opts,
                                 lk_image *image);

/* Only what the header says: image->pixels is NULL. */
LK_API lk_status lk_image_read_header(const char *path, lk_image *image);

LK_API void lk_image_free(lk_image *image);

/* "PNG, JPEG, PGM, PPM", without those for which this build has no library. Static. */
LK_API const char *lk_image_formats(void);

#ifdef __cplusplus
}
#endif

#endif
