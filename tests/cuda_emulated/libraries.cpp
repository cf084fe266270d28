/* Replaces cuBLASLt and cuDNN by the kernels that need no library, whose sums are in double and rounded once. Operands
 * must have the alignment that the libraries are promised; with TF32 they are rounded to it first. */
#include "cuda/plugin/gpu_direct_conv.h"
#include "cuda/plugin/gpu_direct_matmul.h"
#include "cuda/plugin/gpu_few_inputs.h"

#include "cuda/plugin/gpu.cuh"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct lk_gpu_libraries {
    std::map<std::vector<int64_t>, lk_gpu_choice> chosen; /* by key_of, and engine */
};

static void require_no_exchange(const char *what)
{
    int device = 0;
    cudaGetDevice(&device);
    emulated_require_no_exchange(device, true, what);
}

/* $LOCKSTEP_EMULATED_NVRTC=no: there is none. */
lk_gpu_status lk__gpu_libraries_open(lk_gpu_libraries **libraries)
{
    const char *nvrtc = getenv("LOCKSTEP_EMULATED_NVRTC");
    require_no_exchange("cuBLASLt and cuDNN are started");
    if (nvrtc && strcmp(nvrtc, "no") == 0)
        return lk__gpu_fail(LK_GPU_FAILED, "emulated: NVRTC cannot be loaded");
    *libraries = new lk_gpu_libraries{};
    return LK_GPU_OK;
}

void lk__gpu_libraries_close(lk_gpu_libraries *libraries)
{
    require_no_exchange("cuBLASLt and cuDNN are ended");
    delete libraries;
}

/* $LOCKSTEP_EMULATED_VERSION is the version of cuBLASLt, cuDNN and NVRTC. Each version has algorithms of its own. */
static const char *library_version(void)
{
    const char *setting = getenv("LOCKSTEP_EMULATED_VERSION");
    return setting && *setting ? setting : "1.0.0";
}

void lk__gpu_libraries_versions(lk_gpu_versions *versions)
{
    snprintf(versions->cublas, sizeof versions->cublas, "%s", library_version());
    snprintf(versions->cudnn, sizeof versions->cudnn, "%s", library_version());
    snprintf(versions->nvrtc, sizeof versions->nvrtc, "%s", library_version());
}

void lk__gpu_keep_plans(const lk_gpu_plan_files *)
{
}

static void require_alignment(std::initializer_list<const void *> operands)
{
    for (const void *operand : operands) {
        if ((uintptr_t)operand % LK_GPU_LIBRARY_ALIGNMENT == 0)
            continue;
        fprintf(stderr, "emulated CUDA: an operand of a library is not aligned to %d bytes\n",
                LK_GPU_LIBRARY_ALIGNMENT);
        abort();
    }
}

int64_t lk__gpu_libraries_workspace(void)
{
    return 256;
}

/* --- choices ------------------------------------------------------------------------------------------------------ */

/* $LOCKSTEP_EMULATED_BF16_CONV=no: behaves as a cuDNN without engines for convolutions in bf16. */
static bool is_refused(const lk_gpu_conv_shape &shape)
{
    const char *setting = getenv("LOCKSTEP_EMULATED_BF16_CONV");
    return shape.dtype == LK_BF16 && setting && strcmp(setting, "no") == 0;
}

static lk_gpu_status refuse(void)
{
    return lk__gpu_fail(LK_GPU_UNSUPPORTED, "emulated: no convolutions in bf16");
}

/* Every problem has three engines. The others split an operand into two or three, and add up the results, which gives
 * other bits. */
enum { ENGINES = 3 };

static void write_engine(int splits, lk_gpu_name name)
{
    int length = snprintf(name, sizeof(lk_gpu_name), "emulated:%s", library_version());
    if (splits > 1)
        snprintf(name + length, sizeof(lk_gpu_name) - (size_t)length, "_split%d", splits);
}

static int count_engines(const lk_gpu_choice &c)
{
    return c.kernel == LK_GPU_CONV_WEIGHT_GRAD && lk_gpu_has_few_inputs(&c.conv) ? 1 : ENGINES;
}

static const char *engine_of(const lk_gpu_choice &c)
{
    return c.kernel == LK_GPU_MATMUL ? c.matmul.engine : c.conv.engine;
}

