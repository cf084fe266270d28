/* Hand-written loops over lk_replicas and lk_run_shards give the trainer's bits, also if they are stopped and resumed.
 */
#include "small_network.h"
#include "base/folder_testing.h"

#include "base/status.h"
#include "lockstep/autograd.h"
#include "lockstep/build.h"
#include "lockstep/checkpoint.h"
#include "lockstep/log.h"
#include "lockstep/ops.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { SHARDS = 6, BATCH = 16, SAMPLES = 45, BATCHES = 3, EPOCHS = 2, SEED = 3, MAX_VALUES = 64 };

typedef struct loop {
    lk_strategy *strategy;
    lk_model *model;
    lk_replicas *replicas;
    lk_dataset *dataset;
    int n_parameters, n_values; /* values: gradients, statistics, loss */
    int64_t step;
    lk_ledger *used;              /* NULL: uses are not counted */
    lk_checkpoint_writer *writer; /* after every step; NULL: none */
} loop;

static lk_status train_shard(void *user, const lk_shard *shard, lk_tensor **values)
{
    loop *l = user;
    lk_tensor *const *variables = lk_replicas_variables(l->replicas, shard->replica);
    lk_forward_opts opts = {.training = true,
                            .seed = SEED,
                            .step = l->step,
                            .indices = &shard->indices,
                            .statistics = values + l->n_parameters};
    for (int i = 0; i < l->n_values; i++)
        assert_null(values[i]);
    assert_true(shard->index < shard->shards && shard->shards == SHARDS);
    lk_tape *tape = lk_tape_begin(variables, l->n_parameters);
    lk_tensor *logits = lk_model_forward(l->model, variables, shard->images, &opts);
    lk_tensor *losses = lk_sparse_softmax_cross_entropy(logits, shard->labels, LK_REDUCTION_NONE);
    lk_tensor *loss = lk_average_loss(losses, shard->global_batch);
    values[l->n_values - 1] = loss;
    lk_status status = loss ? lk_tape_gradient(tape, loss, NULL, values) : lk_error_status();
    lk_tape_release(tape);
    return status;
}

static void train_batch(loop *l, lk_shard_sum *sum, lk_batch *batch)
{
    lk_tensor *sums[3 * MAX_VALUES];
    double losses[3];
    int k = lk_strategy_num_replicas(l->strategy);
    assert_ok(lk_run_shards(sum, l->n_values, l->dataset, batch, train_shard, l, sums));
    assert_ok(lk_replicas_apply(l->replicas, sums, l->n_values, batch->count, 0.05));
    for (int r = 0; r < k; r++) {
        assert_ok(lk_tensor_item(sums[r * l->n_values + l->n_values - 1], &losses[r]));
        assert_true(losses[r] == losses[0] && losses[r] > 0);
    }
    for (int i = 0; i < k * l->n_values; i++)
        lk_tensor_release(sums[i]);
    l->step++;
}

/* Saves the loop's position. The metric gets worse after the third step. */
static void save(loop *l)
{
    static const lk_checkpoint_setting settings[] = {{"rate", "0.05"}, {"note", NULL}};
    lk_checkpoint_info info = {.seed = SEED,
                               .epoch = l->step / BATCHES,
                               .batch = l->step % BATCHES,
                               .steps = l->step,
                               .metric = "how far",
                               .best = l->step > 3 ? 3 : (double)l->step,
                               .best_epoch = 1,
                               .settings = settings,
                               .n_settings = 2};
    assert_ok(lk_checkpoint_writer_save(l->writer, &info));
}

/* Trains from the loop's position to step `steps`. */
static void train_until(loop *l, int64_t steps)
{
    lk_loader *loader;
    lk_loader_opts opts = {.batch_size = BATCH, .seed = SEED, .shuffle = true, .workers = 1};
    lk_shard_sum *sum = lk_shard_sum_new(l->strategy, SHARDS, l->n_values);
    assert_non_null(sum);
    assert_ok(lk_loader_new(l->dataset, &opts, &loader));
    while (l->step < steps) {
        lk_batch *batch;
        assert_ok(lk_loader_start_at(loader, l->step / BATCHES, l->step % BATCHES));
        while (l->step < steps && lk_loader_next(loader, &batch) == LK_OK && batch) {
            if (l->used)
                assert_ok(lk_ledger_add(l->used, batch->indices, batch->count));
            train_batch(l, sum, batch);
            lk_batch_release(batch);
            if (l->writer)
                save(l);
        }
    }
    lk_loader_release(loader);
    lk_shard_sum_release(sum);
}

