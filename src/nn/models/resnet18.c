/* ResNet-18 (He et al. 2016) as in Dive into Deep Learning, "Concise Implementation for Multiple GPUs": for small
 * images, with a 3x3 convolution of stride 1 and no pooling at the beginning. Weights start as N(0, 0.01), everything
 * else as in PyTorch: biases as U(-a, a) with a = 1 / sqrt(fan_in). */
#include "nn/model.h"

#include <stddef.h>

static const lk_init small = {.kind = LK_INIT_NORMAL, .value = 0.01}, torch = {.kind = LK_INIT_TORCH_UNIFORM};

static lk_layer *resnet_conv(const char *name, int64_t filters, int64_t kernel, int64_t stride)
{
    const lk_conv2d_layer_opts opts = {.stride = stride, .padding = kernel / 2, .weight = small, .bias = torch};
    return lk_layer_named(name, lk_layer_conv2d(filters, kernel, &opts));
}

static lk_layer *resnet_batch_norm(const char *name)
{
    return lk_layer_named(name, lk_layer_batch_norm(NULL));
}

static lk_layer *resnet_relu(void)
{
    return lk_layer_activation(LK_RELU);
}

/* In a block that changes the size, the first residual has a convolution on its shortcut. */
static lk_layer *resnet_residual(const char *name, int64_t filters, int64_t stride)
{
    lk_layer *body = LK_SEQUENTIAL(resnet_conv("conv1", filters, 3, stride), resnet_batch_norm("bn1"), resnet_relu(),
                                   resnet_conv("conv2", filters, 3, 1), resnet_batch_norm("bn2"));
    lk_layer *shortcut = stride > 1 ? resnet_conv("conv3", filters, 1, stride) : lk_layer_identity();
    return lk_layer_named(name, LK_SEQUENTIAL(lk_layer_add(body, shortcut), resnet_relu()));
}

static lk_layer *resnet_block(const char *name, int64_t filters, int64_t stride)
{
    return lk_layer_named(name, LK_SEQUENTIAL(resnet_residual("1", filters, stride), resnet_residual("2", filters, 1)));
}

static lk_layer *resnet18_make(lk_model_input input)
{
    const lk_dense_layer_opts dense = {.weight = small, .bias = torch};
    return LK_SEQUENTIAL(resnet_conv("conv1", 64, 3, 1), resnet_batch_norm("bn1"), resnet_relu(),
                         resnet_block("block1", 64, 1), resnet_block("block2", 128, 2), resnet_block("block3", 256, 2),
                         resnet_block("block4", 512, 2), lk_layer_global_avg_pool(),
                         lk_layer_named("dense", lk_layer_dense(input.classes, &dense)));
}

const lk_reference_model lk__model_resnet18 = {
    .name = "resnet18",
    .about = "ResNet-18 for small images, of Dive into Deep Learning's chapter on several GPUs",
    .make = resnet18_make,
};
