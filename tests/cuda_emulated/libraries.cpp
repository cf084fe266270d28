/* Replaces cuBLASLt and cuDNN by the kernels that need no library, whose sums are in double and rounded once. Operands
 * must have the alignment that the libraries are promised; with TF32 they are rounded to it first. */
#include "cuda/plugin/gpu_direct_conv.h"
#include "cuda/plugin/gpu_direct_matmul.h"
#include "cuda/plugin/gpu_few_inputs.h"

#include "cuda/plugin/gpu.cuh"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct lk_gpu_libraries {
    std::map<std::vector<int64_t>, lk_gpu_choice> chosen; /* by key_of */
};

static void require_no_exchange(const char *what)
{
    int device = 0;
    cudaGetDevice(&device);
    emulated_require_no_exchange(device, true, what);
}

lk_gpu_status lk__gpu_libraries_open(lk_gpu_libraries **libraries)
{
    require_no_exchange("cuBLASLt and cuDNN are started");
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
    if (choice->kernel != LK_GPU_MATMUL && is_refused(choice->conv))
        return refuse();
    snprintf(choice->name, sizeof choice->name, "emulated:%s", library_version());
    LK_GPU_TRY(lk__gpu_libraries_need(stream));
    lk_gpu_choice of_part = *choice; /* parts are computed as one would be alone */
    of_part.matmul.parts = of_part.conv.parts = 0;
    of_part.matmul.b_is_shared = false;
    stream->libraries->chosen[key_of(*choice)] = of_part;
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
                                        const lk_gpu_conv_shape &shape, bool bias, lk_dtype dw_dtype)
{
    lk_gpu_choice choice = {};
    choice.kernel = kernel;
    choice.conv = shape;
    choice.bias = bias;
    choice.dw_dtype = dw_dtype;
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

/* --- products ----------------------------------------------------------------------------------------------------- */

lk_gpu_status lk__gpu_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    lk_gpu_matmul with = *m;
    rounded round;
    lk_gpu_choice choice = {};
    require_alignment({m->a, m->b, m->bias, m->y});
    choice.matmul = *m;
    LK_GPU_TRY(lk__gpu_choose(stream, &choice));
    if (rounds(m->tf32, m->dtype)) {
        with.a = round(stream, m->a, lk_gpu_parts(m->parts) * m->rows * m->inner);
        with.b = round(stream, m->b, (m->b_is_shared ? 1 : lk_gpu_parts(m->parts)) * m->inner * m->columns);
    }
    return round.keep_until_here(stream, lk__gpu_direct_matmul(stream, &with));
}

/* --- convolutions ------------------------------------------------------------------------------------------------- */

lk_gpu_status lk__gpu_conv(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    lk_gpu_conv with = *a;
    rounded round;
    lk_geometry all = lk_gpu_all_images(&a->shape);
    require_alignment({a->x, a->w, a->bias, a->y});
    LK_GPU_TRY(choose_convolution(stream, LK_GPU_CONV, a->shape, a->bias != nullptr, LK_F32));
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.x = round(stream, a->x, lk__geometry_x_count(&all));
        with.w = round(stream, a->w, lk__geometry_w_count(&a->shape.geometry));
    }
    return round.keep_until_here(stream, lk__gpu_direct_conv(stream, &with));
}

lk_gpu_status lk__gpu_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    lk_gpu_conv_input_grad with = *a;
    rounded round;
    lk_geometry all = lk_gpu_all_images(&a->shape);
    require_alignment({a->dy, a->w, a->dx});
    LK_GPU_TRY(choose_convolution(stream, LK_GPU_CONV_INPUT_GRAD, a->shape, false, LK_F32));
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.dy = round(stream, a->dy, lk__geometry_y_count(&all));
        with.w = round(stream, a->w, lk__geometry_w_count(&a->shape.geometry));
    }
    return round.keep_until_here(stream, lk__gpu_direct_conv_input_grad(stream, &with));
}

lk_gpu_status lk__gpu_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    lk_gpu_conv_weight_grad with = *a;
    rounded round;
    lk_geometry all = lk_gpu_all_images(&a->shape);
    require_alignment({a->dy, a->x, a->dw});
    if (lk_gpu_has_few_inputs(&a->shape))
        return lk__gpu_few_inputs_weight_grad(stream, a);
    LK_GPU_TRY(choose_convolution(stream, LK_GPU_CONV_WEIGHT_GRAD, a->shape, false, a->dw_dtype));
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.dy = round(stream, a->dy, lk__geometry_y_count(&all));
        with.x = round(stream, a->x, lk__geometry_x_count(&all));
    }
    return round.keep_until_here(stream, lk__gpu_direct_conv_weight_grad(stream, &with));
}
