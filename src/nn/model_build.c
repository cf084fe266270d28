/* From a tree of layers to a model: walks it once with the shape of a sample, names what it finds, and keeps what the
 * layers ask for. */
#include "nn/model.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- lists -------------------------------------------------------------------------------------------------------- */

static lk_status make_room(void *list, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return LK_OK;
    int more = *capacity ? 2 * *capacity : 32;
    void **memory = list;
    void *grown = lk__realloc(*memory, (size_t)more, size);
    if (!grown)
        return LK_ERR_MEMORY;
    *memory = grown;
    *capacity = more;
    return LK_OK;
}

static lk_status append(lk_layer ***list, int *count, int *capacity, lk_layer *layer)
{
    LK_TRY(make_room(list, *count, capacity, sizeof **list));
    (*list)[(*count)++] = layer;
    return LK_OK;
}

/* "prefix.name", or "name" where the prefix is empty. */
static char *join(const char *prefix, const char *name, int number)
{
    size_t size = strlen(prefix) + strlen(name) + 16;
    char *text = lk__calloc(size, 1);
    if (!text)
        return NULL;
    int used = snprintf(text, size, "%s%s%s", prefix, *prefix ? "." : "", name);
    if (number > 1)
        snprintf(text + used, size - (size_t)used, "%d", number);
    return text;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void where_text(const lk_model *model, const lk_layer *layer, char *text, size_t size)
{
    if (model->file && layer->line > 0)
        snprintf(text, size, "%s:%d: %s", model->file, layer->line, layer->table->kind);
    else
        snprintf(text, size, "%s: %s", model->name, layer->path && *layer->path ? layer->path : layer->table->kind);
}

lk_status lk_layer_fail(const lk_layer_builder *builder, lk_status status, const char *format, ...)
{
    char where[512], text[LK_MESSAGE_BYTES - 512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    where_text(builder->model, builder->layer, where, sizeof where);
    lk__fail(status, "%s: %s", where, text);
    return status;
}

/* --- paths -------------------------------------------------------------------------------------------------------- */

static bool has_own_path(const lk_layer *layer)
{
    return layer->name || !lk__layer_is_container(layer);
}

/* Whether its children's paths begin with its own. */
static bool opens_scope(const lk_layer *layer)
{
    return layer->name || !(lk__layer_is_container(layer) || layer->table == &lk__layer_add_table);
}

/* Names have no dots, so paths can only be equal within one scope. */
static bool is_used(const lk_model *model, const lk_layer *scope, const char *path)
{
    for (int i = 0; i < model->n_layers; i++) {
        const lk_layer *layer = model->layers[i];
        if (layer->scope == scope && has_own_path(layer) && strcmp(layer->path, path) == 0)
            return true;
    }
    return false;
}

static char *numbered_path(const lk_model *model, const lk_layer *scope, const char *prefix, const char *kind)
{
    int number = 1;
    for (int i = 0; i < model->n_layers; i++) {
        const lk_layer *layer = model->layers[i];
        if (layer->scope == scope && !layer->name && strcmp(layer->table->kind, kind) == 0)
            number++;
    }
    for (;; number++) {
        char *path = join(prefix, kind, number);
        if (!path || !is_used(model, scope, path))
            return path;
        lk__free(path);
    }
}

static lk_status set_path(lk_model *model, const lk_layer *parent, lk_layer *layer)
{
    if (parent)
        layer->scope = opens_scope(parent) ? parent : parent->scope;
    const char *prefix = layer->scope ? layer->scope->path : "";
    if (layer->name)
        layer->path = join(prefix, layer->name, 0);
    else if (lk__layer_is_container(layer))
        layer->path = lk__strdup(prefix);
    else
        layer->path = numbered_path(model, layer->scope, prefix, layer->table->kind);
    if (!layer->path)
        return LK_ERR_MEMORY;
    lk_layer_builder builder = {.model = model, .layer = layer};
    if (layer->name && is_used(model, layer->scope, layer->path))
        return lk_layer_fail(&builder, model->file ? LK_ERR_FORMAT : LK_ERR_ARGUMENT, "the name '%s' is used twice",
                             layer->path);
    return append(&model->layers, &model->n_layers, &model->layers_capacity, layer);
}

/* --- one layer ---------------------------------------------------------------------------------------------------- */

/* Whether it has elements, of which even f64 ones can be addressed. */
static bool is_addressable(lk_shape shape)
{
    int64_t count = lk_shape_count(shape);
    return count >= 1 && count <= INT64_MAX / 64;
}

static lk_status check_output(lk_layer_builder *builder, lk_shape shape)
{
    bool fits = shape.ndim >= 2 && shape.ndim <= LK_MAX_DIMS && shape.dim[0] == 1;
    for (int i = 1; fits && i < shape.ndim; i++)
        fits = shape.dim[i] >= 1;
    if (!fits)
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "the shape that it gives must have 2 to %d axes, the first 1 and none below 1",
                             LK_MAX_DIMS);
    if (!is_addressable(shape))
        return lk_layer_fail(builder, LK_ERR_SHAPE, "an image's output has more elements than can be addressed");
    return LK_OK;
}

static lk_status check_children(lk_layer_builder *builder)
{
    for (int i = 0; i < builder->layer->n_children; i++)
        if (!builder->layer->children[i]->built)
            return lk_layer_fail(builder, LK_ERR_STATE, "child %d was not built", i);
    return LK_OK;
}

/* A layer of the user's may fail without having said why. */
static lk_status explained(lk_layer_builder *builder, lk_status status)
{
    if (status != LK_OK && lk_error_status() == LK_OK)
        return lk_layer_fail(builder, status, "could not be built: %s", lk_status_name(status));
    return status;
}

static void note_needs(lk_model *model, lk_layer *source, lk_layer *layer)
{
    if (layer->needs & LK_NEEDS_INPUT && source)
        source->output_kept = true;
    if (layer->needs & LK_NEEDS_OUTPUT)
        layer->output_kept = true;
    if (!(layer->needs & LK_MAKES_VIEW))
        model->source = layer;
}

lk_status lk__layer_build(lk_model *model, const lk_layer *parent, lk_layer *layer, int depth, lk_shape in,
                          lk_shape *out)
{
    lk_layer_builder builder = {.model = model, .layer = layer, .depth = depth};
    lk_layer *source = model->source;
    LK_TRY(set_path(model, parent, layer));
    if (depth > LK_LAYER_MAX_DEPTH)
        return lk_layer_fail(&builder, LK_ERR_ARGUMENT, "layers are nested more than %d deep", LK_LAYER_MAX_DEPTH);
    *out = in;
    layer->built = true;
    if (layer->table->build)
        LK_TRY(explained(&builder, layer->table->build(&builder, layer->config, in, out)));
    LK_TRY(check_output(&builder, *out));
    LK_TRY(check_children(&builder));
    layer->output = *out;
    if (lk__layer_is_container(layer))
        return LK_OK;
    note_needs(model, source, layer);
    return append(&model->rows, &model->n_rows, &model->rows_capacity, layer);
}

lk_status lk_layer_build_child(lk_layer_builder *builder, int child, lk_shape in, lk_shape *out)
{
    lk_layer *layer = builder->layer;
    if (child < 0 || child >= layer->n_children)
        return lk_layer_fail(builder, LK_ERR_ARGUMENT, "there is no child %d; there are %d", child, layer->n_children);
    if (layer->children[child]->built)
        return lk_layer_fail(builder, LK_ERR_STATE, "child %d was built already", child);
    LK_TRY(check_output(builder, in));
    return lk__layer_build(builder->model, layer, layer->children[child], builder->depth + 1, in, out);
}

void lk_layer_flops(lk_layer_builder *builder, double flops)
{
    builder->layer->flops = flops;
}

void lk_layer_gradient_needs(lk_layer_builder *builder, int needs, int64_t bytes)
{
    builder->layer->needs = needs;
    builder->layer->bytes = bytes;
}

lk_status lk__layer_statistics(lk_layer_builder *builder, int64_t samples)
{
    lk_model *model = builder->model;
    builder->layer->statistics = model->n_statistics;
    builder->layer->samples = samples;
    return append(&model->statistics, &model->n_statistics, &model->statistics_capacity, builder->layer);
}

lk_status lk__layer_check_ndim(lk_layer_builder *builder, lk_shape in, int ndim, const char *want)
{
    char text[128];
    if (in.ndim == ndim)
        return LK_OK;
    lk__shape_text(in, text, sizeof text);
    const char *help = "";
    if (ndim == 2)
        help = "; put a flatten or a global pooling before it";
    else if (in.ndim == 2)
        help = "; put a reshape before it";
    return lk_layer_fail(builder, LK_ERR_SHAPE, "gets %s; it takes %s%s", text, want, help);
}

lk_status lk__layer_window(lk_layer_builder *builder, const char *axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t *count)
{
    if (kernel > size + 2 * padding)
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "a kernel of %lld does not fit into %s = %lld with padding %lld; the images are too small",
                             (long long)kernel, axis, (long long)size, (long long)padding);
    *count = (size + 2 * padding - kernel) / stride + 1;
    return LK_OK;
}

