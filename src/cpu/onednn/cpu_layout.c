#include "cpu/onednn/cpu_layout.h"

#include "base/mem.h"
#include "core/shape.h"
#include "core/tensor.h"

#include <pthread.h>

static pthread_mutex_t layouts_lock = PTHREAD_MUTEX_INITIALIZER;
static lk_layout *layouts;
static int layouts_users;

void lk__layouts_retain(void)
{
    pthread_mutex_lock(&layouts_lock);
    layouts_users++;
    pthread_mutex_unlock(&layouts_lock);
}

void lk__layouts_release(void)
{
    pthread_mutex_lock(&layouts_lock);
    if (--layouts_users == 0) {
        while (layouts) {
            lk_layout *next = layouts->next;
            lk__md_free(&layouts->md);
            lk__free(layouts->partner);
            lk__free(layouts);
            layouts = next;
        }
    }
    pthread_mutex_unlock(&layouts_lock);
}

static lk_layout *find_layout(const lk_md *md)
{
    for (lk_layout *layout = layouts; layout; layout = layout->next)
        if (layout->inner == 0 && lk__md_equal(&layout->md, md))
            return layout;
    return NULL;
}

static dnnl_data_type_t cpu_layout_data_type(lk_dtype dtype)
{
    return dtype == LK_I32 ? dnnl_s32 : dnnl_f32;
}

static lk_status cpu_layout_find_tag(const lk_md *md, lk_shape shape, lk_dtype dtype, dnnl_format_tag_t *tag)
{
    static const dnnl_format_tag_t tags[] = {dnnl_nhwc,    dnnl_nChw4c,  dnnl_nChw8c,
                                             dnnl_nChw16c, LK_LANES_TAG, LK_WIDE_LANES_TAG};
    *tag = dnnl_format_tag_undef;
    for (size_t i = 0; i < sizeof tags / sizeof *tags && shape.ndim == 4 && *tag == dnnl_format_tag_undef; i++) {
        lk_md tagged = {0};
        LK_TRY(lk__md_tagged(&tagged, 4, shape.dim, cpu_layout_data_type(dtype), tags[i]));
        if (lk__md_equal(md, &tagged))
            *tag = tags[i];
        lk__md_free(&tagged);
    }
    return LK_OK;
}

/* Gives sixteen images in the lanes their partner. */
static lk_status cpu_layout_add_pairs(lk_layout *layout, lk_shape shape)
{
    int64_t channels = shape.dim[1];
    layout->partner = lk__calloc(1, sizeof *layout->partner);
    if (!layout->partner)
        return LK_ERR_MEMORY;
    *layout->partner = (lk_layout){.pairs = true, .partner = layout};
    if (channels > 0)
        layout->partner->bytes = layout->bytes / (size_t)channels * (size_t)((channels + 1) / 2 * 2);
    return LK_OK;
}

/* A layout never changes once it is in the table, since other devices read it without the lock. */
static lk_status add_layout(const lk_md *md, lk_shape shape, lk_dtype dtype, lk_layout **out)
{
    lk_layout *layout = lk__calloc(1, sizeof *layout);
    if (!layout)
        return LK_ERR_MEMORY;
    lk_status status = cpu_layout_find_tag(md, shape, dtype, &layout->tag);
    layout->bytes = lk__md_bytes(md);
    if (status == LK_OK && layout->tag == LK_WIDE_LANES_TAG && dtype == LK_F32)
        status = cpu_layout_add_pairs(layout, shape);
    if (status == LK_OK)
        status = lk__md_copy(&layout->md, md);
    if (status != LK_OK) {
        lk__free(layout->partner);
        lk__free(layout);
        return status;
    }
    layout->next = layouts;
    layouts = layout;
    *out = layout;
    return LK_OK;
}

/* Finds or adds the layout equal to `md`, which describes a tensor of shape `shape`. */
static lk_status cpu_layout_find_or_add(const lk_md *md, lk_shape shape, lk_dtype dtype, const lk_layout **out)
{
    lk_status status = LK_OK;
    pthread_mutex_lock(&layouts_lock);
    lk_layout *layout = find_layout(md);
    if (!layout)
        status = add_layout(md, shape, dtype, &layout);
    pthread_mutex_unlock(&layouts_lock);
    *out = layout;
    return status;
}

