/* Every setting keeps the promise of equal bits: optimizers, clipping, accumulation, schedules, label smoothing, top-k,
 * augmentation, dropout, all batch-norm modes, bf16. Each setting must change the bits; no number of devices may. */
#include "small_network.h"

#include <math.h>

static lk_train_config settings(void)
{
    lk_train_config config = training_of(45, 11, 16, 6); /* batches of 16, 16 and 13 */
    config.optimizer.base_lr = 0.05;
    return config;
}

static void changes(const outcome *before, const lk_train_config *config)
{
    outcome out = train_on_any_devices(*config);
    assert_string_not_equal(out.result.digest, before->result.digest);
}

static outcome unchanged(void)
{
    static outcome first;
    if (first.n_epochs == 0) {
        lk_train_config config = settings();
        first = train_on_any_devices(config);
    }
    return first;
}

static void optimizers_keep_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    for (int kind = 0; lk_optimizer_name(kind); kind++) {
        lk_train_config config = settings();
        config.optimizer.name = lk_optimizer_name(kind);
        config.optimizer.weight_decay = 0.01;
        config.optimizer.momentum = kind == LK_SGD ? 0.9 : -1;
        config.optimizer.nesterov = kind == LK_SGD;
        changes(&before, &config);
    }
}

static void momentum_and_clipping_keep_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.optimizer.momentum = 0.9;
    changes(&before, &config);
    config = settings();
    config.optimizer.clip_norm = 0.01;
    changes(&before, &config);
}

/* The average changes no update, so the digest stays; the evaluation and the state are the average's. */
static void averages_keep_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    for (int kind = 0; lk_optimizer_name(kind); kind++) {
        lk_train_config config = settings();
        config.optimizer.name = lk_optimizer_name(kind);
        outcome plain = train_on_any_devices(config);
        config.optimizer.average = 0.8;
        outcome out = train_on_any_devices(config);
        assert_string_equal(out.result.digest, plain.result.digest);
        assert_string_not_equal(out.result.state_digest, plain.result.state_digest);
        assert_true(out.result.val.loss.sum != plain.result.val.loss.sum);
        config.execution.executor = LK_EXECUTOR_EAGER;
        outcome eager = train_on_any_devices(config);
        assert_string_equal(eager.result.state_digest, out.result.state_digest);
    }
    lk_train_config config = settings();
    config.optimizer.average = 0.8;
    config.batch_norm.precise = 2;
    changes(&before, &config); /* statistics of the average */
}

static void class_weights_keep_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    static const char *const weights[] = {"balanced", "3:2.5,5:0", NULL};
    for (int i = 0; weights[i]; i++)
        for (int micro = 0; micro < 2; micro++) {
            lk_train_config config = settings();
            config.optimizer.class_weights = weights[i];
            config.batch_norm.mode = micro ? LK_BN_SYNC : LK_BN_GROUP;
            config.optimizer.label_smoothing = 0.1 * micro;
            changes(&before, &config);
        }
    lk_train_config config = settings();
    config.optimizer.class_weights = "0:1,1:1"; /* the default, by another order of operators */
    outcome ones = train_on_any_devices(config);
    assert_float_equal(ones.result.val.loss.sum, before.result.val.loss.sum, 1e-3);
}

static void plateaus_keep_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = settings();
    config.epochs = 3;
    config.optimizer.base_lr = 1e-12; /* no loss is smaller than the first */
    config.optimizer.lr_plateau = "1:0.1";
    outcome out = train_on_any_devices(config);
    assert_float_equal(out.epochs[2].rate, 1e-13, 1e-16);
    config = settings();
    config.epochs = 3;
    config.optimizer.base_lr = 1.2; /* later losses are larger */
    config.stop.restore_best = true;
    outcome best = train_on_any_devices(config);
    config.stop.restore_best = false;
    outcome last = train_on_any_devices(config);
    assert_string_not_equal(best.result.digest, last.result.digest);
}