static void train_all(loop *l)
{
    train_until(l, EPOCHS * BATCHES);
}

/* The settings are those of the trainer: seed 3, SGD at 0.05. */
static void begin(loop *l, const char *devices)
{
    lk_device *opened[3];
    int k;
    lk_optimizer_opts opts = {.kind = LK_SGD, .skip_nonfinite = true, .sticky = true};
    *l = (loop){.model = small_network()};
    assert_ok(lk_devices_open(devices, opened, 3, &k));
    l->strategy = lk_strategy_new("mirrored", opened, k);
    assert_non_null(l->strategy);
    lk_devices_release(opened, k);
    l->replicas = lk_replicas_new(l->strategy, l->model, &opts, SEED);
    assert_non_null(l->replicas);
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TRAIN, &(lk_dataset_opts){.limit = SAMPLES}, &l->dataset));
    l->n_parameters = lk_model_parameter_count(l->model);
    l->n_values = l->n_parameters + lk_model_statistics_count(l->model) + 1;
    assert_true(l->n_values <= MAX_VALUES);
}

/* Opens a writer that keeps the newest checkpoint. resumed NULL: the training is new. */
static void open_writer(loop *l, const lk_checkpoint *resumed)
{
    l->writer = lk_checkpoint_writer_new(l->replicas, test_dir, resumed, 1);
    assert_non_null(l->writer);
}

static void end(loop *l)
{
    lk_replicas_release(l->replicas);
    lk_strategy_release(l->strategy);
    lk_model_release(l->model);
    lk_dataset_release(l->dataset);
}

static void same_variables(lk_tensor *const *a, lk_tensor *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)lk_tensor_count(a[i]) * sizeof(float);
        float *have = malloc(bytes), *want = malloc(bytes);
        assert_true(have && want);
        assert_ok(lk_tensor_read(a[i], have, bytes));
        assert_ok(lk_tensor_read(b[i], want, bytes));
        assert_memory_equal(have, want, bytes);
        free(have);
        free(want);
    }
}

