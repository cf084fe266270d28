/* Programs: replays give the operators' own results, to the bit, in memory that is shared. */
#include "core/backend.h"
#include "lockstep/autograd.h"

#include <stdlib.h>
#include <string.h>

#include "program/program_testing.h"

enum { IMAGES = 8, CHANNELS = 16, CLASSES = 10, PARAMETERS = 4 };

static const lk_program_opts unfused = {.fuse = false};

/* A small network with a layout that changes on the way, a dropout and its gradient. */
typedef struct network {
    lk_tensor *parameters[PARAMETERS];
    uint64_t step;
} network;

static void make_network(network *net, lk_device *device)
{
    net->parameters[0] = numbers(device, LK_SHAPE(CHANNELS, 1, 3, 3), 1);
    net->parameters[1] = numbers(device, LK_SHAPE(CHANNELS), 2);
    net->parameters[2] = numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 3);
    net->parameters[3] = numbers(device, LK_SHAPE(CHANNELS * 3 * 3, CLASSES), 4);
}

/* images, labels, indices → gradients, loss. */
static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    lk_tensor *const *p = net->parameters;
    lk_tape *tape = lk_tape_begin(p, PARAMETERS);
    assert_non_null(tape);
    lk_tensor *y = lk_relu(lk_conv2d(in[0], p[0], p[1], &(lk_conv2d_opts){.padding = {1, 1}}));
    y = lk_dropout(y, in[2], 0.25, (lk_random_key){.seed = 1, .purpose = 2, .epoch = net->step});
    y = lk_max_pool2d(lk_relu(lk_conv2d(y, p[2], NULL, NULL)), &(lk_pool2d_opts){.kernel = {2, 2}});
    y = lk_matmul(lk_reshape(y, LK_SHAPE(IMAGES, CHANNELS * 3 * 3)), p[3]);
    out[PARAMETERS] = lk_sparse_softmax_cross_entropy(y, in[1], LK_REDUCTION_SUM);
    lk_status status = lk_tape_gradient(tape, out[PARAMETERS], NULL, out);
    lk_tape_release(tape);
    return status;
}

static void make_inputs(lk_device *device, int seed, lk_tensor **in)
{
    int32_t labels[IMAGES];
    int64_t indices[IMAGES];
    for (int i = 0; i < IMAGES; i++) {
        labels[i] = (i * 3 + seed) % CLASSES;
        indices[i] = 100 * seed + i;
    }
    in[0] = numbers(device, LK_SHAPE(IMAGES, 1, 8, 8), 10 + seed);
    in[1] = lk_tensor_from(device, LK_I32, LK_SHAPE(IMAGES), labels);
    in[2] = lk_tensor_from(device, LK_I64, LK_SHAPE(IMAGES), indices);
}

/* The third replay is the second one with a plan. */
static void check_replays(const char *spec)
{
    network net = {0};
    lk_tensor *in[3], *have[PARAMETERS + 1], *want[PARAMETERS + 1];
    lk_device *device = open_device(spec);
    lk_scope_begin();
    make_network(&net, device);
    make_inputs(device, 0, in);
    lk_program *program = lk_program_record(device, train, &net, in, 3, PARAMETERS + 1, &unfused);
    assert_non_null(program);
    for (int i = 0; i < 4; i++) {
        make_inputs(device, i, in);
        net.step = (uint64_t)i;
        memset(want, 0, sizeof want);
        assert_int_equal(train(&net, in, want), LK_OK);
        assert_int_equal(lk_program_run(program, in, (uint64_t)i, have), LK_OK);
        for (int j = 0; j <= PARAMETERS; j++)
            expect_equal(have[j], want[j]);
    }
    lk_program_memory memory;
    assert_int_equal(lk_program_get_memory(program, &memory), LK_OK);
    assert_true(memory.peak > 0 && memory.peak <= memory.planned && memory.planned < memory.sum);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void replays_have_the_operators_bits(void **state)
{
    (void)state;
    check_replays("cpu");
    check_replays("ref");
}

/* Replays follow each other on the device while the outputs of earlier ones are still in use. */
static void replays_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { RUNS = 6 };
    network net = {0};
    lk_tensor *in[RUNS][3], *have[RUNS][PARAMETERS + 1], *want[PARAMETERS + 1];
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    make_network(&net, device);
    for (int i = 0; i < RUNS; i++)
        make_inputs(device, i, in[i]);
    lk_program *program = lk_program_record(device, train, &net, in[0], 3, PARAMETERS + 1, &unfused);
    assert_non_null(program);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(lk_program_run(program, in[i], 7, have[i]), LK_OK);
    lk_program_release(program);
    net.step = 7;
    for (int i = 0; i < RUNS; i++) {
        memset(want, 0, sizeof want);
        assert_int_equal(train(&net, in[i], want), LK_OK);
        for (int j = 0; j <= PARAMETERS; j++)
            expect_equal(have[i][j], want[j]);
    }
    lk_scope_end();
    lk_device_release(device);
}

