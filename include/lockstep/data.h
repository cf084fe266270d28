/* Data sets, batches of their samples, augmentation, and a ledger that proves each sample was used once an epoch.
 *
 *     lk_dataset *dataset;
 *     lk_loader *loader;
 *     lk_batch *batch;
 *     lk_dataset_open("fashion-mnist", LK_SPLIT_TRAIN, NULL, &dataset);
 *     lk_loader_new(dataset, &(lk_loader_opts){.batch_size = 256, .shuffle = true, .workers = 1}, &loader);
 *     lk_loader_start(loader, 0);
 *     while (lk_loader_next(loader, &batch) == LK_OK && batch) {
 *         … use batch->images, batch->labels …
 *         lk_batch_release(batch);
 *     } */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- opening data sets ---- */

enum { LK_MAX_CLASSES = 65536 }; /* of a data set */

/* Images and labels in memory. A data set does not change once it is open, so any thread may read it. It is
 * reference-counted. An uncompressed file is mapped, not copied: it must not be truncated while the data set lives. */
typedef struct lk_dataset lk_dataset;

typedef enum lk_split { LK_SPLIT_TRAIN, LK_SPLIT_TEST } lk_split;

/* The current work of opening a data set. */
typedef enum lk_data_work {
    LK_DATA_DOWNLOADING, /* a file; counts bytes */
    LK_DATA_WAITING,     /* for another process that downloads the file or decodes the pictures; counts nothing */
    LK_DATA_EXAMINING,   /* reads headers of the pictures in a folder; counts pictures */
    LK_DATA_DECODING,    /* the pictures; counts them */
    LK_DATA_STORING,     /* writes decoded pictures to the cache; counts bytes */
    LK_DATA_CHECKING     /* reads decoded pictures found in the cache; counts bytes */
} lk_data_work;

typedef struct lk_data_progress {
    lk_data_work work;
    const char *name; /* of the file or folder; valid during the call */
    int64_t done;     /* bytes or pictures */
    int64_t total;    /* 0: unknown */
} lk_data_progress;

/* Called by the opening thread, while opening takes long and before anything is written. False ends opening soon with
 * LK_ERR_INTERRUPTED. Nothing half-written stays, except for part of a download, from which the next try goes on. */
typedef bool (*lk_data_progress_fn)(void *user, const lk_data_progress *progress);

/* Zeroes are the defaults. */
typedef struct lk_dataset_opts {
    const char *dir; /* folder to look in first; NULL: begin with $LOCKSTEP_DATA */
    int64_t limit;   /* take only the first `limit` samples; 0 or negative: all */
    bool offline;    /* never download */
    /* Compare whole files of a data set that is known by name with its checksums, wherever they are. Files in the cache
     * that differ are downloaded again. */
    bool verify;
    /* URL to download from first, as MIRROR/NAME/FILE.gz: a server of a folder such as `dir`. Its files are checked
     * like all others. NULL: only the addresses of the data set's authors. */
    const char *mirror;
    lk_data_progress_fn progress; /* NULL: none */
    void *progress_user;          /* its first argument */

    /* For all data sets; NULL and 0 leave images and splits as they are. */
    const char *resize; /* "HxW" in pixels, see lk_image_read; a folder with pictures of several sizes needs it */
    int64_t channels;   /* 1: gray; 3: color */
    double val_split;   /* above 0: this share of each class of the training set is moved to the test set */

    /* For CSV; an error with other data. */
    const char *shape;        /* of a row: "CxHxW" or "HxW"; NULL: as the header says */
    const char *label_column; /* name in the header; NULL: "label" or "class", else the first column */

    /* For data sets made of files of your own. */
    bool skip_bad;         /* leave out pictures and rows that cannot be used, with a warning for each */
    int threads;           /* that decode pictures, which never changes a byte; 0 or 1: only the calling thread */
    const char *cache_dir; /* folder for decoded pictures; NULL: packed/ in the cache; "none": keep none */
} lk_dataset_opts;