static void loops_have_the_trainers_bits(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.data.limit_train = SAMPLES;
    config.data.limit_val = 0;
    config.batch_size = BATCH;
    config.devices.shards = SHARDS;
    config.batch_norm.mode = LK_BN_SHARD; /* as the loops */
    config.seed = SEED;
    config.optimizer.base_lr = 0.05;
    config.devices.spec = "1xcpu";
    lk_trainer *trainer = small_trainer(&config);
    char want[33], have[33];
    assert_ok(lk_trainer_run(trainer, 6));
    assert_ok(lk_trainer_digest(trainer, 0, want));
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu"};
    for (int s = 0; s < 3; s++) {
        loop l;
        begin(&l, specs[s]);
        train_all(&l);
        assert_int_equal(lk_optimizer_steps(lk_replicas_optimizer(l.replicas, 0)), 6);
        for (int r = 0; r <= s; r++) {
            same_variables(lk_replicas_variables(l.replicas, r), lk_trainer_variables(trainer, 0),
                           lk_model_variable_count(l.model));
            assert_ok(lk_replicas_digest(l.replicas, r, have));
            assert_string_equal(have, want);
        }
        assert_null(lk_replicas_variables(l.replicas, s + 1));
        end(&l);
    }
    lk_trainer_release(trainer);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static int warnings;

static int begin_counting(void **state)
{
    warnings = 0;
    return make_test_dir(state);
}

static int end_counting(void **state)
{
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
    return remove_test_dir(state);
}

static void count_warnings(void *user, lk_log_level level, const char *message)
{
    (void)user;
    warnings += level == LK_LOG_WARNING && (strstr(message, "bits") || strstr(message, "an older checkpoint stays") ||
                                            strstr(message, "a checkpoint could not be written"));
}

static lk_checkpoint *open_at(lk_checkpoint_which which, int64_t steps)
{
    lk_checkpoint *checkpoint;
    if (lk_checkpoint_open(test_dir, which, &checkpoint) != LK_OK)
        fail_msg("%s", lk_error_message());
    assert_int_equal(lk_checkpoint_get_info(checkpoint)->steps, steps);
    return checkpoint;
}

/* A loop that is stopped after any step and resumed on other devices gives the same bits and uses each sample once an
 * epoch. */
static void loops_resume_in_the_middle_of_an_epoch(void **state)
{
    (void)state;
    static const char *const specs[] = {"2xcpu", "3xcpu", "1xcpu"};
    char want[33], have[33];
    loop l;
    begin(&l, "2xcpu");
    train_all(&l);
    assert_ok(lk_replicas_digest(l.replicas, 0, want));
    end(&l);
    lk_log_set(count_warnings, NULL, LK_LOG_WARNING);
    for (int64_t stop = 1; stop < EPOCHS * BATCHES; stop++) {
        lk_ledger_report report;
        lk_ledger *used;
        assert_ok(lk_ledger_new(SAMPLES, &used));
        begin(&l, specs[stop % 3]);
        l.used = used;
        open_writer(&l, NULL);
        train_until(&l, stop);
        lk_checkpoint_writer_release(l.writer);
        end(&l);

        lk_checkpoint *checkpoint = open_at(LK_CHECKPOINT_LAST, stop);
        begin(&l, specs[(stop + 1) % 3]);
        assert_ok(lk_replicas_restore(l.replicas, checkpoint));
        l.step = lk_checkpoint_get_info(checkpoint)->steps;
        l.used = used;
        open_writer(&l, checkpoint);
        train_all(&l);
        assert_ok(lk_checkpoint_writer_wait(l.writer));
        lk_checkpoint_writer_release(l.writer);
        assert_ok(lk_replicas_digest(l.replicas, 0, have));
        assert_string_equal(have, want);
        end(&l);
        lk_checkpoint_release(checkpoint);
        lk_ledger_check(used, &report);
        assert_true(report.unused == 0 && report.used_once == 0);
        const uint8_t *uses = lk_ledger_uses(used, &(int64_t){0});
        for (int i = 0; i < SAMPLES; i++)
            assert_int_equal(uses[i], EPOCHS);
        lk_ledger_release(used);
        empty_test_dir();
    }
    assert_int_equal(warnings, 0);
}

static bool is_kept(int64_t steps)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-%08d", test_dir, (int)steps);
    return access(path, F_OK) == 0;
}

/* The folder keeps the newest checkpoint and the best, which is that of the first epoch's end, with the loop's
 * settings. A second writer in the same folder is refused. */
static void loops_keep_the_newest_and_the_best(void **state)
{
    (void)state;
    loop l;
    begin(&l, "1xcpu");
    open_writer(&l, NULL);
    assert_null(lk_checkpoint_writer_new(l.replicas, test_dir, NULL, 1));
    assert_int_equal(lk_error_status(), LK_ERR_STATE);
    lk_error_clear();
    train_all(&l);
    assert_ok(lk_checkpoint_writer_wait(l.writer));
    for (int64_t steps = 1; steps <= 6; steps++)
        assert_int_equal(is_kept(steps), steps == 3 || steps == 6);
    lk_checkpoint_release(open_at(LK_CHECKPOINT_LAST, 6));
    lk_checkpoint *best = open_at(LK_CHECKPOINT_BEST, 3);
    const lk_checkpoint_info *info = lk_checkpoint_get_info(best);
    assert_string_equal(info->metric, "how far");
    assert_true(info->best == 3 && info->best_epoch == 1 && info->updates == 3 && info->seed == SEED);
    assert_string_equal(lk_checkpoint_get_setting(best, "rate"), "0.05");
    assert_string_equal(lk_checkpoint_get_setting(best, "note"), "");

    /* Continuing from an earlier checkpoint puts later ones aside. */
    lk_checkpoint_writer_release(l.writer);
    assert_null(lk_checkpoint_writer_new(l.replicas, test_dir, NULL, 1));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
    open_writer(&l, best);
    assert_true(!is_kept(6) && is_kept(3));
    lk_checkpoint_writer_release(l.writer);
    lk_checkpoint_release(best);
    end(&l);
}

