/* Tests that kernels which keep something of variables between replays give the same bits as without, however the
 * variables change. */
#include "base/mem_testing.h"
#include "core/backend.h"
#include "lockstep/autograd.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#include "program/program_testing.h"

enum { IMAGES = 16, MOST_KEPT = 1 << 24 };

/* Convolutions for each kernel that reorders weights: with images in the lanes and with blocks of channels, both with
 * and without Winograd's algorithm, and grouped ones; each with its gradients. */
typedef struct conv_case {
    int64_t channels, filters, size, kernel, padding, stride, groups;
    bool relu, pooled;
    bool bf16; /* images, and a copy of the weights */
} conv_case;

static const conv_case cases[] = {
    {.channels = 12, .filters = 15, .size = 9, .kernel = 3},
    {.channels = 12, .filters = 30, .size = 9, .kernel = 2, .relu = true, .pooled = true},
    {.channels = 12, .filters = 20, .size = 12, .kernel = 5},
    {.channels = 12, .filters = 20, .size = 12, .kernel = 5, .relu = true, .pooled = true},
    {.channels = 16, .filters = 32, .size = 8, .kernel = 3, .padding = 1},
    {.channels = 16, .filters = 32, .size = 8, .kernel = 3, .padding = 1, .relu = true},
    {.channels = 16, .filters = 48, .size = 8, .kernel = 3, .padding = 1, .stride = 2},
    {.channels = 32, .filters = 48, .size = 8, .kernel = 1, .relu = true},
    {.channels = 16, .filters = 32, .size = 8, .kernel = 3, .padding = 1, .groups = 2},
    {.channels = 16, .filters = 32, .size = 8, .kernel = 3, .padding = 1, .bf16 = true},
    {.channels = 12, .filters = 30, .size = 9, .kernel = 2, .relu = true, .pooled = true, .bf16 = true},
};
enum { CASES = sizeof cases / sizeof *cases, IN_BF16 = 9 };

typedef struct network {
    const conv_case *c;
    lk_tensor *w, *bias;
} network;

static lk_shape weights_shape(const conv_case *c)
{
    return LK_SHAPE(c->filters, c->channels / (c->groups ? c->groups : 1), c->kernel, c->kernel);
}

static network make_network(lk_device *device, const conv_case *c, int seed)
{
    return (network){c, numbers(device, weights_shape(c), seed), numbers(device, LK_SHAPE(c->filters), seed + 1)};
}

enum { Y, DX, DW, OUTPUTS };

/* images → y and the gradients of images and weights. */
static lk_status pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    const conv_case *c = net->c;
    lk_tensor *watched[] = {in[0], net->w};
    lk_conv2d_opts opts = {.stride = {c->stride, c->stride}, .padding = {c->padding, c->padding}, .groups = c->groups};
    lk_tape *tape = lk_tape_begin(watched, 2);
    if (!tape)
        return lk_error_status();
    lk_tensor *x = in[0], *w = net->w, *bias = net->bias;
    if (c->bf16) {
        x = lk_cast(x, LK_BF16);
        w = lk_tensor_dtype(w) == LK_BF16 ? w : lk_cast(w, LK_BF16);
        bias = lk_cast(bias, LK_BF16);
    }
    lk_tensor *y = lk_conv2d(x, w, bias, &opts);
    if (c->relu)
        y = lk_relu(y);
    if (c->pooled)
        y = lk_max_pool2d(y, &(lk_pool2d_opts){.kernel = {2, 2}});
    out[Y] = lk_sum(lk_mul(y, y), NULL);
    lk_status status = lk_tape_gradient(tape, out[Y], NULL, &out[DX]);
    lk_tape_release(tape);
    return status;
}

static lk_tensor *images(lk_device *device, const conv_case *c, int seed)
{
    return numbers(device, LK_SHAPE(IMAGES, c->channels, c->size, c->size), seed);
}

static lk_program *record(lk_device *device, network *net, size_t keep, size_t segment)
{
    lk_tensor *like = images(device, net->c, 0);
    lk_program_opts opts = {.fuse = true, .keep_bytes = keep, .segment_bytes = segment};
    lk_program *program = lk_program_record(device, pass, net, &like, 1, OUTPUTS, &opts);
    assert_non_null(program);
    return program;
}

