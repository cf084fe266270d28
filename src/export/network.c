#include "export/network.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/shape.h"

#include <math.h>
#include <string.h>

static const double deviation_floor = 1e-6; /* see lk_augment_opts */

static const lk_export_writer *const writers[LK_EXPORT_FORMAT_COUNT] = {[LK_EXPORT_SAFETENSORS] =
                                                                            &lk__export_safetensors,
                                                                        [LK_EXPORT_ONNX] = &lk__export_onnx,
                                                                        [LK_EXPORT_SAVEDMODEL] = &lk__export_savedmodel,
                                                                        [LK_EXPORT_C] = &lk__export_c};

const char *lk_export_format_name(lk_export_format format)
{
    return (unsigned)format < LK_EXPORT_FORMAT_COUNT ? writers[format]->name : NULL;
}

int64_t lk__network_count(const lk_network *network, int variable)
{
    return lk_shape_count(lk_model_variable_shape(network->model, variable));
}

int64_t lk__node_count(const lk_node *node)
{
    return lk_shape_count(node->output); /* dim[0] is 1 */
}

void lk__node_scale_shift(const lk_network *network, const lk_node *node, float *scale, float *shift)
{
    const float *values[LK_NODE_VARIABLES];
    for (int i = 0; i < LK_NODE_VARIABLES; i++)
        values[i] = network->variables[node->variable[i]];
    for (int64_t c = 0; c < node->output.dim[1]; c++) {
        double factor = values[0][c] / sqrt((double)values[3][c] + node->epsilon);
        scale[c] = (float)factor;
        shift[c] = (float)(values[1][c] - values[2][c] * factor);
    }
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Checks the shapes of a node's variables. A layer that a caller defines may describe itself wrongly, for example as a
 * convolution without a weight. */
static lk_status network_check_variables(const lk_network *network, const lk_node *node)
{
    static const int least[LK_NODE_KIND_COUNT] = {[LK_NODE_CONV2D] = 1,
                                                  [LK_NODE_DENSE] = 1,
                                                  [LK_NODE_BATCH_NORM] = 4,
                                                  [LK_NODE_GROUP_NORM] = 2,
                                                  [LK_NODE_SCALE] = 1};
    const lk_shape in = network->graph.nodes[node->input[0]].output, out = node->output;
    lk_shape want[LK_NODE_VARIABLES] = {{0}};
    if (node->kind == LK_NODE_CONV2D)
        want[0] = LK_SHAPE(out.dim[1], in.dim[1] / lk__max(node->groups, 1), node->kernel[0], node->kernel[1]);
    else if (node->kind == LK_NODE_DENSE)
        want[0] = LK_SHAPE(in.dim[1], out.dim[1]);
    else
        want[0] = LK_SHAPE(out.dim[1]);
    for (int i = 1; i < LK_NODE_VARIABLES; i++)
        want[i] = LK_SHAPE(out.dim[1]);
    int64_t groups = node->kind == LK_NODE_GROUP_NORM ? node->groups : lk__max(node->groups, 1);
    bool grouped = groups > 0 && out.dim[1] % groups == 0;
    for (int i = 0; i < LK_NODE_VARIABLES && least[node->kind] > 0; i++) {
        if (node->variable[i] < 0 && i >= least[node->kind])
            continue;
        lk_shape shape =
            node->variable[i] < 0 ? LK_SHAPE(0) : lk_model_variable_shape(network->model, node->variable[i]);
        if (!grouped || !lk__shape_equal(shape, want[i]))
            LK_FAIL(LK_ERR_UNSUPPORTED, "%s: layer '%s' describes itself as something that its variables do not fit",
                    lk_model_name(network->model), node->name);
    }
    return LK_OK;
}

static lk_status network_check_nodes(const lk_network *network)
{
    const lk_graph *graph = &network->graph;
    lk_shape logits = graph->nodes[graph->n - 1].output;
    if (network->input.classes < 1 || logits.ndim != 2 || graph->n < 2)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: it gives no logits of classes, which an exported network does",
                lk_model_name(network->model));
    for (int i = 1; i < graph->n; i++) {
        lk_node_kind kind = graph->nodes[i].kind;
        bool joins = kind == LK_NODE_ADD || kind == LK_NODE_MULTIPLY || kind == LK_NODE_CONCAT;
        if (kind <= LK_NODE_IDENTITY || kind >= LK_NODE_KIND_COUNT || (joins && graph->nodes[i].input[1] < 0))
            LK_FAIL(LK_ERR_UNSUPPORTED, "%s: layer '%s' describes itself as a node of kind %d, which no layer is",
                    lk_model_name(network->model), graph->nodes[i].name, (int)kind);
        if (strlen(graph->nodes[i].name) > LK__EXPORT_MAX_PATH)
            LK_FAIL(LK_ERR_UNSUPPORTED, "%s: the path of layer '%.40s...' has more than %d bytes",
                    lk_model_name(network->model), graph->nodes[i].name, LK__EXPORT_MAX_PATH);
        if (graph->nodes[i].output.ndim != 2 && graph->nodes[i].output.ndim != 4)
            LK_FAIL(LK_ERR_UNSUPPORTED, "%s: layer '%s' gives %d axes; expected [N, K] or [N, C, H, W]",
                    lk_model_name(network->model), graph->nodes[i].name, graph->nodes[i].output.ndim);
        LK_TRY(network_check_variables(network, &graph->nodes[i]));
    }
    return LK_OK;
}

