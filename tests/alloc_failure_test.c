/* One allocation after another is made to fail, in whichever thread it happens: a short training either goes through to
 * the same digest, or ends in LK_ERR_MEMORY with a message. That nothing leaks and nothing freed is used shows under
 * AddressSanitizer. With the arguments `rank R N`, under mpirun, rank R is refused one: see give_up_test.sh. */
#include "small_network.h"

#include "base/mem.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a data set of a few images ----------------------------------------------------------------------------------- */

static char folder[] = "/tmp/lockstep-alloc-XXXXXX";
static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                    "t10k-labels-idx1-ubyte"};

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/mnist/%s", folder, name);
    return path;
}

static void write_file(int file, int count)
{
    bool images = file % 2 == 0;
    unsigned char header[16] = {0, 0, 8, images ? 3 : 1, 0, 0, 0, (unsigned char)count, 0, 0, 0, 28, 0, 0, 0, 28};
    FILE *stream = fopen(path_of(names[file]), "wb");
    assert_non_null(stream);
    fwrite(header, 1, images ? 16 : 8, stream);
    for (int i = 0; i < (images ? count * 28 * 28 : count); i++)
        fputc(images ? i * 31 % 251 : i % 10, stream);
    assert_int_equal(fclose(stream), 0);
}

static int make_files(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || mkdir(path_of(""), 0700) != 0)
        return -1;
    for (int file = 0; file < 4; file++)
        write_file(file, file < 2 ? 10 : 3); /* training images of every class */
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (int file = 0; file < 4; file++)
        unlink(path_of(names[file]));
    return rmdir(path_of("")) | rmdir(folder);
}

/* --- trainings ---------------------------------------------------------------------------------------------------- */

static lk_train_config tiny_training(void)
{
    lk_train_config config = small_training();
    config.data = "mnist";
    config.data_dir = folder;
    config.limit_train = 5;
    config.limit_val = -1;
    config.devices = "2xcpu";
    config.shards = 2;
    config.batch_size = 3; /* steps of 3 and 2 samples */
    config.epochs = 1;
    return config;
}

static lk_status try_training(const lk_train_config *config, char digest[33])
{
    lk_train_result result;
    lk_trainer *trainer = lk_trainer_new(config);
    lk_status status = trainer ? lk_trainer_fit(trainer, &result) : lk_error_status();
    lk_trainer_release(trainer);
    if (status == LK_OK)
        memcpy(digest, result.digest, 33);
    return status;
}

static lk_status try_everything(const lk_train_config *config, char digest[33])
{
    lk_train_result result;
    lk_model *model = small_network_or_null();
    lk_trainer *trainer = model ? lk_trainer_new_with(config, model) : NULL;
    lk_status status = trainer ? lk_trainer_fit(trainer, &result) : lk_error_status();
    lk_trainer_release(trainer);
    if (status == LK_OK)
        memcpy(digest, result.digest, 33);
    return status;
}

typedef lk_status (*training_fn)(const lk_train_config *config, char digest[33]);

/* Gives how many allocations the training made. */
static int64_t train_failing_at(training_fn training, const lk_train_config *config, int64_t n, const char *expected,
                                int64_t *failures)
{
    char digest[33];
    lk_error_clear();
    lk__mem_fail_at(n);
    lk_status status = training(config, digest);
    int64_t made = lk__mem_allocations();
    lk__mem_fail_at(-1);
    *failures += status != LK_OK;
    if (status == LK_OK)
        assert_string_equal(digest, expected);
    else if (status != LK_ERR_MEMORY || lk_error_status() != LK_ERR_MEMORY || !*lk_error_message())
        fail_msg("allocation %lld: %s: '%s'", (long long)n, lk_status_name(status), lk_error_message());
    return made;
}

static void fail_each(training_fn training, const lk_train_config *config, int64_t stride)
{
    char expected[33];
    int64_t failures = 0, n = 0;
    assert_ok(training(config, expected));
    while (train_failing_at(training, config, n, expected, &failures) > n)
        n += stride;
    print_message("%lld allocations, every %lld of them refused: %lld trainings failed\n", (long long)n,
                  (long long)stride, (long long)failures);
    assert_true(failures > n / stride / 2);
    char digest[33];
    lk_error_clear();
    assert_ok(training(config, digest));
    assert_string_equal(digest, expected);
}

