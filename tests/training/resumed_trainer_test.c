/* Trainers that go on from a checkpoint by other means than one lk_trainer_fit: by single steps, with another save
 * first, with a second fit. */
#include "training.h"
#include "base/folder_testing.h"
#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"

static lk_status interrupt_evaluation(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    (void)self, (void)report;
    lk_trainer_interrupt(trainer);
    return LK_OK;
}

/* Trains until the callback interrupts it. The next trainer of `config` resumes. */
static void train_a_part(lk_train_config *config, lk_callback interrupting)
{
    lk_train_result result;
    config->checkpoints.dir = test_dir;
    lk_trainer *trainer = new_trainer(config);
    assert_ok(lk_trainer_add(trainer, interrupting));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_error_clear();
    lk_trainer_release(trainer);
    config->checkpoints.resume = true;
}

/* An epoch that only lacks its evaluation has no step any more. */
static void steps_go_on_in_the_next_epoch(void **state)
{
    (void)state;
    char want[33], have[33];
    lk_train_config config = small_training();
    config.val_batch_size = 10; /* an evaluation of several steps can be interrupted */
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 4));
    assert_ok(lk_trainer_state_digest(trainer, want));
    lk_trainer_release(trainer);
    train_a_part(&config, (lk_callback){.name = "interrupting", .eval_step = interrupt_evaluation});
    trainer = new_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 1));
    assert_ok(lk_trainer_state_digest(trainer, have));
    assert_string_equal(have, want);
    lk_trainer_release(trainer);
}

static lk_status interrupt_second_evaluation(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    int *evaluations = self;
    if (report->epoch == 2 && report->step == 1 && (*evaluations)++ == 0)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static lk_status keep_second_epoch(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    if (report->epoch == 2)
        *(lk_epoch_report *)self = *report;
    return LK_OK;
}

/* A trainer that has resumed in the middle of an epoch is saved before it trains. */
static void a_save_keeps_what_was_resumed(void **state)
{
    (void)state;
    char other[128];
    lk_epoch_report second;
    lk_train_result result;
    lk_train_config config = small_training();
    outcome whole = train(&config);
    train_a_part(&config, (lk_callback){.name = "interrupting", .step_end = interrupt_in_second_epoch});
    lk_trainer *trainer = new_trainer(&config);
    snprintf(other, sizeof other, "%s/other", test_dir);
    assert_ok(lk_trainer_save(trainer, other));
    lk_trainer_release(trainer);
    config.checkpoints.dir = other;
    trainer = new_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_second_epoch, .self = &second}));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(second.samples, 67);
    same_metrics(&second.train, &whole.epochs[1].train);
    lk_trainer_release(trainer);
}

/* The last checkpoint says that training has finished, and with which figures. */
static void a_fit_without_epochs_left_writes_no_checkpoint(void **state)
{
    (void)state;
    lk_train_result result;
    lk_checkpoint *last;
    lk_train_config config = small_training();
    config.checkpoints.dir = test_dir;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &last));
    assert_true(lk_checkpoint_get_info(last)->finished);
    lk_checkpoint_release(last);
    config.checkpoints.resume = true;
    trainer = new_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(result.val.loss.count, 41);
    lk_trainer_release(trainer);
}

/* The metrics would be those of another epoch than the weights. */
static void fewer_epochs_than_begun_are_refused(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    train_a_part(&config, (lk_callback){.name = "interrupting", .step_end = interrupt_in_second_epoch});
    config.epochs = 1;
    assert_null(lk_trainer_new(&config));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "--epochs 1: must be at least 2, the epoch that "));
    lk_error_clear();
}

