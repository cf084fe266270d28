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

/* Box and Muller's method: words 2 k and 2 k + 1 make two normal numbers. */
static double ref_create_normal_number(const uint32_t words[4], int i)
{
    double radius = sqrt(-2 * log(ref_create_unit_number(words[i & 2])));
    double angle = TWO_PI * ref_create_unit_number(words[(i & 2) + 1]);
    return radius * (i % 2 == 0 ? cos(angle) : sin(angle));
}

static void ref_create_random(double *y, int64_t count, const lk_call *call)
{
    const lk_random_attrs *attrs = LK_ATTRS(call, lk_random_attrs);
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            lk_random_block(&attrs->key, (uint64_t)i / 4, words);
        if (call->op->id == LK_OP_NORMAL)
            y[i] = attrs->a + attrs->b * ref_create_normal_number(words, (int)(i % 4));
        else
            y[i] = attrs->a + (attrs->b - attrs->a) * ref_create_unit_number(words[i % 4]);
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

lk_status lk__ref_random(lk_call *call)
{
    return ref_create_output(call, ref_create_random);
}
