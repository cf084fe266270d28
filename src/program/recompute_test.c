/* Recomputation: programs that need less memory and give the same bits, in every output and after every replay. */
#include "base/mem_testing.h"
#include "lockstep/autograd.h"
#include "lockstep/nn.h"

#include <stdlib.h>
#include <string.h>

#include "program/program_testing.h"

enum { IMAGES = 4, CLASSES = 5, BLOCKS = 6, CHANNELS = 8, MAX_OUT = 128, INPUTS = 3 };

/* Residual blocks with batch-norm and dropout, deep enough to have something to gain. */
static lk_layer *block(void)
{
    return LK_SEQUENTIAL(
        lk_layer_add(LK_SEQUENTIAL(lk_layer_conv2d(CHANNELS, 3, &(lk_conv2d_layer_opts){.same = true}),
                                   lk_layer_batch_norm(NULL), lk_layer_activation(LK_RELU), lk_layer_dropout(0.25),
                                   lk_layer_conv2d(CHANNELS, 3, &(lk_conv2d_layer_opts){.same = true}),
                                   lk_layer_batch_norm(NULL)),
                     lk_layer_identity()),
        lk_layer_activation(LK_RELU));
}

static lk_model *deep_model(void)
{
    lk_layer *layers[BLOCKS + 4] = {lk_layer_conv2d(CHANNELS, 3, &(lk_conv2d_layer_opts){.same = true})};
    for (int i = 0; i < BLOCKS; i++)
        layers[1 + i] = block();
    layers[BLOCKS + 1] = lk_layer_max_pool(2, NULL);
    layers[BLOCKS + 2] = lk_layer_flatten();
    layers[BLOCKS + 3] = lk_layer_dense(CLASSES, NULL);
    lk_model *model = lk_model_build("deep", lk_layer_sequential(layers, BLOCKS + 4),
                                     (lk_model_input){.channels = 1, .height = 8, .width = 8, .classes = CLASSES});
    if (!model)
        fail_msg("%s", lk_error_message());
    return model;
}

typedef struct network {
    lk_device *device;
    lk_model *model;
    lk_tensor *variables[MAX_OUT];
    int n_parameters, n_out;
    bool change_bias; /* of the first layer, between forward and backward */
    bool in_branches;
} network;

/* Gradients, statistics, loss. */
static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    lk_tape *tape = lk_tape_begin(net->variables, net->n_parameters);
    if (!tape)
        return lk_error_status();
    lk_forward_opts opts = {.training = true, .indices = &in[2], .statistics = out + net->n_parameters};
    lk_tensor *y = lk_model_forward(net->model, net->variables, in[0], &opts);
    lk_tensor *loss = out[net->n_out - 1] = lk_sparse_softmax_cross_entropy(y, in[1], LK_REDUCTION_SUM);
    lk_tensor *bias = net->variables[1], *one = lk_full(net->device, LK_F32, LK_SHAPE(CHANNELS), 1);
    lk_status status = loss && net->change_bias ? lk_add_into(bias, bias, one) : lk_error_status();
    if (status == LK_OK)
        status = lk_tape_gradient(tape, loss, NULL, out);
    lk_tape_release(tape);
    return status;
}

static lk_status evaluate(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    out[0] = lk_model_forward(net->model, net->variables, in[0], NULL);
    return out[0] ? LK_OK : lk_error_status();
}

static void begin(network *net, const char *device)
{
    *net = (network){.device = lk_device_open(device), .model = deep_model()};
    assert_non_null(net->device);
    net->n_parameters = lk_model_parameter_count(net->model);
    net->n_out = net->n_parameters + lk_model_statistics_count(net->model) + 1;
    assert_true(net->n_out <= MAX_OUT && lk_model_variable_count(net->model) <= MAX_OUT);
    lk_scope_begin();
    assert_ok(lk_model_init(net->model, net->device, 1, net->variables));
}

