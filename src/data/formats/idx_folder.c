/* Finds files by how their names begin: train-images*, train-labels*, and the same with t10k or test. */
#include "data/formats/idx_folder.h"

#include "base/log.h"
#include "base/status.h"
#include "data/dataset.h"
#include "data/formats/format_files.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Escapes a folder's path, so that glob takes it literally. False: it is too long. */
static bool idx_folder_escape_pattern(const char *folder, char pattern[PATH_MAX])
{
    size_t length = 0;
    for (; *folder && length + 2 < PATH_MAX; folder++) {
        if (strchr("*?[\\", *folder))
            pattern[length++] = '\\';
        pattern[length++] = *folder;
    }
    pattern[length] = '\0';
    return !*folder;
}

static bool idx_folder_find_file(const char *folder, const char *split, const char *what, char path[PATH_MAX])
{
    char literal[PATH_MAX], pattern[PATH_MAX];
    glob_t found;
    if (!idx_folder_escape_pattern(folder, literal) ||
        snprintf(pattern, PATH_MAX, "%s/%s-%s*", literal, split, what) >= PATH_MAX)
        return false;
    bool is_there = glob(pattern, 0, NULL, &found) == 0; /* glob sorts: a plain file comes before its .gz */
    if (is_there)
        snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return is_there;
}

bool lk__is_idx_folder(const char *folder)
{
    char path[PATH_MAX];
    return idx_folder_find_file(folder, "train", "images", path) &&
           idx_folder_find_file(folder, "train", "labels", path);
}

/* Sets *classes to the largest label of the training set plus one. */
static lk_status idx_folder_count_classes(const char *folder, int64_t *classes)
{
    char path[PATH_MAX];
    lk_idx labels;
    if (!idx_folder_find_file(folder, "train", "labels", path))
        LK_FAIL(LK_ERR_IO, "%s: no file train-labels*", folder);
    LK_TRY(lk__idx_open(path, 1, 1, &labels));
    *classes = 1;
    for (int64_t i = 0; i < labels.dim[0]; i++)
        if (labels.data[i] >= *classes)
            *classes = labels.data[i] + 1;
    lk__idx_close(&labels);
    return LK_OK;
}

/* TensorFlow stores images as [N,H,W,C]. Read as [N,C,H,W] they give a network of far too many channels, which learns
 * next to nothing. */
static void idx_folder_warn_channels_last(const lk_samples *samples, const char *source)
{
    if ((samples->width == 1 || samples->width == 3) && samples->channels > 4)
        lk__log(LK_LOG_WARNING,
                "%s: images of %" PRId64 " channels, %" PRId64 "x%" PRId64
                ", by [N,C,H,W]; if they are [N,H,W,C] the file has to be written anew, channels first",
                source, samples->channels, samples->height, samples->width);
}

lk_status lk__idx_folder_read(const char *folder, lk_split split, char source[PATH_MAX], lk_samples *samples)
{
    static const char *const names[] = {[LK_SPLIT_TRAIN] = "train", [LK_SPLIT_TEST] = "t10k"};
    char labels[PATH_MAX];
    lk_dataset_kind kind = {.name = "idx"};
    *samples = (lk_samples){0};
    LK_TRY(idx_folder_count_classes(folder, &kind.classes));
    const char *name = names[split];
    if (split == LK_SPLIT_TEST && !idx_folder_find_file(folder, name, "images", source))
        name = "test";
    if (!idx_folder_find_file(folder, name, "images", source) || !idx_folder_find_file(folder, name, "labels", labels))
        return lk__no_test_set(folder, "t10k-images* and t10k-labels*, or test-*");
    LK_TRY(lk__samples_from_idx(&kind, source, labels, samples));
    idx_folder_warn_channels_last(samples, source);
    return LK_OK;
}
