#include "export/c_kernels.h"

/* The strings below are laid out as the text that they produce. */
/* clang-format off */

/* Uses vectors as wide as the processor's registers, or single numbers. Either way 16 filters at 4 positions are summed
 * in registers. gcc unrolls the loops over them only if it is told to. */
static const char conv2d[] =
"#if defined(__AVX512F__)\n"
"typedef float vec __attribute__((vector_size(64)));\n"
"#elif defined(__AVX__)\n"
"typedef float vec __attribute__((vector_size(32)));\n"
"#elif defined(__GNUC__)\n"
"typedef float vec __attribute__((vector_size(16)));\n"
"#else\n"
"typedef float vec;\n"
"#endif\n"
"\n"
"#if defined(__GNUC__) && !defined(__clang__)\n"
"#define UNROLL _Pragma(\"GCC unroll 16\")\n"
"#else\n"
"#define UNROLL\n"
"#endif\n"
"\n"
"enum { LANES = 16, PLACES = 4, WIDTH = sizeof(vec) / sizeof(float), VECS = LANES / WIDTH };\n"
"\n"
"/* y[p][0 .. n) = bias + the products of a window at x[p], of `lines` times `run` numbers, with w [lines, run, LANES]. */\n"
"static void tile(const float *const x[PLACES], int line, int lines, int run, const float *w, const float *bias,\n"
"                 float *const y[PLACES], int n)\n"
"{\n"
"    vec sum[PLACES][VECS];\n"
"    UNROLL\n"
"    for (int p = 0; p < PLACES; p++) {\n"
"        UNROLL\n"
"        for (int v = 0; v < VECS; v++)\n"
"            memcpy(&sum[p][v], bias + v * WIDTH, sizeof(vec));\n"
"    }\n"
"    for (int r = 0; r < lines; r++)\n"
"        for (int i = r * line; i < r * line + run; i++, w += LANES) {\n"
"            UNROLL\n"
"            for (int v = 0; v < VECS; v++) {\n"
"                vec factor;\n"
"                memcpy(&factor, w + v * WIDTH, sizeof factor);\n"
"                UNROLL\n"
"                for (int p = 0; p < PLACES; p++)\n"
"                    sum[p][v] += x[p][i] * factor;\n"
"            }\n"
"        }\n"
"    UNROLL\n"
"    for (int p = 0; p < PLACES; p++) {\n"
"        float whole[LANES];\n"
"        UNROLL\n"
"        for (int v = 0; v < VECS; v++)\n"
"            memcpy(whole + v * WIDTH, &sum[p][v], sizeof(vec));\n"
"        memcpy(y[p], whole, (size_t)n * sizeof(float));\n"
"    }\n"
"}\n"
"\n"
"/* x [.., width, channels] -> y [rows, columns, filters]; w [filters / LANES, kernel, kernel, channels, LANES]. Places at\n"
" * the end of a row that do not fill a tile are computed again with those before them. */\n"
"static void conv2d(const float *x, int width, int channels, const float *w, const float *bias, float *y, int rows,\n"
"                   int columns, int filters, int kernel, int stride)\n"
"{\n"
"    for (int f = 0; f < filters; f += LANES, w += LANES * kernel * kernel * channels)\n"
"        for (int r = 0; r < rows; r++)\n"
"            for (int c = 0; c < columns; c += PLACES) {\n"
"                const float *from[PLACES];\n"
"                float *to[PLACES];\n"
"                int first = c + PLACES <= columns ? c : columns - PLACES;\n"
"                for (int p = 0; p < PLACES; p++) {\n"
"                    int place = first + p > 0 ? first + p : 0;\n"
"                    from[p] = x + (r * stride * width + place * stride) * channels;\n"
"                    to[p] = y + (r * columns + place) * filters + f;\n"
"                }\n"
"                tile(from, width * channels, kernel, kernel * channels, w, bias + f, to,\n"
"                     filters - f < LANES ? filters - f : LANES);\n"
"            }\n"
"}\n"
"\n";

static const char pad[] =
"/* x [height, width, channels] -> y, with zeros around it. */\n"
"static void pad(const float *x, int height, int width, int channels, int padding, float *y)\n"
"{\n"
"    int line = (width + 2 * padding) * channels;\n"
"    memset(y, 0, (size_t)(height + 2 * padding) * (size_t)line * sizeof(float));\n"
"    for (int r = 0; r < height; r++)\n"
"        memcpy(y + (r + padding) * line + padding * channels, x + r * width * channels,\n"
"               (size_t)(width * channels) * sizeof(float));\n"
"}\n"
"\n";

