/* Data sets, the order of their samples, batches, and the ledger that proves each sample was used once an epoch. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data sets ---- */

enum { LK_MAX_CLASSES = 65536 }; /* of a data set */

/* Images and labels in memory, immutable once open and free to be read by any thread; reference-counted. An
 * uncompressed file is mapped, not copied: it must not be truncated while the data set lives. */
typedef struct lk_dataset lk_dataset;

typedef enum lk_split { LK_SPLIT_TRAIN, LK_SPLIT_TEST } lk_split;

/* What opening a data set is at. */
typedef enum lk_data_work {
    LK_DATA_DOWNLOADING, /* bytes of the file `name` */
    LK_DATA_WAITING,     /* for another process that downloads the file, or decodes the pictures, `name` */
    LK_DATA_EXAMINING,   /* headers of pictures of the folder `name` */
    LK_DATA_DECODING,    /* its pictures */
    LK_DATA_STORING,     /* bytes of the decoded pictures, on their way into the cache */
    LK_DATA_CHECKING     /* the same, found there */
} lk_data_work;

typedef struct lk_data_progress {
    lk_data_work work;
    const char *name;
    int64_t done, total; /* total 0: unknown */
} lk_data_progress;

/* How opening goes on, if it takes long. False ends it with LK_ERR_INTERRUPTED, soon and leaving nothing half-written
 * but what has arrived of a download, from where the next try goes on. Called from the opening thread, before anything
 * is written. */
typedef bool (*lk_data_progress_fn)(void *user, const lk_data_progress *progress);

typedef struct lk_dataset_opts {
    const char *dir; /* where to look first; NULL: nowhere before $LOCKSTEP_DATA */
    int64_t limit;   /* the first so many samples; 0 or negative: all */
    bool offline;    /* never download */
    /* Files of a data set known by name are compared with its checksums, whole, wherever they are; what the cache has
     * of another content is downloaded anew. */
    bool verify;
    /* Where downloads are tried first, as MIRROR/NAME/FILE.gz: what serves a folder that `dir` could be. What comes
     * from there is checked like the rest. NULL: only where the data set's authors say. */
    const char *mirror;
    lk_data_progress_fn progress; /* NULL: nobody wants to know */
    void *progress_user;

    /* Of any data set; NULL and 0 leave it as it is. */
    const char *resize; /* "HxW": see lk_image_read */
    int64_t channels;   /* 1: grey; 3: colour */
    double val_split;   /* above 0: the test set is this share of each class of the training set, and missing there */

    /* Of data sets made of the user's files. */
    const char *shape;        /* of a row of CSV: "CxHxW" or "HxW"; NULL: as its header says */
    const char *label_column; /* of CSV: its name in the header; NULL: "label" or "class", else the first */
    bool skip_bad;            /* leave out pictures, and rows of CSV, that cannot be used, with a warning for each */
    int threads;              /* that decode pictures; 0 or 1: the caller's alone. Never changes a byte */
    const char *cache_dir;    /* where decoded pictures are kept; NULL: packed/ in the cache; "none": nowhere */
} lk_dataset_opts;