static int64_t kept_bytes(lk_program *program)
{
    lk_program_memory memory;
    assert_int_equal(lk_program_get_memory(program, &memory), LK_OK);
    return memory.kept;
}

/* Both programs, on the same images. */
static void expect_same(lk_program *have, lk_program *want, lk_tensor *x)
{
    lk_tensor *a[OUTPUTS], *b[OUTPUTS];
    assert_int_equal(lk_program_run(have, &x, 0, a), LK_OK);
    assert_int_equal(lk_program_run(want, &x, 0, b), LK_OK);
    for (int i = 0; i < OUTPUTS; i++)
        expect_equal(a[i], b[i]);
}

/* Other weights, written by the host or by an operator. */
static void change(const network *net, int seed, bool by_host)
{
    size_t bytes = (size_t)lk_tensor_count(net->w) * sizeof(float);
    lk_device *device = lk_tensor_device(net->w);
    lk_tensor *other = numbers(device, weights_shape(net->c), seed);
    if (by_host) {
        float *values = malloc(bytes);
        assert_non_null(values);
        assert_int_equal(lk_tensor_read(other, values, bytes), LK_OK);
        assert_int_equal(lk_tensor_write(net->w, values, bytes), LK_OK);
        free(values);
    } else {
        assert_int_equal(lk_add_into(net->w, net->w, other), LK_OK);
    }
}

static bool has_fast_kernels(const lk_device *device)
{
    const char *table;
    lk__backend_kernel(device->backend, LK_OP_CONV2D, LK_F32, &table);
    return strcmp(table, "cpu") == 0;
}

static void check_case(lk_device *device, const conv_case *c, size_t segment)
{
    lk_scope_begin();
    network net = make_network(device, c, 1);
    lk_program *have = record(device, &net, MOST_KEPT, segment), *want = record(device, &net, 0, segment);
    for (int i = 0; i < 8; i++) {
        if (i % 3 == 2)
            change(&net, 10 + i, i % 2);
        expect_same(have, want, images(device, c, 20 + i));
    }
    assert_int_equal(kept_bytes(want), 0);
    assert_int_equal(kept_bytes(have) > 0, has_fast_kernels(device));
    lk_program_release(have);
    lk_program_release(want);
    lk_scope_end();
}

static void changed_weights_are_seen(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    for (int c = 0; c < CASES; c++) {
        check_case(device, &cases[c], 0);
        check_case(device, &cases[c], 1);
    }
    lk_device_release(device);
}

/* The new weights are likely to get the memory of the old ones. */
static void remade_weights_are_seen(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    for (int i = 0; i < 4; i++) {
        lk_scope_begin();
        network net = make_network(device, &cases[4], 1 + i);
        lk_program *have = record(device, &net, MOST_KEPT, 0), *want = record(device, &net, 0, 0);
        for (int k = 0; k < 2; k++)
            expect_same(have, want, images(device, net.c, 7));
        lk_program_release(have);
        lk_program_release(want);
        lk_scope_end();
    }
    lk_device_release(device);
}

static void check_changes_between_segments(lk_device *device, const conv_case *c)
{
    lk_scope_begin();
    network net[] = {make_network(device, c, 1), make_network(device, c, 1)};
    lk_program *program[] = {record(device, &net[0], MOST_KEPT, 1), record(device, &net[1], 0, 1)};
    lk_tensor *x = images(device, net[0].c, 3), *out[2][OUTPUTS];
    for (int i = 0; i < 6; i++) {
        for (int p = 0; p < 2; p++) {
            const int *ready;
            int n_ready, pushed = 0;
            lk_replay *replay;
            assert_int_equal(lk_program_begin(program[p], &x, 0, out[p], &replay), LK_OK);
            while (lk_replay_segments_left(replay) > 0) {
                assert_int_equal(lk_replay_push(replay, &ready, &n_ready), LK_OK);
                if (pushed++ == 0 && i % 2)
                    change(&net[p], 30 + i, i % 4 == 1);
            }
            assert_true(pushed > 1);
            lk_replay_end(replay);
        }
        for (int o = 0; o < OUTPUTS; o++)
            expect_equal(out[0][o], out[1][o]);
    }
    lk_program_release(program[0]);
    lk_program_release(program[1]);
    lk_scope_end();
}

