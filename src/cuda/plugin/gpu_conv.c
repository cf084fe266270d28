/* Convolutions by cuDNN, with plans kept by problem. If there is no plan for f32, the kernels of gpu_direct_conv.cu
 * run, which take every shape. */
#include "cuda/plugin/gpu_conv_plan.h"
#include "cuda/plugin/gpu_few_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- kept plans --------------------------------------------------------------------------------------------------- */

void lk__gpu_convolutions_free(lk_gpu_cache *cache)
{
    for (int i = 0; i < LK_GPU_CACHE_LISTS; i++) {
        while (cache->lists[i]) {
            lk_gpu_problem *next = cache->lists[i]->next;
            lk__gpu_conv_plan_free((lk_gpu_conv_plan *)cache->lists[i]);
            cache->lists[i] = next;
        }
    }
}

/* (*out)->plan is NULL if cuDNN has no plan. of_part: see lk__gpu_conv_plan_new. */
static lk_gpu_status gpu_conv_find_plan(lk_gpu_stream *stream, const lk_gpu_conv_problem *p,
                                        const lk_gpu_conv_plan *of_part, lk_gpu_conv_plan **out)
{
    int64_t key[LK_GPU_KEY_WORDS];
    lk__gpu_conv_problem_key(p, key);
    LK_GPU_TRY(lk__gpu_libraries_need(stream));
    lk_gpu_cache *cache = of_part ? &stream->libraries->convolutions_of_parts : &stream->libraries->convolutions;
    *out = (lk_gpu_conv_plan *)lk__gpu_cache_find(cache, key);
    if (*out)
        return LK_GPU_OK;
    lk__gpu_pause(stream, true); /* cuDNN may compile and load kernels */
    lk_gpu_status status = lk__gpu_conv_plan_new(stream->libraries, p, of_part, out);
    lk__gpu_resume(stream);
    LK_GPU_TRY(status);
    lk__gpu_cache_add(cache, &(*out)->problem, key);
    return LK_GPU_OK;
}

/* The plan for one part of the problem. */
static lk_gpu_status gpu_conv_plan_of(lk_gpu_stream *stream, const lk_gpu_conv_problem *p, lk_gpu_conv_plan **out)
{
    lk_gpu_conv_shape shape = *p->shape;
    lk_gpu_conv_problem one = *p;
    shape.parts = 0;
    one.shape = &shape;
    return gpu_conv_find_plan(stream, &one, NULL, out);
}

/* The plan for one part of a forward convolution. In f32 without tensor cores cuDNN has no plan with a bias; then
 * p->bias becomes false, and another kernel adds it. */
static lk_gpu_status gpu_conv_forward_plan_of(lk_gpu_stream *stream, lk_gpu_conv_problem *p, lk_gpu_conv_plan **out)
{
    const char *engine = p->shape->engine;
    if (!p->bias && lk__gpu_conv_adds_bias_apart(engine)) {
        lk__gpu_conv_refuse_engine(engine);
        return LK_GPU_NO_ENGINE;
    }
    LK_GPU_TRY(gpu_conv_plan_of(stream, p, out));
    if ((*out)->plan || !p->bias)
        return LK_GPU_OK;
    p->bias = false;
    return gpu_conv_plan_of(stream, p, out);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static lk_gpu_status gpu_conv_fill_pack(cudnnBackendDescriptor_t pack, int64_t n, const int64_t *ids, void *const *data,
                                        void *workspace)
{
    cudnnStatus_t status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(pack);
    return lk__gpu_check_dnn(status, "name the operands of a convolution");
}

/* bias NULL: the plan has none. Which of images, weights and results is written depends on the plan's direction. */
static lk_gpu_status gpu_conv_execute_plan(lk_gpu_stream *stream, lk_gpu_conv_plan *c, const void *images,
                                           const void *weights, const void *results, const void *bias)
{
    static const float one = 1;
    const lk_gpu_libraries *libraries = stream->libraries;
    bool multiplies = c->problem.choice.dw_dtype != c->problem.choice.conv.dtype;
    const int64_t ids[] = {LK_GPU_IMAGES, LK_GPU_WEIGHTS, LK_GPU_RESULTS, multiplies ? LK_GPU_ONE : LK_GPU_BIAS};
    const void *last = multiplies ? &one : bias;
    void *data[] = {(void *)(uintptr_t)images, (void *)(uintptr_t)weights, (void *)(uintptr_t)results,
                    (void *)(uintptr_t)last};
    cudnnBackendDescriptor_t pack;
    LK_GPU_TRY(lk__gpu_check_dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                                 "make a descriptor"));
    lk_gpu_status status = gpu_conv_fill_pack(pack, last ? 4 : 3, ids, data, stream->workspace);
    if (status == LK_GPU_OK)
        status = lk__gpu_check_dnn(cudnnSetStream(libraries->dnn, stream->stream), "take a stream");
    bool is_first = !c->problem.has_run; /* when cuDNN may load kernels */
    if (is_first)
        lk__gpu_pause(stream, true);
    if (status == LK_GPU_OK)
        status = lk__gpu_check_dnn(cudnnBackendExecute(libraries->dnn, c->plan, pack), "convolve");
    if (is_first)
        lk__gpu_resume(stream);
    c->problem.has_run = true;
    cudnnBackendDestroyDescriptor(pack);
    return status;
}

