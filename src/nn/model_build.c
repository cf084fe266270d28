/* Builds a model: walks its tree of layers once with the shape of a sample, and collects what the layers ask for. */
#include "nn/model_build.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/shape.h"
#include "nn/freeze.h"
#include "nn/init.h"
#include "nn/model.h"
#include "nn/model_names.h"
#include "nn/model_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* Names the layer in messages: "net.lk:3: conv2d" or "lenet: conv1". */
static void builder_where(const lk_model *model, const lk_layer *layer, char *text, size_t size)
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
    builder_where(builder->model, builder->layer, where, sizeof where);
    lk__fail(status, "%s: %s", where, text);
    return status;
}

/* --- one layer ---------------------------------------------------------------------------------------------------- */

static lk_status builder_check_output(lk_layer_builder *builder, lk_shape shape)
{
    bool fits = shape.ndim >= 2 && shape.ndim <= LK_MAX_DIMS && shape.dim[0] == 1;
    for (int i = 1; fits && i < shape.ndim; i++)
        fits = shape.dim[i] >= 1;
    if (!fits)
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "the shape that it gives must have 2 to %d axes, the first 1 and none below 1",
                             LK_MAX_DIMS);
    int64_t count = lk_shape_count(shape);
    if (count >= 1 && count <= LK_MODEL_MAX_ELEMENTS)
        return LK_OK;
    return lk_layer_fail(builder, LK_ERR_SHAPE, "gives %s; expected at most %lld elements an image",
                         lk__text(shape).string, (long long)LK_MODEL_MAX_ELEMENTS);
}

static lk_status builder_check_children(lk_layer_builder *builder)
{
    for (int i = 0; i < builder->layer->n_children; i++)
        if (!builder->layer->children[i]->built)
            return lk_layer_fail(builder, LK_ERR_STATE, "child %d was not built", i);
    return LK_OK;
}

/* A user's layer may fail without setting an error. */
static lk_status builder_explain(lk_layer_builder *builder, lk_status status)
{
    if (status != LK_OK && lk_error_status() == LK_OK)
        return lk_layer_fail(builder, status, "could not be built: %s", lk_status_name(status));
    return status;
}

/* Notes which outputs backward keeps. After a view, the source is still the layer whose output it shows. */
static void model_note_needs(lk_model *model, lk_layer *source, lk_layer *layer)
{
    if (layer->needs & LK_NEEDS_INPUT && source)
        source->output_kept = true;
    if (layer->needs & LK_NEEDS_OUTPUT)
        layer->output_kept = true;
    if (!(layer->needs & LK_MAKES_VIEW))
        model->source = layer;
}

static lk_status model_build_layer(lk_model *model, lk_layer *layer, lk_shape in, lk_shape *out)
{
    lk_layer_builder builder = {.model = model, .layer = layer};
    lk_layer *source = model->source;
    *out = in;
    layer->built = true;
    if (layer->table->build)
        LK_TRY(builder_explain(&builder, layer->table->build(&builder, layer->config, in, out)));
    LK_TRY(builder_check_output(&builder, *out));
    LK_TRY(builder_check_children(&builder));
    layer->output = *out;
    if (lk__layer_is_container(layer))
        return LK_OK;
    model_note_needs(model, source, layer);
    return lk__layer_list_add(&model->rows, layer);
}

lk_status lk_layer_build_child(lk_layer_builder *builder, int child, lk_shape in, lk_shape *out)
{
    lk_layer *layer = builder->layer;
    if (child < 0 || child >= layer->n_children)
        return lk_layer_fail(builder, LK_ERR_ARGUMENT, "there is no child %d; there are %d", child, layer->n_children);
    if (layer->children[child]->built)
        return lk_layer_fail(builder, LK_ERR_STATE, "child %d was built already", child);
    LK_TRY(builder_check_output(builder, in));
    layer->children[child]->frozen |= layer->frozen;
    return model_build_layer(builder->model, layer->children[child], in, out);
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
    builder->layer->statistics = model->statistics.n;
    builder->layer->samples = samples;
    return lk__layer_list_add(&model->statistics, builder->layer);
}

