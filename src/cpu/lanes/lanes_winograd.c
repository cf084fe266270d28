/* Winograd's convolution with images in the vector lanes: chunks of patches, products at the points, and their sums.
 * lanes_winograd_points.c does the transforms. */
#include "cpu/lanes/lanes_winograd.h"

#include "base/minmax.h"
#include "cpu/lanes/lanes_winograd_points.h"

#include <string.h>

enum { POINTS = LK_POINTS, PAIR = 2, WIDTH = LK_WIDTH };

/* The 2 x 6 or 4 x 3 accumulators of a tile hide the latency of fused multiply-adds and leave room for the operands in
 * 16 registers. */
enum { TILE = 6, MOST_IN = 4, MOST_OUT = 3 };

/* A chunk of patches has about this many floats at its points, input and result together, so that they stay in the
 * second-level cache. */
enum { FLOATS_OF_CHUNK = 81000 };

/* For the gradient of the weights a chunk has more patches, since sums over lanes are expensive, but only one row of
 * points is made at a time: FLOATS_OF_X for the points of x, and FLOATS_OF_DY for those of as many channels of dy as
 * fit. */
enum { FLOATS_OF_X = 1 << 16, FLOATS_OF_DY = 1 << 15 };

/* --- division into chunks ----------------------------------------------------------------------------------------- */

static bool lanes_winograd_takes(const lk_lanes_block *block)
{
    const lk_lanes_conv *conv = &block->conv;
    const lk_geometry *pool = &block->pool;
    for (int i = 0; i < 2; i++)
        if ((conv->kernel[i] != 5 && conv->kernel[i] != 3) || conv->kernel[i] != conv->kernel[0] ||
            conv->padding[i] < 0 || conv->padding[i] >= conv->kernel[i] || pool->kernel[i] != pool->kernel[0] ||
            pool->stride[i] != pool->kernel[i] || pool->padding[i] != 0 || pool->kernel[i] > 2)
            return false;
    return true;
}

static lk_patches lanes_winograd_patches_of(const lk_lanes_block *block)
{
    lk_patches p = {.block = block, .side = LK_SIDE + 1 - (int)block->conv.kernel[0]};
    for (int i = 0; i < 2; i++)
        p.used[i] = block->pool.out[i] * block->pool.kernel[i];
    p.rows = (p.used[0] + p.side - 1) / p.side;
    p.columns = (p.used[1] + p.side - 1) / p.side;
    p.strips = (p.columns + LK_STRIP - 1) / LK_STRIP;
    p.strip = (p.columns + p.strips - 1) / p.strips;
    p.count = (block->conv.images + WIDTH - 1) / WIDTH * p.rows * p.columns;
    return p;
}

/* Returns the number of strips of all images. */
static int64_t lanes_winograd_strips_of(const lk_patches *p)
{
    return p->count / p->columns * p->strips;
}

/* Returns the number of strips of a chunk. Chunks are about equal and have about `floats` floats, `each` of them for a
 * patch. The number of patches is even, save perhaps in the last chunk. */
static int64_t lanes_winograd_chunk_strips(const lk_patches *p, int64_t floats, int64_t each)
{
    int64_t strips = lanes_winograd_strips_of(p), fit = lk__max(floats / (each * p->strip), 1),
            chunks = (strips + fit - 1) / fit;
    int64_t size = (strips + chunks - 1) / chunks;
    return size * p->strip % PAIR == 0 ? size : size + 1;
}

/* Returns the patches of the chunk that begins with strip `first`. */
static lk_patch_range lanes_winograd_chunk_at(const lk_patches *p, int64_t first, int64_t size)
{
    int64_t end = lk__min(first + size, lanes_winograd_strips_of(p)), strips = p->strips;
    lk_patch_range chunk = {.first = first / strips * p->columns + first % strips * p->strip};
    chunk.count = end / strips * p->columns + end % strips * p->strip - chunk.first;
    return chunk;
}

static int64_t lanes_winograd_kernel_count(const lk_lanes_conv *conv)
{
    return conv->in[2] * conv->out[2];
}

