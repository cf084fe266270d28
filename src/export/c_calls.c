#include "export/c_calls.h"

#include <inttypes.h>
#include <string.h>

void lk__c_put_number(lk__bytes *out, float value)
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

void lk__c_put_place(lk__bytes *out, const char *array, int64_t place)
{
    if (place < 0)
        lk__bytes_text(out, "NULL");
    else if (place == 0)
        lk__bytes_text(out, array);
    else
        lk__bytes_format(out, "%s + %lld", array, (long long)place);
}

void lk__c_put_places(lk__bytes *out, const char *const *arrays, const int64_t *places, int n)
{
    for (int i = 0; i < n; i++) {
        lk__bytes_text(out, i ? ", " : "");
        lk__c_put_place(out, arrays[i], places[i]);
    }
}

void lk__c_put_numbers(lk__bytes *out, const int64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lk__bytes_format(out, ", %lld", (long long)numbers[i]);
}

static void put_x(lk__bytes *out, int64_t place)
{
    lk__c_put_place(out, "scratch", place);
}

static void put_y(lk__bytes *out, int64_t place)
{
    lk__bytes_text(out, ", ");
    put_x(out, place);
}

static void put_factors(lk__bytes *out, const lk__c_call *call)
{
    static const char *const arrays[] = {"weights", "weights"};
    lk__bytes_text(out, ", ");
    lk__c_put_places(out, arrays, (const int64_t[]){call->first, call->second}, 2);
}

static int64_t pixels_of(const lk_node *node)
{
    return node->output.ndim == 4 ? node->output.dim[2] * node->output.dim[3] : 1;
}

static void put_convolution(lk__bytes *out, const lk__c_call *call, const lk_node *input)
{
    const lk_node *node = call->node;
    bool dense = node->kind == LK_NODE_DENSE;
    put_x(out, call->x);
    LK__C_PUT_NUMBERS(out, dense ? 1 : input->output.dim[3] + 2 * node->padding, input->output.dim[1]);
    put_factors(out, call);
    put_y(out, call->y);
    if (dense)
        LK__C_PUT_NUMBERS(out, 1, 1, node->output.dim[1], 1, 1);
    else
        LK__C_PUT_NUMBERS(out, node->output.dim[2], node->output.dim[3], node->output.dim[1], node->kernel,
                          node->stride);
}

static void put_pooling(lk__bytes *out, const lk__c_call *call, const lk_node *input)
{
    const lk_node *node = call->node;
    lk_shape in = input->output;
    put_x(out, call->x);
    LK__C_PUT_NUMBERS(out, in.dim[2], in.dim[3], in.dim[1]);
    put_y(out, call->y);
    if (node->kind == LK_NODE_GLOBAL_MAX_POOL || node->kind == LK_NODE_GLOBAL_AVG_POOL)
        LK__C_PUT_NUMBERS(out, 1, 1, in.dim[2], in.dim[3], 1, 0);
    else
        LK__C_PUT_NUMBERS(out, node->output.dim[2], node->output.dim[3], node->kernel, node->kernel, node->stride,
                          node->padding);
}

static void put_arguments(lk__bytes *out, const lk__network *network, const lk__c_call *call)
{
    const lk_node *node = call->node, *input = &network->graph.nodes[node->input[0]];
    switch (call->kernel) {
    case LK__C_CONV2D:
        put_convolution(out, call, input);
        return;
    case LK__C_MAX_POOL:
    case LK__C_AVG_POOL:
        put_pooling(out, call, input);
        return;
    case LK__C_PAD:
        put_x(out, call->x);
        LK__C_PUT_NUMBERS(out, input->output.dim[2], input->output.dim[3], input->output.dim[1], node->padding);
        break;
    case LK__C_SCALE:
        put_x(out, call->x);
        LK__C_PUT_NUMBERS(out, pixels_of(node), node->output.dim[1]);
        put_factors(out, call);
        break;
    case LK__C_ADD:
        put_x(out, call->x);
        put_y(out, call->z);
        LK__C_PUT_NUMBERS(out, lk__node_count(node));
        break;
    case LK__C_TO_PLANES:
        put_x(out, call->x);
        LK__C_PUT_NUMBERS(out, pixels_of(input), input->output.dim[1]);
        break;
    case LK__C_FROM_PLANES:
        put_x(out, call->x);
        LK__C_PUT_NUMBERS(out, pixels_of(node), node->output.dim[1]);
        break;
    default:
        put_x(out, call->x);
        LK__C_PUT_NUMBERS(out, lk__node_count(node));
        lk__bytes_text(out, ", ");
        lk__c_put_number(out, (float)node->alpha);
        break;
    }
    put_y(out, call->y);
}

void lk__c_put_calls(lk__bytes *out, const lk__network *network, const lk__c_plan *plan)
{
    const char *name = "";
    for (int i = 0; i < plan->n; i++) {
        const lk__c_call *call = &plan->calls[i];
        if (call->node->name != name) {
            name = call->node->name;
            lk__bytes_text(out, "    /* ");
            lk__bytes_text(out, name);
            lk__bytes_text(out, " */\n");
        }
        lk__bytes_format(out, "    %s(", lk__c_kernel_name(call->kernel));
        put_arguments(out, network, call);
        lk__bytes_text(out, ");\n");
    }
}
