#include "nn/model_text.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/status.h"
#include "nn/init.h"
#include "nn/model_file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void lk__model_text_put(lk_model_text *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *to = out->used < out->size ? out->text + out->used : NULL;
    int n = vsnprintf(to, to ? out->size - out->used : 0, format, arguments);
    out->used += n > 0 ? (size_t)n : 0;
    va_end(arguments);
}

void lk__model_text_put_pair(lk_model_text *out, const char *name, const int64_t pair[2])
{
    lk__model_text_put(out, "%s%" PRId64, name, pair[0]);
    if (pair[1] != pair[0])
        lk__model_text_put(out, "x%" PRId64, pair[1]);
}

void lk__model_text_put_real(lk_model_text *out, const char *name, double value)
{
    char number[32];
    lk__number_print(value, number, sizeof number);
    lk__model_text_put(out, " %s=%s", name, number);
}

void lk__model_text_put_init(lk_model_text *out, const char *name, lk_init init)
{
    char number[32];
    bool is_constant = init.kind == LK_INIT_CONSTANT;
    if (init.kind != LK_INIT_NORMAL && !is_constant) {
        lk__model_text_put(out, " %s=%s", name, lk__init_name(init.kind));
        return;
    }
    lk__number_print(init.value, number, sizeof number);
    lk__model_text_put(out, " %s=%s(%s)", name, is_constant ? "constant" : "normal", number);
}

static void model_text_indent(lk_model_text *out, int depth)
{
    enum { INDENT = 4 };
    lk__model_text_put(out, "%*s", INDENT * depth, "");
}

static bool model_text_put_layer(lk_model_text *out, const lk_layer *layer, int depth);

static bool model_text_put_children(lk_model_text *out, const lk_layer *layer, int depth)
{
    for (int i = 0; i < layer->n_children; i++)
        if (!model_text_put_layer(out, layer->children[i], depth))
            return false;
    return true;
}

/* Puts the layer, or the layers of a sequential without a name: a block and the file itself hold several. */
static bool model_text_put_body(lk_model_text *out, const lk_layer *layer, int depth)
{
    if (lk__layer_is_container(layer) && !layer->name)
        return model_text_put_children(out, layer, depth);
    return model_text_put_layer(out, layer, depth);
}

static bool model_text_put_join(lk_model_text *out, const lk_layer *layer, int depth)
{
    static const struct {
        const lk_layer_table *table;
        const char *name, *middle;
    } words[] = {{&lk__layer_add_table, "residual", "shortcut"},
                 {&lk__layer_multiply_table, "multiply", "by"},
                 {&lk__layer_concat_table, "concat", "with"}};
    int w = 0;
    while (words[w].table != layer->table)
        w++;
    lk__model_text_put(out, "%s%s\n", words[w].name, layer->frozen ? " frozen=yes" : "");
    if (!model_text_put_body(out, layer->children[0], depth + 1))
        return false;
    model_text_indent(out, depth);
    lk__model_text_put(out, "%s\n", words[w].middle);
    return model_text_put_body(out, layer->children[1], depth + 1);
}

static bool model_text_put_sequential(lk_model_text *out, const lk_layer *layer, int depth)
{
    lk__model_text_put(out, layer->frozen ? "sequential frozen=yes\n" : "sequential\n");
    return model_text_put_children(out, layer, depth + 1);
}

/* Returns false if a layer has no line. */
static bool model_text_put_layer(lk_model_text *out, const lk_layer *layer, int depth)
{
    bool is_sequential = lk__layer_is_container(layer), is_join = lk__layer_is_join(layer);
    model_text_indent(out, depth);
    if (layer->name)
        lk__model_text_put(out, "%s: ", layer->name);
    if (is_sequential || is_join) {
        if (!(is_sequential ? model_text_put_sequential : model_text_put_join)(out, layer, depth))
            return false;
        model_text_indent(out, depth);
        lk__model_text_put(out, "end\n");
        return true;
    }
    if (!layer->write)
        return false;
    layer->write(layer, out);
    lk__model_text_put(out, layer->frozen && layer->n_variables > 0 ? " frozen=yes\n" : "\n");
    return true;
}

/* Returns whether the text can be read: networks may be larger and deeper than model files. */
static lk_status model_text_check(const lk_model *model, const char *text, bool *is_good)
{
    char *copy;
    lk_layer *root = lk__model_file_read(model->name, text, model->input.classes, &copy);
    *is_good = root != NULL;
    if (!root && lk_error_status() == LK_ERR_MEMORY)
        return LK_ERR_MEMORY;
    if (!root)
        lk_error_clear();
    lk_layer_release(root);
    lk__free(copy);
    return LK_OK;
}

lk_status lk__model_text_make(const lk_model *model, char **text)
{
    lk_model_text out = {0};
    bool is_good;
    *text = NULL;
    if (!model_text_put_body(&out, model->root, 0))
        return LK_OK;
    out.size = out.used + 1;
    out.used = 0;
    out.text = lk__calloc(out.size, 1);
    if (!out.text)
        return LK_ERR_MEMORY;
    model_text_put_body(&out, model->root, 0);
    lk_status status = model_text_check(model, out.text, &is_good);
    if (status == LK_OK && is_good)
        *text = out.text;
    else
        lk__free(out.text);
    return status;
}