/* A batch of 16 is one group by default. */
static void batch_norm_over_the_batch_keeps_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.batch_norm.mode = LK_BN_SYNC;
    outcome sync = train_on_any_devices(config);
    assert_string_equal(sync.result.digest, before.result.digest);
    config.data.limit_train = 19; /* last batch of three: half of the shards are empty */
    changes(&before, &config);
    config = settings();
    config.batch_norm.mode = LK_BN_SHARD;
    changes(&before, &config);
    config.batch_norm.mode = LK_BN_GROUP;
    config.batch_norm.group = 1;
    outcome each = train_on_any_devices(config);
    config.batch_norm.mode = LK_BN_SHARD;
    config.batch_norm.group = 0;
    outcome shard = train_on_any_devices(config);
    assert_string_equal(each.result.digest, shard.result.digest);
}

/* Shards of 2, 3, 3, 2, 3 and 3 samples make groups of three shards. On two devices each has one, so a program runs it;
 * on three and five, devices share groups. */
static lk_train_config in_groups(void)
{
    lk_train_config config = settings();
    config.batch_norm.group = 8;
    return config;
}

static void batch_norm_over_groups_keeps_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = in_groups();
    outcome groups = train_on_any_devices(config);
    assert_string_not_equal(groups.result.digest, before.result.digest);
    config.devices.strategy = "central-storage";
    outcome stored = train_on_any_devices(config);
    assert_string_equal(stored.result.digest, groups.result.digest);
    config = in_groups();
    config.execution.executor = LK_EXECUTOR_EAGER;
    outcome eager = train_on_any_devices(config);
    assert_string_equal(eager.result.digest, groups.result.digest);
    config = in_groups();
    config.execution.recompute = true;
    outcome recomputed = train_on_any_devices(config);
    assert_string_equal(recomputed.result.digest, groups.result.digest);

    config = in_groups();
    config.data.limit_train = 17; /* the last batch has one sample: a group is empty */
    changes(&groups, &config);
    config.data.limit_train = 19; /* three samples, and shards without samples in both groups */
    changes(&groups, &config);
    config = in_groups();
    config.batch_size = 17;
    config.devices.shards = 5; /* of 3, 3, 4, 3 and 4 samples, in groups of 2, 1 and 2 */
    config.batch_norm.group = 4;
    changes(&groups, &config);
    config = in_groups();
    config.accumulate = 2;
    config.batch_norm.precise = 2;
    config.data.memory = LK_DATA_ON_DEVICE;
    changes(&groups, &config);
    config.execution.dtype = LK_PRECISION_BF16;
    changes(&groups, &config);
}

static void accumulation_keeps_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.accumulate = 2; /* the last update has one batch, of 13 */
    changes(&before, &config);
    config.batch_norm.mode = LK_BN_SHARD;
    changes(&before, &config);
    config.accumulate = 5; /* more batches than there are */
    config.optimizer.name = "adam";
    changes(&before, &config);
}

static void losses_and_metrics_keep_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.optimizer.label_smoothing = 0.1;
    changes(&before, &config);
    config = settings();
    config.checks.top_k = 3;
    outcome with_top_k = train_on_any_devices(config);
    assert_string_equal(with_top_k.result.digest, before.result.digest);
    lk_metrics val = with_top_k.result.val;
    assert_int_equal(val.top_k.count, 11);
    assert_true(val.top_k.sum >= val.accuracy.sum && val.top_k.sum <= 11);
    assert_int_equal(before.result.val.top_k.count, 0);
}

static void schedules_keep_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.optimizer.schedule = "cosine";
    changes(&before, &config);
    config = settings();
    config.optimizer.lr_steps = "1:0.5";
    changes(&before, &config);
    config = settings();
    config.optimizer.warmup_epochs = 1;
    changes(&before, &config);
}

