/* Training on several devices from scratch, after Dive into Deep Learning, "Training on Multiple GPUs": the same
 * functions in the same order. It prints test accuracy and seconds per epoch for one device and for two.
 *
 *   lenet_from_scratch [DATA [EPOCHS [IMAGES]]]
 *
 * DATA: fashion-mnist (default), mnist or synthetic. IMAGES: train and test on the first IMAGES.
 *
 * One thing differs from the book: a batch is always cut into SHARDS parts, and allreduce adds the parts up by a fixed
 * tree. So the accuracies are equal to the last digit for any number of devices. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime, with -std=c11 too */

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SHARDS = 8, PARAMS = 8, MAX_DEVICES = 2, BATCH_SIZE = 256 };

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "lenet_from_scratch: %s\n", lk_error_message());
    exit(1);
}

static void check_tensor(const lk_tensor *tensor)
{
    check(tensor ? LK_OK : lk_error_status());
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static lk_tensor *randn(lk_device *device, lk_shape shape, const char *name)
{
    const double scale = 0.01;
    lk_random_key key = {.seed = 0, .purpose = lk_random_purpose(name)};
    return lk_normal(device, LK_F32, shape, 0, scale, key);
}

static void init_params(lk_device *device, lk_tensor **params)
{
    params[0] = randn(device, LK_SHAPE(20, 1, 3, 3), "W1");
    params[1] = lk_zeros(device, LK_F32, LK_SHAPE(20));
    params[2] = randn(device, LK_SHAPE(50, 20, 5, 5), "W2");
    params[3] = lk_zeros(device, LK_F32, LK_SHAPE(50));
    params[4] = randn(device, LK_SHAPE(800, 128), "W3");
    params[5] = lk_zeros(device, LK_F32, LK_SHAPE(128));
    params[6] = randn(device, LK_SHAPE(128, 10), "W4");
    params[7] = lk_zeros(device, LK_F32, LK_SHAPE(10));
    for (int i = 0; i < PARAMS; i++)
        check_tensor(params[i]);
}

static lk_tensor *lenet(lk_tensor *X, lk_tensor **params)
{
    const lk_pool2d_opts pool = {.kernel = {2, 2}, .stride = {2, 2}};
    lk_tensor *h1_conv = lk_conv2d(X, params[0], params[1], NULL);
    lk_tensor *h1_activation = lk_relu(h1_conv);
    lk_tensor *h1 = lk_avg_pool2d(h1_activation, &pool);
    lk_tensor *h2_conv = lk_conv2d(h1, params[2], params[3], NULL);
    lk_tensor *h2_activation = lk_relu(h2_conv);
    lk_tensor *h2 = lk_avg_pool2d(h2_activation, &pool);
    h2 = lk_flatten(h2);
    lk_tensor *h3_linear = lk_add(lk_matmul(h2, params[4]), params[5]);
    lk_tensor *h3 = lk_relu(h3_linear);
    lk_tensor *y_hat = lk_add(lk_matmul(h3, params[6]), params[7]);
    return y_hat;
}

static lk_tensor *loss(lk_tensor *y_hat, lk_tensor *y)
{
    return lk_sparse_softmax_cross_entropy(y_hat, y, LK_REDUCTION_NONE);
}

/* --- data synchronization ----------------------------------------------------------------------------------------- */

static void get_params(lk_tensor **params, lk_device *device, lk_tensor **new_params)
{
    for (int i = 0; i < PARAMS; i++) {
        new_params[i] = lk_tensor_retain(lk_copy(params[i], device));
        check_tensor(new_params[i]);
    }
}

/* Replaces each data[i] by the sum of all, whatever devices they are on. The book adds data[1], data[2], … to data[0]
 * in turn; a tree gives the same bits wherever they are, and fewer of its additions wait for each other. */
static void allreduce(lk_tensor **data, int n)
{
    check(lk_allreduce(data, n));
}

/* --- distributing data -------------------------------------------------------------------------------------------- */

static void split_batch(lk_tensor *X, lk_tensor *y, lk_device **devices, int num_devices, lk_tensor **X_shards,
                        lk_tensor **y_shards)
{
    check(lk_split_batch(X, SHARDS, devices, num_devices, X_shards));
    check(lk_split_batch(y, SHARDS, devices, num_devices, y_shards));
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static void sgd(lk_tensor **params, lk_tensor **grads, double lr, int64_t batch_size)
{
    check(lk_sgd(params, grads, PARAMS, lr / (double)batch_size));
}

static void train_batch(lk_tensor *X, lk_tensor *y, lk_tensor *device_params[][PARAMS], lk_device **devices,
                        int num_devices, double lr)
{
    lk_tensor *X_shards[SHARDS], *y_shards[SHARDS], *grads[SHARDS][PARAMS] = {0};
    split_batch(X, y, devices, num_devices, X_shards, y_shards);

    /* Compute loss and gradients of every shard on the device that owns it. Each call returns at once. */
    for (int d = 0; d < num_devices; d++) {
        lk_range own = lk_part(SHARDS, num_devices, d);
        for (int64_t s = own.begin; s < own.end; s++) {
            lk_tape *tape = lk_tape_begin(device_params[d], PARAMS);
            lk_tensor *l = lk_sum(loss(lenet(X_shards[s], device_params[d]), y_shards[s]), NULL);
            check(lk_tape_gradient(tape, l, NULL, grads[s]));
            lk_tape_release(tape);
        }
    }
    for (int i = 0; i < PARAMS; i++) {
        lk_tensor *data[SHARDS];
        for (int s = 0; s < SHARDS; s++)
            data[s] = grads[s][i];
        allreduce(data, SHARDS);
    }
    for (int d = 0; d < num_devices; d++)
        sgd(device_params[d], grads[lk_part(SHARDS, num_devices, d).begin], lr, lk_tensor_shape(X).dim[0]);
}

static void batch_tensors(const lk_batch *batch, const lk_dataset *data, lk_device *device, lk_tensor **X,
                          lk_tensor **y)
{
    lk_shape images =
        LK_SHAPE(batch->count, lk_dataset_channels(data), lk_dataset_height(data), lk_dataset_width(data));
    *X = lk_tensor_from(device, LK_F32, images, batch->images);
    *y = lk_tensor_from(device, LK_I32, LK_SHAPE(batch->count), batch->labels);
    check_tensor(*X);
    check_tensor(*y);
}

static double evaluate_accuracy(lk_tensor **params, lk_loader *test_iter, const lk_dataset *test, lk_device *device)
{
    double correct = 0;
    lk_batch *batch;
    check(lk_loader_start(test_iter, 0));
    for (check(lk_loader_next(test_iter, &batch)); batch; check(lk_loader_next(test_iter, &batch))) {
        lk_tensor *X, *y;
        double hits;
        lk_scope_begin();
        batch_tensors(batch, test, device, &X, &y);
        check(lk_tensor_item(lk_sum(lk_in_top_k(lenet(X, params), y, 1), NULL), &hits));
        lk_scope_end();
        lk_batch_release(batch);
        correct += hits;
    }
    return correct / (double)lk_dataset_count(test);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void train(lk_dataset *data, lk_dataset *test, int num_devices, int num_epochs, double lr)
{
    lk_device *devices[MAX_DEVICES];
    lk_tensor *params[PARAMS], *device_params[MAX_DEVICES][PARAMS];
    lk_loader *train_iter, *test_iter;
    int count;
    char spec[16];
    snprintf(spec, sizeof spec, "%dxcpu", num_devices);
    check(lk_devices_open(spec, devices, MAX_DEVICES, &count));
    check(lk_loader_new(data, &(lk_loader_opts){.batch_size = BATCH_SIZE, .shuffle = true, .workers = 1}, &train_iter));
    check(lk_loader_new(test, &(lk_loader_opts){.batch_size = BATCH_SIZE}, &test_iter));

    /* Copy the parameters to every device. */
    lk_scope_begin();
    init_params(devices[0], params);
    for (int d = 0; d < num_devices; d++)
        get_params(params, devices[d], device_params[d]);
    lk_scope_end();

    double timer = 0, accuracy = 0;
    for (int epoch = 0; epoch < num_epochs; epoch++) {
        double start = seconds();
        lk_batch *batch;
        check(lk_loader_start(train_iter, epoch));
        for (check(lk_loader_next(train_iter, &batch)); batch; check(lk_loader_next(train_iter, &batch))) {
            lk_tensor *X, *y;
            lk_scope_begin();
            batch_tensors(batch, data, devices[0], &X, &y);
            train_batch(X, y, device_params, devices, num_devices, lr);
            lk_scope_end();
            lk_batch_release(batch);
            check(lk_wait_all());
        }
        timer += seconds() - start;
        accuracy = evaluate_accuracy(device_params[0], test_iter, test, devices[0]);
        printf("  epoch %d: test acc %.4f\n", epoch + 1, accuracy);
        fflush(stdout);
    }
    printf("test acc: %.4f, %.1f sec/epoch on", accuracy, timer / num_epochs);
    for (int d = 0; d < num_devices; d++)
        printf(" %s", lk_device_name(devices[d]));
    printf("\n");

    for (int d = 0; d < num_devices; d++)
        for (int i = 0; i < PARAMS; i++)
            lk_tensor_release(device_params[d][i]);
    lk_loader_release(train_iter);
    lk_loader_release(test_iter);
    lk_devices_release(devices, num_devices);
}

static long number(const char *text, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end == '\0' && value >= 1 && value <= most)
        return value;
    fprintf(stderr, "lenet_from_scratch: '%s': a number from 1 to %ld is needed\n", text, most);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "fashion-mnist";
    long epochs = argc > 2 ? number(argv[2], 1000) : 10;
    lk_dataset_opts opts = {.limit = argc > 3 ? number(argv[3], 60000) : 0};
    lk_dataset *data, *test;
    check(lk_dataset_open(name, LK_SPLIT_TRAIN, &opts, &data));
    check(lk_dataset_open(name, LK_SPLIT_TEST, &opts, &test));
    for (int num_devices = 1; num_devices <= MAX_DEVICES; num_devices++)
        train(data, test, num_devices, (int)epochs, 0.2);
    lk_dataset_release(data);
    lk_dataset_release(test);
    return 0;
}
