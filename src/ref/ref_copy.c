/* copy, cast, concat, gather. */
#include "base/status.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <string.h>

static void ref_copy_row(char *out, int64_t out_step, const char *in, int64_t in_step, int64_t n, size_t size)
{
    if (out_step == 1 && in_step == 1) {
        memmove(out, in, (size_t)n * size); /* a tensor may be copied onto itself */
        return;
    }
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            out[i * out_step] = in[i * in_step];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i * out_step] = ((const uint16_t *)in)[i * in_step];
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)out)[i * out_step] = ((const uint32_t *)in)[i * in_step];
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)out)[i * out_step] = ((const uint64_t *)in)[i * in_step];
    }
}

void lk__ref_copy_elements(lk_ref_view out, lk_ref_view in)
{
    size_t size = lk_dtype_size(out.dtype);
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, (lk_ref_view[]){out, in}, 2); rows.left > 0; lk__ref_rows_next(&rows))
        ref_copy_row(rows.row[0], rows.step[0], rows.row[1], rows.step[1], rows.length, size);
}

lk_status lk__ref_copy(lk_call *call)
{
    lk__ref_copy_elements(lk__ref_view(call->out[0]), lk__ref_view(call->in[0]));
    return LK_OK;
}

lk_status lk__ref_cast(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    lk_ref_view out = lk__ref_view(call->out[0]);
    if (LK_DTYPE_BIT(in.dtype) & LK_INTS) {
        const int64_t *x = lk__ref_load_int(&scratch, in);
        if (scratch.status == LK_OK)
            lk__ref_store_int(x, out);
    } else {
        const double *x = lk__ref_load(&scratch, in);
        if (scratch.status == LK_OK)
            lk__ref_store(x, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_concat(lk_call *call)
{
    int axis = LK_ATTRS(call, lk_concat_attrs)->axis;
    lk_ref_view part = lk__ref_view(call->out[0]);
    size_t size = lk_dtype_size(part.dtype);
    for (int i = 0; i < call->n_in; i++) {
        lk_ref_view in = lk__ref_view(call->in[i]);
        part.shape = in.shape;
        lk__ref_copy_elements(part, in);
        part.data = (char *)part.data + (size_t)(in.shape.dim[axis] * part.strides[axis]) * size;
    }
    return LK_OK;
}

lk_ref_view lk__ref_row(lk_ref_view x, int64_t index)
{
    x.data = (char *)x.data + index * x.strides[0] * (int64_t)lk_dtype_size(x.dtype);
    x.shape.dim[0] = 1;
    return x;
}

static lk_status ref_gather_rows(lk_ref_view x, const int64_t *indices, lk_ref_view out)
{
    for (int64_t i = 0; i < out.shape.dim[0]; i++) {
        if (indices[i] < 0 || indices[i] >= x.shape.dim[0])
            LK_FAIL(LK_ERR_ARGUMENT, "gather: index %lld at %lld is not in [0, %lld)", (long long)indices[i],
                    (long long)i, (long long)x.shape.dim[0]);
        lk__ref_copy_elements(lk__ref_row(out, i), lk__ref_row(x, indices[i]));
    }
    return LK_OK;
}

lk_status lk__ref_gather(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    const int64_t *indices = lk__ref_load_int(&scratch, lk__ref_view(call->in[1]));
    if (scratch.status == LK_OK)
        scratch.status = ref_gather_rows(lk__ref_view(call->in[0]), indices, lk__ref_view(call->out[0]));
    return lk__ref_end(&scratch);
}
