/* Programs in segments: outputs come as soon as they are finished, with the bits of a program in one piece, whatever
 * runs in between. */
#include "base/mem_testing.h"
#include "core/backend.h"
#include "core/release_testing.h"
#include "lockstep/autograd.h"

#include <stdlib.h>
#include <string.h>

#include "program/program_testing.h"

/* Outputs: gradients of two convolutions with biases and of a product, loss, one that is absent. */
enum { IMAGES = 8, CHANNELS = 16, CLASSES = 10, PARAMETERS = 5, LOSS = PARAMETERS, ABSENT, OUTPUTS };

typedef struct network {
    lk_device *device;
    lk_tensor *parameters[PARAMETERS];
    lk_program *program;
} network;

static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    lk_tensor *const *p = net->parameters;
    lk_tape *tape = lk_tape_begin(p, PARAMETERS);
    if (!tape)
        return lk_error_status();
    lk_tensor *y = lk_relu(lk_conv2d(in[0], p[0], p[1], &(lk_conv2d_opts){.padding = {1, 1}}));
    y = lk_max_pool2d(lk_relu(lk_conv2d(y, p[2], p[3], NULL)), &(lk_pool2d_opts){.kernel = {2, 2}});
    y = lk_matmul(lk_reshape(y, LK_SHAPE(IMAGES, CHANNELS * 3 * 3)), p[4]);
    out[LOSS] = lk_sparse_softmax_cross_entropy(y, in[1], LK_REDUCTION_SUM);
    lk_status status = lk_tape_gradient(tape, out[LOSS], NULL, out);
    lk_tape_release(tape);
    return status;
}

