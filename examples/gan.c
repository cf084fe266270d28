/* A training loop of your own with two models and two optimizers: a generative adversarial network (Goodfellow et al.
 * 2014) that learns to draw digits, on several devices.
 *
 *   gan [DATA [EPOCHS [IMAGES [DEVICES [SHEET [CHECKPOINTS]]]]]]
 *
 * DATA: mnist (default), fashion-mnist or synthetic. EPOCHS: default 20. IMAGES: train on the first IMAGES; 0: all
 * (default). DEVICES: 1xcpu, 2xcpu (default), … up to SHARDS devices. SHEET: file for a picture of samples, default
 * gan.png. CHECKPOINTS: a folder for a checkpoint of each model after every epoch; if it has some, training resumes.
 *
 * The noise of a sample depends on the seed, the step and its position in the batch alone, and a batch is cut into
 * SHARDS parts; so the digests of both models are the same for any number of devices. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

enum { SHARDS = 4, BATCH_SIZE = 64, NOISE = 64, SIZE = 28, PIXELS = SIZE * SIZE, SAMPLES = 64, SEED = 0, KEEP = 2 };

static const double learning_rate = 2e-4;

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "gan: %s\n", lk_error_message());
    exit(1);
}

static void check_new(const void *made)
{
    check(made ? LK_OK : lk_error_status());
}

/* --- two models --------------------------------------------------------------------------------------------------- */

static lk_layer *dense(int64_t units, lk_activation activation)
{
    return LK_SEQUENTIAL(lk_layer_dense(units, NULL), lk_layer_activation(activation));
}

/* Noise [N, NOISE, 1, 1] → images [N, 1, SIZE, SIZE] in [-1, 1]. */
static lk_model *create_generator(void)
{
    lk_layer *layers = LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_named("hidden1", dense(128, LK_LEAKY_RELU)),
                                     lk_layer_named("hidden2", dense(256, LK_LEAKY_RELU)),
                                     lk_layer_named("pixels", dense(PIXELS, LK_TANH)), lk_layer_reshape(1, SIZE, SIZE));
    return lk_model_build("generator", layers, (lk_model_input){NOISE, 1, 1, 0});
}

/* Images → [N, 1]; the larger the value, the more an image looks real. */
static lk_model *create_discriminator(void)
{
    lk_layer *layers = LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_named("hidden1", dense(256, LK_LEAKY_RELU)),
                                     lk_layer_named("hidden2", dense(128, LK_LEAKY_RELU)),
                                     lk_layer_named("verdict", lk_layer_dense(1, NULL)));
    return lk_model_build("discriminator", layers, (lk_model_input){1, SIZE, SIZE, 1});
}

/* A model, with its variables and their optimizer on every device. */
typedef struct player {
    lk_model *model;
    lk_replicas *replicas;
    int n_parameters;
} player;

static player new_player(lk_strategy *strategy, lk_model *model)
{
    const lk_optimizer_opts adam = {.kind = LK_ADAM, .beta1 = 0.5};
    check_new(model);
    player p = {model, lk_replicas_new(strategy, model, &adam, SEED), lk_model_parameter_count(model)};
    check_new(p.replicas);
    return p;
}

static void release_player(const player *p)
{
    lk_replicas_release(p->replicas);
    lk_model_release(p->model);
}

static lk_tensor *forward(const player *p, int replica, lk_tensor *x)
{
    return lk_model_forward(p->model, lk_replicas_variables(p->replicas, replica), x, NULL);
}

/* --- one loop ----------------------------------------------------------------------------------------------------- */

/* A step sums over shards: the gradients of the discriminator, those of the generator, and both losses. */
typedef struct gan {
    lk_strategy *strategy;
    player generator, discriminator;
    int n_values;
    lk_shard_sum *sum;
    lk_tensor **sums; /* of the latest step: n_values for each replica */
    int64_t step, epochs;
    lk_checkpoint_writer *generator_checkpoints, *discriminator_checkpoints; /* NULL: none are written */
    double discriminator_loss, generator_loss;                               /* sums over the samples of an epoch */
} gan;

