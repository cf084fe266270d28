/* Which kernel runs a convolution: alternatives in a table for each operator, a built-in choice among them that is a
 * function of problem, instruction set and lk_algorithms, and a tuning that overrides it. */
#ifndef LK_CPU_CPU_CHOICE_H
#define LK_CPU_CPU_CHOICE_H

#include "core/backend.h"
#include "cpu/block_conv.h"
#include "ops/conv_problem.h"

typedef struct lk_alternative {
    const char *(*name)(void);
    const lk_block_algorithm *(*block)(void);      /* which of them the kernel runs; NULL: it has no choice */
    bool (*takes)(const lk_conv_problem *problem); /* NULL: whatever there is */
    /* Whether the built-in choice is this one, where none before it is. NULL: wherever it is taken. */
    bool (*is_worth)(const lk_conv_problem *problem);
    bool in_points;    /* of lanes: by lanes_winograd.h */
    bool rounds_more;  /* than sums of products as they are written: LK_ALGORITHMS_DIRECT goes without it */
    bool needs_layout; /* of outputs, so the call has to leave it free */
    lk_kernel_fn run;  /* NULL: operators apart, in place of the fused one */
} lk_alternative;

/* The one that lk__cpu_choose has chosen. */
static inline const lk_alternative *lk__cpu_choice(const lk_call *call)
{
    return call->choice;
}

/* The alternative that runs a convolution or one of its gradients; kept in call->choice. */
const lk_alternative *lk__cpu_choose(lk_call *call);

/* Whether conv_block, or its gradient, runs as one: the same for both. */
bool lk__cpu_chooses_block(const lk_call *call);

/* See lk_backend.choices. */
extern const lk_choices lk__cpu_choices;

#endif