lk_status lk__layer_check_ndim(lk_layer_builder *builder, lk_shape in, int ndim, const char *want)
{
    if (in.ndim == ndim)
        return LK_OK;
    const char *help = "";
    if (ndim == 2)
        help = ": put a flatten or a global pooling before it";
    else if (in.ndim == 2)
        help = ": put a reshape before it";
    return lk_layer_fail(builder, LK_ERR_SHAPE, "gets %s; expected %s%s", lk__text(in).string, want, help);
}

lk_status lk__layer_window(lk_layer_builder *builder, const char *axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t *count)
{
    int64_t padded = size + 2 * padding;
    if (kernel > padded)
        return lk_layer_fail(
            builder, LK_ERR_SHAPE,
            "a kernel of %lld does not fit into %s = %lld with padding %lld, the images are too small; "
            "expected a kernel of at most %lld, or larger images, as --resize makes them",
            (long long)kernel, axis, (long long)size, (long long)padding, (long long)padded);
    *count = (padded - kernel) / stride + 1;
    return LK_OK;
}

/* --- variables ---------------------------------------------------------------------------------------------------- */

static lk_status builder_check_variable(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init)
{
    if (!lk__layer_name_ok(name))
        return lk_layer_fail(builder, LK_ERR_ARGUMENT,
                             "the variable's name '%s' must be of letters, digits, '_' and '-'", name ? name : "");
    if (shape.ndim < 0 || shape.ndim > LK_MAX_DIMS)
        return lk_layer_fail(builder, LK_ERR_SHAPE, "'%s' has %d axes; expected 0 to %d", name, shape.ndim,
                             LK_MAX_DIMS);
    int64_t count = lk_shape_count(shape), most = LK_MODEL_MAX_ELEMENTS - builder->model->n_elements;
    if (count < 1 || count > most)
        return lk_layer_fail(builder, LK_ERR_SHAPE,
                             "'%s' is %s; expected 1 to %lld elements, so that the network has at most %lld", name,
                             lk__text(shape).string, (long long)most, (long long)LK_MODEL_MAX_ELEMENTS);
    return lk__init_check(builder->layer->table->kind, name, init);
}

static lk_status builder_add_variable(lk_layer_builder *builder, const char *name, lk_variable_spec spec)
{
    lk_model *model = builder->model;
    LK_TRY(builder_check_variable(builder, name, spec.shape, spec.init));
    LK_TRY(LK_GROW(model->variables, &model->variables_capacity, model->n_variables + 1));
    spec.name = lk__join_path(builder->layer->path, name, 0);
    if (!spec.name)
        return LK_ERR_MEMORY;
    spec.layer = builder->layer;
    spec.number = model->n_variables;
    spec.frozen = builder->layer->frozen && !spec.buffer;
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
    model->n_elements += lk_shape_count(spec.shape);
    return LK_OK;
}

lk_status lk_layer_parameter(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init, int64_t fan_in,
                             int64_t fan_out)
{
    LK_TRY(builder_add_variable(
        builder, name, (lk_variable_spec){.shape = shape, .init = init, .fan_in = fan_in, .fan_out = fan_out}));
    builder->layer->parameters += lk_shape_count(shape);
    return LK_OK;
}

