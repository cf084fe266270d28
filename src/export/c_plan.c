#include "export/c_plan.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* A piece of scratch memory, free once node `until` is computed. */
typedef struct block {
    int64_t begin, end;
    int until;
} block;

typedef struct planner {
    const lk__network *network;
    lk__c_plan *plan;
    int *last;      /* [node]: the last node that reads its value */
    int64_t *place; /* [node]: of its value */
    block *blocks;  /* those that are taken */
    int n_blocks;
    int now;
} planner;

enum { ALIGNMENT = 16, BLOCKS_A_NODE = 2 };

/* --- scratch memory ----------------------------------------------------------------------------------------------- */

static void let_go(planner *p)
{
    int kept = 0;
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].until >= p->now)
            p->blocks[kept++] = p->blocks[i];
    p->n_blocks = kept;
}

/* The first gap that is large enough. */
static int64_t take(planner *p, int64_t size, int until)
{
    int64_t begin = 0, room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = 0; i < p->n_blocks; i++)
        if (begin < p->blocks[i].end && p->blocks[i].begin < begin + room) {
            begin = p->blocks[i].end;
            i = -1;
        }
    p->blocks[p->n_blocks++] = (block){begin, begin + room, until};
    if (begin + room > p->plan->scratch)
        p->plan->scratch = begin + room;
    return begin;
}

static int64_t value_size(const planner *p, int node)
{
    return lk__node_count(&p->network->graph.nodes[node]);
}

/* The place of a node's input, which the node's own value takes over where nobody reads the input any more; -1:
 * somebody does. */
