/* IDX files of any shape, by the beginnings of their names: train-images*, train-labels*, and the same with t10k or
 * test. */
#include "base/log.h"
#include "base/status.h"
#include "data/dataset.h"
#include "data/own_data.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A folder's path as a pattern of itself alone. */
static bool escape(const char *folder, char pattern[PATH_MAX])
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

static bool find(const char *folder, const char *split, const char *what, char path[PATH_MAX])
{
    char literal[PATH_MAX], pattern[PATH_MAX];
    glob_t found;
    if (!escape(folder, literal) || snprintf(pattern, PATH_MAX, "%s/%s-%s*", literal, split, what) >= PATH_MAX)
        return false;
    bool is_there = glob(pattern, 0, NULL, &found) == 0; /* sorted: a plain file before its .gz */
    if (is_there)
        snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return is_there;
}

bool lk__is_idx_folder(const char *folder)
{
    char path[PATH_MAX];
    return find(folder, "train", "images", path) && find(folder, "train", "labels", path);
}

/* The largest label of the training set, and one. */
static lk_status count_classes(const char *folder, int64_t *classes)
{
    char path[PATH_MAX];
    lk__idx labels;
    if (!find(folder, "train", "labels", path))
        LK_FAIL(LK_ERR_IO, "%s: no file train-labels*", folder);
    LK_TRY(lk__idx_open(path, 1, 1, &labels));
    *classes = 1;
    for (int64_t i = 0; i < labels.dim[0]; i++)
        if (labels.data[i] >= *classes)
            *classes = labels.data[i] + 1;
    lk__idx_close(&labels);
    return LK_OK;
}

/* As TensorFlow keeps images. Networks would be made for that many channels, and learn next to nothing. */
static void warn_of_channels_last(const lk__samples *samples, const char *source)
{
    if ((samples->width == 1 || samples->width == 3) && samples->channels > 4)
        lk__log(LK_LOG_WARNING,
                "%s: images of %" PRId64 " channels, %" PRId64 "x%" PRId64
                ", by [N,C,H,W]; if they are [N,H,W,C] the file has to be written anew, channels first",
                source, samples->channels, samples->height, samples->width);
}

lk_status lk__idx_folder_read(const char *folder, lk_split split, char source[PATH_MAX], lk__samples *samples)
{
    static const char *const names[] = {[LK_SPLIT_TRAIN] = "train", [LK_SPLIT_TEST] = "t10k"};
    char labels[PATH_MAX];
    lk__dataset_kind kind = {.name = "idx"};
    *samples = (lk__samples){0};
    LK_TRY(count_classes(folder, &kind.classes));
    const char *name = names[split];
    if (split == LK_SPLIT_TEST && !find(folder, name, "images", source))
        name = "test";
    if (!find(folder, name, "images", source) || !find(folder, name, "labels", labels))
        return lk__no_test_set(folder, "t10k-images* and t10k-labels*, or test-*");
    LK_TRY(lk__samples_from_idx(&kind, source, labels, samples));
    warn_of_channels_last(samples, source);
    return LK_OK;
}
