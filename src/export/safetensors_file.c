/* The variables alone, as a checkpoint's model.safetensors has them. */
#include "export/export_files.h"
#include "export/network.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/safetensors.h"

static lk_status write_safetensors(const lk__network *network, const char *path, const lk_export_opts *opts)
{
    static const char *const metadata[] = {"format", "pt", NULL}; /* as PyTorch's own are marked: row-major */
    (void)opts;
    int n = lk_model_variable_count(network->model);
    lk__export_files files = {0};
    const char *beside;
    int64_t bytes;
    uint64_t hash;
    lk__safetensors_entry *entries = lk__calloc((size_t)n + 1, sizeof *entries);
    if (!entries)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        entries[i] = (lk__safetensors_entry){lk_model_variable_name(network->model, i),
                                             lk_model_variable_shape(network->model, i), network->variables[i]};
    lk_status status = lk__export_begin(&files, path, &beside);
    if (status == LK_OK)
        status = lk__safetensors_write(beside, entries, n, metadata, &bytes, &hash);
    lk__free(entries);
    return lk__export_end(&files, status);
}

const lk__export_writer lk__export_safetensors = {
    .name = "safetensors", .variables_only = true, .write = write_safetensors};
