/* Convolution in blocks of channels by each algorithm, against sums in double. */
#include "cpu/blocks/block_conv.h"

#include "base/bf16.h"
#include "cpu/isa.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

typedef struct conv_case {
    int64_t images, channels, filters;
    int64_t size[2], kernel[2], stride[2], padding[2], dilation[2];
} conv_case;

static const lk_isa *const isas[] = {&lk__isa_avx2,           &lk__isa_avx512,       &lk__isa_emulated,
                                     &lk__isa_avx512bf16,     &lk__isa_emulatedbf16, &lk__isa_amxbf16,
                                     &lk__isa_emulatedamxbf16};
enum { ISAS = sizeof isas / sizeof *isas };

/* Single blocks and odd numbers of them, several pieces of channels and of filters, images that share a chunk, chunks
 * that are not full, images with more pixels or tiles than a chunk, padding beyond the kernel's reach. The last five
 * are for tiles too: sums over several pieces, strides whose phases have unequal pixels and taps or no tap, dilation.
 */
static const conv_case cases[] = {
    {2, 8, 8, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},     {3, 16, 24, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 136, 16, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  {61, 8, 16, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {50, 16, 16, {4, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  {1, 16, 32, {23, 25}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 16, 16, {9, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},   {2, 24, 8, {8, 9}, {5, 2}, {2, 3}, {2, 1}, {1, 2}},
    {1, 8, 40, {11, 10}, {3, 3}, {1, 2}, {0, 0}, {3, 2}},  {2, 8, 8, {3, 3}, {2, 2}, {1, 1}, {3, 3}, {1, 1}},
    {3, 8, 16, {6, 6}, {6, 6}, {1, 1}, {0, 0}, {1, 1}},    {2, 640, 192, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {5, 16, 24, {23, 25}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, {2, 8, 24, {7, 9}, {3, 3}, {1, 1}, {0, 2}, {1, 1}},
    {3, 48, 16, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},   {32, 80, 48, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {5, 16, 48, {21, 25}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, {2, 144, 80, {8, 9}, {5, 2}, {2, 3}, {2, 1}, {1, 2}},
    {9, 32, 64, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},   {3, 64, 32, {9, 8}, {3, 2}, {2, 3}, {1, 0}, {1, 1}},
    {5, 32, 32, {24, 21}, {1, 1}, {2, 2}, {0, 0}, {1, 1}}, {2, 96, 64, {10, 9}, {3, 3}, {2, 2}, {2, 1}, {2, 3}},
    {1, 32, 32, {27, 25}, {2, 3}, {1, 1}, {0, 2}, {1, 1}},
};
enum { CASES = sizeof cases / sizeof *cases };

static lk_geometry conv_of(const conv_case *c)
{
    lk_geometry conv = {.images = c->images, .channels = c->channels, .filters = c->filters};
    for (int i = 0; i < 2; i++) {
        conv.in[i] = c->size[i];
        conv.kernel[i] = c->kernel[i];
        conv.stride[i] = c->stride[i];
        conv.padding[i] = c->padding[i];
        conv.dilation[i] = c->dilation[i];
        int64_t reach = (c->kernel[i] - 1) * c->dilation[i] + 1;
        conv.out[i] = (c->size[i] + 2 * c->padding[i] - reach) / c->stride[i] + 1;
    }
    return conv;
}

/* An algorithm and the dtype of its operands. */
typedef struct variant {
    const lk_block_algorithm *algorithm;
    bool bf16;
} variant;

/* Values are kept as floats, which bf16 represents if the algorithm is for bf16. */
typedef struct operands {
    variant subject;
    const lk_block_algorithm *algorithm;
    lk_geometry conv;
    test_shape x_shape, y_shape;
    int64_t x_count, y_count, w_count;
    float *x, *w, *bias, *dy; /* row-major */
    float *x_blocks, *dy_blocks;
    float *y, *dx, *dw; /* results; y and dx in blocks */
    char *memory;
} operands;

static float *floats(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    return x;
}

/* Returns the elements that an algorithm takes for these values; free them. */
static void *elements_of(const variant *s, const float *values, int64_t count)
{
    void *elements = floats(count);
    if (s->bf16)
        lk__bf16_round(values, elements, count);
    else
        memcpy(elements, values, (size_t)count * sizeof *values);
    return elements;
}

/* The inverse; frees the elements. */
static void read_elements(const variant *s, void *elements, float *values, int64_t count)
{
    if (s->bf16)
        lk__bf16_widen(elements, values, count);
    else
        memcpy(values, elements, (size_t)count * sizeof *values);
    free(elements);
}

static float *numbers(const variant *s, int64_t count, int64_t seed)
{
    float *x = floats(count);
    uint32_t state = (uint32_t)seed;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
    read_elements(s, elements_of(s, x, count), x, count);
    return x;
}

enum { GUARD = 64 };

static char *guarded_memory(const lk_block_algorithm *algorithm, const lk_geometry *conv)
{
    size_t bytes = algorithm->memory(conv);
    char *memory = aligned_alloc(64, (bytes + 2 * GUARD) / 64 * 64);
    assert_non_null(memory);
    memset(memory + bytes, 0x5a, (bytes + 2 * GUARD) / 64 * 64 - bytes);
    return memory;
}

static void expect_guard(const operands *o)
{
    size_t bytes = o->algorithm->memory(&o->conv);
    for (size_t i = bytes; i < (bytes + 2 * GUARD) / 64 * 64; i++)
        assert_int_equal(o->memory[i], 0x5a);
}

static test_layout layout_of(const lk_block_algorithm *algorithm)
{
    return algorithm->block == 16 ? BLOCKS_OF_16 : BLOCKS_OF_8;
}

static operands make_operands(variant s, const conv_case *c)
{
    const lk_block_algorithm *algorithm = s.algorithm;
    operands o = {.subject = s, .algorithm = algorithm, .conv = conv_of(c)};
    o.x_shape = (test_shape){c->images, c->channels, c->size[0] * c->size[1]};
    o.y_shape = (test_shape){c->images, c->filters, o.conv.out[0] * o.conv.out[1]};
    o.x_count = test_size(PLAIN, o.x_shape);
    o.y_count = test_size(PLAIN, o.y_shape);
    o.w_count = c->filters * c->channels * c->kernel[0] * c->kernel[1];
    o.x = numbers(&s, o.x_count, 1);
    o.w = numbers(&s, o.w_count, 2);
    o.bias = numbers(&s, c->filters, 3);
    o.dy = numbers(&s, o.y_count, 4);
    o.x_blocks = test_arranged(layout_of(algorithm), o.x_shape, o.x, 0);
    o.dy_blocks = test_arranged(layout_of(algorithm), o.y_shape, o.dy, 0);
    o.y = floats(o.y_count);
    o.dx = floats(o.x_count);
    o.dw = floats(o.w_count);
    o.memory = guarded_memory(algorithm, &o.conv);
    return o;
}

static void free_operands(operands *o)
{
    float *all[] = {o->x, o->w, o->bias, o->dy, o->x_blocks, o->dy_blocks, o->y, o->dx, o->dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(o->memory);
}

/* --- expected results --------------------------------------------------------------------------------------------- */

typedef struct sums {
    double *y, *dx, *dw;
    double *y_size, *dx_size, *dw_size; /* sums of magnitudes, for the tolerance */
} sums;

static double *zeros(int64_t count)
{
    double *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    return x;
}

static void add_pixel(const operands *o, sums *s, int64_t n, int64_t f, int64_t c, int64_t tap, int64_t in, int64_t out)
{
    const lk_geometry *conv = &o->conv;
    int64_t x = test_offset(PLAIN, o->x_shape, n, c, in), y = test_offset(PLAIN, o->y_shape, n, f, out);
    int64_t w = (f * conv->channels + c) * conv->kernel[0] * conv->kernel[1] + tap;
    double forward = (double)o->x[x] * (double)o->w[w], back = (double)o->dy[y] * (double)o->w[w];
    double weight = (double)o->dy[y] * (double)o->x[x];
    s->y[y] += forward;
    s->dx[x] += back;
    s->dw[w] += weight;
    s->y_size[y] += fabs(forward);
    s->dx_size[x] += fabs(back);
    s->dw_size[w] += fabs(weight);
}

static void add_tap(const operands *o, sums *s, int64_t n, int64_t f, int64_t c, int64_t tap)
{
    const lk_geometry *conv = &o->conv;
    for (int64_t r = 0; r < conv->out[0]; r++)
        for (int64_t k = 0; k < conv->out[1]; k++) {
            int64_t row = r * conv->stride[0] - conv->padding[0] + tap / conv->kernel[1] * conv->dilation[0];
            int64_t column = k * conv->stride[1] - conv->padding[1] + tap % conv->kernel[1] * conv->dilation[1];
            if (row >= 0 && row < conv->in[0] && column >= 0 && column < conv->in[1])
                add_pixel(o, s, n, f, c, tap, row * conv->in[1] + column, r * conv->out[1] + k);
        }
}

static sums expected(const operands *o)
{
    const lk_geometry *conv = &o->conv;
    sums s = {zeros(o->y_count), zeros(o->x_count), zeros(o->w_count),
              zeros(o->y_count), zeros(o->x_count), zeros(o->w_count)};
    for (int64_t i = 0; i < o->y_count; i++)
        s.y[i] = (double)o->bias[i / o->y_shape.pixels % conv->filters];
    for (int64_t n = 0; n < conv->images; n++)
        for (int64_t f = 0; f < conv->filters; f++)
            for (int64_t c = 0; c < conv->channels; c++)
                for (int64_t tap = 0; tap < conv->kernel[0] * conv->kernel[1]; tap++)
                    add_tap(o, &s, n, f, c, tap);
    return s;
}

static void free_sums(sums *s)
{
    double *all[] = {s->y, s->dx, s->dw, s->y_size, s->dx_size, s->dw_size};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Tolerance relative to the sum of magnitudes. */
static double tolerance_of(const variant *s)
{
    if (strncmp(s->algorithm->name, "direct:", 7) == 0)
        return 1e-6;
    return s->bf16 ? 5e-2 : 1e-5;
}

/* rounded: results are rounded to bf16 if the algorithm is for bf16. Winograd's algorithm with bf16 needs so wide a
 * tolerance that a missing product would not show in one element; it shows in the error of all elements together. */
static void expect_close(const variant *s, int which, const char *what, bool rounded, const float *have,
                         const double *want, const double *size, int64_t count)
{
    const double rounding = s->bf16 && rounded ? 1.0 / 256 : 0, together = s->bf16 ? 3e-2 : 1e-5;
    double errors = 0, values = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)have[i] - want[i]);
        errors += error * error;
        values += want[i] * want[i];
        if (!(error <= tolerance_of(s) * (1 + size[i]) + rounding * fabs(want[i])))
            fail_msg("%s, case %d: %s[%lld] is %.9g, not %.9g", s->algorithm->name, which, what, (long long)i,
                     (double)have[i], want[i]);
    }
    if (!(sqrt(errors) <= together * sqrt(values)))
        fail_msg("%s, case %d: the relative error of %s is %.2g", s->algorithm->name, which, what,
                 sqrt(errors / values));
}

/* Returns the row-major elements of a tensor in blocks; channels fill the blocks. */
static float *plain_of(test_layout layout, test_shape s, const float *blocks)
{
    float *plain = floats(test_size(PLAIN, s));
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t p = 0; p < s.pixels; p++)
                plain[test_offset(PLAIN, s, n, c, p)] = blocks[test_offset(layout, s, n, c, p)];
    return plain;
}

/* Computes y of the first images of the operands, in blocks. `from`: in blocks. bias, passed: may be NULL. */
static void run_forward(const operands *o, const lk_geometry *conv, const float *from, const float *bias, float *y,
                        uint8_t *passed)
{
    const variant *s = &o->subject;
    int64_t x_count = lk__geometry_x_count(conv), y_count = lk__geometry_y_count(conv);
    void *x = elements_of(s, from, x_count), *kernels = elements_of(s, o->w, o->w_count),
         *offsets = bias ? elements_of(s, bias, conv->filters) : NULL, *result = floats(y_count);
    lk_block_weights w = {.plain = kernels};
    o->algorithm->conv2d(conv, x, &w, offsets, result, passed, o->memory);
    read_elements(s, result, y, y_count);
    free(x);
    free(kernels);
    free(offsets);
}

static void run_input_grad(const operands *o, const lk_geometry *conv, const float *from, float *dx)
{
    const variant *s = &o->subject;
    int64_t x_count = lk__geometry_x_count(conv);
    void *dy = elements_of(s, from, lk__geometry_y_count(conv)), *kernels = elements_of(s, o->w, o->w_count),
         *result = floats(x_count);
    lk_block_weights w = {.plain = kernels};
    o->algorithm->input_grad(conv, dy, &w, result, o->memory);
    read_elements(s, result, dx, x_count);
    free(dy);
    free(kernels);
}

static void run(operands *o)
{
    void *x = elements_of(&o->subject, o->x_blocks, o->x_count),
         *dy = elements_of(&o->subject, o->dy_blocks, o->y_count);
    run_forward(o, &o->conv, o->x_blocks, o->bias, o->y, NULL);
    run_input_grad(o, &o->conv, o->dy_blocks, o->dx);
    o->algorithm->weight_grad(&o->conv, dy, x, o->dw, o->memory);
    expect_guard(o);
    free(x);
    free(dy);
}

/* Checks relu of the result, and its bits in the order of the elements in memory. */
static void check_rectified(operands *o, int which)
{
    uint8_t *passed = malloc((size_t)o->y_count / 8 + 1);
    float *rectified = floats(o->y_count);
    assert_non_null(passed);
    passed[o->y_count / 8] = 0x5a;
    run_forward(o, &o->conv, o->x_blocks, o->bias, rectified, passed);
    for (int64_t i = 0; i < o->y_count; i++) {
        bool above = o->y[i] > 0;
        if (rectified[i] != (above ? o->y[i] : 0) || (passed[i / 8] >> i % 8 & 1) != above)
            fail_msg("%s, case %d: relu of %g in memory at %lld is %g, its bit %d", o->algorithm->name, which,
                     (double)o->y[i], (long long)i, (double)rectified[i], passed[i / 8] >> i % 8 & 1);
    }
    assert_int_equal(passed[o->y_count / 8], 0x5a);
    free(passed);
    free(rectified);
}

static void check_case(variant subject, int which)
{
    const lk_block_algorithm *algorithm = subject.algorithm;
    operands o = make_operands(subject, &cases[which]);
    sums s = expected(&o);
    run(&o);
    check_rectified(&o, which);
    float *y = plain_of(layout_of(algorithm), o.y_shape, o.y), *dx = plain_of(layout_of(algorithm), o.x_shape, o.dx);
    expect_close(&subject, which, "y", true, y, s.y, s.y_size, o.y_count);
    expect_close(&subject, which, "dx", true, dx, s.dx, s.dx_size, o.x_count);
    expect_close(&subject, which, "dw", false, o.dw, s.dw, s.dw_size, o.w_count);
    free(y);
    free(dx);
    free_sums(&s);
    free_operands(&o);
}

static bool takes(const lk_block_algorithm *algorithm, const conv_case *c)
{
    lk_geometry conv = conv_of(c);
    return algorithm->takes(&conv);
}

/* Returns the number of cases that the algorithm takes. */
static int check_algorithm(variant subject)
{
    int taken = 0;
    for (int i = 0; i < CASES; i++)
        if (takes(subject.algorithm, &cases[i])) {
            check_case(subject, i);
            taken++;
        }
    return taken;
}

/* Returns whether this processor runs `isa`. Skips the test if it cannot run the first one, on which all others build.
 */
static bool runs(const lk_isa *isa)
{
    if (lk__isa_runs(isa))
        return true;
    print_message("SKIP: this processor does not have %s\n", isa->name);
    if (isa == isas[0])
        skip();
    return false;
}

/* Sets `both` to the algorithms that an instruction set adds to the others, and returns how many these are: tiles, if
 * it has them; otherwise its algorithms for bf16, if it has them; otherwise those for f32. */
static int subjects_of(const lk_isa *isa, variant both[2])
{
    const lk_isa_kernels *kernels = isa->bf16 ? isa->bf16 : isa->f32;
    both[0] = (variant){isa->tiles ? isa->tiles : kernels->direct, isa->bf16 != NULL};
    both[1] = (variant){kernels->winograd, isa->bf16 != NULL};
    return isa->tiles ? 1 : 2;
}

static void results_are_the_sums(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++)
        if (runs(isas[i])) {
            bool wide = isas[i]->width == 16;
            variant both[2];
            int n = subjects_of(isas[i], both);
            assert_int_equal(check_algorithm(both[0]), wide ? 13 : CASES); /* channels fill blocks */
            if (n == 2)
                assert_int_equal(check_algorithm(both[1]), wide ? 7 : 12); /* and 3x3, stride 1, dilation 1 */
        }
}

static void expect_same(const conv_case *c, const lk_block_algorithm *narrow, const lk_block_algorithm *wide)
{
    operands o[2] = {make_operands((variant){narrow, false}, c), make_operands((variant){wide, false}, c)};
    float *y[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        run(&o[i]);
        y[i] = plain_of(layout_of(o[i].algorithm), o[i].y_shape, o[i].y);
        dx[i] = plain_of(layout_of(o[i].algorithm), o[i].x_shape, o[i].dx);
    }
    assert_memory_equal(y[0], y[1], (size_t)o[0].y_count * sizeof(float));
    assert_memory_equal(dx[0], dx[1], (size_t)o[0].x_count * sizeof(float));
    assert_memory_equal(o[0].dw, o[1].dw, (size_t)o[0].w_count * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(y[i]);
        free(dx[i]);
        free_operands(&o[i]);
    }
}

static void bits_do_not_depend_on_the_width(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++)
        for (int c = 0; c < CASES && !isas[i]->bf16 && runs(isas[i]); c++) {
            if (takes(isas[i]->f32->direct, &cases[c]))
                expect_same(&cases[c], isas[0]->f32->direct, isas[i]->f32->direct);
            if (takes(isas[i]->f32->winograd, &cases[c]))
                expect_same(&cases[c], isas[0]->f32->winograd, isas[i]->f32->winograd);
        }
}

/* Each image alone gives the bits that it has in the batch, at every position in a chunk or a tile. */
static void check_positions(variant subject, const conv_case *c)
{
    operands o = make_operands(subject, c);
    lk_geometry one = o.conv;
    int64_t x_image = o.x_count / o.conv.images, y_image = o.y_count / o.conv.images;
    float *y = floats(y_image), *dx = floats(x_image);
    one.images = 1;
    run_forward(&o, &o.conv, o.x_blocks, NULL, o.y, NULL);
    run_input_grad(&o, &o.conv, o.dy_blocks, o.dx);
    for (int64_t n = 0; n < o.conv.images; n++) {
        run_forward(&o, &one, o.x_blocks + n * x_image, NULL, y, NULL);
        run_input_grad(&o, &one, o.dy_blocks + n * y_image, dx);
        assert_memory_equal(y, o.y + n * y_image, (size_t)y_image * sizeof *y);
        assert_memory_equal(dx, o.dx + n * x_image, (size_t)x_image * sizeof *dx);
    }
    free(y);
    free(dx);
    free_operands(&o);
}

static void an_image_does_not_depend_on_its_position(void **state)
{
    static const int several[] = {4, 15, 17, 18, 19};
    (void)state;
    for (int i = 0; i < ISAS; i++)
        if (runs(isas[i])) {
            variant both[2];
            int n = subjects_of(isas[i], both), checked = 0;
            for (int a = 0; a < n; a++)
                for (size_t c = 0; c < sizeof several / sizeof *several; c++)
                    if (takes(both[a].algorithm, &cases[several[c]])) {
                        check_positions(both[a], &cases[several[c]]);
                        checked++;
                    }
            assert_true(checked >= 3);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_sums),
        cmocka_unit_test(bits_do_not_depend_on_the_width),
        cmocka_unit_test(an_image_does_not_depend_on_its_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
