/* The network of TensorFlow's tutorial "Distributed training with Keras", with Keras' defaults. */
#include "nn/model.h"

static lk_layer *keras_cnn_make(lk_model_input input)
{
    return LK_SEQUENTIAL(lk_layer_named("conv1", lk_layer_conv2d(32, 3, NULL)), lk_layer_activation(LK_RELU),
                         lk_layer_max_pool(2, NULL), lk_layer_flatten(),
                         lk_layer_named("dense1", lk_layer_dense(64, NULL)), lk_layer_activation(LK_RELU),
                         lk_layer_named("dense2", lk_layer_dense(input.classes, NULL)));
}

const lk_reference_model lk__model_keras_cnn = {
    .name = "keras-cnn",
    .about = "one convolution and two dense layers, of TensorFlow's tutorial on distributed training with Keras",
    .make = keras_cnn_make,
};
