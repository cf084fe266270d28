/* Helpers of the tests of executors, micro-batches and recomputation: an epoch of few samples, run in every way that
 * must give the same result. */
#pragma once

#include "training.h"

#include <math.h>

/* Two shards a batch, on one device. */
static inline lk_train_config one_epoch(void)
{
    lk_train_config config = small_training();
    config.devices.shards = 2;
    config.epochs = 1;
    config.devices.spec = "1xcpu";
    return config;
}

static inline lk_train_config few_samples(const char *model, int64_t samples, int64_t batch_size)
{
    lk_train_config config = one_epoch();
    config.model = model;
    config.data.limit_train = samples;
    config.data.limit_val = 3;
    config.batch_size = batch_size;
    return config;
}

static inline double mean_loss(const outcome *out)
{
    return out->epochs[0].train.loss.sum / (double)out->epochs[0].train.loss.count;
}

/* A program without fusion gives the eager executor's bits. With fusion it gives nearly those, and the same bits on one
 * and two devices: fusion leaves out roundings to bf16, each of which changes a value by up to 2^-9 of it. */
static inline void executors_agree(lk_train_config config)
{
    double most = config.execution.dtype == LK_PRECISION_BF16 ? 1e-2 : 1e-5;
    config.execution.executor = LK_EXECUTOR_EAGER;
    outcome eager = train(&config);
    config.execution.executor = LK_EXECUTOR_PROGRAM;
    config.execution.fuse = LK_FUSE_OFF;
    outcome program = train(&config);
    same(&eager, &program);
    config.execution.fuse = LK_FUSE_ON;
    outcome fused = train(&config);
    assert_true(fabs(mean_loss(&fused) - mean_loss(&eager)) <= most * fabs(mean_loss(&eager)));
    config.devices.spec = "2xcpu";
    outcome two = train(&config);
    same(&fused, &two);
}

/* lk_trainer_new fails with this message. */
static inline void is_refused(const lk_train_config *config, const char *message)
{
    assert_null(lk_trainer_new(config));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, message);
}
