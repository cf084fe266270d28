/* The texts of modules: parameters, results, views, and names. tests/engine/conformance_test.c compares their results.
 */
#include "base/mem_testing.h"
#include "base/status_testing.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "ops/update.h"
#include "pjrt/lower.h"
#include "lockstep/device.h"

#include <stdlib.h>

static lk_device *device;

static lk_tensor *made(lk_dtype dtype, lk_shape shape)
{
    lk_tensor *tensor = lk_zeros(device, dtype, shape);
    assert_non_null(tensor);
    return tensor;
}

static lk_tensor *f32(lk_shape shape)
{
    return made(LK_F32, shape);
}

/* A call with up to two inputs and one output. */
static lk_call call_of(const lk_op *op, lk_tensor *out, lk_tensor *a, lk_tensor *b)
{
    lk_call call = {.op = op, .device = device, .dtype = out->dtype, .n_in = b ? 2 : 1, .n_out = 1};
    call.out[0] = out;
    call.in[0] = a;
    call.in[1] = b;
    return call;
}

static bool keep_all(void *user, lk_storage *storage)
{
    (void)user;
    (void)storage;
    return true;
}

static bool keep_one(void *user, lk_storage *storage)
{
    return storage == user;
}

/* Lowers n calls. `last`: the only storage that is kept; NULL: all are. */
static lk_lowered lowered(const lk_call *calls, int n, lk_tensor *last)
{
    lk_lowered module;
    lk_lowering *lowering = lk__lowering_new();
    assert_non_null(lowering);
    for (int i = 0; i < n; i++) {
        assert_true(lk__lowers(&calls[i]));
        assert_ok(lk__lower_call(lowering, &calls[i]));
    }
    assert_ok(lk__lowering_end(lowering, last ? keep_one : keep_all, last ? last->storage : NULL, &module));
    lk__lowering_free(lowering);
    assert_int_equal(strlen(module.text), module.size);
    return module;
}

static void has_line(const lk_lowered *module, const char *line)
{
    if (!strstr(module->text, line))
        fail_msg("no line '%s' in\n%s", line, module->text);
}

static void test_whole_text(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *a = f32(LK_SHAPE(2, 3)), *b = f32(LK_SHAPE(3)), *y = f32(LK_SHAPE(2, 3));
    lk_call call = call_of(&lk__op_add, y, a, b);
    lk_lowered module = lowered(&call, 1, NULL);
    assert_string_equal(module.text, "module @lockstep {\n"
                                     "  func.func @main(%p0: tensor<6xf32>, %p1: tensor<3xf32>) -> (tensor<6xf32>) {\n"
                                     "    %0 = stablehlo.reshape %p0 : (tensor<6xf32>) -> tensor<2x3xf32>\n"
                                     "    %1 = stablehlo.broadcast_in_dim %p1, dims = [1] : (tensor<3xf32>) -> "
                                     "tensor<2x3xf32>\n"
                                     "    %2 = stablehlo.add %0, %1 : tensor<2x3xf32>\n"
                                     "    %3 = stablehlo.reshape %2 : (tensor<2x3xf32>) -> tensor<6xf32>\n"
                                     "    return %3 : tensor<6xf32>\n"
                                     "  }\n"
                                     "}\n");
    assert_int_equal(module.n_parameters, 2);
    assert_ptr_equal(module.parameters[0], a->storage);
    assert_ptr_equal(module.parameters[1], b->storage);
    assert_int_equal(module.parameter_counts[1], 3);
    assert_int_equal(module.n_results, 1);
    assert_ptr_equal(module.results[0], y->storage);
    assert_int_equal(module.result_counts[0], 6);
    assert_false(module.takes_step);
    lk__lowered_free(&module);
    lk_scope_end();
}