/* Strips of a chunk of a convolution, in either direction. */
static int64_t lanes_winograd_conv_chunk(const lk_patches *p)
{
    const lk_lanes_conv *conv = &p->block->conv;
    return lanes_winograd_chunk_strips(p, FLOATS_OF_CHUNK, POINTS * (conv->in[2] + conv->out[2]) * WIDTH);
}

static int64_t lanes_winograd_weight_chunk(const lk_patches *p)
{
    return lanes_winograd_chunk_strips(p, FLOATS_OF_X, LK_SIDE * p->block->conv.in[2] * WIDTH);
}

static int64_t lanes_winograd_weight_channels(const lk_patches *p)
{
    int64_t fit = FLOATS_OF_DY / (LK_SIDE * lanes_winograd_weight_chunk(p) * p->strip * WIDTH) / MOST_OUT * MOST_OUT;
    return lk__min(lk__max(fit, MOST_OUT), p->block->conv.out[2]);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Floats of the points of x, or of y, of a chunk. */
static int64_t lanes_winograd_points_floats(int64_t n_points, int64_t patches, int64_t channels)
{
    return n_points * lk__patch_stride(patches * channels * WIDTH);
}

static size_t lanes_winograd_packed_count(const lk_lanes_conv *conv)
{
    return (size_t)(POINTS * lk__kernel_stride(lanes_winograd_kernel_count(conv)));
}

/* Bytes of the sums of the bias' gradient: doubles, in whole cache lines, since floats follow them. */
static size_t lanes_winograd_bias_bytes(const lk_lanes_conv *conv)
{
    return (size_t)(conv->out[2] + 7) / 8 * 64;
}

static size_t lanes_winograd_memory(const lk_lanes_block *block)
{
    const lk_lanes_conv *conv = &block->conv;
    lk_patches p = lanes_winograd_patches_of(block);
    int64_t chunk = lanes_winograd_conv_chunk(&p) * p.strip, many = lanes_winograd_weight_chunk(&p) * p.strip;
    int64_t convolved = lanes_winograd_points_floats(POINTS, chunk, conv->in[2]) +
                        lanes_winograd_points_floats(POINTS, chunk, conv->out[2]);
    int64_t summed = (int64_t)lanes_winograd_packed_count(conv) +
                     lanes_winograd_points_floats(LK_SIDE, many, conv->in[2]) +
                     lanes_winograd_points_floats(LK_SIDE, many, lanes_winograd_weight_channels(&p));
    return (size_t)lk__max(convolved, summed) * sizeof(float) + lanes_winograd_bias_bytes(conv);
}

static void lanes_winograd_pack(const lk_lanes_conv *conv, const float *w, float *packed)
{
    lk__points_of_w(lanes_winograd_kernel_count(conv), (int)conv->kernel[0], w, packed);
}

/* --- products at a point ------------------------------------------------------------------------------------------ */

/* Computes to[o] = the sum over i of from[i] w[i][o] for all patches of a chunk. w[i][o] is at i * in_step + o *
 * out_step. */
typedef struct product {
    int64_t patches, in, out; /* channels */
    int64_t in_step, out_step;
} product;

/* Computes `n` out channels for two patches at a time; an odd last patch is its own partner. */
LK_BODY void multiply_tile(const product *p, const float *from, const float *w, float *to, const int n)
{
    for (int64_t k = 0; k < p->patches; k += PAIR) {
        int64_t partner = k + 1 < p->patches ? k + 1 : k;
        const float *a = from + k * p->in * WIDTH, *b = from + partner * p->in * WIDTH, *at = w;
        float *to_a = to + k * p->out * WIDTH, *to_b = to + partner * p->out * WIDTH;
        vec sum[TILE][PAIR]; /* only ever indexed by constants, so it lives in registers */
        for (int o = 0; o < n; o++)
            sum[o][0] = sum[o][1] = vec_zero();
        for (int64_t i = 0; i < p->in; i++, at += p->in_step) {
            vec value[PAIR] = {vec_load(a + i * WIDTH), vec_load(b + i * WIDTH)};
            for (int o = 0; o < n; o++) {
                vec weight = vec_broadcast(at + o * p->out_step);
                sum[o][0] = vec_fmadd(value[0], weight, sum[o][0]);
                sum[o][1] = vec_fmadd(value[1], weight, sum[o][1]);
            }
        }
        for (int o = 0; o < n; o++) {
            vec_store(to_a + o * WIDTH, sum[o][0]);
            vec_store(to_b + o * WIDTH, sum[o][1]);
        }
    }
}

typedef void (*multiply_fn)(const product *p, const float *from, const float *w, float *to);

/* clang-format off */
#define MULTIPLY_TILE(n)                                                                                               \
    static void multiply_##n(const product *p, const float *from, const float *w, float *to)                           \
    {                                                                                                                  \
        multiply_tile(p, from, w, to, n);                                                                              \
    }
/* clang-format on */
MULTIPLY_TILE(1)
MULTIPLY_TILE(2)
MULTIPLY_TILE(3)
MULTIPLY_TILE(4)
MULTIPLY_TILE(5)
MULTIPLY_TILE(6)

static const multiply_fn multiply_tiles[TILE + 1] = {NULL,       multiply_1, multiply_2, multiply_3,
                                                     multiply_4, multiply_5, multiply_6};

/* Returns the size of the tile that begins with channel `first`: as few tiles as possible, of sizes as equal as
 * possible. */
static int64_t lanes_winograd_tile_size(int64_t channels, int64_t first, int64_t largest)
{
    int64_t left = channels - first, tiles = (left + largest - 1) / largest;
    return (left + tiles - 1) / tiles;
}

static void lanes_winograd_multiply_at_points(const product *p, const float *from, const float *w, float *to)
{
    int64_t from_stride = lk__patch_stride(p->patches * p->in * WIDTH);
    int64_t to_stride = lk__patch_stride(p->patches * p->out * WIDTH);
    int64_t w_stride = lk__kernel_stride(p->in * p->out);
    for (int i = 0; i < POINTS; i++, from += from_stride, w += w_stride, to += to_stride)
        for (int64_t o = 0, n; o < p->out; o += n) {
            n = lanes_winograd_tile_size(p->out, o, TILE);
            multiply_tiles[n](p, from, w + o * p->out_step, to + o * WIDTH);
        }
}

static void lanes_winograd_forward(const lk_lanes_block *block, const float *x, const float *packed, const float *bias,
                                   float *y, uint8_t *saved, void *memory)
{
    int64_t in = block->conv.in[2], out = block->conv.out[2];
    lk_patches p = lanes_winograd_patches_of(block);
    int64_t chunk = lanes_winograd_conv_chunk(&p);
    float *v = memory, *m = v + lanes_winograd_points_floats(POINTS, chunk * p.strip, in);
    for (int64_t k = 0; k < lanes_winograd_strips_of(&p); k += chunk) {
        lk_patch_range now = lanes_winograd_chunk_at(&p, k, chunk);
        product at_points = {now.count, in, out, 1, in};
        lk__points_of_x(&p, x, now, v);
        lanes_winograd_multiply_at_points(&at_points, v, packed, m);
        lk__y_of_points(&p, m, now, bias, y, saved);
    }
}

static void lanes_winograd_input_grad(const lk_patches *p, const lk_lanes_grad *grad, float *memory)
{
    int64_t in = p->block->conv.in[2], out = p->block->conv.out[2], chunk = lanes_winograd_conv_chunk(p);
    float *m = memory, *v = m + lanes_winograd_points_floats(POINTS, chunk * p->strip, out);
    for (int64_t k = 0; k < lanes_winograd_strips_of(p); k += chunk) {
        lk_patch_range now = lanes_winograd_chunk_at(p, k, chunk);
        product at_points = {now.count, out, in, in, 1};
        lk__points_of_dy(p, grad, now, m);
        lanes_winograd_multiply_at_points(&at_points, m, grad->packed, v);
        lk__dx_of_points(p, v, now, grad->dx);
    }
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* Adds up the eights of lanes of a vector. */
LK_BODY __m256 eight_lanes(vec v)
{
    __m256 sum = vec_part(v, 0);
    for (int i = 1; i < LK_EIGHTS; i++)
        sum = _mm256_add_ps(sum, vec_part(v, i));
    return sum;
}

/* Sums the lanes of four vectors: neighbors, then pairs, then halves. */
LK_BODY __m128 sum_lanes(const vec v[4])
{
    __m256 a = _mm256_hadd_ps(eight_lanes(v[0]), eight_lanes(v[1]));
    __m256 sum = _mm256_hadd_ps(a, _mm256_hadd_ps(eight_lanes(v[2]), eight_lanes(v[3])));
    return _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
}

/* The steps of `correlate`, in floats: from one patch to the next in x and in dy, and from the sums of one out channel
 * to those of the next. */
typedef struct correlation {
    int64_t patches, in_step, out_step, sums_step;
} correlation;

LK_BODY void correlate(const correlation *c, const float *x, const float *dy, float *sums, const int n_in,
                       const int n_out)
{
    vec sum[MOST_OUT][MOST_IN]; /* only ever indexed by constants, so it lives in registers */
    for (int o = 0; o < n_out; o++)
        for (int i = 0; i < MOST_IN; i++)
            sum[o][i] = vec_zero();
    for (int64_t k = 0; k < c->patches; k++, x += c->in_step, dy += c->out_step) {
        vec d[MOST_OUT];
        for (int o = 0; o < n_out; o++)
            d[o] = vec_pinned(vec_load(dy + o * WIDTH));
        for (int i = 0; i < n_in; i++) {
            vec value = vec_pinned(vec_load(x + i * WIDTH));
            for (int o = 0; o < n_out; o++)
                sum[o][i] = vec_fmadd(value, d[o], sum[o][i]);
        }
    }
    for (int o = 0; o < n_out; o++, sums += c->sums_step) /* sums beyond n_in are zeros */
        _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), sum_lanes(sum[o])));
}

