/* File formats of pictures. Each is read by one file, NAME_codec.c, which exports only its lk_codec. */
#pragma once

#include "lockstep/image.h"

/* The bytes of a picture file, and the reason why the last call failed, without the file's name. */
typedef struct lk_encoded {
    const uint8_t *bytes;
    size_t size;
    char problem[192];
} lk_encoded;

typedef struct lk_codec {
    const char *name;
    const char *lacks; /* the library that reads the format, if this build lacks it; NULL: it does not */
    bool (*recognizes)(const uint8_t *bytes, size_t size);
    /* Sets channels, height and width of `header`, and decodes to pixels [H,W,C]. `pixels` NULL: reads the header only,
     * and takes no memory in proportion to the picture. Errors, with the reason in `problem`: LK_ERR_FORMAT,
     * LK_ERR_MEMORY. */
    lk_status (*read)(lk_encoded *encoded, lk_image *header, uint8_t *pixels);
    /* Returns the version of the loaded library. NULL: there is none, or it does not tell. */
    const char *(*loaded_version)(void);
} lk_codec;

extern const lk_codec lk__png_codec, lk__jpeg_codec, lk__pnm_codec;

/* Writes encoded->problem; returns `status`. */
lk_status lk__encoded_problem(lk_encoded *encoded, lk_status status, const char *format, ...) LK_PRINTF(3, 4);

/* NULL, with the reason in `problem`, if the format is unknown or this build cannot read it. */
const lk_codec *lk__codec_of(lk_encoded *encoded);
