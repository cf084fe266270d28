/* Tests of merged passes, on a GPU if $LOCKSTEP_TEST_DEVICES names one, and on a CPU device: fewer calls, and the same
 * bits. */
#include "program/merge.h"

#include "base/mem_testing.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "ops/pairwise_sum.h"
#include "lockstep/autograd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "program/program_testing.h"

enum { SHARDS = 4, COLORS = 3, CHANNELS = 8, SIDE = 6, CLASSES = 8, PARAMETERS = 5, VALUES = PARAMETERS + 1 };
enum { INPUTS = 3, OUTPUTS = VALUES + 1 }; /* images, indices, labels; sums of values, and a shard's own loss */

typedef struct network {
    lk_tensor *parameters[PARAMETERS]; /* of a convolution, a batch-norm and a dense layer */
    int64_t sizes[SHARDS];             /* samples of each shard */
    bool concatenates;                 /* calls an operator that cannot be merged */
    bool is_dense;                     /* its first layer is dense, and has the numbers of batch-norm as biases */
    uint64_t step;
} network;

static network make_network(lk_device *device, const int64_t sizes[SHARDS])
{
    network net = {.parameters = {numbers(device, LK_SHAPE(CHANNELS, COLORS, 3, 3), 1),
                                  numbers(device, LK_SHAPE(CHANNELS), 2), numbers(device, LK_SHAPE(CHANNELS), 3),
                                  numbers(device, LK_SHAPE(CHANNELS), 4),
                                  numbers(device, LK_SHAPE(CHANNELS * SIDE * SIDE, CLASSES), 5)}};
    memcpy(net.sizes, sizes, sizeof net.sizes);
    return net;
}

static network make_dense_network(lk_device *device, const int64_t sizes[SHARDS])
{
    network net = {.parameters = {numbers(device, LK_SHAPE(COLORS * SIDE * SIDE, CHANNELS), 1),
                                  numbers(device, LK_SHAPE(CHANNELS), 2), numbers(device, LK_SHAPE(CHANNELS), 3),
                                  numbers(device, LK_SHAPE(CHANNELS), 4),
                                  numbers(device, LK_SHAPE(CHANNELS, CLASSES), 5)},
                   .is_dense = true};
    memcpy(net.sizes, sizes, sizeof net.sizes);
    return net;
}

static int64_t count_samples(const network *net)
{
    int64_t n = 0;
    for (int s = 0; s < SHARDS; s++)
        n += net->sizes[s];
    return n;
}

static void make_inputs(const network *net, lk_device *device, int seed, lk_tensor **in)
{
    int64_t n = count_samples(net), indices[64];
    int32_t labels[64];
    assert_true(n <= 64);
    for (int i = 0; i < n; i++) {
        indices[i] = 100 * seed + i;
        labels[i] = (i * 5 + seed) % CLASSES;
    }
    in[0] = numbers(device, LK_SHAPE(n, COLORS, SIDE, SIDE), seed);
    in[1] = lk_tensor_from(device, LK_I64, LK_SHAPE(n), indices);
    in[2] = lk_tensor_from(device, LK_I32, LK_SHAPE(n), labels);
}

static lk_status shard(const network *net, lk_tensor *const *in, int64_t begin, int64_t end, lk_tensor **values)
{
    lk_tensor *const *p = net->parameters, *x = lk_slice(in[0], 0, begin, end), *y;
    lk_tape *tape = lk_tape_begin(p, PARAMETERS);
    if (!tape)
        return lk_error_status();
    if (net->is_dense) {
        y = lk_matmul(lk_reshape(x, LK_SHAPE(end - begin, COLORS * SIDE * SIDE)), p[0]);
        y = lk_add(lk_add(y, p[1]), lk_mul(p[2], p[3])); /* not merged; the view makes it plain */
        y = lk_relu(lk_reshape(y, LK_SHAPE(end - begin, CHANNELS / 2, 2)));
    } else {
        y = lk_conv2d(x, p[0], p[1], &(lk_conv2d_opts){.padding = {1, 1}});
        y = lk_relu(lk_batch_norm(y, p[2], p[3], 1e-5, NULL));
    }
    y = lk_dropout(y, lk_slice(in[1], 0, begin, end), 0.5,
                   (lk_random_key){.seed = 1, .purpose = 2, .epoch = net->step});
    if (net->concatenates)
        y = lk_concat((lk_tensor *[]){y}, 1, 0);
    y = lk_matmul(lk_reshape(y, LK_SHAPE(end - begin, lk_tensor_shape(p[4]).dim[0])), p[4]);
    values[PARAMETERS] = lk_sparse_softmax_cross_entropy(y, lk_slice(in[2], 0, begin, end), LK_REDUCTION_SUM);
    lk_status status = lk_tape_gradient(tape, values[PARAMETERS], NULL, values);
    lk_tape_release(tape);
    return status;
}

