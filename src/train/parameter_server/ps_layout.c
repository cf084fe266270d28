#include "train/parameter_server/ps_layout.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "nn/layers/batch_norm_layer.h"
#include "nn/model.h"

#include <string.h>

static int64_t ps_layout_variable_elements(const lk_ps_layout *layout, int variable)
{
    return lk_shape_count(lk_model_variable_shape(layout->model, variable));
}

static lk_status ps_layout_describe_layers(lk_ps_layout *layout)
{
    const lk_model *model = layout->model;
    layout->n_layers = lk_model_statistics_count(model);
    layout->layers = lk__calloc((size_t)layout->n_layers + 1, sizeof *layout->layers);
    layout->running = lk__calloc((size_t)layout->n_layers + 1, sizeof *layout->running);
    if (!layout->layers || !layout->running)
        return LK_ERR_MEMORY;
    for (int i = 0; i < layout->n_layers; i++) {
        lk_ps_running *running = &layout->running[i];
        lk_ps_layer *layer = &layout->layers[i];
        const lk_layer *of = model->statistics.layers[i];
        layer->momentum = lk__batch_norm_running(of, &running->mean, &running->variance);
        layer->positions = of->samples;
        layer->channels = ps_layout_variable_elements(layout, running->mean);
        layout->statistics += 2 * layer->channels;
    }
    return LK_OK;
}

static lk_status ps_layout_place(lk_ps_layout *layout, int servers, int slots)
{
    int n = lk_model_parameter_count(layout->model);
    int64_t *counts = lk__calloc((size_t)n + 1, sizeof *counts);
    if (!counts)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        counts[i] = ps_layout_variable_elements(layout, i);
    lk_status status = lk__placement_check_frames(counts, n, servers, slots);
    if (status == LK_OK)
        status = lk__placement_new(counts, n, layout->statistics, servers, &layout->placement);
    lk__free(counts);
    LK_TRY(status);
    for (int s = 0; s < servers; s++)
        if (layout->placement.elements[s] == 0)
            LK_FAIL(LK_ERR_ARGUMENT, "--servers %d: model %s has too few variables for more than %d", servers,
                    lk_model_name(layout->model), s);
    return LK_OK;
}

lk_status lk__ps_layout_new(const lk_model *model, int servers, int slots, lk_ps_layout *layout)
{
    *layout = (lk_ps_layout){.model = model};
    lk_status status = ps_layout_describe_layers(layout);
    if (status == LK_OK)
        status = ps_layout_place(layout, servers, slots);
    if (status != LK_OK)
        lk__ps_layout_free(layout);
    return status;
}

void lk__ps_layout_free(lk_ps_layout *layout)
{
    lk__placement_free(&layout->placement);
    lk__free(layout->layers);
    lk__free(layout->running);
    memset(layout, 0, sizeof *layout);
}

int64_t lk__ps_layout_statistics(const lk_ps_layout *layout, int server)
{
    return layout->placement.extra[server];
}

int lk__ps_layout_split(const lk_ps_layout *layout)
{
    const lk_placement *p = &layout->placement;
    for (int i = 0; i < p->n; i++)
        if (p->parts[i].count < ps_layout_variable_elements(layout, p->parts[i].variable))
            return p->parts[i].variable;
    return -1;
}

int64_t lk__ps_layout_largest(const lk_ps_layout *layout)
{
    int64_t largest = 0;
    for (int i = 0; i < lk_model_variable_count(layout->model); i++)
        largest = lk__max(largest, ps_layout_variable_elements(layout, i));
    return largest;
}

/* --- reading and writing ------------------------------------------------------------------------------------------ */

static lk_status ps_layout_read_tensor(lk_tensor *tensor, float *values)
{
    return lk_tensor_read(tensor, values, (size_t)lk_tensor_count(tensor) * sizeof *values);
}

static lk_status ps_layout_read_running(const lk_ps_layout *layout, lk_tensor *const *variables, float *running)
{
    for (int i = 0; i < layout->n_layers; i++) {
        LK_TRY(ps_layout_read_tensor(variables[layout->running[i].mean], running));
        LK_TRY(ps_layout_read_tensor(variables[layout->running[i].variance], running + layout->layers[i].channels));
        running += 2 * layout->layers[i].channels;
    }
    return LK_OK;
}

