/* Exports only the variables, as a checkpoint's model.safetensors does, or with PyTorch's names and shapes. */
#include "base/mem.h"
#include "base/status.h"
#include "export/export_files.h"
#include "export/network.h"
#include "io/safetensors_write.h"
#include "nn/torch_names.h"

typedef struct file_entries {
    int n;
    lk_safetensors_entry *all;
    char (*names)[LK__TORCH_NAME];
    float **transposed; /* [n]: NULL for an entry that is written as it is */
} file_entries;

static void safetensors_file_free_entries(file_entries *entries)
{
    for (int i = 0; entries->transposed && i < entries->n; i++)
        lk__free(entries->transposed[i]);
    LK_FREE_ALL(entries->transposed, entries->names, entries->all);
}

static lk_status safetensors_file_fill_entry(const lk_network *network, const lk_torch_naming *naming, int i,
                                             file_entries *entries)
{
    const char *name = lk_model_variable_name(network->model, i);
    lk_shape shape = lk_model_variable_shape(network->model, i);
    entries->all[i] =
        (lk_safetensors_entry){lk__torch_name(naming, name, entries->names[i]), shape, network->variables[i]};
    if (!lk__torch_transposes(naming, name, shape))
        return LK_OK;
    float *values = entries->transposed[i] = lk__calloc((size_t)lk_shape_count(shape), sizeof *values);
    if (!values)
        return LK_ERR_MEMORY;
    lk__transpose(network->variables[i], shape.dim[0], shape.dim[1], values);
    entries->all[i].shape = LK_SHAPE(shape.dim[1], shape.dim[0]);
    entries->all[i].values = values;
    return LK_OK;
}

static lk_status safetensors_file_fill_entries(const lk_network *network, const lk_torch_naming *naming,
                                               file_entries *entries)
{
    size_t n = (size_t)lk_model_variable_count(network->model);
    *entries = (file_entries){.n = (int)n,
                              .all = lk__calloc(n + 1, sizeof *entries->all),
                              .names = lk__calloc(n + 1, sizeof *entries->names),
                              .transposed = lk__calloc(n + 1, sizeof *entries->transposed)};
    if (!entries->all || !entries->names || !entries->transposed)
        return LK_ERR_MEMORY;
    for (int i = 0; i < entries->n; i++)
        LK_TRY(safetensors_file_fill_entry(network, naming, i, entries));
    return LK_OK;
}

static lk_status safetensors_file_find_naming(const lk_model *model, lk_export_names names,
                                              const lk_torch_naming **naming)
{
    *naming = NULL;
    if ((unsigned)names > LK_EXPORT_NAMES_BOOK)
        LK_FAIL(LK_ERR_ARGUMENT, "export: there are no names %d; there are 0 to %d", (int)names, LK_EXPORT_NAMES_BOOK);
    if (names == LK_EXPORT_NAMES_OWN)
        return LK_OK;
    *naming = lk__torch_naming_at(model, (int)names - LK_EXPORT_NAMES_TORCH);
    if (!*naming && names == LK_EXPORT_NAMES_BOOK)
        LK_FAIL(LK_ERR_UNSUPPORTED, "%s: has no names of Dive into Deep Learning; resnet18 has", lk_model_name(model));
    if (!*naming)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "%s: has no names of PyTorch; the reference models have: lenet, keras-cnn, resnet18, wrn-16-10 and "
                "fast-cnn",
                lk_model_name(model));
    return LK_OK;
}

static lk_status safetensors_file_write_entries(const file_entries *entries, const char *path)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* as PyTorch's own files: row-major */
    lk_export_files files = {0};
    const char *temporary;
    int64_t bytes;
    uint64_t hash;
    lk_status status = lk__export_begin(&files, path, &temporary);
    if (status == LK_OK)
        status = lk__safetensors_write(temporary, entries->all, entries->n, metadata, &bytes, &hash);
    return lk__export_end(&files, status);
}

static lk_status safetensors_file_write(const lk_network *network, const char *path, const lk_export_opts *opts)
{
    const lk_torch_naming *naming;
    file_entries entries;
    LK_TRY(safetensors_file_find_naming(network->model, opts->names, &naming));
    lk_status status = safetensors_file_fill_entries(network, naming, &entries);
    if (status == LK_OK)
        status = safetensors_file_write_entries(&entries, path);
    safetensors_file_free_entries(&entries);
    return status;
}

const lk_export_writer lk__export_safetensors = {
    .name = "safetensors", .variables_only = true, .write = safetensors_file_write};