lk_status lk__layout_tagged(lk_shape shape, lk_dtype dtype, dnnl_format_tag_t tag, const lk_layout **layout)
{
    lk_md md = {0};
    *layout = NULL;
    if (tag == dnnl_nchw)
        return LK_OK;
    LK_TRY(lk__md_tagged(&md, 4, shape.dim, cpu_layout_data_type(dtype), tag));
    lk_status status = cpu_layout_find_or_add(&md, shape, dtype, layout);
    lk__md_free(&md);
    return status;
}

lk_status lk__layout_of_product(lk_dtype factors, int64_t inner, size_t bytes, const lk_layout **out)
{
    pthread_mutex_lock(&layouts_lock);
    lk_layout *layout = layouts;
    while (layout && (layout->inner != inner || layout->bytes != bytes || layout->factors != factors))
        layout = layout->next;
    if (!layout && (layout = lk__calloc(1, sizeof *layout)) != NULL) {
        *layout = (lk_layout){
            .bytes = bytes, .tag = dnnl_format_tag_undef, .inner = inner, .factors = factors, .next = layouts};
        layouts = layout;
    }
    pthread_mutex_unlock(&layouts_lock);
    *out = layout;
    return layout ? LK_OK : LK_ERR_MEMORY;
}

lk_status lk__layout_unless_plain(const lk_md *md, lk_shape shape, const lk_layout **layout)
{
    int64_t strides[LK_MAX_DIMS];
    lk_md plain = {0};
    lk__shape_strides(shape, strides);
    LK_TRY(lk__md_strided(&plain, shape.ndim, shape.dim, dnnl_f32, strides));
    bool is_plain = lk__md_equal(md, &plain);
    lk__md_free(&plain);
    *layout = NULL;
    return is_plain ? LK_OK : cpu_layout_find_or_add(md, shape, LK_F32, layout);
}

const lk_layout *lk__layout_of_bf16(const lk_layout *layout)
{
    return layout && layout->partner && !layout->pairs ? layout->partner : layout;
}

const lk_layout *lk__layout_of_f32(const lk_layout *layout)
{
    return layout && layout->pairs ? layout->partner : layout;
}

size_t lk__layout_bytes(const lk_layout *layout, lk_dtype dtype)
{
    return layout->bytes / sizeof(float) * lk_dtype_size(dtype);
}

bool lk__must_gather(const lk_tensor *x)
{
    if (x->storage->layout)
        return false;
    for (int i = 0; i < x->shape.ndim; i++)
        if (x->strides[i] == 0 && x->shape.dim[i] > 1)
            return true;
    return false;
}

void lk__gather(const lk_tensor *x, float *to)
{
    const float *from = lk__data(x);
    int64_t index[LK_MAX_DIMS] = {0}, offset = 0;
    int inner = x->shape.ndim - 1;
    do {
        for (int64_t i = 0; i < x->shape.dim[inner]; i++)
            *to++ = from[offset + i * x->strides[inner]];
    } while (lk__tensor_next_row(x, index, &offset));
}

/* The stride along an axis of size 1 has no effect, but descriptors that differ in it are not equal. So a dense tensor
 * gets row-major strides, and any other gets 1 along such an axis, which fits every other stride. */
lk_status lk__md_of_plain(lk_md *md, const lk_tensor *x)
{
    int64_t strides[LK_MAX_DIMS];
    lk__shape_strides(x->shape, strides);
    if (!lk__tensor_is_dense(x) && !lk__must_gather(x))
        for (int i = 0; i < x->shape.ndim; i++)
            strides[i] = x->shape.dim[i] == 1 ? 1 : x->strides[i];
    return lk__md_strided(md, x->shape.ndim, x->shape.dim, cpu_layout_data_type(x->dtype), strides);
}

lk_status lk__md_of_tensor(lk_md *md, const lk_tensor *x)
{
    const lk_layout *layout = x->storage->layout;
    return layout ? lk__md_copy(md, &layout->md) : lk__md_of_plain(md, x);
}

dnnl_format_tag_t lk__tag_of(const lk_tensor *x)
{
    const lk_layout *layout = x->storage->layout;
    return layout && layout->tag != dnnl_format_tag_undef ? layout->tag : dnnl_nchw;
}

int64_t lk__lanes_of_tag(dnnl_format_tag_t tag)
{
    return tag == LK_LANES_TAG ? 8 : tag == LK_WIDE_LANES_TAG ? 16 : 0;
}

int64_t lk__block_of_tag(dnnl_format_tag_t tag)
{
    return tag == dnnl_nChw8c ? 8 : tag == dnnl_nChw16c ? 16 : 0;
}

void *lk__cpu_data(const lk_tensor *x)
{
    return x->storage->layout ? x->storage->data : lk__data(x);
}