static lk_status take_a_sum(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    out[0] = lk_sum(in[0], NULL);
    return lk_error_status();
}

/* The device runs what was pushed before it closes, whichever is released first. */
static void everything_may_go_while_replays_run(void **state)
{
    (void)state;
    network net = {0};
    lk_tensor *in[3], *have[PARAMETERS + 1], *want[PARAMETERS + 1] = {0};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    make_network(&net, device);
    make_inputs(device, 0, in);
    assert_int_equal(train(&net, in, want), LK_OK);
    lk_program *program = lk_program_record(device, train, &net, in, 3, PARAMETERS + 1, &unfused);
    assert_non_null(program);
    for (int i = 0; i < 20; i++)
        assert_int_equal(lk_program_run(program, in, 0, have), LK_OK);
    lk_program_release(program);
    lk_device_release(device);
    for (int j = 0; j <= PARAMETERS; j++)
        expect_equal(have[j], want[j]);
    lk_scope_end();
}

static void a_closed_device_is_refused(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *in[] = {numbers(device, LK_SHAPE(4, 4), 1)}, *out[1];
    lk_program *program = lk_program_record(device, take_a_sum, NULL, in, 1, 1, NULL);
    assert_non_null(program);
    lk_device_release(device);
    assert_int_not_equal(lk_program_run(program, in, 0, out), LK_OK);
    expect_failure(lk_error_status(), LK_ERR_STATE, "");
    lk_program_release(program);
    lk_scope_end();
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

/* An input, a view, the same tensor twice, a variable, no tensor. */
static lk_status peculiar(void *user, lk_tensor *const *in, lk_tensor **out)
{
    lk_tensor *doubled = lk_add(in[0], in[0]);
    out[0] = in[0];
    out[1] = lk_transpose(doubled, 0, 1);
    out[2] = out[3] = doubled;
    out[4] = user;
    return lk_error_status();
}

static void outputs_are_tensors_of_their_own(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *variable = numbers(device, LK_SHAPE(5), 1), *in[] = {numbers(device, LK_SHAPE(2, 3), 2)}, *out[6];
    lk_program *program = lk_program_record(device, peculiar, variable, in, 1, 6, NULL);
    assert_non_null(program);
    assert_int_equal(lk_program_run(program, in, 0, out), LK_OK);
    lk_tensor *doubled = lk_add(in[0], in[0]);
    expect_equal(out[0], in[0]);
    expect_equal(out[1], lk_copy(lk_transpose(doubled, 0, 1), device));
    expect_equal(out[2], doubled);
    assert_int_equal(lk_add_into(out[2], doubled, doubled), LK_OK);
    expect_equal(out[3], doubled);
    expect_equal(out[4], variable);
    assert_null(out[5]);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

/* A variable that the program updates. */
static lk_status update(void *user, lk_tensor *const *in, lk_tensor **out)
{
    assert_int_equal(lk_add_into(user, user, in[0]), LK_OK);
    out[0] = lk_sum(user, NULL);
    return lk_error_status();
}

static void variables_are_updated_in_order(void **state)
{
    (void)state;
    double sum;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *variable = lk_full(device, LK_F32, LK_SHAPE(4), 0), *in[] = {lk_full(device, LK_F32, LK_SHAPE(4), 1)};
    lk_tensor *out[1];
    lk_program *program = lk_program_record(device, update, variable, in, 1, 1, NULL);
    assert_non_null(program);
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(lk_program_run(program, in, 0, out), LK_OK);
        assert_int_equal(lk_sgd_update(variable, in[0], 1), LK_OK);
        assert_int_equal(lk_tensor_item(out[0], &sum), LK_OK);
        assert_float_equal(sum, 4, 0);
    }
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static lk_status take_rows(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)in;
    out[0] = lk_relu(lk_reshape(user, LK_SHAPE(IMAGES, CHANNELS * 6 * 6)));
    return lk_error_status();
}

/* Recording makes a variable plain that has a layout of the device's, for a view, and others may use it before the
 * program runs. */
static void variables_with_layouts_can_be_viewed(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *x = numbers(device, LK_SHAPE(IMAGES, CHANNELS, 8, 8), 1), *out[1];
    lk_tensor *w = numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 2);
    lk_tensor *y = lk_conv2d(x, w, NULL, NULL), *like = lk_conv2d(x, w, NULL, NULL);
    lk_program *program = lk_program_record(device, take_rows, y, NULL, 0, 1, NULL);
    assert_non_null(program);
    expect_equal(lk_slice(y, 1, 1, 2), lk_slice(like, 1, 1, 2));
    assert_int_equal(lk_program_run(program, NULL, 0, out), LK_OK);
    expect_equal(out[0], lk_relu(lk_reshape(like, LK_SHAPE(IMAGES, CHANNELS * 6 * 6))));
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static lk_status read_an_element(void *user, lk_tensor *const *in, lk_tensor **out)
{
    double item;
    (void)user;
    out[0] = lk_sum(in[0], NULL);
    return lk_tensor_item(out[0], &item);
}

static lk_status leave_the_device(void *user, lk_tensor *const *in, lk_tensor **out)
{
    out[0] = lk_copy(in[0], user);
    return lk_error_status();
}

static lk_status fail_silently(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user, (void)in, (void)out;
    return LK_ERR_UNSUPPORTED;
}

static lk_status write_an_input(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    out[0] = in[0];
    return lk_add_into(in[0], in[0], in[0]);
}

/* Variables that a function writes on the way to its output. */
typedef struct written {
    lk_tensor *variable, *w, *bias;
} written;

static lk_status write_and_return(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const written *v = user;
    out[0] = v->variable;
    return lk_copy_into(v->variable, lk_relu(in[0]));
}

static lk_status write_and_use(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const written *v = user;
    lk_status status = lk_add_into(v->variable, lk_matmul(in[0], v->w), v->bias);
    out[0] = lk_relu(v->variable);
    return status;
}

static lk_status use_and_overwrite(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const written *v = user;
    lk_tensor *y = lk_matmul(in[0], v->variable);
    lk_status status = lk_copy_into(v->variable, v->w);
    out[0] = lk_add(y, v->bias);
    return status;
}

/* No copy or operator that is left out or moved may be one that a variable's value depends on. */
static void variables_are_as_without_fusion(void **state)
{
    (void)state;
    static const lk_program_fn fns[] = {write_and_return, write_and_use, use_and_overwrite};
    lk_device *device = open_device("cpu");
    for (int f = 0; f < 3; f++) {
        lk_scope_begin();
        lk_tensor *x = numbers(device, LK_SHAPE(4, 4), 1), *eager, *out[1];
        written v[2];
        for (int i = 0; i < 2; i++)
            v[i] = (written){numbers(device, LK_SHAPE(4, 4), 2), numbers(device, LK_SHAPE(4, 4), 3),
                             numbers(device, LK_SHAPE(4), 4)};
        lk_program *program = lk_program_record(device, fns[f], &v[0], &x, 1, 1, NULL);
        assert_non_null(program);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(fns[f](&v[1], &x, &eager), LK_OK);
            assert_int_equal(lk_program_run(program, &x, 0, out), LK_OK);
            expect_equal(out[0], eager);
            expect_equal(v[0].variable, v[1].variable);
        }
        lk_program_release(program);
        lk_scope_end();
    }
    lk_device_release(device);
}