/* Opens a data set by name, or by the path of a folder or file of your own. opts NULL: defaults.
 *
 * fashion-mnist and mnist are four files, which are looked for as DIR/NAME/FILE, then as DIR/NAME/FILE.gz. DIR is
 * opts->dir, then $LOCKSTEP_DATA, then the cache ($XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep); the first DIR with
 * a file of the split is taken. Files found nowhere are downloaded into the cache, checked and kept there uncompressed.
 * synthetic is generated: 28x28 gray images of ten shapes, the same bytes on every machine.
 *
 * Any other name is a path, whose contents decide what it is (see docs/data.md):
 *   train/CLASS/… and val/ or test/       PNG, JPEG, PGM and PPM pictures; CLASS/… alone with opts->val_split
 *   data_batch_1.bin … test_batch.bin     CIFAR-10, binary; train.bin and test.bin: CIFAR-100
 *   train-images*, train-labels*, t10k-*  IDX files of any shape; test-* is accepted too
 *   train.csv and val.csv or test.csv     rows of a label and pixels; one file FILE.csv with opts->val_split
 * All pictures are decoded before the call returns, into a file of the cache that is then mapped. The next call only
 * maps it, unless names, sizes or times of the files, or the options, have changed. The order of pictures follows from
 * their names alone.
 *
 * The caller gets one reference.
 * Errors: LK_ERR_ARGUMENT (an unknown name, for which the message lists the known ones; an option; no test set),
 * LK_ERR_NOT_FOUND (found nowhere, and the download failed), LK_ERR_IO (found but unreadable), LK_ERR_FORMAT (found but
 * damaged; other folders are not tried then, and the message names files and how many there are), LK_ERR_INTERRUPTED,
 * LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_open(const char *name, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset);

/* Opens two IDX files of unsigned bytes, plain or gzip-compressed: images [N,H,W] or [N,C,H,W], and labels [N] below
 * `classes` (1 … 256). limit: as in lk_dataset_opts. Both files are checked as a whole, whatever the limit. The caller
 * gets one reference. Errors: LK_ERR_ARGUMENT, LK_ERR_IO, LK_ERR_FORMAT (the message names file, position, what was
 * found and what was expected), LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_open_idx(const char *images_path, const char *labels_path, int64_t classes, int64_t limit,
                                     lk_dataset **dataset);

/* Sets image [channels, height, width] to sample `index`, 0 … count - 1. It must give the same values for an index
 * every time: order, shards and resuming follow from the numbers of samples, so that is all it takes for equal bits on
 * any number of devices. The threads of a loader call it at the same time, in any order and again in every epoch; a
 * loader without workers calls it only in the thread that takes the batches. Any status but LK_OK ends the loading with
 * that status and a message that names data set and sample, and quotes the library's message if one is set. */
typedef lk_status (*lk_read_sample_fn)(void *user, int64_t index, float *image);

/* Images and labels in the caller's memory, or images from a function of the caller. Exactly one of images, floats and
 * read is set. */
typedef struct lk_dataset_arrays {
    const uint8_t *images; /* [count, channels, height, width], row-major; networks get bytes / 255 */
    const float *floats;   /* the same shape; networks get the values as they are */
    lk_read_sample_fn read;
    void *read_user;       /* its first argument */
    const int32_t *labels; /* [count], each from 0 to classes - 1 */
    int64_t count, channels, height, width;
    int64_t classes;
    const char *const *class_names; /* [classes]; NULL: none */
} lk_dataset_arrays;

/* Makes a data set of arrays. `images`, `floats` and `read_user` are borrowed: they must stay, the arrays unchanged,
 * while the data set lives. The rest is copied. The caller gets one reference. lk_data_config.train_set hands the data
 * set to a trainer. Errors: LK_ERR_ARGUMENT (a NULL or empty array, none or several of images, floats and read, a label
 * out of range, more than LK_MAX_CLASSES classes), LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_from_arrays(const char *name, const lk_dataset_arrays *arrays, lk_dataset **dataset);

LK_API lk_dataset *lk_dataset_retain(lk_dataset *dataset);
LK_API void lk_dataset_release(lk_dataset *dataset);

/* ---- what a data set holds ---- */

LK_API int64_t lk_dataset_count(const lk_dataset *dataset); /* samples */
LK_API int64_t lk_dataset_channels(const lk_dataset *dataset);
LK_API int64_t lk_dataset_height(const lk_dataset *dataset);
LK_API int64_t lk_dataset_width(const lk_dataset *dataset);
LK_API int64_t lk_dataset_classes(const lk_dataset *dataset);

/* Images u8 [N,C,H,W], and labels i32 [N] from 0 to classes - 1. Owned by the data set. Images are NULL if they are
 * floats or come from a function: see lk_dataset_arrays. */
LK_API const uint8_t *lk_dataset_images(const lk_dataset *dataset);
LK_API const int32_t *lk_dataset_labels(const lk_dataset *dataset);

/* Sets image [C,H,W] to a sample before augmentation: bytes / 255, or the floats as they are. Errors: LK_ERR_ARGUMENT
 * (no such sample), those of lk_dataset_arrays.read. */