/* The sums over shards of their gradients and losses, and the loss of the second shard. */
static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tensor *values[SHARDS][VALUES] = {{NULL}};
    int64_t begin = 0;
    for (int s = 0; s < SHARDS; s++) {
        lk_program_branch(s + 1);
        lk_status status = shard(net, in, begin, begin + net->sizes[s], values[s]);
        if (status != LK_OK)
            return status;
        begin += net->sizes[s];
    }
    lk_program_branch(0);
    for (int i = 0; i < VALUES; i++)
        out[i] =
            lk__pairwise_sum(LK_HERE, (lk_tensor *[]){values[0][i], values[1][i], values[2][i], values[3][i]}, SHARDS);
    out[VALUES] = values[1][PARAMETERS];
    return lk_error_status();
}

static lk_program *record(network *net, lk_device *device, bool merge)
{
    lk_tensor *like[INPUTS];
    make_inputs(net, device, 0, like);
    return lk_program_record(device, train, net, like, INPUTS, OUTPUTS,
                             &(lk_program_opts){.fuse = true, .graphs = true, .merge = merge});
}

static int count_calls(network *net, lk_device *device, bool merge)
{
    lk_program *program = record(net, device, merge);
    if (!program)
        fail_msg("%s", lk_error_message());
    int calls = program->n_calls;
    lk_program_release(program);
    return calls;
}

static void expect_the_operators_bits(network *net, lk_device *device)
{
    lk_program *program = record(net, device, true);
    assert_non_null(program);
    for (int i = 0; i < 4; i++) {
        lk_tensor *in[INPUTS], *have[OUTPUTS], *want[OUTPUTS] = {NULL};
        net->step = (uint64_t)i << 31;
        make_inputs(net, device, i, in);
        assert_ok(train(net, in, want));
        assert_ok(lk_program_run(program, in, net->step, have));
        for (int j = 0; j < OUTPUTS; j++)
            expect_equal(have[j], want[j]);
    }
    lk_program_release(program);
}

/* Merged gradients of a dense layer are in branches of their own. */
static void gradients_run_side_by_side(void **state)
{
    (void)state;
    int in_branches[LK_MAX_BRANCHES + 1] = {0};
    lk_device *device = open_gpu();
    lk_scope_begin();
    network net = make_network(device, (const int64_t[]){8, 8, 8, 8});
    lk_program *program = record(&net, device, true);
    assert_non_null(program);
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        in_branches[call->branch]++;
        assert_true(call->branch == 0 || call->op->id == LK_OP_MATMUL || call->op->id == LK_OP_SUM);
    }
    assert_true(in_branches[0] > 0 && in_branches[1] == 1 && in_branches[2] == 1);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

/* Only neighbors of one size are merged if shards differ in size. */
static void passes_of_one_size_are_merged(void **state)
{
    (void)state;
    static const int64_t sizes[][SHARDS] = {{8, 8, 8, 8}, {8, 8, 16, 16}, {8, 16, 16, 16}, {8, 16, 8, 16}};
    int calls[4];
    lk_device *device = open_gpu();
    lk_scope_begin();
    for (int i = 0; i < 4; i++) {
        network net = make_network(device, sizes[i]);
        calls[i] = count_calls(&net, device, true);
        expect_the_operators_bits(&net, device);
        if (i == 3)
            assert_int_equal(calls[i], count_calls(&net, device, false));
    }
    assert_true(calls[0] < calls[1] && calls[1] < calls[3]);
    assert_true(calls[0] < calls[2] && calls[2] < calls[3]);
    lk_scope_end();
    lk_device_release(device);
}

static void an_operator_that_does_not_merge_keeps_passes_apart(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    lk_scope_begin();
    network net = make_network(device, (const int64_t[]){8, 8, 8, 8});
    net.concatenates = true;
    assert_int_equal(count_calls(&net, device, true), count_calls(&net, device, false));
    expect_the_operators_bits(&net, device);
    lk_scope_end();
    lk_device_release(device);
}

