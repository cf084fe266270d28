/* lk_tune: tune.c finds the problems and chooses implementations, tune_time.c measures them. */
#pragma once

#include "core/backend.h"
#include "lockstep/tune.h"
#include "ops/conv_problem.h"

typedef struct lk_tune_problem {
    const char *op, *text; /* operator and problem as in a tuning; borrowed */
    lk_conv_problem conv;
    bool reads_images;                 /* x comes from the loader, so its gradient is not needed */
    bool trains;                       /* conv_block only: its gradient is measured too */
    int n;                             /* implementations */
    const char *names[LK_MAX_CHOICES]; /* the built-in choice first */
    double seconds[LK_MAX_CHOICES];
} lk_tune_problem;
