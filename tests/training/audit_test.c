/* --audit-every finds a tensor that was damaged on purpose and names it and its replica. With the arguments `rank R`,
 * under mpirun, rank R damages one: see processes_test.sh. */
#include "small_network.h"

#include "core/tensor.h"
#include "lockstep/ops.h"
#include "train/trainer.h"

static lk_train_config settings(const char *devices)
{
    lk_train_config config = small_training();
    config.data.limit_train = 60; /* five steps an epoch */
    config.data.limit_val = 0;
    config.batch_size = 12;
    config.devices.shards = 4;
    config.optimizer.momentum = 0.9;
    config.devices.spec = devices;
    config.checks.audit_every = 3;
    return config;
}

/* The damage is done in a step's step_end hook, while later steps are in flight. */
typedef struct damage {
    int64_t step;
    int replica;
    const char *variable;
    bool of_state; /* damage the optimizer's state instead of the variable */
    bool done;
} damage;

static lk_tensor *find(const lk_trainer *trainer, const damage *d)
{
    int i = 0;
    while (strcmp(lk_model_variable_name(trainer->model, i), d->variable) != 0)
        i++;
    lk_tensor *variable = lk_trainer_variables(trainer, d->replica)[i];
    if (!d->of_state)
        return variable;
    lk_tensor *state = lk_optimizer_state(lk_replicas_optimizer(trainer->replicas, d->replica), 0, NULL);
    return lk_slice(state, 0, variable->offset, variable->offset + lk_tensor_count(variable));
}

/* Changes the first element. */
static lk_status change_it(lk_trainer *trainer, const damage *d)
{
    lk_tensor *tensor = find(trainer, d);
    size_t count = (size_t)lk_tensor_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    lk_status status = lk_tensor_read(tensor, values, count * sizeof *values);
    values[0] += 1;
    if (status == LK_OK)
        status = lk_tensor_write(tensor, values, count * sizeof *values);
    free(values);
    return status;
}

static lk_status damage_step(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    damage *d = self;
    (void)stop;
    if (d->done || report->step < d->step)
        return LK_OK;
    d->done = true;
    lk_scope_begin();
    lk_status status = change_it(trainer, d);
    lk_scope_end();
    return status;
}

static lk_status fit_damaged(const lk_train_config *config, damage *d, int64_t *audits)
{
    lk_train_result result;
    lk_trainer *trainer = small_trainer(config);
    if (d)
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "damage", .step_end = damage_step, .self = d}));
    lk_status status = lk_trainer_fit(trainer, &result);
    *audits = result.audits;
    lk_trainer_release(trainer);
    return status;
}

static void finds(lk_train_config config, damage d, const char *message)
{
    int64_t audits;
    assert_int_equal(fit_damaged(&config, &d, &audits), LK_ERR_STATE);
    assert_true(d.done);
    if (!strstr(lk_error_message(), message))
        fail_msg("says %s", lk_error_message());
    lk_error_clear();
}

static void equal_replicas_pass(void **state)
{
    (void)state;
    int64_t audits;
    lk_train_config config = settings("2xcpu");
    assert_ok(fit_damaged(&config, NULL, &audits));
    assert_int_equal(audits, 4); /* after 3, 6 and 9 steps, and at the end */
    config.optimizer.name = "adam";
    config.optimizer.momentum = -1;
    config.checks.audit_every = 5;
    assert_ok(fit_damaged(&config, NULL, &audits));
    assert_int_equal(audits, 3);
    config.devices.strategy = "central-storage";
    assert_ok(fit_damaged(&config, NULL, &audits));
    assert_int_equal(audits, 3);
    config.devices.strategy = NULL;
    config.devices.spec = "1xcpu";
    assert_ok(fit_damaged(&config, NULL, &audits));
    assert_int_equal(audits, 0); /* there is nothing to compare */
    config.devices.spec = "2xcpu";
    config.checks.audit_every = 0;
    assert_ok(fit_damaged(&config, NULL, &audits));
    assert_int_equal(audits, 0);
}