static gan new_gan(const char *devices_spec)
{
    gan g = {0};
    lk_device *devices[SHARDS];
    int num_devices;
    check(lk_devices_open(devices_spec, devices, SHARDS, &num_devices));
    g.strategy = lk_strategy_new("mirrored", devices, num_devices);
    check_new(g.strategy);
    lk_devices_release(devices, num_devices); /* the strategy keeps its own references */
    g.generator = new_player(g.strategy, create_generator());
    g.discriminator = new_player(g.strategy, create_discriminator());
    g.n_values = g.discriminator.n_parameters + g.generator.n_parameters + 2;
    g.sum = lk_shard_sum_new(g.strategy, SHARDS, g.n_values);
    check_new(g.sum);
    g.sums = calloc((size_t)num_devices * (size_t)g.n_values, sizeof *g.sums);
    if (!g.sums)
        abort();
    return g;
}

static void release_gan(gan *g)
{
    lk_checkpoint_writer_release(g->generator_checkpoints);
    lk_checkpoint_writer_release(g->discriminator_checkpoints);
    free(g->sums);
    lk_shard_sum_release(g->sum);
    release_player(&g->generator);
    release_player(&g->discriminator);
    lk_strategy_release(g->strategy);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* Opens the last checkpoint in a folder; NULL: there is none. */
static lk_checkpoint *open_checkpoint(const char *folder)
{
    lk_checkpoint *checkpoint;
    lk_status status = lk_checkpoint_open(folder, LK_CHECKPOINT_LAST, &checkpoint);
    if (status == LK_ERR_NOT_FOUND)
        lk_error_clear();
    else
        check(status);
    return checkpoint;
}

/* Opens the checkpoint after as many steps as the other model's, which may be older than the last one if the program
 * was killed between writing the two. */
static lk_checkpoint *go_back(const char *folder, lk_checkpoint *last, const lk_checkpoint *other)
{
    char path[1200];
    int64_t steps = lk_checkpoint_get_info(other)->steps;
    if (lk_checkpoint_get_info(last)->steps <= steps)
        return last;
    lk_checkpoint_release(last);
    snprintf(path, sizeof path, "%s/checkpoint-%08lld", folder, (long long)steps);
    check(lk_checkpoint_open(path, LK_CHECKPOINT_LAST, &last));
    return last;
}

/* Each model has a folder of its own in CHECKPOINTS. If one has no checkpoint yet, training begins anew. */
static void open_checkpoints(gan *g, const char *folder)
{
    char first[1100], second[1100];
    snprintf(first, sizeof first, "%s/generator", folder);
    snprintf(second, sizeof second, "%s/discriminator", folder);
    lk_checkpoint *a = open_checkpoint(first), *b = open_checkpoint(second);
    if (a && b) {
        a = go_back(first, a, b);
        b = go_back(second, b, a);
        check(lk_replicas_restore(g->generator.replicas, a));
        check(lk_replicas_restore(g->discriminator.replicas, b));
        g->step = lk_checkpoint_get_info(a)->steps;
        g->epochs = lk_checkpoint_get_info(a)->epoch;
        printf("Going on after %lld epochs\n", (long long)g->epochs);
    }
    g->generator_checkpoints = lk_checkpoint_writer_new(g->generator.replicas, first, a, KEEP);
    check_new(g->generator_checkpoints);
    g->discriminator_checkpoints = lk_checkpoint_writer_new(g->discriminator.replicas, second, b, KEEP);
    check_new(g->discriminator_checkpoints);
    lk_checkpoint_release(a);
    lk_checkpoint_release(b);
}

/* Threads write both checkpoints. Those of the last epoch must be on disk before the next ones begin, so that no folder
 * is ahead of the other by more than it keeps. */
static void end_epoch(gan *g)
{
    g->epochs++;
    const lk_checkpoint_info info = {.seed = SEED, .epoch = g->epochs, .steps = g->step};
    if (!g->generator_checkpoints)
        return;
    check(lk_checkpoint_writer_wait(g->generator_checkpoints));
    check(lk_checkpoint_writer_wait(g->discriminator_checkpoints));
    check(lk_checkpoint_writer_save(g->generator_checkpoints, &info));
    check(lk_checkpoint_writer_save(g->discriminator_checkpoints, &info));
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* The noise of samples [begin, end) of a batch of `count`: every shard takes its part of the same numbers. */
static lk_tensor *noise(lk_device *device, const char *purpose, int64_t step, int64_t count, lk_range part)
{
    lk_random_key key = {.seed = SEED, .purpose = lk_random_purpose(purpose), .epoch = (uint64_t)step};
    lk_tensor *all = lk_normal(device, LK_F32, LK_SHAPE(count, NOISE, 1, 1), 0, 1, key);
    return lk_slice(all, 0, part.begin, part.end);
}

/* The loss of the discriminator if `images` are real (target 1) or generated (target 0). */
static lk_tensor *verdict_loss(const gan *g, const lk_shard *shard, lk_tensor *images, double target)
{
    lk_tensor *logits = lk_reshape(forward(&g->discriminator, shard->replica, images), LK_SHAPE(-1));
    lk_tensor *targets = lk_full(shard->device, LK_F32, LK_SHAPE(lk_tensor_shape(shard->images).dim[0]), target);
    return lk_average_loss(lk_sigmoid_cross_entropy(logits, targets), shard->global_batch);
}

/* Loss and gradients of the discriminator. Images are generated before the tape opens, so they count as data. */
static lk_tensor *train_discriminator(const gan *g, const lk_shard *shard, lk_tensor *z, lk_tensor **gradients)
{
    const player *p = &g->discriminator;
    lk_tensor *real = lk_add_scalar(lk_mul_scalar(shard->images, 2), -1); /* [0, 1] → [-1, 1] */
    lk_tensor *made_up = forward(&g->generator, shard->replica, z);
    lk_tape *tape = lk_tape_begin(lk_replicas_variables(p->replicas, shard->replica), p->n_parameters);
    lk_tensor *loss = lk_add(verdict_loss(g, shard, real, 1), verdict_loss(g, shard, made_up, 0));
    lk_tape_gradient(tape, loss, NULL, gradients);
    lk_tape_release(tape);
    return loss;
}

/* Loss and gradients of the generator: the loss is low if the discriminator takes its images for real ones. Backward
 * goes through the discriminator, but the tape does not watch its variables. */
static lk_tensor *train_generator(const gan *g, const lk_shard *shard, lk_tensor *z, lk_tensor **gradients)
{
    const player *p = &g->generator;
    lk_tape *tape = lk_tape_begin(lk_replicas_variables(p->replicas, shard->replica), p->n_parameters);
    lk_tensor *loss = verdict_loss(g, shard, forward(p, shard->replica, z), 1);
    lk_tape_gradient(tape, loss, NULL, gradients);
    lk_tape_release(tape);
    return loss;
}

/* Computes both models for one shard, on the device that owns it. Every call returns at once, and a NULL argument gives
 * NULL, so one check at the end is enough. */
static lk_status train_shard(void *user, const lk_shard *shard, lk_tensor **values)
{
    const gan *g = user;
    lk_tensor **generator_values = values + g->discriminator.n_parameters, **losses = values + g->n_values - 2;
    lk_range own = lk_part(shard->global_batch, shard->shards, shard->index);
    lk_tensor *z = noise(shard->device, "noise", g->step, shard->global_batch, own);
    losses[0] = train_discriminator(g, shard, z, values);
    losses[1] = train_generator(g, shard, z, generator_values);
    return lk_error_status();
}

/* Waits for the losses of the latest step, means over `samples`, and releases its sums. */
static void finish_step(gan *g, int64_t samples)
{
    double losses[2];
    if (!g->sums[0])
        return;
    check(lk_tensor_item(g->sums[g->n_values - 2], &losses[0]));
    check(lk_tensor_item(g->sums[g->n_values - 1], &losses[1]));
    g->discriminator_loss += losses[0] * (double)samples;
    g->generator_loss += losses[1] * (double)samples;
    for (int i = 0; i < lk_strategy_num_replicas(g->strategy) * g->n_values; i++) {
        lk_tensor_release(g->sums[i]);
        g->sums[i] = NULL;
    }
}

static void train_step(gan *g, const lk_dataset *data, lk_batch *batch)
{
    check(lk_run_shards(g->sum, g->n_values, data, batch, train_shard, g, g->sums));
    check(lk_replicas_apply(g->discriminator.replicas, g->sums, g->n_values, batch->count, learning_rate));
    check(lk_replicas_apply(g->generator.replicas, g->sums + g->discriminator.n_parameters, g->n_values, batch->count,
                            learning_rate));
    finish_step(g, batch->count);
    g->step++;
}

static void train(gan *g, const lk_dataset *data, lk_loader *loader, int epochs)
{
    while (g->epochs < epochs) {
        lk_batch *batch;
        g->discriminator_loss = g->generator_loss = 0;
        check(lk_loader_start(loader, g->epochs));
        for (check(lk_loader_next(loader, &batch)); batch; check(lk_loader_next(loader, &batch))) {
            train_step(g, data, batch);
            lk_batch_release(batch);
        }
        double samples = (double)lk_dataset_count(data);
        printf("Epoch %d: discriminator loss %.4f, generator loss %.4f\n", (int)g->epochs + 1,
               g->discriminator_loss / samples, g->generator_loss / samples);
        fflush(stdout);
        end_epoch(g);
    }
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

static void write_samples(const gan *g, const char *path)
{
    static float images[SAMPLES][PIXELS];
    lk_scope_begin();
    lk_device *device = lk_strategy_device(g->strategy, 0);
    lk_tensor *z = noise(device, "samples", 0, SAMPLES, (lk_range){0, SAMPLES});
    check(lk_tensor_read(forward(&g->generator, 0, z), images, sizeof images));
    lk_scope_end();
    lk_contact_sheet sheet = {.title = "Samples of the generator",
                              .images = images,
                              .dtype = LK_F32,
                              .count = SAMPLES,
                              .channels = 1,
                              .height = SIZE,
                              .width = SIZE,
                              .black = -1,
                              .white = 1,
                              .columns = 8,
                              .scale = 2};
    lk_status status = lk_contact_sheet_write(&sheet, path);
    if (status == LK_ERR_UNSUPPORTED) { /* a build without libcairo */
        printf("no picture of samples: %s\n", lk_error_message());
        return;
    }
    check(status);
    printf("%d samples: %s\n", SAMPLES, path);
}

static void print_digests(const player *p, int num_replicas)
{
    for (int replica = 0; replica < num_replicas; replica++) {
        char digest[33];
        check(lk_replicas_digest(p->replicas, replica, digest));
        printf("%s: digest %s\n", lk_model_name(p->model), digest);
    }
}

static long number(const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text && *end == '\0' && value >= least && value <= most)
        return value;
    fprintf(stderr, "gan: '%s': a number from %ld to %ld is needed\n", text, least, most);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "mnist";
    int epochs = argc > 2 ? (int)number(argv[2], 1, 1000) : 20;
    lk_dataset_opts limit = {.limit = argc > 3 ? number(argv[3], 0, 60000) : 0};
    gan g = new_gan(argc > 4 ? argv[4] : "2xcpu");

    lk_dataset *data;
    lk_loader *loader;
    lk_loader_opts opts = {.batch_size = BATCH_SIZE, .seed = SEED, .shuffle = true, .workers = 1};
    check(lk_dataset_open(name, LK_SPLIT_TRAIN, &limit, &data));
    check(lk_loader_new(data, &opts, &loader));
    if (argc > 6)
        open_checkpoints(&g, argv[6]);
    train(&g, data, loader, epochs);
    print_digests(&g.generator, lk_strategy_num_replicas(g.strategy));
    print_digests(&g.discriminator, lk_strategy_num_replicas(g.strategy));
    write_samples(&g, argc > 5 ? argv[5] : "gan.png");

    lk_loader_release(loader);
    lk_dataset_release(data);
    release_gan(&g);
    return 0;
}
