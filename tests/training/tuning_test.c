/* A training with a tuning keeps the promise of equal bits, says which implementations it used, and can be repeated
 * from that list. A tuning finds every problem. */
#include "small_network.h"

#include "lockstep/build.h"
#include "lockstep/log.h"
#include "lockstep/tune.h"

#include <unistd.h>

static char path[64];

/* LeNet with 12 images in every shard. */
static lk_train_config small_lenet(void)
{
    lk_train_config config = small_training();
    config.data.limit_train = 48;
    config.data.limit_val = 24;
    config.batch_size = 24;
    config.devices.shards = 2;
    config.epochs = 1;
    return config;
}

typedef struct rewriting {
    const char *op, *implementation;
    lk_tuning *tuning;
    int n;
} rewriting;

/* Copies a choice to the tuning, with `implementation` if it is for `op`. */
static void rewrite(void *user, const char *op, const char *problem, const char *implementation)
{
    rewriting *r = user;
    bool other = strcmp(op, r->op) == 0 && strcmp(implementation, r->implementation) != 0;
    assert_ok(lk_tuning_set(r->tuning, op, problem, other ? r->implementation : implementation));
    r->n += other;
}

/* Writes a tuning with the implementations that the configuration uses, but with `implementation` for `op`. Returns how
 * many differ. */
static int write_others(const lk_train_config *config, const char *op, const char *implementation)
{
    lk_trainer *trainer = new_trainer(config);
    rewriting r = {op, implementation, lk_tuning_new("cpu"), 0};
    assert_non_null(r.tuning);
    lk_tuning_visit(lk_trainer_implementations(trainer), rewrite, &r);
    assert_ok(lk_tuning_write(r.tuning, path));
    lk_tuning_release(r.tuning);
    lk_trainer_release(trainer);
    return r.n;
}

static uint64_t implementations_of(const lk_train_config *config)
{
    lk_trainer *trainer = new_trainer(config);
    uint64_t hash = lk_trainer_plan(trainer)->implementations;
    lk_trainer_release(trainer);
    return hash;
}

static void skip_without_alternatives(void)
{
    if (lk_build_has("oneDNN"))
        return;
    print_message("SKIP: this build has one implementation for every problem\n");
    skip();
}

static void implementations_do_not_depend_on_devices(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.shards = 3;
    config.devices.spec = "1xcpu";
    uint64_t one = implementations_of(&config);
    config.devices.spec = "2xcpu";
    assert_true(one == implementations_of(&config));
    config.devices.spec = "3xcpu:0";
    assert_true(one == implementations_of(&config));
    config.devices.strategy = "mirrored";
    assert_true(one == implementations_of(&config));
    config.devices.shards = 5; /* shards of other sizes are other problems */
    if (lk_build_has("oneDNN"))
        assert_true(one != implementations_of(&config));
}

/* The implementations are the same, but the bits differ. */
static void executor_and_fusion_are_hashed(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    uint64_t fused = implementations_of(&config);
    config.execution.fuse = LK_FUSE_OFF;
    uint64_t program = implementations_of(&config);
    config.execution.executor = LK_EXECUTOR_EAGER;
    uint64_t eager = implementations_of(&config);
    assert_true(fused != program && fused != eager && program != eager);
}

static void a_tunings_bits_do_not_depend_on_devices(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_train_config config = small_lenet();
    config.execution.fuse = LK_FUSE_OFF;
    config.devices.spec = "1xcpu";
    outcome usual = train(&config);
    uint64_t implementations = implementations_of(&config);
    int others = write_others(&config, "conv2d", "onednn");
    config.execution.algorithms = path;
    outcome one = train(&config);
    assert_int_equal(implementations == implementations_of(&config), others == 0);
    assert_int_equal(strcmp(usual.result.digest, one.result.digest) == 0, others == 0);
    config.devices.spec = "2xcpu";
    outcome two = train(&config);
    same(&one, &two);
    config.execution.executor = LK_EXECUTOR_EAGER;
    outcome eager = train(&config);
    same(&one, &eager);
}

static void a_run_can_be_repeated(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_train_config config = small_lenet();
    config.devices.spec = "1xcpu";
    outcome usual = train(&config);
    assert_int_equal(write_others(&config, "", ""), 0);
    config.execution.algorithms = path;
    outcome again = train(&config);
    same(&usual, &again);
}