static lk_device *open_processor(void)
{
    lk_device *device = open_device("cpu");
    const lk_backend *backend = device->backend;
    if (!backend->stays_apart || backend->stays_apart(&(lk_call){.op = &lk__op_matmul}) == LK_APART_NEVER) {
        lk_device_release(device);
        print_message("SKIP: no own kernels for this processor\n");
        skip();
    }
    return device;
}

/* Kernels of calls that stay apart write only whole storages, unless the backend says otherwise. */
static void expect_whole_results(network *net, lk_device *device)
{
    lk_program *program = record(net, device, true);
    assert_non_null(program);
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        bool anywhere = device->backend->stays_apart(call) == LK_APART_ANY_RESULTS;
        assert_true(anywhere || call->op->id < 0 || lk__tensor_is_whole(call->out[0]));
    }
    lk_program_release(program);
}

/* Products are merged; losses, sums and gradients of weights are not. */
static void dense_layers_are_merged_on_a_processor(void **state)
{
    (void)state;
    static const int64_t sizes[][SHARDS] = {{8, 8, 8, 8}, {8, 8, 5, 5}, {1, 1, 1, 1}, {8, 7, 8, 7}};
    lk_device *device = open_processor();
    lk_scope_begin();
    for (int i = 0; i < 4; i++) {
        network net = make_dense_network(device, sizes[i]);
        int merged = count_calls(&net, device, true), apart = count_calls(&net, device, false);
        assert_true(i == 3 ? merged == apart : merged < apart);
        expect_whole_results(&net, device);
        expect_the_operators_bits(&net, device);
    }
    lk_scope_end();
    lk_device_release(device);
}

static void convolutions_are_not_merged_on_a_processor(void **state)
{
    (void)state;
    lk_device *device = open_processor();
    lk_scope_begin();
    network net = make_network(device, (const int64_t[]){8, 8, 8, 8});
    assert_int_equal(count_calls(&net, device, true), count_calls(&net, device, false));
    expect_the_operators_bits(&net, device);
    lk_scope_end();
    lk_device_release(device);
}

/* --- passes that are alike but cannot all be merged --------------------------------------------------------------- */

enum { ROWS = 2 }; /* of each pass; an input has as many columns as there are passes */

static lk_tensor *rows_of(lk_tensor *const *in, int v)
{
    return lk_slice(in[0], 0, v * ROWS, (v + 1) * ROWS);
}

static lk_tensor *hidden(lk_tensor *const *in, int v, const lk_tensor *weights)
{
    return lk_relu(lk_matmul(rows_of(in, v), (lk_tensor *)weights));
}

static lk_tensor *zeros(lk_tensor *const *in)
{
    return lk_full(lk_tensor_device(in[0]), LK_F32, LK_SHAPE(ROWS, SHARDS), 0);
}

/* As the gradient of lk_slice does. */
static lk_status write_into_equal_results(void *user, lk_tensor *const *in, lk_tensor **out)
{
    for (int v = 0; v < SHARDS; v++) {
        lk_program_branch(v + 1);
        lk_tensor *h = hidden(in, v, user), *d = zeros(in);
        lk_copy_into(lk_slice(d, 1, 0, 2), lk_slice(h, 1, 1, 3));
        out[v] = lk_relu(d);
    }
    return lk_error_status();
}

static lk_status write_into_equal_results_later(void *user, lk_tensor *const *in, lk_tensor **out)
{
    lk_tensor *h[SHARDS], *d[SHARDS];
    for (int v = 0; v < SHARDS; v++) {
        lk_program_branch(v + 1);
        h[v] = hidden(in, v, user);
        d[v] = zeros(in);
    }
    lk_program_branch(0);
    for (int v = 0; v < SHARDS; v++)
        lk_copy_into(d[v], h[v]);
    for (int v = 0; v < SHARDS; v++)
        out[v] = lk_relu(d[v]);
    return lk_error_status();
}

static lk_status write_into_earlier_results(void *user, lk_tensor *const *in, lk_tensor **out)
{
    lk_tensor *d[SHARDS];
    (void)user;
    for (int v = 0; v < SHARDS; v++)
        d[v] = zeros(in);
    for (int v = 0; v < SHARDS; v++) {
        lk_program_branch(v + 1);
        lk_copy_into(lk_slice(d[v], 1, 0, 2), lk_slice(rows_of(in, v), 1, 1, 3));
        out[v] = lk_relu(d[v]);
    }
    return lk_error_status();
}

