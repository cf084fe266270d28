/* Models by name, and queries about a model. */
#include "nn/model.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/scope.h"
#include "nn/init.h"
#include "nn/model_build.h"
#include "nn/model_file.h"
#include "lockstep/options.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const lk_reference_model *const models[] = {&lk__model_lenet, &lk__model_keras_cnn, &lk__model_resnet18,
                                                   &lk__model_wrn_16_10, &lk__model_fast_cnn};
enum { MODEL_COUNT = sizeof models / sizeof models[0] };

const char *lk_model_name_at(int index)
{
    return index >= 0 && index < MODEL_COUNT ? models[index]->name : NULL;
}

const char *lk_model_about_at(int index)
{
    return index >= 0 && index < MODEL_COUNT ? models[index]->about : NULL;
}

static const lk_reference_model *model_find_reference(const char *name)
{
    const char *names[MODEL_COUNT];
    for (int i = 0; i < MODEL_COUNT; i++) {
        names[i] = models[i]->name;
        if (strcmp(name, names[i]) == 0)
            return models[i];
    }
    const char *near = lk_nearest_word(name, names, MODEL_COUNT, sizeof names[0]);
    char list[128] = "";
    for (size_t i = 0, used = 0; i < MODEL_COUNT && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s, ", names[i]);
    if (near)
        lk__fail(LK_ERR_ARGUMENT, "unknown model '%s': did you mean '%s'?", name, near);
    else
        lk__fail(LK_ERR_ARGUMENT, "unknown model '%s'; expected one of %sor a file (*.lk)", name, list);
    return NULL;
}

static bool model_name_is_file(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') || (length >= 3 && strcmp(name + length - 3, ".lk") == 0);
}

/* Makes the model that `name` stands for. `given`: the text of a model file that was read already; NULL: the file is
 * read. classes: for its lines. Returns NULL, with the error set, on failure. */
static lk_model *model_from_name(const char *name, const char *given, lk_model_input input, int64_t classes)
{
    bool file = model_name_is_file(name);
    const lk_reference_model *reference = file ? NULL : model_find_reference(name);
    if ((!file && !reference) || lk__model_check_input(name, input) != LK_OK)
        return NULL;
    char *text = NULL;
    lk_layer *root = file ? lk__model_file_read(name, given, classes, &text) : reference->make(input);
    lk_model *model = root ? lk__model_of(name, file, root, input) : NULL;
    if (!model) {
        lk__free(text);
        return NULL;
    }
    model->text = text;
    model->reference = reference != NULL;
    return model;
}

/* A pipe can be read only once. */
static bool model_name_is_pipe(const char *name)
{
    struct stat about;
    return model_name_is_file(name) && stat(name, &about) == 0 && S_ISFIFO(about.st_mode);
}

lk_status lk_model_check(const char *name)
{
    const lk_model_input any = {.channels = 1, .height = 1, .width = 1, .classes = 1};
    if (name && model_name_is_pipe(name))
        return LK_OK;
    lk_model *model = model_from_name(name ? name : "", NULL, any, LK_ANY_CLASSES);
    lk_model_release(model);
    return model ? LK_OK : lk_error_status();
}

lk_model *lk_model_new(const char *name, lk_model_input input)
{
    return lk__model_finish(model_from_name(name ? name : "", NULL, input, input.classes));
}

lk_model *lk__model_from_text(const char *path, const char *text, lk_model_input input)
{
    return lk__model_finish(model_from_name(path, text, input, input.classes));
}

/* --- variables ---------------------------------------------------------------------------------------------------- */

const char *lk_model_name(const lk_model *model)
{
    return model->name;
}

lk_model_input lk_model_get_input(const lk_model *model)
{
    return model->input;
}

int lk_model_parameter_count(const lk_model *model)
{
    return model->n_parameters;
}

int lk_model_variable_count(const lk_model *model)
{
    return model->n_variables;
}

const char *lk_model_variable_name(const lk_model *model, int index)
{
    return model->variables[index].name;
}

lk_shape lk_model_variable_shape(const lk_model *model, int index)
{
    return model->variables[index].shape;
}

bool lk_model_has_batch_norm(const lk_model *model)
{
    return model->statistics.n > 0;
}

int lk_model_statistics_count(const lk_model *model)
{
    return model->statistics.n;
}

lk_status lk_model_init(const lk_model *model, lk_device *device, uint64_t seed, lk_tensor **variables)
{
    int n = model->n_variables;
    lk_status status = LK_OK;
    memset(variables, 0, (size_t)n * sizeof(lk_tensor *));
    lk_scope_begin();
    for (int i = 0; i < n && status == LK_OK; i++) {
        variables[i] = lk_tensor_retain(lk__initial_value(&model->variables[i], device, seed));
        status = variables[i] ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    return lk__scope_adopt_all(variables, n, status);
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

int lk_model_layer_count(const lk_model *model)
{
    return model->rows.n;
}

lk_layer_info lk_model_layer(const lk_model *model, int index)
{
    const lk_layer *layer = model->rows.layers[index];
    int64_t output = lk__layer_count(layer->output) * (int64_t)sizeof(float);
    return (lk_layer_info){.path = layer->path,
                           .kind = layer->table->kind,
                           .output = layer->output,
                           .parameters = layer->parameters,
                           .flops = layer->flops,
                           .bytes = layer->bytes + (layer->output_kept ? output : 0)};
}