typedef void (*correlate_fn)(const correlation *c, const float *x, const float *dy, float *sums);

/* clang-format off */
#define CORRELATE_TILE(n_in, n_out)                                                                                    \
    static void correlate_##n_in##_##n_out(const correlation *c, const float *x, const float *dy, float *sums)         \
    {                                                                                                                  \
        correlate(c, x, dy, sums, n_in, n_out);                                                                        \
    }
/* clang-format on */
CORRELATE_TILE(1, 1)
CORRELATE_TILE(1, 2)
CORRELATE_TILE(1, 3)
CORRELATE_TILE(2, 1)
CORRELATE_TILE(2, 2)
CORRELATE_TILE(2, 3)
CORRELATE_TILE(3, 1)
CORRELATE_TILE(3, 2)
CORRELATE_TILE(3, 3)
CORRELATE_TILE(4, 1)
CORRELATE_TILE(4, 2)
CORRELATE_TILE(4, 3)

static const correlate_fn correlate_tiles[MOST_IN][MOST_OUT] = {
    {correlate_1_1, correlate_1_2, correlate_1_3},
    {correlate_2_1, correlate_2_2, correlate_2_3},
    {correlate_3_1, correlate_3_2, correlate_3_3},
    {correlate_4_1, correlate_4_2, correlate_4_3},
};