static int64_t take_over(planner *p, int input)
{
    for (int i = 0; i < p->n_blocks && p->last[input] == p->now; i++)
        if (p->blocks[i].begin == p->place[input]) {
            p->blocks[i].until = p->last[p->now];
            return p->place[input];
        }
    return -1;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Room for `count` weights that are zero; gives where it begins. */
static lk_status add_weights(lk__c_plan *plan, int64_t count, int64_t *begin)
{
    if (count > INT32_MAX - plan->n_weights)
        LK_FAIL(LK_ERR_UNSUPPORTED, "a network of more than %d weights cannot be written as C; ONNX holds it",
                INT32_MAX);
    if (plan->n_weights + count > plan->weights_capacity) {
        int64_t capacity = 2 * plan->weights_capacity + count;
        float *weights = lk__realloc(plan->weights, (size_t)capacity, sizeof *weights);
        if (!weights)
            return LK_ERR_MEMORY;
        plan->weights = weights;
        plan->weights_capacity = capacity;
    }
    *begin = plan->n_weights;
    memset(plan->weights + plan->n_weights, 0, (size_t)count * sizeof(float));
    plan->n_weights += count;
    return LK_OK;
}

/* Filters as [block][area][channels][lane]: of a convolution from [O, C, area], of a dense layer from [K, units]. */
static lk_status add_filters(planner *p, const lk_node *node, lk__c_call *call)
{
    bool dense = node->kind == LK_NODE_DENSE;
    const float *values = p->network->variables[node->variable[0]];
    int64_t filters = node->output.dim[1], blocks = (filters + LK__C_LANES - 1) / LK__C_LANES;
    int64_t area = dense ? 1 : node->kernel * node->kernel;
    int64_t channels = p->network->graph.nodes[node->input[0]].output.dim[1];
    LK_TRY(add_weights(p->plan, blocks * LK__C_LANES * area * channels, &call->first));
    LK_TRY(add_weights(p->plan, blocks * LK__C_LANES, &call->second));
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

static lk_status add_scale(planner *p, const lk_node *node, lk__c_call *call)
{
    int64_t channels = node->output.dim[1];
    LK_TRY(add_weights(p->plan, channels, &call->first));
    LK_TRY(add_weights(p->plan, channels, &call->second));
    lk__node_scale_shift(p->network, node, p->plan->weights + call->first, p->plan->weights + call->second);
    return LK_OK;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static lk_status add_call(lk__c_plan *plan, lk__c_call call)
{
    if (plan->n == plan->capacity) {
        int capacity = plan->capacity ? 2 * plan->capacity : 32;
        lk__c_call *calls = lk__realloc(plan->calls, (size_t)capacity, sizeof *calls);
        if (!calls)
            return LK_ERR_MEMORY;
        plan->calls = calls;
        plan->capacity = capacity;
    }
    plan->calls[plan->n++] = call;
    return LK_OK;
}

/* The node's value in a place of its own. */
static lk_status compute(planner *p, lk__c_call call)
{
    call.y = p->place[p->now] = take(p, value_size(p, p->now), p->last[p->now]);
    return add_call(p->plan, call);
}

/* The node's value in the place of its input, where that is over. */
static lk_status compute_in_place(planner *p, lk__c_call call)
{
    int64_t y = take_over(p, call.node->input[0]);
    if (y < 0 && call.node->input[1] >= 0)
        y = take_over(p, call.node->input[1]);
    if (y < 0)
        return compute(p, call);
    call.y = p->place[p->now] = y;
    return add_call(p->plan, call);
}

static lk_status convolve(planner *p, const lk_node *node, lk__c_call call)
{
    LK_TRY(add_filters(p, node, &call));
    if (node->kind == LK_NODE_CONV2D && node->padding > 0) {
        lk_shape in = p->network->graph.nodes[node->input[0]].output;
        int64_t size = in.dim[1] * (in.dim[2] + 2 * node->padding);
        if (!lk__mul_i64(size, in.dim[3] + 2 * node->padding, &size) || size > INT32_MAX)
            LK_FAIL(LK_ERR_UNSUPPORTED,
                    "layer '%s' with its padding is beyond what C code with indices of type int reaches", node->name);
        lk__c_call padded = call;
        padded.kernel = LK__C_PAD;
        padded.y = call.x = take(p, size, p->now);
        LK_TRY(add_call(p->plan, padded));
    }
    call.kernel = LK__C_CONV2D;
    return compute(p, call);
}

/* Row-major order is [C, H, W], and an image lies as [H, W, C]. */
static bool is_turned(const lk_node *node)
{
    lk_shape shape = node->output;
    return shape.ndim == 4 && shape.dim[1] > 1 && shape.dim[2] * shape.dim[3] > 1;
}

static lk_status reshape(planner *p, const lk_node *node, lk__c_call call)
{
    bool from = is_turned(&p->network->graph.nodes[node->input[0]]), to = is_turned(node);
    if (!from && !to) {
        int64_t place = take_over(p, node->input[0]);
        if (place >= 0) {
            p->place[p->now] = place;
            return LK_OK;
        }
        call.kernel = LK__C_TO_PLANES; /* of one channel it is a copy */
        return compute(p, call);
    }
    call.kernel = from ? LK__C_TO_PLANES : LK__C_FROM_PLANES;
    if (!from || !to)
        return compute(p, call);
    lk__c_call first = call;
    first.y = call.x = take(p, value_size(p, p->now), p->now);
    LK_TRY(add_call(p->plan, first));
    call.kernel = LK__C_FROM_PLANES;
    return compute(p, call);
}

static lk_status plan_node(planner *p, const lk_node *node)
{
    lk__c_call call = {.node = node, .x = p->place[node->input[0]], .first = -1, .second = -1};
    switch (node->kind) {
    case LK_NODE_CONV2D:
    case LK_NODE_DENSE:
        return convolve(p, node, call);
    case LK_NODE_BATCH_NORM:
        call.kernel = LK__C_SCALE;
        LK_TRY(add_scale(p, node, &call));
        return compute_in_place(p, call);
    case LK_NODE_ACTIVATION:
        call.kernel = (lk__c_kernel)(LK__C_RELU + node->activation);
        return compute_in_place(p, call);
    case LK_NODE_MAX_POOL:
    case LK_NODE_GLOBAL_MAX_POOL:
        call.kernel = LK__C_MAX_POOL;
        return compute(p, call);
    case LK_NODE_AVG_POOL:
    case LK_NODE_GLOBAL_AVG_POOL:
        call.kernel = LK__C_AVG_POOL;
        return compute(p, call);
    case LK_NODE_RESHAPE:
        return reshape(p, node, call);
    default:
        call.kernel = LK__C_ADD;
        call.z = p->place[node->input[1]];
        return compute_in_place(p, call);
    }
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static lk_status add_moments(const lk__network *network, lk__c_plan *plan)
{
    size_t channels = (size_t)network->input.channels;
    plan->mean = plan->divisor = -1;
    if (!network->mean)
        return LK_OK;
    LK_TRY(add_weights(plan, (int64_t)channels, &plan->mean));
    LK_TRY(add_weights(plan, (int64_t)channels, &plan->divisor));
    memcpy(plan->weights + plan->mean, network->mean, channels * sizeof(float));
    memcpy(plan->weights + plan->divisor, network->divisor, channels * sizeof(float));
    return LK_OK;
}

static void find_last_readers(const lk_graph *graph, int *last)
{
    for (int i = 1; i < graph->n; i++)
        for (int k = 0; k < LK_NODE_INPUTS; k++)
            if (graph->nodes[i].input[k] >= 0)
                last[graph->nodes[i].input[k]] = i;
    last[graph->n - 1] = graph->n;
}

static lk_status plan_all(planner *p)
{
    const lk_graph *graph = &p->network->graph;
    lk__c_plan *plan = p->plan;
    find_last_readers(graph, p->last);
    LK_TRY(add_moments(p->network, plan));
    plan->image = p->place[0] = take(p, value_size(p, 0), p->last[0]);
    for (p->now = 1; p->now < graph->n; p->now++) {
        let_go(p);
        LK_TRY(plan_node(p, &graph->nodes[p->now]));
    }
    plan->logits = p->place[graph->n - 1];
    if (plan->scratch > INT32_MAX)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "%s: %lld numbers of scratch memory are more than C code with indices of type int reaches",
                lk_model_name(p->network->model), (long long)plan->scratch);
    return LK_OK;
}

lk_status lk__c_plan_make(const lk__network *network, lk__c_plan *plan)
{
    size_t n = (size_t)network->graph.n;
    planner p = {.network = network,
                 .plan = plan,
                 .last = lk__calloc(n, sizeof *p.last),
                 .place = lk__calloc(n, sizeof *p.place),
                 .blocks = lk__calloc(n + 1, BLOCKS_A_NODE * sizeof *p.blocks)};
    *plan = (lk__c_plan){0};
    lk_status status = p.last && p.place && p.blocks ? plan_all(&p) : LK_ERR_MEMORY;
    lk__free(p.last);
    lk__free(p.place);
    lk__free(p.blocks);
    if (status != LK_OK)
        lk__c_plan_free(plan);
    return status;
}

void lk__c_plan_free(lk__c_plan *plan)
{
    lk__free(plan->calls);
    lk__free(plan->weights);
    *plan = (lk__c_plan){0};
}
