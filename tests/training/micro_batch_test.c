/* Micro-batches give the same bits with both executors and on any number of devices; wrong sizes are refused. */
#include "executors.h"
#include "base/folder_testing.h"

static lk_train_config in_pieces(int64_t size)
{
    lk_train_config config = one_epoch();
    config.execution.micro_batch = size;
    return config;
}

/* A shard of 16 samples becomes one piece of eleven and one of five. */
static void pieces_may_differ_in_size(void **state)
{
    (void)state;
    executors_agree(in_pieces(11));
}

static void with_accumulation_and_label_smoothing(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(8);
    config.accumulate = 2;
    config.optimizer.label_smoothing = 0.1;
    config.checks.top_k = 3;
    executors_agree(config);
}

static void in_bf16(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(8);
    config.execution.dtype = LK_PRECISION_BF16;
    executors_agree(config);
}

/* Gradients are complete only after the last piece; they are sent in several buckets nevertheless. */
static void with_recomputation_and_buckets(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(4);
    outcome plain = train(&config);
    config.execution.recompute = true;
    config.devices.bucket_mb = 0.01;
    config.devices.spec = "2xcpu";
    outcome other = train(&config);
    same(&plain, &other);
}

/* Layers with large outputs and few parameters. */
static const char many_outputs[] = "conv2d 8 kernel=3\nrelu\nglobal_avg_pool\ndropout 0.5\ndense classes\n";

static const char *write_model(void)
{
    put_bytes(path_of("model.lk"), many_outputs, strlen(many_outputs));
    return path_of("model.lk");
}

/* Dropout is keyed by sample, so a piece drops what the shard would have dropped. */
static void dropout_is_the_same_in_pieces(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(8);
    config.model = write_model();
    executors_agree(config);
    config.execution.micro_batch = 0;
    outcome whole = train(&config);
    config.execution.micro_batch = 8;
    outcome pieces = train(&config);
    assert_true(fabs(mean_loss(&whole) - mean_loss(&pieces)) <= 1e-5 * mean_loss(&whole));
}

/* Two pieces are added in the order in which two shards are. */
static void two_pieces_are_two_shards(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(16);
    config.data.limit_train = 64;
    config.data.limit_val = 32;
    config.devices.shards = 1;
    outcome pieces = train(&config);
    config.execution.micro_batch = 0;
    config.devices.shards = 2;
    outcome shards = train(&config);
    same(&pieces, &shards);
}

static int64_t planned(const lk_train_config *config)
{
    lk_trainer *trainer = new_trainer(config);
    int64_t size = lk_trainer_plan(trainer)->micro_batch;
    lk_trainer_release(trainer);
    return size;
}

/* A piece as large as the shard is the same as no pieces. */
static void the_plan_has_the_size_of_pieces(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(15);
    assert_int_equal(planned(&config), 15);
    config.execution.micro_batch = 16;
    assert_int_equal(planned(&config), 0);
    config.execution.micro_batch = 0;
    assert_int_equal(planned(&config), 0);
}

/* An evaluation has pieces of its own shards and leaves the training as it is. */
static void evaluation_has_its_own_pieces(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(16);
    outcome plain = train(&config);
    config.val_batch_size = 64;
    outcome other = train(&config);
    assert_string_equal(plain.result.digest, other.result.digest);
    lk_trainer *trainer = new_trainer(&config);
    assert_int_equal(lk_trainer_plan(trainer)->micro_batch, 0);
    assert_int_equal(lk_trainer_plan(trainer)->val_micro_batch, 16);
    lk_trainer_release(trainer);
    config.execution.micro_batch = 1;
    config.val_batch_size = 2 * 300;
    trainer = new_trainer(&config);
    assert_int_equal(lk_trainer_plan(trainer)->micro_batch, 1);
    assert_int_equal(lk_trainer_plan(trainer)->val_micro_batch, 3);
    lk_trainer_release(trainer);
}

/* The default depends on the model and the shard: pieces of 16 samples, larger ones if that would be too many, and only
 * if pieces are faster. */
static void the_default_depends_on_the_model(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(-1);
    config.model = write_model();
    assert_int_equal(planned(&config), 0);
    config.batch_size = 64;
    assert_int_equal(planned(&config), 16);
    config.batch_size = 2 * 128 * 20;
    assert_int_equal(planned(&config), 20);
    static const char *const whole[] = {"lenet", "keras-cnn", "resnet18"};
    for (int i = 0; i < 3; i++) {
        config.model = whole[i];
        config.batch_size = 64;
        assert_int_equal(planned(&config), 0);
    }
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    lk_train_config config = in_pieces(4);
    config.model = "resnet18";
    is_refused(&config, "--micro-batch 4: model resnet18 has batch-norm, which looks at a whole shard");
    config = in_pieces(1);
    config.batch_size = 600;
    is_refused(&config, "--micro-batch 1: a shard of 300 samples has at most 128 pieces; 3 or more");
    config = in_pieces(-2);
    is_refused(&config, "--micro-batch -2: must be an integer from 0 to 16777216");
}

/* The search for values that are not finite runs the whole shard. */
static void a_loss_that_is_not_finite_is_found(void **state)
{
    (void)state;
    char messages[2][256];
    for (int i = 0; i < 2; i++) {
        lk_train_config config = in_pieces(8);
        config.optimizer.base_lr = 1e6;
        config.optimizer.momentum = 0.9;
        config.epochs = 4;
        config.devices.spec = i ? "2xcpu" : "1xcpu";
        lk_trainer *trainer = new_trainer(&config);
        lk_train_result result;
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_NUMERIC);
        snprintf(messages[i], sizeof messages[i], "%s", lk_error_message());
        lk_trainer_release(trainer);
        lk_error_clear();
    }
    assert_string_equal(messages[0], messages[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_may_differ_in_size),
        cmocka_unit_test(with_accumulation_and_label_smoothing),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(with_recomputation_and_buckets),
        FOLDER_TEST(dropout_is_the_same_in_pieces),
        cmocka_unit_test(two_pieces_are_two_shards),
        cmocka_unit_test(the_plan_has_the_size_of_pieces),
        cmocka_unit_test(evaluation_has_its_own_pieces),
        FOLDER_TEST(the_default_depends_on_the_model),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(a_loss_that_is_not_finite_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
