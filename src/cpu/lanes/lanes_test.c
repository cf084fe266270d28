/* Convolution, relu and pooling with images in the vector lanes, f32 and bf16, against sums in double. */
#include "base/bf16.h"
#include "cpu/isa.h"
#include "cpu/lanes/lanes.h"
#include "cpu/lanes/lanes_winograd.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

typedef struct block_case {
    int64_t images, channels, filters;
    int64_t size[2], kernel[2], padding[2];
    lk_geometry pool; /* kernel, stride, padding, count_padding; kernel 0: none */
    bool relu, max;
} block_case;

/* Blocks of images that are full or not, odd and even numbers of them, tiles of all sizes, several bands of rows, rows
 * and columns that no window reads, padding beyond the kernel's reach or of less than 0. */
static const block_case plain_cases[] = {
    {16, 1, 20, {12, 14}, {3, 3}, {0, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true, false},
    {11, 20, 50, {8, 7}, {5, 5}, {0, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true, false},
    {19, 6, 15, {9, 8}, {3, 2}, {1, 1}, {.kernel = {2, 3}, .stride = {2, 3}}, true, true},
    {8, 3, 7, {11, 9}, {2, 3}, {0, 2}, {.kernel = {2, 2}, .stride = {3, 4}}, false, true},
    {3, 5, 13, {7, 8}, {3, 3}, {2, 1}, {.kernel = {3, 2}, .stride = {3, 2}, .padding = {1, 1}}, true, false},
    {9,
     2,
     4,
     {6, 6},
     {3, 3},
     {4, 3},
     {.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}, .count_padding = true},
     true,
     false},
    {1, 4, 11, {5, 6}, {1, 4}, {0, 1}, {.kernel = {0}}, true, false},
    {17, 7, 3, {6, 5}, {4, 1}, {0, 0}, {.kernel = {0}}, false, false},
    {18, 1, 33, {7, 6}, {3, 2}, {1, 2}, {.kernel = {2, 2}, .stride = {2, 2}}, true, true},
    {40, 1, 6, {9, 5}, {5, 3}, {-1, 1}, {.kernel = {0}}, false, false},
    {10, 9, 1, {6, 130}, {3, 3}, {1, 1}, {.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 1}}, true, true},
};

/* Strips of one patch and more, of different lengths; odd numbers of patches; patches that reach beyond the result and,
 * with padding, beyond x on each side; rows that no window reads; several chunks of strips. */
