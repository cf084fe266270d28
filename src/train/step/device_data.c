/* The images' bytes and the labels are uploaded once. From a shard's indices each device then prepares the images and
 * labels, with the same bits as a loader. */
#include "train/step/device_data.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "data/loading/augment.h"
#include "ops/ops.h"
#include "ops/prepare_images.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

/* Data take at most 1 / SHARE of a device's free memory, so that enough is left for training. */
enum { SHARE = 4 };

typedef struct device_copy {
    lk_tensor *images;  /* u8 [N, C, H, W] */
    lk_tensor *labels;  /* i32 [N] */
    lk_tensor *moments; /* f32 [2, C]; NULL: images are not normalized */
    lk_tensor *epoch;   /* i64 [] */
} device_copy;

struct lk_device_data {
    lk_prepare_images_attrs attrs;
    int64_t epoch; /* -1: none yet */
    int devices;
    device_copy on[LK_MAX_DEVICES];
};

/* --- uploading ---------------------------------------------------------------------------------------------------- */

static void device_data_tensor_release(void *dataset)
{
    lk_dataset_release(dataset);
}

/* Makes a tensor over the data set's memory, without a copy: the device reads it when its queue gets there. */
static lk_tensor *device_data_tensor(lk_device *device, lk_dtype dtype, lk_shape shape, const void *values,
                                     lk_dataset *dataset)
{
    lk_tensor *tensor =
        lk_tensor_wrap(device, dtype, shape, (void *)(uintptr_t)values, device_data_tensor_release, dataset);
    if (tensor)
        lk_dataset_retain(dataset);
    return tensor;
}

static lk_status device_data_upload(lk_device *device, lk_dataset *dataset, const lk_augmentation *a, device_copy *on)
{
    int64_t n = lk_dataset_count(dataset);
    lk_shape shape = LK_SHAPE(n, a->channels, a->size.height, a->size.width);
    lk_scope_begin();
    on->images = lk_tensor_retain(device_data_tensor(device, LK_U8, shape, lk_dataset_images(dataset), dataset));
    on->labels = lk_tensor_retain(device_data_tensor(device, LK_I32, LK_SHAPE(n), lk_dataset_labels(dataset), dataset));
    if (a->mean)
        on->moments = lk_tensor_retain(lk_tensor_from(device, LK_F32, LK_SHAPE(2, a->channels), a->mean));
    lk_scope_end();
    return on->images && on->labels && (on->moments || !a->mean) ? LK_OK : lk_error_status();
}

static lk_status device_data_new(const lk_trainer *trainer, lk_dataset *dataset, bool training, lk_device_data **data)
{
    const lk_plan *plan = &trainer->plan;
    lk_augmentation augmentation;
    *data = lk__calloc(1, sizeof **data);
    if (!*data)
        return LK_ERR_MEMORY;
    lk_status status =
        lk__augmentation_init(dataset, plan->seed, training, &plan->augment,
                              trainer->data.moments.channels ? &trainer->data.moments : NULL, &augmentation);
    (*data)->attrs = (lk_prepare_images_attrs){.opts = augmentation.opts, .seed = plan->seed};
    (*data)->epoch = -1;
    for (int d = 0; d < trainer->n_devices && status == LK_OK; d++) {
        status = device_data_upload(trainer->devices[d], dataset, &augmentation, &(*data)->on[d]);
        (*data)->devices += status == LK_OK;
    }
    lk__augmentation_free(&augmentation);
    return status;
}

void lk__device_data_release(lk_device_data *data)
{
    if (!data)
        return;
    for (int d = 0; d < LK_MAX_DEVICES; d++)
        lk__release_tensors(
            (lk_tensor *[]){data->on[d].images, data->on[d].labels, data->on[d].moments, data->on[d].epoch}, 4);
    lk__free(data);
}

/* --- choosing host or device -------------------------------------------------------------------------------------- */

static int64_t device_data_bytes(const lk_dataset *dataset)
{
    if (!dataset)
        return 0;
    int64_t pixels = lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset);
    return lk_dataset_count(dataset) * (pixels + (int64_t)sizeof(int32_t));
}