/* lk_trainer_fit goes on from where it was interrupted: in an epoch, in its evaluation, and before the first step. */
static void an_interrupted_fit_goes_on(void **state)
{
    (void)state;
    static const lk_callback interrupting[] = {{.name = "interrupting", .step_end = interrupt_in_second_epoch},
                                               {.name = "interrupting", .eval_step = interrupt_second_evaluation},
                                               {.name = "idle"}};
    lk_train_config config = small_training();
    config.val_batch_size = 10;
    config.optimizer.momentum = 0.9;
    outcome whole = train(&config);
    for (int i = 0; i < 3; i++) {
        lk_epoch_report second = {0};
        lk_train_result result;
        int evaluations = 0;
        lk_callback own = interrupting[i];
        own.self = &evaluations;
        lk_trainer *trainer = new_trainer(&config);
        assert_ok(lk_trainer_add(trainer, own));
        assert_ok(
            lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_second_epoch, .self = &second}));
        if (i == 2)
            lk_trainer_interrupt(trainer);
        do {
            lk_error_clear();
        } while (lk_trainer_fit(trainer, &result) == LK_ERR_INTERRUPTED);
        assert_int_equal(second.samples, 67);
        assert_int_equal(second.train_ledger.used_once, 67);
        same_metrics(&second.train, &whole.epochs[1].train);
        same_metrics(&second.val, &whole.epochs[1].val);
        assert_true(second.epoch_seconds <= second.total_seconds);
        assert_int_equal(result.steps, 6);
        assert_string_equal(result.state_digest, whole.result.state_digest);
        lk_trainer_release(trainer);
    }
}

static lk_status stop_at_once(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)trainer, (void)report;
    *stop = true;
    return LK_OK;
}

/* No pass over the epoch in which it stopped would count them again. */
static void a_stopped_training_keeps_its_seconds(void **state)
{
    (void)state;
    lk_train_result result;
    lk_train_config config = small_training();
    config.checkpoints.dir = test_dir;
    for (int i = 0; i < 2; i++) {
        config.checkpoints.resume = i > 0;
        lk_trainer *trainer = new_trainer(&config);
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "stopping", .step_end = stop_at_once}));
        assert_ok(lk_trainer_fit(trainer, &result));
        assert_int_equal(result.steps, 2);
        assert_true(result.seconds > 0);
        lk_trainer_release(trainer);
    }
}

/* The stop of an earlier run says nothing about one that --override lets go on. */
static void an_earlier_stop_is_not_reported_again(void **state)
{
    (void)state;
    lk_train_result result;
    char *printed;
    size_t size;
    lk_train_config config = small_training();
    config.epochs = 3;
    config.optimizer.base_lr = 1e-6;
    config.checkpoints.dir = test_dir;
    for (int i = 0; i < 2; i++) {
        FILE *stream = open_memstream(&printed, &size);
        assert_non_null(stream);
        config.checkpoints.resume = config.checkpoints.override = i > 0;
        config.stop.early_stop = 1000 + i; /* not reached: that the option differs is enough */
        lk_trainer *trainer = new_trainer(&config);
        assert_ok(lk_trainer_add(trainer, lk_callback_stop_at_accuracy(0, 1, stream)));
        assert_ok(lk_trainer_add(trainer, lk_callback_stop_on_plateau(1, 100, stream)));
        if (i > 0)
            lk_trainer_interrupt(trainer);
        assert_int_equal(lk_trainer_fit(trainer, &result), i > 0 ? LK_ERR_INTERRUPTED : LK_OK);
        lk_error_clear();
        lk_trainer_release(trainer);
        fclose(stream);
        assert_int_equal(strstr(printed, "Early stopping") != NULL, i == 0);
        free(printed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(steps_go_on_in_the_next_epoch),
        FOLDER_TEST(a_save_keeps_what_was_resumed),
        FOLDER_TEST(a_fit_without_epochs_left_writes_no_checkpoint),
        FOLDER_TEST(fewer_epochs_than_begun_are_refused),
        FOLDER_TEST(an_interrupted_fit_goes_on),
        FOLDER_TEST(a_stopped_training_keeps_its_seconds),
        FOLDER_TEST(an_earlier_stop_is_not_reported_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
