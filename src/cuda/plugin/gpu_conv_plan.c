#include "cuda/plugin/gpu_conv_plan.h"

#include "cuda/cuda_engine_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void gpu_conv_free_descriptors(lk_gpu_conv_plan *c)
{
    while (c->n_own > 0)
        cudnnBackendDestroyDescriptor(c->own[--c->n_own]);
}

void lk__gpu_conv_plan_free(lk_gpu_conv_plan *c)
{
    gpu_conv_free_descriptors(c);
    free(c);
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t gpu_conv_descriptor_new(lk_gpu_conv_plan *c, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (c->status == LK_GPU_OK)
        c->status = lk__gpu_check_dnn(cudnnBackendCreateDescriptor(type, &descriptor), "make a descriptor");
    if (c->status != LK_GPU_OK)
        return NULL;
    return c->own[c->n_own++] = descriptor;
}

static void gpu_conv_descriptor_set(lk_gpu_conv_plan *c, cudnnBackendDescriptor_t descriptor,
                                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                    const void *values)
{
    if (c->status == LK_GPU_OK)
        c->status = lk__gpu_check_dnn(cudnnBackendSetAttribute(descriptor, name, type, count, values),
                                      "describe a convolution");
}

static void gpu_conv_descriptor_set_part(lk_gpu_conv_plan *c, cudnnBackendDescriptor_t descriptor,
                                         cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    gpu_conv_descriptor_set(c, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void gpu_conv_descriptor_finalize(lk_gpu_conv_plan *c, cudnnBackendDescriptor_t descriptor)
{
    if (c->status == LK_GPU_OK)
        c->status = lk__gpu_check_dnn(cudnnBackendFinalize(descriptor), "describe a convolution");
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static cudnnDataType_t gpu_conv_dnn_type(lk_dtype dtype)
{
    return dtype == LK_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* Describes a tensor with axis 1 innermost in memory. An intermediate tensor is not in memory, and LK_GPU_ONE is in
 * memory of the process. */
static cudnnBackendDescriptor_t gpu_conv_tensor_descriptor(lk_gpu_conv_plan *c, lk_gpu_conv_operand id,
                                                           const int64_t dim[4], cudnnDataType_t type)
{
    int64_t strides[4] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
    int64_t alignment = LK_GPU_LIBRARY_ALIGNMENT, number = id;
    bool is_virtual = id == LK_GPU_INTERMEDIATE, is_host = id == LK_GPU_ONE;
    cudnnBackendDescriptor_t t = gpu_conv_descriptor_new(c, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    gpu_conv_descriptor_set(c, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_host);
    gpu_conv_descriptor_finalize(c, t);
    return t;
}

static void gpu_conv_dims_of(lk_gpu_conv_operand id, const lk_geometry *g, int64_t dim[4])
{
    const int64_t dims[][4] = {
        [LK_GPU_IMAGES] = {g->images, g->channels, g->in[0], g->in[1]},
        [LK_GPU_RESULTS] = {g->images, g->filters, g->out[0], g->out[1]},
        [LK_GPU_WEIGHTS] = {g->filters, g->channels / g->groups, g->kernel[0], g->kernel[1]},
        [LK_GPU_BIAS] = {1, g->filters, 1, 1},
        [LK_GPU_ONE] = {1, 1, 1, 1},
    };
    memcpy(dim, dims[id], sizeof dims[id]);
}

static cudnnBackendDescriptor_t gpu_conv_operand_tensor(lk_gpu_conv_plan *c, lk_gpu_conv_operand id,
                                                        const lk_gpu_conv_shape *s, cudnnDataType_t type)
{
    int64_t dim[4];
    lk_geometry all = lk_gpu_all_images(s);
    gpu_conv_dims_of(id, &all, dim);
    return gpu_conv_tensor_descriptor(c, id, dim, type);
}

/* An f32 result of one operation that the next one reads; it has the shape of the operand `like`. */
static cudnnBackendDescriptor_t gpu_conv_intermediate_tensor(lk_gpu_conv_plan *c, lk_gpu_conv_operand like,
                                                             const lk_gpu_conv_shape *s)
{
    int64_t dim[4];
    lk_geometry all = lk_gpu_all_images(s);
    gpu_conv_dims_of(like, &all, dim);
    return gpu_conv_tensor_descriptor(c, LK_GPU_INTERMEDIATE, dim, CUDNN_DATA_FLOAT);
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t gpu_conv_window_descriptor(lk_gpu_conv_plan *c, const lk_geometry *g)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t axes = 2;
    cudnnBackendDescriptor_t d = gpu_conv_descriptor_new(c, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, g->stride);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, g->padding);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, g->padding);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, g->dilation);
    gpu_conv_descriptor_finalize(c, d);
    return d;
}

/* cuDNN's names of an operation's parts, by direction. */
typedef struct names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t images, weights, results, window, alpha, beta;
} names;

static const names names_of[] = {
    [LK_GPU_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [LK_GPU_TO_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [LK_GPU_TO_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnBackendDescriptor_t conv_operation(lk_gpu_conv_plan *c, const lk_gpu_conv_problem *p,
                                               cudnnBackendDescriptor_t images, cudnnBackendDescriptor_t weights,
                                               cudnnBackendDescriptor_t results)
{
    const float one = 1, zero = 0;
    const names *n = &names_of[p->direction];
    cudnnBackendDescriptor_t d = gpu_conv_window_descriptor(c, &p->shape->geometry),
                             operation = gpu_conv_descriptor_new(c, n->operation);
    gpu_conv_descriptor_set_part(c, operation, n->images, images);
    gpu_conv_descriptor_set_part(c, operation, n->weights, weights);
    gpu_conv_descriptor_set_part(c, operation, n->results, results);
    gpu_conv_descriptor_set_part(c, operation, n->window, d);
    gpu_conv_descriptor_set(c, operation, n->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    gpu_conv_descriptor_set(c, operation, n->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    gpu_conv_descriptor_finalize(c, operation);
    return operation;
}

/* y = x + b, or y = x * b */
static cudnnBackendDescriptor_t gpu_conv_pointwise_operation(lk_gpu_conv_plan *c, cudnnPointwiseMode_t mode,
                                                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                                             cudnnBackendDescriptor_t y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = gpu_conv_descriptor_new(c, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    gpu_conv_descriptor_set(c, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    gpu_conv_descriptor_finalize(c, d);
    cudnnBackendDescriptor_t operation = gpu_conv_descriptor_new(c, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    gpu_conv_descriptor_set_part(c, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    gpu_conv_descriptor_set_part(c, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    gpu_conv_descriptor_set_part(c, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    gpu_conv_descriptor_set_part(c, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    gpu_conv_descriptor_finalize(c, operation);
    return operation;
}

/* Makes the operations of a problem. An engine for a convolution alone writes the dtype that it reads. If another
 * operation follows, there are engines that read bf16 and write f32. Multiplying by 1 changes nothing, and leaves the
 * choice of 15 configurations, of which the first usually splits the sum; for an operation that copies there is one,
 * which does not split it and so keeps only a few multiprocessors busy. */
static int64_t gpu_conv_operations_of(lk_gpu_conv_plan *c, const lk_gpu_conv_problem *p,
                                      cudnnBackendDescriptor_t operations[2])
{
    const lk_gpu_conv_shape *s = p->shape;
    cudnnDataType_t type = gpu_conv_dnn_type(s->dtype);
    cudnnBackendDescriptor_t images = gpu_conv_operand_tensor(c, LK_GPU_IMAGES, s, type), sums;
    cudnnBackendDescriptor_t weights = gpu_conv_operand_tensor(c, LK_GPU_WEIGHTS, s, gpu_conv_dnn_type(p->weights));
    cudnnBackendDescriptor_t results = gpu_conv_operand_tensor(c, LK_GPU_RESULTS, s, type);
    if (p->bias) {
        sums = gpu_conv_intermediate_tensor(c, LK_GPU_RESULTS, s);
        operations[0] = conv_operation(c, p, images, weights, sums);
        operations[1] = gpu_conv_pointwise_operation(c, CUDNN_POINTWISE_ADD, sums,
                                                     gpu_conv_operand_tensor(c, LK_GPU_BIAS, s, type), results);
        return 2;
    }
    if (p->weights != s->dtype) {
        sums = gpu_conv_intermediate_tensor(c, LK_GPU_WEIGHTS, s);
        operations[0] = conv_operation(c, p, images, sums, results);
        operations[1] = gpu_conv_pointwise_operation(
            c, CUDNN_POINTWISE_MUL, sums, gpu_conv_operand_tensor(c, LK_GPU_ONE, s, CUDNN_DATA_FLOAT), weights);
        return 2;
    }
    operations[0] = conv_operation(c, p, images, weights, results);
    return 1;
}

static cudnnBackendDescriptor_t gpu_conv_graph_of(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries,
                                                  const lk_gpu_conv_problem *p)
{
    cudnnBackendDescriptor_t operations[2];
    int64_t n = gpu_conv_operations_of(c, p, operations);
    cudnnBackendDescriptor_t graph = gpu_conv_descriptor_new(c, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    gpu_conv_descriptor_set(c, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, operations);
    if (libraries->dnn)
        gpu_conv_descriptor_set(c, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &libraries->dnn);
    gpu_conv_descriptor_finalize(c, graph);
    return graph;
}

/* --- choosing a plan ---------------------------------------------------------------------------------------------- */

/* Sets bit i of *notes if the engine has numerical note i. */
static lk_gpu_status gpu_conv_notes_of(cudnnBackendDescriptor_t configuration, unsigned *notes)
{
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t found[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {0};
    int64_t n = 0;
    *notes = 0;
    LK_GPU_TRY(
        lk__gpu_check_dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), "make a descriptor"));
    cudnnStatus_t status = cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, found);
    cudnnBackendDestroyDescriptor(engine);
    LK_GPU_TRY(lk__gpu_check_dnn(status, "look at an engine"));
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        *notes |= 1u << found[i];
    return LK_GPU_OK;
}

#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)

/* Requires a fixed order of sums, and no more rounding than the shape allows. Tensor cores take bf16 as it is, but
 * round f32 to 10 bits of mantissa. Winograd's transform in small tiles costs f32 about a digit; larger tiles,
 * transforms of bf16, and Fourier's transform cost more. */
static bool gpu_conv_is_exact_enough(unsigned notes, const lk_gpu_conv_shape *s)
{
    unsigned refused = NOTE(NONDETERMINISTIC) | NOTE(DOWN_CONVERT_INPUTS) | NOTE(REDUCED_PRECISION_REDUCTION) |
                       NOTE(FFT) | NOTE(WINOGRAD_TILE_6x6) | NOTE(WINOGRAD_TILE_13x13);
    if (s->direct || s->dtype == LK_BF16)
        refused |= NOTE(WINOGRAD) | NOTE(WINOGRAD_TILE_4x4);
    if (!s->tf32 && s->dtype == LK_F32)
        refused |= NOTE(TENSOR_CORE);
    return (notes & refused) == 0;
}

/* Makes a descriptor for a plan on the libraries' GPU. */
static cudnnBackendDescriptor_t gpu_conv_plan_descriptor(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries)
{
    cudnnBackendDescriptor_t plan = gpu_conv_descriptor_new(c, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (libraries->dnn)
        gpu_conv_descriptor_set(c, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &libraries->dnn);
    else
        gpu_conv_descriptor_set_part(c, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, libraries->described_gpu);
    return plan;
}

/* False if cuDNN cannot make the plan after all, or it needs too much workspace. */
static bool gpu_conv_finalize_plan(lk_gpu_conv_plan *c, cudnnBackendDescriptor_t plan)
{
    int64_t n = 0;
    return cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                    &c->workspace) == CUDNN_STATUS_SUCCESS &&
           c->workspace <= LK_GPU_WORKSPACE_BYTES;
}

/* NULL if there is no such plan. */
static cudnnBackendDescriptor_t gpu_conv_make_plan(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries,
                                                   cudnnBackendDescriptor_t configuration)
{
    cudnnBackendDescriptor_t plan = gpu_conv_plan_descriptor(c, libraries);
    gpu_conv_descriptor_set_part(c, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (c->status != LK_GPU_OK)
        return NULL;
    if (gpu_conv_finalize_plan(c, plan))
        return plan;
    cudnnBackendDestroyDescriptor(c->own[--c->n_own]);
    return NULL;
}

/* Gets one descriptor out of another. */
static cudnnStatus_t gpu_conv_descriptor_get_part(cudnnBackendDescriptor_t whole, cudnnBackendAttributeName_t name,
                                                  cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *part)
{
    int64_t n = 0;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(type, part);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    return cudnnBackendGetAttribute(whole, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, part);
}

/* Gets the number of a configuration's engine. */
static cudnnStatus_t gpu_conv_number_of(cudnnBackendDescriptor_t configuration, int64_t *number)
{
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0;
    cudnnStatus_t status = gpu_conv_descriptor_get_part(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                        CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, number);
    if (engine)
        cudnnBackendDestroyDescriptor(engine);
    return status;
}

static int gpu_conv_name_knob(cudnnBackendDescriptor_t choice, char *name, size_t size)
{
    cudnnBackendKnobType_t type = 0;
    int64_t value = 0, n = 0;
    if (cudnnBackendGetAttribute(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &n, &type) !=
            CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n, &value) !=
            CUDNN_STATUS_SUCCESS)
        return 0;
    return snprintf(name, size, "_k%d=%lld", (int)type, (long long)value);
}

/* Writes "cudnn:eng28_k2=3_k13=1": an engine and its knobs, in the notation of cuDNN's frontend. */
static void gpu_conv_name_plan(cudnnBackendDescriptor_t configuration, char *name, size_t size)
{
    cudnnBackendDescriptor_t knobs[CUDNN_KNOB_TYPE_COUNTS] = {NULL};
    int64_t number = -1, n = 0;
    size_t used;
    gpu_conv_number_of(configuration, &number);
    used = (size_t)snprintf(name, size, "cudnn:eng%lld", (long long)number);
    for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++)
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]) != CUDNN_STATUS_SUCCESS)
            knobs[i] = NULL;
    if (cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 CUDNN_KNOB_TYPE_COUNTS, &n, knobs) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < n && i < CUDNN_KNOB_TYPE_COUNTS && used < size; i++)
            used += (size_t)gpu_conv_name_knob(knobs[i], name + used, size - used);
    for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++)
        if (knobs[i])
            cudnnBackendDestroyDescriptor(knobs[i]);
}

static lk_gpu_library_kernel gpu_conv_kernel_of(const lk_gpu_conv_problem *p)
{
    return p->direction == LK_GPU_FORWARD    ? LK_GPU_CONV
           : p->direction == LK_GPU_TO_INPUT ? LK_GPU_CONV_INPUT_GRAD
                                             : LK_GPU_CONV_WEIGHT_GRAD;
}

/* Returns whether the configuration's engine is exact enough, and has no known fault. */
static bool gpu_conv_is_acceptable(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                   cudnnBackendDescriptor_t configuration, unsigned *notes)
{
    int64_t engine;
    return gpu_conv_notes_of(configuration, notes) == LK_GPU_OK && gpu_conv_is_exact_enough(*notes, p->shape) &&
           gpu_conv_number_of(configuration, &engine) == CUDNN_STATUS_SUCCESS &&
           !lk_cuda_engine_has_fault(gpu_conv_kernel_of(p), engine, cudnnGetVersion(), libraries->capability);
}

/* Takes the first acceptable configuration, in the heuristics' order of preference. */
static void gpu_conv_try_configurations(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries,
                                        const lk_gpu_conv_problem *p, cudnnBackendDescriptor_t *configurations,
                                        int64_t n)
{
    for (int64_t i = 0; i < n && c->status == LK_GPU_OK && !c->plan; i++) {
        if (gpu_conv_is_acceptable(libraries, p, configurations[i], &c->notes))
            c->plan = gpu_conv_make_plan(c, libraries, configurations[i]);
        c->position = (int)i;
        if (c->plan)
            gpu_conv_name_plan(configurations[i], c->problem.choice.name, sizeof c->problem.choice.name);
    }
}

typedef struct proposals {
    lk_gpu_name names[LK_GPU_MAX_CONFIGURATIONS];
    int n;
} proposals;

/* Adds the names of all acceptable configurations. */
static void gpu_conv_name_configurations(proposals *to, const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                         const cudnnBackendDescriptor_t *configurations, int64_t n)
{
    for (int64_t i = 0; i < n && to->n < LK_GPU_MAX_CONFIGURATIONS; i++) {
        unsigned notes;
        char *name = to->names[to->n];
        bool known = false;
        if (!gpu_conv_is_acceptable(libraries, p, configurations[i], &notes))
            continue;
        gpu_conv_name_plan(configurations[i], name, sizeof(lk_gpu_name));
        for (int k = 0; k < to->n; k++)
            known = known || strcmp(to->names[k], name) == 0;
        to->n += !known;
    }
}

/* A plan needs its configuration as long as it lives. So if a configuration of the list was taken, the list is kept.
 * `all`: all of them are named, and none is taken; NULL: the first is. */
static void gpu_conv_try_heuristics(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries,
                                    const lk_gpu_conv_problem *p, cudnnBackendDescriptor_t graph,
                                    cudnnBackendHeurMode_t mode, proposals *all)
{
    cudnnBackendDescriptor_t configurations[LK_GPU_MAX_CONFIGURATIONS];
    cudnnBackendDescriptor_t heuristics = gpu_conv_descriptor_new(c, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int first = c->n_own;
    int64_t found = 0;
    gpu_conv_descriptor_set_part(c, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    gpu_conv_descriptor_set(c, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!libraries->dnn)
        gpu_conv_descriptor_set_part(c, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, libraries->described_gpu);
    for (int i = 0; i < LK_GPU_MAX_CONFIGURATIONS; i++)
        configurations[i] = gpu_conv_descriptor_new(c, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    /* Heuristics that have no answer for a graph fail; that is not an error here. */
    if (c->status == LK_GPU_OK && cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 LK_GPU_MAX_CONFIGURATIONS, &found, configurations) == CUDNN_STATUS_SUCCESS) {
        found = found < LK_GPU_MAX_CONFIGURATIONS ? found : LK_GPU_MAX_CONFIGURATIONS;
        if (all)
            gpu_conv_name_configurations(all, libraries, p, configurations, found);
        else
            gpu_conv_try_configurations(c, libraries, p, configurations, found);
    }
    while (!c->plan && c->n_own > first)
        cudnnBackendDestroyDescriptor(c->own[--c->n_own]);
}

/* A graph that cuDNN does not support at all counts as one without a plan. */
static void gpu_conv_choose_plan(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                 proposals *all)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t graph = gpu_conv_graph_of(c, libraries, p);
    for (int i = 0; i < 2 && c->status == LK_GPU_OK && !c->plan; i++) {
        c->fallback = modes[i] == CUDNN_HEUR_MODE_FALLBACK;
        gpu_conv_try_heuristics(c, libraries, p, graph, modes[i], all);
    }
    if (c->status == LK_GPU_UNSUPPORTED)
        c->status = LK_GPU_OK;
    if (!c->plan)
        gpu_conv_free_descriptors(c);
}

/* Reads a number behind the text `before`. Returns where the text goes on; NULL: it is another one. */
static const char *gpu_conv_read_number(const char *text, const char *before, int64_t *number)
{
    size_t length = strlen(before);
    char *end;
    if (strncmp(text, before, length) != 0)
        return NULL;
    *number = strtoll(text + length, &end, 10);
    return end > text + length ? end : NULL;
}

/* Makes a plan with the engine and the knobs that gpu_conv_name_plan has named, so that each result is computed as by
 * the plan of that name. A name that is none, or may be incomplete, gives no plan, nor does an engine that is not
 * acceptable. */
static void gpu_conv_take_engine(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                 const char *name)
{
    cudnnBackendDescriptor_t knobs[CUDNN_KNOB_TYPE_COUNTS];
    int64_t index, type, choice;
    int n = 0;
    const char *at = gpu_conv_read_number(name, "cudnn:eng", &index), *end;
    if (!at || strlen(name) + 1 >= sizeof c->problem.choice.name)
        return;
    cudnnBackendDescriptor_t graph = gpu_conv_graph_of(c, libraries, p);
    cudnnBackendDescriptor_t engine = gpu_conv_descriptor_new(c, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    gpu_conv_descriptor_set_part(c, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    gpu_conv_descriptor_set(c, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    if (!libraries->dnn)
        gpu_conv_descriptor_set_part(c, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, libraries->described_gpu);
    gpu_conv_descriptor_finalize(c, engine);
    while (n < CUDNN_KNOB_TYPE_COUNTS && (end = gpu_conv_read_number(at, "_k", &type)) &&
           (end = gpu_conv_read_number(end, "=", &choice))) {
        cudnnBackendKnobType_t knob = (cudnnBackendKnobType_t)type;
        at = end;
        knobs[n] = gpu_conv_descriptor_new(c, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        gpu_conv_descriptor_set(c, knobs[n], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
        gpu_conv_descriptor_set(c, knobs[n], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &choice);
        gpu_conv_descriptor_finalize(c, knobs[n++]);
    }
    cudnnBackendDescriptor_t configuration = gpu_conv_descriptor_new(c, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    gpu_conv_descriptor_set_part(c, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    gpu_conv_descriptor_set(c, configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                            knobs);
    gpu_conv_descriptor_finalize(c, configuration);
    if (!*at && c->status == LK_GPU_OK && gpu_conv_is_acceptable(libraries, p, configuration, &c->notes))
        c->plan = gpu_conv_make_plan(c, libraries, configuration);
    snprintf(c->problem.choice.name, sizeof c->problem.choice.name, "%s", name);
    if (!c->plan && c->status != LK_GPU_NO_MEMORY)
        c->status = LK_GPU_OK;
    if (!c->plan)
        gpu_conv_free_descriptors(c);
}

void lk__gpu_conv_problem_key(const lk_gpu_conv_problem *p, int64_t key[LK_GPU_KEY_WORDS])
{
    const lk_gpu_conv_shape *s = p->shape;
    const lk_geometry *g = &s->geometry;
    const int64_t words[LK_GPU_KEY_WORDS] = {
        p->direction,   p->bias,        p->weights,   s->dtype,     s->tf32,       g->images,
        g->channels,    g->groups,      g->in[0],     g->in[1],     g->out[0],     g->out[1],
        g->kernel[0],   g->kernel[1],   g->stride[0], g->stride[1], g->padding[0], g->padding[1],
        g->dilation[0], g->dilation[1], g->filters,   s->direct,    s->parts,      lk__gpu_hash_of_engine(s->engine)};
    memcpy(key, words, sizeof words);
}

/* --- kept plans --------------------------------------------------------------------------------------------------- */

static const lk_gpu_plan_files *plan_files;

void lk__gpu_keep_plans(const lk_gpu_plan_files *files)
{
    plan_files = files;
}

enum { KEY_TEXT = 1024, PLAN_HEAD = sizeof((lk_gpu_choice *)0)->name + 1 };

static void gpu_conv_write_key(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p, char text[KEY_TEXT])
{
    int64_t key[LK_GPU_KEY_WORDS];
    size_t used = (size_t)snprintf(text, KEY_TEXT, "%s, cuDNN %zu, faults %d:", libraries->machine, cudnnGetVersion(),
                                   LK_CUDA_ENGINE_FAULTS);
    lk__gpu_conv_problem_key(p, key);
    for (int i = 0; i < LK_GPU_KEY_WORDS; i++)
        used += (size_t)snprintf(text + used, KEY_TEXT - used, " %lld", (long long)key[i]);
}

typedef struct kept_plan {
    lk_gpu_conv_plan *plan;
    const lk_gpu_libraries *libraries;
} kept_plan;

/* A kept plan is a line with its engine's name, and what cuDNN wrote: the graph, the engine, and kernels that were
 * compiled for it. If cuDNN does not take it, the plan is made again. */
static void gpu_conv_take_kept_plan(void *user, const char *text, size_t bytes)
{
    const kept_plan *kept = user;
    lk_gpu_conv_plan *c = kept->plan;
    size_t most = sizeof c->problem.choice.name;
    const char *end = memchr(text, '\n', bytes < most ? bytes : most);
    if (!end)
        return;
    cudnnBackendDescriptor_t plan = gpu_conv_plan_descriptor(c, kept->libraries);
    gpu_conv_descriptor_set(c, plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                            (int64_t)bytes - (end + 1 - text), end + 1);
    if (c->status == LK_GPU_OK && gpu_conv_finalize_plan(c, plan)) {
        c->plan = plan;
        c->was_kept = true;
        snprintf(c->problem.choice.name, most, "%.*s", (int)(end - text), text);
    } else {
        gpu_conv_free_descriptors(c);
        c->status = LK_GPU_OK;
    }
}

/* Plans that cuDNN cannot write are not kept. */
static void gpu_conv_save_plan(const lk_gpu_conv_plan *c, const char *key)
{
    int64_t bytes = 0, n = 0;
    if (cudnnBackendGetAttribute(c->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &bytes,
                                 NULL) != CUDNN_STATUS_SUCCESS)
        return;
    char *text = malloc(PLAN_HEAD + (size_t)bytes);
    if (!text)
        return;
    int head = snprintf(text, PLAN_HEAD, "%s\n", c->problem.choice.name);
    if (cudnnBackendGetAttribute(c->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, bytes, &n,
                                 text + head) == CUDNN_STATUS_SUCCESS)
        plan_files->save(key, text, (size_t)head + (size_t)bytes);
    free(text);
}

/* --- a problem's plan --------------------------------------------------------------------------------------------- */

bool lk__gpu_conv_adds_bias_apart(const char *engine)
{
    size_t length = engine ? strlen(engine) : 0, end = strlen(LK_GPU_BIAS_APART);
    return length > end && strcmp(engine + length - end, LK_GPU_BIAS_APART) == 0;
}

lk_gpu_status lk__gpu_conv_refuse_engine(const char *engine)
{
    return lk__gpu_fail(LK_GPU_NO_ENGINE,
                        "cuDNN does not run this convolution on %s with its precision and a fixed order of sums",
                        engine);
}

/* Returns whether the shape's engine says that this problem has no plan. */
static bool gpu_conv_has_no_plan(const lk_gpu_conv_problem *p)
{
    const char *engine = p->shape->engine;
    return engine && ((strcmp(engine, "direct") == 0 && p->shape->dtype == LK_F32) ||
                      (p->bias && lk__gpu_conv_adds_bias_apart(engine)));
}

static void gpu_conv_load_plan(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries, const char *key,
                               const char *engine)
{
    plan_files->load(key, gpu_conv_take_kept_plan, &(kept_plan){c, libraries});
    if (c->plan && engine && strcmp(c->problem.choice.name, engine) != 0) {
        gpu_conv_free_descriptors(c);
        c->plan = NULL;
        c->was_kept = false;
    }
}

/* engine NULL: the heuristics choose. */
static void gpu_conv_find_or_make_plan(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries,
                                       const lk_gpu_conv_problem *p, const char *engine)
{
    char key[KEY_TEXT];
    if (plan_files) {
        gpu_conv_write_key(libraries, p, key);
        gpu_conv_load_plan(c, libraries, key, engine);
    }
    if (!c->plan && engine)
        gpu_conv_take_engine(c, libraries, p, engine);
    else if (!c->plan)
        gpu_conv_choose_plan(c, libraries, p, NULL);
    if (plan_files && c->plan && !c->was_kept)
        gpu_conv_save_plan(c, key);
}

/* The plan for one part, with the shape's engine if it names one. */
static void gpu_conv_plan_one(lk_gpu_conv_plan *c, const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p)
{
    const char *pinned = p->shape->engine;
    lk_gpu_name engine;
    if (pinned && gpu_conv_has_no_plan(p))
        return;
    size_t end = lk__gpu_conv_adds_bias_apart(pinned) ? strlen(LK_GPU_BIAS_APART) : 0;
    if (pinned)
        snprintf(engine, sizeof engine, "%.*s", (int)(strlen(pinned) - end), pinned);
    gpu_conv_find_or_make_plan(c, libraries, p, pinned ? engine : NULL);
    if (pinned && c->status == LK_GPU_OK && !c->plan)
        c->status = lk__gpu_conv_refuse_engine(pinned);
}

lk_gpu_status lk__gpu_conv_plan_new(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                    const lk_gpu_conv_plan *of_part, lk_gpu_conv_plan **plan)
{
    lk_gpu_conv_plan *c = calloc(1, sizeof *c);
    *plan = NULL;
    if (!c)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "out of memory for a convolution");
    c->problem.choice =
        (lk_gpu_choice){.kernel = gpu_conv_kernel_of(p), .conv = *p->shape, .bias = p->bias, .dw_dtype = p->weights};
    if (p->shape->engine) {
        snprintf(c->pinned, sizeof c->pinned, "%s", p->shape->engine);
        c->problem.choice.conv.engine = c->pinned;
    }
    if (of_part)
        gpu_conv_find_or_make_plan(c, libraries, p, of_part->problem.choice.name);
    else
        gpu_conv_plan_one(c, libraries, p);
    if (c->status != LK_GPU_OK) {
        lk_gpu_status status = c->status;
        lk__gpu_conv_plan_free(c);
        return status;
    }
    *plan = c;
    return LK_GPU_OK;
}

lk_gpu_status lk__gpu_conv_engines(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                   lk_gpu_name *engines, int most, int *n)
{
    lk_gpu_conv_plan c = {.status = LK_GPU_OK}, *plan;
    lk_gpu_conv_shape shape = *p->shape;
    lk_gpu_conv_problem pinned = *p;
    proposals all = {.n = 0};
    *n = 0;
    gpu_conv_choose_plan(&c, libraries, p, &all);
    lk_gpu_status status = c.status;
    pinned.shape = &shape;
    for (int i = 0; i < all.n && *n < most && status == LK_GPU_OK; i++) {
        shape.engine = all.names[i];
        status = lk__gpu_conv_plan_new(libraries, &pinned, NULL, &plan);
        if (status == LK_GPU_OK) {
            memcpy(engines[(*n)++], all.names[i], sizeof *engines);
            lk__gpu_conv_plan_free(plan);
        } else if (status == LK_GPU_NO_ENGINE) {
            status = LK_GPU_OK;
        }
    }
    return status;
}
