/* Making, naming and releasing layers. */
#include "nn/layer.h"
#include "base/mem.h"
#include "base/status.h"
#include "nn/model_text.h"

#include <string.h>

void lk_layer_release(lk_layer *layer)
{
    if (!layer)
        return;
    for (int i = 0; i < layer->n_children; i++)
        lk_layer_release(layer->children[i]);
    if (layer->config && layer->table->release)
        layer->table->release(layer->config);
    LK_FREE_ALL(layer->config, layer->children, layer->variables, layer->path, layer->name, layer);
}

static lk_status layer_take_children(lk_layer *layer, lk_layer *const *children, int n)
{
    layer->children = lk__calloc(n > 0 ? (size_t)n : 1, sizeof(lk_layer *));
    if (!layer->children)
        return LK_ERR_MEMORY;
    layer->n_children = n;
    for (int i = 0; i < n; i++) {
        if (!children[i])
            LK_FAIL(LK_ERR_ARGUMENT, "%s: layer %d of %d is NULL", layer->table->kind, i + 1, n);
        if (children[i]->taken)
            LK_FAIL(LK_ERR_ARGUMENT, "%s: layer %d of %d is part of a network already", layer->table->kind, i + 1, n);
        children[i]->taken = true;
        layer->children[i] = children[i];
    }
    return LK_OK;
}

static lk_status layer_copy_config(lk_layer *layer, const void *config, size_t size)
{
    layer->config = lk__calloc(1, size > 0 ? size : 1);
    if (!layer->config)
        return LK_ERR_MEMORY;
    if (size > 0)
        memcpy(layer->config, config, size);
    return LK_OK;
}

/* Releases the children that no layer has taken, each once. */
static void layer_release_untaken(lk_layer *const *children, int n)
{
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen = seen || children[j] == children[i];
        if (children[i] && !seen && !children[i]->taken)
            lk_layer_release(children[i]);
    }
}

static lk_status layer_check_table(const lk_layer_table *table, int n)
{
    if (!table || !table->kind)
        LK_FAIL(LK_ERR_ARGUMENT, "layer: a table with a kind is needed");
    if (!table->forward == !table->forward_shards)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: the table must have one of forward and forward_shards", table->kind);
    if (n < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %d layers; the number must be 0 or more", table->kind, n);
    return LK_OK;
}

lk_layer *lk_layer_new(const lk_layer_table *table, const void *config, size_t size, lk_layer *const *children, int n)
{
    lk_layer *layer = layer_check_table(table, n) == LK_OK ? lk__calloc(1, sizeof *layer) : NULL;
    if (layer) {
        layer->table = table;
        layer->statistics = -1;
        layer->needs = LK_NEEDS_INPUT | LK_NEEDS_OUTPUT;
        if (layer_take_children(layer, children, n) == LK_OK && layer_copy_config(layer, config, size) == LK_OK)
            return layer;
    }
    layer_release_untaken(children, n);
    lk_layer_release(layer);
    return NULL;
}

bool lk__layer_name_ok(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return name && *name && name[strspn(name, letters)] == '\0';
}

lk_layer *lk_layer_named(const char *name, lk_layer *layer)
{
    if (!layer)
        return NULL;
    char *copy = NULL;
    if (lk__layer_name_ok(name))
        copy = lk__strdup(name);
    else
        lk__fail(LK_ERR_ARGUMENT, "%s: the name '%s' must be of letters, digits, '_' and '-'", layer->table->kind,
                 name ? name : "");
    if (!copy) {
        if (!layer->taken)
            lk_layer_release(layer);
        return NULL;
    }
    lk__free(layer->name);
    layer->name = copy;
    return layer;
}

lk_layer *lk__layer_writes(lk_layer *layer, void (*write)(const lk_layer *layer, lk_model_text *out))
{
    if (layer)
        layer->write = write;
    return layer;
}

static void layer_write_kind(const lk_layer *layer, lk_model_text *out)
{
    lk__model_text_put(out, "%s", layer->table->kind);
}

lk_layer *lk__layer_writes_kind(lk_layer *layer)
{
    return lk__layer_writes(layer, layer_write_kind);
}

lk_status lk__layer_range(const char *kind, const char *what, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %s is %lld; it must be %lld to %lld", kind, what, (long long)value,
                (long long)low, (long long)high);
    return LK_OK;
}

lk_status lk__layer_real_range(const char *kind, const char *what, double value, double low, double high)
{
    if (!(value >= low && value <= high))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %s is %g; it must be %g to %g", kind, what, value, low, high);
    return LK_OK;
}

lk_status lk__layer_list_add(lk_layer_list *list, lk_layer *layer)
{
    LK_TRY(LK_GROW(list->layers, &list->capacity, list->n + 1));
    list->layers[list->n++] = layer;
    return LK_OK;
}

bool lk__layer_is_container(const lk_layer *layer)
{
    return layer->table == &lk__layer_sequential_table;
}

bool lk__layer_is_join(const lk_layer *layer)
{
    return layer->table == &lk__layer_add_table || layer->table == &lk__layer_multiply_table ||
           layer->table == &lk__layer_concat_table;
}

int64_t lk__layer_count(lk_shape shape)
{
    int64_t count = 1;
    for (int i = 1; i < shape.ndim; i++)
        count *= shape.dim[i];
    return count;
}
