/* Every training sample is used once an epoch, and every validation sample is counted once. Losses and accuracies are
 * sums over the samples, divided by their true number. A pass over the data set in this file, on public operators
 * alone, gives the expected values. */
#include "training.h"

#include "lockstep/ops.h"
#include "train/trainer.h"

#include <math.h>

/* --- parameters that tell the images apart ------------------------------------------------------------------------ */

/* A network with its initial weights gives nearly every image the same class, so its accuracy would not show which
 * images were counted. These weights are large enough that the answers depend on the image. */
static void spread_parameters(lk_trainer *trainer)
{
    for (int i = 0; i < trainer->n_parameters; i++) {
        lk_random_key key = {.seed = 5, .purpose = lk_random_purpose(lk_model_variable_name(trainer->model, i))};
        lk_scope_begin();
        lk_tensor *values =
            lk_normal(trainer->devices[0], LK_F32, lk_model_variable_shape(trainer->model, i), 0, 0.15, key);
        for (int r = 0; r < trainer->n_devices; r++)
            assert_ok(lk_copy_into(lk_trainer_variables(trainer, r)[i], values));
        lk_scope_end();
    }
}

/* --- the same counts without the trainer -------------------------------------------------------------------------- */

enum { CLASSES = 10, PIXELS = 28 * 28 };

typedef struct plain_count {
    int64_t samples, hits;
    double loss;
} plain_count;

static void count_sample(const float *logits, int label, plain_count *count)
{
    int best = 0;
    double sum = 0;
    for (int c = 1; c < CLASSES; c++)
        if (logits[c] > logits[best])
            best = c;
    for (int c = 0; c < CLASSES; c++)
        sum += exp((double)logits[c] - (double)logits[best]);
    count->samples++;
    count->hits += best == label;
    count->loss += log(sum) + (double)logits[best] - (double)logits[label];
}

static plain_count count_split(const lk_trainer *trainer, lk_split split, int64_t limit)
{
    plain_count count = {0};
    lk_dataset *dataset;
    assert_ok(lk_dataset_open("synthetic", split, &(lk_dataset_opts){.limit = limit}, &dataset));
    int64_t n = lk_dataset_count(dataset);
    float *images = calloc((size_t)(n * PIXELS), sizeof *images), *logits = calloc((size_t)n, CLASSES * sizeof *logits);
    assert_true(images && logits);
    for (int64_t i = 0; i < n * PIXELS; i++)
        images[i] = (float)lk_dataset_images(dataset)[i] / 255.0f;
    lk_scope_begin();
    lk_tensor *x = lk_tensor_from(trainer->devices[0], LK_F32, LK_SHAPE(n, 1, 28, 28), images);
    lk_tensor *y = lk_model_forward(trainer->model, lk_trainer_variables(trainer, 0), x, NULL);
    assert_ok(lk_tensor_read(y, logits, (size_t)n * CLASSES * sizeof *logits));
    lk_scope_end();
    for (int64_t i = 0; i < n; i++)
        count_sample(logits + i * CLASSES, lk_dataset_labels(dataset)[i], &count);
    free(images);
    free(logits);
    lk_dataset_release(dataset);
    return count;
}

/* The trainer sums the loss in f32, this test in double. */
static void compare(const lk_metrics *metrics, const plain_count *count)
{
    lk_mean loss = metrics->loss, accuracy = metrics->accuracy;
    assert_int_equal(loss.count, count->samples);
    assert_int_equal(accuracy.count, count->samples);
    assert_int_equal((int64_t)accuracy.sum, count->hits);
    assert_true(accuracy.sum == (double)count->hits);
    if (fabs(loss.sum - count->loss) > 1e-5 * count->loss)
        fail_msg("loss %.9g, expected %.9g", loss.sum, count->loss);
}

static void exact(const lk_ledger_report *ledger, int64_t samples)
{
    assert_int_equal(ledger->used_once, samples);
    assert_int_equal(ledger->unused, 0);
    assert_int_equal(ledger->repeated, 0);
    assert_int_equal(ledger->first_bad, -1);
}

