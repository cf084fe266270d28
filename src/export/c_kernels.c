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
"/* y[p][0 .. n) = bias + the products of a window at x[p] with w [lines, runs, length, LANES]: of `lines` lines, each of\n"
" * `runs` runs of `length` numbers. line, run: the distances from one to the next. */\n"
"static void tile(const float *const x[PLACES], int line, int lines, int run, int runs, int length, const float *w,\n"
"                 const float *bias, float *const y[PLACES], int n)\n"
"{\n"
"    vec sum[PLACES][VECS];\n"
"    UNROLL\n"
"    for (int p = 0; p < PLACES; p++) {\n"
"        UNROLL\n"
"        for (int v = 0; v < VECS; v++)\n"
"            memcpy(&sum[p][v], bias + v * WIDTH, sizeof(vec));\n"
"    }\n"
"    for (int r = 0; r < lines * runs; r++) {\n"
"        int begin = r / runs * line + r % runs * run;\n"
"        for (int i = begin; i < begin + length; i++, w += LANES) {\n"
"            UNROLL\n"
"            for (int v = 0; v < VECS; v++) {\n"
"                vec factor;\n"
"                memcpy(&factor, w + v * WIDTH, sizeof factor);\n"
"                UNROLL\n"
"                for (int p = 0; p < PLACES; p++)\n"
"                    sum[p][v] += x[p][i] * factor;\n"
"            }\n"
"        }\n"
"    }\n"
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
"/* x [.., width, channels] -> y [rows, columns, filters]; w [filters / LANES, tall, wide, channels, LANES]. down, across:\n"
" * from window to window; below, beside: from number to number of a window, 1 without dilation. Places at the end of a\n"
" * row that do not fill a tile are computed again with those before them. */\n"
"static void conv2d(const float *x, int width, int channels, const float *w, const float *bias, float *y, int rows,\n"
"                   int columns, int filters, int tall, int wide, int down, int across, int below, int beside)\n"
"{\n"
"    int runs = beside > 1 ? wide : 1, length = wide / runs * channels;\n"
"    for (int f = 0; f < filters; f += LANES, w += LANES * tall * wide * channels)\n"
"        for (int r = 0; r < rows; r++)\n"
"            for (int c = 0; c < columns; c += PLACES) {\n"
"                const float *from[PLACES];\n"
"                float *to[PLACES];\n"
"                int first = c + PLACES <= columns ? c : columns - PLACES;\n"
"                for (int p = 0; p < PLACES; p++) {\n"
"                    int place = first + p > 0 ? first + p : 0;\n"
"                    from[p] = x + (r * down * width + place * across) * channels;\n"
"                    to[p] = y + (r * columns + place) * filters + f;\n"
"                }\n"
"                tile(from, below * width * channels, tall, beside * channels, runs, length, w, bias + f, to,\n"
"                     filters - f < LANES ? filters - f : LANES);\n"
"            }\n"
"}\n"
"\n";

/* The first loop is for depthwise convolutions, whose groups are vectors. */
static const char conv2d_groups[] =
"/* The same for groups of channels; w [tall, wide, channels / groups, filters]. */\n"
"static void conv2d_groups(const float *x, int width, int channels, const float *w, const float *bias, float *y,\n"
"                          int rows, int columns, int filters, int tall, int wide, int down, int across, int below,\n"
"                          int beside, int groups)\n"
"{\n"
"    int own = channels / groups, made = filters / groups;\n"
"    for (int r = 0; r < rows; r++)\n"
"        for (int c = 0; c < columns; c++, y += filters) {\n"
"            const float *factor = w;\n"
"            memcpy(y, bias, (size_t)filters * sizeof(float));\n"
"            for (int k = 0; k < tall * wide; k++) {\n"
"                int line = r * down + k / wide * below, column = c * across + k % wide * beside;\n"
"                const float *pixel = x + (line * width + column) * channels;\n"
"                for (int i = 0; i < own; i++, factor += filters) {\n"
"                    if (own == 1 && made == 1)\n"
"                        for (int f = 0; f < filters; f++)\n"
"                            y[f] += pixel[f] * factor[f];\n"
"                    else\n"
"                        for (int f = 0; f < filters; f++)\n"
"                            y[f] += pixel[f / made * own + i] * factor[f];\n"
"                }\n"
"            }\n"
"        }\n"
"}\n"
"\n";

static const char pad[] =
"/* x [height, width, channels] -> y, with zeros around it. */\n"
"static void pad(const float *x, int height, int width, int channels, int above, int beside, float *y)\n"
"{\n"
"    int line = (width + 2 * beside) * channels;\n"
"    memset(y, 0, (size_t)(height + 2 * above) * (size_t)line * sizeof(float));\n"
"    for (int r = 0; r < height; r++)\n"
"        memcpy(y + (r + above) * line + beside * channels, x + r * width * channels,\n"
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

static const char group_norm[] =
"/* x, y: [places, pixels, groups, channels]. Each group of a place has a mean and a variance of its own. y may be x. */\n"
"static void group_norm(const float *x, int places, int pixels, int groups, int channels, const float *factor,\n"
"                       const float *shift, float epsilon, float *y)\n"
"{\n"
"    int all = groups * channels;\n"
"    for (int p = 0; p < places; p++, x += pixels * all, y += pixels * all)\n"
"        for (int g = 0; g < all; g += channels) {\n"
"            double sum = 0, squares = 0;\n"
"            for (int i = 0; i < pixels; i++)\n"
"                for (int c = g; c < g + channels; c++)\n"
"                    sum += x[i * all + c];\n"
"            float mean = (float)(sum / (pixels * channels));\n"
"            for (int i = 0; i < pixels; i++)\n"
"                for (int c = g; c < g + channels; c++)\n"
"                    squares += (x[i * all + c] - mean) * (x[i * all + c] - mean);\n"
"            float inverse = 1 / sqrtf((float)(squares / (pixels * channels)) + epsilon);\n"
"            for (int i = 0; i < pixels; i++)\n"
"                for (int c = g; c < g + channels; c++)\n"
"                    y[i * all + c] = (x[i * all + c] - mean) * inverse * factor[c] + shift[c];\n"
"        }\n"
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

static const char multiply[] =
"/* y = a b; step: numbers of b to those of the next pixel, 0 if it has one for each channel. */\n"
"static void multiply(const float *a, const float *b, int pixels, int channels, int step, float *y)\n"
"{\n"
"    for (int i = 0; i < pixels; i++)\n"
"        for (int c = 0; c < channels; c++)\n"
"            y[i * channels + c] = a[i * channels + c] * b[i * step + c];\n"
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
    "                     int wide, int down, int across, int above, int beside)\n" \
    "{\n" \
    "    for (int r = 0; r < rows; r++)\n" \
    "        for (int c = 0; c < columns; c++, y += channels) {\n" \
    "            int top = r * down - above, left = c * across - beside;\n" \
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
    [LK__C_CONV2D_GROUPS] = {"conv2d_groups", conv2d_groups},
    [LK__C_SCALE] = {"scale", scale},
    [LK__C_GROUP_NORM] = {"group_norm", group_norm},
    [LK__C_ADD] = {"add", add},
    [LK__C_MULTIPLY] = {"multiply", multiply},
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
