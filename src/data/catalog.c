#include "data/catalog.h"

#include "base/status.h"
#include "data/locate.h"
#include "data/own_data.h"
#include "data/synthetic.h"

#include <limits.h>
#include <string.h>

static const char *const fashion_names[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                            "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
static const char *const digit_names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

/* Alphabetical, as is LK_DATASET_NAMES. The addresses are HTTPS only, so that who sits in between can break a download
 * but not write one. Fashion-MNIST: its authors' repository, and the copy that Keras takes. MNIST: the page of its
 * authors refuses downloads; these are the copies that PyTorch and TensorFlow take, byte for byte the original. */
#define LK_DATASET_NAMES "fashion-mnist, mnist, synthetic"
static const lk__catalog_entry catalog[] = {
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

const lk__catalog_entry *lk__catalog_find(const char *name)
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

/* What is held out of the training set is never a split that the files have. */
static lk_status open_samples(const lk__catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                              char source[PATH_MAX], lk__samples *samples)
{
    if (opts->val_split > 0)
        split = LK_SPLIT_TRAIN;
    if (entry->generated) {
        strcpy(source, LK__GENERATED);
        return lk__samples_generate(&entry->kind, split, opts->val_split > 0 ? 0 : opts->limit, samples);
    }
    lk__located files;
    LK_TRY(lk__locate(entry, split, opts, &files));
    memcpy(source, files.path[LK__IMAGES], PATH_MAX);
    return lk__samples_from_idx(&entry->kind, files.path[LK__IMAGES], files.path[LK__LABELS], samples);
}

lk_status lk__catalog_open(const lk__catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                           lk_dataset **dataset)
{
    char source[PATH_MAX];
    lk__samples samples = {0};
    LK_TRY(open_samples(entry, split, opts, source, &samples));
    return lk__dataset_finish(entry->kind.name, source, &samples, split, opts, dataset);
}

static lk_status open_known(const char *name, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset)
{
    const lk__catalog_entry *entry = lk__catalog_find(name);
    LK_TRY(lk__check_data_opts(opts));
    if (entry)
        return lk__catalog_open(entry, split, opts, dataset);
    if (lk__is_own_data(name))
        return lk__own_data_open(name, split, opts, dataset);
    LK_FAIL(LK_ERR_ARGUMENT,
            "unknown data set '%s': expected one of " LK_DATASET_NAMES ", or the path of a folder or file", name);
}

lk_status lk_dataset_open(const char *name, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset)
{
    *dataset = NULL;
    static const lk_dataset_opts defaults;
    if (split != LK_SPLIT_TRAIN && split != LK_SPLIT_TEST)
        LK_FAIL(LK_ERR_ARGUMENT, "unknown split %d of data set %s: expected LK_SPLIT_TRAIN or LK_SPLIT_TEST",
                (int)split, name ? name : "");
    return open_known(name ? name : "", split, opts ? opts : &defaults, dataset);
}

bool lk_dataset_is_known(const char *name)
{
    return lk__catalog_find(name) || lk__is_own_data(name);
}