static const block_case winograd_cases[] = {
    {11, 20, 50, {8, 7}, {5, 5}, {0, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true, false},
    {19, 6, 15, {9, 8}, {5, 5}, {1, 2}, {.kernel = {2, 2}, .stride = {2, 2}}, true, true},
    {1, 3, 7, {5, 9}, {5, 5}, {4, 0}, {.kernel = {0}}, true, false},
    {9, 5, 2, {6, 23}, {5, 5}, {2, 3}, {.kernel = {2, 2}, .stride = {2, 2}}, false, false},
    {35, 4, 9, {15, 14}, {5, 5}, {0, 0}, {.kernel = {0}}, false, false},
    {16, 1, 20, {12, 14}, {3, 3}, {0, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true, false},
    {8, 9, 1, {6, 35}, {3, 3}, {1, 1}, {.kernel = {2, 2}, .stride = {2, 2}}, true, true},
    {10, 8, 16, {9, 10}, {3, 3}, {2, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, false, true},
    {20, 12, 5, {6, 5}, {3, 3}, {1, 2}, {.kernel = {0}}, true, false},
};

enum { PLAIN_CASES = sizeof plain_cases / sizeof *plain_cases };
enum { WINOGRAD_CASES = sizeof winograd_cases / sizeof *winograd_cases };

static lk_lanes_block block_of(const block_case *c)
{
    lk_lanes_conv conv = {.images = c->images};
    for (int i = 0; i < 2; i++) {
        conv.in[i] = c->size[i];
        conv.kernel[i] = c->kernel[i];
        conv.padding[i] = c->padding[i];
        conv.out[i] = c->size[i] + 2 * c->padding[i] - c->kernel[i] + 1;
    }
    conv.in[2] = c->channels;
    conv.out[2] = c->filters;
    lk_lanes_block block = lk__lanes_block_of(&conv);
    block.relu = c->relu;
    block.max = c->max;
    block.pool.count_padding = c->pool.count_padding;
    for (int i = 0; i < 2 && c->pool.kernel[0]; i++) {
        block.pool.kernel[i] = c->pool.kernel[i];
        block.pool.stride[i] = c->pool.stride[i];
        block.pool.padding[i] = c->pool.padding[i];
        block.pool.out[i] = (conv.out[i] + 2 * c->pool.padding[i] - c->pool.kernel[i]) / c->pool.stride[i] + 1;
    }
    return block;
}

static void *zeros(int64_t count, size_t size)
{
    void *x = calloc((size_t)count, size);
    assert_non_null(x);
    return x;
}

static float *numbers(int64_t count, int64_t seed)
{
    float *x = zeros(count, sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((i * 7919 + seed * 104729) % 2003) / 1001 - 1;
    return x;
}

/* Memory followed by a guard that no kernel may touch. */
enum { GUARD = 64 };

static void *guarded(size_t bytes)
{
    size_t all = (bytes + 2 * GUARD) / 64 * 64;
    char *memory = aligned_alloc(64, all);
    assert_non_null(memory);
    memset(memory, 0x5a, all);
    return memory;
}

static void expect_guard(const void *memory, size_t bytes)
{
    for (size_t i = bytes; i < (bytes + 2 * GUARD) / 64 * 64; i++)
        assert_int_equal(((const char *)memory)[i], 0x5a);
}

/* --- expected results --------------------------------------------------------------------------------------------- */

/* The kernels under test. */
typedef struct subject {
    const lk_lanes_kernels *kernels;
    const lk_lanes_winograd *winograd; /* used for convolutions and gradients; or NULL */
    const block_case *cases;
    int n_cases, scattered; /* scattered: the case whose images are also run one by one */
    double tolerance;
    bool bf16, tiles;
} subject;

typedef struct operands {
    const lk_lanes_kernels *kernels;
    const lk_lanes_winograd *winograd;
    bool bf16; /* the elements below are bf16 numbers, and the kernels get them as such */
    lk_lanes_block block;
    test_shape x_shape, conv_shape, y_shape;
    int64_t w_count;
    float *x, *w, *bias, *dy; /* row-major */
} operands;

static int64_t count_of(test_shape s)
{
    return test_size(PLAIN, s);
}

static float *operand(const subject *t, int64_t count, int64_t seed)
{
    float *x = numbers(count, seed);
    for (int64_t i = 0; i < count && t->bf16; i++) {
        uint16_t rounded;
        lk__bf16_round(&x[i], &rounded, 1);
        lk__bf16_widen(&rounded, &x[i], 1);
    }
    return x;
}

static operands make_operands(const subject *t, const block_case *c)
{
    operands o = {.kernels = t->kernels, .winograd = t->winograd, .bf16 = t->bf16, .block = block_of(c)};
    const lk_lanes_block *b = &o.block;
    o.x_shape = (test_shape){c->images, c->channels, c->size[0] * c->size[1]};
    o.conv_shape = (test_shape){c->images, c->filters, b->conv.out[0] * b->conv.out[1]};
    o.y_shape = (test_shape){c->images, c->filters, b->pool.out[0] * b->pool.out[1]};
    o.w_count = c->filters * c->channels * c->kernel[0] * c->kernel[1];
    o.x = operand(t, count_of(o.x_shape), 1);
    o.w = operand(t, o.w_count, 2);
    o.bias = operand(t, c->filters, 3);
    o.dy = operand(t, count_of(o.y_shape), 4);
    return o;
}

static void free_operands(operands *o)
{
    float *all[] = {o->x, o->w, o->bias, o->dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

typedef struct sums {
    double *conv, *y, *dconv, *dx, *dw, *dbias;
} sums;

/* Calls `visit` with the indices of x, w and the convolution's result for each product. */
typedef void (*product_fn)(const operands *o, sums *s, int64_t x, int64_t w, int64_t y);

static void visit_tap(const operands *o, sums *s, int64_t n, int64_t f, int64_t c, int64_t tap, product_fn visit)
{
    const lk_lanes_conv *conv = &o->block.conv;
    int64_t w = (f * conv->in[2] + c) * conv->kernel[0] * conv->kernel[1] + tap;
    for (int64_t r = 0; r < conv->out[0]; r++)
        for (int64_t k = 0; k < conv->out[1]; k++) {
            int64_t row = r - conv->padding[0] + tap / conv->kernel[1];
            int64_t column = k - conv->padding[1] + tap % conv->kernel[1];
            if (row >= 0 && row < conv->in[0] && column >= 0 && column < conv->in[1])
                visit(o, s, test_offset(PLAIN, o->x_shape, n, c, row * conv->in[1] + column), w,
                      test_offset(PLAIN, o->conv_shape, n, f, r * conv->out[1] + k));
        }
}

static void visit_products(const operands *o, sums *s, product_fn visit)
{
    const lk_lanes_conv *conv = &o->block.conv;
    for (int64_t n = 0; n < conv->images; n++)
        for (int64_t f = 0; f < conv->out[2]; f++)
            for (int64_t c = 0; c < conv->in[2]; c++)
                for (int64_t tap = 0; tap < conv->kernel[0] * conv->kernel[1]; tap++)
                    visit_tap(o, s, n, f, c, tap, visit);
}

static void add_forward(const operands *o, sums *s, int64_t x, int64_t w, int64_t y)
{
    s->conv[y] += (double)o->x[x] * (double)o->w[w];
}

static void add_back(const operands *o, sums *s, int64_t x, int64_t w, int64_t y)
{
    s->dx[x] += s->dconv[y] * (double)o->w[w];
    s->dw[w] += s->dconv[y] * (double)o->x[x];
}

/* Adds one window of a plane, and its share of dconv. */
static void pool_window(const operands *o, sums *s, int64_t plane, int64_t row, int64_t column)
{
    const lk_geometry *p = &o->block.pool;
    int64_t first = plane * p->in[0] * p->in[1], y = (plane * p->out[0] + row) * p->out[1] + column;
    int64_t at[64] = {0}, n = 0, best = 0;
    double sum = 0;
    for (int64_t r = row * p->stride[0] - p->padding[0], i = 0; i < p->kernel[0]; i++, r++)
        for (int64_t c = column * p->stride[1] - p->padding[1], j = 0; j < p->kernel[1]; j++, c++)
            if (r >= 0 && r < p->in[0] && c >= 0 && c < p->in[1])
                at[n++] = first + r * p->in[1] + c;
    for (int64_t i = 0; i < n; i++) {
        double value = s->conv[at[i]];
        sum += o->block.relu && value <= 0 ? 0 : value;
        best = value > s->conv[at[best]] || (isnan(value) && !isnan(s->conv[at[best]])) ? i : best;
    }
    double largest = s->conv[at[best]], count = p->count_padding ? (double)(p->kernel[0] * p->kernel[1]) : (double)n;
    s->y[y] = o->block.max ? (o->block.relu && largest <= 0 ? 0 : largest) : sum / count;
    for (int64_t i = 0; i < n; i++)
        if (!(o->block.relu && !(s->conv[at[i]] > 0)) && (!o->block.max || i == best))
            s->dconv[at[i]] = o->block.max ? (double)o->dy[y] : (double)o->dy[y] / count;
}

static sums expected(const operands *o)
{
    int64_t convs = count_of(o->conv_shape), filters = o->conv_shape.channels, pixels = o->conv_shape.pixels;
    const lk_geometry *p = &o->block.pool;
    sums s = {.conv = zeros(convs, sizeof(double)),
              .y = zeros(count_of(o->y_shape), sizeof(double)),
              .dconv = zeros(convs, sizeof(double)),
              .dx = zeros(count_of(o->x_shape), sizeof(double)),
              .dw = zeros(o->w_count, sizeof(double)),
              .dbias = zeros(filters, sizeof(double))};
    for (int64_t i = 0; i < convs; i++)
        s.conv[i] = (double)o->bias[i / pixels % filters];
    visit_products(o, &s, add_forward);
    for (int64_t plane = 0; plane < o->conv_shape.images * filters; plane++)
        for (int64_t i = 0; i < p->out[0] * p->out[1]; i++)
            pool_window(o, &s, plane, i / p->out[1], i % p->out[1]);
    visit_products(o, &s, add_back);
    for (int64_t i = 0; i < convs; i++)
        s.dbias[i / pixels % filters] += s.dconv[i];
    return s;
}

static void free_sums(sums *s)
{
    double *all[] = {s->conv, s->y, s->dconv, s->dx, s->dw, s->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* --- tensors in memory -------------------------------------------------------------------------------------------- */

/* Returns the number of channels in memory. */
static int64_t lane_channels(const operands *o, test_shape s)
{
    return o->bf16 ? rounded_up(s.channels, 2) : s.channels;
}

static size_t lane_bytes(const operands *o, test_shape s)
{
    int64_t channels = lane_channels(o, s);
    return (size_t)(rounded_up(s.images, o->kernels->lanes) * channels * s.pixels) * (o->bf16 ? 2 : sizeof(float));
}

/* Returns the address of an element in lanes. */
static char *lane_at(const operands *o, test_shape s, const void *lanes, int64_t n, int64_t c, int64_t p)
{
    int64_t width = o->kernels->lanes, words = o->bf16 ? lane_channels(o, s) / 2 : s.channels;
    int64_t word = ((n / width * s.pixels + p) * words + (o->bf16 ? c / 2 : c)) * width + n % width;
    return (char *)(uintptr_t)lanes + word * 4 + (o->bf16 ? c % 2 * 2 : 0);
}

static float lane_value(const operands *o, test_shape s, const void *lanes, int64_t n, int64_t c, int64_t p)
{
    float value;
    const void *at = lane_at(o, s, lanes, n, c, p);
    if (o->bf16)
        lk__bf16_widen(at, &value, 1);
    else
        memcpy(&value, at, sizeof value);
    return value;
}

/* Copies row-major elements into lanes, aligned. */
static void *in_lanes(const operands *o, test_shape s, const float *plain)
{
    char *lanes = guarded(lane_bytes(o, s));
    memset(lanes, 0, lane_bytes(o, s));
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t p = 0; p < s.pixels; p++, plain++)
                if (o->bf16)
                    lk__bf16_round(plain, (uint16_t *)(void *)lane_at(o, s, lanes, n, c, p), 1);
                else
                    memcpy(lane_at(o, s, lanes, n, c, p), plain, sizeof *plain);
    return lanes;
}

/* Copies row-major elements. */
static void *in_plain(const operands *o, int64_t count, const float *plain)
{
    void *copy = guarded((size_t)count * sizeof *plain);
    if (o->bf16)
        lk__bf16_round(plain, copy, count);
    else
        memcpy(copy, plain, (size_t)count * sizeof *plain);
    return copy;
}

/* --- actual results ----------------------------------------------------------------------------------------------- */

typedef struct results {
    void *y, *dx; /* in lanes, with guards */
    float *dw, *dbias;
    uint8_t *saved;
} results;

static void *packed_weights(const operands *o, const lk_lanes_conv *conv, bool for_gradient)
{
    size_t bytes = o->winograd ? o->winograd->packed_count(conv) * sizeof(float) : o->kernels->packed_bytes(conv);
    void *packed = guarded(bytes), *w = in_plain(o, o->w_count, o->w);
    if (o->winograd)
        o->winograd->pack(conv, w, packed);
    else
        o->kernels->pack(conv, w, for_gradient, packed);
    expect_guard(packed, bytes);
    free(w);
    return packed;
}

static void run_grad(const operands *o, const void *x, results *r)
{
    const lk_lanes_block *b = &o->block;
    lk_lanes_conv back = lk__lanes_input_grad_conv(b);
    size_t bytes = o->winograd ? o->winograd->memory(b) : o->kernels->grad_bytes(b, true);
    void *dy = b->plain_dy ? in_plain(o, count_of(o->y_shape), o->dy) : in_lanes(o, o->y_shape, o->dy);
    void *packed = packed_weights(o, o->winograd ? &b->conv : &back, true);
    char *memory = guarded(bytes);
    lk_lanes_grad grad = {dy, r->saved, x, packed, r->dw, r->dbias, r->dx};
    if (o->winograd)
        o->winograd->grad(b, &grad, memory);
    else
        o->kernels->grad(b, &grad, memory);
    expect_guard(memory, bytes);
    expect_guard(r->dx, lane_bytes(o, o->x_shape));
    free(dy);
    free(packed);
    free(memory);
}

static void run_forward(const operands *o, const void *x, const results *r)
{
    const lk_lanes_block *b = &o->block;
    size_t bytes = o->winograd ? o->winograd->memory(b) : o->kernels->forward_bytes(b);
    void *packed = packed_weights(o, &b->conv, false);
    char *memory = guarded(bytes);
    if (o->winograd)
        o->winograd->forward(b, x, packed, o->bias, r->y, r->saved, memory);
    else
        o->kernels->forward(b, x, packed, o->bias, r->y, r->saved, memory);
    expect_guard(memory, bytes);
    free(packed);
    free(memory);
}

static results run(const operands *o)
{
    size_t saved = o->kernels->saved_bytes(&o->block);
    results r = {.y = guarded(lane_bytes(o, o->y_shape)),
                 .dx = guarded(lane_bytes(o, o->x_shape)),
                 .dw = zeros(o->w_count, sizeof(float)),
                 .dbias = zeros(o->conv_shape.channels, sizeof(float)),
                 .saved = guarded(saved)};
    void *x = in_lanes(o, o->x_shape, o->x);
    run_forward(o, x, &r);
    expect_guard(r.y, lane_bytes(o, o->y_shape));
    expect_guard(r.saved, saved);
    run_grad(o, x, &r);
    free(x);
    return r;
}

static void free_results(results *r)
{
    void *all[] = {r->y, r->dx, r->dw, r->dbias, r->saved};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void expect_close(const subject *t, int which, const char *what, float have, double want, int64_t i)
{
    if (!(fabs((double)have - want) <= t->tolerance * (1 + fabs(want))) && !(isnan(have) && isnan(want)) &&
        (double)have != want)
        fail_msg("%s, case %d: %s[%lld] is %.9g, not %.9g", t->winograd ? t->winograd->name : t->kernels->name, which,
                 what, (long long)i, (double)have, want);
}

/* Compares elements in lanes with row-major ones; lanes without an image, or without a channel, must be 0. */
static void expect_lanes_close(const subject *t, int which, const char *what, const operands *o, test_shape s,
                               const void *have, const double *want)
{
    for (int64_t n = 0; n < rounded_up(s.images, o->kernels->lanes); n++)
        for (int64_t c = 0; c < lane_channels(o, s); c++)
            for (int64_t p = 0; p < s.pixels; p++)
                expect_close(t, which, what, lane_value(o, s, have, n, c, p),
                             n < s.images && c < s.channels ? want[test_offset(PLAIN, s, n, c, p)] : 0, n);
}

static const lk_isa *const isas[] = {&lk__isa_avx2, &lk__isa_avx512, &lk__isa_emulated};
static const lk_isa *const bf16_isas[] = {&lk__isa_emulatedbf16, &lk__isa_avx512bf16, &lk__isa_emulatedamxbf16,
                                          &lk__isa_amxbf16};

static subject plain_subject(const lk_isa *isa)
{
    return (subject){isa->f32->lanes, NULL, plain_cases, PLAIN_CASES, 2, 2e-5, false, false};
}

/* A result is rounded to the 8 bits of bf16, and so is dconv. */
static subject bf16_subject(const lk_isa *isa)
{
    return (subject){isa->bf16->lanes, NULL, plain_cases, PLAIN_CASES, 2, 0x1p-8, true, isa->tiles != NULL};
}

static subject winograd_subject(const lk_isa *isa)
{
    return (subject){isa->f32->lanes, isa->f32->lanes_winograd, winograd_cases, WINOGRAD_CASES, 1, 1e-4, false, false};
}

static void for_bf16_kernels(void (*test)(const subject *t))
{
    for (size_t i = 0; i < sizeof bf16_isas / sizeof *bf16_isas; i++) {
        if (lk__isa_runs(bf16_isas[i])) {
            subject t = bf16_subject(bf16_isas[i]);
            test(&t);
            continue;
        }
        print_message("SKIP: this processor does not have %s\n", bf16_isas[i]->name);
    }
}

/* Runs the test for all kernels that this processor can run; skips it if it cannot run the first. */
static void for_all_kernels(void (*test)(const subject *t))
{
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (lk__isa_runs(isas[i])) {
            subject plain = plain_subject(isas[i]), winograd = winograd_subject(isas[i]);
            test(&plain);
            test(&winograd);
            continue;
        }
        print_message("SKIP: this processor does not have %s\n", isas[i]->name);
        if (i == 0)
            skip();
    }
    for_bf16_kernels(test);
}

static void expect_bits(const void *have, const void *want, size_t bytes, int which, const char *what)
{
    if (memcmp(have, want, bytes) != 0)
        fail_msg("case %d: %s from plain tensors has other bits", which, what);
}

/* The gradients are the same if x and dy are row-major. */
static void check_plain(int which, const operands *o, const results *want)
{
    operands plain = *o;
    results r = *want;
    plain.block.plain_x = plain.block.plain_dy = true;
    r.dx = guarded(lane_bytes(o, o->x_shape));
    r.dw = zeros(o->w_count, sizeof(float));
    r.dbias = zeros(o->conv_shape.channels, sizeof(float));
    void *x = in_plain(o, count_of(o->x_shape), o->x);
    run_grad(&plain, x, &r);
    free(x);
    expect_bits(r.dx, want->dx, lane_bytes(o, o->x_shape), which, "dx");
    expect_bits(r.dw, want->dw, (size_t)o->w_count * sizeof(float), which, "dw");
    expect_bits(r.dbias, want->dbias, (size_t)o->conv_shape.channels * sizeof(float), which, "dbias");
    free(r.dx);
    free(r.dw);
    free(r.dbias);
}

static void check(const subject *t, int which, const operands *o)
{
    results r = run(o);
    sums s = expected(o);
    if (!t->winograd)
        check_plain(which, o, &r);
    expect_lanes_close(t, which, "y", o, o->y_shape, r.y, s.y);
    expect_lanes_close(t, which, "dx", o, o->x_shape, r.dx, s.dx);
    for (int64_t i = 0; i < o->w_count; i++)
        expect_close(t, which, "dw", r.dw[i], s.dw[i], i);
    for (int64_t i = 0; i < o->conv_shape.channels; i++)
        expect_close(t, which, "dbias", r.dbias[i], s.dbias[i], i);
    free_sums(&s);
    free_results(&r);
}

static void check_sums(const subject *t)
{
    for (int i = 0; i < t->n_cases; i++) {
        operands o = make_operands(t, &t->cases[i]);
        assert_true(!t->winograd || t->winograd->takes(&o.block));
        check(t, i, &o);
        free_operands(&o);
    }
}

static void results_are_the_sums(void **state)
{
    (void)state;
    for_all_kernels(check_sums);
}

/* A kernel of 1x1 passes x unchanged to the pooling: with ties, NaN and infinities. */
static void check_maximum(const subject *t)
{
    static const float values[] = {0, 1, 1, -1, -0.0f, NAN, INFINITY, -INFINITY, 0.5f, -INFINITY, 1};
    static const block_case identity = {11,    1,   1, {6, 6}, {1, 1}, {0, 0}, {.kernel = {2, 3}, .stride = {2, 3}},
                                        false, true};
    if (t->winograd)
        return;
    operands o = make_operands(t, &identity);
    for (int64_t i = 0; i < count_of(o.x_shape); i++)
        o.x[i] = values[i * i % 10007 * 31 % 11];
    o.w[0] = 1;
    o.bias[0] = 0;
    results r = run(&o);
    sums s = expected(&o);
    expect_lanes_close(t, 0, "y", &o, o.y_shape, r.y, s.y);
    expect_lanes_close(t, 0, "dx", &o, o.x_shape, r.dx, s.dx);
    free_sums(&s);
    free_results(&r);
    free_operands(&o);
}

static void the_first_maximum_wins(void **state)
{
    (void)state;
    for_all_kernels(check_maximum);
}

/* Checks that `have`, of images from `first` on, has the bits of `want`. */
static void expect_same(const operands *o, test_shape s, const void *have, const operands *of_want, test_shape all,
                        const void *want, int64_t first)
{
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t p = 0; p < s.pixels; p++)
                assert_memory_equal(lane_at(o, s, have, n, c, p), lane_at(of_want, all, want, first + n, c, p),
                                    o->bf16 ? 2 : sizeof(float));
}

/* Each image alone gives the bits that it has in the batch. */
static void check_positions(const subject *t)
{
    operands batch = make_operands(t, &t->cases[t->scattered]);
    results all = run(&batch);
    for (int64_t n = 0; n < batch.x_shape.images; n++) {
        block_case single = t->cases[t->scattered];
        single.images = 1;
        operands one = make_operands(t, &single);
        memcpy(one.x, batch.x + n * count_of(one.x_shape), (size_t)count_of(one.x_shape) * sizeof *one.x);
        memcpy(one.dy, batch.dy + n * count_of(one.y_shape), (size_t)count_of(one.y_shape) * sizeof *one.dy);
        results r = run(&one);
        expect_same(&one, one.y_shape, r.y, &batch, batch.y_shape, all.y, n);
        expect_same(&one, one.x_shape, r.dx, &batch, batch.x_shape, all.dx, n);
        free_results(&r);
        free_operands(&one);
    }
    free_results(&all);
    free_operands(&batch);
}

static void an_image_does_not_depend_on_its_position(void **state)
{
    (void)state;
    for_all_kernels(check_positions);
}

/* y and dx do not depend on the width of vectors, nor on whether products of pairs or of tiles are emulated. Sums over
 * images depend on the width, since they go lane by lane, and are compared for tiles only. */
static void check_width(const subject *t)
{
    subject first = t->winograd ? winograd_subject(isas[0])
                    : t->tiles  ? bf16_subject(&lk__isa_emulatedamxbf16)
                    : t->bf16   ? bf16_subject(&lk__isa_emulatedbf16)
                                : plain_subject(isas[0]);
    for (int i = 0; i < t->n_cases; i++) {
        operands wide = make_operands(t, &t->cases[i]), narrow = make_operands(&first, &t->cases[i]);
        results have = run(&wide), want = run(&narrow);
        expect_same(&wide, wide.y_shape, have.y, &narrow, narrow.y_shape, want.y, 0);
        expect_same(&wide, wide.x_shape, have.dx, &narrow, narrow.x_shape, want.dx, 0);
        if (t->tiles) {
            assert_memory_equal(have.dw, want.dw, (size_t)wide.w_count * sizeof(float));
            assert_memory_equal(have.dbias, want.dbias, (size_t)wide.conv_shape.channels * sizeof(float));
        }
        free_results(&have);
        free_results(&want);
        free_operands(&wide);
        free_operands(&narrow);
    }
}

static void an_image_does_not_depend_on_the_width(void **state)
{
    (void)state;
    for_all_kernels(check_width);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_sums),
        cmocka_unit_test(the_first_maximum_wins),
        cmocka_unit_test(an_image_does_not_depend_on_its_position),
        cmocka_unit_test(an_image_does_not_depend_on_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
