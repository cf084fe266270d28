/* The alternatives for convolutions, and the choice among them: see cpu_choice.h. */
#include "cpu/cpu_choice.h"

#include "base/status.h"
#include "core/tuning.h"
#include "cpu/blocks/cpu_block_act.h"
#include "cpu/blocks/cpu_block_conv.h"
#include "cpu/cpu_kernels.h"
#include "cpu/depthwise/cpu_depthwise.h"
#include "cpu/isa.h"
#include "cpu/lanes/cpu_lanes.h"
#include "cpu/lanes/cpu_lanes_block.h"
#include "cpu/lanes/cpu_lanes_winograd.h"
#include "cpu/onednn/cpu_prepared.h"
#include "cpu/onednn/dnnl_compat.h"

#include <stdio.h>
#include <string.h>

/* --- whether an alternative suits --------------------------------------------------------------------------------- */

static bool cpu_choice_lanes_take(const lk_conv_problem *p)
{
    return lk__cpu_lanes_take_conv(p->x, &p->attrs.conv);
}

static bool cpu_choice_lanes_are_worth(const lk_conv_problem *p)
{
    return lk__cpu_lanes_want_conv(p->x, p->w, &p->attrs.conv);
}

static bool choice_lanes_winograd_takes(const lk_conv_problem *p)
{
    return cpu_choice_lanes_take(p) && lk__cpu_lanes_winograd_takes(p);
}

static bool choice_lanes_winograd_is_worth(const lk_conv_problem *p)
{
    return cpu_choice_lanes_are_worth(p) && lk__cpu_lanes_winograd_is_worth(p);
}

static bool cpu_choice_blocks_winograd_takes(const lk_conv_problem *p)
{
    return lk__cpu_lanes_take_block(p) && lk__cpu_lanes_winograd_takes(p);
}

static bool cpu_choice_blocks_winograd_is_worth(const lk_conv_problem *p)
{
    return lk__cpu_lanes_want_block(p) && lk__cpu_lanes_winograd_is_worth(p);
}

static bool choice_direct_takes(const lk_conv_problem *p)
{
    return lk__cpu_blocks_take_conv(p->x, p->w, &p->attrs.conv);
}

static bool choice_winograd_takes(const lk_conv_problem *p)
{
    return choice_direct_takes(p) && lk__cpu_winograd_takes(p);
}

static bool choice_tiles_take(const lk_conv_problem *p)
{
    return choice_direct_takes(p) && lk__cpu_tiles_take(p);
}

static bool choice_tiles_take_act(const lk_conv_problem *p)
{
    return lk__cpu_blocks_take_act(p) && lk__cpu_tiles_take(p);
}

static bool cpu_choice_winograd_takes_act(const lk_conv_problem *p)
{
    return lk__cpu_blocks_take_act(p) && lk__cpu_winograd_takes(p);
}

/* --- tables, in the order in which the built-in choice tries them ------------------------------------------------- */

static const char *cpu_choice_winograd_name(void)
{
    return lk__block_winograd()->name;
}

static const char *cpu_choice_direct_name(void)
{
    return lk__block_direct()->name;
}

static const char *cpu_choice_onednn_name(void)
{
    return "onednn";
}

static const char *cpu_choice_apart_name(void)
{
    return "apart";
}

static const char *cpu_choice_tiles_name(void)
{
    return lk__block_tiles()->name;
}

static const char *cpu_choice_winograd_bf16_name(void)
{
    return lk__block_winograd_bf16()->name;
}

static const char *cpu_choice_direct_bf16_name(void)
{
    return lk__block_direct_bf16()->name;
}

/* Wherever tiles can be used they come before Winograd's algorithm, which saves three of four products: a processor
 * with tiles multiplies 32 times as many pairs of bf16 on these as on vectors (docs/lab/bf16.md). */
