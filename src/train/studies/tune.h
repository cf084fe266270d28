/* lk_tune: tune.c finds the problems and chooses implementations, tune_time.c measures them. */
#pragma once

#include "core/backend.h"
#include "lockstep/tune.h"
#include "ops/conv_problem.h"
#include "ops/product_problem.h"

typedef struct lk_tune_problem {
    const char *op, *text; /* operator and problem as in a tuning; borrowed */
    bool is_product;
    lk_conv_problem conv;              /* if not */
    lk_product_problem product;        /* if it is */
    bool reads_images;                 /* x comes from the loader, so its gradient is not needed */
    bool trains;                       /* conv_block only: its gradient is measured too */
    int n;                             /* implementations */
    const char *names[LK_MAX_CHOICES]; /* the built-in choice first */
    double seconds[LK_MAX_CHOICES];
    char of_library[LK_MAX_CHOICES][LK_CHOICE_NAME]; /* the texts of `names`, if a library has them */
} lk_tune_problem;
