/* Reads pictures, PNG, JPEG, PGM and PPM, as bytes for a network.
 *
 *     lk_image image;
 *     lk_image_read("cat.png", &(lk_image_opts){.channels = 3, .height = 32, .width = 32}, &image);
 *     …
 *     lk_image_free(&image); */
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
    int64_t channels, height, width; /* channels: 1 (gray) or 3 (red, green, blue) */
    uint8_t *pixels;                 /* u8 [C,H,W], freed by lk_image_free; NULL: only the header was read */
} lk_image;

typedef struct lk_image_opts {
    int64_t channels;      /* 1: gray, with the weights of ITU-R 601; 3: color, gray repeated; 0: as in the file */
    int64_t height, width; /* size in pixels to resize to; both 0: as in the file */
} lk_image_opts;

/* Limits of a picture that is decoded, and of the size to resize to: pixels, and the longest side. */
#define LK_IMAGE_MAX_PIXELS (INT64_C(1) << 26)
enum { LK_IMAGE_MAX_SIDE = 65535 };

/* Reads a picture. opts NULL: as in the file. The first bytes decide the format, not the name. Palettes are applied, 16
 * bits become 8, and transparency is dropped; gamma, color profiles and orientation are ignored. Resizing is bilinear;
 * when a picture shrinks, the triangle filter widens by the factor, so that all pixels count. It uses fixed point and
 * gives the same bytes on every machine, equal to those of Pillow 11. JPEG is decoded by libjpeg-turbo.
 *
 * The header is checked before memory is allocated: larger pictures than LK_IMAGE_MAX_PIXELS or LK_IMAGE_MAX_SIDE,
 * those whose height times the wanted width is above LK_IMAGE_MAX_PIXELS, and files above 512 MiB, are refused.
 * Pictures above 4 million pixels and files above 16 MiB share a budget of memory, that of the largest allowed one, so
 * that threads do not decode too many at a time. Errors, with the path in the message: LK_ERR_ARGUMENT (opts),
 * LK_ERR_IO (cannot be read), LK_ERR_FORMAT (not a picture, damaged, truncated, too large, or of a format that this
 * build does not read), LK_ERR_MEMORY. */
LK_API lk_status lk_image_read(const char *path, const lk_image_opts *opts, lk_image *image);

/* The same for the bytes of a file in memory. name: for messages. */
LK_API lk_status lk_image_decode(const void *bytes, size_t size, const char *name, const lk_image_opts *opts,
                                 lk_image *image);

/* Reads only the header: image->pixels is NULL. Errors as above. */
LK_API lk_status lk_image_read_header(const char *path, lk_image *image);

LK_API void lk_image_free(lk_image *image);

/* The formats that this build reads: "PNG, JPEG, PGM, PPM", without those whose library is missing. Static. */
LK_API const char *lk_image_formats(void);

/* Returns whether a file is named as pictures are: .png, .jpg, .jpeg, .pgm, .ppm or .pnm, in capitals or not. Such
 * files are looked for in folders of pictures. */
LK_API bool lk_image_is_named(const char *path);

#ifdef __cplusplus
}
#endif

#endif
