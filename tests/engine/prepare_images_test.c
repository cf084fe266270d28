/* The operator prepare_images gives the loader's bits for every augmentation, for several epochs, for gray and color
 * images, in training and evaluation. $LOCKSTEP_TEST_DEVICES names another device than cpu. */
#include "data/loading/augment.h"
#include "core/backend.h"
#include "data/data_testing.h"
#include "lockstep/ops.h"
#include "ops/ops.h"
#include "ops/prepare_images.h"

enum { SAMPLES = 23, SEED = 5 };

static lk_device *device;

/* Images and the other operands on the device; owns a reference to each. */
typedef struct uploaded {
    lk_tensor *images, *indices, *epoch, *moments;
} uploaded;

static lk_tensor *upload(lk_dtype dtype, lk_shape shape, const void *data)
{
    lk_tensor *tensor = lk_tensor_from(device, dtype, shape, data);
    if (!tensor)
        fail_msg("%s", lk_error_message());
    return tensor;
}

static uploaded upload_batch(const lk_dataset *dataset, const lk_augmentation *a, const lk_batch *batch)
{
    lk_shape shape = LK_SHAPE(lk_dataset_count(dataset), a->channels, a->size.height, a->size.width);
    return (uploaded){
        .images = upload(LK_U8, shape, lk_dataset_images(dataset)),
        .indices = upload(LK_I64, LK_SHAPE(batch->count), batch->indices),
        .epoch = upload(LK_I64, LK_SCALAR, &batch->epoch),
        .moments = a->mean ? upload(LK_F32, LK_SHAPE(2, a->channels), a->mean) : NULL,
    };
}

static void check_batch(const lk_dataset *dataset, const lk_augmentation *a, const lk_batch *batch)
{
    lk_prepare_images_attrs attrs = {.opts = a->opts, .seed = SEED};
    int64_t count = batch->count * a->channels * a->size.height * a->size.width;
    float *got = malloc((size_t)count * sizeof *got);
    assert_non_null(got);
    lk_scope_begin();
    uploaded u = upload_batch(dataset, a, batch);
    lk_tensor *images = lk__prepare_images(LK_HERE, u.images, u.indices, u.epoch, u.moments, &attrs);
    if (!images || lk_tensor_read(images, got, (size_t)count * sizeof *got) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&got[i], &batch->images[i], sizeof got[i]) != 0)
            fail_msg("epoch %d, batch %d, value %d: %.9g, the loader gives %.9g", (int)batch->epoch, (int)batch->index,
                     (int)i, got[i], batch->images[i]);
    lk_scope_end();
    free(got);
}

static void check_epoch(lk_dataset *dataset, const lk_augment_opts *opts, int64_t epoch, bool evaluation)
{
    lk_channel_moments moments;
    lk_augmentation augmentation;
    lk_loader *loader;
    lk_batch *batch;
    assert_ok(lk_dataset_moments(dataset, &moments));
    lk_loader_opts loading = {.batch_size = 10,
                              .seed = SEED,
                              .shuffle = true,
                              .augment = opts,
                              .moments = &moments,
                              .evaluation = evaluation};
    assert_ok(lk_loader_new(dataset, &loading, &loader));
    assert_ok(lk__augmentation_init(dataset, SEED, !evaluation, opts, &moments, &augmentation));
    assert_ok(lk_loader_start(loader, epoch));
    for (;;) {
        assert_ok(lk_loader_next(loader, &batch));
        if (!batch)
            break;
        check_batch(dataset, &augmentation, batch);
        lk_batch_release(batch);
    }
    lk__augmentation_free(&augmentation);
    lk_channel_moments_free(&moments);
    lk_loader_release(loader);
}

