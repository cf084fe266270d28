/* The one place that knows the differences between oneDNN 2.6 and 3.x: memory descriptors are structs in the one and
 * objects in the other, and a primitive descriptor is made from an operation descriptor or at once. Kernels are written
 * against what is declared here. */
#ifndef LK_CPU_DNNL_COMPAT_H
#define LK_CPU_DNNL_COMPAT_H

#include "base/status.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Turns oneDNN's status into ours; `what` says what was attempted. */
lk_status lk__dnnl_status(dnnl_status_t status, const char *what);

#define LK_DNNL(call, what) LK_TRY(lk__dnnl_status((call), (what)))

/* Whether oneDNN generates AVX-512 code here. */
bool lk__dnnl_has_avx512(void);

/* What oneDNN chooses its code by: "avx2"; and the version of the library that is in use: "2.6.3". Valid until the
 * thread asks again. */
const char *lk__dnnl_instruction_set(void);
const char *lk__dnnl_version_text(void);

/* No code for anything wider than AVX2 from now on. Errors: LK_ERR_BACKEND (it has chosen its code already). */
lk_status lk__dnnl_limit_to_avx2(void);

/* A memory descriptor: dtype, sizes, and where each element lies. {0} is none. */
typedef struct lk_md {
    dnnl_memory_desc_t desc;
} lk_md;

/* Elements at the given strides (in elements), or in a layout's tag; dnnl_format_tag_any lets the primitive choose.
 * Free with lk__md_free, which takes {0} too. */
lk_status lk__md_strided(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, const int64_t *strides);
lk_status lk__md_tagged(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag);

lk_status lk__md_copy(lk_md *md, const lk_md *from);
void lk__md_free(lk_md *md);
bool lk__md_equal(const lk_md *a, const lk_md *b);
size_t lk__md_bytes(const lk_md *md);

/* What a primitive descriptor wants of argument `query`, an owned copy: dnnl_query_src_md, …. A query without an answer
 * gives zero bytes. */
lk_status lk__md_query(lk_md *md, dnnl_primitive_desc_t pd, dnnl_query_t query);

/* A memory object without memory of its own. */
lk_status lk__dnnl_memory(dnnl_memory_t *memory, const lk_md *md, dnnl_engine_t engine);

typedef struct lk_convolution {
    dnnl_prop_kind_t kind;                 /* forward_training, backward_data, backward_weights */
    const lk_md *x, *w, *bias, *y;         /* or their gradients; bias NULL: none */
    dnnl_dims_t stride, dilation, padding; /* vertical, horizontal; dilation 1: a dense kernel; padding on both sides */
} lk_convolution;

typedef struct lk_pooling {
    dnnl_prop_kind_t kind; /* forward_training, backward_data */
    dnnl_alg_kind_t algorithm;
    const lk_md *x, *y;
    dnnl_dims_t kernel, stride, padding;
} lk_pooling;

/* Each makes a primitive descriptor whose scratchpad is given by the caller. A backward one needs the forward one as
 * `hint`. Errors: LK_ERR_BACKEND, LK_ERR_MEMORY. */
lk_status lk__pd_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_convolution *problem,
                             dnnl_primitive_desc_t hint);
lk_status lk__pd_pooling(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_pooling *problem,
                         dnnl_primitive_desc_t hint);
lk_status lk__pd_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *a, const lk_md *b,
                        const lk_md *y);
lk_status lk__pd_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *from, const lk_md *to);

/* "jit:avx2". Valid as long as the descriptor. */
const char *lk__pd_implementation(dnnl_primitive_desc_t pd);

#endif
