/* Reads the files of a checkpoint and compares them with its manifest. */
#pragma once

#include "train/checkpoint/checkpoint.h"

#include <jansson.h>
#include <limits.h>

/* Write "FOLDER/NAME" and "FOLDER/PREFIXNAME". Errors: LK_ERR_ARGUMENT (the path is too long). */
lk_status lk__checkpoint_path(const char *folder, const char *name, char path[PATH_MAX]);
lk_status lk__checkpoint_prefixed_path(const char *folder, const char *prefix, const char *name, char path[PATH_MAX]);

/* Compares all files of checkpoint->folder with the manifest and keeps the tensors in memory. With is_model_only only
 * the size of the optimizer's file is compared, and it is not read. Errors: LK_ERR_FORMAT and LK_ERR_IO,
 * which name the first file that is wrong; LK_ERR_MEMORY. */
lk_status lk__checkpoint_read_files(lk_checkpoint *checkpoint);

/* Parses a JSON file of at most `most` bytes; duplicate names are errors. Free *json with json_decref. Errors:
 * LK_ERR_FORMAT, LK_ERR_IO. */
lk_status lk__load_json(const char *path, int64_t most, json_t **json);
