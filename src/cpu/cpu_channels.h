/* channels.h' shapes of tensors, and the memory that a call needs for its tables. */
#ifndef LK_CPU_CPU_CHANNELS_H
#define LK_CPU_CPU_CHANNELS_H

#include "core/op.h"
#include "cpu/channels.h"
#include "cpu/cpu_prepared.h"

/* How x [N, C, …] lies in layout `tag`. */
lk_channels lk__channels_of(const lk_tensor *x, dnnl_format_tag_t tag);

enum { LK_CHANNEL_VALUES = 7, LK_CHANNEL_TABLES = 3 };

/* The scratch memory of a call: `values` have an element for each channel, `tables` one for each entry. */
typedef struct lk_channel_memory {
    double *values[LK_CHANNEL_VALUES];
    double *tables[LK_CHANNEL_TABLES];
} lk_channel_memory;

lk_channel_memory lk__channel_memory_of(const lk_channels *shape, float *scratch);

/* Bytes of that memory. */
size_t lk__channel_memory_bytes(const lk_channels *shape);

/* dbias[c] = the sum of dy over channel c. scratch: such memory. */
void lk__cpu_bias_sums(const lk_channels *shape, const float *dy, float *dbias, float *scratch);

/* Sets problem, implementation and scratch_bytes of a call whose activations are like x, in layout `tag`. */
void lk__channels_describe(lk_prepared *prepared, const lk_tensor *x, dnnl_format_tag_t tag);

#endif
