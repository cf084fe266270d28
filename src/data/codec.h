/* File formats of pictures. Each is a file of its own that exports one table. */
#ifndef LK_DATA_CODEC_H
#define LK_DATA_CODEC_H

#include "lockstep/image.h"

/* A file's bytes, and why the last call failed, without the file's name. */
typedef struct lk__encoded {
    const uint8_t *bytes;
    size_t size;
    char problem[192];
} lk__encoded;

typedef struct lk__codec {
    const char *name;
    const char *lacks; /* the library that this build has not; NULL: it can read the format */
    bool (*recognises)(const uint8_t *bytes, size_t size);
    /* Sets channels, height and width from the header; takes no memory in proportion to them.
     * Errors, with the reason in `problem`: LK_ERR_FORMAT, LK_ERR_MEMORY. */
    lk_status (*examine)(lk__encoded *encoded, lk_image *image);
    /* pixels [H,W,C], which is how files have them: of the sizes that `examine` has found. Errors as above. */
    lk_status (*decode)(lk__encoded *encoded, const lk_image *image, uint8_t *pixels);
} lk__codec;

extern const lk__codec lk__png_codec, lk__jpeg_codec, lk__pnm_codec;

lk_status lk__encoded_problem(lk__encoded *encoded, lk_status status, const char *format, ...) LK_PRINTF(3, 4);

/* NULL, with the reason in `problem`, where nothing known begins so or this build cannot read it. */
const lk__codec *lk__codec_of(lk__encoded *encoded);

#endif
