#include "data/catalog/catalog.h"

#include "base/status.h"
#include "data/catalog/locate.h"
#include "data/catalog/own_data.h"
#include "data/catalog/synthetic.h"
#include "data/convert.h"

#include <limits.h>
#include <string.h>

static const char *const fashion_names[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                            "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
static const char *const digit_names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

/* In alphabetical order, as in LK_DATASET_NAMES. All addresses are HTTPS: a machine in between may break a download,
 * but cannot choose what arrives. Fashion-MNIST comes from its authors' repository, or the copy that Keras uses. The
 * page of MNIST's authors refuses downloads; these are the copies that PyTorch and TensorFlow use, identical to the
 * original. */
#define LK_DATASET_NAMES "fashion-mnist, mnist, synthetic"
static const lk_catalog_entry catalog[] = {
    {
        .kind = {.name = "fashion-mnist", .classes = 10, .class_names = fashion_names},
        .base_urls = {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
                      "https://storage.googleapis.com/tensorflow/tf-keras-datasets"},
        .files =
            {
                [LK_SPLIT_TRAIN] = {{"train-images-idx3-ubyte", 47040016, 0xe5a664e2905b9295, 0xca72265d7c26283b},
                                    {"train-labels-idx1-ubyte", 60008, 0x48a2c630b815ef5a, 0x775518db990ebf87}},
                [LK_SPLIT_TEST] = {{"t10k-images-idx3-ubyte", 7840016, 0x00620a3fbea59460, 0xa60baf710224b311},
                                   {"t10k-labels-idx1-ubyte", 10008, 0xca8383985fa2cbc6, 0x20515cb4512a5b03}},
            },
    },
    {
        .kind = {.name = "mnist", .classes = 10, .class_names = digit_names},
        .base_urls = {"https://ossci-datasets.s3.amazonaws.com/mnist",
                      "https://storage.googleapis.com/cvdf-datasets/mnist"},
        .files =
            {
                [LK_SPLIT_TRAIN] = {{"train-images-idx3-ubyte", 47040016, 0xe12946a8ab9bd743, 0x59bf22c057c52478},
                                    {"train-labels-idx1-ubyte", 60008, 0x81c6f5433a9d3462, 0x8839fd1c4bb36825}},
                [LK_SPLIT_TEST] = {{"t10k-images-idx3-ubyte", 7840016, 0xa912d49f199ea2d3, 0x6aa8aa9c0102c17c},
                                   {"t10k-labels-idx1-ubyte", 10008, 0x507d8d921945ef36, 0x63c4bd8be7e7204f}},
            },
    },
    {
        .kind = {.name = "synthetic", .classes = LK__SYNTHETIC_CLASSES, .class_names = lk__synthetic_class_names},
        .generated = true,
    },
};

enum { ENTRIES = sizeof catalog / sizeof catalog[0] };

const lk_catalog_entry *lk__catalog_find(const char *name)
{
    for (int i = 0; i < ENTRIES; i++)
        if (strcmp(catalog[i].kind.name, name) == 0)
            return &catalog[i];
    return NULL;
}

const char *lk_dataset_known_name(size_t i)
{
    return i < ENTRIES ? catalog[i].kind.name : NULL;
}

const char *lk_dataset_names(void)
{
    return LK_DATASET_NAMES;
}

/* With opts->val_split both splits are cut from the training set, so the training set is opened whole. */
static lk_status catalog_open_samples(const lk_catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                                      char source[PATH_MAX], lk_samples *samples)
{
    LK_TRY(lk__refuse_csv_opts(opts, entry->kind.name));
    if (opts->val_split > 0)
        split = LK_SPLIT_TRAIN;
    if (entry->generated) {
        strcpy(source, "generated");
        return lk__samples_generate(&entry->kind, split, opts->val_split > 0 ? 0 : opts->limit, samples);
    }
    lk_dataset_files files;
    LK_TRY(lk__dataset_find_files(entry, split, opts, &files));
    memcpy(source, files.path[LK__IMAGES], PATH_MAX);
    return lk__samples_from_idx(&entry->kind, files.path[LK__IMAGES], files.path[LK__LABELS], samples);
}

lk_status lk__catalog_open(const lk_catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                           lk_dataset **dataset)
{
    char source[PATH_MAX];
    lk_samples samples = {0};
    LK_TRY(catalog_open_samples(entry, split, opts, source, &samples));
    return lk__dataset_finish(entry->kind.name, source, &samples, split, opts, dataset);
}

lk_status lk_dataset_open(const char *name, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset)
{
    static const lk_dataset_opts defaults;
    *dataset = NULL;
    name = name ? name : "";
    opts = opts ? opts : &defaults;
    if (split != LK_SPLIT_TRAIN && split != LK_SPLIT_TEST)
        LK_FAIL(LK_ERR_ARGUMENT, "unknown split %d of data set %s: expected LK_SPLIT_TRAIN or LK_SPLIT_TEST",
                (int)split, name);
    LK_TRY(lk__check_data_opts(opts));
    const lk_catalog_entry *entry = lk__catalog_find(name);
    if (entry)
        return lk__catalog_open(entry, split, opts, dataset);
    if (lk__is_own_data(name))
        return lk__own_data_open(name, split, opts, dataset);
    LK_FAIL(LK_ERR_ARGUMENT,
            "unknown data set '%s': expected one of " LK_DATASET_NAMES ", or the path of a folder or file", name);
}

bool lk_dataset_is_known(const char *name)
{
    return lk__catalog_find(name) || lk__is_own_data(name);
}

bool lk_dataset_is_csv(const char *name)
{
    return !lk__catalog_find(name) && lk__own_data_is_csv(name);
}