static void make_inputs(const network *net, int seed, lk_tensor **in)
{
    int32_t labels[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        labels[i] = (i * 3 + seed) % CLASSES;
    in[0] = numbers(net->device, LK_SHAPE(IMAGES, 1, 8, 8), 10 + seed);
    in[1] = lk_tensor_from(net->device, LK_I32, LK_SHAPE(IMAGES), labels);
}

static lk_program *record(network *net, size_t segment_bytes, bool fuse)
{
    lk_tensor *in[2];
    make_inputs(net, 0, in);
    lk_program_opts opts = {.fuse = fuse, .segment_bytes = segment_bytes};
    lk_program *program = lk_program_record(net->device, train, net, in, 2, OUTPUTS, &opts);
    if (!program)
        fail_msg("%s", lk_error_message());
    return program;
}

static void begin(network *net, size_t segment_bytes, bool fuse)
{
    *net = (network){.device = lk_device_open("cpu")};
    assert_non_null(net->device);
    lk_scope_begin();
    net->parameters[0] = numbers(net->device, LK_SHAPE(CHANNELS, 1, 3, 3), 1);
    net->parameters[1] = numbers(net->device, LK_SHAPE(CHANNELS), 2);
    net->parameters[2] = numbers(net->device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 3);
    net->parameters[3] = numbers(net->device, LK_SHAPE(CHANNELS), 4);
    net->parameters[4] = numbers(net->device, LK_SHAPE(CHANNELS * 3 * 3, CLASSES), 5);
    net->program = record(net, segment_bytes, fuse);
}

/* Only the memory that programs share may be left. */
static void end(network *net)
{
    lk_program_release(net->program);
    lk_scope_end();
    assert_ok(lk_device_sync(net->device));
    int64_t now, peak;
    lk_device_memory(net->device, &now, &peak);
    assert_int_equal(now, net->device->arena ? (int64_t)net->device->arena->size : 0);
    lk_device_release(net->device);
}

static void expect_equal_outputs(lk_tensor *const *have, lk_tensor *const *want)
{
    for (int i = 0; i < ABSENT; i++)
        expect_equal(have[i], want[i]);
    assert_null(have[ABSENT]);
}

/* The results of a program in one piece. */
static void run_whole(network *net, int seed, lk_tensor **out)
{
    lk_tensor *in[2];
    lk_program *whole = record(net, 0, true);
    make_inputs(net, seed, in);
    assert_ok(lk_program_run(whole, in, 0, out));
    lk_program_release(whole);
}

/* --- which output comes when -------------------------------------------------------------------------------------- */

static int segments_of(network *net)
{
    lk_program_memory memory;
    assert_ok(lk_program_get_memory(net->program, &memory));
    return memory.segments;
}

/* Their memory may then be taken over, however long the replay continues. */
static void what_is_finished_is_the_callers_alone(void **state)
{
    (void)state;
    network net;
    lk_tensor *in[2], *out[OUTPUTS];
    lk_replay *replay;
    const int *ready;
    int n_ready = 0;
    begin(&net, 1, true);
    make_inputs(&net, 1, in);
    assert_ok(lk_program_begin(net.program, in, 0, out, &replay));
    while (n_ready == 0)
        assert_ok(lk_replay_push(replay, &ready, &n_ready));
    assert_true(lk_replay_segments_left(replay) > 0);
    assert_ok(lk_device_sync(net.device));
    int alone = 0;
    for (int i = 0; i < n_ready; i++)
        alone += out[ready[i]] && lk__refcount_is_one(&out[ready[i]]->references);
    assert_true(n_ready > 1);
    assert_int_equal(alone, n_ready - 1); /* an absent output is ready from the start; there is one */
    lk_replay_end(replay);
    end(&net);
}

/* Backward ends with the first layer, whose gradients come last. */
static void outputs_come_once_and_as_backward_finishes_them(void **state)
{
    (void)state;
    for (int fuse = 0; fuse < 2; fuse++) {
        network net;
        lk_tensor *in[2], *out[OUTPUTS];
        lk_replay *replay;
        int when[OUTPUTS], n = 0;
        begin(&net, 1, fuse);
        make_inputs(&net, 1, in);
        memset(when, -1, sizeof when);
        assert_ok(lk_program_begin(net.program, in, 0, out, &replay));
        int segments = lk_replay_segments_left(replay);
        for (int s = 0; s < segments; s++) {
            const int *ready;
            int n_ready;
            assert_int_equal(lk_replay_segments_left(replay), segments - s);
            assert_ok(lk_replay_push(replay, &ready, &n_ready));
            for (int i = 0; i < n_ready; i++, n++) {
                assert_int_equal(when[ready[i]], -1);
                when[ready[i]] = s;
                if (out[ready[i]]) /* while later segments are not even pushed */
                    assert_ok(lk_tensor_wait(out[ready[i]]));
            }
        }
        lk_replay_end(replay);
        assert_int_equal(n, OUTPUTS);
        assert_int_equal(when[ABSENT], 0);
        assert_true(when[LOSS] < when[4] && when[4] < when[2] && when[2] < when[0] && when[2] <= segments - 2);
        assert_int_equal(segments_of(&net), segments);
        end(&net);
    }
}

static void a_segment_has_as_many_bytes_as_were_asked_for(void **state)
{
    (void)state;
    network net;
    lk_tensor *in[2], *out[OUTPUTS];
    lk_replay *replay;
    const int *ready;
    size_t product = CHANNELS * 3 * 3 * CLASSES * sizeof(float); /* and the loss before it */
    int n_ready;
    begin(&net, product + sizeof(float), true);
    make_inputs(&net, 1, in);
    assert_ok(lk_program_begin(net.program, in, 0, out, &replay));
    assert_int_equal(lk_replay_segments_left(replay), 3);
    assert_ok(lk_replay_push(replay, &ready, &n_ready));
    assert_int_equal(n_ready, 3);
    assert_int_equal(ready[0], ABSENT);
    assert_int_equal(ready[1], LOSS);
    assert_int_equal(ready[2], 4);
    lk_replay_end(replay);
    end(&net);
}

/* A bias may be finished after the weights next to it in its bucket, and the loss is in the last bucket, which ends
 * nothing. */
static void a_segment_ends_with_its_bucket(void **state)
{
    (void)state;
    for (int fuse = 0; fuse < 2; fuse++) {
        const int buckets[OUTPUTS] = {2, 2, 1, 1, 0, 2, 0};
        network net;
        lk_tensor *in[2], *have[OUTPUTS], *want[OUTPUTS];
        lk_replay *replay;
        const int *ready;
        int n_ready, when[OUTPUTS];
        begin(&net, 0, fuse);
        make_inputs(&net, 1, in);
        lk_program *cut =
            lk_program_record(net.device, train, &net, in, 2, OUTPUTS,
                              &(lk_program_opts){.fuse = fuse, .buckets = buckets, .n_quantities = OUTPUTS});
        assert_non_null(cut);
        assert_ok(lk_program_begin(cut, in, 0, have, &replay));
        assert_int_equal(lk_replay_segments_left(replay), 3);
        for (int s = 0; s < 3; s++) {
            assert_ok(lk_replay_push(replay, &ready, &n_ready));
            for (int i = 0; i < n_ready; i++)
                when[ready[i]] = s;
        }
        lk_replay_end(replay);
        assert_memory_equal(when, ((int[OUTPUTS]){2, 2, 1, 1, 0, 0, 0}), sizeof when);
        run_whole(&net, 1, want);
        expect_equal_outputs(have, want);
        lk_program_release(cut);
        end(&net);
    }
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Pushes one segment, and an operator that depends on its outputs. */
static void push_and_use(lk_replay *replay, lk_tensor *const *out, lk_tensor **doubled)
{
    const int *ready;
    int n_ready;
    assert_ok(lk_replay_push(replay, &ready, &n_ready));
    for (int i = 0; i < n_ready; i++)
        if (out[ready[i]])
            doubled[ready[i]] = lk_add(out[ready[i]], out[ready[i]]);
}

/* Two programs, alternating by segment, with a third as a whole in between; the second round has memory plans. */
static void segments_of_other_programs_may_come_between(void **state)
{
    (void)state;
    network net;
    begin(&net, 1, true);
    lk_program *other = record(&net, 2000, true);
    for (int round = 0; round < 3; round++) {
        lk_tensor *in[2][2], *out[2][OUTPUTS], *doubled[2][OUTPUTS] = {{NULL}}, *want[2][OUTPUTS], *between[OUTPUTS];
        lk_replay *replay[2];
        for (int p = 0; p < 2; p++) {
            make_inputs(&net, 2 * round + p, in[p]);
            assert_ok(lk_program_begin(p ? other : net.program, in[p], 0, out[p], &replay[p]));
        }
        while (lk_replay_segments_left(replay[0]) + lk_replay_segments_left(replay[1]) > 0) {
            for (int p = 0; p < 2; p++)
                if (lk_replay_segments_left(replay[p]) > 0)
                    push_and_use(replay[p], out[p], doubled[p]);
            run_whole(&net, 2 * round, between);
        }
        for (int p = 0; p < 2; p++) {
            lk_replay_end(replay[p]);
            run_whole(&net, 2 * round + p, want[p]);
            expect_equal_outputs(out[p], want[p]);
            for (int i = 0; i < ABSENT; i++)
                expect_equal(doubled[p][i], lk_add(want[p][i], want[p][i]));
        }
        expect_equal_outputs(between, want[0]);
    }
    lk_program_release(other);
    end(&net);
}

static void a_run_has_all_segments(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 20000; bytes *= 7) {
        network net;
        begin(&net, bytes, true);
        for (int i = 0; i < 3; i++) {
            lk_tensor *in[2], *have[OUTPUTS], *want[OUTPUTS];
            make_inputs(&net, i, in);
            assert_ok(lk_program_run(net.program, in, 0, have));
            run_whole(&net, i, want);
            expect_equal_outputs(have, want);
        }
        end(&net);
    }
}

/* --- ends and errors ---------------------------------------------------------------------------------------------- */

static void a_replay_may_end_after_any_segment(void **state)
{
    (void)state;
    network net;
    lk_tensor *in[2], *out[OUTPUTS], *want[OUTPUTS];
    lk_replay *replay;
    begin(&net, 1, true);
    make_inputs(&net, 3, in);
    run_whole(&net, 3, want);
    for (int n = 0; n < 4; n++) {
        lk_tensor *doubled[OUTPUTS];
        lk_scope_begin();
        assert_ok(lk_program_begin(net.program, in, 0, out, &replay));
        for (int s = 0; s < n; s++)
            push_and_use(replay, out, doubled);
        lk_replay_end(replay);
        assert_ok(lk_program_run(net.program, in, 0, out));
        expect_equal_outputs(out, want);
        lk_scope_end();
    }
    lk_replay_end(NULL);
    end(&net);
}

/* Its memory is given back once the device's thread no longer uses it. */
static void a_replay_may_end_while_the_device_is_released(void **state)
{
    (void)state;
    network net;
    slow_release release;
    lk_tensor *in[2], *out[OUTPUTS], *doubled[OUTPUTS];
    lk_replay *replay;
    begin(&net, 1, true);
    make_inputs(&net, 3, in);
    assert_ok(lk_program_begin(net.program, in, 0, out, &replay));
    hold_up(&release, net.device);
    push_and_use(replay, out, doubled);
    begin_release(&release);
    lk_replay_end(replay);
    assert_true(atomic_load(&release.has_run));
    end_release(&release);
    lk_program_release(net.program);
    lk_scope_end();
}

static void a_program_is_replayed_by_one_at_a_time(void **state)
{
    (void)state;
    network net;
    lk_tensor *in[2], *out[OUTPUTS], *other[OUTPUTS];
    lk_replay *replay, *second;
    const int *ready;
    int n_ready;
    begin(&net, 1, true);
    make_inputs(&net, 1, in);
    assert_ok(lk_program_begin(net.program, in, 0, out, &replay));
    expect_failure(lk_program_begin(net.program, in, 0, other, &second), LK_ERR_STATE, "");
    assert_null(second);
    expect_failure(lk_program_run(net.program, in, 0, other), LK_ERR_STATE, "");
    assert_null(other[LOSS]);
    while (lk_replay_segments_left(replay) > 0)
        assert_ok(lk_replay_push(replay, &ready, &n_ready));
    expect_failure(lk_replay_push(replay, &ready, &n_ready), LK_ERR_STATE, "");
    assert_int_equal(n_ready, 0);
    assert_ok(lk_program_begin(net.program, in, 0, other, &second));
    lk_replay_end(replay);
    lk_replay_end(second);
    expect_failure(lk_program_begin(net.program, (lk_tensor *[]){in[1], in[1]}, 0, other, &second), LK_ERR_DTYPE, "");
    assert_ok(lk_program_run(net.program, in, 0, other));
    expect_equal_outputs(other, out);
    end(&net);
}

/* If a segment fails, the later ones fail too; earlier outputs stay valid. */
static void what_follows_a_failure_is_left_out(void **state)
{
    (void)state;
    network net;
    lk_tensor *in[2], *out[OUTPUTS], *want[OUTPUTS];
    int32_t labels[IMAGES] = {0, 1, 2, CLASSES};
    begin(&net, 1, true);
    make_inputs(&net, 1, in);
    lk_tensor *good = in[1];
    in[1] = lk_tensor_from(net.device, LK_I32, LK_SHAPE(IMAGES), labels);
    for (int round = 0; round < 2; round++) {
        assert_ok(lk_program_run(net.program, in, 0, out));
        for (int i = 0; i < ABSENT; i++) {
            assert_int_not_equal(lk_tensor_wait(out[i]), LK_OK);
            assert_non_null(strstr(lk_error_message(), "cross_entropy"));
            lk_error_clear();
        }
    }
    in[1] = good;
    assert_ok(lk_program_run(net.program, in, 0, out));
    run_whole(&net, 1, want);
    expect_equal_outputs(out, want);
    end(&net);
}

static lk_status run_in_segments(network *net, lk_tensor *const *in, lk_tensor **out)
{
    lk_replay *replay;
    lk_status status = lk_program_begin(net->program, in, 0, out, &replay);
    while (status == LK_OK && lk_replay_segments_left(replay) > 0) {
        const int *ready;
        int n_ready;
        status = lk_replay_push(replay, &ready, &n_ready);
        for (int i = 0; i < n_ready && status == LK_OK; i++)
            status = out[ready[i]] && !lk_add(out[ready[i]], out[ready[i]]) ? lk_error_status() : LK_OK;
    }
    lk_replay_end(replay);
    for (int i = 0; i < ABSENT && status == LK_OK; i++)
        status = lk_tensor_wait(out[i]);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    network net;
    lk_tensor *in[2], *want[OUTPUTS];
    int failures = 0;
    begin(&net, 1, true);
    make_inputs(&net, 1, in);
    run_whole(&net, 1, want);
    failing f = fail_every(1);
    do {
        lk_tensor *out[OUTPUTS];
        lk_scope_begin();
        fail_next(&f);
        lk_status status = run_in_segments(&net, in, out);
        stop_failing(&f);
        if (lk_wait_all() != LK_OK)
            assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
        lk_error_clear();
        assert_true(status == LK_OK || status == LK_ERR_MEMORY);
        failures += status != LK_OK;
        assert_ok(run_in_segments(&net, in, out));
        expect_equal_outputs(out, want);
        lk_scope_end();
    } while (f.reached);
    assert_true(failures > 10);
    end(&net);
}

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* The caller gives in[1] in the middle. It is used in three ways: with earlier results, alone, or too early. */
typedef struct cut_function {
    bool too_early;
} cut_function;

static lk_status with_a_sum(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const cut_function *f = user;
    lk_tensor *y = lk_relu(in[0]);
    if (f->too_early)
        y = lk_mul(y, in[1]);
    out[2] = lk_sum(y, NULL);
    out[0] = lk_mul(y, in[1]);
    out[1] = lk_add(in[1], in[1]); /* an output that could be finished at once */
    return out[0] && out[1] && out[2] ? LK_OK : lk_error_status();
}

static void an_input_is_given_between_segments(void **state)
{
    (void)state;
    lk_device *device = lk_device_open("cpu");
    lk_program_opts opts = {.fuse = true, .cuts = 1};
    lk_replay *replay;
    const int *ready;
    int n_ready;
    double part, given, doubled;
    lk_scope_begin();
    lk_tensor *x = numbers(device, LK_SHAPE(5, 7), 1), *in[] = {x, lk_tensor_new(device, LK_F32, LK_SCALAR)}, *out[3];
    lk_program *program = lk_program_record(device, with_a_sum, &(cut_function){false}, in, 2, 3, &opts);
    assert_non_null(program);
    assert_ok(lk_program_begin(program, in, 0, out, &replay));
    assert_int_equal(lk_replay_segments_left(replay), 2);
    assert_ok(lk_replay_push(replay, &ready, &n_ready));
    assert_int_equal(n_ready, 1);
    assert_int_equal(ready[0], 2);
    assert_ok(lk_copy_into(in[1], lk_add(out[2], out[2])));
    assert_ok(lk_replay_push(replay, &ready, &n_ready));
    lk_replay_end(replay);
    assert_ok(lk_tensor_item(out[2], &part));
    assert_ok(lk_tensor_item(in[1], &given));
    assert_ok(lk_tensor_item(out[1], &doubled));
    assert_true(part != 0 && given == 2 * part && doubled == 2 * given);
    expect_equal(out[0], lk_mul(lk_relu(x), in[1]));
    lk_program_release(program);
    assert_null(lk_program_record(device, with_a_sum, &(cut_function){true}, in, 2, 3, &opts));
    assert_int_equal(lk_error_status(), LK_ERR_STATE);
    assert_string_equal(lk_error_message(), "program: cannot be cut where output 2 is finished");
    lk_error_clear();
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_finished_is_the_callers_alone),
        cmocka_unit_test(outputs_come_once_and_as_backward_finishes_them),
        cmocka_unit_test(a_segment_has_as_many_bytes_as_were_asked_for),
        cmocka_unit_test(a_segment_ends_with_its_bucket),
        cmocka_unit_test(segments_of_other_programs_may_come_between),
        cmocka_unit_test(a_run_has_all_segments),
        cmocka_unit_test(a_replay_may_end_after_any_segment),
        cmocka_unit_test(a_replay_may_end_while_the_device_is_released),
        cmocka_unit_test(a_program_is_replayed_by_one_at_a_time),
        cmocka_unit_test(what_follows_a_failure_is_left_out),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(an_input_is_given_between_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
