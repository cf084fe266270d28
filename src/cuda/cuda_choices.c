/* Describes in text which kernels cuBLASLt and cuDNN run, for plans, records, tunings and lk_device_implementations.
 * The libraries choose by heuristics that depend on the problem, the GPU and their version, so these texts are part of
 * what identifies a run. A tuning can make a library take another engine. */
#include "base/mem.h"
#include "cuda/cuda.h"
#include "cuda/cuda_kernels.h"
#include "core/tuning.h"
#include "cuda/cuda_state.h"
#include "ops/conv2d.h"
#include "ops/conv_problem.h"
#include "ops/geometry.h"
#include "ops/ops.h"
#include "ops/product_problem.h"

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

static void cuda_choices_write_product(const lk_gpu_matmul *m, char *text, size_t size)
{
    const lk_product_problem p = {.dtype = m->dtype,
                                  .to = m->y_dtype,
                                  .rows = m->rows,
                                  .inner = m->inner,
                                  .columns = m->columns,
                                  .a_transposed = m->a_transposed,
                                  .b_transposed = m->b_transposed,
                                  .bias = m->bias != NULL,
                                  .tf32 = m->dtype == LK_F32 && m->tf32};
    lk__product_problem_text(&p, text, size);
}

/* The inverse. */
static bool cuda_choices_parse_product(const char *op, const char *text, lk_gpu_choice *choice)
{
    lk_product_problem p;
    if (!lk__product_problem_parse(op, text, &p))
        return false;
    *choice = (lk_gpu_choice){.kernel = LK_GPU_MATMUL,
                              .matmul = {.dtype = p.dtype,
                                         .y_dtype = p.to,
                                         .rows = p.rows,
                                         .inner = p.inner,
                                         .columns = p.columns,
                                         .a_transposed = p.a_transposed,
                                         .b_transposed = p.b_transposed,
                                         .bias = p.bias ? text : NULL, /* any address */
                                         .tf32 = p.tf32}};
    return true;
}

static lk_conv_problem cuda_choices_problem_of(const lk_gpu_choice *choice)
{
    static const int ops[] = {[LK_GPU_CONV] = LK_OP_CONV2D,
                              [LK_GPU_CONV_INPUT_GRAD] = LK_OP_CONV2D_INPUT_GRAD,
                              [LK_GPU_CONV_WEIGHT_GRAD] = LK_OP_CONV2D_WEIGHT_GRAD};
    const lk_gpu_conv_shape *s = &choice->conv;
    const lk_geometry *g = &s->geometry;
    lk_conv_problem p = {.op = ops[choice->kernel],
                         .dtype = s->dtype,
                         .x = LK_SHAPE(g->images, g->channels, g->in[0], g->in[1]),
                         .w = LK_SHAPE(g->filters, g->channels / g->groups, g->kernel[0], g->kernel[1]),
                         .attrs.conv = {.stride = {g->stride[0], g->stride[1]},
                                        .padding = {g->padding[0], g->padding[1]},
                                        .dilation = {g->dilation[0], g->dilation[1]},
                                        .groups = g->groups},
                         .tf32 = s->dtype == LK_F32 && s->tf32,
                         .bias = choice->bias,
                         .direct = s->direct};
    p.to_f32 = p.op == LK_OP_CONV2D_WEIGHT_GRAD && choice->dw_dtype != s->dtype;
    return p;
}

/* The inverse of cuda_choices_problem_of. False: there is no such problem. */
static bool cuda_choices_parse_problem(const char *op, const char *text, lk_gpu_choice *choice)
{
    lk_conv_problem p;
    lk_shape y;
    if (cuda_choices_parse_product(op, text, choice))
        return true;
    if (!lk__conv_problem_parse(op, text, &p) || p.op == LK_OP_CONV_BLOCK ||
        lk__conv2d_shape(op, p.x, p.w, &p.attrs.conv, &y) != LK_OK)
        return false;
    *choice = (lk_gpu_choice){.kernel = p.op == LK_OP_CONV2D              ? LK_GPU_CONV
                                        : p.op == LK_OP_CONV2D_INPUT_GRAD ? LK_GPU_CONV_INPUT_GRAD
                                                                          : LK_GPU_CONV_WEIGHT_GRAD};
    choice->conv = (lk_gpu_conv_shape){.geometry = lk__geometry_of_conv(p.x, p.w, y, &p.attrs.conv),
                                       .dtype = p.dtype,
                                       .tf32 = p.dtype == LK_BF16 || p.tf32,
                                       .direct = p.direct};
    choice->bias = p.bias;
    if (p.op == LK_OP_CONV2D_WEIGHT_GRAD)
        choice->dw_dtype = p.to_f32 ? LK_F32 : p.dtype;
    return true;
}

