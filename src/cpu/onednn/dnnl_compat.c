#include "cpu/onednn/dnnl_compat.h"

#include <oneapi/dnnl/dnnl_debug.h>
#include <stdio.h>
#include <string.h>

lk_status lk__dnnl_status(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return LK_OK;
    if (status == dnnl_out_of_memory)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: oneDNN could not %s", what);
    LK_FAIL(LK_ERR_BACKEND, "oneDNN could not %s: %s", what, dnnl_status2str(status));
}

/* oneDNN numbers instruction sets as sets of bits. */
bool lk__dnnl_has_avx512(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

lk_status lk__dnnl_limit_to_avx2(void)
{
    return lk__dnnl_status(dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2), "be limited to AVX2");
}

/* The table has the numbers that all versions of oneDNN share, and those of AMX in versions 2 and 3. */
const char *lk__dnnl_instruction_set(void)
{
    static const struct {
        unsigned set;
        const char *name;
    } sets[] = {{0x01, "sse41"},       {0x03, "avx"},         {0x07, "avx2"},        {0x27, "avx512_core"},
                {0x67, "avx512_vnni"}, {0xe7, "avx512_bf16"}, {0x3e7, "avx512_amx"}, {0xfef, "avx512_amx"}};
    static _Thread_local char other[32];
    unsigned set = (unsigned)dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (sets[i].set == set)
            return sets[i].name;
    snprintf(other, sizeof other, "%#x", set);
    return other;
}

const char *lk__dnnl_version_text(void)
{
    static _Thread_local char text[32];
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", version->major, version->minor, version->patch);
    return text;
}

/* Every primitive gets its scratch memory from the caller, and no environment variable changes its arithmetic. */
static lk_status new_attributes(dnnl_primitive_attr_t *attributes)
{
    LK_DNNL(dnnl_primitive_attr_create(attributes), "make attributes");
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_fpmath_mode(*attributes, dnnl_fpmath_mode_strict);
    if (status != dnnl_success)
        dnnl_primitive_attr_destroy(*attributes);
    return lk__dnnl_status(status, "set attributes");
}

/* oneDNN counts the holes between the taps of a dilated kernel. */
static void dnnl_compat_dilation_holes(const int64_t *dilation, dnnl_dims_t out)
{
    out[0] = dilation[0] - 1;
    out[1] = dilation[1] - 1;
}

const char *lk__pd_implementation(dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    dnnl_status_t status = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return status == dnnl_success && name ? name : "unknown";
}

#if DNNL_VERSION_MAJOR >= 3

static const_dnnl_memory_desc_t dnnl_compat_desc_of(const lk_md *md)
{
    return md ? md->desc : NULL;
}

lk_status lk__md_strided(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, const int64_t *strides)
{
    return lk__dnnl_status(dnnl_memory_desc_create_with_strides(&md->desc, ndim, dims, dtype, strides),
                           "describe memory");
}

lk_status lk__md_tagged(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    return lk__dnnl_status(dnnl_memory_desc_create_with_tag(&md->desc, ndim, dims, dtype, tag), "describe memory");
}

lk_status lk__md_copy(lk_md *md, const lk_md *from)
{
    return lk__dnnl_status(dnnl_memory_desc_clone(&md->desc, from->desc), "describe memory");
}

void lk__md_free(lk_md *md)
{
    if (md->desc)
        dnnl_memory_desc_destroy(md->desc);
    md->desc = NULL;
}

bool lk__md_equal(const lk_md *a, const lk_md *b)
{
    return dnnl_memory_desc_equal(a->desc, b->desc);
}

size_t lk__md_bytes(const lk_md *md)
{
    return md->desc ? dnnl_memory_desc_get_size(md->desc) : 0;
}

lk_status lk__md_query(lk_md *md, dnnl_primitive_desc_t pd, dnnl_query_t query)
{
    const_dnnl_memory_desc_t found = dnnl_primitive_desc_query_md(pd, query, 0);
    md->desc = NULL;
    return found ? lk__dnnl_status(dnnl_memory_desc_clone(&md->desc, found), "describe memory") : LK_OK;
}