/* Reads a part of a parameter or of its gradient; from NULL: zeros. */
static lk_status ps_layout_read_part(const lk_ps_layout *layout, lk_tensor *from, const lk_placement_part *part,
                                     float *packed, float *scratch)
{
    size_t bytes = (size_t)part->count * sizeof *packed;
    if (!from) {
        memset(packed + part->at, 0, bytes);
        return LK_OK;
    }
    if (part->count == ps_layout_variable_elements(layout, part->variable))
        return ps_layout_read_tensor(from, packed + part->at);
    LK_TRY(ps_layout_read_tensor(from, scratch));
    memcpy(packed + part->at, scratch + part->begin, bytes);
    return LK_OK;
}

lk_status lk__ps_layout_read_parameters(const lk_ps_layout *layout, lk_tensor *const *parameters, int server,
                                        float *packed, float *scratch)
{
    const lk_placement *p = &layout->placement;
    memset(packed, 0, (size_t)p->elements[server] * sizeof *packed);
    for (int i = p->first[server]; i < p->first[server + 1]; i++)
        LK_TRY(ps_layout_read_part(layout, parameters[p->parts[i].variable], &p->parts[i], packed, scratch));
    return LK_OK;
}

lk_status lk__ps_layout_read(const lk_ps_layout *layout, lk_tensor *const *variables, int server, float *packed,
                             float *running, float *scratch)
{
    LK_TRY(lk__ps_layout_read_parameters(layout, variables, server, packed, scratch));
    return layout->placement.extra[server] > 0 ? ps_layout_read_running(layout, variables, running) : LK_OK;
}

lk_status lk__ps_layout_gradients(const lk_ps_layout *layout, lk_tensor *const *values, float *const *packed,
                                  double *sums, float *scratch)
{
    const lk_placement *p = &layout->placement;
    int parameters = lk_model_parameter_count(layout->model);
    for (int i = 0; i < p->n; i++) {
        const lk_placement_part *part = &p->parts[i];
        LK_TRY(ps_layout_read_part(layout, values[part->variable], part, packed[part->server], scratch));
    }
    for (int i = 0; i < layout->n_layers; i++) {
        size_t count = 2 * (size_t)layout->layers[i].channels;
        LK_TRY(lk_tensor_read(values[parameters + i], sums, count * sizeof *sums));
        sums += count;
    }
    return LK_OK;
}

static lk_status ps_layout_write_to_all(lk_tensor *const *const *sets, int n_sets, int variable, const float *values)
{
    for (int r = 0; r < n_sets; r++) {
        lk_tensor *tensor = sets[r][variable];
        LK_TRY(lk_tensor_write(tensor, values, (size_t)lk_tensor_count(tensor) * sizeof *values));
    }
    return LK_OK;
}

/* Collects the parts of one variable and writes it; a variable has few parts, so a search is good enough. */
static lk_status ps_layout_write_variable(const lk_ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                                          int variable, const float *const *packed, float *scratch)
{
    const lk_placement *p = &layout->placement;
    for (int i = 0; i < p->n; i++) {
        const lk_placement_part *part = &p->parts[i];
        if (part->variable != variable)
            continue;
        const float *values = packed[part->server] + part->at;
        if (part->count == ps_layout_variable_elements(layout, variable))
            return ps_layout_write_to_all(sets, n_sets, variable, values);
        memcpy(scratch + part->begin, values, (size_t)part->count * sizeof *values);
    }
    return ps_layout_write_to_all(sets, n_sets, variable, scratch);
}

lk_status lk__ps_layout_write_parameters(const lk_ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                                         const float *const *packed, float *scratch)
{
    for (int i = 0; i < lk_model_parameter_count(layout->model); i++)
        LK_TRY(ps_layout_write_variable(layout, sets, n_sets, i, packed, scratch));
    return LK_OK;
}

lk_status lk__ps_layout_write(const lk_ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                              const float *const *packed, const float *running, float *scratch)
{
    LK_TRY(lk__ps_layout_write_parameters(layout, sets, n_sets, packed, scratch));
    for (int i = 0; i < layout->n_layers; i++) {
        LK_TRY(ps_layout_write_to_all(sets, n_sets, layout->running[i].mean, running));
        LK_TRY(ps_layout_write_to_all(sets, n_sets, layout->running[i].variance, running + layout->layers[i].channels));
        running += 2 * layout->layers[i].channels;
    }
    return LK_OK;
}
