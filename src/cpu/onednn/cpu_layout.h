/* Private layouts of activations. Equal layouts are one object, so kernels compare pointers. The objects live until the
 * last device that runs oneDNN is closed. */
#pragma once

#include "core/op.h"
#include "cpu/onednn/dnnl_compat.h"

/* Images in the vector lanes, eight or sixteen: see lanes.h. */
#define LK_LANES_TAG dnnl_Acdb8a
#define LK_WIDE_LANES_TAG dnnl_Acdb16a

/* A bf16 tensor has the layout of an f32 one and takes half the bytes, with one exception: where an f32 tensor has
 * sixteen images in the lanes, a bf16 tensor has them with channels in pairs, [N/16][H][W][C/2][16][2]; an odd last
 * channel is followed by one of zeros. So no f32 tensor has channels in pairs, and no bf16 tensor has
 * LK_WIDE_LANES_TAG. oneDNN does not know the layout of pairs: its md describes nothing. */
typedef struct lk_layout {
    lk_md md;
    size_t bytes;          /* of f32, with padding; all elements lie inside */
    dnnl_format_tag_t tag; /* nhwc, nChw4c, nChw8c, nChw16c or one of the two for lanes; otherwise undef */
    bool pairs;
    struct lk_layout *partner; /* from sixteen images in the lanes to pairs, and back; otherwise NULL */
    int64_t inner; /* of a product that is left as its factors (core/products.h): their inner dimension; otherwise 0 */
    lk_dtype factors; /* dtype of the factors */
    struct lk_layout *next;
} lk_layout;

/* Count the users of the table of layouts; the last release frees it. */
void lk__layouts_retain(void);
void lk__layouts_release(void);

/* Finds or adds the layout equal to `md`, of an f32 tensor of shape `shape`. Gives NULL if that is row-major without
 * gaps. Errors: LK_ERR_MEMORY. */
lk_status lk__layout_unless_plain(const lk_md *md, lk_shape shape, const lk_layout **layout);

/* Finds or adds the layout with one of the tags above, of four dimensions and f32 or i32. Gives NULL for dnnl_nchw. */
lk_status lk__layout_tagged(lk_shape shape, lk_dtype dtype, dnnl_format_tag_t tag, const lk_layout **layout);

/* Return the layout of a bf16 tensor where an f32 one has `layout`, and the inverse. NULL gives NULL. */
const lk_layout *lk__layout_of_bf16(const lk_layout *layout);
const lk_layout *lk__layout_of_f32(const lk_layout *layout);

/* Returns the bytes that a tensor of `dtype` takes in `layout`. */
size_t lk__layout_bytes(const lk_layout *layout, lk_dtype dtype);

/* Finds or adds the layout of an f32 product that is left as its factors, which have this dtype and take `bytes`
 * bytes. */
lk_status lk__layout_of_product(lk_dtype factors, int64_t inner, size_t bytes, const lk_layout **layout);

/* Describes how x lies in memory now: its private layout or its strides. If lk__must_gather(x), describes a row-major
 * copy of it. Free `md` with lk__md_free. */
lk_status lk__md_of_tensor(lk_md *md, const lk_tensor *x);

/* The same for an output that gets no private layout, whichever it had before: describes its strides. */
lk_status lk__md_of_plain(lk_md *md, const lk_tensor *x);

/* Returns whether x repeats elements (strides of 0), which oneDNN's primitives do not take. */
bool lk__must_gather(const lk_tensor *x);

/* Copies the elements of x, f32 and without a private layout, to `to` in row-major order. */
void lk__gather(const lk_tensor *x, float *to);

/* Returns the tag of x's private layout; dnnl_nchw if x has none, or one without a tag, which the caller must
 * convert. */
dnnl_format_tag_t lk__tag_of(const lk_tensor *x);

/* Returns the number of images in a vector of such a layout; 0 for other layouts. */
int64_t lk__lanes_of_tag(dnnl_format_tag_t tag);

/* Returns the number of channels in a block of eight or sixteen; 0 for other layouts. */
int64_t lk__block_of_tag(dnnl_format_tag_t tag);

/* Returns the address of x's first element, or of the start of its private layout. */
void *lk__cpu_data(const lk_tensor *x);
