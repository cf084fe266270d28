/* A network that trains in no time and has everything that equal bits are promised for, including batch-norm and
 * dropout. */
#pragma once

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
    return checked_trainer(lk_trainer_new_with(config, small_network()));
}

static inline outcome train_small(const lk_train_config *config)
{
    return fit_replicas(small_trainer(config));
}

/* Trains on 1, 2, 3 and 5 devices, with 0 to 2 workers; the outcomes must be the same. */
static inline outcome train_on_any_devices(lk_train_config config)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "5xcpu"};
    outcome first;
    for (int s = 0; s < 4; s++) {
        config.devices.spec = specs[s];
        config.data.workers = s % 3;
        outcome out = train_small(&config);
        if (s == 0)
            first = out;
        else
            same(&first, &out);
    }
    return first;
}
