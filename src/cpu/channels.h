/* What batch normalisation does to memory: sums over channels, and affine functions with constants for each channel.
 * Elements are f32, all arithmetic is double: it keeps up with memory, and a mean that is large against the deviation
 * costs no digits.
 *
 * Every layout of activations is [groups][pixels][lanes]. Constants and sums are tables with an entry for each lane of
 * a few different groups: a channel has several entries where lanes are images, and an entry without a channel is
 * padding, whose constants are 0 so that padding stays 0. */
#ifndef LK_CPU_CHANNELS_H
#define LK_CPU_CHANNELS_H

#include <stdint.h>

typedef struct lk_channels {
    int64_t groups, pixels, lanes;
    int64_t channels;
    int64_t rows;            /* of tables: rows * lanes entries */
    int64_t lanes_a_channel; /* neighbouring lanes of one channel */
    int64_t full_lanes;      /* of them, those of the last row that are not padding */
} lk_channels;

/* Plain: [images * channels][pixels][1]. */
lk_channels lk__channels_plain(int64_t images, int64_t channels, int64_t pixels);
/* Blocks of channels: [images * blocks][pixels][block]. */
lk_channels lk__channels_blocked(int64_t images, int64_t channels, int64_t pixels, int64_t block);
/* All channels of a pixel beside each other: [images][pixels][channels]. */
lk_channels lk__channels_last(int64_t images, int64_t channels, int64_t pixels);
/* Images in the lanes (lanes.h): [blocks of images][pixels][channels * lanes]. */
lk_channels lk__channels_lanes(int64_t images, int64_t channels, int64_t pixels, int64_t lanes);

/* Entries of a table. */
int64_t lk__channels_entries(const lk_channels *shape);

/* table[entry] = values[channel of the entry], 0 in padding. */
void lk__channels_spread(const lk_channels *shape, const double *values, double *table);

/* values[c] = the sum of table over the entries of channel c, in order. */
void lk__channels_fold(const lk_channels *shape, const double *table, double *values);

/* first[entry] = sum of x, second[entry] = sum of x z, over all groups and pixels. z may be x. */
void lk__channels_sums(const lk_channels *shape, const float *x, const float *z, double *first, double *second);

/* The same where x counts as 0 unless `where` is above 0; `kept` is x as it counts, or NULL. */
void lk__channels_sums_where(const lk_channels *shape, const float *where, const float *x, const float *z,
                             double *first, double *second, float *kept);

/* y = a x + c. */
void lk__channels_affine(const lk_channels *shape, const float *x, const double *a, const double *c, float *y);

/* y = a x + b z + c. */
void lk__channels_affine2(const lk_channels *shape, const float *x, const float *z, const double *a, const double *b,
                          const double *c, float *y);

/* The same where x counts as 0 unless `where` is above 0. */
void lk__channels_affine2_where(const lk_channels *shape, const float *where, const float *x, const float *z,
                                const double *a, const double *b, const double *c, float *y);

/* y = relu(a x + c + z), with the bits of the functions one after the other: a x + c is rounded before z is added. z
 * may be NULL: none. NaN stays. */
void lk__channels_affine_relu(const lk_channels *shape, const float *x, const float *z, const double *a,
                              const double *c, float *y);

#endif
