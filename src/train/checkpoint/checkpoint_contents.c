#include "train/checkpoint/checkpoint_contents.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/checkpoint/replicas_state.h"
#include "train/replicas.h"

#include <string.h>

/* The number of elements in the model's first n variables. */
static int64_t checkpoint_contents_elements(const lk_model *model, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += lk_shape_count(lk_model_variable_shape(model, i));
    return sum;
}

lk_status lk__checkpoint_contents_init(lk_checkpoint_contents *c, lk_replicas *replicas)
{
    const lk_model *model = lk__replicas_model(replicas);
    lk_optimizer *optimizer = lk_replicas_optimizer(replicas, 0);
    *c = (lk_checkpoint_contents){.model = model};
    c->variables =
        lk__calloc((size_t)checkpoint_contents_elements(model, lk_model_variable_count(model)), sizeof *c->variables);
    if (!c->variables)
        return LK_ERR_MEMORY;
    const char *name;
    for (int s = 0; optimizer && lk_optimizer_state(optimizer, s, &name); s++) {
        c->slot_names[s] = strcmp(name, LK_AVERAGE) == 0 ? LK_TRAINED : name;
        c->slots[s] = lk__calloc((size_t)checkpoint_contents_elements(model, lk_model_parameter_count(model)),
                                 sizeof *c->slots[s]);
        if (!c->slots[s])
            return LK_ERR_MEMORY;
        c->n_slots = s + 1;
    }
    return LK_OK;
}

void lk__checkpoint_contents_free(lk_checkpoint_contents *c)
{
    lk__free(c->variables);
    lk__free(c->kept);
    for (int s = 0; s < LK_OPTIMIZER_SLOTS; s++)
        lk__free(c->slots[s]);
    lk__bytes_free(&c->state);
    lk__bytes_free(&c->implementations);
    *c = (lk_checkpoint_contents){.model = NULL};
}

lk_status lk__checkpoint_contents_copy(lk_checkpoint_contents *c, lk_replicas *replicas)
{
    lk_tensor *const *variables = lk__replicas_owned(replicas, 0);
    const float *kept = lk__replicas_kept(replicas, false);
    int average = lk__replicas_average_slot(replicas);
    LK_TRY(lk__replicas_read(replicas, c->variables));
    for (int s = 0; s < c->n_slots; s++) {
        float *values = c->slots[s];
        for (int i = 0; i < lk_model_parameter_count(c->model); i++) {
            size_t count = (size_t)lk_tensor_count(variables[i]);
            LK_TRY(s == average ? lk_tensor_read(variables[i], values, count * sizeof *values)
                                : lk__replicas_read_state(replicas, s, i, values));
            values += count;
        }
    }
    if (!kept)
        return LK_OK;
    size_t elements = (size_t)checkpoint_contents_elements(c->model, lk_model_variable_count(c->model));
    if (!c->kept)
        c->kept = lk__calloc(elements, sizeof *c->kept);
    if (!c->kept)
        return LK_ERR_MEMORY;
    memcpy(c->kept, kept, elements * sizeof *kept);
    return LK_OK;
}
