/* While one allocation after another fails, in any thread, a short training reaches the same digest or ends in
 * LK_ERR_MEMORY with a message. AddressSanitizer finds leaks and uses after free. With the arguments `rank R N`, under
 * mpirun, the N-th allocation of rank R fails, or with N = -1 a hook of it gives LK_ERR_INTERRUPTED: see
 * give_up_test.sh. */
#include "small_network.h"

#include "base/mem_testing.h"
#include "base/folder_testing.h"

/* --- a data set of a few images ----------------------------------------------------------------------------------- */

static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                    "t10k-labels-idx1-ubyte"};

static void write_idx(int file, int count)
{
    bool images = file % 2 == 0;
    unsigned char header[16] = {0, 0, 8, images ? 3 : 1, 0, 0, 0, (unsigned char)count, 0, 0, 0, 28, 0, 0, 0, 28};
    FILE *stream = fopen(path_of("mnist/%s", names[file]), "wb");
    assert_non_null(stream);
    fwrite(header, 1, images ? 16 : 8, stream);
    for (int i = 0; i < (images ? count * 28 * 28 : count); i++)
        fputc(images ? i * 31 % 251 : i % 10, stream);
    assert_int_equal(fclose(stream), 0);
}

static int make_files(void **state)
{
    if (make_test_dir(state) != 0 || mkdir(path_of("mnist"), 0700) != 0)
        return -1;
    for (int file = 0; file < 4; file++)
        write_idx(file, file < 2 ? 10 : 3); /* training images of every class */
    return 0;
}

/* --- trainings ---------------------------------------------------------------------------------------------------- */

static lk_train_config tiny_training(void)
{
    lk_train_config config = training_of(5, -1, 3, 2); /* steps of 3 and 2 samples */
    config.data.name = "mnist";
    config.data.dir = test_dir;
    config.devices.spec = "2xcpu";
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

/* Adds 1 to *failures if the training fails. */
static void train_failing(failing *f, training_fn training, const lk_train_config *config, const char *expected,
                          int64_t *failures)
{
    char digest[33];
    lk_status status = training(config, digest);
    stop_failing(f);
    *failures += status != LK_OK;
    if (status == LK_OK)
        assert_string_equal(digest, expected);
    else if (status != LK_ERR_MEMORY || lk_error_status() != LK_ERR_MEMORY || !*lk_error_message())
        fail_msg("allocation %lld: %s: '%s'", (long long)f->n, lk_status_name(status), lk_error_message());
}

static void fail_each(training_fn training, const lk_train_config *config, int64_t stride)
{
    char expected[33];
    int64_t failures = 0;
    assert_ok(training(config, expected));
    failing f = fail_every(stride);
    while (fail_next(&f))
        train_failing(&f, training, config, expected, &failures);
    print_message("%lld allocations, every %lld of them refused: %lld trainings failed\n", (long long)f.n,
                  (long long)stride, (long long)failures);
    assert_true(failures > f.n / stride / 2);
    char digest[33];
    lk_error_clear();
    assert_ok(training(config, digest));
    assert_string_equal(digest, expected);
}

static void trains_with_a_worker(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    fail_each(try_training, &config, 1);
}

static void trains_without_workers(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.data.workers = 0;
    config.devices.spec = "1xcpu";
    fail_each(try_training, &config, 25);
}

static void trains_with_many_settings(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.batch_norm.mode = LK_BN_SYNC;
    config.batch_size = 2; /* updates of two batches, and of the last one */
    config.accumulate = 2;
    config.optimizer.name = "adam";
    config.optimizer.clip_norm = 1;
    config.data.augment = "shift=0.2,flip";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    config.checks.top_k = 2;
    fail_each(try_everything, &config, 11);
}

static void trains_with_data_on_devices(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.data.memory = LK_DATA_ON_DEVICE;
    config.data.augment = "shift=0.2,flip";
    config.data.normalize = LK_NORMALIZE_STANDARD;
    fail_each(try_training, &config, 7);
}

static void trains_with_central_storage(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.devices.strategy = "central-storage";
    config.devices.storage = "cpu:1";
    config.checks.audit_every = 1;
    config.optimizer.name = "adam";
    fail_each(try_everything, &config, 7);
}

static void trains_with_a_divided_optimizer_state(void **state)
{
    (void)state;
    lk_train_config config = tiny_training();
    config.devices.optimizer_state = 1;
    config.checks.audit_every = 1;
    config.optimizer.name = "adam";
    fail_each(try_everything, &config, 7);
}

static void trains_with_generated_data(void **state)
{
    (void)state;
    char digest[33];
    lk_train_config config = tiny_training();
    config.data.name = "synthetic";
    config.data.limit_train = 5;
    config.data.limit_val = 3;
    int64_t failures = 0;
    assert_ok(try_training(&config, digest));
    failing f = fail_every(15);
    while (f.n < 105 && fail_next(&f)) /* devices, data and model; the later ones are the same as above */
        train_failing(&f, try_training, &config, digest, &failures);
    assert_true(failures > 0);
}

/* --- one of several processes ------------------------------------------------------------------------------------- */

typedef struct injection {
    bool is_mine;
    int64_t n;
} injection;

/* Prints the step's loss, which must be the same on all ranks. After the second step, lets the n-th allocation from
 * then on fail, or gives LK_ERR_INTERRUPTED. */
static lk_status inject(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    injection *i = self;
    (void)stop;
    (void)trainer;
    printf("epoch %lld step %lld loss %a\n", (long long)report->epoch, (long long)report->step, report->batch.loss.sum);
    fflush(stdout);
    bool is_now = i->is_mine && report->epoch == 1 && report->step == 2;
    if (is_now && i->n >= 0)
        lk__mem_fail_at(i->n);
    return is_now && i->n < 0 ? LK_ERR_INTERRUPTED : LK_OK;
}

static lk_trainer *join_training(int *rank)
{
    lk_train_config config = training_of(60, 0, 12, 8);
    config.devices.spec = "cpu:0";
    config.devices.strategy = "multi-worker";
    lk_trainer *trainer = small_trainer(&config);
    *rank = lk_trainer_plan(trainer)->process;
    return trainer;
}

/* Trains as one of several processes, under mpirun, and prints how that ended. */
static int as_rank(int failing_rank, int64_t n)
{
    lk_train_result result;
    int rank;
    lk_trainer *trainer = join_training(&rank);
    injection i = {.is_mine = rank == failing_rank, .n = n};
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
        cmocka_unit_test(trains_with_a_worker),        cmocka_unit_test(trains_without_workers),
        cmocka_unit_test(trains_with_many_settings),   cmocka_unit_test(trains_with_data_on_devices),
        cmocka_unit_test(trains_with_central_storage), cmocka_unit_test(trains_with_a_divided_optimizer_state),
        cmocka_unit_test(trains_with_generated_data),
    };
    return cmocka_run_group_tests(tests, make_files, remove_test_dir);
}
