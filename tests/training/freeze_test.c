/* Frozen parameters: training leaves them and a frozen batch-norm's statistics as they are, and changes the others as
 * it would without, with the same bits for any devices, strategy and division of the optimizer's state, resumed or not.
 */
#include "base/folder_testing.h"
#include "training.h"
#include "lockstep/checkpoint.h"
#include "lockstep/predict.h"

static const char network[] = "conv1: conv2d 6 kernel=3 padding=same frozen=yes\n"
                              "bn1: batch_norm frozen=yes\n"
                              "relu\n"
                              "max_pool 2\n"
                              "block: residual frozen=yes\n"
                              "  conv: conv2d 6 kernel=3 padding=same\n"
                              "  bn: batch_norm\n"
                              "end\n"
                              "relu\n"
                              "conv2: conv2d 8 kernel=3 stride=2 padding=1\n"
                              "bn2: batch_norm\n"
                              "relu\n"
                              "global_avg_pool\n"
                              "dense classes\n";

static lk_train_config frozen_training(const char *devices)
{
    lk_train_config config = small_training();
    config.model = in_dir("net.lk");
    config.devices.shards = 4;
    config.devices.spec = devices;
    config.optimizer.name = "adam";
    config.optimizer.base_lr = 0.01;
    return config;
}

static uint64_t hash_of(lk_trainer *trainer, const char *name)
{
    uint64_t hash = 0;
    int found = 0;
    for (int i = 0; i < lk_model_variable_count(lk_trainer_model(trainer)); i++)
        if (strcmp(lk_model_variable_name(lk_trainer_model(trainer), i), name) == 0) {
            assert_ok(lk_trainer_variable_hash(trainer, 0, i, &hash));
            found++;
        }
    assert_int_equal(found, 1);
    return hash;
}

static void test_what_changes(void **state)
{
    (void)state;
    static const char *const frozen[] = {"conv1.weight",      "conv1.bias",          "bn1.weight",
                                         "bn1.bias",          "bn1.running_mean",    "bn1.running_var",
                                         "block.conv.weight", "block.conv.bias",     "block.bn.weight",
                                         "block.bn.bias",     "block.bn.running_var"};
    static const char *const trained[] = {"conv2.weight", "bn2.bias", "bn2.running_mean", "bn2.running_var",
                                          "dense.weight"};
    enum { FROZEN = sizeof frozen / sizeof *frozen, TRAINED = sizeof trained / sizeof *trained };
    uint64_t before[FROZEN + TRAINED];
    lk_train_config config = frozen_training("2xcpu");
    lk_trainer *trainer = new_trainer(&config);
    const lk_plan *plan = lk_trainer_plan(trainer);
    assert_int_equal(plan->frozen, 6 * 9 + 6 + 12 + 6 * 6 * 9 + 6 + 12);
    assert_int_equal(plan->parameters, plan->frozen + 8 * 6 * 9 + 8 + 16 + 8 * 10 + 10);
    assert_int_equal(lk_model_parameter_count(lk_trainer_model(trainer)), 6);
    assert_int_equal(lk_model_statistics_count(lk_trainer_model(trainer)), 1);
    for (int i = 0; i < FROZEN; i++)
        before[i] = hash_of(trainer, frozen[i]);
    for (int i = 0; i < TRAINED; i++)
        before[FROZEN + i] = hash_of(trainer, trained[i]);
    fit(trainer);
    for (int i = 0; i < FROZEN; i++)
        assert_true(hash_of(trainer, frozen[i]) == before[i]);
    for (int i = 0; i < TRAINED; i++)
        assert_true(hash_of(trainer, trained[i]) != before[FROZEN + i]);
    lk_trainer_release(trainer);
}