static void a_damaged_parameter_is_named(void **state)
{
    (void)state;
    finds(settings("2xcpu"), (damage){.step = 2, .replica = 1, .variable = "dense.bias"},
          "dense.bias of replica 1 (cpu:1) differs from that of replica 0 (cpu:0); after the same ");
    lk_train_config config = settings("2xcpu");
    config.optimizer.base_lr = 1e-12; /* the damage stays and hardly spreads */
    config.optimizer.momentum = -1;
    config.checks.audit_every = 7;
    finds(config, (damage){.step = 5, .replica = 1, .variable = "dense.bias"},
          "audit after step 7: dense.bias of replica 1 (cpu:1) differs from that of replica 0 (cpu:0)");
}

/* With three replicas, the one that differs from the two others is named. */
static void the_majority_is_right(void **state)
{
    (void)state;
    lk_train_config config = settings("3xcpu");
    config.optimizer.base_lr = 1e-12;
    finds(config, (damage){.step = 4, .replica = 0, .variable = "dense.bias"},
          "dense.bias of replica 0 (cpu:0) differs from that of replica 1 (cpu:1)");
    finds(config, (damage){.step = 4, .replica = 2, .variable = "dense.bias"},
          "dense.bias of replica 2 (cpu:2) differs from that of replica 0 (cpu:0)");
}

static void buffers_and_state_are_compared(void **state)
{
    (void)state;
    lk_train_config config = settings("2xcpu");
    finds(config, (damage){.step = 4, .replica = 1, .variable = "first.batch_norm.running_mean"},
          "first.batch_norm.running_mean of replica 1 (cpu:1)");
    config.optimizer.base_lr = 1e-12; /* updates are too small to change a parameter */
    finds(config, (damage){.step = 4, .replica = 1, .variable = "dense.weight", .of_state = true},
          "momentum of dense.weight of replica 1 (cpu:1) differs from that of replica 0 (cpu:0); after ");
}

static lk_status damage_epoch(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    return report->epoch == 2 ? change_it(trainer, self) : LK_OK;
}

/* The last steps, or changes behind the last step, come after the last audit that is due. */
static void the_end_is_audited(void **state)
{
    (void)state;
    lk_train_config config = settings("2xcpu");
    config.checks.audit_every = 1000;
    finds(config, (damage){.step = 5, .replica = 1, .variable = "dense.bias"}, "audit after step 10: ");
    damage d = {.replica = 1, .variable = "dense.bias"};
    lk_train_result result;
    config.checks.audit_every = 10;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "damage", .epoch_end = damage_epoch, .self = &d}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_STATE);
    assert_int_equal(result.audits, 1);
    lk_trainer_release(trainer);
    lk_error_clear();
}

static void steps_alone_are_audited(void **state)
{
    (void)state;
    lk_train_config config = settings("2xcpu");
    config.checks.audit_every = 2;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 2));
    assert_ok(change_it(trainer, &(damage){.replica = 1, .variable = "dense.bias"}));
    assert_ok(lk_trainer_run(trainer, 1));
    assert_int_equal(lk_trainer_run(trainer, 1), LK_ERR_STATE);
    assert_non_null(strstr(lk_error_message(), "audit after step 4: "));
    lk_trainer_release(trainer);
    lk_error_clear();
}

static int as_rank(int damaged)
{
    lk_train_config config = settings("2xcpu:0");
    config.devices.shards = 8;
    config.devices.strategy = "multi-worker";
    config.optimizer.base_lr = 1e-12;
    lk_trainer *trainer = small_trainer(&config);
    damage d = {.step = 4, .replica = 1, .variable = "dense.bias"};
    d.done = lk_trainer_plan(trainer)->process != damaged;
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "damage", .step_end = damage_step, .self = &d}));
    lk_train_result result;
    lk_status status = lk_trainer_fit(trainer, &result);
    printf("audits %lld, %s\n", (long long)result.audits, status == LK_OK ? "equal" : lk_error_message());
    fflush(stdout);
    lk_trainer_release(trainer);
    if (status == LK_OK)
        return lk_leave_processes() != LK_OK;
    lk_abandon_processes();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0)
        return as_rank(atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_replicas_pass),   cmocka_unit_test(a_damaged_parameter_is_named),
        cmocka_unit_test(the_majority_is_right), cmocka_unit_test(buffers_and_state_are_compared),
        cmocka_unit_test(the_end_is_audited),    cmocka_unit_test(steps_alone_are_audited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
