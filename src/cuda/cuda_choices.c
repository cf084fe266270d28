/* Describes in text which kernels cuBLASLt and cuDNN run, for plans, records and lk_device_implementations. The
 * libraries choose by heuristics that depend on the problem, the GPU and their version, so these texts are part of what
 * identifies a run. */
#include "base/mem.h"
#include "cuda/cuda.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_state.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the machine -------------------------------------------------------------------------------------------------- */

static void cuda_describe_gpu_and_libraries(const lk_device *device, char *text, size_t size)
{
    const lk_gpu_driver *driver = lk__cuda_driver(NULL);
    lk_gpu_info info;
    lk_gpu_versions versions;
    if (!driver || driver->describe(device ? device->index : 0, &info) != LK_GPU_OK) {
        snprintf(text, size, "no GPU");
        return;
    }
    driver->versions(&versions);
    snprintf(text, size, "GPU %s, compute capability %d.%d, CUDA %s, cuBLASLt %s, cuDNN %s, NVRTC %s", info.name,
             info.capability[0], info.capability[1], versions.runtime, versions.cublas, versions.cudnn, versions.nvrtc);
}

/* --- a problem ---------------------------------------------------------------------------------------------------- */

static const char *cuda_choices_operator_of(const lk_gpu_choice *choice)
{
    static const char *const names[] = {
        [LK_GPU_MATMUL] = "matmul",
        [LK_GPU_CONV] = "conv2d",
        [LK_GPU_CONV_INPUT_GRAD] = "conv2d_input_grad",
        [LK_GPU_CONV_WEIGHT_GRAD] = "conv2d_weight_grad",
    };
    return names[choice->kernel];
}

/* The format that products are computed from. */
static const char *cuda_choices_precision_name(lk_dtype dtype, bool tf32)
{
    return dtype == LK_F32 && tf32 ? "tf32" : lk_dtype_name(dtype);
}

static void cuda_choices_write_product(const lk_gpu_matmul *m, char *text, size_t size)
{
    snprintf(text, size, "%s a[%" PRId64 ",%" PRId64 "]%s b[%" PRId64 ",%" PRId64 "]%s%s to %s",
             cuda_choices_precision_name(m->dtype, m->tf32), m->rows, m->inner, m->a_transposed ? " transposed" : "",
             m->inner, m->columns, m->b_transposed ? " transposed" : "", m->bias ? " bias" : "",
             lk_dtype_name(m->y_dtype));
}

static void cuda_choices_write_convolution(const lk_gpu_choice *choice, char *text, size_t size)
{
    const lk_gpu_conv_shape *s = &choice->conv;
    const lk_geometry *g = &s->geometry;
    int used =
        snprintf(text, size,
                 "%s x[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] w[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                 "] stride %" PRId64 "x%" PRId64 " padding %" PRId64 "x%" PRId64 " dilation %" PRId64 "x%" PRId64,
                 cuda_choices_precision_name(s->dtype, s->tf32), g->images, g->channels, g->in[0], g->in[1], g->filters,
                 g->channels / g->groups, g->kernel[0], g->kernel[1], g->stride[0], g->stride[1], g->padding[0],
                 g->padding[1], g->dilation[0], g->dilation[1]);
    if (g->groups > 1)
        used += snprintf(text + used, size - (size_t)used, " groups %" PRId64, g->groups);
    snprintf(text + used, size - (size_t)used, "%s%s%s", choice->bias ? " bias" : "", s->direct ? " direct" : "",
             choice->kernel == LK_GPU_CONV_WEIGHT_GRAD && choice->dw_dtype != s->dtype ? " to f32" : "");
}

static void write_choice(const lk_gpu_choice *from, lk_call_choice *to)
{
    to->op = cuda_choices_operator_of(from);
    if (from->kernel == LK_GPU_MATMUL)
        cuda_choices_write_product(&from->matmul, to->problem, sizeof to->problem);
    else
        cuda_choices_write_convolution(from, to->problem, sizeof to->problem);
    snprintf(to->implementation, sizeof to->implementation, "%s", from->name);
}

