#include "nn/model.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "lockstep/ops.h"

#include <string.h>

static const lk_model_table *const tables[] = {&lk__model_lenet};
enum { TABLE_COUNT = sizeof tables / sizeof tables[0] };

const char *lk_model_name_at(int index)
{
    return index >= 0 && index < TABLE_COUNT ? tables[index]->name : NULL;
}

static const lk_model_table *find_table(const char *name)
{
    for (int i = 0; name && i < TABLE_COUNT; i++)
        if (strcmp(name, tables[i]->name) == 0)
            return tables[i];
    lk__fail(LK_ERR_ARGUMENT, "unknown model '%s': this build has %s", name ? name : "", tables[0]->name);
    return NULL;
}

lk_model *lk_model_new(const char *name, lk_model_input input)
{
    const lk_model_table *table = find_table(name);
    lk_model *model = table ? lk__calloc(1, sizeof *model) : NULL;
    if (!model)
        return NULL;
    model->table = table;
    model->input = input;
    if (table->layout(input, model->parameters) != LK_OK) {
        lk_model_release(model);
        return NULL;
    }
    return model;
}

void lk_model_release(lk_model *model)
{
    lk__free(model);
}

const char *lk_model_name(const lk_model *model)
{
    return model->table->name;
}

int lk_model_parameter_count(const lk_model *model)
{
    return model->table->parameter_count;
}

const char *lk_model_parameter_name(const lk_model *model, int index)
{
    return model->parameters[index].name;
}

lk_shape lk_model_parameter_shape(const lk_model *model, int index)
{
    return model->parameters[index].shape;
}

lk_status lk_model_recipe(const char *name, lk_recipe *recipe)
{
    const lk_model_table *table = find_table(name);
    if (!table)
        return lk_error_status();
    *recipe = table->recipe;
    return LK_OK;
}

static lk_tensor *initial(const lk_parameter_spec *spec, lk_device *device, uint64_t seed)
{
    if (spec->std == 0)
        return lk_zeros(device, LK_F32, spec->shape);
    lk_random_key key = {.seed = seed, .purpose = lk_random_purpose(spec->name)};
    return lk_normal(device, LK_F32, spec->shape, 0, spec->std, key);
}

lk_status lk_model_init(const lk_model *model, lk_device *device, uint64_t seed, lk_tensor **parameters)
{
    int n = model->table->parameter_count;
    lk_status status = LK_OK;
    memset(parameters, 0, (size_t)n * sizeof *parameters);
    lk_scope_begin();
    for (int i = 0; i < n && status == LK_OK; i++) {
        parameters[i] = lk_tensor_retain(initial(&model->parameters[i], device, seed));
        status = parameters[i] ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    return lk__scope_adopt_all(parameters, n, status);
}

lk_tensor *lk_model_forward(const lk_model *model, lk_tensor *const *parameters, lk_tensor *x)
{
    return model->table->forward(parameters, x);
}