LK_API lk_status lk_dataset_read(const lk_dataset *dataset, int64_t index, float *image);

/* The name of a class, owned by the data set; NULL: it has none, or there is no such class. */
LK_API const char *lk_dataset_class_name(const lk_dataset *dataset, int64_t label);

/* The file of a sample, relative to the data set's folder: "train/cat/7.png". Owned by the data set. NULL: samples have
 * no files of their own, or there is no such sample. */
LK_API const char *lk_dataset_sample_name(const lk_dataset *dataset, int64_t index);

/* "fashion-mnist"; "idx" for a pair of files; the last part of a path. Owned by the data set. */
LK_API const char *lk_dataset_name(const lk_dataset *dataset);

/* The origin of the samples: the path of the images, for pictures the folder with the classes of the split; or
 * "generated". Owned by the data set. */
LK_API const char *lk_dataset_source(const lk_dataset *dataset);

/* Sets counts[classes] to the number of samples of each class. */
LK_API void lk_dataset_class_counts(const lk_dataset *dataset, int64_t *counts);

/* Sets equals[count] to the first sample of `in` with the same pixels as each sample of `dataset`; -1: there is none.
 * If `in` is `dataset` itself, the first sample of its kind gets its own number. Images of different shapes are never
 * equal; bytes equal floats as lk_dataset_read gives them. Errors: LK_ERR_MEMORY, those of lk_dataset_arrays.read. */
LK_API lk_status lk_dataset_find_equal(const lk_dataset *dataset, const lk_dataset *in, int64_t *equals);

/* Returns whether lk_dataset_open knows the name, or there is a file or folder of that path. */
LK_API bool lk_dataset_is_known(const char *name);

/* Returns whether lk_dataset_open reads that path as CSV. */
LK_API bool lk_dataset_is_csv(const char *name);

/* Names that lk_dataset_open knows, in alphabetical order; NULL past the last. Static. */
LK_API const char *lk_dataset_known_name(size_t i);

/* The same names as one text: "fashion-mnist, mnist, synthetic". Static. */
LK_API const char *lk_dataset_names(void);

/* ---- augmentation ---- */

/* Random changes of a training image. They happen in this order, after bytes / 255 and alike for all channels: shifts,
 * horizontal flip, vertical flip, rotation, pad-and-crop, brightness, contrast, RandAugment, centering and
 * standardization, cutout, random erasing, mixup. Zeroes: no change. Loaders and devices of every kind make all of
 * them, with the same bits.
 *
 * Settings that Keras' ImageDataGenerator has mean the same here. Every choice is drawn by (seed, purpose, epoch,
 * sample), with purposes "augment.shift", "augment.flip", "augment.crop", "augment.cutout" and so on. So an image does
 * not depend on the thread or batch that prepares it, and no setting changes what another one chooses. */
typedef struct lk_augment_opts {
    /* Pixel (y, x) becomes that at (y + dy, x + dx), so a positive dx moves the picture to the left. dy is uniform in
     * [-height_shift, height_shift] times the height, dx likewise with the width. Bilinear between pixels; outside, the
     * nearest pixel of the edge, as with Keras' fill_mode "nearest". Shares: 0 <= share < 1. */
    double width_shift, height_shift;
    bool horizontal_flip; /* with probability 1/2 */
    bool vertical_flip;   /* with probability 1/2 */
    /* Pad every side with this many pixels of 0, then cut a window of the image's size, each with equal probability.
     * Must be below the smaller side. */
    int64_t crop_padding;
    /* Set a square of this side to 0, as far as it lies inside; its center is any pixel with equal probability
     * (DeVries, Taylor: "Improved regularization of convolutional neural networks with cutout", 2017). At most the
     * smaller side. */
    int64_t cutout;
    /* Degrees: turn about the center by an angle uniform in [-rotation, rotation], bilinear, with 0 outside. At most
     * 180. */
    double rotation;
    /* Multiply all values by a factor uniform in [1 - brightness, 1 + brightness]; scale their distance from the mean
     * gray of the image by one in [1 - contrast, 1 + contrast]; both clip to 0 … 1, as torchvision's ColorJitter. At
     * most 1. */
    double brightness, contrast;
    /* Set a rectangle of a share uniform in [0.02, 0.4] of the image, with height / width uniform in [0.3, 1 / 0.3], to
     * 0, with this probability (Zhong et al.: "Random erasing data augmentation", 2020). At most 1. */
    double erase;
    /* Replace the image by l image + (1 - l) other, where `other` is another sample of the training set, chosen and
     * augmented by the same rules, and the label stays. l is drawn from Beta(mixup + 1, mixup) and rounded to a 256th:
     * in expectation this is the loss of mixup with parameter `mixup` and both labels (Zhang et al.: "mixup: beyond
     * empirical risk minimization", 2018; Huszar, 2017, on labels). At most 1. */
    double mixup;
    /* Two operations out of RandAugment's 14, each with this magnitude, 1 to 30 (Cubuk et al., 2020; torchvision has
     * the same ranges). */
    int64_t rand_augment;
    bool center;      /* subtract the training set's mean of the channel */
    bool standardize; /* divide by the training set's deviation of the channel plus 1e-6 */
} lk_augment_opts;

