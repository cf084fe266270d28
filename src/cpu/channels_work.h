/* A loop of channels.h and its operands, for the files that compute it. */
#pragma once

#include "cpu/channels.h"

/* SUMS: of x and x z, into `first` and `second`; SQUARES: z is x. AFFINE: y = a x + c; AFFINE2: y = a x + b z + c.
 * RELU: relu of a x + c, and ADD_RELU of a x + c + z. WHERE: x is taken as 0 unless `where` is above 0; KEPT: `kept`
 * receives x with these zeros. */
typedef struct lk_channels_work {
    enum {
        LK_CHANNELS_SQUARES,
        LK_CHANNELS_SUMS,
        LK_CHANNELS_SUMS_WHERE,
        LK_CHANNELS_SUMS_WHERE_KEPT,
        LK_CHANNELS_AFFINE,
        LK_CHANNELS_AFFINE2,
        LK_CHANNELS_AFFINE2_WHERE,
        LK_CHANNELS_RELU,
        LK_CHANNELS_ADD_RELU
    } kind;
    const lk_channels *shape;
    const void *x, *z, *where;
    double *first, *second;
    const double *a, *b, *c;
    void *y, *kept;
} lk_channels_work;

/* Computes blocks of sixteen channels on AVX-512, with the bits of the loops on eight elements. Returns false if the
 * processor or the layout is another. */
bool lk__channels_sixteen(const lk_channels_work *w);
