/* Parameters that training leaves as they are. They come after the trainable ones, and to everything that handles
 * parameters, from the tape to the optimizer's state, they are no parameters but variables, as buffers are. */
#include "nn/freeze.h"
#include "base/mem.h"
#include "base/status.h"
#include "nn/name_patterns.h"

#include <stdlib.h>

/* The order of variables: trainable, then frozen parameters, then buffers. */
static int freeze_rank(const lk_variable_spec *spec)
{
    return spec->buffer ? 2 : spec->frozen ? 1 : 0;
}

static int freeze_compare(const void *a, const void *b)
{
    const lk_variable_spec *x = a, *y = b;
    int ranks = freeze_rank(x) - freeze_rank(y);
    return ranks ? ranks : x->number - y->number;
}

static void freeze_order_variables(lk_model *model)
{
    if (model->n_variables > 0)
        qsort(model->variables, (size_t)model->n_variables, sizeof *model->variables, freeze_compare);
    model->n_parameters = 0;
    for (int i = 0; i < model->n_variables; i++)
        model->n_parameters += freeze_rank(&model->variables[i]) == 0;
}

/* Returns whether a layer counts `a` before `b`. */
static bool freeze_comes_before(const lk_variable_spec *a, const lk_variable_spec *b)
{
    return a->buffer != b->buffer ? b->buffer : a->number < b->number;
}

/* Lists for each layer the positions of its variables, in the order in which it asked for them: parameters, then
 * buffers. */
static lk_status freeze_give_variables(lk_model *model)
{
    for (int i = 0; i < model->layers.n; i++)
        model->layers.layers[i]->n_variables = 0;
    for (int i = 0; i < model->n_variables; i++) {
        lk_layer *layer = model->variables[i].layer;
        int *variables = lk__realloc(layer->variables, (size_t)layer->n_variables + 1, sizeof *variables);
        if (!variables)
            return LK_ERR_MEMORY;
        layer->variables = variables;
        int at = layer->n_variables++;
        for (; at > 0 && freeze_comes_before(&model->variables[i], &model->variables[variables[at - 1]]); at--)
            variables[at] = variables[at - 1];
        variables[at] = i;
    }
    return LK_OK;
}

static bool freeze_has_trainable(const lk_model *model, const lk_layer *layer)
{
    for (int v = 0; v < layer->n_variables; v++)
        if (layer->variables[v] < model->n_parameters)
            return true;
    return false;
}

/* Batch-norm without a trainable parameter takes its running statistics, so it has none for training. */
static void freeze_number_statistics(lk_model *model)
{
    lk_layer_list *list = &model->statistics;
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        lk_layer *layer = list->layers[i];
        layer->statistics = freeze_has_trainable(model, layer) ? n : -1;
        if (layer->statistics >= 0)
            list->layers[n++] = layer;
    }
    list->n = n;
}

lk_status lk__model_order_variables(lk_model *model)
{
    freeze_order_variables(model);
    LK_TRY(freeze_give_variables(model));
    freeze_number_statistics(model);
    return LK_OK;
}

lk_layer *lk_layer_frozen(lk_layer *layer)
{
    if (layer)
        layer->frozen = true;
    return layer;
}

bool lk_model_variable_is_frozen(const lk_model *model, int index)
{
    return model->variables[index].frozen;
}

static bool freeze_fits(lk_name_pattern pattern, const lk_variable_spec *spec)
{
    return !spec->buffer && lk__name_pattern_fits(pattern, spec->name);
}

static lk_status freeze_check(const lk_model *model, lk_name_pattern pattern)
{
    for (int i = 0; i < model->n_variables; i++)
        if (freeze_fits(pattern, &model->variables[i]))
            return LK_OK;
    LK_FAIL(LK_ERR_ARGUMENT, "--freeze %.*s: fits no parameter of model %s; they are called like %s", pattern.length,
            pattern.text, model->name, model->n_variables ? model->variables[0].name : "nothing");
}

lk_status lk_model_freeze(lk_model *model, const char *patterns)
{
    lk_name_pattern pattern;
    for (const char *list = patterns; list && lk__name_pattern_next(&list, &pattern);)
        LK_TRY(freeze_check(model, pattern));
    while (patterns && lk__name_pattern_next(&patterns, &pattern))
        for (int i = 0; i < model->n_variables; i++)
            model->variables[i].frozen = model->variables[i].frozen || freeze_fits(pattern, &model->variables[i]);
    return lk__model_order_variables(model);
}
