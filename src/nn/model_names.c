/* Paths follow from the tree alone, so a name that is used twice is reported before shapes are known. */
#include "nn/model_names.h"
#include "base/mem.h"
#include "base/status.h"
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

static bool layer_has_own_path(const lk_layer *layer)
{
    return layer->name || !lk__layer_is_container(layer);
}

/* Returns whether the paths of the layer's children begin with its own. */
static bool layer_opens_scope(const lk_layer *layer)
{
    return layer->name || !(lk__layer_is_container(layer) || lk__layer_is_join(layer));
}

/* Names contain no dots, so two paths can only be equal in one scope. */
static bool model_path_is_used(const lk_model *model, const lk_layer *scope, const char *path)
{
    for (int i = 0; i < model->layers.n; i++) {
        const lk_layer *layer = model->layers.layers[i];
        if (layer->scope == scope && layer_has_own_path(layer) && strcmp(layer->path, path) == 0)
            return true;
    }
    return false;
}

char *lk__join_path(const char *prefix, const char *name, int number)
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

/* Sets the path to the first that is free of KIND, KIND2, … in the layer's scope. No path that was in use becomes free,
 * so the search goes on where that of the last layer of the kind ended. */
static void model_number_path(const lk_model *model, const char *prefix, lk_layer *layer)
{
    const char *kind = layer->table->kind;
    layer->number = 1;
    for (int i = model->layers.n - 1; i >= 0; i--) {
        const lk_layer *other = model->layers.layers[i];
        if (other->scope == layer->scope && !other->name && strcmp(other->table->kind, kind) == 0) {
            layer->number = other->number + 1;
            break;
        }
    }
    for (;; layer->number++) {
        layer->path = lk__join_path(prefix, kind, layer->number);
        if (!layer->path || !model_path_is_used(model, layer->scope, layer->path))
            return;
        lk__free(layer->path);
    }
}

static lk_status model_name_layer(lk_model *model, const lk_layer *parent, lk_layer *layer)
{
    if (parent)
        layer->scope = layer_opens_scope(parent) ? parent : parent->scope;
    const char *prefix = layer->scope ? layer->scope->path : "";
    if (layer->name)
        layer->path = lk__join_path(prefix, layer->name, 0);
    else if (lk__layer_is_container(layer))
        layer->path = lk__strdup(prefix);
    else
        model_number_path(model, prefix, layer);
    if (!layer->path)
        return LK_ERR_MEMORY;
    lk_layer_builder builder = {.model = model, .layer = layer};
    if (layer->name && model_path_is_used(model, layer->scope, layer->path))
        return lk_layer_fail(&builder, model->file ? LK_ERR_FORMAT : LK_ERR_ARGUMENT,
                             "the name '%s' is used twice; expected a name of its own", layer->path);
    return lk__layer_list_add(&model->layers, layer);
}

/* `depth` counts from the root. */
static lk_status model_name_tree(lk_model *model, const lk_layer *parent, lk_layer *layer, int depth)
{
    lk_layer_builder builder = {.model = model, .layer = layer};
    LK_TRY(model_name_layer(model, parent, layer));
    if (depth > LK_LAYER_MAX_DEPTH)
        return lk_layer_fail(&builder, LK_ERR_ARGUMENT, "layers are nested more than %d deep", LK_LAYER_MAX_DEPTH);
    for (int i = 0; i < layer->n_children; i++)
        LK_TRY(model_name_tree(model, layer, layer->children[i], depth + 1));
    return LK_OK;
}

lk_status lk__model_name_layers(lk_model *model)
{
    return model_name_tree(model, NULL, model->root, 0);
}