/* The learning rate is so small that the weights do not change, so the training accuracy of an epoch is theirs. */
static void count_once(const char *devices, int64_t shards, int64_t batch_size, int64_t train, int64_t val)
{
    lk_metrics metrics;
    lk_train_config config = small_training();
    config.devices.spec = devices;
    config.devices.shards = shards;
    config.batch_size = batch_size;
    config.data.limit_train = train;
    config.data.limit_val = val;
    config.optimizer.base_lr = 1e-12;
    lk_trainer *trainer = new_trainer(&config);
    spread_parameters(trainer);
    plain_count of_train = count_split(trainer, LK_SPLIT_TRAIN, train),
                of_val = count_split(trainer, LK_SPLIT_TEST, val);
    assert_int_equal(of_train.samples, train);
    assert_int_equal(of_val.samples, val);

    assert_ok(lk_trainer_evaluate(trainer, &metrics));
    compare(&metrics, &of_val);
    outcome out = fit(trainer);
    for (int e = 0; e < out.n_epochs; e++) {
        compare(&out.epochs[e].train, &of_train);
        compare(&out.epochs[e].val, &of_val);
        exact(&out.epochs[e].train_ledger, train);
        exact(&out.epochs[e].val_ledger, val);
    }
    lk_trainer_release(trainer);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void weights_tell_images_apart(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.spec = "1xcpu";
    lk_trainer *trainer = new_trainer(&config);
    spread_parameters(trainer);
    int64_t hits = count_split(trainer, LK_SPLIT_TRAIN, 100).hits, before = 0, changes = 0;
    for (int64_t n = 1; n <= 100; n += 9) {
        plain_count count = count_split(trainer, LK_SPLIT_TRAIN, n);
        changes += count.hits != before;
        before = count.hits;
    }
    lk_trainer_release(trainer);
    assert_in_range(hits, 1, 99);
    assert_true(changes >= 3);
}

static void devices_and_shards(void **state)
{
    (void)state;
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "4xcpu", "7xcpu"};
    static const int64_t counts[] = {1, 2, 3, 4, 7}, shards[] = {1, 8, 12};
    for (int v = 0; v < 3; v++)
        for (int s = 0; s < 5 && counts[s] <= shards[v]; s++)
            count_once(specs[s], shards[v], 32, 67, 41);
}

static void batches_of_any_size(void **state)
{
    (void)state;
    count_once("2xcpu", 8, 25, 67, 41);   /* last batches of 17 and 16 */
    count_once("7xcpu", 8, 8, 67, 3);     /* last batches of 3 and 3: four devices have no sample */
    count_once("3xcpu", 12, 100, 67, 41); /* one batch, smaller than the batch size */
    count_once("3xcpu", 3, 3, 10, 7);     /* last batches of one */
    count_once("2xcpu", 2, 16, 64, 32);   /* no remainder */
    count_once("4xcpu", 8, 8, 1, 1);
}

static void no_evaluation(void **state)
{
    (void)state;
    lk_metrics metrics = {.loss = {1, 1}, .accuracy = {1, 1}};
    lk_train_config config = small_training();
    config.data.limit_val = 0;
    config.devices.spec = "2xcpu";
    lk_trainer *trainer = new_trainer(&config);
    assert_int_equal(lk_trainer_plan(trainer)->val_samples, 0);
    assert_ok(lk_trainer_evaluate(trainer, &metrics));
    assert_int_equal(metrics.loss.count, 0);
    assert_int_equal(metrics.accuracy.count, 0);
    outcome out = fit(trainer);
    assert_int_equal(out.epochs[1].val.loss.count, 0);
    assert_int_equal(out.result.val.accuracy.count, 0);
    exact(&out.epochs[1].train_ledger, 67);
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_tell_images_apart),
        cmocka_unit_test(devices_and_shards),
        cmocka_unit_test(batches_of_any_size),
        cmocka_unit_test(no_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