/* Opens a data set by name, or by the path of a folder or file of the user's own; `opts` NULL means defaults.
 *
 * fashion-mnist and mnist are looked for as DIR/NAME/FILE, then DIR/NAME/FILE.gz, with the four usual file names, in
 * opts->dir, in $LOCKSTEP_DATA and in the cache ($XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep); the first place
 * that has a file of the split is taken. What is nowhere is downloaded into the cache, checked and kept there
 * uncompressed. synthetic is generated (28x28 grey images of ten shapes, the same bytes on every machine).
 *
 * Any other name is a path. What is there decides what it is (docs/data.md has the details):
 *   train/CLASS/… and val/ or test/       PNG, JPEG, PGM and PPM pictures; CLASS/… alone with opts->val_split
 *   data_batch_1.bin … test_batch.bin     CIFAR-10, binary; train.bin and test.bin: CIFAR-100
 *   train-images*, train-labels*, t10k-*  IDX files of any shape; test-* is fine too
 *   train.csv and val.csv or test.csv     rows of a label and pixels; one file FILE.csv with opts->val_split
 * Pictures are decoded once, all of them before the call returns, into a file of the cache that is mapped: the next
 * call only maps it, as long as names, sizes and times of the files and the settings are the same. Their order follows
 * from their names alone.
 *
 * The caller gets one reference.
 * Errors: LK_ERR_ARGUMENT (unknown name, the message lists the known ones; opts; no test set), LK_ERR_NOT_FOUND (in
 * none of the places, and the download failed), LK_ERR_IO (found and unreadable), LK_ERR_FORMAT (a file was found and
 * is damaged: never skipped for the next place; the message names files, and how many there are of them),
 * LK_ERR_INTERRUPTED, LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_open(const char *name, lk_split split, const lk_dataset_opts *opts, lk_dataset **dataset);

/* Opens a pair of IDX files of unsigned bytes, each plain or gzip-compressed: images [N,H,W] or [N,C,H,W], labels [N]
 * with values below `classes` (1 … 256). `limit` as above. Both files are checked as a whole whatever the limit.
 * Errors: LK_ERR_ARGUMENT, LK_ERR_IO, LK_ERR_FORMAT (file, place, what was found and what was expected),
 * LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_open_idx(const char *images_path, const char *labels_path, int64_t classes, int64_t limit,
                                     lk_dataset **dataset);

LK_API lk_dataset *lk_dataset_retain(lk_dataset *dataset);
LK_API void lk_dataset_release(lk_dataset *dataset);

LK_API int64_t lk_dataset_count(const lk_dataset *dataset);
LK_API int64_t lk_dataset_channels(const lk_dataset *dataset);
LK_API int64_t lk_dataset_height(const lk_dataset *dataset);
LK_API int64_t lk_dataset_width(const lk_dataset *dataset);
LK_API int64_t lk_dataset_classes(const lk_dataset *dataset);

/* u8 [N,C,H,W] and i32 [N], each from 0 to classes - 1; owned by the data set. */
LK_API const uint8_t *lk_dataset_images(const lk_dataset *dataset);
LK_API const int32_t *lk_dataset_labels(const lk_dataset *dataset);

/* NULL where the class is out of range or the data set names none. */
LK_API const char *lk_dataset_class_name(const lk_dataset *dataset, int64_t label);

/* The file of a sample, below the data set's folder: "train/cat/7.png"; NULL where samples have no files of their own
 * or there is none of that index. Owned by the data set. */
LK_API const char *lk_dataset_sample_name(const lk_dataset *dataset, int64_t index);

/* "fashion-mnist"; "idx" for a pair of files; for a path its last part. */
LK_API const char *lk_dataset_name(const lk_dataset *dataset);

/* Where the samples came from: the path of the images (of pictures the folder with the split's classes), or
 * "generated". */
LK_API const char *lk_dataset_source(const lk_dataset *dataset);

/* Whether lk_dataset_open knows the name, or there is a file or folder of that path. */
LK_API bool lk_dataset_is_known(const char *name);

/* Names that lk_dataset_open knows, in alphabetical order; NULL past the last. */
LK_API const char *lk_dataset_known_name(size_t i);

/* The same in one text: "fashion-mnist, mnist, synthetic". Static. */
LK_API const char *lk_dataset_names(void);

/* How many samples each class has: counts[classes]. */
LK_API void lk_dataset_class_counts(const lk_dataset *dataset, int64_t *counts);

/* equals[count]: of each sample of `dataset` the first sample of `in` with the same pixels, -1: there is none. `in` may
 * be `dataset`: what is the first of its kind has its own number then. Images of other shapes are never equal. Errors:
 * LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_find_equal(const lk_dataset *dataset, const lk_dataset *in, int64_t *equals);

/* ---- order ---- */

/* order[count] = the data-set indices in the order in which an epoch uses them: a permutation of 0 … count - 1 that is
 * a function of (seed, epoch) alone, or the identity without `shuffle`. Fisher-Yates with unbiased bounded integers
 * (Lemire: "Fast random integer generation in an interval", TOMACS 2019) from Philox, purpose "shuffle".
 * Errors: LK_ERR_ARGUMENT (count outside 0 … 2^32 - 1, epoch outside 0 … 2^32 - 1). */