/* 0: there is no such engine for this problem. */
static int splits_of(const lk_gpu_choice &c)
{
    lk_gpu_name name;
    if (!engine_of(c))
        return 1;
    for (int splits = 1; splits <= count_engines(c); splits++) {
        write_engine(splits, name);
        if (strcmp(name, engine_of(c)) == 0 && (c.kernel == LK_GPU_MATMUL || !is_refused(c.conv)))
            return splits;
    }
    return 0;
}

static std::vector<int64_t> key_of(const lk_gpu_choice &c)
{
    const lk_gpu_matmul &m = c.matmul;
    const lk_gpu_conv_shape &s = c.conv;
    const lk_geometry &g = s.geometry;
    if (c.kernel == LK_GPU_MATMUL)
        return {c.kernel,  m.rows,         m.inner,        m.columns,         m.dtype,
                m.y_dtype, m.a_transposed, m.b_transposed, m.bias != nullptr, m.tf32};
    return {c.kernel,      g.images,
            g.channels,    g.filters,
            g.groups,      g.in[0],
            g.in[1],       g.out[0],
            g.out[1],      g.kernel[0],
            g.kernel[1],   g.stride[0],
            g.stride[1],   g.padding[0],
            g.padding[1],  g.dilation[0],
            g.dilation[1], s.dtype,
            s.tf32,        s.direct,
            c.bias,        c.kernel == LK_GPU_CONV_WEIGHT_GRAD ? c.dw_dtype : 0};
}

lk_gpu_status lk__gpu_choose(lk_gpu_stream *stream, lk_gpu_choice *choice)
{
    int splits = splits_of(*choice);
    if (splits == 0)
        return lk__gpu_fail(LK_GPU_NO_ENGINE, "emulated: no engine %s", engine_of(*choice));
    if (choice->kernel != LK_GPU_MATMUL && is_refused(choice->conv))
        return refuse();
    write_engine(splits, choice->name);
    LK_GPU_TRY(lk__gpu_libraries_need(stream));
    lk_gpu_choice of_part = *choice; /* parts are computed as one would be alone */
    of_part.matmul.parts = of_part.conv.parts = 0;
    of_part.matmul.b_is_shared = false;
    of_part.conv.engine = of_part.matmul.engine = nullptr;
    std::vector<int64_t> key = key_of(*choice);
    key.push_back(splits);
    stream->libraries->chosen[key] = of_part;
    return LK_GPU_OK;
}

lk_gpu_status lk__gpu_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most, int *n)
{
    lk_gpu_choice first = *choice;
    LK_GPU_TRY(lk__gpu_choose(stream, &first));
    for (*n = 0; *n < most && *n < count_engines(*choice); ++*n)
        write_engine(*n + 1, names[*n]);
    return LK_GPU_OK;
}

void lk__gpu_choices(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user)
{
    if (!stream->libraries)
        return;
    for (const auto &entry : stream->libraries->chosen)
        visit(user, &entry.second);
}

static lk_gpu_status choose_convolution(lk_gpu_stream *stream, lk_gpu_library_kernel kernel,
                                        const lk_gpu_conv_shape &shape, bool bias, lk_dtype dw_dtype, int *splits)
{
    lk_gpu_choice choice = {};
    choice.kernel = kernel;
    choice.conv = shape;
    choice.bias = bias;
    choice.dw_dtype = dw_dtype;
    *splits = splits_of(choice);
    return lk__gpu_choose(stream, &choice);
}

/* --- TF32 --------------------------------------------------------------------------------------------------------- */

