/* A file that is written beside its place and takes it when it is whole. */
#ifndef LK_EXPORT_OUTPUT_H
#define LK_EXPORT_OUTPUT_H

#include "lockstep/status.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

typedef struct lk__output {
    const char *path; /* borrowed */
    char beside[PATH_MAX];
    FILE *file;
} lk__output;

/* Errors: LK_ERR_IO, LK_ERR_ARGUMENT (a path that is too long). */
lk_status lk__output_open(lk__output *output, const char *path);
lk_status lk__output_write(lk__output *output, const void *data, size_t size);

/* Closes it: status LK_OK brings the file to disk and to its place, any other removes it and is given back. */
lk_status lk__output_close(lk__output *output, lk_status status);

/* All of it at once. */
lk_status lk__output_file(const char *path, const void *data, size_t size);

#endif