lk_status lk__dnnl_memory(dnnl_memory_t *memory, const lk_md *md, dnnl_engine_t engine)
{
    return lk__dnnl_status(dnnl_memory_create(memory, md->desc, engine, DNNL_MEMORY_NONE), "make a memory object");
}

static dnnl_status_t dnnl_compat_create_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                    const lk_convolution *problem, dnnl_primitive_desc_t hint,
                                                    dnnl_primitive_attr_t attributes)
{
    dnnl_dims_t dilation;
    const_dnnl_memory_desc_t x = dnnl_compat_desc_of(problem->x), w = dnnl_compat_desc_of(problem->w),
                             bias = dnnl_compat_desc_of(problem->bias), y = dnnl_compat_desc_of(problem->y);
    dnnl_compat_dilation_holes(problem->dilation, dilation);
    switch (problem->kind) {
    case dnnl_backward_data:
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, x, w, y,
                                                                    problem->stride, dilation, problem->padding,
                                                                    problem->padding, hint, attributes);
    case dnnl_backward_weights:
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, x, w, bias,
                                                                       y, problem->stride, dilation, problem->padding,
                                                                       problem->padding, hint, attributes);
    default:
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, problem->kind, dnnl_convolution_direct, x, w,
                                                              bias, y, problem->stride, dilation, problem->padding,
                                                              problem->padding, attributes);
    }
}

static dnnl_status_t dnnl_compat_create_pooling(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                const lk_pooling *problem, dnnl_primitive_desc_t hint,
                                                dnnl_primitive_attr_t attributes)
{
    static const dnnl_dims_t dense = {0};
    if (problem->kind == dnnl_backward_data)
        return dnnl_pooling_backward_primitive_desc_create(pd, engine, problem->algorithm, problem->x->desc,
                                                           problem->y->desc, problem->stride, problem->kernel, dense,
                                                           problem->padding, problem->padding, hint, attributes);
    return dnnl_pooling_forward_primitive_desc_create(pd, engine, problem->kind, problem->algorithm, problem->x->desc,
                                                      problem->y->desc, problem->stride, problem->kernel, dense,
                                                      problem->padding, problem->padding, attributes);
}

static dnnl_status_t dnnl_compat_create_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *a,
                                               const lk_md *b, const lk_md *y, dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, a->desc, b->desc, NULL, y->desc, attributes);
}

static dnnl_status_t dnnl_compat_create_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *from,
                                                const lk_md *to, dnnl_primitive_attr_t attributes)
{
    return dnnl_reorder_primitive_desc_create(pd, from->desc, engine, to->desc, engine, attributes);
}

#else

static const dnnl_memory_desc_t *dnnl_compat_desc_of(const lk_md *md)
{
    return md ? &md->desc : NULL;
}

lk_status lk__md_strided(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, const int64_t *strides)
{
    return lk__dnnl_status(dnnl_memory_desc_init_by_strides(&md->desc, ndim, dims, dtype, strides), "describe memory");
}

lk_status lk__md_tagged(lk_md *md, int ndim, const int64_t *dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    return lk__dnnl_status(dnnl_memory_desc_init_by_tag(&md->desc, ndim, dims, dtype, tag), "describe memory");
}

lk_status lk__md_copy(lk_md *md, const lk_md *from)
{
    *md = *from;
    return LK_OK;
}

void lk__md_free(lk_md *md)
{
    memset(md, 0, sizeof *md);
}

bool lk__md_equal(const lk_md *a, const lk_md *b)
{
    return dnnl_memory_desc_equal(&a->desc, &b->desc);
}

size_t lk__md_bytes(const lk_md *md)
{
    return md->desc.ndims ? dnnl_memory_desc_get_size(&md->desc) : 0;
}

lk_status lk__md_query(lk_md *md, dnnl_primitive_desc_t pd, dnnl_query_t query)
{
    const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(pd, query, 0);
    memset(md, 0, sizeof *md);
    if (found)
        md->desc = *found;
    return LK_OK;
}

lk_status lk__dnnl_memory(dnnl_memory_t *memory, const lk_md *md, dnnl_engine_t engine)
{
    return lk__dnnl_status(dnnl_memory_create(memory, &md->desc, engine, DNNL_MEMORY_NONE), "make a memory object");
}

