/* Branches and graphs: the same bits as calls one after the other, and memory that no two branches share. */
#include "program/program.h"

#include "base/mem_testing.h"
#include "core/backend.h"
#include "lockstep/autograd.h"

#include <string.h>

#include "program/program_testing.h"
#include "program/branches.h"

enum { SHARDS = 3, IMAGES = 4, CHANNELS = 8, SIDE = 6, CLASSES = 5, PARAMETERS = 3, OUTPUTS = PARAMETERS + 1 };
enum { INPUTS = 2 * SHARDS }; /* images and indices of each shard */

typedef struct network {
    lk_tensor *parameters[PARAMETERS];
    lk_tensor *total; /* each replay adds its loss to it; NULL: the program only returns the loss */
    size_t segment_bytes;
    const int *buckets; /* [OUTPUTS], or NULL */
    uint64_t step;
    bool in_branches;
} network;

static void make_network(network *net, lk_device *device)
{
    net->parameters[0] = numbers(device, LK_SHAPE(CHANNELS, 1, 3, 3), 1);
    net->parameters[1] = numbers(device, LK_SHAPE(CHANNELS), 2);
    net->parameters[2] = numbers(device, LK_SHAPE(CHANNELS * SIDE * SIDE, CLASSES), 3);
    net->total = net->segment_bytes > 0 ? NULL : lk_zeros(device, LK_F32, LK_SCALAR);
}

static void make_inputs(lk_device *device, int seed, lk_tensor **in)
{
    for (int s = 0; s < SHARDS; s++) {
        int64_t indices[IMAGES];
        for (int i = 0; i < IMAGES; i++)
            indices[i] = 100 * seed + s * IMAGES + i;
        in[2 * s] = numbers(device, LK_SHAPE(IMAGES, 1, SIDE, SIDE), 10 * seed + s);
        in[2 * s + 1] = lk_tensor_from(device, LK_I64, LK_SHAPE(IMAGES), indices);
    }
}

static lk_status shard(const network *net, lk_tensor *const *in, lk_tensor **values)
{
    lk_tensor *const *p = net->parameters;
    lk_tape *tape = lk_tape_begin(p, PARAMETERS);
    if (!tape)
        return lk_error_status();
    lk_tensor *y = lk_relu(lk_conv2d(in[0], p[0], p[1], &(lk_conv2d_opts){.padding = {1, 1}}));
    y = lk_dropout(y, in[1], 0.5, (lk_random_key){.seed = 1, .purpose = 2, .epoch = net->step});
    y = lk_matmul(lk_reshape(y, LK_SHAPE(IMAGES, CHANNELS * SIDE * SIDE)), p[2]);
    values[PARAMETERS] = lk_sum(lk_mul(y, y), NULL);
    lk_status status = lk_tape_gradient(tape, values[PARAMETERS], NULL, values);
    lk_tape_release(tape);
    return status;
}

static void enter(const network *net, int branch)
{
    if (net->in_branches)
        lk_program_branch(branch);
}