static const char prepare[] =
"/* x [channels, pixels] -> y [pixels, channels]. mean NULL: as they are. */\n"
"static void prepare(const float *x, int pixels, int channels, const float *mean, const float *divisor, float *y)\n"
"{\n"
"    for (int c = 0; c < channels; c++)\n"
"        for (int i = 0; i < pixels; i++)\n"
"            y[i * channels + c] = mean ? (x[c * pixels + i] - mean[c]) / divisor[c] : x[c * pixels + i];\n"
"}\n"
"\n";

static const char prepare_bytes[] =
"static void prepare_bytes(const unsigned char *x, int pixels, int channels, const float *mean, const float *divisor,\n"
"                          float *y)\n"
"{\n"
"    for (int i = 0; i < pixels; i++)\n"
"        for (int c = 0; c < channels; c++) {\n"
"            float value = (float)x[i * channels + c] / 255.0f;\n"
"            y[i * channels + c] = mean ? (value - mean[c]) / divisor[c] : value;\n"
"        }\n"
"}\n"
"\n";

static const char scale[] =
"/* y = factor x + shift for each channel; y may be x. */\n"
"static void scale(const float *x, int pixels, int channels, const float *factor, const float *shift, float *y)\n"
"{\n"
"    for (int i = 0; i < pixels; i++)\n"
"        for (int c = 0; c < channels; c++)\n"
"            y[i * channels + c] = x[i * channels + c] * factor[c] + shift[c];\n"
"}\n"
"\n";

static const char add[] =
"/* y may be a or b. */\n"
"static void add(const float *a, const float *b, int count, float *y)\n"
"{\n"
"    for (int i = 0; i < count; i++)\n"
"        y[i] = a[i] + b[i];\n"
"}\n"
"\n";

static const char concat[] =
"/* a [pixels, first], b [pixels, second] -> y [pixels, first + second] */\n"
"static void concat(const float *a, const float *b, int pixels, int first, int second, float *y)\n"
"{\n"
"    for (int i = 0; i < pixels; i++, y += first + second) {\n"
"        memcpy(y, a + i * first, (size_t)first * sizeof(float));\n"
"        memcpy(y + first, b + i * second, (size_t)second * sizeof(float));\n"
"    }\n"
"}\n"
"\n";

/* The beginning of a pooling kernel: loops over windows and finds the part of each that is not padding. */
#define WINDOWS(name) \
    "static void " name "(const float *x, int height, int width, int channels, float *y, int rows, int columns, int tall,\n" \
    "                     int wide, int stride, int padding)\n" \
    "{\n" \
    "    for (int r = 0; r < rows; r++)\n" \
    "        for (int c = 0; c < columns; c++, y += channels) {\n" \
    "            int top = r * stride - padding, left = c * stride - padding;\n" \
    "            int bottom = top + tall < height ? top + tall : height, right = left + wide < width ? left + wide : width;\n" \
    "            top = top > 0 ? top : 0;\n" \
    "            left = left > 0 ? left : 0;\n"

static const char max_pool[] =
"/* Windows of tall x wide; padding is not looked at. */\n"
WINDOWS("max_pool")
"            for (int k = 0; k < channels; k++)\n"
"                y[k] = -HUGE_VALF;\n"
"            for (int i = top; i < bottom; i++)\n"
"                for (int j = left; j < right; j++) {\n"
"                    const float *pixel = x + (i * width + j) * channels;\n"
"                    for (int k = 0; k < channels; k++)\n"
"                        y[k] = pixel[k] > y[k] ? pixel[k] : y[k];\n"
"                }\n"
"        }\n"
"}\n"
"\n";

static const char avg_pool[] =
"/* Windows of tall x wide; padding is neither summed nor counted. */\n"
WINDOWS("avg_pool")
"            for (int k = 0; k < channels; k++)\n"
"                y[k] = 0;\n"
"            for (int i = top; i < bottom; i++)\n"
"                for (int j = left; j < right; j++)\n"
"                    for (int k = 0; k < channels; k++)\n"
"                        y[k] += x[(i * width + j) * channels + k];\n"
"            for (int k = 0; k < channels; k++)\n"
"                y[k] /= (float)((bottom - top) * (right - left));\n"
"        }\n"
"}\n"
"\n";