static void with_a_worker(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    fail_each(try_training, &config, 1);
}

static void without_workers(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.workers = 0;
    config.devices = "1xcpu";
    fail_each(try_training, &config, 25);
}

static void with_all_settings(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.batch_norm = LK_BN_SYNC;
    config.batch_size = 2; /* updates of two batches, and of the last one */
    config.accumulate = 2;
    config.optimizer = "adam";
    config.clip_norm = 1;
    config.augment = "shift=0.2,flip";
    config.normalize = LK_NORMALIZE_STANDARD;
    config.top_k = 2;
    fail_each(try_everything, &config, 11);
}

static void with_data_on_devices(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.data_on = LK_DATA_ON_DEVICE;
    config.augment = "shift=0.2,flip";
    config.normalize = LK_NORMALIZE_STANDARD;
    fail_each(try_training, &config, 7);
}

static void with_central_storage(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.strategy = "central-storage";
    config.storage = "cpu:1";
    config.audit_every = 1;
    config.optimizer = "adam";
    fail_each(try_everything, &config, 7);
}

static void with_generated_data(void **state)
{
    (void)state;
    char digest[33];
    lk_train_config config = tiny_training();
    config.data = "synthetic";
    config.limit_train = 5;
    config.limit_val = 3;
    int64_t failures = 0;
    assert_ok(try_training(&config, digest));
    for (int64_t n = 0; n < 120; n += 15) /* devices, data and model: what follows is as above */
        train_failing_at(try_training, &config, n, digest, &failures);
    assert_true(failures > 0);
}

/* --- one of several processes ------------------------------------------------------------------------------------- */

typedef struct injection {
    bool is_mine;
    int64_t n;
} injection;

/* Says what the step has found, which all ranks have to find alike; then, once, the n-th allocation is refused. */
static lk_status inject(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    injection *i = self;
    (void)stop;
    (void)trainer;
    printf("epoch %lld step %lld loss %a\n", (long long)report->epoch, (long long)report->step, report->batch.loss.sum);
    fflush(stdout);
    if (i->is_mine && report->epoch == 1 && report->step == 2)
        lk__mem_fail_at(i->n);
    return LK_OK;
}

static lk_trainer *join_training(int *rank)
{
    lk_train_config config = small_training();
    config.limit_train = 60;
    config.limit_val = 0;
    config.batch_size = 12;
    config.shards = 8;
    config.devices = "cpu:0";
    config.strategy = "multi-worker";
    lk_trainer *trainer = small_trainer(&config);
    *rank = lk_trainer_plan(trainer)->process;
    return trainer;
}

/* Under mpirun; says how it ended. */
static int as_rank(int failing, int64_t n)
{
    lk_train_result result;
    int rank;
    lk_trainer *trainer = join_training(&rank);
    injection i = {.is_mine = rank == failing, .n = n};
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "inject", .step_end = inject, .self = &i}));
    lk_status status = lk_trainer_fit(trainer, &result);
    if (i.is_mine)
        printf("allocations %lld\n", (long long)lk__mem_allocations());
    lk__mem_fail_at(-1);
    lk_trainer_release(trainer);
    if (status == LK_OK)
        status = lk_leave_processes();
    if (status == LK_OK)
        printf("rank %d: digest %s\n", rank, result.digest);
    else
        printf("rank %d: %s: %s\n", rank, lk_status_name(status), lk_error_message());
    fflush(stdout);
    if (status == LK_OK)
        return 0;
    lk_abandon_processes();
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "rank") == 0)
        return as_rank(atoi(argv[2]), atoll(argv[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_worker),        cmocka_unit_test(without_workers),
        cmocka_unit_test(with_all_settings),    cmocka_unit_test(with_data_on_devices),
        cmocka_unit_test(with_central_storage), cmocka_unit_test(with_generated_data),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