/* The sums over shards of their gradients and losses. */
static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tensor *values[SHARDS][OUTPUTS] = {{NULL}};
    for (int s = 0; s < SHARDS; s++) {
        enter(net, s + 1);
        lk_status status = shard(net, in + 2 * s, values[s]);
        if (status != LK_OK)
            return status;
    }
    enter(net, 0);
    for (int i = 0; i < OUTPUTS; i++)
        out[i] = lk_add(lk_add(values[0][i], values[1][i]), values[2][i]);
    if (!net->total)
        return lk_error_status();
    return out[OUTPUTS - 1] ? lk_copy_into(net->total, lk_add(net->total, out[OUTPUTS - 1])) : lk_error_status();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static bool overlap(const lk_value *a, const lk_value *b)
{
    return a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static lk_program *record(network *net, lk_device *device, bool graphs)
{
    lk_tensor *like[INPUTS];
    make_inputs(device, 0, like);
    lk_program_opts opts = {
        .graphs = graphs, .segment_bytes = net->segment_bytes, .buckets = net->buckets, .n_quantities = OUTPUTS};
    lk_program *program = lk_program_record(device, train, net, like, INPUTS, OUTPUTS, &opts);
    if (!program)
        fail_msg("%s", lk_error_message());
    return program;
}

static void branches_lie_apart(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    int pairs = 0, shared = 0;
    lk_scope_begin();
    network net = {.in_branches = true};
    make_network(&net, device);
    lk_program *program = record(&net, device, true);
    lk_tensor *in[INPUTS], *out[OUTPUTS];
    make_inputs(device, 1, in);
    assert_ok(lk_program_run(program, in, 0, out));
    assert_ok(lk_device_sync(device));
    for (int i = 0; i < program->n_values; i++)
        for (int j = 0; j < i; j++) {
            const lk_value *a = &program->values[i], *b = &program->values[j];
            bool apart = a->branch > 0 && b->branch > 0 && a->branch != b->branch;
            pairs += apart;
            shared += overlap(a, b);
            if (apart)
                assert_false(overlap(a, b));
        }
    assert_true(pairs > 0);
    assert_true(shared > 0); /* inside a branch, memory is reused */
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

static bool has_branch(const lk_program *program, const lk_segment *segment, int branch)
{
    for (int i = segment->begin; i < segment->end; i++)
        if (program->calls[i].branch == branch)
            return true;
    return false;
}

/* The last layer's gradient is finished first, and is as large as all others together; or is in a bucket of its own. */
static void check_segments(bool in_branches, bool in_buckets)
{
    static const int buckets[OUTPUTS] = {1, 1, 0, 1};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = {.in_branches = in_branches, .segment_bytes = 4 * CHANNELS * SIDE * SIDE * CLASSES};
    make_network(&net, device);
    if (in_buckets)
        net.segment_bytes = 0, net.buckets = buckets;
    lk_program *program = record(&net, device, true);
    assert_int_equal(program->n_segments, 2);
    assert_int_equal(program->segments[0].n_ready, 2); /* as well as the loss */
    assert_int_equal(program->ready[1], PARAMETERS - 1);
    for (int s = 0; s < 2; s++)
        for (int b = 1; b <= SHARDS; b++)
            assert_int_equal(has_branch(program, &program->segments[s], b), in_branches);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void a_segment_has_a_part_of_every_branch(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        check_segments(i & 1, i & 2);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    int failures = 0;
    lk_scope_begin();
    static const int buckets[OUTPUTS] = {2, 1, 0, 2};
    network net = {.in_branches = true, .buckets = buckets};
    lk_tensor *like[INPUTS];
    make_network(&net, device);
    make_inputs(device, 0, like);
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_program *program = lk_program_record(device, train, &net, like, INPUTS, OUTPUTS,
                                                &(lk_program_opts){.buckets = buckets, .n_quantities = OUTPUTS});
        stop_failing(&f);
        failures += !program;
        lk_program_release(program);
    }
    assert_true(failures > 10);
    lk_error_clear();
    lk_scope_end();
    lk_device_release(device);
}

/* --- dependencies ------------------------------------------------------------------------------------------------- */

static lk_status chain(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_program_branch(1);
    lk_tensor *made = lk_add(in[0], in[0]);
    lk_program_branch(2);
    out[0] = lk_mul(made, in[0]);
    return lk_error_status();
}

static void branches_that_need_each_other_are_none(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *in[] = {numbers(device, LK_SHAPE(4), 1)}, *out[1];
    lk_program *program = lk_program_record(device, chain, NULL, in, 1, 1, NULL);
    assert_non_null(program);
    assert_false(lk__program_has_branches(program));
    assert_ok(lk_program_run(program, in, 0, out));
    expect_equal(out[0], lk_mul(lk_add(in[0], in[0]), in[0]));
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

/* --- sharing ------------------------------------------------------------------------------------------------------ */

static lk_status round_the_variable(void *user, lk_tensor *const *in, lk_tensor **out)
{
    lk_tensor *variable = user;
    for (int s = 0; s < SHARDS; s++) {
        lk_program_branch(s + 1);
        lk_tensor *rounded = lk_cast(variable, LK_BF16);
        out[s] = lk_mul(lk_cast(rounded, LK_F32), in[s]);
    }
    lk_program_branch(0);
    return out[SHARDS - 1] ? lk_copy_into(variable, out[SHARDS - 1]) : lk_error_status();
}

static void count_casts(void *user, const char *op, const char *call)
{
    (void)call;
    *(int *)user += strcmp(op, "cast") == 0;
}

/* The variable is written after the branches, so each replay recomputes what it derives from it. Releases the
 * program. */
static void expect_the_operators_bits(lk_program *program, lk_program_fn fn, lk_tensor *const *in, lk_tensor *variable,
                                      lk_tensor *other)
{
    lk_tensor *have[SHARDS], *want[SHARDS];
    for (int i = 0; i < 4; i++) {
        assert_ok(lk_program_run(program, in, 0, have));
        assert_ok(fn(other, in, want));
        for (int s = 0; s < SHARDS; s++)
            expect_equal(have[s], want[s]);
    }
    expect_equal(variable, other);
    lk_program_release(program);
}

static void what_is_made_of_variables_is_made_once(void **state)
{
    (void)state;
    int casts = 0;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *variable = numbers(device, LK_SHAPE(5), 1), *other = numbers(device, LK_SHAPE(5), 1);
    lk_tensor *in[SHARDS];
    for (int s = 0; s < SHARDS; s++)
        in[s] = numbers(device, LK_SHAPE(5), 2 + s);
    lk_program *program = lk_program_record(device, round_the_variable, variable, in, SHARDS, SHARDS, NULL);
    assert_non_null(program);
    lk_program_visit(program, count_casts, &casts);
    assert_int_equal(casts, 1 + SHARDS); /* results of a shared call still belong to a branch */
    assert_true(lk__program_has_branches(program));
    expect_the_operators_bits(program, round_the_variable, in, variable, other);
    lk_scope_end();
    lk_device_release(device);
}

/* Forward and backward of every branch read the variable's weights, which the last one writes. */
static lk_status convolve_with_the_variable(void *user, lk_tensor *const *in, lk_tensor **out)
{
    lk_tensor *variable = user, *change = NULL;
    for (int s = 0; s < SHARDS; s++) {
        lk_program_branch(s + 1);
        lk_tape *tape = lk_tape_begin((lk_tensor *[]){variable, in[s]}, 2);
        if (!tape)
            return lk_error_status();
        lk_tensor *y = lk_conv2d(in[s], variable, NULL, &(lk_conv2d_opts){.padding = {1, 1}}), *gradients[2];
        lk_status status = lk_tape_gradient(tape, lk_sum(lk_mul(y, y), NULL), NULL, gradients);
        lk_tape_release(tape);
        if (status != LK_OK)
            return status;
        change = gradients[0];
        out[s] = gradients[1];
    }
    lk_program_branch(0);
    return lk_sgd_update(variable, change, 1e-3);
}

static void weights_are_laid_out_once(void **state)
{
    (void)state;
    int casts = 0;
    if (lk_device_available("cuda") == 0) {
        print_message("SKIP: there is no GPU\n");
        skip();
    }
    lk_device *device = open_device("cuda");
    lk_scope_begin();
    lk_tensor *variable = numbers(device, LK_SHAPE(6, 4, 3, 3), 1), *other = numbers(device, LK_SHAPE(6, 4, 3, 3), 1);
    lk_tensor *in[SHARDS];
    for (int s = 0; s < SHARDS; s++)
        in[s] = numbers(device, LK_SHAPE(IMAGES, 4, SIDE, SIDE), 2 + s);
    lk_program *program = lk_program_record(device, convolve_with_the_variable, variable, in, SHARDS, SHARDS,
                                            &(lk_program_opts){.graphs = true});
    assert_non_null(program);
    lk_program_visit(program, count_casts, &casts);
    assert_int_equal(casts, 1);
    assert_true(lk__program_has_branches(program));
    expect_the_operators_bits(program, convolve_with_the_variable, in, variable, other);
    lk_scope_end();
    lk_device_release(device);
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

static lk_status add_large(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *large = lk_expand(in[0], LK_SHAPE(1 << 16, 4));
    out[0] = lk_sum(lk_add(large, large), NULL);
    return lk_error_status();
}

/* A program that needs more memory moves the block that programs share. */
static void run_larger(lk_device *device)
{
    lk_tensor *in[] = {numbers(device, LK_SHAPE(1, 4), 1)}, *out[1];
    lk_program *program = lk_program_record(device, add_large, NULL, in, 1, 1, &(lk_program_opts){.graphs = true});
    assert_non_null(program);
    for (int i = 0; i < 2; i++)
        assert_ok(lk_program_run(program, in, 0, out));
    lk_program_release(program);
}

static void expect_graphs(const lk_program *program, bool graphs)
{
    for (int s = 0; s < program->n_segments; s++)
        assert_int_equal(program->segments[s].graph != NULL, graphs);
}

/* On a GPU the first replay runs in branches, and later ones may be a graph. */
static void check_replays(const char *spec, bool graphs, size_t segment_bytes)
{
    lk_device *device = open_device(spec);
    lk_scope_begin();
    network net = {.in_branches = true, .segment_bytes = segment_bytes}, plain = {.segment_bytes = segment_bytes};
    make_network(&net, device);
    make_network(&plain, device);
    lk_program *program = record(&net, device, graphs);
    for (int i = 0; i < 7; i++) {
        lk_tensor *in[INPUTS], *have[OUTPUTS], *want[OUTPUTS] = {NULL};
        make_inputs(device, i, in);
        plain.step = (uint64_t)i << 31;
        assert_ok(train(&plain, in, want));
        assert_ok(lk_program_run(program, in, plain.step, have));
        if (i == 4)
            run_larger(device);
        for (int j = 0; j < OUTPUTS; j++)
            expect_equal(have[j], want[j]);
    }
    if (net.total)
        expect_equal(net.total, plain.total);
    assert_int_equal(program->n_segments > 1, segment_bytes > 0);
    expect_graphs(program, graphs && device->backend->graphs);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void check(const char *spec, bool graphs)
{
    check_replays(spec, graphs, 0);
    check_replays(spec, graphs, 1);
    check_replays(spec, graphs, 5000);
}

static void replays_have_the_operators_bits(void **state)
{
    (void)state;
    check("cpu", true);
}

static void graphs_have_the_operators_bits(void **state)
{
    (void)state;
    if (lk_device_available("cuda") == 0) {
        print_message("SKIP: there is no GPU\n");
        skip();
    }
    check("cuda", false);
    check("cuda", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_lie_apart),
        cmocka_unit_test(a_segment_has_a_part_of_every_branch),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(branches_that_need_each_other_are_none),
        cmocka_unit_test(what_is_made_of_variables_is_made_once),
        cmocka_unit_test(weights_are_laid_out_once),
        cmocka_unit_test(replays_have_the_operators_bits),
        cmocka_unit_test(graphs_have_the_operators_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