/* The loop may be killed after it has written the best checkpoint and before best.json names it. */
static void loops_keep_a_best_that_best_json_does_not_name(void **state)
{
    (void)state;
    char path[128];
    loop l;
    begin(&l, "1xcpu");
    open_writer(&l, NULL);
    train_until(&l, 3);
    lk_checkpoint_writer_release(l.writer);
    snprintf(path, sizeof path, "%s/best.json", test_dir);
    assert_int_equal(unlink(path), 0);
    lk_checkpoint *last = open_at(LK_CHECKPOINT_LAST, 3);
    open_writer(&l, last);
    train_all(&l);
    lk_checkpoint_writer_release(l.writer);
    lk_checkpoint_release(last);
    lk_checkpoint_release(open_at(LK_CHECKPOINT_BEST, 3));
    end(&l);
}

typedef struct reading {
    atomic_bool over;
    int opened;
    lk_error_state error; /* the first one */
} reading;

static void *read_checkpoints(void *argument)
{
    static const lk_checkpoint_which which[] = {LK_CHECKPOINT_LAST, LK_CHECKPOINT_BEST};
    reading *r = argument;
    while (!atomic_load(&r->over) && r->error.status == LK_OK) {
        lk_checkpoint *checkpoint;
        if (lk_checkpoint_open(test_dir, which[r->opened++ % 2], &checkpoint) != LK_OK)
            lk__error_save(&r->error);
        else
            lk_checkpoint_release(checkpoint);
    }
    return NULL;
}

/* A reader always finds a complete checkpoint while others are written and removed. */
static void checkpoints_are_read_while_they_are_written(void **state)
{
    (void)state;
    loop l;
    reading r = {.opened = 0};
    pthread_t thread;
    begin(&l, "1xcpu");
    open_writer(&l, NULL);
    lk_checkpoint_info info = {.metric = "how far"};
    for (int64_t i = 1; i <= 400; i++) {
        info.epoch = info.best_epoch = info.steps = i;
        info.best = (double)i;
        assert_ok(lk_checkpoint_writer_save(l.writer, &info));
        if (i > 1)
            continue;
        assert_ok(lk_checkpoint_writer_wait(l.writer));
        assert_int_equal(pthread_create(&thread, NULL, read_checkpoints, &r), 0);
    }
    atomic_store(&r.over, true);
    pthread_join(thread, NULL);
    lk_checkpoint_writer_release(l.writer);
    if (r.error.status != LK_OK)
        fail_msg("after %d: %s", r.opened, r.error.message);
    assert_true(r.opened > 0);
    end(&l);
}

/* A checkpoint to which a user has added something stays, with one warning; the other old ones are removed. */
static void older_checkpoints_that_stay_are_reported_once(void **state)
{
    (void)state;
    char path[128];
    loop l;
    begin(&l, "1xcpu");
    open_writer(&l, NULL);
    lk_log_set(count_warnings, NULL, LK_LOG_WARNING);
    for (int64_t i = 1; i <= 5; i++) {
        assert_ok(lk_checkpoint_writer_save(l.writer, &(lk_checkpoint_info){.steps = i}));
        assert_ok(lk_checkpoint_writer_wait(l.writer));
        snprintf(path, sizeof path, "%s/checkpoint-00000002/exported", test_dir);
        assert_true(i != 2 || mkdir(path, 0700) == 0);
    }
    for (int64_t i = 1; i <= 5; i++)
        assert_int_equal(is_kept(i), i == 2 || i == 5);
    assert_int_equal(access(path, F_OK), 0);
    lk_checkpoint *stays;
    snprintf(path, sizeof path, "%s/checkpoint-00000002", test_dir);
    assert_ok(lk_checkpoint_open(path, LK_CHECKPOINT_LAST, &stays));
    lk_checkpoint_release(stays);
    assert_int_equal(warnings, 1);
    lk_checkpoint_writer_release(l.writer);
    end(&l);
}