/* --- variables ---------------------------------------------------------------------------------------------------- */

static lk_status check_variable(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init)
{
    if (!lk__layer_name_ok(name))
        return lk_layer_fail(builder, LK_ERR_ARGUMENT,
                             "the variable's name '%s' must be of letters, digits, '_' and '-'", name ? name : "");
    if (shape.ndim < 0 || shape.ndim > LK_MAX_DIMS || !is_addressable(shape))
        return lk_layer_fail(builder, LK_ERR_SHAPE, "'%s' has no elements or more than can be addressed", name);
    return lk__init_check(builder->layer->table->kind, name, init);
}

static lk_status add_variable(lk_layer_builder *builder, const char *name, lk_variable_spec spec)
{
    lk_model *model = builder->model;
    LK_TRY(check_variable(builder, name, spec.shape, spec.init));
    LK_TRY(make_room(&model->variables, model->n_variables, &model->variables_capacity, sizeof *model->variables));
    spec.name = join(builder->layer->path, name, 0);
    if (!spec.name)
        return LK_ERR_MEMORY;
    spec.layer = builder->layer;
    if (spec.init.kind == LK_INIT_DEFAULT)
        spec.init.kind = LK_INIT_ZEROS;
    for (int i = 0; i < model->n_variables; i++) {
        if (strcmp(model->variables[i].name, spec.name) == 0) {
            lk_layer_fail(builder, LK_ERR_ARGUMENT, "two variables are called '%s'", spec.name);
            lk__free(spec.name);
            return LK_ERR_ARGUMENT;
        }
    }
    model->variables[model->n_variables++] = spec;
    return LK_OK;
}