/* Adds the products of all channels of x and `channels` channels of dy at one point to the sums of these channels. */
static void lanes_winograd_correlate_point(int64_t in, int64_t channels, int64_t patches, const float *x,
                                           const float *dy, float *sums)
{
    correlation c = {patches, in * WIDTH, channels * WIDTH, in};
    for (int64_t i = 0, n_in; i < in; i += n_in) {
        n_in = lanes_winograd_tile_size(in, i, MOST_IN);
        for (int64_t o = 0, n_out; o < channels; o += n_out) {
            n_out = lanes_winograd_tile_size(channels, o, MOST_OUT);
            correlate_tiles[n_in - 1][n_out - 1](&c, x + i * WIDTH, dy + o * WIDTH, sums + o * in + i);
        }
    }
}

/* Adds up the values of dy at the point (1, 1), where a patch's value is the sum of its pixels. */
static void lanes_winograd_add_bias_point(const float *points, int64_t patches, lk_channel_range channels, double *bias)
{
    for (int64_t o = 0; o < channels.count; o++, points += WIDTH) {
        float lanes[WIDTH];
        vec sum[PAIR] = {vec_zero(), vec_zero()}; /* a single chain would wait for each addition */
        for (int64_t k = 0; k < patches; k++)
            sum[k % PAIR] = vec_add(sum[k % PAIR], vec_load(points + k * channels.count * WIDTH));
        vec_storeu(lanes, vec_add(sum[0], sum[1]));
        for (int i = 0; i < WIDTH; i++)
            bias[channels.first + o] += (double)lanes[i];
    }
}