/* A storage that is written before it is read is no parameter. One that is not kept is no result. */
static void test_values_between_calls(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *a = f32(LK_SHAPE(4)), *between = f32(LK_SHAPE(4)), *y = f32(LK_SHAPE(4));
    lk_call calls[] = {call_of(&lk__op_add, between, a, a), call_of(&lk__op_relu, y, between, NULL)};
    lk_lowered module = lowered(calls, 2, y);
    assert_int_equal(module.n_parameters, 1);
    assert_ptr_equal(module.parameters[0], a->storage);
    assert_int_equal(module.n_results, 1);
    assert_ptr_equal(module.results[0], y->storage);
    lk__lowered_free(&module);
    module = lowered(calls, 2, NULL);
    assert_int_equal(module.n_results, 2);
    assert_ptr_equal(module.results[0], between->storage);
    lk__lowered_free(&module);
    lk_scope_end();
}

static void test_updates_take_over_memory(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *w = f32(LK_SHAPE(4)), *g = f32(LK_SHAPE(4)), *y = f32(LK_SHAPE(4));
    lk_call calls[] = {call_of(&lk__op_add, y, g, g), call_of(&lk__op_sgd_update, w, w, g)};
    lk_lowered module = lowered(calls, 2, NULL);
    has_line(&module, "(%p0: tensor<4xf32>, %p1: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> "
                      "(tensor<4xf32>, tensor<4xf32>)");
    lk__lowered_free(&module);
    lk_scope_end();
}

static void test_views(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = f32(LK_SHAPE(4, 6)), *y = f32(LK_SHAPE(6, 4)), *z = f32(LK_SHAPE(4, 2));
    lk_call calls[] = {call_of(&lk__op_copy, y, lk_transpose(x, 0, 1), NULL),
                       call_of(&lk__op_copy, z, lk_slice(x, 1, 3, 5), NULL),
                       call_of(&lk__op_copy, lk_slice(y, 0, 2, 3), lk_slice(lk_transpose(x, 0, 1), 0, 1, 2), NULL)};
    lk_lowered module = lowered(calls, 3, NULL);
    has_line(&module, "stablehlo.transpose %0, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>");
    has_line(&module, "[0:4:1, 3:5:1] : (tensor<4x6xf32>) -> tensor<4x2xf32>");
    has_line(&module, "stablehlo.dynamic_update_slice ");
    assert_int_equal(module.n_parameters, 1);
    lk__lowered_free(&module);
    lk_call expanded = call_of(&lk__op_relu, x, lk_expand(f32(LK_SHAPE(4, 1)), LK_SHAPE(4, 6)), NULL);
    module = lowered(&expanded, 1, NULL);
    has_line(&module, "dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x6xf32>");
    lk__lowered_free(&module);
    lk_scope_end();
}

/* A view whose strides do not divide each other is read by indices, and cannot be written. */
static void test_views_that_are_no_slices(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = f32(LK_SHAPE(7)), *y = f32(LK_SHAPE(2, 2));
    lk_tensor odd = lk__tensor_alias(x);
    odd.shape = LK_SHAPE(2, 2);
    odd.strides[0] = 3;
    odd.strides[1] = 2;
    lk_call read = call_of(&lk__op_relu, y, &odd, NULL), write = call_of(&lk__op_relu, &odd, y, NULL);
    lk_lowered module = lowered(&read, 1, NULL);
    has_line(&module, "\"stablehlo.gather\"(%p0, ");
    lk__lowered_free(&module);
    lk_lowering *lowering = lk__lowering_new();
    assert_false(lk__lowers(&write));
    expect_error(lk__lower_call(lowering, &write), LK_ERR_UNSUPPORTED, "relu(f32[2,2]) has no lowering to StableHLO");
    lk__lowering_free(lowering);
    lk_scope_end();
}

/* Other tensors of the same shapes give the same text. */
static void test_equal_series_have_equal_texts(void **state)
{
    (void)state;
    lk_lowered first = {0};
    for (int round = 0; round < 2; round++) {
        lk_scope_begin();
        lk_tensor *x = f32(LK_SHAPE(3, 5)), *w = f32(LK_SHAPE(5, 2)), *y = f32(LK_SHAPE(3, 2));
        lk_call calls[] = {call_of(&lk__op_matmul, y, x, w), call_of(&lk__op_relu, y, y, NULL)};
        lk_lowered module = lowered(calls, 2, NULL);
        if (round > 0)
            assert_string_equal(module.text, first.text);
        lk__lowered_free(&first);
        first = module;
        lk_scope_end();
    }
    has_line(&first, "precision = [HIGHEST, HIGHEST]");
    lk__lowered_free(&first);
}

