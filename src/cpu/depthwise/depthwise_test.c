/* Gradients of the weights of depthwise convolutions on every instruction set, against sums in double. */
#include "cpu/depthwise/depthwise.h"

#include "cpu/isa.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

typedef struct conv_case {
    int64_t images, channels;
    int64_t size[2], kernel[2], stride[2], padding[2], dilation[2];
} conv_case;

static const lk_isa *const isas[] = {&lk__isa_avx2, &lk__isa_avx512, &lk__isa_emulated};
enum { ISAS = sizeof isas / sizeof *isas };

/* Channels that fill blocks of sixteen, of eight or none, lanes that repeat after one to sixteen images or never,
 * planes that are narrower than the kernel, odd and even numbers of rows, kernels of several tiles, strides, dilation,
 * padding beyond the kernel's reach, taps that connect nothing. */
static const conv_case cases[] = {
    {3, 16, {14, 14}, {7, 7}, {1, 1}, {3, 3}, {1, 1}},  {5, 24, {7, 7}, {7, 7}, {1, 1}, {3, 3}, {1, 1}},
    {2, 32, {9, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},   {4, 20, {5, 6}, {3, 5}, {1, 2}, {1, 2}, {1, 1}},
    {35, 3, {6, 5}, {2, 3}, {1, 1}, {0, 1}, {1, 1}},    {3, 17, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 2, {8, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},     {6, 48, {1, 2}, {7, 7}, {1, 1}, {3, 3}, {1, 1}},
    {2, 16, {13, 25}, {4, 16}, {1, 1}, {2, 8}, {1, 1}}, {2, 40, {12, 11}, {3, 3}, {1, 1}, {2, 4}, {2, 4}},
    {2, 16, {3, 3}, {2, 2}, {1, 1}, {4, 5}, {1, 1}},    {3, 24, {10, 3}, {3, 3}, {2, 1}, {5, 5}, {1, 5}},
    {2, 6, {11, 9}, {1, 1}, {3, 2}, {0, 0}, {1, 1}},
};
enum { CASES = sizeof cases / sizeof *cases };

static lk_geometry conv_of(const conv_case *c)
{
    lk_geometry conv = {.images = c->images, .channels = c->channels, .filters = c->channels, .groups = c->channels};
    for (int i = 0; i < 2; i++) {
        conv.in[i] = c->size[i];
        conv.kernel[i] = c->kernel[i];
        conv.stride[i] = c->stride[i];
        conv.padding[i] = c->padding[i];
        conv.dilation[i] = c->dilation[i];
        conv.out[i] = (c->size[i] + 2 * c->padding[i] - (c->kernel[i] - 1) * c->dilation[i] - 1) / c->stride[i] + 1;
    }
    return conv;
}

/* A tensor of activations, row-major and in blocks. */
typedef struct operand {
    test_shape shape;
    float *plain;
} operand;

static operand operand_of(const lk_geometry *conv, const int64_t size[2], uint32_t seed)
{
    test_shape shape = {conv->images, conv->channels, size[0] * size[1]};
    operand o = {shape, malloc((size_t)test_size(PLAIN, shape) * sizeof(float))};
    assert_non_null(o.plain);
    for (int64_t i = 0; i < test_size(PLAIN, shape); i++) {
        seed = seed * 1664525u + 1013904223u;
        o.plain[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return o;
}

/* Returns the operand in blocks, aligned; the caller frees it. */
static float *in_blocks(const operand *o, int width)
{
    test_layout layout = width == 16 ? BLOCKS_OF_16 : BLOCKS_OF_8;
    size_t bytes = (size_t)test_size(layout, o->shape) * sizeof(float);
    float *arranged = test_arranged(layout, o->shape, o->plain, 0),
          *aligned = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(aligned);
    memcpy(aligned, arranged, bytes);
    free(arranged);
    return aligned;
}

/* Sums in double; *size is the sum of the products' sizes, to which rounding errors are proportional. */
static double sum_of(const lk_geometry *g, const float *dy, const float *x, int64_t c, int64_t row, int64_t column,
                     double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t n = 0; n < g->images; n++)
        for (int64_t i = 0; i < g->out[0]; i++)
            for (int64_t j = 0; j < g->out[1]; j++) {
                int64_t y = i * g->stride[0] - g->padding[0] + row * g->dilation[0],
                        z = j * g->stride[1] - g->padding[1] + column * g->dilation[1], plane = n * g->channels + c;
                if (y < 0 || y >= g->in[0] || z < 0 || z >= g->in[1])
                    continue;
                double product = (double)dy[(plane * g->out[0] + i) * g->out[1] + j] *
                                 (double)x[(plane * g->in[0] + y) * g->in[1] + z];
                sum += product;
                *size += fabs(product);
            }
    return sum;
}

static void expect_sums(const lk_geometry *g, const operand *dy, const operand *x, const float *dw)
{
    for (int64_t c = 0; c < g->channels; c++)
        for (int64_t row = 0; row < g->kernel[0]; row++)
            for (int64_t column = 0; column < g->kernel[1]; column++, dw++) {
                double size, want = sum_of(g, dy->plain, x->plain, c, row, column, &size);
                if (!(fabs((double)*dw - want) <= 1e-6 * size))
                    fail_msg("channel %lld, tap %lld, %lld: %.9g, not %.9g", (long long)c, (long long)row,
                             (long long)column, (double)*dw, want);
            }
}

enum { GUARD = 64 };

/* Computes dw, which the caller frees. Nothing is written beyond the kernel's memory. */
static float *gradient(const lk_depthwise_kernels *kernels, const lk_geometry *g, lk_depthwise_planes dy,
                       lk_depthwise_planes x)
{
    size_t bytes = kernels->memory(g), all = (bytes + GUARD + 63) / 64 * 64;
    char *memory = aligned_alloc(64, all);
    float *dw = malloc((size_t)lk__geometry_w_count(g) * sizeof *dw);
    assert_true(memory && dw);
    memset(memory, 0x5a, all);
    kernels->weight_grad(g, dy, x, dw, memory);
    for (size_t i = bytes; i < all; i++)
        assert_int_equal(memory[i], 0x5a);
    free(memory);
    return dw;
}

static void expect_equal_bits(const lk_geometry *g, float *a, const float *b)
{
    assert_memory_equal(a, b, (size_t)lk__geometry_w_count(g) * sizeof *a);
    free(a);
}

/* Gradients on one instruction set from row-major operands; they are the same from blocks. */
static float *gradient_in_every_layout(const lk_isa *isa, const lk_geometry *g, const operand *dy, const operand *x)
{
    const lk_depthwise_kernels *kernels = isa->f32->depthwise;
    lk_depthwise_planes plain_dy = {dy->plain, false}, plain_x = {x->plain, false};
    float *dw = gradient(kernels, g, plain_dy, plain_x);
    if (g->channels % isa->width != 0)
        return dw;
    float *dy_blocks = in_blocks(dy, isa->width), *x_blocks = in_blocks(x, isa->width);
    lk_depthwise_planes blocks_of_dy = {dy_blocks, true}, blocks_of_x = {x_blocks, true};
    expect_equal_bits(g, gradient(kernels, g, blocks_of_dy, blocks_of_x), dw);
    expect_equal_bits(g, gradient(kernels, g, plain_dy, blocks_of_x), dw);
    expect_equal_bits(g, gradient(kernels, g, blocks_of_dy, plain_x), dw);
    free(dy_blocks);
    free(x_blocks);
    return dw;
}

/* The result is right, and has the same bits in every layout and on every instruction set. */
static void check_case(const conv_case *c)
{
    lk_geometry g = conv_of(c);
    operand dy = operand_of(&g, g.out, 1), x = operand_of(&g, g.in, 2);
    float *first = NULL;
    for (int i = 0; i < ISAS; i++) {
        if (!lk__isa_runs(isas[i]))
            continue;
        float *dw = gradient_in_every_layout(isas[i], &g, &dy, &x);
        if (first) {
            expect_equal_bits(&g, dw, first);
        } else {
            expect_sums(&g, &dy, &x, dw);
            first = dw;
        }
    }
    free(first);
    free(dy.plain);
    free(x.plain);
}

static void gradients_are_sums_with_the_same_bits_everywhere(void **state)
{
    (void)state;
    if (!lk__isa_runs(&lk__isa_avx2)) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    for (int i = 0; i < CASES; i++)
        check_case(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_sums_with_the_same_bits_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
