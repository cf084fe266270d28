#include "export/c_calls.h"

#include "base/minmax.h"

#include <inttypes.h>
#include <string.h>

void lk__c_put_number(lk_bytes *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t fraction = (bits & 0x7FFFFF) << 1;
    int exponent = (int)(bits >> 23 & 0xFF);
    const char *sign = bits >> 31 ? "-" : "";
    if (exponent == 0 && fraction == 0)
        lk__bytes_format(out, "%s0", sign);
    else if (exponent == 0)
        lk__bytes_format(out, "%s0x0.%06" PRIx32 "p-126f", sign, fraction);
    else
        lk__bytes_format(out, "%s0x1.%06" PRIx32 "p%df", sign, fraction, exponent - 127);
}

void lk__c_put_offset(lk_bytes *out, const char *array, int64_t offset)
{
    if (offset < 0)
        lk__bytes_text(out, "NULL");
    else if (offset == 0)
        lk__bytes_text(out, array);
    else
        lk__bytes_format(out, "%s + %lld", array, (long long)offset);
}

void lk__c_put_offsets(lk_bytes *out, const char *const *arrays, const int64_t *offsets, int n)
{
    for (int i = 0; i < n; i++) {
        lk__bytes_text(out, i ? ", " : "");
        lk__c_put_offset(out, arrays[i], offsets[i]);
    }
}

void lk__c_put_numbers(lk_bytes *out, const int64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lk__bytes_format(out, ", %lld", (long long)numbers[i]);
}

static void c_call_put_scratch(lk_bytes *out, int64_t offset)
{
    lk__c_put_offset(out, "scratch", offset);
}

static void c_call_put_next_scratch(lk_bytes *out, int64_t offset)
{
    lk__bytes_text(out, ", ");
    c_call_put_scratch(out, offset);
}

static void c_call_put_factors(lk_bytes *out, const lk_c_call *call)
{
    static const char *const arrays[] = {"weights", "weights"};
    lk__bytes_text(out, ", ");
    lk__c_put_offsets(out, arrays, (const int64_t[]){call->first, call->second}, 2);
}

static int64_t c_call_pixels(const lk_node *node)
{
    return node->output.ndim == 4 ? node->output.dim[2] * node->output.dim[3] : 1;
}

static void c_call_put_convolution(lk_bytes *out, const lk_c_call *call, const lk_node *input)
{
    const lk_node *node = call->node;
    bool dense = node->kind == LK_NODE_DENSE;
    c_call_put_scratch(out, call->x);
    LK__C_PUT_NUMBERS(out, dense ? 1 : input->output.dim[3] + 2 * node->padding[1], input->output.dim[1]);
    c_call_put_factors(out, call);
    c_call_put_next_scratch(out, call->y);
    if (dense) {
        LK__C_PUT_NUMBERS(out, 1, 1, node->output.dim[1], 1, 1, 1, 1, 1, 1);
        return;
    }
    LK__C_PUT_NUMBERS(out, node->output.dim[2], node->output.dim[3], node->output.dim[1], node->kernel[0],
                      node->kernel[1], node->stride[0], node->stride[1], lk__max(node->dilation[0], 1),
                      lk__max(node->dilation[1], 1));
    if (call->kernel == LK__C_CONV2D_GROUPS)
        LK__C_PUT_NUMBERS(out, node->groups);
}

static void c_call_put_pooling(lk_bytes *out, const lk_c_call *call, const lk_node *input)
{
    const lk_node *node = call->node;
    lk_shape in = input->output;
    c_call_put_scratch(out, call->x);
    LK__C_PUT_NUMBERS(out, in.dim[2], in.dim[3], in.dim[1]);
    c_call_put_next_scratch(out, call->y);
    if (node->kind == LK_NODE_GLOBAL_MAX_POOL || node->kind == LK_NODE_GLOBAL_AVG_POOL)
        LK__C_PUT_NUMBERS(out, 1, 1, in.dim[2], in.dim[3], 1, 1, 0, 0);
    else
        LK__C_PUT_NUMBERS(out, node->output.dim[2], node->output.dim[3], node->kernel[0], node->kernel[1],
                          node->stride[0], node->stride[1], node->padding[0], node->padding[1]);
}

