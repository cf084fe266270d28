/* Training on several devices with a loop of your own, after TensorFlow's tutorial "Custom training with
 * tf.distribute.Strategy": the same network for Fashion-MNIST, and the same functions.
 *
 *   custom_training [DATA [EPOCHS [IMAGES [DEVICES [TEST_BATCH [CHECKPOINTS]]]]]]
 *
 * DATA: fashion-mnist (default), mnist or synthetic. EPOCHS: default 10. IMAGES: train and test on the first IMAGES;
 * 0: all (default). DEVICES: 1xcpu, 2xcpu (default), … up to SHARDS devices. TEST_BATCH: images in a test step,
 * default 64. CHECKPOINTS: a folder for a checkpoint after every epoch, with a row per epoch in CHECKPOINTS.csv; if it
 * has a checkpoint, training and rows go on from there.
 *
 * A step's batch is cut into SHARDS parts, whose gradients and metrics are added up by a fixed tree. So the digest of
 * the trained variables is the same for any number of devices, and for a training that was killed and resumed. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 4, GLOBAL_BATCH_SIZE = 64, STEPS_AT_A_TIME = 10, SEED = 0, KEEP = 2 };

static const double learning_rate = 1e-3;

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "custom_training: %s\n", lk_error_message());
    exit(1);
}

static void check_new(const void *made)
{
    check(made ? LK_OK : lk_error_status());
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static lk_model *create_model(void)
{
    lk_layer *layers = LK_SEQUENTIAL(lk_layer_conv2d(32, 3, NULL), lk_layer_activation(LK_RELU),
                                     lk_layer_max_pool(2, NULL), lk_layer_conv2d(64, 3, NULL),
                                     lk_layer_activation(LK_RELU), lk_layer_max_pool(2, NULL), lk_layer_flatten(),
                                     lk_layer_dense(64, NULL), lk_layer_activation(LK_RELU), lk_layer_dense(10, NULL));
    return lk_model_build("custom", layers, (lk_model_input){1, 28, 28, 10});
}

/* The model, its variables and the state of training. A training step sums the gradients of all parameters, then two
 * metrics; a test step sums only the metrics. */
typedef struct training {
    lk_strategy *strategy;
    lk_model *model;
    lk_replicas *replicas; /* the variables and an optimizer, on each device */
    int n_parameters;
    lk_shard_sum *train_sum, *test_sum;
    lk_tensor **sums; /* sums of one step: a set for each replica */

    const char *data, *images;         /* arguments DATA and IMAGES */
    int64_t epochs, steps, samples;    /* completed so far */
    lk_checkpoint_writer *checkpoints; /* NULL: none are written */
    lk_row_writer *rows;               /* NULL: none are written */
} training;

enum { LOSS, HITS, METRICS };

static training new_training(const char *devices_spec)
{
    training t = {.model = create_model()};
    lk_device *devices[SHARDS];
    int num_devices;
    check_new(t.model);
    check(lk_devices_open(devices_spec, devices, SHARDS, &num_devices));
    t.strategy = lk_strategy_new("mirrored", devices, num_devices);
    check_new(t.strategy);
    lk_devices_release(devices, num_devices); /* the strategy keeps its own references */
    t.replicas = lk_replicas_new(t.strategy, t.model, &(lk_optimizer_opts){.kind = LK_ADAM}, SEED);
    check_new(t.replicas);

    t.n_parameters = lk_model_parameter_count(t.model);
    t.train_sum = lk_shard_sum_new(t.strategy, SHARDS, t.n_parameters + METRICS);
    t.test_sum = lk_shard_sum_new(t.strategy, SHARDS, METRICS);
    t.sums = calloc((size_t)num_devices * (size_t)(t.n_parameters + METRICS), sizeof *t.sums);
    check_new(t.train_sum);
    check_new(t.test_sum);
    if (!t.sums)
        abort();
    return t;
}

