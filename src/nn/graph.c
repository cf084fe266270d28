/* A model as a graph: its layers in the order of the forward pass, without containers and without layers that do
 * nothing in inference. */
#include "base/mem.h"
#include "base/status.h"
#include "nn/model.h"

typedef struct walk {
    const lk_model *model;
    lk_graph *graph;
    int64_t capacity; /* of graph->nodes */
} walk;

static lk_status model_graph_add_node(walk *w, lk_node node, int *index)
{
    lk_graph *graph = w->graph;
    LK_TRY(LK_GROW(graph->nodes, &w->capacity, graph->n + 1));
    *index = graph->n;
    graph->nodes[graph->n++] = node;
    return LK_OK;
}

static lk_node model_graph_blank_node(const char *name, lk_shape output)
{
    return (lk_node){.name = name, .output = output, .input = {-1, -1}, .variable = {-1, -1, -1, -1}};
}

/* Adds the layer's nodes. x: the node of its input. Sets *y to the node of its output. */
static lk_status model_graph_describe(walk *w, const lk_layer *layer, int x, int *y);

static lk_status model_graph_describe_sequential(walk *w, const lk_layer *layer, int x, int *y)
{
    *y = x;
    for (int i = 0; i < layer->n_children; i++)
        LK_TRY(model_graph_describe(w, layer->children[i], *y, y));
    return LK_OK;
}

static lk_status model_graph_describe_join(walk *w, const lk_layer *layer, lk_node_kind kind, int x, int *y)
{
    lk_node node = model_graph_blank_node(layer->path, layer->output);
    node.kind = kind;
    for (int i = 0; i < layer->n_children; i++)
        LK_TRY(model_graph_describe(w, layer->children[i], x, &node.input[i]));
    return model_graph_add_node(w, node, y);
}

static lk_status model_graph_describe_leaf(walk *w, const lk_layer *layer, int x, int *y)
{
    if (!layer->table->describe)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "%s: layer '%s' of kind '%s' does not say what it computes (lk_layer_table.describe)", w->model->name,
                layer->path, layer->table->kind);
    lk_node node = {0};
    layer->table->describe(layer->config, &node);
    if (node.kind == LK_NODE_IDENTITY) {
        *y = x;
        return LK_OK;
    }
    node.name = layer->path;
    node.output = layer->output;
    node.input[0] = x;
    node.input[1] = -1;
    for (int i = 0; i < LK_NODE_VARIABLES; i++)
        node.variable[i] = i < layer->n_variables ? layer->variables[i] : -1;
    return model_graph_add_node(w, node, y);
}

static lk_status model_graph_describe(walk *w, const lk_layer *layer, int x, int *y)
{
    if (layer->table == &lk__layer_sequential_table)
        return model_graph_describe_sequential(w, layer, x, y);
    if (layer->table == &lk__layer_add_table)
        return model_graph_describe_join(w, layer, LK_NODE_ADD, x, y);
    if (layer->table == &lk__layer_multiply_table)
        return model_graph_describe_join(w, layer, LK_NODE_MULTIPLY, x, y);
    if (layer->table == &lk__layer_concat_table)
        return model_graph_describe_join(w, layer, LK_NODE_CONCAT, x, y);
    return model_graph_describe_leaf(w, layer, x, y);
}

lk_status lk_model_graph(const lk_model *model, lk_graph *graph)
{
    walk w = {.model = model, .graph = graph};
    const lk_model_input *in = &model->input;
    int y;
    *graph = (lk_graph){0};
    lk_node images = model_graph_blank_node("images", LK_SHAPE(1, in->channels, in->height, in->width));
    images.kind = LK_NODE_INPUT;
    lk_status status = model_graph_add_node(&w, images, &y);
    if (status == LK_OK)
        status = model_graph_describe(&w, model->root, y, &y);
    if (status != LK_OK)
        lk_graph_free(graph);
    return status;
}

void lk_graph_free(lk_graph *graph)
{
    lk__free(graph->nodes);
    *graph = (lk_graph){0};
}