static void end(network *net)
{
    lk_scope_end();
    lk_model_release(net->model);
    lk_device_release(net->device);
}

static void make_inputs(const network *net, int seed, lk_tensor **in)
{
    float pixels[IMAGES * 8 * 8];
    int32_t labels[IMAGES];
    int64_t indices[IMAGES];
    for (int i = 0; i < IMAGES * 8 * 8; i++)
        pixels[i] = (float)((i * 7919 + seed * 104729) % 2003) / 1001 - 1;
    for (int i = 0; i < IMAGES; i++) {
        labels[i] = (i * 3 + seed) % CLASSES;
        indices[i] = 100 * seed + i;
    }
    in[0] = lk_tensor_from(net->device, LK_F32, LK_SHAPE(IMAGES, 1, 8, 8), pixels);
    in[1] = lk_tensor_from(net->device, LK_I32, LK_SHAPE(IMAGES), labels);
    in[2] = lk_tensor_from(net->device, LK_I64, LK_SHAPE(IMAGES), indices);
}

static lk_program *record(network *net, lk_program_fn fn, bool fuse, bool recompute)
{
    lk_tensor *in[INPUTS];
    make_inputs(net, 0, in);
    lk_program_opts opts = {.fuse = fuse, .recompute = recompute};
    return lk_program_record(net->device, fn, net, in, INPUTS, net->n_out, &opts);
}

/* The third replay is the second one with a memory plan. */
static void compare(network *net, lk_program *kept, lk_program *remade)
{
    lk_tensor *in[INPUTS], *want[MAX_OUT], *have[MAX_OUT];
    for (int i = 0; i < 3; i++) {
        make_inputs(net, i, in);
        assert_ok(lk_program_run(kept, in, (uint64_t)i, want));
        assert_ok(lk_program_run(remade, in, (uint64_t)i, have));
        for (int o = 0; o < net->n_out; o++)
            expect_equal(have[o], want[o]);
    }
}

static lk_program_memory memory_of(lk_program *program)
{
    lk_program_memory memory;
    assert_ok(lk_program_get_memory(program, &memory));
    return memory;
}

static void check(const char *device, bool fuse)
{
    network net;
    begin(&net, device);
    lk_program *kept = record(&net, train, fuse, false), *remade = record(&net, train, fuse, true);
    assert_non_null(kept);
    assert_non_null(remade);
    compare(&net, kept, remade);
    lk_program_memory before = memory_of(kept), after = memory_of(remade);
    assert_true(after.planned < before.planned * 3 / 4);
    assert_true(after.calls > before.calls && after.calls < 2 * before.calls);
    lk_program_release(kept);
    lk_program_release(remade);
    end(&net);
}

static void less_memory_same_bits(void **state)
{
    (void)state;
    check("cpu", true);
    check("cpu", false);
    check("ref", false);
}

static void count(void *user, const char *op, const char *call)
{
    (void)call;
    *(int *)user += strcmp(op, "conv2d") == 0 || strcmp(op, "conv_block") == 0;
}

/* Convolutions run at most twice, and some of them do. */
static void nothing_runs_a_third_time(void **state)
{
    (void)state;
    network net;
    int once = 0, twice = 0;
    begin(&net, "cpu");
    lk_program *kept = record(&net, train, true, false), *remade = record(&net, train, true, true);
    lk_program_visit(kept, count, &once);
    lk_program_visit(remade, count, &twice);
    assert_int_equal(once, 2 * BLOCKS + 1);
    assert_true(twice > once && twice <= 2 * once);
    lk_program_release(kept);
    lk_program_release(remade);
    end(&net);
}

/* If nothing is kept for later, there is nothing to gain. */
static void a_forward_pass_stays_as_it_is(void **state)
{
    (void)state;
    network net;
    begin(&net, "cpu");
    net.n_out = 1;
    lk_program *kept = record(&net, evaluate, true, false), *remade = record(&net, evaluate, true, true);
    compare(&net, kept, remade);
    assert_int_equal(memory_of(remade).calls, memory_of(kept).calls);
    lk_program_release(kept);
    lk_program_release(remade);
    end(&net);
}

