#include "cpu/channels.h"

#include "cpu/channels_work.h"
#include "cpu/vector/eights.h"

#include <string.h>

/* --- shapes ------------------------------------------------------------------------------------------------------- */

lk_channels lk__channels_plain(int64_t images, int64_t channels, int64_t pixels)
{
    return (lk_channels){.planes = images * channels,
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
    return (lk_channels){.planes = images * blocks,
                         .pixels = pixels,
                         .lanes = block,
                         .channels = channels,
                         .rows = blocks,
                         .lanes_a_channel = 1,
                         .full_lanes = 1};
}

lk_channels lk__channels_last(int64_t images, int64_t channels, int64_t pixels)
{
    return (lk_channels){.planes = 1,
                         .pixels = images * pixels,
                         .lanes = channels,
                         .channels = channels,
                         .rows = 1,
                         .lanes_a_channel = 1,
                         .full_lanes = 1};
}

lk_channels lk__channels_lanes(int64_t images, int64_t channels, int64_t pixels, int64_t lanes)
{
    int64_t last = images % lanes;
    return (lk_channels){.planes = (images + lanes - 1) / lanes,
                         .pixels = pixels,
                         .lanes = channels * lanes,
                         .channels = channels,
                         .rows = last ? 2 : 1,
                         .lanes_a_channel = lanes,
                         .full_lanes = last ? last : lanes};
}

int64_t lk__channels_entries(const lk_channels *shape)
{
    return shape->rows * shape->lanes;
}

/* Returns the first entry of a plane. If lanes are images only the last plane has a row of its own; otherwise the
 * planes go through the rows in turn. */
static int64_t channels_first_entry(const lk_channels *shape, int64_t plane)
{
    bool images = shape->lanes_a_channel > 1;
    int64_t row = images ? (plane == shape->planes - 1 ? shape->rows - 1 : 0) : plane % shape->rows;
    return row * shape->lanes;
}

/* Returns the channel of an entry, -1 for padding. */
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

/* --- operations on eight elements ----------------------------------------------------------------------------------
 */

enum { WIDTH = LK_EIGHT, HALF = LK_FOUR };

/* The operands of a loop, which uses the same offset in all of them. Operands that are not used are NULL; each loop is
 * compiled for the operands that it has. */
typedef struct operands {
    bool bf16;
    const void *x, *z;
    const void *where; /* x is taken as 0 unless this is above 0 */
    const void *added; /* added to the result rounded to f32 */
    bool rectified;    /* relu is applied to the result */
    void *kept;        /* receives x with these zeros */
    void *y;           /* the result */
} operands;

LK_BODY void load_doubles(lk_wide *to, const double *from)
{
    to->low = *(const lk_doubles *)from;
    to->high = *(const lk_doubles *)(from + HALF);
}

LK_BODY void store_doubles(double *to, const lk_wide *x)
{
    *(lk_doubles *)to = x->low;
    *(lk_doubles *)(to + HALF) = x->high;
}

LK_BODY void add_to(double *to, const lk_wide *x)
{
    *(lk_doubles *)to += x->low;
    *(lk_doubles *)(to + HALF) += x->high;
}

LK_BODY void load_x(lk_wide *to, const operands *o, int64_t at)
{
    lk_floats x, where;
    if (!o->where) {
        eight_load_wide(to, o->x, at, o->bf16);
        return;
    }
    eight_load(&x, o->x, at, o->bf16);
    eight_load(&where, o->where, at, o->bf16);
    x = (lk_floats)((lk_words)x & (lk_words)(where > 0));
    if (o->kept)
        eight_store(o->kept, at, &x, o->bf16);
    eight_widen(to, &x);
}

/* NaN stays NaN under relu. */
LK_BODY void store_result(const operands *o, int64_t at, const lk_wide *value)
{
    lk_floats y, added;
    if (!o->added && !o->rectified) {
        eight_store_narrow(o->y, at, value, o->bf16);
        return;
    }
    eight_narrow(&y, value);
    if (o->added) {
        eight_load(&added, o->added, at, o->bf16);
        y += added;
    }
    if (o->rectified)
        y = (lk_floats)((lk_words)y & ~(lk_words)(y <= 0));
    eight_store(o->y, at, &y, o->bf16);
}

/* Adds x to sum and x z to product. */
LK_BODY void accumulate(lk_wide *sum, lk_wide *product, const operands *o, int64_t at)
{
    lk_wide x, z;
    load_x(&x, o, at);
    eight_load_wide(&z, o->z, at, o->bf16);
    sum->low += x.low;
    sum->high += x.high;
    product->low += x.low * z.low;
    product->high += x.high * z.high;
}

/* Sums eight lanes; pixels are `stride` apart. Even and odd pixels are summed separately to hide the latency of
 * additions. */
LK_BODY void sums_of_eight(const operands *o, int64_t at, int64_t pixels, int64_t stride, double *first, double *second)
{
    lk_wide even[2] = {{{0}, {0}}, {{0}, {0}}}, odd[2] = {{{0}, {0}}, {{0}, {0}}};
    int64_t p = 0;
    for (; p + 2 <= pixels; p += 2) {
        accumulate(&even[0], &even[1], o, at + p * stride);
        accumulate(&odd[0], &odd[1], o, at + (p + 1) * stride);
    }
    if (p < pixels)
        accumulate(&even[0], &even[1], o, at + p * stride);
    for (int i = 0; i < 2; i++) {
        even[i].low += odd[i].low;
        even[i].high += odd[i].high;
        add_to(i ? second : first, &even[i]);
    }
}

LK_BODY void apply_affine(const operands *o, int64_t at, const lk_wide *a, const lk_wide *b, const lk_wide *c)
{
    lk_wide value, z;
    load_x(&value, o, at);
    value.low *= a->low;
    value.high *= a->high;
    if (o->z) {
        eight_load_wide(&z, o->z, at, o->bf16);
        value.low += b->low * z.low;
        value.high += b->high * z.high;
    }
    value.low += c->low;
    value.high += c->high;
    store_result(o, at, &value);
}

LK_BODY void load_constants(const operands *o, lk_wide *to_a, lk_wide *to_b, lk_wide *to_c, const double *a,
                            const double *b, const double *c)
{
    load_doubles(to_a, a);
    load_doubles(to_b, o->z ? b : a);
    load_doubles(to_c, c);
}

LK_BODY void affine_of_eight(const operands *o, int64_t at, int64_t pixels, int64_t stride, const double *a,
                             const double *b, const double *c)
{
    lk_wide wa, wb, wc;
    load_constants(o, &wa, &wb, &wc, a, b, c);
    for (int64_t p = 0; p < pixels; p++, at += stride)
        apply_affine(o, at, &wa, &wb, &wc);
}

/* --- one element -------------------------------------------------------------------------------------------------- */

LK_BODY float x_of(const operands *o, int64_t at)
{
    float x = lk__element(o->x, at, o->bf16);
    if (!o->where)
        return x;
    return lk__element(o->where, at, o->bf16) > 0 ? x : 0;
}

LK_BODY float result_of(const operands *o, int64_t at, double a, double b, double c)
{
    double value = (double)x_of(o, at) * a;
    if (o->z)
        value += b * (double)lk__element(o->z, at, o->bf16);
    float y = (float)(value + c);
    if (o->added)
        y += lk__element(o->added, at, o->bf16);
    return o->rectified && y <= 0 ? 0 : y;
}

LK_BODY void accumulate_one(const operands *o, int64_t at, double *sum, double *product)
{
    float x = x_of(o, at);
    if (o->kept)
        lk__element_set(o->kept, at, x, o->bf16);
    *sum += (double)x;
    *product += (double)x * (double)lk__element(o->z, at, o->bf16);
}

/* --- runs of one channel ------------------------------------------------------------------------------------------ */

/* Adds element i to sum i % 8, also in the last vector that is not full. */
LK_BODY void sums_of_run(const operands *o, int64_t at, int64_t n, double *first, double *second)
{
    double sum[WIDTH] = {0}, product[WIDTH] = {0};
    int64_t full = n - n % WIDTH;
    sums_of_eight(o, at, full / WIDTH, WIDTH, sum, product);
    for (int64_t i = full; i < n; i++)
        accumulate_one(o, at + i, &sum[i - full], &product[i - full]);
    for (int width = WIDTH / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) {
            sum[i] += sum[i + width];
            product[i] += product[i + width];
        }
    *first += sum[0];
    *second += product[0];
}

LK_BODY void affine_of_run(const operands *o, int64_t at, int64_t n, double a, double b, double c)
{
    double as[WIDTH], bs[WIDTH], cs[WIDTH];
    int64_t full = n - n % WIDTH;
    for (int i = 0; i < WIDTH; i++) {
        as[i] = a;
        bs[i] = b;
        cs[i] = c;
    }
    affine_of_eight(o, at, full / WIDTH, WIDTH, as, bs, cs);
    for (int64_t i = at + full; i < at + n; i++)
        lk__element_set(o->y, i, result_of(o, i, a, b, c), o->bf16);
}

/* --- any number of lanes, with constants and sums in memory ------------------------------------------------------- */

LK_BODY void sums_of_lanes(const operands *o, int64_t at, int64_t pixels, int64_t lanes, double *first, double *second)
{
    int64_t full = lanes - lanes % WIDTH;
    for (int64_t p = 0; p < pixels; p++, at += lanes) {
        for (int64_t i = 0; i < full; i += WIDTH) {
            lk_wide sum, product;
            load_doubles(&sum, first + i);
            load_doubles(&product, second + i);
            accumulate(&sum, &product, o, at + i);
            store_doubles(first + i, &sum);
            store_doubles(second + i, &product);
        }
        for (int64_t i = full; i < lanes; i++)
            accumulate_one(o, at + i, &first[i], &second[i]);
    }
}

LK_BODY void affine_of_lanes(const operands *o, int64_t at, int64_t pixels, int64_t lanes, const double *a,
                             const double *b, const double *c)
{
    int64_t full = lanes - lanes % WIDTH;
    for (int64_t p = 0; p < pixels; p++, at += lanes) {
        for (int64_t i = 0; i < full; i += WIDTH) {
            lk_wide wa, wb, wc;
            load_constants(o, &wa, &wb, &wc, a + i, b + i, c + i);
            apply_affine(o, at + i, &wa, &wb, &wc);
        }
        for (int64_t i = full; i < lanes; i++)
            lk__element_set(o->y, at + i, result_of(o, at + i, a[i], o->z ? b[i] : 0, c[i]), o->bf16);
    }
}

/* --- all planes --------------------------------------------------------------------------------------------------- */

LK_BODY void sums_body(const lk_channels *shape, const operands *o, double *first, double *second)
{
    int64_t lanes = shape->lanes, size = shape->pixels * lanes;
    for (int64_t g = 0; g < shape->planes; g++) {
        int64_t at = g * size, entry = channels_first_entry(shape, g);
        if (lanes == 1)
            sums_of_run(o, at, size, first + entry, second + entry);
        else if (lanes == WIDTH)
            sums_of_eight(o, at, shape->pixels, WIDTH, first + entry, second + entry);
        else
            sums_of_lanes(o, at, shape->pixels, lanes, first + entry, second + entry);
    }
}

LK_BODY void affine_body(const lk_channels *shape, const operands *o, const double *a, const double *b, const double *c)
{
    int64_t lanes = shape->lanes, size = shape->pixels * lanes;
    for (int64_t g = 0; g < shape->planes; g++) {
        int64_t at = g * size, entry = channels_first_entry(shape, g);
        const double *bs = o->z ? b + entry : NULL;
        if (lanes == 1)
            affine_of_run(o, at, size, a[entry], o->z ? *bs : 0, c[entry]);
        else if (lanes == WIDTH)
            affine_of_eight(o, at, shape->pixels, WIDTH, a + entry, bs, c + entry);
        else
            affine_of_lanes(o, at, shape->pixels, lanes, a + entry, bs, c + entry);
    }
}

LK_BODY void sums_of_work(const lk_channels_work *w, operands o)
{
    sums_body(w->shape, &o, w->first, w->second);
}

LK_BODY void affine_of_work(const lk_channels_work *w, operands o)
{
    affine_body(w->shape, &o, w->a, w->b, w->c);
}

/* Each case tells the compiler which operands are NULL and which are equal, so each becomes a loop of its own. */
LK_BODY void work_body(const lk_channels_work *w, bool bf16)
{
    const void *x = w->x, *z = w->z, *where = w->where;
    switch (w->kind) {
    case LK_CHANNELS_SQUARES:
        sums_of_work(w, (operands){.bf16 = bf16, .x = x, .z = x});
        break;
    case LK_CHANNELS_SUMS:
        sums_of_work(w, (operands){.bf16 = bf16, .x = x, .z = z});
        break;
    case LK_CHANNELS_SUMS_WHERE:
        sums_of_work(w, (operands){.bf16 = bf16, .x = x, .z = z, .where = where});
        break;
    case LK_CHANNELS_SUMS_WHERE_KEPT:
        sums_of_work(w, (operands){.bf16 = bf16, .x = x, .z = z, .where = where, .kept = w->kept});
        break;
    case LK_CHANNELS_AFFINE:
        affine_of_work(w, (operands){.bf16 = bf16, .x = x, .y = w->y});
        break;
    case LK_CHANNELS_AFFINE2:
        affine_of_work(w, (operands){.bf16 = bf16, .x = x, .z = z, .y = w->y});
        break;
    case LK_CHANNELS_AFFINE2_WHERE:
        affine_of_work(w, (operands){.bf16 = bf16, .x = x, .z = z, .where = where, .y = w->y});
        break;
    case LK_CHANNELS_RELU:
        affine_of_work(w, (operands){.bf16 = bf16, .x = x, .rectified = true, .y = w->y});
        break;
    case LK_CHANNELS_ADD_RELU:
        affine_of_work(w, (operands){.bf16 = bf16, .x = x, .added = z, .rectified = true, .y = w->y});
        break;
    }
}

LK_AVX2 static void work_f32_avx2(const lk_channels_work *w)
{
    work_body(w, false);
}

LK_AVX2 static void work_bf16_avx2(const lk_channels_work *w)
{
    work_body(w, true);
}

static void work_f32(const lk_channels_work *w)
{
    work_body(w, false);
}

static void work_bf16(const lk_channels_work *w)
{
    work_body(w, true);
}

static void run_work(const lk_channels_work *w)
{
    if (lk__channels_sixteen(w))
        return;
    if (lk__has_avx2())
        (w->shape->bf16 ? work_bf16_avx2 : work_f32_avx2)(w);
    else
        (w->shape->bf16 ? work_bf16 : work_f32)(w);
}

static void channels_run_sums(const lk_channels_work *w)
{
    size_t bytes = (size_t)lk__channels_entries(w->shape) * sizeof *w->first;
    memset(w->first, 0, bytes);
    memset(w->second, 0, bytes);
    run_work(w);
}

void lk__channels_sums(const lk_channels *shape, const void *x, const void *z, double *first, double *second)
{
    channels_run_sums(&(lk_channels_work){.kind = x == z ? LK_CHANNELS_SQUARES : LK_CHANNELS_SUMS,
                                          .shape = shape,
                                          .x = x,
                                          .z = z,
                                          .first = first,
                                          .second = second});
}

void lk__channels_sums_where(const lk_channels *shape, const void *where, const void *x, const void *z, double *first,
                             double *second, void *kept)
{
    channels_run_sums(&(lk_channels_work){.kind = kept ? LK_CHANNELS_SUMS_WHERE_KEPT : LK_CHANNELS_SUMS_WHERE,
                                          .shape = shape,
                                          .x = x,
                                          .z = z,
                                          .where = where,
                                          .first = first,
                                          .second = second,
                                          .kept = kept});
}

void lk__channels_affine(const lk_channels *shape, const void *x, const double *a, const double *c, void *y)
{
    run_work(&(lk_channels_work){.kind = LK_CHANNELS_AFFINE, .shape = shape, .x = x, .a = a, .c = c, .y = y});
}

void lk__channels_affine2(const lk_channels *shape, const void *x, const void *z, const double *a, const double *b,
                          const double *c, void *y)
{
    run_work(&(lk_channels_work){
        .kind = LK_CHANNELS_AFFINE2, .shape = shape, .x = x, .z = z, .a = a, .b = b, .c = c, .y = y});
}

void lk__channels_affine2_where(const lk_channels *shape, const void *where, const void *x, const void *z,
                                const double *a, const double *b, const double *c, void *y)
{
    run_work(&(lk_channels_work){.kind = LK_CHANNELS_AFFINE2_WHERE,
                                 .shape = shape,
                                 .x = x,
                                 .z = z,
                                 .where = where,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .y = y});
}

void lk__channels_affine_relu(const lk_channels *shape, const void *x, const void *z, const double *a, const double *c,
                              void *y)
{
    run_work(&(lk_channels_work){
        .kind = z ? LK_CHANNELS_ADD_RELU : LK_CHANNELS_RELU, .shape = shape, .x = x, .z = z, .a = a, .c = c, .y = y});
}
