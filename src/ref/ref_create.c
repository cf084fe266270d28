/* full, arange, uniform, normal. */
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>
#include <string.h>

#define TWO_PI 6.28318530717958647692

/* Converts the value once. The output is new and therefore dense; it is filled by doubling its filled part. */
lk_status lk__ref_full(lk_call *call)
{
    lk_ref_view out = lk__ref_view(call->out[0]);
    size_t size = lk_dtype_size(out.dtype), bytes = (size_t)lk__ref_count(out.shape) * size;
    if (bytes == 0)
        return LK_OK;
    lk__ref_store(&LK_ATTRS(call, lk_full_attrs)->value, (lk_ref_view){.data = out.data, .dtype = out.dtype});
    for (size_t done = size; done < bytes; done *= 2)
        memcpy((char *)out.data + done, out.data, done < bytes - done ? done : bytes - done);
    return LK_OK;
}

static void ref_create_arange(double *y, int64_t count, const lk_call *call)
{
    const lk_arange_attrs *attrs = LK_ATTRS(call, lk_arange_attrs);
    for (int64_t i = 0; i < count; i++)
        y[i] = attrs->start + (double)i * attrs->step;
}

/* Returns a number in the open interval (0, 1). */
static double ref_create_unit_number(uint32_t word)
{
    return (word + 0.5) * 0x1p-32;
}

static void ref_create_uniform(double *y, int64_t count, const lk_call *call)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            lk_random_block(&attrs->key, (uint64_t)i / 4, words);
        y[i] = attrs->a + (attrs->b - attrs->a) * ref_create_unit_number(words[i % 4]);
    }
}

/* Box and Muller's method: two uniform numbers make two normal ones. */
static void ref_create_normal(double *y, int64_t count, const lk_call *call)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            lk_random_block(&attrs->key, (uint64_t)i / 4, words);
        int pair = (int)(i % 4) & 2;
        double radius = sqrt(-2 * log(ref_create_unit_number(words[pair])));
        double angle = TWO_PI * ref_create_unit_number(words[pair + 1]);
        y[i] = attrs->a + attrs->b * (radius * (i % 2 == 0 ? cos(angle) : sin(angle)));
    }
}

static lk_status ref_create_output(lk_call *call, void (*fill)(double *y, int64_t count, const lk_call *call))
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->out[0]);
    int64_t count = lk__ref_count(out.shape);
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        fill(y, count, call);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_arange(lk_call *call)
{
    return ref_create_output(call, ref_create_arange);
}

lk_status lk__ref_uniform(lk_call *call)
{
    return ref_create_output(call, ref_create_uniform);
}

lk_status lk__ref_normal(lk_call *call)
{
    return ref_create_output(call, ref_create_normal);
}