/* --- the choice for one call -------------------------------------------------------------------------------------- */

static lk_status cuda_choices_choose_kernel(lk_device *device, void *user)
{
    const lk_cuda *cuda = device->state;
    return lk__cuda_check(cuda->driver, cuda->driver->choose(cuda->stream, user));
}

typedef struct conv_question {
    const lk_call *call;
    lk_gpu_choice choice;
} conv_question;

/* Falls back to f32 if cuDNN has no engine for bf16, as cuda_conv.c does. */
static lk_status cuda_choices_choose_convolution(lk_device *device, void *user)
{
    conv_question *q = user;
    lk_status status = cuda_choices_choose_kernel(device, &q->choice);
    if (status != LK_ERR_UNSUPPORTED || q->call->dtype != LK_BF16)
        return status;
    lk_error_clear();
    lk__cuda_conv_choice(q->call, LK_F32, &q->choice);
    return cuda_choices_choose_kernel(device, &q->choice);
}

static lk_status choice_of_convolution(const lk_call *call, lk_call_choice *choice)
{
    conv_question q = {.call = call};
    if (!lk__cuda_conv_choice(call, call->dtype, &q.choice))
        return LK_OK;
    LK_TRY(lk__device_ask(call->device, cuda_choices_choose_convolution, &q));
    write_choice(&q.choice, choice);
    return LK_OK;
}

static lk_status choice_of_product(const lk_call *call, lk_call_choice *choice)
{
    lk_gpu_choice asked;
    if (!lk__cuda_matmul_choice(call, &asked))
        return LK_OK;
    LK_TRY(lk__device_ask(call->device, cuda_choices_choose_kernel, &asked));
    write_choice(&asked, choice);
    return LK_OK;
}

static lk_status choice_of_call(const lk_call *call, lk_call_choice *choice)
{
    choice->op = NULL;
    switch (call->op->id) {
    case LK_OP_MATMUL:
    case LK_OP_DENSE_ACT:
        return choice_of_product(call, choice);
    case LK_OP_CONV2D:
    case LK_OP_CONV2D_INPUT_GRAD:
    case LK_OP_CONV2D_WEIGHT_GRAD:
        return choice_of_convolution(call, choice);
    default:
        return LK_OK;
    }
}

const lk_choices lk__cuda_choices = {.describe = cuda_describe_gpu_and_libraries, .of_call = choice_of_call};

/* --- all choices of a device -------------------------------------------------------------------------------------- */

typedef struct gathering {
    lk_call_choice *list;
    int64_t n, capacity;
    lk_status status;
} gathering;

static void append_choice(void *user, const lk_gpu_choice *choice)
{
    gathering *g = user;
    if (g->status == LK_OK)
        g->status = LK_GROW(g->list, &g->capacity, g->n + 1);
    if (g->status == LK_OK)
        write_choice(choice, &g->list[g->n++]);
}

static lk_status append_all_choices(lk_device *device, void *user)
{
    gathering *g = user;
    const lk_cuda *cuda = device->state;
    cuda->driver->choices(cuda->stream, append_choice, g);
    return g->status;
}

static int compare_choices(const void *a, const void *b)
{
    const lk_call_choice *left = a, *right = b;
    int order = strcmp(left->op, right->op);
    return order ? order : strcmp(left->problem, right->problem);
}

lk_status lk__cuda_implementations(lk_device *device, lk_implementation_fn visit, void *user)
{
    gathering g = {.status = LK_OK};
    lk_status status = lk__device_ask(device, append_all_choices, &g);
    if (status == LK_OK && g.n > 0)
        qsort(g.list, (size_t)g.n, sizeof *g.list, compare_choices);
    for (int64_t i = 0; status == LK_OK && i < g.n; i++)
        visit(user, g.list[i].op, g.list[i].problem, g.list[i].implementation);
    lk__free(g.list);
    return status;
}
