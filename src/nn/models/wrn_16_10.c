/* The WideResNet (Zagoruyko, Komodakis 2016) of depth 16 and width 10 of NVIDIA's lab on training with several GPUs;
 * Keras' defaults. Its residuals end with the addition, and their convolutions come before their batch-norms. */
#include "nn/model.h"

#include <stddef.h>

static lk_layer *conv(const char *name, int64_t filters, int64_t kernel)
{
    return lk_layer_named(name, lk_layer_conv2d(filters, kernel, &(lk_conv2d_layer_opts){.same = true}));
}

/* Keras' momentum of 0.99 is the share of what was there before. */
static lk_layer *batch_norm(const char *name)
{
    const lk_batch_norm_layer_opts opts = {.epsilon = 1e-3, .momentum = 0.01};
    return lk_layer_named(name, lk_layer_batch_norm(&opts));
}

static lk_layer *relu(void)
{
    return lk_layer_activation(LK_RELU);
}

static lk_layer *residual(const char *name, int64_t filters, bool scale_input)
{
    lk_layer *body = LK_SEQUENTIAL(conv("conv1", filters, 3), batch_norm("bn1"), relu(), lk_layer_dropout(0.01),
                                   conv("conv2", filters, 3), batch_norm("bn2"), relu());
    lk_layer *shortcut = scale_input ? conv("conv3", filters, 1) : lk_layer_identity();
    return lk_layer_named(name, lk_layer_add(body, shortcut));
}

static lk_layer *block(const char *name, int64_t filters)
{
    return lk_layer_named(name, LK_SEQUENTIAL(residual("1", filters, true), residual("2", filters, false)));
}

static lk_layer *make(lk_model_input input)
{
    return LK_SEQUENTIAL(conv("conv1", 16, 3), batch_norm("bn1"), relu(), block("block1", 160),
                         lk_layer_max_pool(2, NULL), block("block2", 320), lk_layer_max_pool(2, NULL),
                         block("block3", 640), lk_layer_global_avg_pool(),
                         lk_layer_named("dense", lk_layer_dense(input.classes, NULL)));
}

const lk_reference_model lk__model_wrn_16_10 = {
    .name = "wrn-16-10",
    .about = "the WideResNet of depth 16 and width 10 of NVIDIA's Fashion-MNIST lab",
    .make = make,
};
