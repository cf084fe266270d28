/* A network with everything that a contract has to hold for, batch-norm and dropout included, that trains in no time.
 */
#ifndef LK_TESTS_SMALL_NETWORK_H
#define LK_TESTS_SMALL_NETWORK_H

#include "training.h"

static inline lk_layer *small_block(int64_t filters)
{
    lk_conv2d_layer_opts conv = {.stride = 2, .same = true, .no_bias = true};
    lk_layer *body =
        LK_SEQUENTIAL(lk_layer_conv2d(filters, 3, &conv), lk_layer_batch_norm(NULL), lk_layer_activation(LK_RELU));
    lk_conv2d_layer_opts shortcut = {.stride = 2, .no_bias = true};
    return lk_layer_add(body, lk_layer_conv2d(filters, 1, &shortcut));
}

static inline lk_model *small_network_or_null(void)
{
    lk_layer *root = LK_SEQUENTIAL(lk_layer_max_pool(2, NULL), lk_layer_named("first", small_block(4)),
                                   lk_layer_named("second", small_block(6)), lk_layer_dropout(0.25), lk_layer_flatten(),
                                   lk_layer_dense(10, NULL));
    return lk_model_build("small", root, (lk_model_input){1, 28, 28, 10});
}

static inline lk_model *small_network(void)
{
    lk_model *model = small_network_or_null();
    if (!model)
        fail_msg("%s", lk_error_message());
    return model;
}

static inline lk_trainer *small_trainer(const lk_train_config *config)
{
    lk_error_clear();
    lk_trainer *trainer = lk_trainer_new_with(config, small_network());
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

static inline outcome train_small(const lk_train_config *config)
{
    lk_trainer *trainer = small_trainer(config);
    outcome out = fit(trainer);
    same_replicas(trainer, out.result.digest);
    lk_trainer_release(trainer);
    return out;
}

#endif