static lk_status change_weight_first(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    lk_tensor *weight = net->variables[0];
    lk_tensor *before = lk_relu(weight);
    lk_status status = before ? lk_add_into(weight, weight, before) : lk_error_status();
    return status == LK_OK ? train(user, in, out) : status;
}

/* Passes in branches or one after the other, the sums of their results, and a variable that is then changed. */
static lk_status train_in_passes(void *user, lk_tensor *const *in, lk_tensor **out)
{
    enum { PASSES = 3 };
    network *net = user;
    lk_tensor *values[PASSES][MAX_OUT] = {{NULL}}, *bias = net->variables[1];
    lk_status status = LK_OK;
    for (int p = 0; p < PASSES && status == LK_OK; p++) {
        lk_program_branch(net->in_branches ? p + 1 : 0);
        status = train(user, in, values[p]);
    }
    lk_program_branch(0);
    for (int o = 0; o < net->n_out && status == LK_OK; o++)
        out[o] = lk_add(lk_add(values[0][o], values[1][o]), values[2][o]);
    return status == LK_OK ? lk_add_into(bias, bias, out[1]) : status;
}

/* Returns the planned memory with recomputation, as a share of that without. */
static double check_changing(lk_program_fn fn, bool change_bias, bool in_branches)
{
    network net, other;
    lk_tensor *in[INPUTS], *want[MAX_OUT], *have[MAX_OUT];
    begin(&net, "cpu");
    begin(&other, "cpu");
    net.change_bias = other.change_bias = change_bias;
    net.in_branches = other.in_branches = in_branches;
    lk_program *kept = record(&net, fn, true, false), *remade = record(&other, fn, true, true);
    assert_non_null(kept);
    assert_non_null(remade);
    for (int i = 0; i < 3; i++) {
        make_inputs(&net, i, in);
        assert_ok(lk_program_run(kept, in, (uint64_t)i, want));
        make_inputs(&other, i, in);
        assert_ok(lk_program_run(remade, in, (uint64_t)i, have));
        for (int o = 0; o < net.n_out; o++)
            expect_equal(have[o], want[o]);
    }
    for (int v = 0; v < 2; v++)
        expect_equal(other.variables[v], net.variables[v]);
    double part = (double)memory_of(remade).planned / (double)memory_of(kept).planned;
    lk_program_release(kept);
    lk_program_release(remade);
    end(&other);
    end(&net);
    return part;
}

/* A call that read a variable does not run again if the variable changes before backward. */
static void what_the_step_changes_is_changed_once(void **state)
{
    (void)state;
    check_changing(train, true, false);
    check_changing(change_weight_first, false, false);
}

static void every_pass_needs_less_memory(void **state)
{
    (void)state;
    assert_true(check_changing(train_in_passes, false, false) < 0.75);
    assert_true(check_changing(train_in_passes, false, true) < 0.75);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    network net;
    begin(&net, "cpu");
    lk_tensor *in[INPUTS];
    make_inputs(&net, 0, in);
    lk_program_opts opts = {.fuse = true, .recompute = true};
    int failures = 0;

    for (failing f = fail_every(1); fail_next(&f);) {
        lk_program *program = lk_program_record(net.device, train, &net, in, INPUTS, net.n_out, &opts);
        stop_failing(&f);
        lk_program_release(program);
        failures += !program;
    }
    assert_true(failures > 10);
    lk_error_clear();
    end(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(less_memory_same_bits),         cmocka_unit_test(nothing_runs_a_third_time),
        cmocka_unit_test(a_forward_pass_stays_as_it_is), cmocka_unit_test(what_the_step_changes_is_changed_once),
        cmocka_unit_test(every_pass_needs_less_memory),  cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
