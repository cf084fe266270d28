/* Describes tensors for channels.h, and lays out the memory that a call needs for its tables. */
#pragma once

#include "core/op.h"
#include "cpu/channels.h"
#include "cpu/onednn/cpu_prepared.h"

/* Describes x [N, C, ...] in layout `tag`. */
lk_channels lk__channels_of(const lk_tensor *x, dnnl_format_tag_t tag);

enum { LK_CHANNEL_VALUES = 7, LK_CHANNEL_TABLES = 3 };

/* The scratch memory of a call. A `values` array has an element for each channel, a `tables` array one for each
 * entry. */
typedef struct lk_channel_memory {
    double *values[LK_CHANNEL_VALUES];
    double *tables[LK_CHANNEL_TABLES];
} lk_channel_memory;

lk_channel_memory lk__channel_memory_of(const lk_channels *shape, float *scratch);

/* The memory of a normalization, by name. The tables hold first sums and then the constants of an affine function. */
typedef struct lk_norm_frame {
    lk_channels shape;
    double *mean, *inverse; /* 1 / deviation, with epsilon */
    double *first, *second; /* sums over a channel */
    double *a, *b, *c;      /* constants */
    double *tables[LK_CHANNEL_TABLES];
} lk_norm_frame;

lk_norm_frame lk__norm_frame_of(lk_channels shape, float *scratch);

/* Returns the bytes of that memory. */
size_t lk__channel_memory_bytes(const lk_channels *shape);

/* Sets problem, implementation and scratch_bytes of a call on activations of the shape of x, in layout `tag`. */
void lk__channels_describe(lk_prepared *prepared, const lk_tensor *x, dnnl_format_tag_t tag);
