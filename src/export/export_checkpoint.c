#include "base/mem.h"
#include "base/status.h"
#include "lockstep/export.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A checkpoint is what its manifest says: a file of it that is replaced, or a folder in it, would damage it. */
static lk_status check_place(const lk_checkpoint_info *info, const char *path)
{
    char above[PATH_MAX];
    struct stat place, checkpoint;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (snprintf(above, PATH_MAX, "%.*s.", (int)length, path) >= PATH_MAX || stat(above, &place) != 0 ||
        stat(info->folder, &checkpoint) != 0)
        return LK_OK; /* what is wrong with the path is said where it is written to */
    if (place.st_dev == checkpoint.st_dev && place.st_ino == checkpoint.st_ino)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: lies in the checkpoint %s, which stays as it is; expected another folder", path,
                info->folder);
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
        LK_TRY(check_place(lk_checkpoint_get_info(checkpoint), path));
    lk_model *model = lk_checkpoint_model(checkpoint);
    lk_status status = model ? export_model(checkpoint, model, format, path, opts) : lk_error_status();
    lk_model_release(model);
    return status;
}