static void test_random_calls_take_the_step(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = f32(LK_SHAPE(2, 3)), *indices = made(LK_I64, LK_SHAPE(2));
    lk_call call = call_of(&lk__op_dropout, f32(LK_SHAPE(2, 3)), x, indices);
    lk_dropout_attrs attrs = {.rate = 0.5, .key = {.seed = 1, .epoch = 7}};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    lk_lowered module = lowered(&call, 1, NULL);
    assert_true(module.takes_step);
    has_line(&module, "(%p0: tensor<6xf32>, %p1: tensor<2xi64>, %step: tensor<ui64>) -> ");
    attrs.key.epoch = 8;
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    lk_lowered later = lowered(&call, 1, NULL);
    assert_string_equal(later.text, module.text);
    lk__lowered_free(&module);
    lk__lowered_free(&later);
    lk_scope_end();
}

/* The ends of LARS' segments are written into the module, which does the same work however many there are; elements
 * outside of all segments stay. */
static void test_segments_are_constants(void **state)
{
    (void)state;
    enum { SEGMENTS = 3, ELEMENTS = 20 };
    lk_scope_begin();
    int64_t ends[SEGMENTS + 1] = {2, 5, 5, 18};
    lk_tensor *offsets = lk_tensor_from(device, LK_I64, LK_SHAPE(SEGMENTS + 1), ends);
    lk_tensor *w = f32(LK_SHAPE(ELEMENTS)), *v = f32(LK_SHAPE(ELEMENTS));
    assert_ok(lk_tensor_wait(offsets));
    lk_call call = call_of(&lk__op_lars_update, w, w, f32(LK_SHAPE(ELEMENTS)));
    call.n_in = 9;
    call.n_out = 2;
    call.in[2] = call.out[1] = v;
    call.in[3] = offsets;
    call.in[4] = f32(LK_SHAPE(SEGMENTS));
    call.in[5] = f32(LK_SHAPE(SEGMENTS));
    lk_lars_attrs attrs = {.rate = 0.1, .momentum = 0.9};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    lk_lowered module = lowered(&call, 1, NULL);
    assert_int_equal(module.n_parameters, 5); /* the offsets are none */
    has_line(&module, "-> tensor<3xf32>\n");
    has_line(&module, "-> tensor<13xf32>\n");
    has_line(&module, "(tensor<3xf32>, tensor<13xf32>) -> tensor<16xf32>");
    assert_null(strstr(module.text, "gather"));
    assert_null(strstr(module.text, "reduce"));
    lk__lowered_free(&module);
    lk_scope_end();
}

static void test_no_memory(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = f32(LK_SHAPE(2, 3)), *y = f32(LK_SHAPE(2, 3));
    lk_call call = call_of(&lk__op_relu, y, x, NULL);
    assert_ok(lk_device_sync(device)); /* its thread must not be the one that gets no memory */
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_lowered module = {0};
        lk_lowering *lowering = lk__lowering_new();
        lk_status status = lowering ? lk__lower_call(lowering, &call) : LK_ERR_MEMORY;
        if (status == LK_OK)
            status = lk__lowering_end(lowering, keep_all, NULL, &module);
        lk__lowering_free(lowering);
        stop_failing(&f);
        assert_int_equal(status, f.reached ? LK_ERR_MEMORY : LK_OK);
        lk__lowered_free(&module);
    }
    lk_error_clear();
    lk_scope_end();
}

int main(void)
{
    device = lk_device_open("ref");
    if (!device)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_text),
        cmocka_unit_test(test_values_between_calls),
        cmocka_unit_test(test_updates_take_over_memory),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_views_that_are_no_slices),
        cmocka_unit_test(test_equal_series_have_equal_texts),
        cmocka_unit_test(test_random_calls_take_the_step),
        cmocka_unit_test(test_segments_are_constants),
        cmocka_unit_test(test_no_memory),
    };
    int failed = cmocka_run_group_tests_name("lower", tests, NULL, NULL);
    lk_device_release(device);
    return failed;
}