/* Mean and standard deviation (dividing by the number of values) of each channel over all pixels of a data set, as
 * lk_dataset_read gives them. Centering and standardization need those of the training set. */
typedef struct lk_channel_moments {
    double *mean, *deviation; /* [channels] */
    int64_t channels;
} lk_channel_moments;

/* Computed from exact counts, so the bits are the same everywhere; from floats with sums in double, sample after
 * sample, in two passes. lk_channel_moments_free frees the arrays. Errors: LK_ERR_ARGUMENT (an empty set),
 * LK_ERR_MEMORY, those of lk_dataset_arrays.read. */
LK_API lk_status lk_dataset_moments(const lk_dataset *dataset, lk_channel_moments *moments);
LK_API void lk_channel_moments_free(lk_channel_moments *moments);

/* Reads "shift=0.2,flip,vflip,rotate=10,crop=4,brightness=0.2,contrast=0.2,rand=9,cutout=8,erase=0.25,mixup=0.2" into
 * *opts, except for center and standardize. Shifts may also be given apart, as width-shift and height-shift; of several
 * equal words the last one wins. "none", "" and NULL mean no change. After an error *opts is as before. Errors:
 * LK_ERR_ARGUMENT (the message names the word and what would be right). */
LK_API lk_status lk_augment_parse(const char *text, lk_augment_opts *opts);

/* Sets image [C,H,W] f32 to sample `index` as a loader with these settings prepares it in `epoch` (0 … 2^32 - 1). train
 * false: centering and standardization only. opts NULL: none; moments may be NULL if both of those are off. Errors:
 * LK_ERR_ARGUMENT (index, epoch, a setting out of range or too large for the images, moments missing or of another
 * number of channels), LK_ERR_MEMORY, those of lk_dataset_arrays.read. */
LK_API lk_status lk_augment_sample(const lk_dataset *dataset, int64_t index, uint64_t seed, int64_t epoch, bool train,
                                   const lk_augment_opts *opts, const lk_channel_moments *moments, float *image);

/* Writes what lk_augment_sample with `train` does to the sample at random: "shift 1.5 -0.3, flip, rotate -7, mix 0.74
 * with 812"; "" if nothing. What does not fit into text[size] is cut off. opts NULL: none. Errors: as
 * lk_augment_sample, and LK_ERR_ARGUMENT (size 0). */
LK_API lk_status lk_augment_describe(const lk_dataset *dataset, int64_t index, uint64_t seed, int64_t epoch,
                                     const lk_augment_opts *opts, char *text, size_t size);

/* ---- batches ---- */

/* Images and labels in 64-byte aligned memory, which lives until the last reference is released. Reference counts are
 * thread-safe, and a batch may outlive its loader. */
typedef struct lk_batch {
    int64_t count; /* samples; the last batch of an epoch may be smaller */
    int64_t index; /* of the batch in the epoch, from 0 */
    int64_t epoch; /* as given to lk_loader_start */
    /* [count,C,H,W]: bytes / 255, correctly rounded, or the data set's floats, then changed by lk_loader_opts.augment;
     * NULL with no_images */
    const float *images;
    const int32_t *labels;  /* [count] */
    const int64_t *indices; /* [count]: numbers of the samples in the data set */
} lk_batch;

LK_API lk_batch *lk_batch_retain(lk_batch *batch);
LK_API void lk_batch_release(lk_batch *batch);

/* Prepares batches in order. One thread at a time uses a loader. Batches are the same, bit for bit, for any number of
 * workers. */
typedef struct lk_loader lk_loader;