static void test_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = frozen_training("1xcpu");
    outcome want = train(&config), have;
    for (int d = 2; d <= 4; d++) {
        char spec[8];
        snprintf(spec, sizeof spec, "%dxcpu", d);
        config.devices.spec = spec;
        config.devices.strategy = NULL;
        config.devices.optimizer_state = 0;
        have = train(&config);
        same(&want, &have);
        config.devices.optimizer_state = 1;
        have = train(&config);
        same(&want, &have);
        assert_string_equal(have.result.state_digest, want.result.state_digest);
        config.devices.optimizer_state = 0;
        config.devices.strategy = "central-storage";
        have = train(&config);
        same(&want, &have);
    }
}

/* --freeze, frozen=yes and lk_layer_frozen are the same. */
static void test_ways_to_freeze(void **state)
{
    (void)state;
    lk_train_config config = frozen_training("2xcpu");
    outcome want = train(&config);
    config.model = in_dir("free.lk");
    config.freeze = "conv1,bn1,block*";
    outcome have = train(&config);
    same(&want, &have);
    config.freeze = "*1.?ei*,*1.bias,block.conv,block.bn.weight,block.bn.bias";
    have = train(&config);
    same(&want, &have);

    config.freeze = NULL;
    lk_layer *body = LK_SEQUENTIAL(lk_layer_named("conv", lk_layer_conv2d(6, 3, &(lk_conv2d_layer_opts){.same = true})),
                                   lk_layer_named("bn", lk_layer_batch_norm(NULL)));
    lk_layer *layers = LK_SEQUENTIAL(
        lk_layer_frozen(lk_layer_named("conv1", lk_layer_conv2d(6, 3, &(lk_conv2d_layer_opts){.same = true}))),
        lk_layer_frozen(lk_layer_named("bn1", lk_layer_batch_norm(NULL))), lk_layer_activation(LK_RELU),
        lk_layer_max_pool(2, NULL), lk_layer_frozen(lk_layer_named("block", lk_layer_add(body, lk_layer_identity()))),
        lk_layer_activation(LK_RELU),
        lk_layer_named("conv2", lk_layer_conv2d(8, 3, &(lk_conv2d_layer_opts){.stride = 2, .padding = 1})),
        lk_layer_named("bn2", lk_layer_batch_norm(NULL)), lk_layer_activation(LK_RELU), lk_layer_global_avg_pool(),
        lk_layer_dense(10, NULL));
    lk_model *model = lk_model_build("own", layers, (lk_model_input){1, 28, 28, 10});
    assert_non_null(model);
    have = fit_replicas(checked_trainer(lk_trainer_new_with(&config, model)));
    same(&want, &have);
}

/* After one step of SGD the parameters that are trained have the bits that they have if all are trained. */
static void test_same_gradients(void **state)
{
    (void)state;
    static const char *const patterns[] = {"conv1", "conv2", "conv1.weight,dense1.bias", "dense*", "conv*"};
    lk_train_config config = small_training();
    config.data.limit_train = 32;
    config.epochs = 1;
    config.execution.executor = LK_EXECUTOR_EAGER;
    config.devices.shards = 2;
    lk_trainer *all = new_trainer(&config);
    fit(all);
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        config.freeze = patterns[p];
        lk_trainer *trainer = new_trainer(&config);
        lk_trainer *untrained = new_trainer(&config);
        fit(trainer);
        const lk_model *model = lk_trainer_model(trainer);
        for (int i = 0; i < lk_model_variable_count(model); i++) {
            const char *name = lk_model_variable_name(model, i);
            lk_trainer *like = i < lk_model_parameter_count(model) ? all : untrained;
            assert_int_equal(lk_model_variable_is_frozen(model, i), i >= lk_model_parameter_count(model));
            if (hash_of(trainer, name) != hash_of(like, name))
                fail_msg("--freeze %s: %s", patterns[p], name);
        }
        lk_trainer_release(untrained);
        lk_trainer_release(trainer);
    }
    lk_trainer_release(all);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* Goes on on other devices; a predictor, which knows nothing of the option, evaluates as the trainer did. */