static void release_training(training *t)
{
    lk_checkpoint_writer_release(t->checkpoints);
    lk_row_writer_release(t->rows);
    free(t->sums);
    lk_shard_sum_release(t->train_sum);
    lk_shard_sum_release(t->test_sum);
    lk_replicas_release(t->replicas);
    lk_model_release(t->model);
    lk_strategy_release(t->strategy);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* A checkpoint needs this position of training, in addition to the variables and the optimizer's state. */
static void take_up(training *t, const lk_checkpoint *last)
{
    const lk_checkpoint_info *info = lk_checkpoint_get_info(last);
    const char *images = lk_checkpoint_get_setting(last, "images");
    if (!info->data || strcmp(info->data, t->data) != 0 || !images || strcmp(images, t->images) != 0) {
        fprintf(stderr, "custom_training: %s is of a training on other data\n", info->folder);
        exit(1);
    }
    check(lk_replicas_restore(t->replicas, last));
    t->epochs = info->epoch;
    t->steps = info->steps;
    t->samples = info->samples_seen;
    printf("Going on after %lld epochs\n", (long long)t->epochs);
}

/* A checkpoint holds a mark of the rows written so far; later rows are removed. */
static void open_rows(training *t, const char *folder, const lk_checkpoint *last)
{
    char path[4096];
    const char *mark = last ? lk_checkpoint_get_setting(last, "rows") : NULL;
    snprintf(path, sizeof path, "%s.csv", folder);
    t->rows = mark ? lk_row_writer_reopen(path, LK_ROWS_CSV, mark) : lk_row_writer_new(path, LK_ROWS_CSV, false);
    check_new(t->rows);
}

static void open_checkpoints(training *t, const char *folder)
{
    lk_checkpoint *last = NULL;
    lk_status status = lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &last);
    if (status == LK_ERR_NOT_FOUND)
        lk_error_clear();
    else
        check(status);
    if (last)
        take_up(t, last);
    t->checkpoints = lk_checkpoint_writer_new(t->replicas, folder, last, KEEP);
    check_new(t->checkpoints);
    open_rows(t, folder, last);
    lk_checkpoint_release(last);
}

/* A thread writes the checkpoint while training goes on. */
static void save(training *t)
{
    char mark[LK_RECORD_MARK];
    check(lk_row_writer_mark(t->rows, mark));
    const lk_checkpoint_setting settings[] = {{"images", t->images}, {"rows", mark}};
    const lk_checkpoint_info info = {.data = t->data,
                                     .seed = SEED,
                                     .epoch = t->epochs,
                                     .steps = t->steps,
                                     .samples_seen = t->samples,
                                     .settings = settings,
                                     .n_settings = 2};
    check(lk_checkpoint_writer_save(t->checkpoints, &info));
}

static void end_epoch(training *t, double loss, double accuracy)
{
    t->epochs++;
    if (!t->checkpoints)
        return;
    const lk_field row[] = {LK_INT("epoch", t->epochs), LK_INT("steps", t->steps), LK_REAL("loss", loss),
                            LK_REAL("accuracy", accuracy)};
    check(lk_row_write(t->rows, row, 4));
    save(t);
}

/* --- loss and metrics --------------------------------------------------------------------------------------------- */

/* Gives [N], the loss of each sample. */
static lk_tensor *loss_object(lk_tensor *labels, lk_tensor *predictions)
{
    return lk_sparse_softmax_cross_entropy(predictions, labels, LK_REDUCTION_NONE);
}

static lk_tensor *count_hits(lk_tensor *labels, lk_tensor *predictions)
{
    return lk_sum(lk_in_top_k(predictions, labels, 1), NULL);
}

/* Sums over the samples of an epoch so far; the mean is taken once, at the end, because the last batch may be smaller.
 * Sums of the latest step are still being computed: they are read after the next step has been pushed, so that the
 * devices always have work. */
typedef struct metrics {
    double loss, hits;
    int64_t samples, steps;
    lk_tensor *latest_loss, *latest_hits;
} metrics;