/* Rounds to nearest even, as the inputs of tensor cores are. */
static float to_tf32(float x)
{
    uint32_t bits;
    if (!std::isfinite(x))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Copies of f32 operands. The stream rounds into them, and frees them when the work that reads them is done. */
struct rounded {
    std::vector<std::shared_ptr<std::vector<float>>> copies;

    const void *operator()(lk_gpu_stream *stream, const void *data, int64_t count)
    {
        auto copy = std::make_shared<std::vector<float>>((size_t)count);
        copies.push_back(copy);
        emulated_push(stream->stream, [=]() {
            for (int64_t i = 0; i < count; i++)
                (*copy)[(size_t)i] = to_tf32(((const float *)data)[i]);
        });
        return copy->data();
    }

    lk_gpu_status keep_until_here(lk_gpu_stream *stream, lk_gpu_status status)
    {
        std::vector<std::shared_ptr<std::vector<float>>> kept = copies;
        emulated_push(stream->stream, [kept]() {});
        return status;
    }
};

static bool rounds(bool tf32, lk_dtype dtype)
{
    return tf32 && dtype == LK_F32;
}

/* --- engines ------------------------------------------------------------------------------------------------------ */

/* Images, the operand that is split, and results. */
struct operands_of {
    lk_dtype dtype;
    const void *images;
    int64_t count, of_image;
    lk_dtype result_dtype;
    void *result;
    int64_t results;
};

/* Starts a convolution or product of `images` to `result`; only the first of several adds a bias. */
typedef std::function<lk_gpu_status(const void *images, void *result, bool first)> convolve;

static size_t size_of(lk_dtype dtype)
{
    return dtype == LK_BF16 ? 2 : 4;
}

template <typename T> static void add(T *y, const T *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = narrow<T>(widen(y[i]) + widen(x[i]));
}

static void add_results(const operands_of &o, const void *x)
{
    if (o.result_dtype == LK_BF16)
        add((bf16 *)o.result, (const bf16 *)x, o.results);
    else
        add((float *)o.result, (const float *)x, o.results);
}

/* Part k of an image has the elements k, k + splits …, and zeros elsewhere. */
static lk_gpu_status run_split(lk_gpu_stream *stream, int splits, const operands_of &o, const convolve &run)
{
    auto sum = std::make_shared<std::vector<char>>((size_t)o.results * size_of(o.result_dtype));
    for (int k = 0; k < splits; k++) {
        auto part = std::make_shared<std::vector<char>>((size_t)o.count * size_of(o.dtype));
        size_t size = size_of(o.dtype);
        emulated_push(stream->stream, [=]() {
            for (int64_t i = 0; i < o.count; i++)
                if (i % o.of_image % splits == k)
                    memcpy(part->data() + (size_t)i * size, (const char *)o.images + (size_t)i * size, size);
        });
        LK_GPU_TRY(run(part->data(), k == 0 ? o.result : sum->data(), k == 0));
        emulated_push(stream->stream, [part, sum, k, o]() {
            if (k > 0)
                add_results(o, sum->data());
        });
    }
    return LK_GPU_OK;
}

/* $LOCKSTEP_EMULATED_SLOW: how often the first engine computes its result. */
static lk_gpu_status run_engine(lk_gpu_stream *stream, int splits, const operands_of &o, const convolve &run)
{
    const char *setting = getenv("LOCKSTEP_EMULATED_SLOW");
    if (splits > 1)
        return run_split(stream, splits, o, run);
    for (int i = setting ? atoi(setting) : 1; i > 1; i--)
        LK_GPU_TRY(run(o.images, o.result, true));
    return run(o.images, o.result, true);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

lk_gpu_status lk__gpu_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    lk_gpu_matmul with = *m;
    rounded round;
    lk_gpu_choice choice = {};
    require_alignment({m->a, m->b, m->bias, m->y});
    choice.matmul = *m;
    int splits = splits_of(choice);
    int64_t parts = lk_gpu_parts(m->parts);
    LK_GPU_TRY(lk__gpu_choose(stream, &choice));
    if (rounds(m->tf32, m->dtype)) {
        with.a = round(stream, m->a, lk_gpu_parts(m->parts) * m->rows * m->inner);
        with.b = round(stream, m->b, (m->b_is_shared ? 1 : lk_gpu_parts(m->parts)) * m->inner * m->columns);
    }
    with.relu = m->relu && splits == 1;
    const void *bias = m->bias;
    operands_of o = {m->dtype,   with.a, parts * m->rows * m->inner,  m->inner * m->rows,
                     m->y_dtype, m->y,   parts * m->rows * m->columns};
    LK_GPU_TRY(run_engine(stream, splits, o, [=](const void *a, void *result, bool first) {
        lk_gpu_matmul one = with;
        one.a = a;
        one.y = result;
        one.bias = first ? bias : nullptr;
        return lk__gpu_direct_matmul(stream, &one);
    }));
    lk_gpu_relu relu = {};
    relu.x = relu.y = m->y;
    relu.dtype = m->y_dtype;
    relu.count = o.results;
    return round.keep_until_here(stream, m->relu && splits > 1 ? lk__gpu_relu(stream, &relu) : LK_GPU_OK);
}

/* --- convolutions ------------------------------------------------------------------------------------------------- */

lk_gpu_status lk__gpu_conv(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    lk_gpu_conv with = *a;
    rounded round;
    int splits;
    const lk_geometry &g = a->shape.geometry;
    lk_geometry all = lk_gpu_all_images(&a->shape);
    require_alignment({a->x, a->w, a->bias, a->y});
    LK_GPU_TRY(choose_convolution(stream, LK_GPU_CONV, a->shape, a->bias != nullptr, LK_F32, &splits));
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.x = round(stream, a->x, lk__geometry_x_count(&all));
        with.w = round(stream, a->w, lk__geometry_w_count(&g));
    }
    with.relu = a->relu && splits == 1;
    operands_of o = {a->shape.dtype, with.x, lk__geometry_x_count(&all), lk__geometry_x_count(&g) / g.images,
                     a->shape.dtype, a->y,   lk__geometry_y_count(&all)};
    LK_GPU_TRY(run_engine(stream, splits, o, [=](const void *images, void *result, bool first) {
        lk_gpu_conv one = with;
        one.x = images;
        one.y = result;
        one.bias = first ? a->bias : nullptr;
        return lk__gpu_direct_conv(stream, &one);
    }));
    lk_gpu_relu relu = {};
    relu.x = relu.y = a->y;
    relu.dtype = a->shape.dtype;
    relu.count = o.results;
    return round.keep_until_here(stream, a->relu && splits > 1 ? lk__gpu_relu(stream, &relu) : LK_GPU_OK);
}

