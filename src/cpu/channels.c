#include "cpu/channels.h"

#include "cpu/avx2.h"
#include "cpu/lanes.h"

#include <string.h>

/* --- shapes ------------------------------------------------------------------------------------------------------- */

lk_channels lk__channels_plain(int64_t images, int64_t channels, int64_t pixels)
{
    return (lk_channels){.groups = images * channels,
                         .pixels = pixels,
                         .lanes = 1,
                         .channels = channels,
                         .rows = channels,
                         .lanes_a_channel = 1,
                         .full_lanes = 1};
}

lk_channels lk__channels_blocked(int64_t images, int64_t channels, int64_t pixels, int64_t block)
{
    int64_t blocks = (channels + block - 1) / block;
    return (lk_channels){.groups = images * blocks,
                         .pixels = pixels,
                         .lanes = block,
                         .channels = channels,
                         .rows = blocks,
                         .lanes_a_channel = 1,
                         .full_lanes = 1};
}

lk_channels lk__channels_last(int64_t images, int64_t channels, int64_t pixels)
{
    return (lk_channels){.groups = 1,
                         .pixels = images * pixels,
                         .lanes = channels,
                         .channels = channels,
                         .rows = 1,
                         .lanes_a_channel = 1,
                         .full_lanes = 1};
}

lk_channels lk__channels_lanes(int64_t images, int64_t channels, int64_t pixels)
{
    int64_t last = images % LK_LANES;
    return (lk_channels){.groups = (images + LK_LANES - 1) / LK_LANES,
                         .pixels = pixels,
                         .lanes = channels * LK_LANES,
                         .channels = channels,
                         .rows = last ? 2 : 1,
                         .lanes_a_channel = LK_LANES,
                         .full_lanes = last ? last : LK_LANES};
}

int64_t lk__channels_entries(const lk_channels *shape)
{
    return shape->rows * shape->lanes;
}

/* Where lanes are images only the last group has a row of its own; otherwise rows take turns. */
static int64_t first_entry(const lk_channels *shape, int64_t group)
{
    bool images = shape->lanes_a_channel > 1;
    int64_t row = images ? (group == shape->groups - 1 ? shape->rows - 1 : 0) : group % shape->rows;
    return row * shape->lanes;
}

/* -1: padding. */
static int64_t channel_of(const lk_channels *shape, int64_t entry)
{
    int64_t image = entry % shape->lanes_a_channel;
    if (shape->lanes_a_channel > 1) {
        bool last = entry / shape->lanes == shape->rows - 1;
        return last && image >= shape->full_lanes ? -1 : entry % shape->lanes / shape->lanes_a_channel;
    }
    return entry < shape->channels ? entry : -1;
}

void lk__channels_spread(const lk_channels *shape, const double *values, double *table)
{
    int64_t n = lk__channels_entries(shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = channel_of(shape, i);
        table[i] = c < 0 ? 0 : values[c];
    }
}

void lk__channels_fold(const lk_channels *shape, const double *table, double *values)
{
    int64_t n = lk__channels_entries(shape);
    memset(values, 0, (size_t)shape->channels * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = channel_of(shape, i);
        if (c >= 0)
            values[c] += table[i];
    }
}

/* --- vectors of eight --------------------------------------------------------------------------------------------- */

enum { WIDTH = 8, HALF = 4 };