/* The second checkpoint cannot be written: a folder that is not empty has its temporary name. */
static void begin_with_a_failing_save(loop *l)
{
    char path[128];
    begin(l, "1xcpu");
    open_writer(l, NULL);
    snprintf(path, sizeof path, "%s/.unfinished-checkpoint-00000002", test_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.unfinished-checkpoint-00000002/stays", test_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(setenv("LOCKSTEP_CHECKPOINT_SLOW", "20", 1), 0);
    for (int64_t i = 1; i <= 2; i++)
        assert_ok(lk_checkpoint_writer_save(l->writer, &(lk_checkpoint_info){.steps = i}));
    lk_log_set(count_warnings, NULL, LK_LOG_WARNING);
}

/* A failed save is reported once: by lk_checkpoint_writer_wait, or by a warning if nobody waits. */
static void failed_saves_are_reported(void **state)
{
    (void)state;
    for (int asked = 0; asked < 3; asked++) {
        loop l;
        warnings = 0;
        begin_with_a_failing_save(&l);
        if (asked == 1)
            assert_ok(lk_checkpoint_writer_save(l.writer, &(lk_checkpoint_info){.steps = 3}));
        unsetenv("LOCKSTEP_CHECKPOINT_SLOW");
        if (asked)
            assert_int_equal(lk_checkpoint_writer_wait(l.writer), asked == 1 ? LK_OK : LK_ERR_IO);
        lk_error_clear();
        lk_checkpoint_writer_release(l.writer);
        assert_int_equal(warnings, asked < 2);
        end(&l);
        empty_test_dir();
    }
}

/* A save fails while another writer holds the folder, and a checkpoint cannot hold other checkpoints. */
static void writes_only_where_no_other_does(void **state)
{
    (void)state;
    char path[128];
    const lk_checkpoint_info later = {.steps = 2};
    loop l;
    begin(&l, "1xcpu");
    open_writer(&l, NULL);
    assert_int_equal(setenv("LOCKSTEP_CHECKPOINT_SLOW", "20", 1), 0);
    assert_ok(lk_checkpoint_writer_save(l.writer, &(lk_checkpoint_info){.steps = 1}));
    assert_int_equal(lk_replicas_save(l.replicas, test_dir, &later), LK_ERR_STATE);
    assert_non_null(strstr(lk_error_message(), "another training writes its checkpoints there"));
    lk_error_clear();
    assert_ok(lk_checkpoint_writer_wait(l.writer));
    unsetenv("LOCKSTEP_CHECKPOINT_SLOW");
    lk_checkpoint_writer_release(l.writer);
    lk_checkpoint_release(open_at(LK_CHECKPOINT_LAST, 1));
    assert_ok(lk_replicas_save(l.replicas, test_dir, &later));
    lk_checkpoint_release(open_at(LK_CHECKPOINT_LAST, 2));

    /* A checkpoint from before the first step, or from a loop that does not count steps, is not replaced either. */
    char other[80];
    snprintf(other, sizeof other, "%s/other", test_dir);
    assert_ok(lk_replicas_save(l.replicas, other, &(lk_checkpoint_info){.seed = SEED}));
    assert_null(lk_checkpoint_writer_new(l.replicas, other, NULL, 1));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "holds checkpoints of another training, after 0 steps"));
    lk_error_clear();

    snprintf(path, sizeof path, "%s/checkpoint-00000002", test_dir);
    assert_int_equal(lk_replicas_save(l.replicas, path, &later), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "is a checkpoint itself"));
    lk_error_clear();
    assert_null(lk_checkpoint_writer_new(l.replicas, path, NULL, 1));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    lk_error_clear();
    end(&l);
}