static const void *gpu_conv_part(const void *data, int64_t part, int64_t elements, lk_dtype dtype)
{
    return (const char *)data + part * elements * (dtype == LK_BF16 ? 2 : 4);
}

/* Runs the plan `c` for one part on all parts, whose results belong to single images: with a plan for all of them,
 * which has the same engine, if cuDNN has that plan; otherwise one by one. */
static lk_gpu_status gpu_conv_execute_parts(lk_gpu_stream *stream, const lk_gpu_conv_problem *p, lk_gpu_conv_plan *c,
                                            const void *images, const void *weights, const void *results,
                                            const void *bias)
{
    const lk_geometry *g = &p->shape->geometry;
    lk_dtype dtype = p->shape->dtype;
    lk_gpu_conv_plan *all;
    if (p->shape->parts > 1) {
        LK_GPU_TRY(gpu_conv_find_plan(stream, p, c, &all));
        if (all->plan)
            return gpu_conv_execute_plan(stream, all, images, weights, results, bias);
    }
    for (int64_t i = 0; i < lk_gpu_parts(p->shape->parts); i++)
        LK_GPU_TRY(gpu_conv_execute_plan(stream, c, gpu_conv_part(images, i, lk__geometry_x_count(g), dtype), weights,
                                         gpu_conv_part(results, i, lk__geometry_y_count(g), dtype), bias));
    return LK_GPU_OK;
}

/* The caller then uses f32, which is faster than the direct kernels, and loses nothing: with tensor cores bf16 operands
 * stay exact. */
static lk_gpu_status gpu_conv_refuse_bf16(void)
{
    return lk__gpu_fail(LK_GPU_UNSUPPORTED, "cuDNN: no engine for this convolution in bf16");
}

/* y = y + bias, y [rows, channels] */
static lk_gpu_status gpu_conv_launch_bias(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    const lk_gpu_conv_shape *s = &a->shape;
    lk_geometry all = lk_gpu_all_images(s);
    lk_gpu_view y = {a->y, s->dtype, {s->geometry.filters, 1}};
    lk_gpu_binary sum = {.y = y,
                         .a = y,
                         .b = {(void *)(uintptr_t)a->bias, s->dtype, {0, 1}},
                         .ndim = 2,
                         .dim = {all.images * all.out[0] * all.out[1], all.filters},
                         .op = LK_GPU_ADD};
    return lk__gpu_binary(stream, &sum);
}

/* *done is false if cuDNN has no plan at all. */
static lk_gpu_status gpu_conv_run_forward(lk_gpu_stream *stream, const lk_gpu_conv *a, bool *done)
{
    lk_gpu_conv_problem p = {LK_GPU_FORWARD, a->bias != NULL, a->shape.dtype, &a->shape};
    lk_gpu_conv_plan *c;
    LK_GPU_TRY(gpu_conv_forward_plan_of(stream, &p, &c));
    *done = c->plan != NULL;
    if (!c->plan)
        return LK_GPU_OK;
    LK_GPU_TRY(gpu_conv_execute_parts(stream, &p, c, a->x, a->w, a->y, p.bias ? a->bias : NULL));
    return a->bias && !p.bias ? gpu_conv_launch_bias(stream, a) : LK_GPU_OK;
}

lk_gpu_status lk__gpu_conv(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    const lk_gpu_conv_shape *s = &a->shape;
    lk_geometry all = lk_gpu_all_images(s);
    bool done;
    LK_GPU_TRY(gpu_conv_run_forward(stream, a, &done));
    if (!done)
        return s->dtype == LK_BF16 ? gpu_conv_refuse_bf16() : lk__gpu_direct_conv(stream, a);
    if (!a->relu)
        return LK_GPU_OK;
    /* cuDNN's own relu would make NaN 0. */
    lk_gpu_relu relu = {.x = a->y, .y = a->y, .dtype = s->dtype, .count = lk__geometry_y_count(&all)};
    return lk__gpu_relu(stream, &relu);
}

