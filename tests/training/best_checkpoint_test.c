/* best.json names the checkpoint with the best weights: it was written, it is kept, and a resumed training finds it. */
#include "training.h"
#include "base/folder_testing.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

/* The rate is 0 from the third epoch on, so nothing changes. */
static double rate_until_third(void *user, double epoch, double rate)
{
    (void)user;
    return epoch < 2 ? rate : 0;
}

/* The second epoch's checkpoint cannot be written: a folder that is not empty has its temporary name. */
static lk_status block_the_checkpoint(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    double *losses = self;
    char path[128];
    (void)trainer, (void)stop;
    losses[report->epoch - 1] = lk_mean_value(report->val.loss);
    if (report->epoch != 2)
        return LK_OK;
    snprintf(path, sizeof path, "%s/.unfinished-checkpoint-00000006", test_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.unfinished-checkpoint-00000006/stays", test_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    return LK_OK;
}

static void is_best(int64_t epoch, double loss)
{
    lk_checkpoint *best;
    if (lk_checkpoint_open(test_dir, LK_CHECKPOINT_BEST, &best) != LK_OK)
        fail_msg("%s", lk_error_message());
    const lk_checkpoint_info *info = lk_checkpoint_get_info(best);
    assert_string_equal(info->metric, "val_loss");
    assert_int_equal(info->epoch, epoch);
    assert_int_equal(info->best_epoch, epoch);
    assert_true(info->best == loss);
    lk_checkpoint_release(best);
}

static lk_trainer *training_with_best(bool resume, int64_t epochs, double losses[4])
{
    lk_train_config config = small_training();
    config.model = "keras-cnn";
    config.optimizer.base_lr = 0.02;
    config.epochs = epochs;
    config.checkpoints = (lk_checkpoint_config){
        .dir = test_dir, .every = "1", .keep = 1, .best = LK_BEST_VAL_LOSS, .resume = resume, .override = resume};
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_add(trainer, lk_callback_rate(rate_until_third, NULL)));
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "way", .epoch_end = block_the_checkpoint, .self = losses}));
    return trainer;
}

/* A checkpoint that could not be written is not named as the best, even if none better follows; the best one is kept.
 */
static void the_best_was_written(void **state)
{
    (void)state;
    double losses[4];
    lk_train_result result;
    lk_trainer *trainer = training_with_best(false, 4, losses);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_true(losses[1] < losses[0] && losses[2] == losses[1] && losses[3] == losses[2]);
    is_best(3, losses[2]);
}

/* If best.json is missing, a resumed training names the best again; if the best checkpoint is missing, it is forgotten.
 */
static void resuming_finds_the_best(void **state)
{
    (void)state;
    char path[128];
    double losses[4] = {0};
    lk_train_result result;
    lk_trainer *trainer = training_with_best(false, 1, losses);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    is_best(1, losses[0]);
    snprintf(path, sizeof path, "%s/best.json", test_dir);
    assert_int_equal(unlink(path), 0);
    trainer = training_with_best(true, 1, losses);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    is_best(1, losses[0]);

    /* Checkpoints from the middle of the second epoch name a best that is missing. */
    trainer = training_with_best(true, 2, losses);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "break", .step_end = interrupt_in_second_epoch}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_error_clear();
    lk_trainer_release(trainer);
    is_best(1, losses[0]);
    char gone[160];
    snprintf(path, sizeof path, "%s/checkpoint-00000003", test_dir);
    snprintf(gone, sizeof gone, "%s/gone", test_dir);
    assert_int_equal(rename(path, gone), 0);
    trainer = training_with_best(true, 4, losses);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    is_best(3, losses[2]);
}

static double no_rate(void *user, double epoch, double rate)
{
    (void)user, (void)epoch, (void)rate;
    return 0;
}

/* A training may be killed after it has written the best checkpoint and before best.json names it. The checkpoint is
 * kept if none better follows. */
static void keeps_a_best_that_best_json_does_not_name(void **state)
{
    (void)state;
    char path[128];
    lk_train_result result;
    lk_checkpoint *best;
    lk_train_config config = small_training();
    config.model = "keras-cnn";
    config.checkpoints = (lk_checkpoint_config){.dir = test_dir, .every = "1", .keep = 1};
    snprintf(path, sizeof path, "%s/best.json", test_dir);
    for (config.epochs = 1; config.epochs <= 2; config.epochs++) {
        lk_trainer *trainer = new_trainer(&config);
        assert_ok(lk_trainer_add(trainer, lk_callback_rate(no_rate, NULL)));
        assert_ok(lk_trainer_fit(trainer, &result));
        lk_trainer_release(trainer);
        assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_BEST, &best));
        assert_int_equal(lk_checkpoint_get_info(best)->epoch, 1);
        lk_checkpoint_release(best);
        assert_int_equal(unlink(path), 0);
        config.checkpoints.resume = config.checkpoints.override = true;
    }
}

typedef struct losses {
    double train[MAX_EPOCHS], val[MAX_EPOCHS];
} losses;

static lk_status note_losses(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    losses *l = self;
    (void)trainer, (void)stop;
    l->train[report->epoch - 1] = lk_mean_value(report->train.loss);
    l->val[report->epoch - 1] = lk_mean_value(report->val.loss);
    return LK_OK;
}

/* The last epoch has the best training loss and another the best validation loss, whose weights are taken back. No
 * checkpoint then holds the last epoch's weights, so none is named for its training loss. */
static void weights_taken_back_are_not_the_best(void **state)
{
    (void)state;
    enum { EPOCHS = 4 };
    losses l;
    lk_train_result result;
    lk_checkpoint *best;
    lk_train_config config = small_training();
    config.model = "keras-cnn";
    config.epochs = EPOCHS;
    config.optimizer.base_lr = 0.2;
    config.stop.restore_best = true;
    config.checkpoints = (lk_checkpoint_config){.dir = test_dir, .best = LK_BEST_TRAIN_LOSS, .keep = 5};
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "note", .epoch_end = note_losses, .self = &l}));
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_true(l.train[EPOCHS - 1] < l.train[EPOCHS - 2] && l.val[EPOCHS - 1] > l.val[EPOCHS - 2]);
    assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_BEST, &best));
    assert_int_equal(lk_checkpoint_get_info(best)->epoch, EPOCHS - 1);
    assert_true(lk_checkpoint_get_info(best)->best == l.train[EPOCHS - 2]);
    lk_checkpoint_release(best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(the_best_was_written),
        FOLDER_TEST(resuming_finds_the_best),
        FOLDER_TEST(keeps_a_best_that_best_json_does_not_name),
        FOLDER_TEST(weights_taken_back_are_not_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