/* Implementations of another processor round differently. */
static void warns_that_bits_will_differ(void **state)
{
    (void)state;
    char path[128];
    loop l;
    begin(&l, "1xcpu");
    assert_ok(lk_replicas_save(l.replicas, test_dir, &(lk_checkpoint_info){.steps = 1}));
    snprintf(path, sizeof path, "%s/checkpoint-00000001/implementations", test_dir);
    char *text = contents_of(path, NULL);
    assert_non_null(strstr(text, lk_build_has("oneDNN") ? "device cpu, instruction set " : "device cpu\n"));
    free(text);
    lk_log_set(count_warnings, NULL, LK_LOG_WARNING);
    lk_checkpoint *checkpoint = open_at(LK_CHECKPOINT_LAST, 1);
    assert_ok(lk_replicas_restore(l.replicas, checkpoint));
    assert_int_equal(warnings, 0);
    static const char other[] = "lockstep 0.0.1, device cpu, instruction set none, oneDNN 0.1\n";
    put_bytes(path, other, strlen(other)); /* after lk_checkpoint_open has checked it */
    assert_ok(lk_replicas_restore(l.replicas, checkpoint));
    assert_int_equal(warnings, 1);
    lk_checkpoint_release(checkpoint);
    end(&l);
}

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

static lk_status fail_at_the_second(void *user, const lk_shard *shard, lk_tensor **values)
{
    (void)user;
    if (shard->index == 1)
        return LK_ERR_STATE;
    values[0] = lk_full(shard->device, LK_F32, LK_SCALAR, 1);
    return values[0] ? LK_OK : lk_error_status();
}

static lk_status count_samples(void *user, const lk_shard *shard, lk_tensor **values)
{
    (void)user;
    values[0] = lk_full(shard->device, LK_F32, LK_SCALAR, (double)lk_tensor_count(shard->labels));
    return values[0] ? LK_OK : lk_error_status();
}

/* After a failure the sum is empty and can take the next batch. */
static void a_failed_shard_leaves_the_sum_usable(void **state)
{
    (void)state;
    loop l;
    lk_loader *loader;
    lk_batch *batch;
    lk_tensor *sums[2];
    double total;
    lk_loader_opts opts = {.batch_size = BATCH};
    begin(&l, "2xcpu");
    lk_shard_sum *sum = lk_shard_sum_new(l.strategy, SHARDS, 1);
    assert_non_null(sum);
    assert_ok(lk_loader_new(l.dataset, &opts, &loader));
    assert_ok(lk_loader_start(loader, 0));
    assert_ok(lk_loader_next(loader, &batch));
    assert_int_equal(lk_run_shards(sum, 1, l.dataset, batch, fail_at_the_second, NULL, sums), LK_ERR_STATE);
    assert_non_null(strstr(lk_error_message(), "the function failed for a shard"));
    assert_null(sums[0]);
    assert_null(sums[1]);
    lk_error_clear();
    assert_ok(lk_run_shards(sum, 1, l.dataset, batch, count_samples, NULL, sums));
    for (int r = 0; r < 2; r++) {
        assert_ok(lk_tensor_item(sums[r], &total));
        assert_true(total == BATCH);
        lk_tensor_release(sums[r]);
    }
    lk_batch_release(batch);
    lk_loader_release(loader);
    lk_shard_sum_release(sum);
    end(&l);
}

static void replicas_need_no_optimizer(void **state)
{
    (void)state;
    loop l;
    char digest[33];
    begin(&l, "1xcpu");
    lk_replicas *plain = lk_replicas_new(l.strategy, l.model, NULL, SEED);
    assert_non_null(plain);
    same_variables(lk_replicas_variables(plain, 0), lk_replicas_variables(l.replicas, 0),
                   lk_model_variable_count(l.model));
    assert_null(lk_replicas_optimizer(plain, 0));
    expect_error(lk_replicas_apply(plain, NULL, 0, 1, 0.1), LK_ERR_STATE,
                 "replicas: there is no optimizer to apply gradients with");
    expect_error(lk_replicas_digest(plain, 1, digest), LK_ERR_ARGUMENT, "digest: there is no replica 1");
    lk_replicas_release(plain);
    end(&l);
}

/* The order of a sum's operands decides the sign of NaN. */
static void a_digest_has_one_nan(void **state)
{
    (void)state;
    loop l;
    char digests[2][33];
    begin(&l, "2xcpu");
    for (int r = 0; r < 2; r++) {
        lk_tensor *variable = lk_replicas_variables(l.replicas, r)[0];
        int64_t count = lk_tensor_count(variable);
        float *values = calloc((size_t)count, sizeof *values);
        assert_non_null(values);
        values[1] = r ? NAN : -NAN;
        assert_ok(lk_tensor_write(variable, values, (size_t)count * sizeof *values));
        free(values);
        assert_ok(lk_replicas_digest(l.replicas, r, digests[r]));
    }
    assert_string_equal(digests[0], digests[1]);
    end(&l);
}