static dnnl_status_t init_convolution(dnnl_convolution_desc_t *desc, const lk_convolution *problem)
{
    dnnl_dims_t dilation;
    const dnnl_memory_desc_t *x = dnnl_compat_desc_of(problem->x), *w = dnnl_compat_desc_of(problem->w),
                             *bias = dnnl_compat_desc_of(problem->bias), *y = dnnl_compat_desc_of(problem->y);
    dnnl_compat_dilation_holes(problem->dilation, dilation);
    switch (problem->kind) {
    case dnnl_backward_data:
        return dnnl_dilated_convolution_backward_data_desc_init(desc, dnnl_convolution_direct, x, w, y, problem->stride,
                                                                dilation, problem->padding, problem->padding);
    case dnnl_backward_weights:
        return dnnl_dilated_convolution_backward_weights_desc_init(desc, dnnl_convolution_direct, x, w, bias, y,
                                                                   problem->stride, dilation, problem->padding,
                                                                   problem->padding);
    default:
        return dnnl_dilated_convolution_forward_desc_init(desc, problem->kind, dnnl_convolution_direct, x, w, bias, y,
                                                          problem->stride, dilation, problem->padding,
                                                          problem->padding);
    }
}

static dnnl_status_t dnnl_compat_create_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                    const lk_convolution *problem, dnnl_primitive_desc_t hint,
                                                    dnnl_primitive_attr_t attributes)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = init_convolution(&desc, problem);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attributes, engine, hint) : status;
}

static dnnl_status_t dnnl_compat_create_pooling(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                                const lk_pooling *problem, dnnl_primitive_desc_t hint,
                                                dnnl_primitive_attr_t attributes)
{
    dnnl_pooling_desc_t desc;
    dnnl_status_t status;
    if (problem->kind == dnnl_backward_data)
        status = dnnl_pooling_backward_desc_init(&desc, problem->algorithm, &problem->x->desc, &problem->y->desc,
                                                 problem->stride, problem->kernel, problem->padding, problem->padding);
    else
        status = dnnl_pooling_forward_desc_init(&desc, problem->kind, problem->algorithm, &problem->x->desc,
                                                &problem->y->desc, problem->stride, problem->kernel, problem->padding,
                                                problem->padding);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attributes, engine, hint) : status;
}

static dnnl_status_t dnnl_compat_create_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *a,
                                               const lk_md *b, const lk_md *y, dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, &a->desc, &b->desc, NULL, &y->desc);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attributes, engine, NULL) : status;
}

static dnnl_status_t dnnl_compat_create_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *from,
                                                const lk_md *to, dnnl_primitive_attr_t attributes)
{
    return dnnl_reorder_primitive_desc_create(pd, &from->desc, engine, &to->desc, engine, attributes);
}

#endif

lk_status lk__pd_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_convolution *problem,
                             dnnl_primitive_desc_t hint)
{
    dnnl_primitive_attr_t attributes;
    LK_TRY(new_attributes(&attributes));
    dnnl_status_t status = dnnl_compat_create_convolution(pd, engine, problem, hint, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return lk__dnnl_status(status, "prepare a convolution");
}

lk_status lk__pd_pooling(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_pooling *problem,
                         dnnl_primitive_desc_t hint)
{
    dnnl_primitive_attr_t attributes;
    LK_TRY(new_attributes(&attributes));
    dnnl_status_t status = dnnl_compat_create_pooling(pd, engine, problem, hint, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return lk__dnnl_status(status, "prepare a pooling");
}

lk_status lk__pd_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *a, const lk_md *b, const lk_md *y)
{
    dnnl_primitive_attr_t attributes;
    LK_TRY(new_attributes(&attributes));
    dnnl_status_t status = dnnl_compat_create_matmul(pd, engine, a, b, y, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return lk__dnnl_status(status, "prepare a matrix product");
}

lk_status lk__pd_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const lk_md *from, const lk_md *to)
{
    dnnl_primitive_attr_t attributes;
    LK_TRY(new_attributes(&attributes));
    dnnl_status_t status = dnnl_compat_create_reorder(pd, engine, from, to, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return lk__dnnl_status(status, "prepare a reorder");
}