lk_gpu_status lk__gpu_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    lk_gpu_conv_input_grad with = *a;
    rounded round;
    int splits;
    const lk_geometry &g = a->shape.geometry;
    lk_geometry all = lk_gpu_all_images(&a->shape);
    require_alignment({a->dy, a->w, a->dx});
    LK_GPU_TRY(choose_convolution(stream, LK_GPU_CONV_INPUT_GRAD, a->shape, false, LK_F32, &splits));
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.dy = round(stream, a->dy, lk__geometry_y_count(&all));
        with.w = round(stream, a->w, lk__geometry_w_count(&g));
    }
    operands_of o = {a->shape.dtype, with.dy, lk__geometry_y_count(&all), lk__geometry_y_count(&g) / g.images,
                     a->shape.dtype, a->dx,   lk__geometry_x_count(&all)};
    return round.keep_until_here(stream, run_engine(stream, splits, o, [=](const void *images, void *result, bool) {
                                     lk_gpu_conv_input_grad one = with;
                                     one.dy = images;
                                     one.dx = result;
                                     return lk__gpu_direct_conv_input_grad(stream, &one);
                                 }));
}

lk_gpu_status lk__gpu_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    lk_gpu_conv_weight_grad with = *a;
    rounded round;
    int splits;
    const lk_geometry &g = a->shape.geometry;
    require_alignment({a->dy, a->x, a->dw});
    if (lk_gpu_has_few_inputs(&a->shape))
        return lk__gpu_few_inputs_weight_grad(stream, a);
    LK_GPU_TRY(choose_convolution(stream, LK_GPU_CONV_WEIGHT_GRAD, a->shape, false, a->dw_dtype, &splits));
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.dy = round(stream, a->dy, lk__geometry_y_count(&g));
        with.x = round(stream, a->x, lk__geometry_x_count(&g));
    }
    operands_of o = {a->shape.dtype, with.x, lk__geometry_x_count(&g), lk__geometry_x_count(&g) / g.images,
                     a->dw_dtype,    a->dw,  lk__geometry_w_count(&g)};
    return round.keep_until_here(stream, run_engine(stream, splits, o, [=](const void *images, void *result, bool) {
                                     lk_gpu_conv_weight_grad one = with;
                                     one.x = images;
                                     one.dw = result;
                                     return lk__gpu_direct_conv_weight_grad(stream, &one);
                                 }));
}