static void augmentation_keeps_equal_bits(void **state)
{
    (void)state;
    static const char *const augments[] = {
        "shift=0.2",      "flip",         "crop=4",
        "cutout=8",       "vflip",        "rotate=20",
        "brightness=0.3", "contrast=0.3", "rand=9",
        "erase=0.5",      "mixup=0.4",    "shift=0.2,flip,rotate=10,crop=2,rand=5,cutout=6,erase=0.3,mixup=0.2"};
    outcome before = unchanged();
    for (size_t i = 0; i < sizeof augments / sizeof *augments; i++) {
        lk_train_config config = settings();
        config.data.augment = augments[i];
        changes(&before, &config);
    }
    lk_train_config config = settings();
    config.data.normalize = LK_NORMALIZE_CENTER;
    changes(&before, &config);
    config.data.normalize = LK_NORMALIZE_STANDARD;
    changes(&before, &config);
}

/* The evaluation's batch size does not change training. */
static void evaluation_batches_do_not_change_training(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.val_batch_size = 4; /* fewer samples than shards */
    outcome out = train_on_any_devices(config);
    assert_string_equal(out.result.digest, before.result.digest);
    assert_true(out.result.val.accuracy.sum == before.result.val.accuracy.sum);
    assert_true(fabs(out.result.val.loss.sum - before.result.val.loss.sum) < 1e-4);
}

/* Two batches of 32 in four shards each equal one batch of 64 in eight: the same samples are in the same shards, and
 * the two halves of the tree are added last. So accumulation gives exactly the bits of the larger batch. */
static void accumulation_is_the_larger_batch(void **state)
{
    (void)state;
    lk_train_config whole = settings();
    whole.batch_norm.group = 8; /* that of a shard of both */
    whole.data.limit_train = 128;
    whole.batch_size = 64;
    whole.devices.shards = 8;
    whole.devices.spec = "2xcpu";
    whole.optimizer.name = "adam";
    whole.data.augment = "shift=0.2,flip";
    whole.optimizer.label_smoothing = 0.1;
    lk_train_config halves = whole;
    halves.batch_size = 32;
    halves.devices.shards = 4;
    halves.accumulate = 2;
    outcome a = train_small(&whole), b = train_small(&halves);
    assert_int_equal(b.n_steps, 2 * a.n_steps);
    assert_string_equal(a.result.digest, b.result.digest);
}

static void mixed_precision_keeps_equal_bits(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.execution.dtype = LK_PRECISION_BF16;
    changes(&before, &config);
    config.execution.executor = LK_EXECUTOR_EAGER;
    changes(&before, &config);
    config.batch_norm.mode = LK_BN_SHARD;
    changes(&before, &config);
    config = settings();
    config.execution.dtype = LK_PRECISION_BF16;
    config.accumulate = 2;
    config.optimizer.label_smoothing = 0.1;
    config.optimizer.clip_norm = 0.01;
    for (int kind = 0; lk_optimizer_name(kind); kind++) {
        config.optimizer.name = lk_optimizer_name(kind);
        changes(&before, &config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_keep_equal_bits),
        cmocka_unit_test(averages_keep_equal_bits),
        cmocka_unit_test(class_weights_keep_equal_bits),
        cmocka_unit_test(plateaus_keep_equal_bits),
        cmocka_unit_test(momentum_and_clipping_keep_equal_bits),
        cmocka_unit_test(batch_norm_over_the_batch_keeps_equal_bits),
        cmocka_unit_test(batch_norm_over_groups_keeps_equal_bits),
        cmocka_unit_test(accumulation_keeps_equal_bits),
        cmocka_unit_test(losses_and_metrics_keep_equal_bits),
        cmocka_unit_test(schedules_keep_equal_bits),
        cmocka_unit_test(augmentation_keeps_equal_bits),
        cmocka_unit_test(evaluation_batches_do_not_change_training),
        cmocka_unit_test(accumulation_is_the_larger_batch),
        cmocka_unit_test(mixed_precision_keeps_equal_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
