/* The loops of batch normalization: sums over channels, and affine functions with constants for each channel. Elements
 * are f32 or bf16, and all arithmetic is double: it keeps up with memory, and loses no digits if the mean is large
 * compared with the deviation. A result is rounded to f32, also if it is then rounded to bf16: bf16 elements give the
 * bits of their f32 copies.
 *
 * Every layout of activations is [planes][pixels][lanes]. Sums and constants lie in tables. A row of a table has an
 * entry for each lane, and planes that hold the same channels share a row. If lanes are images, a channel has several
 * entries. An entry without a channel is padding; its constants are 0, so that padding stays 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct lk_channels {
    int64_t planes, pixels, lanes;
    int64_t channels;
    int64_t rows;            /* rows of a table, which has rows * lanes entries */
    int64_t lanes_a_channel; /* neighboring lanes of one channel */
    int64_t full_lanes;      /* how many of these are not padding in the last row */
    bool bf16;               /* elements are bf16, otherwise f32 */
} lk_channels;

/* The layouts, of f32 elements. Row-major: [images * channels][pixels][1]. */
lk_channels lk__channels_plain(int64_t images, int64_t channels, int64_t pixels);
/* Blocks of channels: [images * blocks][pixels][block]. */
lk_channels lk__channels_blocked(int64_t images, int64_t channels, int64_t pixels, int64_t block);
/* All channels of a pixel next to each other: [images][pixels][channels]. */
lk_channels lk__channels_last(int64_t images, int64_t channels, int64_t pixels);
/* Images in the lanes (lanes.h): [blocks of images][pixels][channels * lanes]. */
lk_channels lk__channels_lanes(int64_t images, int64_t channels, int64_t pixels, int64_t lanes);

/* Returns the number of entries of a table. */
int64_t lk__channels_entries(const lk_channels *shape);

/* Sets table[entry] = values[channel of the entry], 0 in padding. */
void lk__channels_spread(const lk_channels *shape, const double *values, double *table);

/* Sets values[c] = the sum of table over the entries of channel c, in order. */
void lk__channels_fold(const lk_channels *shape, const double *table, double *values);

/* Sets first[entry] = sum of x, second[entry] = sum of x z, over all planes and pixels. z may be x. */
void lk__channels_sums(const lk_channels *shape, const void *x, const void *z, double *first, double *second);

/* The same, with 0 in place of x unless `where` is above 0. `kept`, if not NULL, receives x with these zeros. */
void lk__channels_sums_where(const lk_channels *shape, const void *where, const void *x, const void *z, double *first,
                             double *second, void *kept);

/* y = a x + c. */
void lk__channels_affine(const lk_channels *shape, const void *x, const double *a, const double *c, void *y);

/* y = a x + b z + c. */
void lk__channels_affine2(const lk_channels *shape, const void *x, const void *z, const double *a, const double *b,
                          const double *c, void *y);

/* The same, with 0 in place of x unless `where` is above 0. */
void lk__channels_affine2_where(const lk_channels *shape, const void *where, const void *x, const void *z,
                                const double *a, const double *b, const double *c, void *y);

/* y = relu(a x + c + z), with the bits of three separate operators: a x + c is rounded before z is added. z may be
 * NULL. NaN stays NaN. */
void lk__channels_affine_relu(const lk_channels *shape, const void *x, const void *z, const double *a, const double *c,
                              void *y);
