/* After the first steps of a training, further steps allocate nothing. */
#include "small_network.h"

#include "base/mem.h"
#include "lockstep/build.h"

/* Batches of 32, 32 and 3 samples, in four shards. */
static lk_train_config several_steps(const char *devices)
{
    lk_train_config config = small_training();
    config.devices.spec = devices;
    config.devices.shards = 4;
    config.batch_norm.group = 16; /* two, one for each of two devices; steps in which devices share one do allocate */
    config.data.limit_val = 0;
    return config;
}

static int64_t allocations_of_epoch(lk_trainer *trainer)
{
    lk__mem_fail_at(-1);
    assert_ok(lk_trainer_run(trainer, lk_trainer_plan(trainer)->steps_per_epoch));
    return lk__mem_allocations();
}

static void use_engine(const char *engine)
{
    assert_int_equal(setenv("LOCKSTEP_ENGINE", engine, 1), 0);
    if (lk__mem_may_keep())
        return;
    print_message("SKIP: in this build nothing that is freed is kept\n");
    skip();
}

/* With threads, timing decides how many steps are in flight and so how much memory they need together. It may take more
 * epochs until the free memory is enough for all steps. */
static void train_without_allocating(lk_trainer *trainer, bool threads)
{
    enum { WARM = 2, MOST_EPOCHS = 50 };
    assert_true(allocations_of_epoch(trainer) > 0);
    for (int i = 1; i < WARM; i++)
        allocations_of_epoch(trainer);
    int64_t made = allocations_of_epoch(trainer);
    for (int i = WARM; threads && made > 0 && i < MOST_EPOCHS; i++)
        made = allocations_of_epoch(trainer);
    assert_int_equal(made, 0);
    lk_trainer_release(trainer);
}

/* Plain C kernels allocate a temporary that is too large to keep for each call, and LeNet needs such temporaries. */
static void check(const lk_train_config *config, bool threads)
{
    use_engine(threads ? "async" : "sync");
    train_without_allocating(small_trainer(config), threads);
    if (lk_build_has("oneDNN"))
        train_without_allocating(new_trainer(config), threads);
}

static void one_device_stops_allocating(void **state)
{
    (void)state;
    lk_train_config config = several_steps("1xcpu");
    check(&config, false);
    check(&config, true);
}

static void several_devices_stop_allocating(void **state)
{
    (void)state;
    lk_train_config config = several_steps("2xcpu");
    check(&config, false);
    check(&config, true);
    config.devices.spec = "3xcpu";
    config.batch_norm = (lk_batch_norm_config){.mode = LK_BN_SHARD};
    check(&config, false);
}

static void central_storage_stops_allocating(void **state)
{
    (void)state;
    lk_train_config config = several_steps("2xcpu");
    config.devices.strategy = "central-storage";
    check(&config, false);
    check(&config, true);
    config.devices.spec = "cpu:1,cpu:2";
    config.devices.storage = "cpu:0";
    check(&config, false);
}

/* A bucket for each gradient, accumulation, the norm of all gradients, and operators without fusion. */
static void other_settings_stop_allocating(void **state)
{
    (void)state;
    lk_train_config config = several_steps("2xcpu");
    config.devices.bucket_mb = 1e-6;
    config.accumulate = 2;
    config.optimizer.clip_norm = 0.1;
    config.optimizer.name = "adam";
    config.data.augment = "shift=0.2,flip";
    check(&config, false);
    config.execution.fuse = LK_FUSE_OFF;
    check(&config, false);
    config.execution.dtype = LK_PRECISION_BF16;
    check(&config, false);
}

/* --- epochs ------------------------------------------------------------------------------------------------------- */

typedef struct watch {
    int64_t before; /* allocations until the epoch's first step was done */
    int64_t made;   /* allocations of later steps, from the third epoch on */
} watch;

static lk_status watch_step(void *user, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    watch *w = user;
    (void)trainer, (void)stop;
    if (report->step == 1)
        w->before = lk__mem_allocations();
    if (report->epoch > 2)
        w->made += lk__mem_allocations() - w->before;
    return LK_OK;
}

static void steps_of_an_epoch_stop_allocating(void **state)
{
    (void)state;
    use_engine("sync");
    lk_train_config config = several_steps("2xcpu");
    config.data.limit_val = 41;
    config.epochs = 4;
    config.checks.top_k = 3;
    lk_trainer *trainer = small_trainer(&config);
    lk_train_result result;
    watch w = {0};
    lk__mem_fail_at(-1);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "watch", .step_end = watch_step, .self = &w}));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_true(w.before > 0);
    assert_int_equal(w.made, 0);
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_stops_allocating),       cmocka_unit_test(several_devices_stop_allocating),
        cmocka_unit_test(central_storage_stops_allocating),  cmocka_unit_test(other_settings_stop_allocating),
        cmocka_unit_test(steps_of_an_epoch_stop_allocating),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
