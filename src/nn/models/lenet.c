/* LeNet as in Dive into Deep Learning, "Training on Multiple GPUs". */
#include "nn/model.h"

static lk_layer *lenet_make(lk_model_input input)
{
    const lk_init small = {.kind = LK_INIT_NORMAL, .value = 0.01};
    const lk_conv2d_layer_opts conv = {.weight = small};
    const lk_dense_layer_opts dense = {.weight = small};
    return LK_SEQUENTIAL(lk_layer_named("conv1", lk_layer_conv2d(20, 3, &conv)), lk_layer_activation(LK_RELU),
                         lk_layer_avg_pool(2, NULL), lk_layer_named("conv2", lk_layer_conv2d(50, 5, &conv)),
                         lk_layer_activation(LK_RELU), lk_layer_avg_pool(2, NULL), lk_layer_flatten(),
                         lk_layer_named("dense1", lk_layer_dense(128, &dense)), lk_layer_activation(LK_RELU),
                         lk_layer_named("dense2", lk_layer_dense(input.classes, &dense)));
}

const lk_reference_model lk__model_lenet = {
    .name = "lenet",
    .about = "two convolutions and two dense layers, of Dive into Deep Learning's multi-GPU chapter",
    .make = lenet_make,
};