static void test_resumed(void **state)
{
    (void)state;
    lk_train_config config = frozen_training("2xcpu");
    config.model = in_dir("free.lk");
    config.freeze = "conv1,bn1,block*";
    outcome want = train(&config);
    config.checkpoints.dir = in_dir("checkpoints");
    lk_trainer *trainer = new_trainer(&config);
    lk_train_result result;
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt_in_second_epoch}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_trainer_release(trainer);

    config.checkpoints.resume = true;
    config.freeze = "conv1";
    lk_error_clear();
    assert_null(lk_trainer_new(&config));
    assert_non_null(strstr(lk_error_message(), "--freeze was conv1,bn1,block* and is conv1"));
    config.checkpoints.override = true;
    lk_error_clear();
    assert_null(lk_trainer_new(&config));
    assert_non_null(strstr(lk_error_message(), "--override: --freeze cannot be changed"));
    config.checkpoints.override = false;
    config.freeze = "conv1,bn1,block*";
    config.devices.spec = "3xcpu";
    config.devices.optimizer_state = 1;
    trainer = new_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_string_equal(result.digest, want.result.digest);
    assert_string_equal(result.state_digest, want.result.state_digest);

    lk_checkpoint *checkpoint;
    lk_evaluation evaluation;
    assert_ok(lk_checkpoint_open_model(config.checkpoints.dir, LK_CHECKPOINT_LAST, &checkpoint));
    lk_predictor *predictor = lk_predictor_new(checkpoint, NULL);
    if (!predictor)
        fail_msg("%s", lk_error_message());
    assert_ok(lk_evaluate(predictor, lk_trainer_dataset(trainer, LK_SPLIT_TEST), 0, &evaluation));
    assert_int_equal(evaluation.count - evaluation.wrong, (int64_t)result.val.accuracy.sum);
    lk_evaluation_free(&evaluation);
    lk_predictor_release(predictor);
    lk_checkpoint_release(checkpoint);
    lk_trainer_release(trainer);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void refused(const lk_train_config *config, lk_status status, const char *message)
{
    lk_error_clear();
    assert_null(lk_trainer_new(config));
    assert_int_equal(lk_error_status(), status);
    if (!strstr(lk_error_message(), message))
        fail_msg("'%s', expected '%s'", lk_error_message(), message);
}

static void test_errors(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.freeze = "conv1,conv3";
    refused(&config, LK_ERR_ARGUMENT, "--freeze conv3: fits no parameter of model lenet");
    lk_model *model = lk_model_new("lenet", (lk_model_input){1, 28, 28, 10});
    assert_int_equal(lk_model_freeze(model, "conv1,conv3"), LK_ERR_ARGUMENT);
    for (int i = 0; i < lk_model_variable_count(model); i++)
        assert_false(lk_model_variable_is_frozen(model, i));
    lk_model_release(model);
    config.freeze = "*";
    refused(&config, LK_ERR_ARGUMENT, "--freeze *: nothing is left to train");
    config.freeze = NULL;
    config.model = in_dir("wrong.lk");
    put_file(config.model, "flatten\ndense classes frozen=yes\n");
    refused(&config, LK_ERR_FORMAT, "nothing to train");
    put_file(config.model, "flatten\ndense classes frozen=1\n");
    refused(&config, LK_ERR_FORMAT, "wrong.lk:2: frozen is '1'; expected yes or no");
    put_file(config.model, "sequential frosen=yes\nend\nflatten\ndense classes\n");
    refused(&config, LK_ERR_FORMAT, "wrong.lk:1: sequential has no setting 'frosen=yes'; expected none but frozen=yes");
}

static int set_up(void **state)
{
    char free_network[sizeof network] = "";
    make_test_dir(state);
    put_file(in_dir("net.lk"), network);
    const char *at = network, *found;
    for (; (found = strstr(at, " frozen=yes")); at = found + strlen(" frozen=yes"))
        strncat(free_network, at, (size_t)(found - at));
    strcat(free_network, at);
    put_file(in_dir("free.lk"), free_network);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_changes),   cmocka_unit_test(test_equal_bits), cmocka_unit_test(test_ways_to_freeze),
        cmocka_unit_test(test_same_gradients), cmocka_unit_test(test_resumed),    cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, remove_test_dir);
}