typedef struct lk_loader_opts {
    int64_t batch_size; /* at least 1 */
    uint64_t seed;      /* of order and augmentation */
    bool shuffle;       /* see lk_sample_order */
    int workers;        /* threads that prepare batches ahead; 0: lk_loader_next prepares them in the calling thread */
    int depth;          /* most batches prepared ahead; 0: 4; raised to the number of workers */
    const lk_augment_opts *augment;    /* NULL: none; copied */
    const lk_channel_moments *moments; /* for centering and standardization; NULL without both; copied */
    bool evaluation;                   /* of augment, only centering and standardization */
    bool no_images;                    /* labels and indices only: for devices that hold the data set */
    /* For several processes: batches are cut into `shards` shards, and only images of shards [first_shard, end_shard)
     * are prepared; the others are not set. shards 0: all images. */
    int64_t shards, first_shard, end_shard;
} lk_loader_opts;

/* Keeps a reference to the data set. Errors: LK_ERR_ARGUMENT (as for lk_augment_sample too), LK_ERR_MEMORY (also if a
 * thread cannot be started). */
LK_API lk_status lk_loader_new(lk_dataset *dataset, const lk_loader_opts *opts, lk_loader **loader);

/* Stops the workers and waits for them, at most for one batch. Batches that are still held stay valid. */
LK_API void lk_loader_release(lk_loader *loader);

/* Begins an epoch (0 … 2^32 - 1) with its first batch, or with batch `first_batch` (0 … batches in an epoch) to resume
 * an interrupted one. In the middle of an epoch, prepared batches are dropped. If the loader is already at that batch,
 * nothing happens; so an epoch can be started early, to have its first batches ready. Errors: LK_ERR_ARGUMENT. */
LK_API lk_status lk_loader_start(lk_loader *loader, int64_t epoch);
LK_API lk_status lk_loader_start_at(lk_loader *loader, int64_t epoch, int64_t first_batch);

/* Gives the next batch, with one reference for the caller; at the end of the epoch LK_OK and NULL. Waits for the
 * workers. Nothing is allocated while the caller holds at most four batches. If it holds more, the loader allocates
 * more, and keeps them for reuse: it never waits for a release. Errors: LK_ERR_STATE (no epoch was started),
 * LK_ERR_MEMORY, those of lk_dataset_arrays.read. After an error an epoch must be started again. */
LK_API lk_status lk_loader_next(lk_loader *loader, lk_batch **batch);

/* Batches in an epoch: samples / batch size, rounded up. */
LK_API int64_t lk_loader_batches(const lk_loader *loader);

/* ---- advanced: order ---- */

/* Sets order[count] to the order in which an epoch uses the samples: a permutation of 0 … count - 1 that depends on
 * (seed, epoch) alone, or 0, 1, 2, … without `shuffle`. Fisher-Yates shuffle with unbiased bounded integers (Lemire:
 * "Fast random integer generation in an interval", TOMACS 2019) from Philox, purpose "shuffle". Errors: LK_ERR_ARGUMENT
 * (count or epoch outside 0 … 2^32 - 1). */
LK_API lk_status lk_sample_order(int64_t count, uint64_t seed, int64_t epoch, bool shuffle, int64_t *order);

/* ---- advanced: ledger ---- */

/* Counts how often each sample was used. One thread at a time. */
typedef struct lk_ledger lk_ledger;

typedef struct lk_ledger_report {
    int64_t used_once; /* samples */
    int64_t unused;
    int64_t repeated;  /* used more than once */
    int64_t first_bad; /* the first sample that was not used exactly once; -1: none */
} lk_ledger_report;

/* A ledger of `count` samples. Errors: LK_ERR_ARGUMENT (count below 0), LK_ERR_MEMORY. */
LK_API lk_status lk_ledger_new(int64_t count, lk_ledger **ledger);
LK_API void lk_ledger_release(lk_ledger *ledger);

/* Sets all counts to 0, for the next epoch. */
LK_API void lk_ledger_reset(lk_ledger *ledger);

/* Counts one use of each of indices[n]. Errors: LK_ERR_ARGUMENT (an index out of range; then none is counted). */
LK_API lk_status lk_ledger_add(lk_ledger *ledger, const int64_t *indices, int64_t n);

/* Sets *report to the counts so far. */
LK_API void lk_ledger_check(const lk_ledger *ledger, lk_ledger_report *report);

/* The number of uses of each of *count samples, at most 255. Valid as long as the ledger. */
LK_API const uint8_t *lk_ledger_uses(const lk_ledger *ledger, int64_t *count);

/* Adds uses[i] uses of each sample i, as another process has counted them. */
LK_API void lk_ledger_add_uses(lk_ledger *ledger, const uint8_t *uses);

#ifdef __cplusplus
}
#endif

#endif