static void c_call_put_group_norm(lk_bytes *out, const lk_c_call *call)
{
    const lk_node *node = call->node;
    int64_t pixels = c_call_pixels(node), places = node->each_pixel ? pixels : 1;
    c_call_put_scratch(out, call->x);
    LK__C_PUT_NUMBERS(out, places, pixels / places, node->groups, node->output.dim[1] / node->groups);
    c_call_put_factors(out, call);
    lk__bytes_text(out, ", ");
    lk__c_put_number(out, (float)node->epsilon);
}

static void c_call_put_arguments(lk_bytes *out, const lk_network *network, const lk_c_call *call)
{
    const lk_node *node = call->node, *input = &network->graph.nodes[node->input[0]];
    switch (call->kernel) {
    case LK__C_CONV2D:
    case LK__C_CONV2D_GROUPS:
        c_call_put_convolution(out, call, input);
        return;
    case LK__C_MAX_POOL:
    case LK__C_AVG_POOL:
        c_call_put_pooling(out, call, input);
        return;
    case LK__C_PAD:
        c_call_put_scratch(out, call->x);
        LK__C_PUT_NUMBERS(out, input->output.dim[2], input->output.dim[3], input->output.dim[1], node->padding[0],
                          node->padding[1]);
        break;
    case LK__C_SCALE:
        c_call_put_scratch(out, call->x);
        LK__C_PUT_NUMBERS(out, c_call_pixels(node), node->output.dim[1]);
        c_call_put_factors(out, call);
        break;
    case LK__C_GROUP_NORM:
        c_call_put_group_norm(out, call);
        break;
    case LK__C_ADD:
        c_call_put_scratch(out, call->x);
        c_call_put_next_scratch(out, call->z);
        LK__C_PUT_NUMBERS(out, lk__node_count(node));
        break;
    case LK__C_MULTIPLY:
        c_call_put_scratch(out, call->x);
        c_call_put_next_scratch(out, call->z);
        LK__C_PUT_NUMBERS(out, c_call_pixels(node), node->output.dim[1],
                          network->graph.nodes[node->input[1]].output.ndim == node->output.ndim ? node->output.dim[1]
                                                                                                : 0);
        break;
    case LK__C_CONCAT:
        c_call_put_scratch(out, call->x);
        c_call_put_next_scratch(out, call->z);
        LK__C_PUT_NUMBERS(out, c_call_pixels(node), input->output.dim[1], node->output.dim[1] - input->output.dim[1]);
        break;
    case LK__C_TO_PLANES:
        c_call_put_scratch(out, call->x);
        LK__C_PUT_NUMBERS(out, c_call_pixels(input), input->output.dim[1]);
        break;
    case LK__C_FROM_PLANES:
        c_call_put_scratch(out, call->x);
        LK__C_PUT_NUMBERS(out, c_call_pixels(node), node->output.dim[1]);
        break;
    default:
        c_call_put_scratch(out, call->x);
        LK__C_PUT_NUMBERS(out, lk__node_count(node));
        lk__bytes_text(out, ", ");
        lk__c_put_number(out, (float)node->alpha);
        break;
    }
    c_call_put_next_scratch(out, call->y);
}

void lk__c_put_calls(lk_bytes *out, const lk_network *network, const lk_c_plan *plan)
{
    const char *name = "";
    for (int i = 0; i < plan->n; i++) {
        const lk_c_call *call = &plan->calls[i];
        if (call->node->name != name) {
            name = call->node->name;
            lk__bytes_text(out, "    /* ");
            lk__bytes_text(out, name);
            lk__bytes_text(out, " */\n");
        }
        lk__bytes_format(out, "    %s(", lk__c_kernel_name(call->kernel));
        c_call_put_arguments(out, network, call);
        lk__bytes_text(out, ");\n");
    }
}