static lk_status network_check_finite(const lk_network *network)
{
    for (int v = 0; v < lk_model_variable_count(network->model); v++) {
        const float *values = network->variables[v];
        for (int64_t i = 0, n = lk__network_count(network, v); i < n; i++)
            if (!isfinite(values[i]))
                LK_FAIL(LK_ERR_NUMERIC,
                        "%s: variable '%s' has the value %g at %lld; a network that is exported has "
                        "finite ones",
                        lk_model_name(network->model), lk_model_variable_name(network->model, v), (double)values[i],
                        (long long)i);
    }
    return LK_OK;
}

/* --- the export --------------------------------------------------------------------------------------------------- */

static lk_status network_take_moments(const lk_export_network *given, lk_network *network)
{
    if (!given->center && !given->standardize)
        return LK_OK;
    if ((given->center && !given->mean) || (given->standardize && !given->deviation))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: centering and standardization need mean and deviation of each channel",
                lk_model_name(given->model));
    int64_t channels = network->input.channels;
    network->mean = lk__calloc((size_t)channels, 2 * sizeof(float));
    if (!network->mean)
        return LK_ERR_MEMORY;
    network->divisor = network->mean + channels;
    for (int64_t c = 0; c < channels; c++) {
        network->mean[c] = given->center ? (float)given->mean[c] : 0;
        network->divisor[c] = given->standardize ? (float)(given->deviation[c] + deviation_floor) : 1;
        if (!isfinite(network->mean[c]) || !isfinite(network->divisor[c]) || network->divisor[c] == 0)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: channel %lld has mean %g and divisor %g; they must be finite and not 0",
                    lk_model_name(given->model), (long long)c, (double)network->mean[c], (double)network->divisor[c]);
    }
    return LK_OK;
}

static lk_status network_open(const lk_export_network *given, const lk_export_writer *writer, lk_network *network)
{
    *network = (lk_network){.model = given->model,
                            .input = lk_model_get_input(given->model),
                            .variables = given->variables,
                            .class_names = given->class_names};
    for (int v = 0; v < lk_model_variable_count(given->model); v++)
        network->elements += lk__network_count(network, v);
    if (writer->variables_only)
        return LK_OK;
    LK_TRY(lk_model_graph(given->model, &network->graph));
    LK_TRY(network_check_nodes(network));
    LK_TRY(network_check_finite(network));
    return network_take_moments(given, network);
}

lk_status lk_export(const lk_export_network *network, lk_export_format format, const char *path,
                    const lk_export_opts *opts)
{
    const lk_export_opts defaults = {0};
    if ((unsigned)format >= LK_EXPORT_FORMAT_COUNT)
        LK_FAIL(LK_ERR_ARGUMENT, "export: there is no format %d; there are 0 to %d", (int)format,
                LK_EXPORT_FORMAT_COUNT - 1);
    if (!path || !*path)
        LK_FAIL(LK_ERR_ARGUMENT, "export: the path of what is to be written is empty");
    lk_network taken;
    lk_status status = network_open(network, writers[format], &taken);
    if (status == LK_OK)
        status = writers[format]->write(&taken, path, opts ? opts : &defaults);
    lk_graph_free(&taken.graph);
    lk__free(taken.mean);
    return status;
}