/* Sets the choice's operator and problem. */
static void cuda_choices_write_problem(const lk_gpu_choice *from, lk_call_choice *to)
{
    to->op = lk_op_name(LK_OP_MATMUL);
    if (from->kernel == LK_GPU_MATMUL) {
        cuda_choices_write_product(&from->matmul, to->problem, sizeof to->problem);
    } else {
        lk_conv_problem problem = cuda_choices_problem_of(from);
        to->op = lk_op_name(problem.op);
        lk__conv_problem_text(&problem, to->problem, sizeof to->problem);
    }
}

const char *lk__cuda_tuned_engine(const lk_tuning *tuning, const lk_gpu_choice *choice)
{
    lk_call_choice asked;
    cuda_choices_write_problem(choice, &asked);
    return lk__tuning_find(tuning, asked.op, asked.problem);
}

static void write_choice(const lk_gpu_choice *from, lk_call_choice *to)
{
    cuda_choices_write_problem(from, to);
    snprintf(to->implementation, sizeof to->implementation, "%s", from->name);
}

/* --- the choice for one call -------------------------------------------------------------------------------------- */

_Static_assert(sizeof(lk_gpu_name) == LK_CHOICE_NAME, "names of engines");

typedef struct question {
    const lk_call *call;
    lk_gpu_choice choice;
    char refusal[256]; /* why the engine that the tuning names does not run it; "": it does */
} question;

static const char *cuda_choices_engine_of(const lk_gpu_choice *choice)
{
    return choice->kernel == LK_GPU_MATMUL ? choice->matmul.engine : choice->conv.engine;
}

static lk_status cuda_choices_choose_engine(lk_device *device, void *user)
{
    question *q = user;
    const lk_cuda *cuda = device->state;
    lk_status status = lk__cuda_check(cuda->driver, cuda->driver->choose(cuda->stream, &q->choice));
    if (status != LK_ERR_ARGUMENT || !cuda_choices_engine_of(&q->choice))
        return status;
    snprintf(q->refusal, sizeof q->refusal, "%s", lk_error_message());
    lk_error_clear();
    return LK_OK;
}

/* Falls back to f32 if cuDNN has no engine for bf16, as cuda_conv.c does. */
static lk_status cuda_choices_choose_convolution(lk_device *device, void *user)
{
    question *q = user;
    lk_status status = cuda_choices_choose_engine(device, q);
    if (status != LK_ERR_UNSUPPORTED || q->call->dtype != LK_BF16)
        return status;
    lk_error_clear();
    lk__cuda_conv_choice(q->call, LK_F32, &q->choice);
    return cuda_choices_choose_engine(device, q);
}

static lk_status cuda_choices_answer(question *q, lk_status (*choose)(lk_device *device, void *user),
                                     lk_call_choice *choice)
{
    LK_TRY(lk__device_ask(q->call->device, choose, q));
    if (*q->refusal)
        snprintf(q->choice.name, sizeof q->choice.name, "%s", cuda_choices_engine_of(&q->choice));
    write_choice(&q->choice, choice);
    return *q->refusal ? lk__tuning_fail(q->call->tuning, choice, q->refusal) : LK_OK;
}

static lk_status choice_of_convolution(const lk_call *call, lk_call_choice *choice)
{
    question q = {.call = call};
    bool has_one = lk__cuda_conv_choice(call, call->dtype, &q.choice);
    return has_one ? cuda_choices_answer(&q, cuda_choices_choose_convolution, choice) : LK_OK;
}

static lk_status choice_of_product(const lk_call *call, lk_call_choice *choice)
{
    question q = {.call = call};
    bool has_one = lk__cuda_matmul_choice(call, &q.choice);
    return has_one ? cuda_choices_answer(&q, cuda_choices_choose_engine, choice) : LK_OK;
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

/* --- all engines for a problem ------------------------------------------------------------------------------------ */

typedef struct engine_question {
    lk_gpu_choice problem;
    lk_gpu_name *names;
    int n;
} engine_question;

static lk_status cuda_choices_ask_engines(lk_device *device, void *user)
{
    engine_question *q = user;
    const lk_cuda *cuda = device->state;
    return lk__cuda_check(cuda->driver,
                          cuda->driver->engines(cuda->stream, &q->problem, q->names, LK_MAX_CHOICES, &q->n));
}

static lk_status cuda_choices_list_engines(lk_device *device, const char *op, const char *problem,
                                           char (*names)[LK_CHOICE_NAME], int *count)
{
    engine_question q = {.names = names};
    if (!cuda_choices_parse_problem(op, problem, &q.problem))
        LK_FAIL(LK_ERR_ARGUMENT, "'%s %s' is no problem that has alternatives", op, problem);
    LK_TRY(lk__device_ask(device, cuda_choices_ask_engines, &q));
    *count = q.n;
    return LK_OK;
}

const lk_choices lk__cuda_choices = {.describe = cuda_describe_gpu_and_libraries,
                                     .list_of_library = cuda_choices_list_engines,
                                     .of_call = choice_of_call};

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
