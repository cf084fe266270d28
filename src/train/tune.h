/* lk_tune's parts: tune.c finds problems and chooses, tune_time.c takes times. */
#ifndef LK_TRAIN_TUNE_H
#define LK_TRAIN_TUNE_H

#include "core/backend.h"
#include "lockstep/tune.h"
#include "ops/conv_problem.h"

typedef struct lk__tune_problem {
    const char *op, *text; /* as in a tuning; borrowed */
    lk_conv_problem conv;
    bool reads_images; /* x comes from the loader: nobody asks for its gradient */
    bool trains;       /* of conv_block: its gradient is part of the problem */
    int n;
    const char *names[LK_MAX_CHOICES]; /* the built-in choice first */
    double seconds[LK_MAX_CHOICES];
} lk__tune_problem;

/* The processor time of one call on `device`, with the tuning that it has now: the median of `samples`. Blocks. */
lk_status lk__tune_time(lk_device *device, const lk__tune_problem *problem, int64_t samples, double *seconds);

/* Sorts, and gives the middle one. */
double lk__tune_median(double *times, int64_t n);

#endif