static void blocks_that_are_not_fused_run_apart(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_train_config config = small_lenet();
    config.devices.spec = "1xcpu";
    int others = write_others(&config, "conv_block", "apart");
    config.execution.algorithms = path;
    outcome one = train(&config);
    config.devices.spec = "2xcpu";
    outcome two = train(&config);
    same(&one, &two);
    lk_trainer *trainer = new_trainer(&config);
    int count = lk_tuning_count(lk_trainer_implementations(trainer));
    lk_trainer_release(trainer);
    config.execution.algorithms = "fast";
    trainer = new_trainer(&config);
    if (others > 0) /* the problem of a block became those of a convolution and its gradients */
        assert_true(lk_tuning_count(lk_trainer_implementations(trainer)) < count);
    lk_trainer_release(trainer);
}

static void hear(void *user, lk_log_level level, const char *message)
{
    assert_int_equal(level, LK_LOG_WARNING);
    snprintf(user, 256, "%s", message);
}

static void a_tuning_for_other_sizes_gives_a_warning(void **state)
{
    (void)state;
    skip_without_alternatives();
    char warning[256] = "";
    lk_train_config config = small_lenet();
    config.devices.spec = "1xcpu";
    write_others(&config, "conv_block", "apart"); /* choices that are not listed afterwards count too */
    config.execution.algorithms = path;
    lk_log_set(hear, warning, LK_LOG_WARNING);
    lk_trainer_release(new_trainer(&config));
    assert_string_equal(warning, "");
    config.batch_size += 2 * config.devices.shards;
    config.data.limit_val = 18; /* otherwise its shards would still have 12 images */
    lk_trainer_release(new_trainer(&config));
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
    assert_non_null(strstr(warning, path));
    assert_non_null(strstr(warning, "occurs in this training: it is for shards of other sizes"));
}

static void a_tuning_for_other_devices_is_refused(void **state)
{
    (void)state;
    lk_train_config config = small_lenet();
    lk_tuning *tuning = lk_tuning_new("cpu");
    assert_ok(lk_tuning_write(tuning, path));
    lk_tuning_release(tuning);
    config.execution.algorithms = path;
    config.devices.spec = "1xref";
    assert_null(lk_trainer_new(&config));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "the tuning is for devices of kind cpu, ref:0 is another");
    config.execution.algorithms = "";
    assert_null(lk_trainer_new(&config));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "--algorithms: must be fast, direct or the file of a tuning");
}

/* --- the list of implementations ---------------------------------------------------------------------------------- */

typedef struct search {
    const lk_tuning *list;
    const char *op, *problem, *implementation; /* implementation: in the list; NULL: not listed */
    int seen;
} search;

static void find_listed(void *user, const char *op, const char *problem, const char *implementation)
{
    search *s = user;
    if (strcmp(op, s->op) == 0 && strcmp(problem, s->problem) == 0)
        s->implementation = implementation;
}

static void find_problem(search *s, const char *problem)
{
    s->problem = problem;
    s->implementation = NULL;
    lk_tuning_visit(s->list, find_listed, s);
}

/* oneDNN shows names of its own implementations. A problem without weights is the sum over dy for the bias. A call in
 * bf16 that no kernel for bf16 takes runs on one for f32, and is shown as that. */
static void expect_listed(void *user, const char *op, const char *problem, const char *implementation)
{
    search *s = user;
    char in_bf16[256];
    if (strncmp(op, "conv", 4) != 0 || !strstr(problem, " w["))
        return;
    s->op = strcmp(op, "conv_block_grad") == 0 ? "conv_block" : op;
    find_problem(s, problem);
    if (!s->implementation && strncmp(problem, "f32 ", 4) == 0) {
        snprintf(in_bf16, sizeof in_bf16, "bf16 %s", problem + 4);
        find_problem(s, in_bf16);
    }
    if (!s->implementation)
        fail_msg("%s %s has run, and is not listed", op, problem);
    if (strcmp(s->implementation, "onednn") != 0)
        assert_string_equal(implementation, s->implementation);
    s->seen += strcmp(op, "conv_block_grad") != 0;
}

/* Releases the trainer. */
static void check_list(lk_trainer *trainer)
{
    search s = {.list = lk_trainer_implementations(trainer)};
    fit(trainer);
    assert_ok(lk_device_implementations(lk_strategy_device(lk_trainer_strategy(trainer), 0), expect_listed, &s));
    assert_int_equal(s.seen, lk_tuning_count(s.list));
    lk_trainer_release(trainer);
}