static void read_latest(metrics *m)
{
    double loss, hits;
    if (!m->latest_loss)
        return;
    check(lk_tensor_item(m->latest_loss, &loss));
    check(lk_tensor_item(m->latest_hits, &hits));
    m->loss += loss;
    m->hits += hits;
    lk_tensor_release(m->latest_loss);
    lk_tensor_release(m->latest_hits);
    m->latest_loss = m->latest_hits = NULL;
}

static void update_state(metrics *m, lk_tensor *const *sums, int64_t samples)
{
    read_latest(m);
    m->latest_loss = lk_tensor_retain(sums[LOSS]);
    m->latest_hits = lk_tensor_retain(sums[HITS]);
    m->samples += samples;
    m->steps++;
}

static double mean_loss(const metrics *m)
{
    return m->loss / (double)m->samples;
}

static double percent(const metrics *m)
{
    return 100 * m->hits / (double)m->samples;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Computes one shard on the device that owns it: sets values[] to the gradients, then the metrics. Losses are divided
 * by the size of the whole batch, so that the sum over all shards is the batch's mean loss, and its gradient the sum of
 * the shards' gradients. Calls return at once, and a NULL argument gives NULL, so one check at the end is enough. */
static lk_status train_step(void *user, const lk_shard *shard, lk_tensor **values)
{
    const training *t = user;
    lk_tensor *const *variables = lk_replicas_variables(t->replicas, shard->replica);
    const lk_forward_opts opts = {.training = true};

    lk_tape *tape = lk_tape_begin(variables, t->n_parameters);
    lk_tensor *predictions = lk_model_forward(t->model, variables, shard->images, &opts);
    lk_tensor *per_example_loss = loss_object(shard->labels, predictions);
    lk_tape_gradient(tape, lk_average_loss(per_example_loss, shard->global_batch), NULL, values);
    lk_tape_release(tape);

    values[t->n_parameters + LOSS] = lk_sum(per_example_loss, NULL);
    values[t->n_parameters + HITS] = count_hits(shard->labels, predictions);
    return lk_error_status();
}

static lk_status test_step(void *user, const lk_shard *shard, lk_tensor **values)
{
    const training *t = user;
    lk_tensor *const *variables = lk_replicas_variables(t->replicas, shard->replica);
    lk_tensor *predictions = lk_model_forward(t->model, variables, shard->images, NULL);
    values[LOSS] = lk_sum(loss_object(shard->labels, predictions), NULL);
    values[HITS] = count_hits(shard->labels, predictions);
    return lk_error_status();
}

static void release_sums(training *t, int n)
{
    for (int i = 0; i < lk_strategy_num_replicas(t->strategy) * n; i++)
        lk_tensor_release(t->sums[i]);
}

static void distributed_train_step(training *t, const lk_dataset *data, lk_batch *batch, metrics *m)
{
    int n = t->n_parameters + METRICS;
    check(lk_run_shards(t->train_sum, n, data, batch, train_step, t, t->sums));
    check(lk_replicas_apply(t->replicas, t->sums, n, batch->count, learning_rate));
    t->steps++;
    t->samples += batch->count;
    update_state(m, t->sums + t->n_parameters, batch->count);
    release_sums(t, n);
}

static void distributed_test_step(training *t, const lk_dataset *data, lk_batch *batch, metrics *m)
{
    check(lk_run_shards(t->test_sum, METRICS, data, batch, test_step, t, t->sums));
    update_state(m, t->sums, batch->count);
    release_sums(t, METRICS);
}

/* --- iterating ---------------------------------------------------------------------------------------------------- */

typedef void (*step_fn)(training *t, const lk_dataset *data, lk_batch *batch, metrics *m);

/* Trains on the next `steps` batches of a started loader, or on all that are left; steps negative: all. */
static metrics iterate(training *t, step_fn step, const lk_dataset *data, lk_loader *loader, int64_t steps)
{
    metrics m = {0};
    lk_batch *batch;
    while (m.steps != steps) {
        check(lk_loader_next(loader, &batch));
        if (!batch)
            break;
        step(t, data, batch, &m);
        lk_batch_release(batch);
    }
    read_latest(&m);
    return m;
}

/* Trains epoch after epoch, each over the whole data set. */
static void train_by_epoch(training *t, const lk_dataset *data, lk_loader *train_loader, const lk_dataset *test,
                           lk_loader *test_loader, int epochs)
{
    while (t->epochs < epochs) {
        check(lk_loader_start(train_loader, t->epochs));
        metrics trained = iterate(t, distributed_train_step, data, train_loader, -1);
        check(lk_loader_start(test_loader, 0));
        metrics tested = iterate(t, distributed_test_step, test, test_loader, -1);
        printf("Epoch %d, Loss: %.4f, Accuracy: %.2f, Test Loss: %.4f, Test Accuracy: %.2f\n", (int)t->epochs + 1,
               mean_loss(&trained), percent(&trained), mean_loss(&tested), percent(&tested));
        fflush(stdout);
        end_epoch(t, mean_loss(&trained), percent(&trained));
    }
}

/* Trains batch after batch, as many at a time as you like: here a few of every epoch. */
static void train_by_batch(training *t, const lk_dataset *data, lk_loader *loader, int first_epoch, int epochs)
{
    while (t->epochs < first_epoch + epochs) {
        check(lk_loader_start(loader, t->epochs));
        metrics m = iterate(t, distributed_train_step, data, loader, STEPS_AT_A_TIME);
        printf("Epoch %d, %lld steps, Loss: %.4f, Accuracy: %.2f\n", (int)t->epochs - first_epoch + 1,
               (long long)m.steps, mean_loss(&m), percent(&m));
        fflush(stdout);
        end_epoch(t, mean_loss(&m), percent(&m));
    }
}

static long number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text && *end == '\0' && value >= least && value <= most)
        return value;
    fprintf(stderr, "custom_training: '%s': a number from %ld to %ld is needed\n", text, least, most);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "fashion-mnist";
    int epochs = argc > 2 ? (int)number(argv[2], 1, 1000) : 10;
    lk_dataset_opts limit = {.limit = argc > 3 ? number(argv[3], 0, 60000) : 0};
    long test_batch = argc > 5 ? number(argv[5], 1, 60000) : GLOBAL_BATCH_SIZE;
    training t = new_training(argc > 4 ? argv[4] : "2xcpu");
    t.data = name;
    t.images = argc > 3 ? argv[3] : "0";
    if (argc > 6)
        open_checkpoints(&t, argv[6]);

    lk_dataset *data, *test;
    lk_loader *train_loader, *test_loader;
    lk_loader_opts train_opts = {.batch_size = GLOBAL_BATCH_SIZE, .seed = SEED, .shuffle = true, .workers = 1};
    lk_loader_opts test_opts = {.batch_size = test_batch, .workers = 1};
    check(lk_dataset_open(name, LK_SPLIT_TRAIN, &limit, &data));
    check(lk_dataset_open(name, LK_SPLIT_TEST, &limit, &test));
    check(lk_loader_new(data, &train_opts, &train_loader));
    check(lk_loader_new(test, &test_opts, &test_loader));

    printf("Number of devices: %d\n", lk_strategy_num_replicas(t.strategy));
    train_by_epoch(&t, data, train_loader, test, test_loader, epochs);
    train_by_batch(&t, data, train_loader, epochs, epochs);
    if (t.checkpoints)
        check(lk_checkpoint_writer_wait(t.checkpoints));
    for (int replica = 0; replica < lk_strategy_num_replicas(t.strategy); replica++) {
        char digest[33];
        check(lk_replicas_digest(t.replicas, replica, digest));
        printf("digest %s on %s\n", digest, lk_device_name(lk_strategy_device(t.strategy, replica)));
    }

    lk_loader_release(train_loader);
    lk_loader_release(test_loader);
    lk_dataset_release(data);
    lk_dataset_release(test);
    release_training(&t);
    return 0;
}