typedef struct weight_memory {
    double *bias;
    float *sums, *x, *dy;
} weight_memory;

/* Adds one row of points of a chunk. */
static void lanes_winograd_correlate_row(const lk_patches *p, const lk_lanes_grad *grad, lk_patch_range chunk, int row,
                                         const weight_memory *m)
{
    const lk_lanes_conv *conv = &p->block->conv;
    int64_t in = conv->in[2], out = conv->out[2], some = lanes_winograd_weight_channels(p),
            sums_stride = lk__kernel_stride(lanes_winograd_kernel_count(conv));
    lk__row_of_x(p, grad->x, chunk, row, m->x);
    for (int64_t o = 0; o < out; o += some) {
        lk_channel_range channels = {o, lk__min(some, out - o)};
        int64_t x_stride = lk__patch_stride(chunk.count * in * WIDTH);
        int64_t dy_stride = lk__patch_stride(chunk.count * channels.count * WIDTH);
        lk__row_of_dy(p, grad, chunk, channels, row, m->dy);
        for (int i = 0; i < LK_SIDE; i++)
            lanes_winograd_correlate_point(in, channels.count, chunk.count, m->x + i * x_stride, m->dy + i * dy_stride,
                                           m->sums + (row * LK_SIDE + i) * sums_stride + o * in);
        if (row == 1 && grad->dbias)
            lanes_winograd_add_bias_point(m->dy + dy_stride, chunk.count, channels, m->bias);
    }
}

static void lanes_winograd_weight_grad(const lk_patches *p, const lk_lanes_grad *grad, void *memory)
{
    const lk_lanes_conv *conv = &p->block->conv;
    int64_t chunk = lanes_winograd_weight_chunk(p);
    weight_memory m = {.bias = memory, .sums = (float *)memory + lanes_winograd_bias_bytes(conv) / sizeof(float)};
    m.x = m.sums + lanes_winograd_packed_count(conv);
    m.dy = m.x + lanes_winograd_points_floats(LK_SIDE, chunk * p->strip, conv->in[2]);
    memset(m.bias, 0, lanes_winograd_bias_bytes(conv));
    memset(m.sums, 0, lanes_winograd_packed_count(conv) * sizeof *m.sums);
    for (int64_t k = 0; k < lanes_winograd_strips_of(p); k += chunk)
        for (int row = 0; row < LK_SIDE; row++)
            lanes_winograd_correlate_row(p, grad, lanes_winograd_chunk_at(p, k, chunk), row, &m);
    lk__dw_of_points(lanes_winograd_kernel_count(conv), (int)conv->kernel[0], m.sums, grad->dw);
    for (int64_t o = 0; grad->dbias && o < conv->out[2]; o++)
        grad->dbias[o] = (float)m.bias[o];
}

static void lanes_winograd_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *memory)
{
    lk_patches p = lanes_winograd_patches_of(block);
    if (grad->dx)
        lanes_winograd_input_grad(&p, grad, memory);
    if (grad->dw)
        lanes_winograd_weight_grad(&p, grad, memory);
}

const lk_lanes_winograd LK_ISA(lk__lanes_winograd) = {
    "lanes-winograd:" LK_ISA_NAME, lanes_winograd_takes,   lanes_winograd_packed_count, lanes_winograd_pack,
    lanes_winograd_memory,         lanes_winograd_forward, lanes_winograd_grad,
};