LK_API lk_status lk_sample_order(int64_t count, uint64_t seed, int64_t epoch, bool shuffle, int64_t *order);

/* ---- augmentation ---- */

/* What happens to a sample's image, in this order: bytes / 255, width and height shift, horizontal flip, pad-and-crop,
 * centring and standardisation, cutout. All channels alike. Zeroes: nothing.
 *
 * As Keras' ImageDataGenerator, where it has the setting. Every choice is drawn by (seed, purpose, epoch, sample), the
 * purposes being "augment.shift", "augment.flip", "augment.crop" and "augment.cutout": the same picture whoever
 * prepares it, in whichever batch, and one setting does not change what another chooses. */
typedef struct lk_augment_opts {
    /* Pixel (y, x) is what is at (y + dy, x + dx), so dx > 0 moves the picture to the left; dy is uniform in
     * [-height_shift, height_shift] times the height, dx alike. Bilinear between pixels, and what is outside is the
     * nearest pixel of the edge: Keras' fill_mode "nearest". 0 <= share < 1. */
    double width_shift, height_shift;
    bool horizontal_flip; /* every second time */
    /* So many pixels of 0 on every side, then a window of the image's size at an even chance. Below the smaller side.
     */
    int64_t crop_padding;
    /* A square of this side, centred on any pixel at an even chance, becomes 0 as far as it is inside (DeVries, Taylor:
     * "Improved regularization of convolutional neural networks with cutout", 2017). At most the smaller side. */
    int64_t cutout;
    bool center;      /* minus the training set's mean of the channel */
    bool standardize; /* divided by its deviation plus 1e-6 */
} lk_augment_opts;

/* Mean and standard deviation (divided by the number of values) of each channel, over all pixels of a data set, of
 * bytes / 255: what centring and standardisation need of the training set. */
typedef struct lk_channel_moments {
    double *mean, *deviation; /* [channels] */
    int64_t channels;
} lk_channel_moments;

/* From exact counts: the same bits whoever computes them. Freed by lk_channel_moments_free.
 * Errors: LK_ERR_ARGUMENT (an empty set), LK_ERR_MEMORY. */
LK_API lk_status lk_dataset_moments(const lk_dataset *dataset, lk_channel_moments *moments);
LK_API void lk_channel_moments_free(lk_channel_moments *moments);

/* image [C,H,W] f32 of sample `index`, prepared as a loader with these settings would in `epoch` (0 … 2^32 - 1).
 * `train` false leaves out all but centring and standardisation. `opts` may be NULL, and `moments` where those are off.
 * Errors: LK_ERR_ARGUMENT (index, epoch, a setting out of range or too large for the images, moments missing or of
 * another number of channels), LK_ERR_MEMORY. */
LK_API lk_status lk_augment_sample(const lk_dataset *dataset, int64_t index, uint64_t seed, int64_t epoch, bool train,
                                   const lk_augment_opts *opts, const lk_channel_moments *moments, float *image);

/* Reads "shift=0.2,flip,crop=4,cutout=8" (width-shift and height-shift alone too; of several the last wins) into all
 * but center and standardize. "none", "" and NULL are nothing. After an error *opts is as it was. Errors:
 * LK_ERR_ARGUMENT with the word and what would be right. */
LK_API lk_status lk_augment_parse(const char *text, lk_augment_opts *opts);

/* ---- batches ---- */

/* Owned memory, 64-byte aligned, valid until the last reference goes. Reference counts are thread-safe: any thread may
 * drop the last one. A batch may outlive its loader. */
typedef struct lk_batch {
    int64_t count; /* samples; the last batch of an epoch may be smaller */
    int64_t index; /* of the batch within the epoch */
    int64_t epoch; /* the epoch given to lk_loader_start */
    /* [count,C,H,W]: byte / 255, correctly rounded, then as lk_loader_opts.augment says; NULL with no_images */
    const float *images;
    const int32_t *labels;  /* [count] */
    const int64_t *indices; /* [count]: which samples of the data set these are */
} lk_batch;

LK_API lk_batch *lk_batch_retain(lk_batch *batch);
LK_API void lk_batch_release(lk_batch *batch);

