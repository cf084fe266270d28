#include "base/mem.h"
#include "base/status.h"
#include "lockstep/export.h"
#include "train/checkpoint.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder that what is written to `path` comes to lie in, through links; false: what is wrong with the path is said
 * where it is written to. */
static bool find_folder(const char *path, char folder[PATH_MAX])
{
    char above[PATH_MAX];
    size_t length = strlen(path);
    if (realpath(path, folder)) {
        *strrchr(folder, '/') = '\0';
        return true;
    }
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    return snprintf(above, PATH_MAX, "%.*s.", (int)length, path) < PATH_MAX && realpath(above, folder);
}

/* A checkpoint is what its manifest says: a file of it that is replaced, or a folder in it, would damage it. */
static lk_status check_place(const char *path)
{
    char folder[PATH_MAX], manifest[PATH_MAX], state[PATH_MAX];
    if (!find_folder(path, folder))
        return LK_OK;
    LK_TRY(lk__checkpoint_path(folder, "manifest.json", manifest));
    LK_TRY(lk__checkpoint_path(folder, "state.json", state));
    if (access(manifest, F_OK) == 0 && access(state, F_OK) == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: lies in the checkpoint %s, which stays as it is; expected another folder", path,
                folder);
    return LK_OK;
}

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
    if (path)
        LK_TRY(check_place(path));
    lk_model *model = lk_checkpoint_model(checkpoint);
    lk_status status = model ? export_model(checkpoint, model, format, path, opts) : lk_error_status();
    lk_model_release(model);
    return status;
}
