/* The only code that knows the differences between oneDNN 2.6 and 3.x. In 2.6 memory descriptors are structs and a
 * primitive descriptor is made from an operation descriptor; in 3.x memory descriptors are objects and a primitive
 * descriptor is made directly. Kernels use the functions below. */
#pragma once

#include "base/status.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Turns oneDNN's status into ours. `what` completes the message "oneDNN could not ...". */
lk_status lk__dnnl_status(dnnl_status_t status, const char *what);

#define LK_DNNL(call, what) LK_TRY(lk__dnnl_status((call), (what)))

/* Returns whether oneDNN generates AVX-512 code on this processor. */
bool lk__dnnl_has_avx512(void);

/* The instruction set by which oneDNN chooses its code, "avx2", and the version of the library in use, "2.6.3". Each
 * text is valid until the thread asks again. */
const char *lk__dnnl_instruction_set(void);
const char *lk__dnnl_version_text(void);

/* From now on oneDNN generates no code wider than AVX2. Errors: LK_ERR_BACKEND (it has generated code already). */
lk_status lk__dnnl_limit_to_avx2(void);

/* A memory descriptor: dtype, sizes, and the position of each element. {0} is none. */
typedef struct lk_md {
    dnnl_memory_desc_t desc;
} lk_md;

/* Describe memory by strides, in elements, or by a layout's tag; dnnl_format_tag_any lets the primitive choose. Free
 * `md` with lk__md_free, which takes {0} too. */
lk_status lk__md_strided(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, const int64_t *strides);
lk_status lk__md_tagged(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag);

lk_status lk__md_copy(lk_md *md, const lk_md *from);
void lk__md_free(lk_md *md);
bool lk__md_equal(const lk_md *a, const lk_md *b);
size_t lk__md_bytes(const lk_md *md);

/* Copies the descriptor that a primitive wants for `query` (dnnl_query_src_md, ...); the caller frees it. A query
 * without an answer gives a descriptor of zero bytes. */
lk_status lk__md_query(lk_md *md, dnnl_primitive_desc_t pd, dnnl_query_t query);

/* Makes a memory object that has no memory of its own. */
lk_status lk__dnnl_memory(dnnl_memory_t *memory, const lk_md *md, dnnl_engine_t engine);

typedef struct lk_convolution {
    dnnl_prop_kind_t kind;         /* forward_training, backward_data, backward_weights */
    const lk_md *x, *w, *bias, *y; /* or their gradients; bias NULL: none */
    dnnl_dims_t stride, dilation,
        padding; /* vertical, horizontal; dilation 1 is a dense kernel; padding is on both sides */
} lk_convolution;

typedef struct lk_pooling {
    dnnl_prop_kind_t kind; /* forward_training, backward_data */
    dnnl_alg_kind_t algorithm;
    const lk_md *x, *y;
    dnnl_dims_t kernel, stride, padding;
} lk_pooling;

/* Each makes a primitive descriptor whose scratchpad the caller provides. A backward one needs the forward one as
 * `hint`. Errors: LK_ERR_BACKEND, LK_ERR_MEMORY. */
lk_status lk__pd_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_convolution *problem,
                             dnnl_primitive_desc_t hint);
lk_status lk__pd_pooling(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_pooling *problem,
                         dnnl_primitive_desc_t hint);
lk_status lk__pd_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *a, const lk_md *b,
                        const lk_md *y);
lk_status lk__pd_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *from, const lk_md *to);

/* Returns the name of the implementation: "jit:avx2". Valid as long as the descriptor. */
const char *lk__pd_implementation(dnnl_primitive_desc_t pd);
