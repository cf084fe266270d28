/* lk_export_checkpoint: exports the network of a checkpoint. */
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/export.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Finds the folder, with links resolved, that will hold what is written to `path`. False if the path is invalid;
 * writing to it reports the error. */
static bool export_checkpoint_find_folder(const char *path, char folder[PATH_MAX])
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

/* Rejects a path inside a checkpoint, because replacing one of its files, or adding a folder, would damage it. */
static lk_status export_checkpoint_check_path(const char *path)
{
    char folder[PATH_MAX], manifest[PATH_MAX], state[PATH_MAX];
    if (!export_checkpoint_find_folder(path, folder))
        return LK_OK;
    LK_TRY(lk__checkpoint_path(folder, "manifest.json", manifest));
    LK_TRY(lk__checkpoint_path(folder, "state.json", state));
    if (access(manifest, F_OK) == 0 && access(state, F_OK) == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: lies in the checkpoint %s, which stays as it is; expected another folder", path,
                folder);
    return LK_OK;
}

static lk_status export_checkpoint_model(const lk_checkpoint *checkpoint, const lk_model *model,
                                         lk_export_format format, const char *path, const lk_export_opts *opts)
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
        LK_TRY(export_checkpoint_check_path(path));
    lk_model *model = lk_checkpoint_model(checkpoint);
    lk_status status = model ? export_checkpoint_model(checkpoint, model, format, path, opts) : lk_error_status();
    lk_model_release(model);
    return status;
}