/* clang-format off: one member a line */
#define ROWS(direction)                                                   \
    {.name = lk__cpu_lanes_bf16_name,                                     \
     .takes = cpu_choice_lanes_take,                                      \
     .is_worth = cpu_choice_lanes_are_worth,                              \
     .bf16 = true,                                                        \
     .needs_layout = true,                                                \
     .run = lk__cpu_lanes_##direction},                                   \
        {.name = cpu_choice_tiles_name,                                   \
         .block = lk__block_tiles,                                        \
         .takes = choice_tiles_take,                                      \
         .bf16 = true,                                                    \
         .needs_layout = true,                                            \
         .run = lk__cpu_block_##direction},                               \
        {.name = cpu_choice_winograd_bf16_name,                           \
         .block = lk__block_winograd_bf16,                                \
         .takes = choice_winograd_takes,                                  \
         .is_worth = lk__cpu_winograd_is_worth,                           \
         .bf16 = true,                                                    \
         .rounds_more = true,                                             \
         .needs_layout = true,                                            \
         .run = lk__cpu_block_##direction},                               \
        {.name = cpu_choice_direct_bf16_name,                             \
         .block = lk__block_direct_bf16,                                  \
         .takes = choice_direct_takes,                                    \
         .is_worth = lk__cpu_direct_is_worth,                             \
         .bf16 = true,                                                    \
         .needs_layout = true,                                            \
         .run = lk__cpu_block_##direction},                               \
        {.name = lk__cpu_lanes_winograd_name,                             \
         .takes = choice_lanes_winograd_takes,                            \
         .is_worth = choice_lanes_winograd_is_worth,                      \
         .in_points = true,                                               \
         .rounds_more = true,                                             \
         .needs_layout = true,                                            \
         .run = lk__cpu_lanes_##direction},                               \
        {.name = lk__cpu_lanes_name,                                      \
         .takes = cpu_choice_lanes_take,                                  \
         .is_worth = cpu_choice_lanes_are_worth,                          \
         .needs_layout = true,                                            \
         .run = lk__cpu_lanes_##direction},                               \
        {.name = cpu_choice_winograd_name,                                \
         .block = lk__block_winograd,                                     \
         .takes = choice_winograd_takes,                                  \
         .is_worth = lk__cpu_winograd_is_worth,                           \
         .rounds_more = true,                                             \
         .needs_layout = true,                                            \
         .run = lk__cpu_block_##direction},                               \
        {.name = cpu_choice_direct_name,                                  \
         .block = lk__block_direct,                                       \
         .takes = choice_direct_takes,                                    \
         .is_worth = lk__cpu_direct_is_worth,                             \
         .needs_layout = true,                                            \
         .run = lk__cpu_block_##direction},                               \
    {                                                                     \
        .name = cpu_choice_onednn_name, .run = lk__cpu_onednn_##direction \
    }
/* clang-format on */

enum { CONVOLUTIONS = 9, WEIGHT_GRADS = 10, BLOCKS = 9 };

static const lk_alternative conv2d[CONVOLUTIONS] = {ROWS(conv2d)};
static const lk_alternative input_grad[CONVOLUTIONS] = {ROWS(conv2d_input_grad)};
static const lk_alternative weight_grad[WEIGHT_GRADS] = {
    {.name = lk__cpu_depthwise_name,
     .takes = lk__cpu_depthwise_takes,
     .is_worth = lk__cpu_depthwise_is_worth,
     .run = lk__cpu_depthwise_conv2d_weight_grad},
    ROWS(conv2d_weight_grad),
};
static const lk_alternative conv_block[BLOCKS] = {
    {.name = lk__cpu_lanes_bf16_name,
     .takes = lk__cpu_lanes_take_block,
     .is_worth = lk__cpu_lanes_want_block,
     .bf16 = true,
     .run = lk__cpu_conv_block},
    {.name = cpu_choice_tiles_name,
     .block = lk__block_tiles,
     .takes = choice_tiles_take_act,
     .bf16 = true,
     .run = lk__cpu_conv_block},
    {.name = cpu_choice_winograd_bf16_name,
     .block = lk__block_winograd_bf16,
     .takes = cpu_choice_winograd_takes_act,
     .is_worth = lk__cpu_winograd_act_is_worth,
     .bf16 = true,
     .rounds_more = true,
     .run = lk__cpu_conv_block},
    {.name = cpu_choice_direct_bf16_name,
     .block = lk__block_direct_bf16,
     .takes = lk__cpu_blocks_take_act,
     .is_worth = lk__cpu_direct_act_is_worth,
     .bf16 = true,
     .run = lk__cpu_conv_block},
    {.name = lk__cpu_lanes_winograd_name,
     .takes = cpu_choice_blocks_winograd_takes,
     .is_worth = cpu_choice_blocks_winograd_is_worth,
     .in_points = true,
     .rounds_more = true,
     .run = lk__cpu_conv_block},
    {.name = lk__cpu_lanes_name,
     .takes = lk__cpu_lanes_take_block,
     .is_worth = lk__cpu_lanes_want_block,
     .run = lk__cpu_conv_block},
    {.name = cpu_choice_winograd_name,
     .block = lk__block_winograd,
     .takes = cpu_choice_winograd_takes_act,
     .is_worth = lk__cpu_winograd_act_is_worth,
     .rounds_more = true,
     .run = lk__cpu_conv_block},
    {.name = cpu_choice_direct_name,
     .block = lk__block_direct,
     .takes = lk__cpu_blocks_take_act,
     .is_worth = lk__cpu_direct_act_is_worth,
     .run = lk__cpu_conv_block},
    {.name = cpu_choice_apart_name},
};

static const lk_alternative *cpu_choice_table_of(int op, int *n)
{
    *n = op == LK_OP_CONV_BLOCK ? BLOCKS : op == LK_OP_CONV2D_WEIGHT_GRAD ? WEIGHT_GRADS : CONVOLUTIONS;
    return op == LK_OP_CONV2D              ? conv2d
           : op == LK_OP_CONV2D_INPUT_GRAD ? input_grad
           : op == LK_OP_CONV_BLOCK        ? conv_block
                                           : weight_grad;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

static bool cpu_choice_has_bf16(void)
{
    return lk__isa() && lk__isa()->bf16;
}

/* Like lk__conv_problem_of, but without kernels for bf16 the problem of bf16 operands is one in f32. */
static bool cpu_choice_problem_of(const lk_call *call, lk_conv_problem *problem)
{
    bool is_problem = lk__conv_problem_of(call, problem);
    if (!cpu_choice_has_bf16())
        problem->dtype = LK_F32;
    return is_problem;
}

static bool alternative_takes(const lk_alternative *row, const lk_conv_problem *problem, bool free_layout)
{
    if (row->bf16 && (problem->dtype != LK_BF16 || !cpu_choice_has_bf16()))
        return false;
    return (free_layout || !row->needs_layout) && (!row->takes || row->takes(problem));
}

static const lk_alternative *cpu_choice_built_in_alternative(const lk_conv_problem *problem, lk_algorithms algorithms,
                                                             bool free_layout)
{
    int n;
    const lk_alternative *row = cpu_choice_table_of(problem->op, &n);
    for (;; row++) {
        bool allowed = algorithms == LK_ALGORITHMS_FAST || !row->rounds_more;
        if (allowed && alternative_takes(row, problem, free_layout) && (!row->is_worth || row->is_worth(problem)))
            return row;
    }
}

/* Returns the alternative that the tuning names; NULL if it names none that the call can use. */
static const lk_alternative *cpu_choice_tuned_alternative(const lk_conv_problem *problem, const lk_tuning *tuning,
                                                          bool free_layout)
{
    char text[LK_PROBLEM_TEXT];
    int n;
    const lk_alternative *table = cpu_choice_table_of(problem->op, &n);
    lk__conv_problem_text(problem, text, sizeof text);
    const char *name = lk__tuning_find(tuning, lk_op_name(problem->op), text);
    for (int i = 0; name && i < n; i++)
        if (alternative_takes(&table[i], problem, free_layout) && strcmp(table[i].name(), name) == 0)
            return &table[i];
    return NULL;
}

/* If a tuning splits a conv_block with pooling, fusion next tries the conv_block without pooling. The tuning names not
 * that one but the convolution alone, so a conv_block without pooling that a tuning does not name is split too. */
static bool cpu_choice_may_precede_pooling(const lk_conv_problem *problem)
{
    return problem->op == LK_OP_CONV_BLOCK && problem->attrs.pooling == LK_BLOCK_NO_POOL;
}

/* The gradient of weights is row-major whichever alternative computes it, so the call need not allow layouts. */
static const lk_alternative *cpu_choice_choose_alternative(const lk_call *call, const lk_conv_problem *problem)
{
    bool free_layout = call->free_layout || problem->op == LK_OP_CONV2D_WEIGHT_GRAD;
    const lk_alternative *row = call->tuning ? cpu_choice_tuned_alternative(problem, call->tuning, free_layout) : NULL;
    if (!row && call->tuning && cpu_choice_may_precede_pooling(problem))
        return &conv_block[BLOCKS - 1];
    return row ? row : cpu_choice_built_in_alternative(problem, call->algorithms, free_layout);
}

const lk_alternative *lk__cpu_choose(lk_call *call)
{
    lk_conv_problem problem;
    if (!call->choice && cpu_choice_problem_of(call, &problem))
        call->choice = cpu_choice_choose_alternative(call, &problem);
    return call->choice;
}

void lk__cpu_choice_describe(const lk_call *call, lk_prepared *prepared)
{
    lk__conv_call_text(call, prepared->problem, sizeof prepared->problem);
    snprintf(prepared->implementation, sizeof prepared->implementation, "%s", lk__cpu_choice(call)->name());
}

bool lk__cpu_chooses_block(const lk_call *call)
{
    lk_conv_problem problem;
    return cpu_choice_problem_of(call, &problem) && cpu_choice_choose_alternative(call, &problem)->run;
}

/* --- interface for tunings ---------------------------------------------------------------------------------------- */

static void choices_describe(const lk_device *device, char *text, size_t size)
{
    (void)device;
    snprintf(text, size, "instruction set %s, oneDNN %s", lk__dnnl_instruction_set(), lk__dnnl_version_text());
}

static lk_status choices_list(const char *op, const char *text, const char **names, int *count)
{
    lk_conv_problem problem;
    int n;
    *count = 0;
    if (!lk__conv_problem_parse(op, text, &problem) || problem.tf32 || problem.bias || problem.direct || problem.to_f32)
        LK_FAIL(LK_ERR_ARGUMENT,
                "'%s %s' is no problem that has alternatives; one is 'conv2d f32 x[32,64,28,28] w[64,64,3,3] stride "
                "1x1 padding 1x1 dilation 1x1'",
                op, text);
    const lk_alternative *table = cpu_choice_table_of(problem.op, &n),
                         *first = cpu_choice_built_in_alternative(&problem, LK_ALGORITHMS_FAST, true);
    names[(*count)++] = first->name();
    for (int i = 0; i < n; i++)
        if (&table[i] != first && alternative_takes(&table[i], &problem, true))
            names[(*count)++] = table[i].name();
    return LK_OK;
}

static lk_status choices_of_call(const lk_call *call, lk_call_choice *choice)
{
    lk_conv_problem problem;
    choice->op = NULL;
    if (!cpu_choice_problem_of(call, &problem))
        return LK_OK;
    choice->op = lk_op_name(problem.op);
    lk__conv_problem_text(&problem, choice->problem, sizeof choice->problem);
    snprintf(choice->implementation, sizeof choice->implementation, "%s",
             cpu_choice_choose_alternative(call, &problem)->name());
    return LK_OK;
}

const lk_choices lk__cpu_choices = {.describe = choices_describe, .list = choices_list, .of_call = choices_of_call};

const char *lk__cpu_bf16_is_fast(const lk_device *device)
{
    const lk_isa *isa = lk__isa();
    (void)device;
    if (isa && isa->tiles)
        return "the processor has AMX";
    return isa == &lk__isa_avx512bf16 && lk__isa_pairs_are_fast() ? "the processor is AMD's and has AVX512_BF16" : NULL;
}