/* Wrong sums of the second replica change nothing of the first. */
static void wrong_sums_change_no_replica(void **state)
{
    (void)state;
    loop l;
    char before[33], after[33];
    lk_tensor *sums[2 * MAX_VALUES] = {NULL};
    begin(&l, "2xcpu");
    int k = l.n_values, statistics = lk_model_statistics_count(l.model), last = k + l.n_parameters + statistics - 1;
    assert_true(statistics > 0);
    assert_ok(lk_replicas_digest(l.replicas, 0, before));
    lk_scope_begin();
    lk_device *const devices[] = {lk_strategy_device(l.strategy, 0), lk_strategy_device(l.strategy, 1)};
    for (int r = 0; r < 2; r++) {
        lk_tensor *const *variables = lk_replicas_variables(l.replicas, r);
        for (int i = 0; i < l.n_parameters; i++)
            sums[r * k + i] = lk_ones(devices[r], LK_F32, lk_tensor_shape(variables[i]));
        for (int i = 0; i < statistics; i++) {
            int64_t channels = lk_tensor_shape(variables[l.n_parameters + 2 * i]).dim[0];
            sums[r * k + l.n_parameters + i] = lk_ones(devices[r], LK_F64, LK_SHAPE(2, channels));
        }
    }
    lk_tensor *good = sums[last];
    sums[last] = NULL;
    expect_error(lk_replicas_apply(l.replicas, sums, k, 8, 0.1), LK_ERR_ARGUMENT,
                 "replicas: statistics 1 of batch-norm are NULL");
    sums[last] = lk_ones(devices[1], LK_F64, LK_SHAPE(2, 1));
    expect_error(lk_replicas_apply(l.replicas, sums, k, 8, 0.1), LK_ERR_SHAPE,
                 "replicas: a sum of batch-norm has shape [2,1]; it must be [2,6]");
    sums[last] = sums[last - k];
    expect_error(lk_replicas_apply(l.replicas, sums, k, 8, 0.1), LK_ERR_DEVICE,
                 "replicas: statistics 1 of batch-norm are on cpu:0; the variables are on cpu:1");
    sums[last] = good;
    expect_error(lk_replicas_apply(l.replicas, sums, k, 0, 0.1), LK_ERR_ARGUMENT,
                 "replicas: 0 samples; there must be at least 1");
    sums[k] = lk_ones(devices[1], LK_F32, LK_SHAPE(1));
    expect_error(lk_replicas_apply(l.replicas, sums, k, 8, 0.1), LK_ERR_SHAPE,
                 "optimizer: gradient 0 has shape [1]; its parameter has [4,1,3,3]");
    lk_scope_end();
    for (int r = 0; r < 2; r++) {
        assert_ok(lk_replicas_digest(l.replicas, r, after));
        assert_string_equal(after, before);
    }
    assert_int_equal(lk_optimizer_steps(lk_replicas_optimizer(l.replicas, 0)), 0);
    end(&l);
}

#define COUNTING_TEST(function) cmocka_unit_test_setup_teardown(function, begin_counting, end_counting)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_have_the_trainers_bits),
        COUNTING_TEST(loops_resume_in_the_middle_of_an_epoch),
        COUNTING_TEST(loops_keep_the_newest_and_the_best),
        COUNTING_TEST(loops_keep_a_best_that_best_json_does_not_name),
        COUNTING_TEST(checkpoints_are_read_while_they_are_written),
        COUNTING_TEST(older_checkpoints_that_stay_are_reported_once),
        COUNTING_TEST(failed_saves_are_reported),
        COUNTING_TEST(writes_only_where_no_other_does),
        COUNTING_TEST(warns_that_bits_will_differ),
        cmocka_unit_test(a_failed_shard_leaves_the_sum_usable),
        cmocka_unit_test(replicas_need_no_optimizer),
        cmocka_unit_test(a_digest_has_one_nan),
        cmocka_unit_test(wrong_sums_change_no_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
