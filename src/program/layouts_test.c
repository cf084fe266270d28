/* Tests which calls of a program are told that their result becomes plain before anything reads it. */
#include "core/backend.h"
#include "cpu/lanes/lanes.h"
#include "lockstep/device.h"
#include "lockstep/ops.h"
#include "program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { IMAGES = 8, FILTERS = 5, CLASSES = 3, INPUTS = 3 };

/* Operators in the order in which they run, and whether each is told. Ends with NULL. */
typedef struct expectation {
    const char *op;
    bool plain_next;
} expectation;

static lk_tensor *ones(lk_device *device, lk_shape shape)
{
    lk_tensor *tensor = lk_full(device, LK_F32, shape, 1);
    assert_non_null(tensor);
    return tensor;
}

static void expect_calls(const lk_program *program, const expectation *expected)
{
    int n = 0;
    for (; expected[n].op && n < program->n_calls; n++) {
        const lk_call *call = &program->calls[n];
        assert_string_equal(call->op->name, expected[n].op);
        if (call->plain_next != expected[n].plain_next)
            fail_msg("call %d, %s, is %s", n, call->op->name, call->plain_next ? "told" : "not told");
    }
    assert_null(expected[n].op);
    assert_int_equal(program->n_calls, n);
}

/* fn's inputs: images of 6x6, kernels of 3x3, and weights of a dense layer for `features`. */
static void check(const char *spec, bool fuse, int64_t features, lk_program_fn fn, int n_out,
                  const expectation *expected)
{
    lk_device *device = lk_device_open(spec);
    assert_non_null(device);
    lk_scope_begin();
    lk_tensor *in[INPUTS] = {ones(device, LK_SHAPE(IMAGES, 1, 6, 6)), ones(device, LK_SHAPE(FILTERS, 1, 3, 3)),
                             ones(device, LK_SHAPE(features, CLASSES))};
    lk_program *program = lk_program_record(device, fn, NULL, in, INPUTS, n_out, &(lk_program_opts){.fuse = fuse});
    assert_non_null(program);
    expect_calls(program, expected);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static lk_tensor *dense(lk_tensor *x, lk_tensor *w)
{
    return lk_matmul(lk_reshape(x, LK_SHAPE(IMAGES, -1)), w);
}

/* --- views -------------------------------------------------------------------------------------------------------- */

static lk_status view(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    out[0] = dense(lk_relu(lk_conv2d(in[0], in[1], NULL, NULL)), in[2]);
    return lk_error_status();
}

/* A product is always plain. */
static void a_view_of_a_result_is_told(void **state)
{
    (void)state;
    const expectation expected[] = {{"conv2d", false}, {"relu", true}, {"plain", false}, {"matmul", false}, {0}};
    check("ref", false, FILTERS * 16, view, 1, expected);
}

static lk_status view_behind_a_reader(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *y = lk_conv2d(in[0], in[1], NULL, NULL), *z = lk_relu(y);
    out[0] = dense(y, in[2]);
    out[1] = dense(lk_add(y, z), in[2]);
    return lk_error_status();
}

static void a_reader_before_the_view_takes_what_there_is(void **state)
{
    (void)state;
    const expectation expected[] = {{"conv2d", false}, {"relu", false},  {"plain", false},  {"matmul", false},
                                    {"add", true},     {"plain", false}, {"matmul", false}, {0}};
    check("ref", false, FILTERS * 16, view_behind_a_reader, 2, expected);
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

/* The first output is read, the second is not, and the last result is not used. */
static lk_status outputs(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    out[0] = lk_conv2d(in[0], in[1], NULL, NULL);
    out[1] = lk_relu(out[0]);
    return lk_relu(out[0]) ? LK_OK : lk_error_status();
}

static void outputs_that_nobody_reads_are_told(void **state)
{
    (void)state;
    const expectation expected[] = {{"conv2d", false}, {"relu", true},   {"plain", false},
                                    {"relu", false},   {"plain", false}, {0}};
    check("ref", false, FILTERS * 16, outputs, 2, expected);
}

/* --- fused operators ---------------------------------------------------------------------------------------------- */

static lk_status pooled_view(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    lk_tensor *y = lk_relu(lk_conv2d(in[0], in[1], NULL, NULL));
    out[0] = dense(lk_max_pool2d(y, &(lk_pool2d_opts){.kernel = {2, 2}}), in[2]);
    return lk_error_status();
}

static void a_fused_operator_is_told_too(void **state)
{
    (void)state;
    if (!lk__lanes(LK_F32)) {
        print_message("SKIP: this processor has no AVX2\n");
        skip();
    }
    const expectation expected[] = {{"conv_block", true}, {"plain", false}, {"matmul", false}, {0}};
    check("cpu", true, FILTERS * 4, pooled_view, 1, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_of_a_result_is_told),
        cmocka_unit_test(a_reader_before_the_view_takes_what_there_is),
        cmocka_unit_test(outputs_that_nobody_reads_are_told),
        cmocka_unit_test(a_fused_operator_is_told_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