static const char to_planes[] =
"/* x [pixels, channels] -> y [channels, pixels] */\n"
"static void to_planes(const float *x, int pixels, int channels, float *y)\n"
"{\n"
"    for (int c = 0; c < channels; c++)\n"
"        for (int i = 0; i < pixels; i++)\n"
"            y[c * pixels + i] = x[i * channels + c];\n"
"}\n"
"\n";

static const char from_planes[] =
"/* x [channels, pixels] -> y [pixels, channels] */\n"
"static void from_planes(const float *x, int pixels, int channels, float *y)\n"
"{\n"
"    for (int i = 0; i < pixels; i++)\n"
"        for (int c = 0; c < channels; c++)\n"
"            y[i * channels + c] = x[c * pixels + i];\n"
"}\n"
"\n";

#define ACTIVATION(name, expression)                                           \
    "static void " name "(const float *x, int count, float alpha, float *y)\n" \
    "{\n"                                                                      \
    "    (void)alpha;\n"                                                       \
    "    for (int i = 0; i < count; i++)\n"                                    \
    "        y[i] = " expression ";\n"                                         \
    "}\n"                                                                      \
    "\n"

static const struct {
    const char *name, *text;
} kernels[LK__C_KERNEL_COUNT] = {
    [LK__C_PREPARE] = {"prepare", prepare},
    [LK__C_PREPARE_BYTES] = {"prepare_bytes", prepare_bytes},
    [LK__C_PAD] = {"pad", pad},
    [LK__C_CONV2D] = {"conv2d", conv2d},
    [LK__C_SCALE] = {"scale", scale},
    [LK__C_ADD] = {"add", add},
    [LK__C_CONCAT] = {"concat", concat},
    [LK__C_MAX_POOL] = {"max_pool", max_pool},
    [LK__C_AVG_POOL] = {"avg_pool", avg_pool},
    [LK__C_TO_PLANES] = {"to_planes", to_planes},
    [LK__C_FROM_PLANES] = {"from_planes", from_planes},
    [LK__C_RELU] = {"relu", ACTIVATION("relu", "x[i] > 0 ? x[i] : 0")},
    [LK__C_LEAKY_RELU] = {"leaky_relu", ACTIVATION("leaky_relu", "x[i] > 0 ? x[i] : alpha * x[i]")},
    [LK__C_ELU] = {"elu", ACTIVATION("elu", "x[i] > 0 ? x[i] : alpha * expm1f(x[i])")},
    [LK__C_SIGMOID] = {"sigmoid", ACTIVATION("sigmoid", "1 / (1 + expf(-x[i]))")},
    [LK__C_TANH] = {"hyperbolic_tangent", ACTIVATION("hyperbolic_tangent", "tanhf(x[i])")},
    [LK__C_SILU] = {"silu", ACTIVATION("silu", "x[i] / (1 + expf(-x[i]))")},
    [LK__C_GELU] = {"gelu", ACTIVATION("gelu", "0.5f * x[i] * (1 + erff(x[i] * 0.70710678f))")},
    [LK__C_SOFTPLUS] = {"softplus", ACTIVATION("softplus", "(x[i] > 0 ? x[i] : 0) + log1pf(expf(-fabsf(x[i])))")},
};

static const char loader[] =
"/* FNV-1a of 64 bits, which every change of a single byte changes. */\n"
"static uint64_t hash(const unsigned char *bytes, size_t size)\n"
"{\n"
"    uint64_t h = 0xCBF29CE484222325;\n"
"    for (size_t i = 0; i < size; i++)\n"
"        h = (h ^ bytes[i]) * 0x100000001B3;\n"
"    return h;\n"
"}\n"
"\n"
"/* Little-endian numbers, as they were read, in the machine's own order. */\n"
"static void decode(float *values)\n"
"{\n"
"    for (size_t i = 0; i < WEIGHTS; i++) {\n"
"        unsigned char b[4];\n"
"        memcpy(b, &values[i], sizeof b);\n"
"        uint32_t bits = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;\n"
"        memcpy(&values[i], &bits, sizeof bits);\n"
"    }\n"
"}\n"
"\n";
/* clang-format on */

const char *lk__c_kernel_name(lk_c_kernel kernel)
{
    return kernels[kernel].name;
}

const char *lk__c_kernel_text(lk_c_kernel kernel)
{
    return kernels[kernel].text;
}

const char *lk__c_loader_text(void)
{
    return loader;
}