static void wrong_use_is_refused(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu"), *other = open_device("ref");
    lk_scope_begin();
    lk_tensor *in[] = {numbers(device, LK_SHAPE(4, 4), 1)}, *out[1];
    assert_null(lk_program_record(device, read_an_element, NULL, in, 1, 1, NULL));
    expect_failure(lk_error_status(), LK_ERR_STATE, "");
    assert_null(lk_program_record(device, leave_the_device, other, in, 1, 1, NULL));
    expect_failure(lk_error_status(), LK_ERR_DEVICE, "");
    assert_null(lk_program_record(device, fail_silently, NULL, in, 1, 1, NULL));
    expect_failure(lk_error_status(), LK_ERR_UNSUPPORTED, "program: the recorded function failed: ");

    assert_null(lk_program_record(device, write_an_input, NULL, in, 1, 1, NULL));
    expect_failure(lk_error_status(), LK_ERR_ARGUMENT, "program: add writes input 0");
    assert_null(lk_program_record(NULL, take_a_sum, NULL, in, 1, 1, NULL));
    expect_failure(lk_error_status(), LK_ERR_ARGUMENT, "program: the device must not be NULL");
    assert_null(lk_program_record(device, take_a_sum, NULL, &(lk_tensor *){NULL}, 1, 1, NULL));
    expect_failure(lk_error_status(), LK_ERR_ARGUMENT, "program: the tensors that inputs are like must not be NULL");
    const struct {
        lk_program_opts opts;
        const char *message;
    } cases[] = {
        {{.cuts = -1}, "program: -1 cuts of 1 inputs and 1 outputs"},
        {{.cuts = 2}, "program: 2 cuts of 1 inputs and 1 outputs"},
        {{.buckets = (const int[]){0}}, "program: buckets of 0 quantities"},
        {{.buckets = (const int[]){-1}, .n_quantities = 1}, "program: quantity 0 is in bucket -1"},
        {{.buckets = (const int[]){0, 2}, .n_quantities = 2},
         "program: quantity 1 is in bucket 2; must be from 0 to 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(lk_program_record(device, take_a_sum, NULL, in, 1, 1, &cases[i].opts));
        expect_failure(lk_error_status(), LK_ERR_ARGUMENT, cases[i].message);
    }
    expect_failure(lk_program_run(NULL, in, 0, out), LK_ERR_ARGUMENT, "program: must not be NULL");

    lk_program *program = lk_program_record(device, take_a_sum, NULL, in, 1, 1, NULL);
    lk_program_memory memory;
    assert_non_null(program);
    assert_int_not_equal(lk_program_get_memory(program, &memory), LK_OK);
    expect_failure(lk_error_status(), LK_ERR_STATE, "");
    lk_tensor *wrong[] = {NULL, numbers(device, LK_SHAPE(16), 1), lk_full(device, LK_I32, LK_SHAPE(4, 4), 1),
                          lk_transpose(in[0], 0, 1), numbers(other, LK_SHAPE(4, 4), 1)};
    const lk_status errors[] = {LK_ERR_ARGUMENT, LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT, LK_ERR_DEVICE};
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(lk_program_run(program, &wrong[i], 0, out), LK_OK);
        assert_null(out[0]);
        expect_failure(lk_error_status(), errors[i], "");
    }
    lk_program_release(program);
    program = lk_program_record(device, update, in[0], in, 1, 1, NULL);
    assert_non_null(program);
    expect_failure(lk_program_run(program, in, 0, out), LK_ERR_ARGUMENT,
                   "program: input 0 is a variable that the program writes; give a copy of it");
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
    lk_device_release(other);
}

