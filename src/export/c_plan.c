#include "export/c_plan.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"

#include <string.h>

/* A block of scratch memory, free once node `until` is computed. */
typedef struct block {
    int64_t begin, end;
    int until;
} block;

typedef struct planner {
    const lk_network *network;
    lk_c_plan *plan;
    int *last;       /* [node]: the last node that reads its value */
    int64_t *offset; /* [node]: offset of its value in scratch memory */
    block *blocks;   /* in use */
    int n_blocks;
    int now; /* the node that is being planned */
} planner;

enum { ALIGNMENT = 16, BLOCKS_A_NODE = 2 };

/* --- scratch memory ----------------------------------------------------------------------------------------------- */

static void c_plan_free_dead_blocks(planner *p)
{
    int kept = 0;
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].until >= p->now)
            p->blocks[kept++] = p->blocks[i];
    p->n_blocks = kept;
}

/* Takes the first gap that is large enough. Returns its offset. */
static int64_t c_plan_take_scratch(planner *p, int64_t size, int until)
{
    int64_t begin = 0, rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = 0; i < p->n_blocks; i++)
        if (begin < p->blocks[i].end && p->blocks[i].begin < begin + rounded) {
            begin = p->blocks[i].end;
            i = -1;
        }
    p->blocks[p->n_blocks++] = (block){begin, begin + rounded, until};
    p->plan->scratch = lk__max(p->plan->scratch, begin + rounded);
    return begin;
}

static int64_t c_plan_value_size(const planner *p, int node)
{
    return lk__node_count(&p->network->graph.nodes[node]);
}

/* Gives the block of an input to the current node's value, if no later node reads the input. Returns its offset; -1 if
 * the input is still needed. */
