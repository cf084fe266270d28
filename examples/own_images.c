/* Training on images that a function draws: no file, and no memory for the data.
 *
 *   own_images [DEVICES]
 *
 * DEVICES: 2xcpu, … (default: all cores). An image of class c is a grating of c + 1 stripes, turned by an angle and
 * with noise that follow from its number alone. So the digest is the same for any number of devices. */
#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 28, CLASSES = 5, TRAIN = 2048, VAL = 512, BATCH_SIZE = 128 };

/* Threads call it at the same time. It keeps nothing, and uses only its arguments. */
static lk_status draw(void *user, int64_t index, float *image)
{
    const uint64_t *seed = user;
    const lk_random_key key = {.seed = *seed, .purpose = lk_random_purpose("gratings"), .sample = (uint64_t)index};
    uint32_t word[4];
    lk_random_block(&key, 0, word);
    double angle = 3.14159265358979 * word[0] / 4294967296.0, phase = 6.28318530717959 * word[1] / 4294967296.0;
    double frequency = 6.28318530717959 * (double)(index % CLASSES + 1) / SIZE;
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++) {
            if ((y * SIZE + x) % 4 == 0)
                lk_random_block(&key, 1 + (uint64_t)(y * SIZE + x) / 4, word);
            double along = cos(angle) * x + sin(angle) * y, noise = word[x % 4] / 4294967296.0 - 0.5;
            image[y * SIZE + x] = (float)(0.5 + 0.3 * sin(frequency * along + phase) + 0.6 * noise);
        }
    return LK_OK;
}

static lk_dataset *make_set(uint64_t *seed, int64_t count)
{
    lk_dataset *dataset = NULL;
    int32_t *labels = calloc((size_t)count, sizeof *labels);
    for (int64_t i = 0; labels && i < count; i++)
        labels[i] = (int32_t)(i % CLASSES);
    const lk_dataset_arrays arrays = {.read = draw,
                                      .read_user = seed,
                                      .labels = labels,
                                      .count = count,
                                      .channels = 1,
                                      .height = SIZE,
                                      .width = SIZE,
                                      .classes = CLASSES};
    if (lk_dataset_from_arrays("gratings", &arrays, &dataset) != LK_OK)
        fprintf(stderr, "own_images: %s\n", lk_error_message());
    free(labels); /* the data set has a copy */
    return dataset;
}

static lk_status train(const lk_train_config *config)
{
    lk_train_result result;
    lk_trainer *trainer = lk_trainer_new(config);
    if (!trainer)
        return lk_error_status();
    lk_status status = lk_trainer_fit(trainer, &result);
    if (status == LK_OK)
        printf("accuracy %.4f after %lld epochs, digest %s\n", lk_mean_value(result.val.accuracy),
               (long long)result.epochs, result.digest);
    lk_trainer_release(trainer);
    return status;
}

int main(int argc, char **argv)
{
    static uint64_t seeds[] = {1, 2}; /* borrowed by the data sets */
    lk_train_config config;
    lk_status status = lk_train_defaults(NULL, &config);
    config.model = "keras-cnn";
    config.epochs = 3;
    config.batch_size = BATCH_SIZE;
    config.optimizer.name = "adam";
    config.optimizer.base_lr = 1e-3;
    config.devices.spec = argc > 1 ? argv[1] : NULL;
    config.data.train_set = make_set(&seeds[0], TRAIN);
    config.data.val_set = make_set(&seeds[1], VAL);
    if (status == LK_OK && config.data.train_set && config.data.val_set)
        status = train(&config);
    if (status != LK_OK)
        fprintf(stderr, "own_images: %s\n", lk_error_message());
    lk_dataset_release(config.data.train_set);
    lk_dataset_release(config.data.val_set);
    return status == LK_OK && config.data.train_set && config.data.val_set ? 0 : 1;
}