/* Weights that change between a replay's segments: later segments see the new ones, unless an earlier one has cast
 * them, and so does the next replay. */
static void weights_may_change_between_segments(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    check_changes_between_segments(device, &cases[5]);
    check_changes_between_segments(device, &cases[IN_BF16]);
    lk_device_release(device);
}

/* Weights whose copy in bf16 is kept, and that a later segment reads as well. */
static lk_status cast_and_squares(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tensor *w = lk_cast(net->w, LK_BF16), *x = lk_cast(in[0], LK_BF16);
    out[0] = lk_cast(lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {1, 1}}), LK_F32);
    out[1] = lk_cast(lk_conv2d(lk_relu(x), w, NULL, &(lk_conv2d_opts){.padding = {1, 1}}), LK_F32);
    out[2] = lk_mul(net->w, net->w);
    return out[2] ? LK_OK : lk_error_status();
}

static lk_program *record_squares(lk_device *device, network *net, size_t keep, size_t segment_bytes)
{
    lk_tensor *like = images(device, net->c, 3);
    const lk_program_opts opts = {.fuse = true, .keep_bytes = keep, .segment_bytes = segment_bytes};
    lk_program *program = lk_program_record(device, cast_and_squares, net, &like, 1, OUTPUTS, &opts);
    assert_non_null(program);
    return program;
}

/* A replay that begins after such a change sees the new weights everywhere. */
static void weights_that_changed_between_segments_stay_changed(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = make_network(device, &cases[IN_BF16], 1);
    lk_program *have = record_squares(device, &net, MOST_KEPT, 1), *want = record_squares(device, &net, 0, 0);
    lk_tensor *x = images(device, net.c, 3), *out[OUTPUTS];
    for (int i = 0; i < 5; i++) {
        const int *ready;
        int n_ready;
        lk_replay *replay;
        expect_same(have, want, x);
        assert_int_equal(lk_program_begin(have, &x, 0, out, &replay), LK_OK);
        assert_int_equal(lk_replay_push(replay, &ready, &n_ready), LK_OK);
        change(&net, 30 + i, i % 2);
        while (lk_replay_segments_left(replay) > 0)
            assert_int_equal(lk_replay_push(replay, &ready, &n_ready), LK_OK);
        lk_replay_end(replay);
    }
    assert_int_equal(kept_bytes(have) > 0, has_fast_kernels(device));
    lk_program_release(have);
    lk_program_release(want);
    lk_scope_end();
    lk_device_release(device);
}

/* Another program's replay with segments left has the memory that they share. */
static void other_programs_may_be_between_their_segments(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = make_network(device, &cases[IN_BF16], 1);
    lk_program *other = record_squares(device, &net, 0, 1), *want = record_squares(device, &net, 0, 0);
    lk_program *have = record_squares(device, &net, MOST_KEPT, 0);
    lk_tensor *x = images(device, net.c, 3), *out[OUTPUTS];
    for (int i = 0; i < 2; i++)
        expect_same(have, want, x);
    assert_int_equal(lk_program_run(other, &x, 0, out), LK_OK);
    for (int i = 0; i < 3; i++) {
        const int *ready;
        int n_ready;
        lk_replay *replay;
        assert_int_equal(lk_program_begin(other, &x, 0, out, &replay), LK_OK);
        assert_int_equal(lk_replay_push(replay, &ready, &n_ready), LK_OK);
        expect_same(have, want, x);
        lk_replay_end(replay);
    }
    assert_int_equal(kept_bytes(have) > 0, has_fast_kernels(device));
    lk_program_release(have);
    lk_program_release(want);
    lk_program_release(other);
    lk_scope_end();
    lk_device_release(device);
}

/* The limit allows one order of the weights but not both, or none. */
static void no_more_is_kept_than_allowed(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = make_network(device, &cases[6], 1);
    lk_program *all = record(device, &net, MOST_KEPT, 0), *want = record(device, &net, 0, 0);
    expect_same(all, want, images(device, net.c, 2));
    size_t whole = (size_t)kept_bytes(all);
    for (size_t bytes = 1; bytes < whole; bytes += whole / 3) {
        lk_program *some = record(device, &net, bytes, 0);
        for (int i = 0; i < 3; i++)
            expect_same(some, want, images(device, net.c, 2 + i));
        assert_true((size_t)kept_bytes(some) < whole);
        lk_program_release(some);
    }
    lk_program_release(all);
    lk_program_release(want);
    lk_scope_end();
    lk_device_release(device);
}

