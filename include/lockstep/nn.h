/* Networks. A model is a description: the variables it needs, how they start, and its forward pass over them. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_model lk_model;

/* What the data look like. */
typedef struct lk_model_input {
    int64_t channels, height, width, classes;
} lk_model_input;

/* lenet: conv 20@3x3, ReLU, average pooling 2, conv 50@5x5, ReLU, average pooling 2, dense 128, ReLU, dense `classes`
 * (the LeNet of Dive into Deep Learning's multi-GPU chapter): weights N(0, 0.01), biases 0; 129,068 parameters for
 * 28x28 grey images in 10 classes. Errors: LK_ERR_ARGUMENT (unknown name), LK_ERR_SHAPE (images too small). */
LK_API lk_model *lk_model_new(const char *name, lk_model_input input);
LK_API void lk_model_release(lk_model *model);

/* Names that lk_model_new takes; NULL past the end. */
LK_API const char *lk_model_name_at(int index);

/* The settings of the source that defines the model. Errors: LK_ERR_ARGUMENT (unknown name). */
typedef struct lk_recipe {
    int64_t batch_size, epochs;
    double learning_rate;
} lk_recipe;
LK_API lk_status lk_model_recipe(const char *name, lk_recipe *recipe);

LK_API const char *lk_model_name(const lk_model *model);
LK_API int lk_model_parameter_count(const lk_model *model); /* tensors, not elements */
LK_API const char *lk_model_parameter_name(const lk_model *model, int index);
LK_API lk_shape lk_model_parameter_shape(const lk_model *model, int index);

/* parameters[i] = parameter i as training starts, a function of (seed, the parameter's name); new tensors. On failure
 * every entry is NULL. */
LK_API lk_status lk_model_init(const lk_model *model, lk_device *device, uint64_t seed, lk_tensor **parameters);

/* x: [N, C, H, W] f32 → logits [N, classes]. Recorded on the open tape. */
LK_API lk_tensor *lk_model_forward(const lk_model *model, lk_tensor *const *parameters, lk_tensor *x);

#ifdef __cplusplus
}
#endif

#endif
