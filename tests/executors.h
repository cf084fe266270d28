/* What the tests of executors, of micro-batches and of recomputation share: an epoch of few samples, and running it in
 * every way that has to come to the same. */
#ifndef LK_TESTS_EXECUTORS_H
#define LK_TESTS_EXECUTORS_H

#include "training.h"

#include <math.h>

/* Two shards a batch, on one device. */
static inline lk_train_config one_epoch(void)
{
    lk_train_config config = small_training();
    config.shards = 2;
    config.epochs = 1;
    config.devices = "1xcpu";
    return config;
}

static inline lk_train_config few_samples(const char *model, int64_t samples, int64_t batch_size)
{
    lk_train_config config = one_epoch();
    config.model = model;
    config.limit_train = samples;
    config.limit_val = 3;
    config.batch_size = batch_size;
    return config;
}

static inline double mean_loss(const outcome *out)
{
    return out->epochs[0].train.loss.sum / (double)out->epochs[0].train.loss.count;
}

/* A program without fusion gives the eager executor's bits; with fusion nearly those, and the same ones on two devices.
 * Fusion leaves out roundings to bf16, each of 2^-9 of a value. */
static inline void executors_agree(lk_train_config config)
{
    double most = config.dtype == LK_PRECISION_BF16 ? 1e-2 : 1e-5;
    config.executor = LK_EXECUTOR_EAGER;
    outcome eager = train(&config);
    config.executor = LK_EXECUTOR_PROGRAM;
    config.fuse = LK_FUSE_OFF;
    outcome program = train(&config);
    same(&eager, &program);
    config.fuse = LK_FUSE_ON;
    outcome fused = train(&config);
    assert_true(fabs(mean_loss(&fused) - mean_loss(&eager)) <= most * fabs(mean_loss(&eager)));
    config.devices = "2xcpu";
    outcome two = train(&config);
    same(&fused, &two);
}

/* No trainer is made of it. */
static inline void is_refused(const lk_train_config *config, const char *message)
{
    assert_null(lk_trainer_new(config));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, message);
}

#endif
