/* dropout. */
#include "base/status.h"
#include "ops/ops.h"
#include "ref/ref.h"

/* Computes y = kept ? x s : 0 with s = 1 / (1 - rate) for the elements of one sample, whose random stream is `key`. For
 * bf16, y is rounded to f32, as lk_dropout says. */
static void ref_dropout_sample(const double *x, double *y, lk_dtype dtype, int64_t count, double rate,
                               const lk_random_key *key)
{
    const double scale = 1 / (1 - rate);
    uint32_t words[4];
    for (int64_t e = 0; e < count; e++) {
        if (e % 4 == 0)
            lk_random_block(key, (uint64_t)e / 4, words);
        y[e] = words[e % 4] < rate * 0x1p32 ? 0 : dtype == LK_BF16 ? (double)(float)(x[e] * scale) : x[e] * scale;
    }
}

lk_status lk__ref_drop(const double *x, const int64_t *indices, double *y, lk_meta meta, const lk_dropout_attrs *attrs)
{
    int64_t count = lk__ref_extent(meta.shape, 1, meta.shape.ndim);
    lk_random_key key = attrs->key;
    for (int64_t n = 0; n < meta.shape.dim[0]; n++) {
        if (indices[n] < 0 || indices[n] > UINT32_MAX)
            LK_FAIL(LK_ERR_ARGUMENT, "dropout: index %lld of sample %lld is not in [0, 2^32)", (long long)indices[n],
                    (long long)n);
        key.sample = (uint64_t)indices[n];
        ref_dropout_sample(x + n * count, y + n * count, meta.dtype, count, attrs->rate, &key);
    }
    return LK_OK;
}

lk_status lk__ref_dropout(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->out[0]);
    const double *x = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const int64_t *indices = lk__ref_load_int(&scratch, lk__ref_view(call->in[1]));
    double *y = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (y)
        scratch.status = lk__ref_drop(x, indices, y, (lk_meta){out.dtype, out.shape}, LK_ATTRS(call, lk_dropout_attrs));
    if (y && scratch.status == LK_OK)
        lk__ref_store(y, out);
    return lk__ref_end(&scratch);
}