lk_status lk_layer_parameter(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init, int64_t fan_in,
                             int64_t fan_out)
{
    LK_TRY(add_variable(builder, name,
                        (lk_variable_spec){.shape = shape, .init = init, .fan_in = fan_in, .fan_out = fan_out}));
    builder->layer->parameters += lk_shape_count(shape);
    return LK_OK;
}

lk_status lk_layer_buffer(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init)
{
    return add_variable(builder, name, (lk_variable_spec){.shape = shape, .init = init, .buffer = true});
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* Parameters first, both in the order in which they were asked for. */
static lk_status order_variables(lk_model *model)
{
    lk_variable_spec *ordered = lk__calloc((size_t)model->n_variables + 1, sizeof *ordered);
    if (!ordered)
        return LK_ERR_MEMORY;
    int n = 0;
    for (int buffers = 0; buffers < 2; buffers++) {
        for (int i = 0; i < model->n_variables; i++)
            if (model->variables[i].buffer == (buffers != 0))
                ordered[n++] = model->variables[i];
        if (!buffers)
            model->n_parameters = n;
    }
    lk__free(model->variables);
    model->variables = ordered;
    return LK_OK;
}

static lk_status give_to_layers(lk_model *model)
{
    for (int i = 0; i < model->n_variables; i++) {
        lk_layer *layer = model->variables[i].layer;
        int *variables = lk__realloc(layer->variables, (size_t)layer->n_variables + 1, sizeof *variables);
        if (!variables)
            return LK_ERR_MEMORY;
        layer->variables = variables;
        variables[layer->n_variables++] = i;
    }
    return LK_OK;
}

static lk_status check_classes(const lk_model *model, lk_shape out)
{
    char text[128];
    if (model->input.classes == 0 || (out.ndim == 2 && out.dim[1] == model->input.classes))
        return LK_OK;
    lk__shape_text(out, text, sizeof text);
    LK_FAIL(LK_ERR_SHAPE, "%s: the output is %s; it must be [N,%lld], one number a class", model->name, text,
            (long long)model->input.classes);
}

static lk_status build(lk_model *model, const char *name, bool file)
{
    lk_shape in, out;
    lk_model_input input = model->input;
    model->name = lk__strdup(name);
    if (!model->name)
        return LK_ERR_MEMORY;
    model->file = file ? model->name : NULL;
    in = LK_SHAPE(1, input.channels, input.height, input.width);
    LK_TRY(lk__layer_build(model, NULL, model->root, 0, in, &out));
    LK_TRY(check_classes(model, out));
    LK_TRY(order_variables(model));
    return give_to_layers(model);
}

lk_model *lk__model_build(const char *name, bool file, lk_layer *root, lk_model_input input)
{
    if (!root || root->taken) {
        lk__fail(LK_ERR_ARGUMENT, "%s: %s", name ? name : "model",
                 root ? "the layer is part of a network already" : "there is no layer");
        return NULL;
    }
    lk_status status = lk__model_check_input(name ? name : "model", input);
    lk_model *model = status == LK_OK ? lk__calloc(1, sizeof *model) : NULL;
    if (!model) {
        lk_layer_release(root);
        return NULL;
    }
    root->taken = true;
    model->root = root;
    model->input = input;
    if (build(model, name ? name : "model", file) == LK_OK)
        return model;
    lk_model_release(model);
    return NULL;
}

lk_model *lk_model_build(const char *name, lk_layer *root, lk_model_input input)
{
    return lk__model_build(name, false, root, input);
}

void lk_model_release(lk_model *model)
{
    if (!model)
        return;
    for (int i = 0; i < model->n_variables; i++)
        lk__free(model->variables[i].name);
    lk__free(model->variables);
    lk__free(model->layers);
    lk__free(model->rows);
    lk__free(model->statistics);
    lk_layer_release(model->root);
    lk__free(model->name);
    lk__free(model);
}
