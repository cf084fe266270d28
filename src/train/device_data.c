/* Data sets on devices: bytes and labels are uploaded once, and a shard's images and labels are made there of its
 * indices, with the bits that a loader's would have. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "data/augment.h"
#include "lockstep/ops.h"
#include "ops/ops.h"

/* Of a device's free memory, so that there is room for training too. */
enum { SHARE = 4 };

typedef struct copy {
    lk_tensor *images;  /* u8 [N, C, H, W] */
    lk_tensor *labels;  /* i32 [N] */
    lk_tensor *moments; /* f32 [2, C]; NULL: images are not normalised */
    lk_tensor *epoch;   /* i64 [] */
} copy;

struct lk__device_data {
    lk_prepare_images_attrs attrs;
    int64_t epoch; /* -1: none yet */
    int devices;
    copy on[LK_MAX_DEVICES];
};

/* --- uploading ---------------------------------------------------------------------------------------------------- */

static void release_dataset(void *dataset)
{
    lk_dataset_release(dataset);
}

/* Without a copy in between; the device reads it when it gets there. */
static lk_tensor *wrap(lk_device *device, lk_dtype dtype, lk_shape shape, const void *values, lk_dataset *dataset)
{
    lk_tensor *tensor = lk_tensor_wrap(device, dtype, shape, (void *)(uintptr_t)values, release_dataset, dataset);
    if (tensor)
        lk_dataset_retain(dataset);
    return tensor;
}

static lk_status upload_to(lk_device *device, lk_dataset *dataset, const lk__augmentation *a, copy *on)
{
    int64_t n = lk_dataset_count(dataset);
    lk_shape shape = LK_SHAPE(n, a->channels, a->size.height, a->size.width);
    lk_scope_begin();
    on->images = lk_tensor_retain(wrap(device, LK_U8, shape, lk_dataset_images(dataset), dataset));
    on->labels = lk_tensor_retain(wrap(device, LK_I32, LK_SHAPE(n), lk_dataset_labels(dataset), dataset));
    if (a->mean)
        on->moments = lk_tensor_retain(lk_tensor_from(device, LK_F32, LK_SHAPE(2, a->channels), a->mean));
    lk_scope_end();
    return on->images && on->labels && (on->moments || !a->mean) ? LK_OK : lk_error_status();
}

static lk_status upload(const lk_trainer *trainer, lk_dataset *dataset, const lk__augmentation *augmentation,
                        lk__device_data *data)
{
    data->attrs = (lk_prepare_images_attrs){.opts = augmentation->opts, .seed = augmentation->seed};
    data->epoch = -1;
    for (; data->devices < trainer->n_devices; data->devices++)
        LK_TRY(upload_to(trainer->devices[data->devices], dataset, augmentation, &data->on[data->devices]));
    return LK_OK;
}

static lk_status new_data(const lk_trainer *trainer, lk_dataset *dataset, bool training, lk__device_data **data)
{
    const lk_plan *plan = &trainer->plan;
    lk__augmentation augmentation;
    *data = lk__calloc(1, sizeof **data);
    if (!*data)
        return LK_ERR_MEMORY;
    lk_status status = lk__augmentation_init(dataset, plan->seed, training, &plan->augment,
                                             trainer->moments.channels ? &trainer->moments : NULL, &augmentation);
    if (status == LK_OK)
        status = upload(trainer, dataset, &augmentation, *data);
    lk__augmentation_free(&augmentation);
    return status;
}

void lk__device_data_release(lk__device_data *data)
{
    if (!data)
        return;
    for (int d = 0; d < LK_MAX_DEVICES; d++)
        lk__release_tensors(
            (lk_tensor *[]){data->on[d].images, data->on[d].labels, data->on[d].moments, data->on[d].epoch}, 4);
    lk__free(data);
}

/* --- whether they fit --------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const lk_dataset *dataset)
{
    if (!dataset)
        return 0;
    int64_t pixels = lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset);
    return lk_dataset_count(dataset) * (pixels + (int64_t)sizeof(int32_t));
}

/* A GPU's logical devices share its memory, and each has a copy. */
static int64_t copies_beside(const lk_trainer *trainer, const lk_device *device)
{
    int64_t copies = 0;
    for (int d = 0; d < trainer->n_devices; d++)
        copies += trainer->devices[d]->index == device->index;
    return copies;
}

/* *lacking: the first device without room; NULL: there is none. */
static lk_status find_lacking(const lk_trainer *trainer, int64_t bytes, const lk_device **lacking, int64_t *left)
{
    *lacking = NULL;
    for (int d = 0; d < trainer->n_devices && !*lacking; d++) {
        lk_device *device = trainer->devices[d];
        if (!device->backend->offload)
            continue; /* the process's own memory, where the set is already */
        LK_TRY(device->backend->offload->memory_left(device, left));
        if (bytes * copies_beside(trainer, device) > *left / SHARE)
            *lacking = device;
    }
    return LK_OK;
}

/* Sets plan.data_on_devices. All devices are of one kind. */
static lk_status decide(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    int asked = trainer->config.data_on;
    const lk_device *lacking;
    int64_t bytes = bytes_of(trainer->train_set) + bytes_of(trainer->val_set), left = 0;
    if (asked == LK_DATA_ON_HOST || (asked == LK_DATA_ON_AUTO && !trainer->devices[0]->backend->offload))
        return LK_OK;
    LK_TRY(find_lacking(trainer, bytes, &lacking, &left));
    if (lacking && asked == LK_DATA_ON_DEVICE)
        LK_FAIL(LK_ERR_MEMORY,
                "--data-on device: the data set has %.1f MB, and %s has %.1f MB left, of which data may take a quarter "
                "for its %lld logical devices; --data-on host needs none",
                1e-6 * (double)bytes, lk_device_name(lacking), 1e-6 * (double)left,
                (long long)copies_beside(trainer, lacking));
    plan->data_too_large = lacking != NULL;
    plan->data_on_devices = !lacking;
    return LK_OK;
}

lk_status lk__place_data(lk_trainer *trainer)
{
    LK_TRY(decide(trainer));
    if (!trainer->plan.data_on_devices)
        return LK_OK;
    LK_TRY(new_data(trainer, trainer->train_set, true, &trainer->train_data));
    return trainer->val_set ? new_data(trainer, trainer->val_set, false, &trainer->val_data) : LK_OK;
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

/* New tensors: steps of the epoch before may still be under way. */
lk_status lk__device_data_start(lk__device_data *data, int64_t epoch)
{
    if (!data || data->epoch == epoch)
        return LK_OK;
    data->epoch = -1;
    for (int d = 0; d < data->devices; d++) {
        copy *on = &data->on[d];
        lk_tensor_release(on->epoch);
        lk_scope_begin();
        on->epoch = lk_tensor_retain(lk_full(lk_tensor_device(on->images), LK_I64, LK_SCALAR, (double)epoch));
        lk_scope_end();
        if (!on->epoch)
            return lk_error_status();
    }
    data->epoch = epoch;
    return LK_OK;
}

lk_tensor *lk__device_data_epoch(const lk__device_data *data, int replica)
{
    return data ? data->on[replica].epoch : NULL;
}

lk_status lk__device_data_prepare(const lk__device_data *data, lk_tensor *epoch, lk_shard *shard)
{
    if (!data || shard->images)
        return LK_OK;
    const copy *on = &data->on[shard->replica];
    shard->images = lk__prepare_images(LK_HERE, on->images, shard->indices, epoch, on->moments, &data->attrs);
    shard->labels = lk_gather(on->labels, shard->indices);
    return shard->images && shard->labels ? LK_OK : lk_error_status();
}