static int64_t c_plan_take_input_block(planner *p, int input)
{
    for (int i = 0; i < p->n_blocks && p->last[input] == p->now; i++)
        if (p->blocks[i].begin == p->offset[input]) {
            p->blocks[i].until = p->last[p->now];
            return p->offset[input];
        }
    return -1;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Appends `count` zeros to the weights. *begin: their offset. */
static lk_status c_plan_add_weights(lk_c_plan *plan, int64_t count, int64_t *begin)
{
    if (count > INT32_MAX - plan->n_weights)
        LK_FAIL(LK_ERR_UNSUPPORTED, "a network of more than %d weights cannot be written as C; ONNX holds it",
                INT32_MAX);
    LK_TRY(LK_GROW(plan->weights, &plan->weights_capacity, plan->n_weights + lk__max(count, 1)));
    *begin = plan->n_weights;
    memset(plan->weights + plan->n_weights, 0, (size_t)count * sizeof(float));
    plan->n_weights += count;
    return LK_OK;
}

/* Appends a variable with a number for each channel, or zeros if there is none. */
static lk_status c_plan_add_channels(planner *p, int variable, int64_t channels, int64_t *begin)
{
    LK_TRY(c_plan_add_weights(p->plan, channels, begin));
    if (variable >= 0)
        memcpy(p->plan->weights + *begin, p->network->variables[variable], (size_t)channels * sizeof(float));
    return LK_OK;
}

/* Appends filters as [block][area][channels][lane], from a convolution's [O, C, area] or a dense layer's [K, units]. */
static lk_status c_plan_add_filters(planner *p, const lk_node *node, lk_c_call *call)
{
    bool dense = node->kind == LK_NODE_DENSE;
    const float *values = p->network->variables[node->variable[0]];
    int64_t filters = node->output.dim[1], blocks = (filters + LK__C_LANES - 1) / LK__C_LANES;
    int64_t area = dense ? 1 : node->kernel[0] * node->kernel[1];
    int64_t channels = p->network->graph.nodes[node->input[0]].output.dim[1];
    LK_TRY(c_plan_add_weights(p->plan, blocks * LK__C_LANES * area * channels, &call->first));
    LK_TRY(c_plan_add_weights(p->plan, blocks * LK__C_LANES, &call->second));
    float *out = p->plan->weights + call->first;
    for (int64_t o = 0; o < filters; o++)
        for (int64_t k = 0; k < area; k++)
            for (int64_t c = 0; c < channels; c++)
                out[(((o / LK__C_LANES) * area + k) * channels + c) * LK__C_LANES + o % LK__C_LANES] =
                    dense ? values[c * filters + o] : values[(o * channels + c) * area + k];
    if (node->variable[1] >= 0)
        memcpy(p->plan->weights + call->second, p->network->variables[node->variable[1]],
               (size_t)filters * sizeof(float));
    return LK_OK;
}

/* The same as [area][channels of a group][O], for LK__C_CONV2D_GROUPS. */
static lk_status c_plan_add_group_filters(planner *p, const lk_node *node, lk_c_call *call)
{
    const float *values = p->network->variables[node->variable[0]];
    int64_t filters = node->output.dim[1], area = node->kernel[0] * node->kernel[1];
    int64_t channels = p->network->graph.nodes[node->input[0]].output.dim[1] / node->groups;
    LK_TRY(c_plan_add_weights(p->plan, area * channels * filters, &call->first));
    float *out = p->plan->weights + call->first;
    for (int64_t k = 0; k < area; k++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t o = 0; o < filters; o++)
                out[(k * channels + c) * filters + o] = values[(o * channels + c) * area + k];
    return c_plan_add_channels(p, node->variable[1], filters, &call->second);
}

static lk_status c_plan_add_scale(planner *p, const lk_node *node, lk_c_call *call)
{
    int64_t channels = node->output.dim[1];
    LK_TRY(c_plan_add_weights(p->plan, channels, &call->first));
    LK_TRY(c_plan_add_weights(p->plan, channels, &call->second));
    lk__node_scale_shift(p->network, node, p->plan->weights + call->first, p->plan->weights + call->second);
    return LK_OK;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static lk_status c_plan_add_call(lk_c_plan *plan, lk_c_call call)
{
    LK_TRY(LK_GROW(plan->calls, &plan->capacity, plan->n + 1));
    plan->calls[plan->n++] = call;
    return LK_OK;
}

/* Computes the node's value into a new block. */
static lk_status c_plan_call_into_new(planner *p, lk_c_call call)
{
    call.y = p->offset[p->now] = c_plan_take_scratch(p, c_plan_value_size(p, p->now), p->last[p->now]);
    return c_plan_add_call(p->plan, call);
}

/* Computes the node's value into the block of an input that no later node reads, or else into a new one. */
static lk_status c_plan_call_in_place(planner *p, lk_c_call call)
{
    int64_t y = c_plan_take_input_block(p, call.node->input[0]);
    if (y < 0 && call.node->input[1] >= 0)
        y = c_plan_take_input_block(p, call.node->input[1]);
    if (y < 0)
        return c_plan_call_into_new(p, call);
    call.y = p->offset[p->now] = y;
    return c_plan_add_call(p->plan, call);
}

static lk_status c_plan_convolution(planner *p, const lk_node *node, lk_c_call call)
{
    bool grouped = node->groups > 1;
    LK_TRY(grouped ? c_plan_add_group_filters(p, node, &call) : c_plan_add_filters(p, node, &call));
    if (node->kind == LK_NODE_CONV2D && (node->padding[0] > 0 || node->padding[1] > 0)) {
        lk_shape in = p->network->graph.nodes[node->input[0]].output;
        int64_t size = in.dim[1] * (in.dim[2] + 2 * node->padding[0]);
        if (!lk__mul_i64(size, in.dim[3] + 2 * node->padding[1], &size) || size > INT32_MAX)
            LK_FAIL(LK_ERR_UNSUPPORTED,
                    "layer '%s' with its padding is beyond what C code with indices of type int reaches", node->name);
        lk_c_call padded = call;
        padded.kernel = LK__C_PAD;
        padded.y = call.x = c_plan_take_scratch(p, size, p->now);
        LK_TRY(c_plan_add_call(p->plan, padded));
    }
    call.kernel = grouped ? LK__C_CONV2D_GROUPS : LK__C_CONV2D;
    return c_plan_call_into_new(p, call);
}

/* Returns whether the node's value in [H, W, C] differs from row-major order, [C, H, W]. */
static bool c_plan_is_transposed(const lk_node *node)
{
    lk_shape shape = node->output;
    return shape.ndim == 4 && shape.dim[1] > 1 && shape.dim[2] * shape.dim[3] > 1;
}

static lk_status c_plan_reshape(planner *p, const lk_node *node, lk_c_call call)
{
    bool from = c_plan_is_transposed(&p->network->graph.nodes[node->input[0]]), to = c_plan_is_transposed(node);
    if (!from && !to) {
        int64_t offset = c_plan_take_input_block(p, node->input[0]);
        if (offset >= 0) {
            p->offset[p->now] = offset;
            return LK_OK;
        }
        call.kernel = LK__C_TO_PLANES; /* with one channel it copies */
        return c_plan_call_into_new(p, call);
    }
    call.kernel = from ? LK__C_TO_PLANES : LK__C_FROM_PLANES;
    if (!from || !to)
        return c_plan_call_into_new(p, call);
    lk_c_call first = call;
    first.y = call.x = c_plan_take_scratch(p, c_plan_value_size(p, p->now), p->now);
    LK_TRY(c_plan_add_call(p->plan, first));
    call.kernel = LK__C_FROM_PLANES;
    return c_plan_call_into_new(p, call);
}

static lk_status c_plan_node(planner *p, const lk_node *node)
{
    lk_c_call call = {.node = node, .x = p->offset[node->input[0]], .first = -1, .second = -1};
    switch (node->kind) {
    case LK_NODE_CONV2D:
    case LK_NODE_DENSE:
        return c_plan_convolution(p, node, call);
    case LK_NODE_BATCH_NORM:
        call.kernel = LK__C_SCALE;
        LK_TRY(c_plan_add_scale(p, node, &call));
        return c_plan_call_in_place(p, call);
    case LK_NODE_SCALE:
        call.kernel = LK__C_SCALE;
        LK_TRY(c_plan_add_channels(p, node->variable[0], node->output.dim[1], &call.first));
        LK_TRY(c_plan_add_channels(p, -1, node->output.dim[1], &call.second));
        return c_plan_call_in_place(p, call);
    case LK_NODE_GROUP_NORM:
        call.kernel = LK__C_GROUP_NORM;
        LK_TRY(c_plan_add_channels(p, node->variable[0], node->output.dim[1], &call.first));
        LK_TRY(c_plan_add_channels(p, node->variable[1], node->output.dim[1], &call.second));
        return c_plan_call_in_place(p, call);
    case LK_NODE_ACTIVATION:
        call.kernel = (lk_c_kernel)(LK__C_RELU + node->activation);
        return c_plan_call_in_place(p, call);
    case LK_NODE_MAX_POOL:
    case LK_NODE_GLOBAL_MAX_POOL:
        call.kernel = LK__C_MAX_POOL;
        return c_plan_call_into_new(p, call);
    case LK_NODE_AVG_POOL:
    case LK_NODE_GLOBAL_AVG_POOL:
        call.kernel = LK__C_AVG_POOL;
        return c_plan_call_into_new(p, call);
    case LK_NODE_RESHAPE:
        return c_plan_reshape(p, node, call);
    case LK_NODE_MULTIPLY:
        call.kernel = LK__C_MULTIPLY;
        call.z = p->offset[node->input[1]];
        return c_plan_call_into_new(p, call);
    case LK_NODE_CONCAT:
        call.kernel = LK__C_CONCAT;
        call.z = p->offset[node->input[1]];
        return c_plan_call_into_new(p, call);
    default:
        call.kernel = LK__C_ADD;
        call.z = p->offset[node->input[1]];
        return c_plan_call_in_place(p, call);
    }
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static lk_status c_plan_add_moments(const lk_network *network, lk_c_plan *plan)
{
    size_t channels = (size_t)network->input.channels;
    plan->mean = plan->divisor = -1;
    if (!network->mean)
        return LK_OK;
    LK_TRY(c_plan_add_weights(plan, (int64_t)channels, &plan->mean));
    LK_TRY(c_plan_add_weights(plan, (int64_t)channels, &plan->divisor));
    memcpy(plan->weights + plan->mean, network->mean, channels * sizeof(float));
    memcpy(plan->weights + plan->divisor, network->divisor, channels * sizeof(float));
    return LK_OK;
}

static void c_plan_find_last_readers(const lk_graph *graph, int *last)
{
    for (int i = 1; i < graph->n; i++)
        for (int k = 0; k < LK_NODE_INPUTS; k++)
            if (graph->nodes[i].input[k] >= 0)
                last[graph->nodes[i].input[k]] = i;
    last[graph->n - 1] = graph->n;
}

static lk_status c_plan_network(planner *p)
{
    const lk_graph *graph = &p->network->graph;
    lk_c_plan *plan = p->plan;
    c_plan_find_last_readers(graph, p->last);
    LK_TRY(c_plan_add_moments(p->network, plan));
    plan->image = p->offset[0] = c_plan_take_scratch(p, c_plan_value_size(p, 0), p->last[0]);
    for (p->now = 1; p->now < graph->n; p->now++) {
        c_plan_free_dead_blocks(p);
        LK_TRY(c_plan_node(p, &graph->nodes[p->now]));
    }
    plan->logits = p->offset[graph->n - 1];
    if (plan->scratch > INT32_MAX)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "%s: %lld numbers of scratch memory are more than C code with indices of type int reaches",
                lk_model_name(p->network->model), (long long)plan->scratch);
    return LK_OK;
}

lk_status lk__c_plan_make(const lk_network *network, lk_c_plan *plan)
{
    size_t n = (size_t)network->graph.n;
    planner p = {.network = network,
                 .plan = plan,
                 .last = lk__calloc(n, sizeof *p.last),
                 .offset = lk__calloc(n, sizeof *p.offset),
                 .blocks = lk__calloc(n + 1, BLOCKS_A_NODE * sizeof *p.blocks)};
    *plan = (lk_c_plan){0};
    lk_status status = p.last && p.offset && p.blocks ? c_plan_network(&p) : LK_ERR_MEMORY;
    lk__free(p.last);
    lk__free(p.offset);
    lk__free(p.blocks);
    if (status != LK_OK)
        lk__c_plan_free(plan);
    return status;
}

void lk__c_plan_free(lk_c_plan *plan)
{
    lk__free(plan->calls);
    lk__free(plan->weights);
    *plan = (lk_c_plan){0};
}
