#include "base/mem.h"
#include "lockstep/export.h"

static lk_status export_model(const lk_checkpoint *checkpoint, const lk_model *model, lk_export_format format,
                              const char *path, const lk_export_opts *opts)
{
    const lk_checkpoint_info *info = lk_checkpoint_get_info(checkpoint);
    int n = lk_checkpoint_variable_count(checkpoint);
    const float **variables = lk__calloc((size_t)n + 1, sizeof *variables);
    if (!variables)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        variables[i] = lk_checkpoint_variable(checkpoint, i, NULL, NULL);
    const lk_export_network network = {.model = model,
                                       .variables = variables,
                                       .center = info->center,
                                       .standardize = info->standardize,
                                       .mean = info->mean,
                                       .deviation = info->deviation,
                                       .class_names = info->class_names};
    lk_status status = lk_export(&network, format, path, opts);
    lk__free(variables);
    return status;
}

lk_status lk_export_checkpoint(const lk_checkpoint *checkpoint, lk_export_format format, const char *path,
                               const lk_export_opts *opts)
{
    lk_model *model = lk_checkpoint_model(checkpoint);
    lk_status status = model ? export_model(checkpoint, model, format, path, opts) : lk_error_status();
    lk_model_release(model);
    return status;
}