static void check_settings(lk_dataset *dataset)
{
    static const lk_augment_opts settings[] = {
        {.crop_padding = 0},
        {.width_shift = 0.3},
        {.height_shift = 0.99},
        {.width_shift = 0.2, .height_shift = 0.2},
        {.horizontal_flip = true},
        {.crop_padding = 4},
        {.vertical_flip = true},
        {.rotation = 30},
        {.rotation = 180, .crop_padding = 3},
        {.brightness = 0.4},
        {.contrast = 1},
        {.erase = 1, .cutout = 3, .standardize = true},
        {.mixup = 0.5},
        {.mixup = 1, .contrast = 0.2, .center = true},
        {.rand_augment = 1},
        {.rand_augment = 15},
        {.rand_augment = 30, .mixup = 0.1},
        {.cutout = 5},
        {.cutout = 14},
        {.center = true},
        {.standardize = true},
        {.center = true, .standardize = true, .crop_padding = 3},
        {.width_shift = 0.3,
         .height_shift = 0.2,
         .horizontal_flip = true,
         .vertical_flip = true,
         .rotation = 10,
         .crop_padding = 2,
         .brightness = 0.4,
         .contrast = 0.4,
         .rand_augment = 9,
         .cutout = 3,
         .erase = 0.7,
         .mixup = 0.3,
         .center = true,
         .standardize = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        check_epoch(dataset, &settings[i], 0, false);
        check_epoch(dataset, &settings[i], 7, false);
        check_epoch(dataset, &settings[i], UINT32_MAX, false);
        check_epoch(dataset, &settings[i], 7, true);
    }
    lk_dataset_release(dataset);
}

static void gray_images_have_the_loaders_bits(void **state)
{
    (void)state;
    check_settings(open_pair(SAMPLES, 19, 14));
}

static void color_images_have_the_loaders_bits(void **state)
{
    (void)state;
    check_settings(open_channels(SAMPLES, 3, 14, 19));
}

static void refuse(lk_tensor *made, lk_status expected, const char *says)
{
    assert_null(made);
    expect_failure(lk_error_status(), expected, says);
}

static void wrong_operands_are_refused(void **state)
{
    (void)state;
    lk_prepare_images_attrs none = {.seed = 1}, wide = {.opts = {.crop_padding = 9}};
    lk_scope_begin();
    lk_tensor *images = lk_full(device, LK_U8, LK_SHAPE(4, 3, 9, 11), 7),
              *epoch = lk_full(device, LK_I64, LK_SCALAR, 0);
    lk_tensor *indices = lk_arange(device, LK_I64, 3, 0, 1), *moments = lk_full(device, LK_F32, LK_SHAPE(2, 1), 1);
    lk_tensor *floats = lk_cast(images, LK_F32), *numbers = lk_cast(indices, LK_I32);
    refuse(lk__prepare_images(LK_HERE, floats, indices, epoch, NULL, &none), LK_ERR_DTYPE, "images");
    refuse(lk__prepare_images(LK_HERE, images, numbers, epoch, NULL, &none), LK_ERR_DTYPE, "indices");
    refuse(lk__prepare_images(LK_HERE, images, indices, indices, NULL, &none), LK_ERR_SHAPE, "epoch");
    refuse(lk__prepare_images(LK_HERE, images, indices, epoch, moments, &none), LK_ERR_SHAPE, "moments");
    refuse(lk__prepare_images(LK_HERE, images, indices, epoch, NULL, &wide), LK_ERR_ARGUMENT, "crop=9");
    refuse(lk_gather(images, numbers), LK_ERR_DTYPE, "indices");
    refuse(lk_gather(epoch, indices), LK_ERR_SHAPE, "x has shape []");
    lk_scope_end();
}

/* A CPU device fails with a message; an offload device gives NaN. */
static void expect_outside(lk_tensor *made, const char *says)
{
    float value;
    assert_non_null(made);
    lk_status status = lk_tensor_read(lk_slice(lk_reshape(made, LK_SHAPE(-1)), 0, 0, 1), &value, sizeof value);
    if (device->backend->offload) {
        assert_ok(status);
        assert_true(value != value);
    } else {
        expect_failure(status, LK_ERR_ARGUMENT, says);
    }
}

static void indices_outside_are_found(void **state)
{
    (void)state;
    static const double outside[] = {4, -1};
    for (int i = 0; i < 2; i++) {
        lk_scope_begin();
        lk_tensor *images = lk_full(device, LK_U8, LK_SHAPE(4, 1, 2, 2), 7);
        lk_tensor *indices = lk_full(device, LK_I64, LK_SHAPE(1), outside[i]);
        lk_tensor *epoch = lk_full(device, LK_I64, LK_SCALAR, 0);
        expect_outside(lk__prepare_images(LK_HERE, images, indices, epoch, NULL, &(lk_prepare_images_attrs){0}),
                       "is not in [0, 4)");
        expect_outside(lk_gather(lk_full(device, LK_F32, LK_SHAPE(4, 2), 1), indices), "is not in [0, 4)");
        lk_scope_end();
    }
}

static int open_device(void **state)
{
    int n;
    lk_device *devices[2];
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES");
    if (lk_devices_open(spec ? spec : "cpu", devices, 2, &n) != LK_OK) {
        print_error("%s\n", lk_error_message());
        return -1;
    }
    device = devices[0];
    lk_devices_release(devices + 1, n - 1);
    return make_test_dir(state);
}

static int close_device(void **state)
{
    lk_devices_release(&device, 1);
    return remove_test_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gray_images_have_the_loaders_bits),
        cmocka_unit_test(color_images_have_the_loaders_bits),
        cmocka_unit_test(wrong_operands_are_refused),
        cmocka_unit_test(indices_outside_are_found),
    };
    return cmocka_run_group_tests_name("prepare_images", tests, open_device, close_device);
}
