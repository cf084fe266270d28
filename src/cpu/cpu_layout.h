/* Private layouts of activations. Equal ones are one object, so kernels compare pointers; they live until the last
 * device that runs oneDNN is closed. */
#ifndef LK_CPU_CPU_LAYOUT_H
#define LK_CPU_CPU_LAYOUT_H

#include "core/op.h"
#include "cpu/dnnl_compat.h"

/* Images in vector lanes, eight or sixteen: see lanes.h. */
#define LK_LANES_TAG dnnl_Acdb8a
#define LK_WIDE_LANES_TAG dnnl_Acdb16a

typedef struct lk_layout {
    lk_md md;
    size_t bytes;          /* padding included; nothing lies outside it. A bf16 tensor, of f32 md, takes half of them */
    dnnl_format_tag_t tag; /* what activations come in: nhwc, nChw4c, nChw8c, nChw16c, either in lanes; else undef */
    struct lk_layout *next;
} lk_layout;

/* Counts users of the table; the last release frees it. */
void lk__layouts_retain(void);
void lk__layouts_release(void);

/* The layout equal to `md`, of an f32 tensor of shape `shape`; NULL where that is row-major without gaps.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__layout_unless_plain(const lk_md *md, lk_shape shape, const lk_layout **layout);

/* That with one of the tags above for f32 or i32 of four dimensions; NULL for dnnl_nchw. */
lk_status lk__layout_tagged(lk_shape shape, lk_dtype dtype, dnnl_format_tag_t tag, const lk_layout **layout);

/* How x lies in memory now: its private layout, or its strides. Free with lk__md_free. Where lk__must_gather says so:
 * how a row-major copy of it would. */
lk_status lk__md_of_tensor(lk_md *md, const lk_tensor *x);

/* The same for an output that is to be plain, whatever it was. */
lk_status lk__md_of_plain(lk_md *md, const lk_tensor *x);

/* Whether x repeats elements (strides of 0), which primitives do not take. */
bool lk__must_gather(const lk_tensor *x);

/* Copies x's elements, plain and f32, to `to` in row-major order. */
void lk__gather(const lk_tensor *x, float *to);

/* x's tag; dnnl_nchw where it is plain, and where its layout is none of the tags above and has to be converted. */
dnnl_format_tag_t lk__tag_of(const lk_tensor *x);

/* Images in a vector of such a layout, 0 of others. */
int64_t lk__lanes_of_tag(dnnl_format_tag_t tag);

/* Channels of a block of eight or sixteen in such a layout, 0 of others. */
int64_t lk__block_of_tag(dnnl_format_tag_t tag);

/* x's first element, or the start of its private layout. */
void *lk__cpu_data(const lk_tensor *x);

#endif