/* Weights that were computed in the program are reordered by each replay. */
static lk_status computed(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network net = *(const network *)user;
    net.w = lk_mul(net.w, in[1]);
    return pass(&net, in, out);
}

/* A bf16 copy of the weights that is written again. */
static lk_status cast_and_changed(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network net = *(const network *)user;
    net.w = lk_cast(net.w, LK_BF16);
    lk_status status = lk_add_into(net.w, net.w, lk_cast(in[1], LK_BF16));
    return status == LK_OK ? pass(&net, in, out) : status;
}

static void check_not_kept(lk_program_fn fn, const conv_case *c)
{
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = make_network(device, c, 1);
    lk_tensor *in[2] = {images(device, net.c, 0), numbers(device, weights_shape(net.c), 2)}, *a[OUTPUTS], *b[OUTPUTS];
    lk_program *program[2];
    for (int p = 0; p < 2; p++) {
        lk_program_opts opts = {.fuse = true, .keep_bytes = p == 0 ? MOST_KEPT : 0};
        program[p] = lk_program_record(device, fn, &net, in, 2, OUTPUTS, &opts);
        assert_non_null(program[p]);
    }
    for (int i = 0; i < 4; i++) {
        in[1] = numbers(device, weights_shape(net.c), 40 + i);
        assert_int_equal(lk_program_run(program[0], in, 0, a), LK_OK);
        assert_int_equal(lk_program_run(program[1], in, 0, b), LK_OK);
        for (int o = 0; o < OUTPUTS; o++)
            expect_equal(a[o], b[o]);
    }
    assert_int_equal(kept_bytes(program[0]), 0);
    lk_program_release(program[0]);
    lk_program_release(program[1]);
    lk_scope_end();
    lk_device_release(device);
}

static void computed_weights_are_not_kept(void **state)
{
    (void)state;
    check_not_kept(computed, &cases[4]);
    check_not_kept(cast_and_changed, &cases[IN_BF16]);
}

static lk_status try_two_replays(lk_device *device, network *net, size_t keep, lk_tensor *x, lk_tensor **out)
{
    const lk_program_opts opts = {.fuse = true, .keep_bytes = keep};
    lk_status status = LK_OK;
    lk_program *program = lk_program_record(device, pass, net, &x, 1, OUTPUTS, &opts);
    if (!program)
        return lk_error_status();
    for (int i = 0; i < 2 && status == LK_OK; i++)
        status = lk_program_run(program, &x, 0, out);
    for (int i = 0; i < OUTPUTS && status == LK_OK; i++)
        status = lk_tensor_wait(out[i]);
    lk_device_sync(device);
    lk_program_release(program);
    return status;
}

/* Allocations are refused one after another, including those of kept memory. */
static void without_memory_nothing_is_wrong(void **state)
{
    (void)state;
    failing f = fail_every(1);
    do {
        lk_device *device = open_device("cpu");
        lk_scope_begin();
        network net = make_network(device, &cases[5], 1);
        lk_tensor *x = images(device, net.c, 2), *want[OUTPUTS], *have[OUTPUTS];
        assert_int_equal(try_two_replays(device, &net, 0, x, want), LK_OK);
        fail_next(&f);
        lk_status status = try_two_replays(device, &net, MOST_KEPT, x, have);
        stop_failing(&f);
        if (status == LK_OK)
            for (int i = 0; i < OUTPUTS; i++)
                expect_equal(have[i], want[i]);
        else
            assert_int_equal(status, LK_ERR_MEMORY);
        lk_error_clear();
        lk_scope_end();
        lk_device_release(device);
    } while (f.reached);
    assert_true(f.n >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_weights_are_seen),
        cmocka_unit_test(remade_weights_are_seen),
        cmocka_unit_test(weights_may_change_between_segments),
        cmocka_unit_test(weights_that_changed_between_segments_stay_changed),
        cmocka_unit_test(other_programs_may_be_between_their_segments),
        cmocka_unit_test(no_more_is_kept_than_allowed),
        cmocka_unit_test(computed_weights_are_not_kept),
        cmocka_unit_test(without_memory_nothing_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