typedef struct lk_loader lk_loader;

typedef struct lk_loader_opts {
    int64_t batch_size; /* at least 1 */
    uint64_t seed;      /* of the order and of augmentation */
    bool shuffle;
    int workers; /* threads that prepare batches ahead; 0: the caller's thread prepares them in lk_loader_next */
    int depth;   /* batches prepared ahead at most; 0: 4; raised to the number of workers */
    /* NULL: byte / 255 and nothing else. moments: where centred or standardised, else NULL. Both are copied. */
    const lk_augment_opts *augment;
    const lk_channel_moments *moments;
    bool evaluation; /* centring and standardisation only */
    bool no_images;  /* labels and indices alone: for devices that hold the data set */
    /* Where several processes train: a batch is cut into so many shards, and images are prepared of shards
     * [first_shard, end_shard) alone; those of the others are not set. 0: of all samples. */
    int64_t shards, first_shard, end_shard;
} lk_loader_opts;

/* Keeps a reference to the data set. A loader belongs to one thread at a time.
 * The batches are the same, bit for bit, for any number of workers.
 * Errors: LK_ERR_ARGUMENT (as lk_augment_sample too), LK_ERR_MEMORY (also where a thread cannot be started). */
LK_API lk_status lk_loader_new(lk_dataset *dataset, const lk_loader_opts *opts, lk_loader **loader);

/* Stops the workers and waits for them (a batch at most). Batches that are still held stay valid. */
LK_API void lk_loader_release(lk_loader *loader);

/* Begins an epoch (0 … 2^32 - 1) with its first batch, or with batch `first_batch` (0 … batches in an epoch) to go on
 * where an interrupted run stopped. May be called in the middle of an epoch: what was prepared is dropped. Where the
 * loader stands there already it does nothing, so that an epoch can be started, and its first batches be prepared, long
 * before they are wanted. Errors: LK_ERR_ARGUMENT. */
LK_API lk_status lk_loader_start(lk_loader *loader, int64_t epoch);
LK_API lk_status lk_loader_start_at(lk_loader *loader, int64_t epoch, int64_t first_batch);

/* The next batch, in order, with one reference for the caller; LK_OK and *batch NULL at the end of the epoch. Waits for
 * the workers. Nothing is allocated while the caller holds at most four batches; holding more makes the loader
 * grow by the batches it lacks, and they are kept for reuse: it never waits for a release.
 * Errors: LK_ERR_STATE (no epoch was started), LK_ERR_MEMORY. After an error only a new start goes on. */
LK_API lk_status lk_loader_next(lk_loader *loader, lk_batch **batch);

/* Batches in a whole epoch: the data set's samples / batch size, rounded up. */
LK_API int64_t lk_loader_batches(const lk_loader *loader);

/* ---- ledger ---- */

/* Counts how often each sample was used. One thread at a time. */
typedef struct lk_ledger lk_ledger;

typedef struct lk_ledger_report {
    int64_t used_once;
    int64_t unused;
    int64_t repeated;  /* samples used more than once */
    int64_t first_bad; /* the first sample that was not used once; -1: there is none, the epoch was exact */
} lk_ledger_report;

LK_API lk_status lk_ledger_new(int64_t count, lk_ledger **ledger);
LK_API void lk_ledger_release(lk_ledger *ledger);

/* Forgets everything: the next epoch begins. */
LK_API void lk_ledger_reset(lk_ledger *ledger);

/* Notes one use of each of indices[n]. Errors: LK_ERR_ARGUMENT (an index outside the ledger; none is noted then). */
LK_API lk_status lk_ledger_add(lk_ledger *ledger, const int64_t *indices, int64_t n);

/* How often each of *count samples was used: 255 where it is more. Valid as long as the ledger. */
LK_API const uint8_t *lk_ledger_uses(const lk_ledger *ledger, int64_t *count);

/* Notes uses[i] uses of each sample i: what another process has noted. */
LK_API void lk_ledger_add_uses(lk_ledger *ledger, const uint8_t *uses);

LK_API void lk_ledger_check(const lk_ledger *ledger, lk_ledger_report *report);

#ifdef __cplusplus
}
#endif

#endif
