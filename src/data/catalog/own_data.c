#include "data/catalog/own_data.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/convert.h"
#include "data/dataset.h"
#include "data/formats/cifar.h"
#include "data/formats/csv.h"
#include "data/formats/format_files.h"
#include "data/formats/idx_folder.h"
#include "data/names.h"
#include "data/pictures/picture_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

bool lk__is_own_data(const char *path)
{
    struct stat status;
    return path && *path && stat(path, &status) == 0;
}

static bool own_data_has_folder(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && lk__is_folder(path);
}

/* --- folders of pictures ------------------------------------------------------------------------------------------ */

typedef struct pictures {
    const char *root;
    lk_split split;
    const lk_dataset_opts *opts;
    char source[PATH_MAX]; /* the folder with the split's classes */
    lk_picture_folder folder;
} pictures;

static lk_status own_data_select_held_out(pictures *p)
{
    int64_t n = p->folder.count, count;
    int32_t *labels = lk__calloc((size_t)n, sizeof *labels);
    int64_t *indices = lk__calloc((size_t)n, sizeof *indices);
    lk_status status = labels && indices ? LK_OK : LK_ERR_MEMORY;
    for (int64_t i = 0; status == LK_OK && i < n; i++)
        labels[i] = p->folder.files[i].label;
    if (status == LK_OK)
        status = lk__held_out(labels, n, p->opts->val_split, p->split, indices, &count);
    if (status == LK_OK)
        lk__picture_folder_select(&p->folder, indices, count);
    lk__free(labels);
    lk__free(indices);
    if (status == LK_OK && p->folder.count == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--val-split %g: no class of %s has two pictures", p->opts->val_split, p->root);
    return status;
}

/* A validation set has the channels of the training set, which its pictures decide. */
static lk_status own_data_add_training_pictures(pictures *p, const char *train)
{
    lk_picture_folder training = {0};
    lk_status status = lk__list_folders(train, &training.classes);
    if (status == LK_OK)
        status = lk__picture_folder_scan(train, &training);
    if (status == LK_OK)
        status = lk__picture_folder_add_training(&p->folder, &training);
    lk__picture_folder_free(&training);
    return status;
}

/* Warns of classes that are hardly meant to be classes. */
static void own_data_check_classes(const pictures *p, bool split_by_folders)
{
    static const char *const splits[] = {"train", "training", "val", "valid", "validation", "test"};
    const lk_names *classes = &p->folder.classes;
    if (classes->count == 1)
        lk__log(LK_LOG_WARNING, "%s has one class, %s: there is nothing to tell apart", p->source, classes->at[0]);
    for (int64_t i = 0; !split_by_folders && i < classes->count; i++)
        for (size_t j = 0; j < sizeof splits / sizeof *splits; j++)
            if (strcasecmp(classes->at[i], splits[j]) == 0)
                lk__log(LK_LOG_WARNING,
                        "%s/%s is taken for a class: the folders of a split are train, and val or test, in small "
                        "letters",
                        p->source, classes->at[i]);
}

static lk_status own_data_scan_pictures(pictures *p)
{
    bool split_by_folders = own_data_has_folder(p->root, "train"), held_out = p->opts->val_split > 0;
    const char *test = own_data_has_folder(p->root, "val") ? "val" : "test";
    char train[PATH_MAX];
    snprintf(train, PATH_MAX, "%s%s", p->root, split_by_folders ? "/train" : "");
    snprintf(p->source, PATH_MAX, "%s", train);
    if (p->split == LK_SPLIT_TEST && !held_out) {
        if (!split_by_folders || !own_data_has_folder(p->root, test))
            return lk__no_test_set(p->root, split_by_folders ? "val/ or test/ next to train/"
                                                             : "val/ or test/ next to a train/ with the classes");
        snprintf(p->source, PATH_MAX, "%s/%s", p->root, test);
    }
    LK_TRY(lk__list_folders(train, &p->folder.classes));
    LK_TRY(lk__picture_folder_scan(p->source, &p->folder));
    if (p->folder.loose)
        lk__log(LK_LOG_WARNING, "left out: %" PRId64 " picture%s next to the folders of classes (%s%s)",
                p->folder.loose, p->folder.loose == 1 ? "" : "s", p->folder.first_loose,
                p->folder.loose == 1 ? "" : ", …");
    if (p->folder.others)
        lk__log(LK_LOG_WARNING, "left out: %" PRId64 " file%s in %s without the ending of a picture (%s%s)",
                p->folder.others, p->folder.others == 1 ? "" : "s", p->source, p->folder.other,
                p->folder.others == 1 ? "" : ", …");
    if (p->split == LK_SPLIT_TRAIN)
        own_data_check_classes(p, split_by_folders);
    if (held_out)
        return own_data_select_held_out(p);
    return p->split == LK_SPLIT_TRAIN || p->opts->channels ? LK_OK : own_data_add_training_pictures(p, train);
}

static lk_status own_data_read_pictures(pictures *p, lk_samples *samples)
{
    lk_status status = own_data_scan_pictures(p);
    if (status == LK_OK)
        status = lk__picture_set_open(p->root, p->split, p->opts, &p->folder, samples);
    lk__picture_folder_free(&p->folder);
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

static lk_status own_data_read_csv_folder(const char *folder, lk_split split, const lk_dataset_opts *opts,
                                          char source[PATH_MAX], lk_samples *samples)
{
    char train[PATH_MAX];
    if (!lk__find_file(folder, "train.csv", train))
        LK_FAIL(LK_ERR_IO, "%s/train.csv: cannot be reached", folder);
    memcpy(source, train, PATH_MAX);
    if (split == LK_SPLIT_TRAIN)
        return lk__csv_read(train, NULL, opts, samples);
    if (!lk__find_file(folder, "val.csv", source) && !lk__find_file(folder, "test.csv", source))
        return lk__no_test_set(folder, "val.csv or test.csv next to train.csv");
    return lk__csv_read(source, train, opts, samples);
}

static lk_status own_data_read_csv_file(const char *path, lk_split split, const lk_dataset_opts *opts,
                                        char source[PATH_MAX], lk_samples *samples)
{
    size_t length = strlen(path), less = length > 3 && strcasecmp(path + length - 3, ".gz") == 0 ? 3 : 0;
    if (length < 5 + less || strncasecmp(path + length - less - 4, ".csv", 4) != 0)
        LK_FAIL(LK_ERR_ARGUMENT, "data set %s: a file of samples is a .csv or .csv.gz file", path);
    if (split == LK_SPLIT_TEST)
        return lk__no_test_set(path, "a folder with train.csv and val.csv");
    snprintf(source, PATH_MAX, "%s", path);
    return lk__csv_read(path, NULL, opts, samples);
}

/* --- the format --------------------------------------------------------------------------------------------------- */

static lk_status own_data_read_folder(const char *path, lk_split split, const lk_dataset_opts *opts,
                                      char source[PATH_MAX], lk_samples *samples)
{
    char file[PATH_MAX];
    if (lk__is_cifar(path))
        return lk__cifar_read(path, split, source, samples);
    if (lk__is_idx_folder(path))
        return lk__idx_folder_read(path, split, source, samples);
    if (lk__find_file(path, "train.csv", file))
        return own_data_read_csv_folder(path, split, opts, source, samples);
    LK_FAIL(
        LK_ERR_FORMAT,
        "%s: nothing to train with: expected folders of pictures (train/CLASS/… or CLASS/…), CIFAR's data_batch_1.bin "
        "or train.bin, train-images* and train-labels* in IDX, or train.csv",
        path);
}

static lk_status own_data_holds_folders(const char *path, bool *holds)
{
    lk_names names = {0};
    lk_status status = lk__list_folders(path, &names);
    *holds = names.count > 0;
    lk__names_free(&names);
    return status;
}

static bool own_data_has_sample_files(const char *path)
{
    char file[PATH_MAX];
    return lk__is_cifar(path) || lk__is_idx_folder(path) || lk__find_file(path, "train.csv", file);
}

bool lk__own_data_is_csv(const char *path)
{
    char file[PATH_MAX];
    if (!lk__is_folder(path))
        return lk__is_own_data(path);
    return !own_data_has_folder(path, "train") && !lk__is_cifar(path) && !lk__is_idx_folder(path) &&
           lk__find_file(path, "train.csv", file);
}

static lk_status own_data_open_path(const char *path, const char *name, lk_split split, const lk_dataset_opts *opts,
                                    lk_dataset **dataset)
{
    char source[PATH_MAX];
    lk_samples samples = {0};
    bool holds_pictures = own_data_has_folder(path, "train");
    if (!lk__own_data_is_csv(path))
        LK_TRY(lk__refuse_csv_opts(opts, name));
    if (!holds_pictures && lk__is_folder(path) && !own_data_has_sample_files(path))
        LK_TRY(own_data_holds_folders(path, &holds_pictures));
    if (holds_pictures) {
        pictures p = {.root = path, .split = split, .opts = opts};
        LK_TRY(own_data_read_pictures(&p, &samples));
        return lk__dataset_make(name, p.source, &samples, opts->limit, dataset);
    }
    lk_split wanted = opts->val_split > 0 ? LK_SPLIT_TRAIN : split;
    LK_TRY(lk__is_folder(path) ? own_data_read_folder(path, wanted, opts, source, &samples)
                               : own_data_read_csv_file(path, wanted, opts, source, &samples));
    return lk__dataset_finish(name, source, &samples, split, opts, dataset);
}

lk_status lk__own_data_open(const char *path, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset)
{
    char clean[PATH_MAX];
    if (snprintf(clean, PATH_MAX, "%s", path) >= PATH_MAX - 32)
        LK_FAIL(LK_ERR_IO, "data set %.200s: the path is too long", path);
    size_t length = strlen(clean);
    while (length > 1 && clean[length - 1] == '/')
        clean[--length] = '\0';
    const char *slash = strrchr(clean, '/');
    return own_data_open_path(clean, slash && slash[1] ? slash + 1 : clean, split, opts, dataset);
}
