/* Plans of convolutions by cuDNN's graphs. A graph is the convolution, and an operation that adds a bias or converts
 * the dtype if the problem has one. The plan for a problem is the first one proposed by cuDNN's heuristics that adds in
 * a fixed order, keeps the precision asked for, has no known fault (cuda/cuda_engine_faults.h), and fits into the
 * workspace; so it depends only on the problem, the GPU and the version of cuDNN. If the shape names an engine, its
 * plan is made on the same conditions. */
#pragma once

#include "cuda/plugin/gpu_libraries.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_gpu_conv_direction { LK_GPU_FORWARD, LK_GPU_TO_INPUT, LK_GPU_TO_WEIGHTS } lk_gpu_conv_direction;

typedef struct lk_gpu_conv_problem {
    lk_gpu_conv_direction direction;
    bool bias;
    lk_dtype weights; /* dtype of the weights: the shape's dtype, or f32 for their gradient */
    const lk_gpu_conv_shape *shape;
} lk_gpu_conv_problem;

/* The ids of operands, by which a plan is given their addresses when it runs. LK_GPU_ONE is an f32 in memory of the
 * process, 1: a plan whose weights have another dtype than its images multiplies by it. */
typedef enum lk_gpu_conv_operand {
    LK_GPU_IMAGES = 1,
    LK_GPU_RESULTS,
    LK_GPU_WEIGHTS,
    LK_GPU_BIAS,
    LK_GPU_ONE,
    LK_GPU_INTERMEDIATE
} lk_gpu_conv_operand;

enum { LK_GPU_MAX_CONFIGURATIONS = 128, LK_GPU_MAX_DESCRIPTORS = LK_GPU_MAX_CONFIGURATIONS + 24 };

typedef struct lk_gpu_conv_plan {
    lk_gpu_problem problem;        /* its choice has the engine's name */
    lk_gpu_name pinned;            /* the text of the shape's engine, if it names one */
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none */
    bool was_kept;                 /* it was not made by this process; then notes, fallback and position are not set */
    unsigned notes;                /* bit i: its engine has numerical note i */
    int64_t workspace;             /* bytes */
    bool fallback;                 /* its configuration is from the list of fallbacks, which is in no order … */
    int position;                  /* … and stands there in this place */
    cudnnBackendDescriptor_t
        own[LK_GPU_MAX_DESCRIPTORS]; /* all its descriptors, in the order in which they were made */
    int n_own;
    lk_gpu_status status; /* the first failure while it is made, after which nothing more is done */
} lk_gpu_conv_plan;

/* The name of a convolution whose bias another kernel adds ends so. */
#define LK_GPU_BIAS_APART ", bias apart"

/* Returns whether the name ends so. NULL: no name. */
bool lk__gpu_conv_adds_bias_apart(const char *engine);

/* LK_GPU_NO_ENGINE */
lk_gpu_status lk__gpu_conv_refuse_engine(const char *engine);

/* Sets key[], which tells problems apart. */
void lk__gpu_conv_problem_key(const lk_gpu_conv_problem *p, int64_t key[LK_GPU_KEY_WORDS]);

/* Makes a plan, or takes the one that was kept. (*plan)->plan is NULL if cuDNN has none, or if the shape's engine says
 * that this problem runs without: "direct", or a bias apart. LK_GPU_NO_ENGINE: cuDNN has no plan with the shape's
 * engine. The caller frees it. A plan
 * for all parts of a problem has the engine, with its knobs, of the plan for one part, which must be given; NULL
 * otherwise. Results must belong to single images: an engine is expected to add up a result's products in the same
 * order for any number of images. */
lk_gpu_status lk__gpu_conv_plan_new(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                    const lk_gpu_conv_plan *of_part, lk_gpu_conv_plan **plan);
void lk__gpu_conv_plan_free(lk_gpu_conv_plan *plan);

/* For a problem without an engine, whose shape has one part: sets engines[0 … *n), in the heuristics' order of
 * preference, to the engines that a plan was made with, at most `most`. */
lk_gpu_status lk__gpu_conv_engines(const lk_gpu_libraries *libraries, const lk_gpu_conv_problem *p,
                                   lk_gpu_name *engines, int most, int *n);

#ifdef __cplusplus
}
#endif