/* No alignment is asked for: plain tensors may lie in a caller's memory. */
typedef float floats __attribute__((vector_size(HALF * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef double doubles __attribute__((vector_size(HALF * sizeof(double)), aligned(sizeof(double)), may_alias));

typedef struct wide { /* eight doubles */
    doubles low, high;
} wide;

LK_BODY void load_floats(wide *to, const float *from)
{
    to->low = __builtin_convertvector(*(const floats *)from, doubles);
    to->high = __builtin_convertvector(*(const floats *)(from + HALF), doubles);
}

LK_BODY void load_doubles(wide *to, const double *from)
{
    to->low = *(const doubles *)from;
    to->high = *(const doubles *)(from + HALF);
}

LK_BODY void add_to(double *to, const wide *x)
{
    *(doubles *)to += x->low;
    *(doubles *)(to + HALF) += x->high;
}

LK_BODY void store_floats(float *to, const wide *from)
{
    *(floats *)to = __builtin_convertvector(from->low, floats);
    *(floats *)(to + HALF) = __builtin_convertvector(from->high, floats);
}

/* sum += x, product += x z. */
LK_BODY void accumulate(wide *sum, wide *product, const float *x, const float *z)
{
    wide a, b;
    load_floats(&a, x);
    load_floats(&b, z);
    sum->low += a.low;
    sum->high += a.high;
    product->low += a.low * b.low;
    product->high += a.high * b.high;
}

/* Eight lanes at `stride` from pixel to pixel. Even and odd pixels have sums of their own, which hides the latency of
 * additions. */
LK_BODY void sums_of_eight(const float *x, const float *z, int64_t pixels, int64_t stride, double *first,
                           double *second)
{
    wide even[2] = {{{0}, {0}}, {{0}, {0}}}, odd[2] = {{{0}, {0}}, {{0}, {0}}};
    int64_t p = 0;
    for (; p + 2 <= pixels; p += 2) {
        accumulate(&even[0], &even[1], x + p * stride, z + p * stride);
        accumulate(&odd[0], &odd[1], x + (p + 1) * stride, z + (p + 1) * stride);
    }
    if (p < pixels)
        accumulate(&even[0], &even[1], x + p * stride, z + p * stride);
    for (int i = 0; i < 2; i++) {
        even[i].low += odd[i].low;
        even[i].high += odd[i].high;
        add_to(i ? second : first, &even[i]);
    }
}

LK_BODY void affine_of_eight(const float *x, const float *z, int64_t pixels, int64_t stride, const double *a,
                             const double *b, const double *c, float *y)
{
    wide wa, wb, wc, value, other;
    load_doubles(&wa, a);
    load_doubles(&wc, c);
    if (z)
        load_doubles(&wb, b);
    for (int64_t p = 0; p < pixels; p++) {
        load_floats(&value, x + p * stride);
        value.low *= wa.low;
        value.high *= wa.high;
        if (z) {
            load_floats(&other, z + p * stride);
            value.low += wb.low * other.low;
            value.high += wb.high * other.high;
        }
        value.low += wc.low;
        value.high += wc.high;
        store_floats(y + p * stride, &value);
    }
}

/* --- runs of one channel ------------------------------------------------------------------------------------------ */

/* Element i goes to sum i % 8, also where no vector is filled. */
LK_BODY void sums_of_run(const float *x, const float *z, int64_t n, double *first, double *second)
{
    double sum[WIDTH] = {0}, product[WIDTH] = {0};
    int64_t full = n - n % WIDTH;
    sums_of_eight(x, z, full / WIDTH, WIDTH, sum, product);
    for (int64_t i = full; i < n; i++) {
        sum[i - full] += (double)x[i];
        product[i - full] += (double)x[i] * (double)z[i];
    }
    for (int width = WIDTH / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) {
            sum[i] += sum[i + width];
            product[i] += product[i + width];
        }
    *first += sum[0];
    *second += product[0];
}

LK_BODY double affine_of_one(float x, const float *z, double a, double b, double c)
{
    double value = (double)x * a;
    if (z)
        value += b * (double)*z;
    return value + c;
}

LK_BODY void affine_of_run(const float *x, const float *z, int64_t n, double a, double b, double c, float *y)
{
    double as[WIDTH], bs[WIDTH], cs[WIDTH];
    int64_t full = n - n % WIDTH;
    for (int i = 0; i < WIDTH; i++) {
        as[i] = a;
        bs[i] = b;
        cs[i] = c;
    }
    affine_of_eight(x, z, full / WIDTH, WIDTH, as, bs, cs, y);
    for (int64_t i = full; i < n; i++)
        y[i] = (float)affine_of_one(x[i], z ? z + i : NULL, a, b, c);
}

/* --- any number of lanes: constants and sums stay in memory ------------------------------------------------------- */

LK_BODY void sums_of_lanes(const float *x, const float *z, int64_t pixels, int64_t lanes, double *restrict first,
                           double *restrict second)
{
    for (int64_t p = 0; p < pixels; p++, x += lanes, z += lanes)
        for (int64_t i = 0; i < lanes; i++) {
            first[i] += (double)x[i];
            second[i] += (double)x[i] * (double)z[i];
        }
}

LK_BODY void affine_of_lanes(const float *x, const float *z, int64_t pixels, int64_t lanes, const double *a,
                             const double *b, const double *c, float *restrict y)
{
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = 0; i < lanes; i++) {
            int64_t at = p * lanes + i;
            y[at] = (float)affine_of_one(x[at], z ? z + at : NULL, a[i], z ? b[i] : 0, c[i]);
        }
}

/* --- all groups --------------------------------------------------------------------------------------------------- */

LK_BODY void sums_body(const lk_channels *shape, const float *x, const float *z, double *first, double *second)
{
    int64_t lanes = shape->lanes, size = shape->pixels * lanes;
    for (int64_t g = 0; g < shape->groups; g++, x += size, z += size) {
        int64_t at = first_entry(shape, g);
        if (lanes == 1)
            sums_of_run(x, z, size, first + at, second + at);
        else if (lanes == WIDTH)
            sums_of_eight(x, z, shape->pixels, WIDTH, first + at, second + at);
        else
            sums_of_lanes(x, z, shape->pixels, lanes, first + at, second + at);
    }
}

LK_BODY void affine_body(const lk_channels *shape, const float *x, const float *z, const double *a, const double *b,
                         const double *c, float *y)
{
    int64_t lanes = shape->lanes, size = shape->pixels * lanes;
    for (int64_t g = 0; g < shape->groups; g++, x += size, y += size) {
        int64_t at = first_entry(shape, g);
        const double *bs = z ? b + at : NULL;
        if (lanes == 1)
            affine_of_run(x, z, size, a[at], z ? *bs : 0, c[at], y);
        else if (lanes == WIDTH)
            affine_of_eight(x, z, shape->pixels, WIDTH, a + at, bs, c + at, y);
        else
            affine_of_lanes(x, z, shape->pixels, lanes, a + at, bs, c + at, y);
        z = z ? z + size : NULL;
    }
}

typedef struct work {
    enum { SQUARES, SUMS, AFFINE, AFFINE2 } kind;
    const lk_channels *shape;
    const float *x, *z;
    double *first, *second;
    const double *a, *b, *c;
    float *y;
} work;

/* An operand that is absent, or the same as the other, is a constant to each body. */
LK_BODY void work_body(const work *w)
{
    switch (w->kind) {
    case SQUARES:
        sums_body(w->shape, w->x, w->x, w->first, w->second);
        break;
    case SUMS:
        sums_body(w->shape, w->x, w->z, w->first, w->second);
        break;
    case AFFINE:
        affine_body(w->shape, w->x, NULL, w->a, NULL, w->c, w->y);
        break;
    case AFFINE2:
        affine_body(w->shape, w->x, w->z, w->a, w->b, w->c, w->y);
        break;
    }
}

LK_AVX2 static void work_avx2(const work *w)
{
    work_body(w);
}

static void work_anywhere(const work *w)
{
    work_body(w);
}

static void run(const work *w)
{
    if (lk__has_avx2())
        work_avx2(w);
    else
        work_anywhere(w);
}

void lk__channels_sums(const lk_channels *shape, const float *x, const float *z, double *first, double *second)
{
    size_t bytes = (size_t)lk__channels_entries(shape) * sizeof *first;
    memset(first, 0, bytes);
    memset(second, 0, bytes);
    run(&(work){.kind = x == z ? SQUARES : SUMS, .shape = shape, .x = x, .z = z, .first = first, .second = second});
}

void lk__channels_affine(const lk_channels *shape, const float *x, const double *a, const double *c, float *y)
{
    run(&(work){.kind = AFFINE, .shape = shape, .x = x, .a = a, .c = c, .y = y});
}

void lk__channels_affine2(const lk_channels *shape, const float *x, const float *z, const double *a, const double *b,
                          const double *c, float *y)
{
    run(&(work){.kind = AFFINE2, .shape = shape, .x = x, .z = z, .a = a, .b = b, .c = c, .y = y});
}