static void listed_implementations_run(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_train_config config = small_training(), other;
    config.devices.spec = "1xcpu";
    config.devices.shards = 2;
    config.epochs = 1;
    check_list(new_trainer(&config));
    other = config;
    other.execution.fuse = LK_FUSE_OFF;
    check_list(new_trainer(&other));
    other = config;
    other.execution.executor = LK_EXECUTOR_EAGER;
    check_list(new_trainer(&other));
    other = config;
    other.execution.micro_batch = 9;
    check_list(new_trainer(&other));
    other = config;
    other.execution.dtype = LK_PRECISION_BF16;
    check_list(new_trainer(&other));
    other = config;
    other.execution.algorithms = "direct";
    check_list(new_trainer(&other));
    other = config;
    check_list(small_trainer(&other));
    other.batch_norm.mode = LK_BN_SYNC;
    check_list(small_trainer(&other));
}

/* --- lk_tune ------------------------------------------------------------------------------------------------------ */

typedef struct watch {
    int rows, calls, stop_at;
    bool compared;
} watch;

static bool see_row(void *user, const lk_tune_row *row, int next)
{
    watch *w = user;
    assert_true(row->index >= 1 && row->index <= row->count && next >= 0 && next <= row->n);
    for (int i = 0; i < next; i++)
        assert_true(row->seconds[i] > 0);
    assert_int_equal(row->chosen >= 0, next == row->n);
    w->rows += next == row->n;
    return ++w->calls != w->stop_at;
}

static bool see_step(void *user, int64_t done, int64_t of)
{
    watch *w = user;
    w->compared = done == of;
    return true;
}

static void set_again(void *user, const char *op, const char *problem, const char *implementation)
{
    assert_ok(lk_tuning_set(user, op, problem, implementation));
}

static void tuning_finds_every_problem(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_train_config config = small_lenet();
    config.devices.spec = "1xcpu";
    config.checkpoints.dir = "/"; /* left out: it is not empty */
    watch w = {0};
    lk_tune_opts opts = {.samples = 1, .measuring = see_row, .comparing = see_step, .user = &w};
    lk_tune_result result;
    assert_ok(lk_tune(&config, &opts, &result));
    config.checkpoints.dir = NULL;
    assert_int_equal(w.rows, lk_tuning_count(result.tuning));
    assert_int_equal(w.compared, result.tuned > 0);
    assert_ok(lk_tuning_write(result.tuning, path));
    lk_trainer *trainer = new_trainer(&config);
    int before = lk_tuning_count(result.tuning);
    lk_tuning_visit(lk_trainer_implementations(trainer), set_again, result.tuning);
    assert_int_equal(lk_tuning_count(result.tuning), before); /* the tuning had all of them */
    lk_trainer_release(trainer);
    lk_tuning_release(result.tuning);
    config.execution.algorithms = path;
    outcome one = train(&config);
    config.devices.spec = "2xcpu";
    outcome two = train(&config);
    same(&one, &two);
}

static void tuning_can_be_interrupted(void **state)
{
    (void)state;
    skip_without_alternatives();
    lk_train_config config = small_lenet();
    config.devices.spec = "1xcpu";
    watch w = {.stop_at = 3};
    lk_tune_opts opts = {.samples = 1, .measuring = see_row, .user = &w};
    lk_tune_result result;
    expect_error(lk_tune(&config, &opts, &result), LK_ERR_INTERRUPTED, "tune: interrupted");
    assert_null(result.tuning);
    assert_int_equal(w.calls, 3);
    opts.samples = 0;
    expect_error(lk_tune(&config, &opts, &result), LK_ERR_ARGUMENT, "tune: 0 samples: must be at least 1");
    opts.samples = 1;
    config.devices.spec = "1xref";
    expect_error(lk_tune(&config, &opts, &result), LK_ERR_UNSUPPORTED,
                 "tune: devices of kind ref have one implementation for every problem");
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/lockstep-tuning-test-%ld.txt", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(implementations_do_not_depend_on_devices),
        cmocka_unit_test(executor_and_fusion_are_hashed),
        cmocka_unit_test(a_tunings_bits_do_not_depend_on_devices),
        cmocka_unit_test(listed_implementations_run),
        cmocka_unit_test(a_run_can_be_repeated),
        cmocka_unit_test(blocks_that_are_not_fused_run_apart),
        cmocka_unit_test(a_tuning_for_other_sizes_gives_a_warning),
        cmocka_unit_test(a_tuning_for_other_devices_is_refused),
        cmocka_unit_test(tuning_finds_every_problem),
        cmocka_unit_test(tuning_can_be_interrupted),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
