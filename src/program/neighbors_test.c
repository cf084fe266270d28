/* Tests of calls that a GPU, which $LOCKSTEP_TEST_DEVICES names, starts together: which ones, and the same bits. */
#include "program/neighbors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "ops/pairwise_sum.h"
#include "program/program_testing.h"

/* ROWS are an odd number, so that rows of f32 do not begin at multiples of 16 bytes. */
enum { ADDENDS = 8, ROWS = 4099, OUTPUTS = 6 };

typedef struct network {
    lk_tensor *weights, *other_weights;
} network;

static lk_tensor *sum_of(lk_tensor *x, int n)
{
    lk_tensor *parts[ADDENDS];
    for (int i = 0; i < n; i++)
        parts[i] = lk_slice(x, 0, i, i + 1);
    return lk__pairwise_sum(LK_HERE, parts, n);
}

/* Sums and casts with other calls between them. The third sum needs the first, and so begins another group. */
static lk_status compute(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    out[0] = sum_of(in[0], ADDENDS);
    lk_tensor *weights = lk_cast(net->weights, LK_BF16);
    out[1] = lk_relu(in[0]);
    out[2] = sum_of(in[0], 2);
    out[3] = lk_cast(weights, LK_F32);
    out[4] = sum_of(lk_add(in[0], out[0]), 4);
    out[5] = lk_cast(lk_cast(net->other_weights, LK_BF16), LK_F32);
    return lk_error_status();
}

static lk_program *record(network *net, lk_device *device, size_t segment_bytes)
{
    lk_tensor *like[] = {numbers(device, LK_SHAPE(ADDENDS, ROWS), 0)};
    lk_program *program =
        lk_program_record(device, compute, net, like, 1, OUTPUTS,
                          &(lk_program_opts){.fuse = true, .graphs = true, .segment_bytes = segment_bytes});
    if (!program)
        fail_msg("%s", lk_error_message());
    return program;
}

static network make_network(lk_device *device)
{
    return (network){numbers(device, LK_SHAPE(40, 3, 5, 5), 1), numbers(device, LK_SHAPE(3, 70, 6, 7), 2)};
}

/* Returns the most calls of an operator that are in one group. */
static int largest_group(const lk_program *program, int op)
{
    int most = 0, size = 0;
    for (int i = 0; i < program->n_calls; i++) {
        size = i > 0 && lk__program_is_grouped(program, i) ? size + 1 : 1;
        if (program->calls[i].op->id == op)
            most = size > most ? size : most;
    }
    return most;
}

static void calls_move_together(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    lk_scope_begin();
    network net = make_network(device);
    lk_program *program = record(&net, device, 0);
    assert_int_equal(largest_group(program, LK_OP_PAIRWISE_SUM), 2);
    assert_int_equal(largest_group(program, LK_OP_CAST), 2);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

/* Groups do not grow beyond a bucket that other devices wait for. */
static void a_full_bucket_ends_a_group(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    lk_scope_begin();
    network net = make_network(device);
    lk_program *program = record(&net, device, sizeof(float));
    assert_int_equal(largest_group(program, LK_OP_PAIRWISE_SUM), 1);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void groups_give_the_operators_bits(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    lk_scope_begin();
    network net = make_network(device);
    lk_program *program = record(&net, device, 0);
    for (int i = 0; i < 4; i++) {
        lk_tensor *in[] = {numbers(device, LK_SHAPE(ADDENDS, ROWS), i)}, *have[OUTPUTS], *want[OUTPUTS];
        assert_ok(compute(&net, in, want));
        assert_ok(lk_program_run(program, in, (uint64_t)i, have));
        for (int k = 0; k < OUTPUTS; k++)
            expect_equal(have[k], want[k]);
    }
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_move_together),
        cmocka_unit_test(a_full_bucket_ends_a_group),
        cmocka_unit_test(groups_give_the_operators_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