lk_gpu_status lk__gpu_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    lk_gpu_conv_problem p = {LK_GPU_TO_INPUT, false, a->shape.dtype, &a->shape};
    lk_gpu_conv_plan *c;
    LK_GPU_TRY(gpu_conv_plan_of(stream, &p, &c));
    if (c->plan)
        return gpu_conv_execute_parts(stream, &p, c, a->dx, a->w, a->dy, NULL);
    return a->shape.dtype == LK_BF16 ? gpu_conv_refuse_bf16() : lk__gpu_direct_conv_input_grad(stream, a);
}

/* Returns whether the plug-in's own kernel may run. */
static bool gpu_conv_names_own(const char *engine)
{
    return !engine || strcmp(engine, "own") == 0;
}

lk_gpu_status lk__gpu_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    lk_gpu_conv_problem p = {LK_GPU_TO_WEIGHTS, false, a->dw_dtype, &a->shape};
    lk_gpu_conv_plan *c;
    if (lk_gpu_has_few_inputs(&a->shape))
        return gpu_conv_names_own(a->shape.engine) ? lk__gpu_few_inputs_weight_grad(stream, a)
                                                   : lk__gpu_conv_refuse_engine(a->shape.engine);
    LK_GPU_TRY(gpu_conv_plan_of(stream, &p, &c));
    if (c->plan)
        return gpu_conv_execute_plan(stream, c, a->x, a->dw, a->dy, NULL);
    return a->shape.dtype == LK_BF16 ? gpu_conv_refuse_bf16() : lk__gpu_direct_conv_weight_grad(stream, a);
}

/* --- naming ------------------------------------------------------------------------------------------------------- */

static lk_gpu_conv_problem gpu_conv_problem_of(const lk_gpu_choice *choice)
{
    const lk_gpu_conv_shape *s = &choice->conv;
    switch (choice->kernel) {
    case LK_GPU_CONV:
        return (lk_gpu_conv_problem){LK_GPU_FORWARD, choice->bias, s->dtype, s};
    case LK_GPU_CONV_INPUT_GRAD:
        return (lk_gpu_conv_problem){LK_GPU_TO_INPUT, false, s->dtype, s};
    default:
        return (lk_gpu_conv_problem){LK_GPU_TO_WEIGHTS, false, choice->dw_dtype, s};
    }
}

/* Sets choice->name, and *p to the problem that cuDNN gets. */
static lk_gpu_status gpu_conv_name_choice(lk_gpu_stream *stream, lk_gpu_choice *choice, lk_gpu_conv_problem *p)
{
    lk_gpu_conv_plan *c;
    *p = gpu_conv_problem_of(choice);
    if (choice->kernel == LK_GPU_CONV_WEIGHT_GRAD && lk_gpu_has_few_inputs(&choice->conv)) {
        snprintf(choice->name, sizeof choice->name, "own");
        return gpu_conv_names_own(choice->conv.engine) ? LK_GPU_OK : lk__gpu_conv_refuse_engine(choice->conv.engine);
    }
    LK_GPU_TRY(p->direction == LK_GPU_FORWARD ? gpu_conv_forward_plan_of(stream, p, &c)
                                              : gpu_conv_plan_of(stream, p, &c));
    if (!c->plan && choice->conv.dtype == LK_BF16)
        return gpu_conv_refuse_bf16();
    if (c->plan)
        snprintf(choice->name, sizeof choice->name, "%.100s%s", c->problem.choice.name,
                 choice->bias && !p->bias ? LK_GPU_BIAS_APART : "");
    else
        snprintf(choice->name, sizeof choice->name, "direct");
    return LK_GPU_OK;
}

lk_gpu_status lk__gpu_choose_convolution(lk_gpu_stream *stream, lk_gpu_choice *choice)
{
    lk_gpu_conv_problem p;
    return gpu_conv_name_choice(stream, choice, &p);
}

/* A convolution without a plan has one engine. */
lk_gpu_status lk__gpu_convolution_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names,
                                          int most, int *n)
{
    lk_gpu_choice first = *choice;
    lk_gpu_conv_problem p;
    LK_GPU_TRY(gpu_conv_name_choice(stream, &first, &p));
    if (strncmp(first.name, "cudnn:", strlen("cudnn:")) != 0) {
        *n = 1;
        memcpy(names[0], first.name, sizeof *names);
        return LK_GPU_OK;
    }
    LK_GPU_TRY(lk__gpu_conv_engines(stream->libraries, &p, names, most, n));
    for (int i = 0; i < *n && choice->bias && !p.bias; i++)
        strncat(names[i], LK_GPU_BIAS_APART, sizeof *names - strlen(names[i]) - 1);
    return LK_GPU_OK;
}
