/* Chooses the kernel of a convolution. Each operator has a table of alternatives. The built-in choice among them is a
 * function of problem, instruction set and lk_algorithms; a tuning overrides it. If the instruction set has kernels for
 * bf16, a call on bf16 has a problem in bf16, and all rows are alternatives: those for f32 run on stand-ins
 * (cpu_bf16.h). Otherwise its problem is one in f32. */
#pragma once

#include "core/backend.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/onednn/cpu_prepared.h"
#include "ops/conv_problem.h"

typedef struct lk_alternative {
    const char *(*name)(void);
    const lk_block_algorithm *(*block)(void);      /* the block algorithm that `run` runs; NULL: `run` needs none */
    bool (*takes)(const lk_conv_problem *problem); /* NULL: every problem */
    /* Returns whether the built-in choice takes this row, given that it took none of the rows before. NULL: always. */
    bool (*is_worth)(const lk_conv_problem *problem);
    bool bf16;         /* runs bf16 operands as they are, and no others */
    bool in_points;    /* for kernels of lanes: use lanes_winograd.h */
    bool rounds_more;  /* rounds more than plain sums of products, so LK_ALGORITHMS_DIRECT excludes it */
    bool needs_layout; /* outputs get a private layout, which the call must allow */
    lk_kernel_fn run;  /* NULL: separate operators instead of the fused one */
} lk_alternative;

/* Returns the alternative that lk__cpu_choose chose. */
static inline const lk_alternative *lk__cpu_choice(const lk_call *call)
{
    return call->choice;
}

/* Sets the problem and the implementation of a prepared call whose alternative was chosen. */
void lk__cpu_choice_describe(const lk_call *call, lk_prepared *prepared);

/* Chooses the alternative for a call and stores it in call->choice. */
const lk_alternative *lk__cpu_choose(lk_call *call);

/* Returns whether conv_block or its gradient runs as one kernel; the answer is the same for both. */
bool lk__cpu_chooses_block(const lk_call *call);

/* See lk_backend.choices. */
extern const lk_choices lk__cpu_choices;

/* See lk_backend.bf16_is_fast. */
const char *lk__cpu_bf16_is_fast(const lk_device *device);