/* Labels out of range fail when the program runs: whoever waits for its outputs gets the error, with the operator's
 * name. */
static void a_failing_operator_is_named(void **state)
{
    (void)state;
    network net = {0};
    lk_tensor *in[3], *out[PARAMETERS + 1];
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    make_network(&net, device);
    make_inputs(device, 0, in);
    lk_program *program = lk_program_record(device, train, &net, in, 3, PARAMETERS + 1, &unfused);
    assert_non_null(program);
    int32_t labels[IMAGES] = {0, 1, 2, CLASSES};
    lk_tensor *good = in[1];
    in[1] = lk_tensor_from(device, LK_I32, LK_SHAPE(IMAGES), labels);
    assert_int_equal(lk_program_run(program, in, 0, out), LK_OK);
    assert_int_not_equal(lk_tensor_wait(out[0]), LK_OK);
    assert_non_null(strstr(lk_error_message(), "sparse_softmax_cross_entropy"));
    lk_error_clear();
    in[1] = good;
    assert_int_equal(lk_program_run(program, in, 0, out), LK_OK);
    assert_int_equal(lk_tensor_wait(out[0]), LK_OK);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_have_the_operators_bits),     cmocka_unit_test(replays_do_not_disturb_each_other),
        cmocka_unit_test(everything_may_go_while_replays_run), cmocka_unit_test(a_closed_device_is_refused),
        cmocka_unit_test(outputs_are_tensors_of_their_own),    cmocka_unit_test(variables_are_updated_in_order),
        cmocka_unit_test(variables_are_as_without_fusion),     cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(a_failing_operator_is_named),         cmocka_unit_test(variables_with_layouts_can_be_viewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
