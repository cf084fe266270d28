/* Configurations of trainings that take a fraction of a second. */
#pragma once

#include "base/status_testing.h"
#include "lockstep/train.h"

/* Two epochs of synthetic images. `shards` is 0 for the default. */
static inline lk_train_config training_of(int64_t train, int64_t val, int64_t batch, int64_t shards)
{
    lk_train_config config;
    lk_error_clear();
    assert_ok(lk_train_defaults(NULL, &config));
    config.data.name = "synthetic";
    config.data.limit_train = train;
    config.data.limit_val = val;
    config.batch_size = batch;
    config.epochs = 2;
    config.devices.shards = shards;
    return config;
}

static inline lk_trainer *checked_trainer(lk_trainer *trainer)
{
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

static inline lk_trainer *new_trainer(const lk_train_config *config)
{
    lk_error_clear();
    return checked_trainer(lk_trainer_new(config));
}
