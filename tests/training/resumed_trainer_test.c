/* Trainers that go on from a checkpoint by other means than one lk_trainer_fit: by single steps, with another save
 * first, with a second fit. */
#include "training.h"
#include "base/folder_testing.h"
#include "lockstep/checkpoint.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(a_save_keeps_what_was_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