lk_status lk_layer_buffer(lk_layer_builder *builder, const char *name, lk_shape shape, lk_init init)
{
    return builder_add_variable(builder, name, (lk_variable_spec){.shape = shape, .init = init, .buffer = true});
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* Returns the layer that makes the output of `layer`. */
static lk_layer *model_last_layer(lk_layer *layer)
{
    while (lk__layer_is_container(layer) && layer->n_children > 0)
        layer = layer->children[layer->n_children - 1];
    return layer;
}

static lk_status model_check_classes(lk_model *model, lk_shape out)
{
    if (model->input.classes == 0 || (out.ndim == 2 && out.dim[1] == model->input.classes))
        return LK_OK;
    lk_layer_builder last = {.model = model, .layer = model_last_layer(model->root)};
    return lk_layer_fail(&last, LK_ERR_SHAPE, "the output is %s; expected [N,%lld], one number a class",
                         lk__text(out).string, (long long)model->input.classes);
}

/* A model file describes something to train; in C a network may be a fixed function. */
static lk_status model_check_trainable(lk_model *model)
{
    lk_layer_builder last = {.model = model, .layer = model_last_layer(model->root)};
    if (model->file && model->n_parameters == 0)
        return lk_layer_fail(&last, LK_ERR_FORMAT,
                             "the network ends with nothing to train; expected a conv2d or a dense that is not frozen");
    return LK_OK;
}

static lk_status model_build(lk_model *model)
{
    lk_shape out;
    lk_model_input input = model->input;
    LK_TRY(model_build_layer(model, model->root, LK_SHAPE(1, input.channels, input.height, input.width), &out));
    LK_TRY(model_check_classes(model, out));
    LK_TRY(lk__model_order_variables(model));
    return model_check_trainable(model);
}

lk_model *lk__model_finish(lk_model *model)
{
    if (model && model_build(model) == LK_OK)
        return model;
    lk_model_release(model);
    return NULL;
}

lk_status lk__model_check_input(const char *name, lk_model_input input)
{
    LK_TRY(lk__layer_range(name, "number of channels", input.channels, 1, LK_LAYER_MAX_SIZE));
    LK_TRY(lk__layer_range(name, "height", input.height, 1, LK_LAYER_MAX_SIZE));
    LK_TRY(lk__layer_range(name, "width", input.width, 1, LK_LAYER_MAX_SIZE));
    LK_TRY(lk__layer_range(name, "number of classes", input.classes, 0, LK_LAYER_MAX_SIZE));
    int64_t count = lk_shape_count(LK_SHAPE(input.channels, input.height, input.width));
    if (count < 0 || count > LK_MODEL_MAX_ELEMENTS)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: images of %lldx%lldx%lld; they must have at most %lld elements", name,
                (long long)input.channels, (long long)input.height, (long long)input.width,
                (long long)LK_MODEL_MAX_ELEMENTS);
    return LK_OK;
}

lk_model *lk__model_of(const char *name, bool file, lk_layer *root, lk_model_input input)
{
    if (!root || root->taken) {
        lk__fail(LK_ERR_ARGUMENT, "%s: %s", name,
                 root ? "the layer is part of a network already" : "there is no layer");
        return NULL;
    }
    lk_model *model = lk__model_check_input(name, input) == LK_OK ? lk__calloc(1, sizeof *model) : NULL;
    if (!model) {
        lk_layer_release(root);
        return NULL;
    }
    root->taken = true;
    model->root = root;
    model->input = input;
    model->name = lk__strdup(name);
    model->file = file ? model->name : NULL;
    if (model->name && lk__model_name_layers(model) == LK_OK)
        return model;
    lk_model_release(model);
    return NULL;
}

lk_model *lk_model_build(const char *name, lk_layer *root, lk_model_input input)
{
    lk_model *model = lk__model_finish(lk__model_of(name ? name : "model", false, root, input));
    if (!model || lk__model_text_make(model, &model->text) == LK_OK)
        return model;
    lk_model_release(model);
    return NULL;
}

void lk_model_release(lk_model *model)
{
    if (!model)
        return;
    for (int i = 0; i < model->n_variables; i++)
        lk__free(model->variables[i].name);
    LK_FREE_ALL(model->variables, model->layers.layers, model->rows.layers, model->statistics.layers);
    lk_layer_release(model->root);
    lk__free(model->text);
    lk__free(model->name);
    lk__free(model);
}
