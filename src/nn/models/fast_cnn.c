/* A network that learns Fashion-MNIST in minutes: convolutions of 3x3 without biases, each with a batch-norm, and one
 * residual, as in the ResNet-9 of David Page's "How to train your ResNet" (2018), with fewer channels. It pools before
 * it normalizes, which leaves a quarter to normalize. Convolutions start as he_normal, the dense layer as in Keras. */
#include "nn/model.h"

#include <stddef.h>

static lk_layer *fast_conv(const char *name, int64_t filters)
{
    const lk_conv2d_layer_opts opts = {.same = true, .no_bias = true, .weight = {.kind = LK_INIT_HE_NORMAL}};
    return lk_layer_named(name, lk_layer_conv2d(filters, 3, &opts));
}

static lk_layer *fast_pool(void)
{
    return lk_layer_max_pool(2, NULL);
}

static lk_layer *fast_batch_norm(const char *name)
{
    return lk_layer_named(name, lk_layer_batch_norm(NULL));
}

static lk_layer *fast_relu(void)
{
    return lk_layer_activation(LK_RELU);
}

static lk_layer *fast_residual(const char *name, int64_t filters)
{
    lk_layer *body = LK_SEQUENTIAL(fast_conv("conv1", filters), fast_batch_norm("bn1"), fast_relu(),
                                   fast_conv("conv2", filters), fast_batch_norm("bn2"), fast_relu());
    return lk_layer_named(name, lk_layer_add(body, lk_layer_identity()));
}

static lk_layer *fast_cnn_make(lk_model_input input)
{
    return LK_SEQUENTIAL(fast_conv("conv1", 32), fast_batch_norm("bn1"), fast_relu(), fast_conv("conv2", 64),
                         fast_pool(), fast_batch_norm("bn2"), fast_relu(), fast_conv("conv3", 128), fast_pool(),
                         fast_batch_norm("bn3"), fast_relu(), fast_residual("block3", 128), fast_conv("conv4", 256),
                         fast_pool(), fast_batch_norm("bn4"), fast_relu(), lk_layer_global_max_pool(),
                         lk_layer_named("dense", lk_layer_dense(input.classes, NULL)));
}

const lk_reference_model lk__model_fast_cnn = {
    .name = "fast-cnn",
    .about = "six convolutions, two of them in a residual, for a high accuracy on Fashion-MNIST in little time",
    .make = fast_cnn_make,
};
