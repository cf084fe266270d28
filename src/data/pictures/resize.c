/* Resizes with a triangle filter: first along the rows, then along the columns, rounding to bytes in between. Pillow's
 * resize with BILINEAR does the same (up to version 11; later ones begin with the height of some pictures, see
 * docs/data.md), so a network sees the same pixels here as there. Weights are computed in double and rounded to 22
 * fractional bits; the rest is integer arithmetic. */
#include "data/pictures/resize.h"

#include "base/float_env.h"
#include "base/mem.h"

#include <math.h>

enum { BITS = 22 };

/* The inputs of one output: input first + k has the weight weights[k]. */
typedef struct tap {
    int64_t first;
    int64_t count;
} tap;

typedef struct filter {
    tap *taps;        /* [outputs] */
    int32_t *weights; /* [outputs, widest] */
    int64_t widest;
} filter;

static void resize_filter_free(filter *f)
{
    lk__free(f->taps);
    lk__free(f->weights);
}

static double resize_triangle_at(double x)
{
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
}

static void resize_tap_init(double center, double reach, tap *t, int64_t inputs, double *weights, int32_t *rounded)
{
    double sum = 0;
    t->first = (int64_t)(center - reach + 0.5);
    if (t->first < 0 || center - reach + 0.5 < 0)
        t->first = 0;
    int64_t end = (int64_t)(center + reach + 0.5);
    if (end > inputs)
        end = inputs;
    t->count = end - t->first;
    for (int64_t k = 0; k < t->count; k++) {
        weights[k] = resize_triangle_at(((double)(t->first + k) - center + 0.5) * (1 / reach));
        sum += weights[k];
    }
    for (int64_t k = 0; k < t->count; k++)
        rounded[k] = (int32_t)(weights[k] / sum * (1 << BITS) + 0.5);
}

static lk_status resize_filter_init(int64_t inputs, int64_t outputs, filter *f)
{
    double scale = (double)inputs / (double)outputs;
    double reach = scale < 1 ? 1 : scale; /* half the triangle's width, in inputs: one output, but at least one input */
    f->widest = 2 * (int64_t)ceil(reach) + 1;
    size_t total;
    f->taps = lk__calloc((size_t)outputs, sizeof *f->taps);
    f->weights =
        lk__mul_size((size_t)outputs, (size_t)f->widest, &total) ? lk__calloc(total, sizeof *f->weights) : NULL;
    double *weights = lk__calloc((size_t)f->widest, sizeof *weights);
    bool made = f->taps && f->weights && weights;
    for (int64_t i = 0; made && i < outputs; i++)
        resize_tap_init(((double)i + 0.5) * scale, reach, &f->taps[i], inputs, weights, f->weights + i * f->widest);
    lk__free(weights);
    return made ? LK_OK : LK_ERR_MEMORY;
}

static uint8_t resize_round_off(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > UINT8_MAX ? UINT8_MAX : sum);
}

static void resize_filter_row(const filter *f, const uint8_t *from, int64_t channels, uint8_t *to, int64_t outputs)
{
    for (int64_t i = 0; i < outputs; i++) {
        const tap *t = &f->taps[i];
        const int32_t *weights = f->weights + i * f->widest;
        for (int64_t c = 0; c < channels; c++) {
            const uint8_t *input = from + t->first * channels + c;
            int32_t sum = 1 << (BITS - 1);
            for (int64_t k = 0; k < t->count; k++)
                sum += input[k * channels] * weights[k];
            to[i * channels + c] = resize_round_off(sum);
        }
    }
}

/* Computes one output row of `bytes` values. */
static void resize_filter_column(const tap *t, const int32_t *weights, const uint8_t *from, uint8_t *to, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        const uint8_t *input = from + t->first * bytes + i;
        int32_t sum = 1 << (BITS - 1);
        for (int64_t k = 0; k < t->count; k++)
            sum += input[k * bytes] * weights[k];
        to[i] = resize_round_off(sum);
    }
}

static void resize_filter_both(const filter *across, const filter *down, const uint8_t *from, int64_t height,
                               int64_t width, int64_t channels, uint8_t *between, uint8_t *to, int64_t to_height,
                               int64_t to_width)
{
    for (int64_t y = 0; y < height; y++)
        resize_filter_row(across, from + y * width * channels, channels, between + y * to_width * channels, to_width);
    for (int64_t y = 0; y < to_height; y++)
        resize_filter_column(&down->taps[y], down->weights + y * down->widest, between, to + y * to_width * channels,
                             to_width * channels);
}

lk_status lk__resize(const uint8_t *from, int64_t height, int64_t width, int64_t channels, uint8_t *to,
                     int64_t to_height, int64_t to_width)
{
    filter across = {0}, down = {0};
    fenv_t callers = lk__float_begin();
    lk_status status = resize_filter_init(width, to_width, &across);
    if (status == LK_OK)
        status = resize_filter_init(height, to_height, &down);
    lk__float_end(&callers);
    uint8_t *between = status == LK_OK ? lk__calloc((size_t)(height * to_width), (size_t)channels) : NULL;
    if (between)
        resize_filter_both(&across, &down, from, height, width, channels, between, to, to_height, to_width);
    else
        status = LK_ERR_MEMORY;
    lk__free(between);
    resize_filter_free(&across);
    resize_filter_free(&down);
    return status;
}