/* The number of copies on the device's GPU: its logical devices share its memory, and each has a copy. */
static int64_t device_data_count_copies(const lk_trainer *trainer, const lk_device *device)
{
    int64_t copies = 0;
    for (int d = 0; d < trainer->n_devices; d++)
        copies += trainer->devices[d]->index == device->index;
    return copies;
}

/* *lacking: the first device whose memory does not suffice, with *left bytes free; NULL: there is none. */
static lk_status device_data_find_lacking(const lk_trainer *trainer, int64_t bytes, const lk_device **lacking,
                                          int64_t *left)
{
    *lacking = NULL;
    for (int d = 0; d < trainer->n_devices && !*lacking; d++) {
        lk_device *device = trainer->devices[d];
        if (!device->backend->offload)
            continue; /* the device uses the process's memory, which has the set already */
        LK_TRY(device->backend->offload->memory_left(device, left));
        if (bytes * device_data_count_copies(trainer, device) > *left / SHARE)
            *lacking = device;
    }
    return LK_OK;
}

/* Sets plan.data_on_devices and plan.data_too_large. All devices are of one kind. */
static lk_status device_data_decide(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    int asked = trainer->config.data.memory;
    const lk_dataset *val = trainer->data.val_set;
    bool is_bytes = lk_dataset_images(trainer->data.train_set) && (!val || lk_dataset_images(val));
    const lk_device *lacking;
    int64_t bytes = device_data_bytes(trainer->data.train_set) + device_data_bytes(trainer->data.val_set), left = 0;
    if (asked == LK_DATA_ON_HOST || (asked == LK_DATA_ON_AUTO && !trainer->devices[0]->backend->offload))
        return LK_OK;
    if (!is_bytes && asked == LK_DATA_ON_DEVICE)
        LK_FAIL(LK_ERR_ARGUMENT, "--data-on device: must be with images of bytes, and those of %s are floats",
                trainer->plan.data);
    if (!is_bytes)
        return LK_OK;
    LK_TRY(device_data_find_lacking(trainer, bytes, &lacking, &left));
    if (lacking && asked == LK_DATA_ON_DEVICE)
        LK_FAIL(LK_ERR_MEMORY,
                "--data-on device: the data set has %.1f MB, and %s has %.1f MB left, of which data may take a quarter "
                "for its %lld logical devices; --data-on host needs none",
                1e-6 * (double)bytes, lk_device_name(lacking), 1e-6 * (double)left,
                (long long)device_data_count_copies(trainer, lacking));
    plan->data_too_large = lacking != NULL;
    plan->data_on_devices = !lacking;
    return LK_OK;
}

lk_status lk__device_data_open(lk_trainer *trainer)
{
    LK_TRY(device_data_decide(trainer));
    if (!trainer->plan.data_on_devices)
        return LK_OK;
    LK_TRY(device_data_new(trainer, trainer->data.train_set, true, &trainer->data.train_on_devices));
    return trainer->data.val_set ? device_data_new(trainer, trainer->data.val_set, false, &trainer->data.val_on_devices)
                                 : LK_OK;
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

/* Makes new tensors, because steps of the previous epoch may still be in flight. */
lk_status lk__device_data_start(lk_device_data *data, int64_t epoch)
{
    if (!data || data->epoch == epoch)
        return LK_OK;
    data->epoch = -1;
    for (int d = 0; d < data->devices; d++) {
        device_copy *on = &data->on[d];
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

lk_tensor *lk__device_data_epoch(const lk_device_data *data, int replica)
{
    return data ? data->on[replica].epoch : NULL;
}

lk_status lk__device_data_prepare(const lk_device_data *data, lk_tensor *epoch, lk_shard *shard)
{
    if (!data || shard->images)
        return LK_OK;
    const device_copy *on = &data->on[shard->replica];
    shard->images = lk__prepare_images(LK_HERE, on->images, shard->indices, epoch, on->moments, &data->attrs);
    shard->labels = lk_gather(on->labels, shard->indices);
    return shard->images && shard->labels ? LK_OK : lk_error_status();
}