static lk_status read_the_pass_before(void *user, lk_tensor *const *in, lk_tensor **out)
{
    lk_tensor *h = rows_of(in, 0);
    (void)user;
    for (int v = 0; v < SHARDS; v++) {
        lk_program_branch(0);
        h = lk_relu(lk_add(h, rows_of(in, v)));
    }
    out[0] = h;
    return lk_error_status();
}

/* A merged scalar is an array that is as long as the last axis here. */
static lk_status multiply_by_a_scalar(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    for (int v = 0; v < SHARDS; v++) {
        lk_program_branch(v + 1);
        out[v] = lk_mul(rows_of(in, v), lk_sum(rows_of(in, v), NULL));
    }
    return lk_error_status();
}

/* Returns the number of calls of the program, whose results had the bits of the operators. */
static int count_calls_of(lk_device *device, lk_program_fn fn, bool merge)
{
    lk_tensor *weights = numbers(device, LK_SHAPE(SHARDS, SHARDS), 1);
    lk_tensor *in = numbers(device, LK_SHAPE(SHARDS * ROWS, SHARDS), 2);
    lk_program *program = lk_program_record(device, fn, weights, &in, 1, SHARDS,
                                            &(lk_program_opts){.fuse = true, .graphs = true, .merge = merge});
    if (!program)
        fail_msg("%s", lk_error_message());
    for (int i = 0; i < 3; i++) {
        lk_tensor *have[SHARDS], *want[SHARDS] = {NULL};
        in = numbers(device, LK_SHAPE(SHARDS * ROWS, SHARDS), i);
        assert_ok(fn(weights, &in, want));
        assert_ok(lk_program_run(program, &in, 0, have));
        for (int v = 0; v < SHARDS; v++)
            if (want[v])
                expect_equal(have[v], want[v]);
    }
    int calls = program->n_calls;
    lk_program_release(program);
    return calls;
}

static void expect_results_of_each_pass(lk_device *device)
{
    static const lk_program_fn examples[] = {write_into_equal_results, write_into_equal_results_later,
                                             write_into_earlier_results, read_the_pass_before, multiply_by_a_scalar};
    lk_scope_begin();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        count_calls_of(device, examples[i], true);
    lk_scope_end();
}

static void passes_keep_their_own_results(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    expect_results_of_each_pass(device);
    lk_device_release(device);
}

/* Calls that write into equal results stay apart, and the layers before them are merged. */
static void passes_keep_their_own_results_on_a_processor(void **state)
{
    (void)state;
    lk_device *device = open_processor();
    expect_results_of_each_pass(device);
    lk_scope_begin();
    assert_true(count_calls_of(device, write_into_equal_results, true) <
                count_calls_of(device, write_into_equal_results, false));
    lk_scope_end();
    lk_device_release(device);
}

static void allocations_fail(lk_device *device, network *net)
{
    int failures = 0;
    lk_tensor *like[INPUTS];
    make_inputs(net, device, 0, like);
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_program *program =
            lk_program_record(device, train, net, like, INPUTS, OUTPUTS, &(lk_program_opts){.merge = true});
        stop_failing(&f);
        failures += !program;
        lk_program_release(program);
    }
    assert_true(failures > 10);
    lk_error_clear();
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    lk_scope_begin();
    network net = make_network(device, (const int64_t[]){8, 8, 8, 8});
    allocations_fail(device, &net);
    lk_scope_end();
    lk_device_release(device);
}

static void every_allocation_may_fail_on_a_processor(void **state)
{
    (void)state;
    lk_device *device = open_processor();
    lk_scope_begin();
    network net = make_dense_network(device, (const int64_t[]){8, 8, 8, 8});
    allocations_fail(device, &net);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_of_one_size_are_merged),
        cmocka_unit_test(an_operator_that_does_not_merge_keeps_passes_apart),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(gradients_run_side_by_side),
        cmocka_unit_test(dense_layers_are_merged_on_a_processor),
        cmocka_unit_test(convolutions_are_not_merged_on_a_processor),
        cmocka_unit_test(passes_keep_their_own_results),
        cmocka_unit_test(passes_keep_their_own_results_on_a_processor),
        cmocka_unit_test(every_allocation_may_fail_on_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
