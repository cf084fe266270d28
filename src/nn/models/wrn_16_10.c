/* The WideResNet (Zagoruyko, Komodakis 2016) of depth 16 and width 10 of NVIDIA's lab on training with several GPUs,
 * with Keras' defaults. Its residuals end with the addition, and its convolutions come before the batch-norms. */
#include "nn/model.h"

#include <stddef.h>

static lk_layer *wrn_conv(const char *name, int64_t filters, int64_t kernel)
{
    return lk_layer_named(name, lk_layer_conv2d(filters, kernel, &(lk_conv2d_layer_opts){.same = true}));
}

/* Keras' momentum of 0.99 is the weight of the old value; here it is that of the new one. */
static lk_layer *wrn_batch_norm(const char *name)
{
    const lk_batch_norm_layer_opts opts = {.epsilon = 1e-3, .momentum = 0.01};
    return lk_layer_named(name, lk_layer_batch_norm(&opts));
}

static lk_layer *wrn_relu(void)
{
    return lk_layer_activation(LK_RELU);
}

static lk_layer *wrn_residual(const char *name, int64_t filters, bool scale_input)
{
    lk_layer *body =
        LK_SEQUENTIAL(wrn_conv("conv1", filters, 3), wrn_batch_norm("bn1"), wrn_relu(), lk_layer_dropout(0.01),
                      wrn_conv("conv2", filters, 3), wrn_batch_norm("bn2"), wrn_relu());
    lk_layer *shortcut = scale_input ? wrn_conv("conv3", filters, 1) : lk_layer_identity();
    return lk_layer_named(name, lk_layer_add(body, shortcut));
}

static lk_layer *wrn_block(const char *name, int64_t filters)
{
    return lk_layer_named(name, LK_SEQUENTIAL(wrn_residual("1", filters, true), wrn_residual("2", filters, false)));
}

static lk_layer *wrn_make(lk_model_input input)
{
    return LK_SEQUENTIAL(wrn_conv("conv1", 16, 3), wrn_batch_norm("bn1"), wrn_relu(), wrn_block("block1", 160),
                         lk_layer_max_pool(2, NULL), wrn_block("block2", 320), lk_layer_max_pool(2, NULL),
                         wrn_block("block3", 640), lk_layer_global_avg_pool(),
                         lk_layer_named("dense", lk_layer_dense(input.classes, NULL)));
}

const lk_reference_model lk__model_wrn_16_10 = {
    .name = "wrn-16-10",
    .about = "the WideResNet of depth 16 and width 10 of NVIDIA's Fashion-MNIST lab",
    .make = wrn_make,
};
