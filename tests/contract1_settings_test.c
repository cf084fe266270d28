/* Contract 1 under every setting: optimisers, clipping, accumulation, schedules, label smoothing, top-k, augmentation,
 * dropout, both batch-norm modes, bf16. Each setting has to change the bits, and no number of devices may. */
#include "small_network.h"

#include <math.h>

static lk_train_config settings(void)
{
    lk_train_config config = small_training();
    config.limit_train = 45; /* batches of 16, 16 and 13 */
    config.limit_val = 11;
    config.batch_size = 16;
    config.shards = 6;
    config.base_lr = 0.05;
    return config;
}

static outcome on_any_devices(lk_train_config config)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "5xcpu"};
    outcome first;
    for (int s = 0; s < 4; s++) {
        config.devices = specs[s];
        config.workers = s % 3;
        outcome out = train_small(&config);
        if (s == 0)
            first = out;
        else
            same(&first, &out);
    }
    return first;
}

static void changes(const outcome *before, const lk_train_config *config)
{
    outcome out = on_any_devices(*config);
    assert_string_not_equal(out.result.digest, before->result.digest);
}

static outcome unchanged(void)
{
    static outcome first;
    if (first.n_epochs == 0) {
        lk_train_config config = settings();
        first = on_any_devices(config);
    }
    return first;
}

static void optimizers(void **state)
{
    (void)state;
    outcome before = unchanged();
    for (int kind = 0; lk_optimizer_name(kind); kind++) {
        lk_train_config config = settings();
        config.optimizer = lk_optimizer_name(kind);
        config.weight_decay = 0.01;
        config.momentum = kind == LK_SGD ? 0.9 : -1;
        config.nesterov = kind == LK_SGD;
        changes(&before, &config);
    }
}

static void momentum_and_clipping(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.momentum = 0.9;
    changes(&before, &config);
    config = settings();
    config.clip_norm = 0.01;
    changes(&before, &config);
}

static void batch_norm_over_the_batch(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.batch_norm = LK_BN_SYNC;
    changes(&before, &config);
    config.limit_train = 19; /* last batch of three: half of the shards are empty */
    on_any_devices(config);
}

static void accumulation(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.accumulate = 2; /* the last update has one batch, of 13 */
    changes(&before, &config);
    config.batch_norm = LK_BN_SYNC;
    changes(&before, &config);
    config.accumulate = 5; /* more than there are */
    config.optimizer = "adam";
    changes(&before, &config);
}

static void losses_and_metrics(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.label_smoothing = 0.1;
    changes(&before, &config);
    config = settings();
    config.top_k = 3;
    outcome with_top_k = on_any_devices(config);
    assert_string_equal(with_top_k.result.digest, before.result.digest);
    lk_metrics val = with_top_k.result.val;
    assert_int_equal(val.top_k.count, 11);
    assert_true(val.top_k.sum >= val.accuracy.sum && val.top_k.sum <= 11);
    assert_int_equal(before.result.val.top_k.count, 0);
}

static void schedules(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.schedule = "cosine";
    changes(&before, &config);
    config = settings();
    config.lr_steps = "1:0.5";
    changes(&before, &config);
    config = settings();
    config.warmup_epochs = 1;
    changes(&before, &config);
}

static void augmentation(void **state)
{
    (void)state;
    static const char *const augments[] = {"shift=0.2", "flip", "crop=4", "cutout=8", "shift=0.2,flip,crop=2,cutout=6"};
    outcome before = unchanged();
    for (int i = 0; i < 5; i++) {
        lk_train_config config = settings();
        config.augment = augments[i];
        changes(&before, &config);
    }
    lk_train_config config = settings();
    config.normalize = LK_NORMALIZE_CENTER;
    changes(&before, &config);
    config.normalize = LK_NORMALIZE_STANDARD;
    changes(&before, &config);
}

/* How the evaluation is cut into batches is no part of training. */
static void batches_of_evaluation(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.val_batch_size = 4; /* fewer than shards */
    outcome out = on_any_devices(config);
    assert_string_equal(out.result.digest, before.result.digest);
    assert_true(out.result.val.accuracy.sum == before.result.val.accuracy.sum);
    assert_true(fabs(out.result.val.loss.sum - before.result.val.loss.sum) < 1e-4);
}

/* Two batches of 32 in four shards each are one of 64 in eight: the same samples in the same shards, and the two halves
 * of the tree are added last. So accumulation has the very bits of the batch that it stands for. */
static void accumulation_is_the_larger_batch(void **state)
{
    (void)state;
    lk_train_config whole = settings();
    whole.limit_train = 128;
    whole.batch_size = 64;
    whole.shards = 8;
    whole.devices = "2xcpu";
    whole.optimizer = "adam";
    whole.augment = "shift=0.2,flip";
    whole.label_smoothing = 0.1;
    lk_train_config halves = whole;
    halves.batch_size = 32;
    halves.shards = 4;
    halves.accumulate = 2;
    outcome a = train_small(&whole), b = train_small(&halves);
    assert_int_equal(b.n_steps, 2 * a.n_steps);
    assert_string_equal(a.result.digest, b.result.digest);
}

static void mixed_precision(void **state)
{
    (void)state;
    outcome before = unchanged();
    lk_train_config config = settings();
    config.dtype = LK_PRECISION_BF16;
    changes(&before, &config);
    config.executor = LK_EXECUTOR_EAGER;
    changes(&before, &config);
    config.batch_norm = LK_BN_SYNC;
    changes(&before, &config);
    config = settings();
    config.dtype = LK_PRECISION_BF16;
    config.accumulate = 2;
    config.label_smoothing = 0.1;
    config.clip_norm = 0.01;
    for (int kind = 0; lk_optimizer_name(kind); kind++) {
        config.optimizer = lk_optimizer_name(kind);
        changes(&before, &config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers),
        cmocka_unit_test(momentum_and_clipping),
        cmocka_unit_test(batch_norm_over_the_batch),
        cmocka_unit_test(accumulation),
        cmocka_unit_test(losses_and_metrics),
        cmocka_unit_test(schedules),
        cmocka_unit_test(augmentation),
        cmocka_unit_test(batches_of_evaluation),
        cmocka_unit_test(accumulation_is_the_larger_batch),
        cmocka_unit_test(mixed_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
