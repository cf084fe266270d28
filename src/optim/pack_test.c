#include "optim/optim_test.h"
#include "core/device_testing.h"
#include "core/shape.h"

static lk_device *device;

/* --- the layout --------------------------------------------------------------------------------------------------- */

/* Shapes and values stay; tensors start at multiples of 16 elements; gaps are 0. */
static void test_layout(void **state)
{
    (void)state;
    const lk_shape shapes[] = {LK_SHAPE(3, 4), LK_SHAPE(16), LK_SCALAR, LK_SHAPE(0, 5), LK_SHAPE(17)};
    const int begins[] = {0, 16, 32, 48, 48};
    enum { N = 5, ALL = 80 };
    lk_tensor *tensors[N], *packed;
    float want[ALL] = {0}, have[ALL];
    for (int i = 0; i < N; i++) {
        float values[ALL];
        random_floats(values, ALL, (uint64_t)i);
        tensors[i] = lk_tensor_from(device, LK_F32, shapes[i], values);
        assert_non_null(tensors[i]);
        memcpy(want + begins[i], values, (size_t)lk_tensor_count(tensors[i]) * sizeof(float));
    }
    assert_ok(lk_pack(tensors, N, &packed));
    assert_int_equal(lk_tensor_count(packed), ALL);
    assert_ok(lk_tensor_read(packed, have, sizeof have));
    assert_memory_equal(have, want, sizeof have);
    for (int i = 0; i < N; i++) {
        size_t bytes = (size_t)lk_tensor_count(tensors[i]) * sizeof(float);
        assert_true(lk__shape_equal(lk_tensor_shape(tensors[i]), shapes[i]));
        assert_ok(lk_tensor_read(tensors[i], have, bytes));
        assert_memory_equal(have, want + begins[i], bytes);
        lk_tensor_release(tensors[i]);
    }
    lk_tensor_release(packed);
}

static void test_views_share(void **state)
{
    (void)state;
    lk_tensor *tensors[] = {lk_zeros(device, LK_F32, LK_SHAPE(2, 2)), lk_zeros(device, LK_F32, LK_SHAPE(3))}, *packed;
    float have[32];
    assert_ok(lk_pack(tensors, 2, &packed));
    assert_ok(lk_tensor_write(tensors[1], (float[]){1, 2, 3}, 3 * sizeof(float)));
    assert_ok(lk_tensor_read(packed, have, sizeof have));
    assert_true(have[16] == 1 && have[17] == 2 && have[18] == 3 && have[19] == 0);
    assert_ok(lk_add_into(packed, packed, packed));
    assert_ok(lk_tensor_read(tensors[1], have, 3 * sizeof(float)));
    assert_true(have[0] == 2 && have[1] == 4 && have[2] == 6);
    assert_ptr_equal(tensors[0]->storage, packed->storage);
    lk_tensor_release(packed); /* the views outlive it */
    assert_ok(lk_tensor_read(tensors[0], have, 4 * sizeof(float)));
    lk_tensor_release(tensors[0]);
    lk_tensor_release(tensors[1]);
}

/* The views belong to the caller even if a scope is open; the packed tensor is adopted by the scope, like any new one.
 */
static void test_ownership(void **state)
{
    (void)state;
    lk_tensor *tensor = lk_ones(device, LK_F32, LK_SHAPE(3)), *packed;
    float have[3];
    lk_scope_begin();
    assert_ok(lk_pack(&tensor, 1, &packed));
    lk_scope_end();
    assert_ok(lk_tensor_read(tensor, have, sizeof have));
    assert_true(have[2] == 1);
    lk_tensor_release(tensor);
}

static void test_views_of_others(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = lk_tensor_retain(
        lk_transpose(lk_tensor_from(device, LK_F32, LK_SHAPE(2, 3), (float[]){1, 2, 3, 4, 5, 6}), 0, 1));
    lk_scope_end();
    lk_tensor *packed;
    float have[16];
    const float want[16] = {1, 4, 2, 5, 3, 6};
    assert_ok(lk_pack(&x, 1, &packed));
    assert_ok(lk_tensor_read(packed, have, sizeof have));
    assert_memory_equal(have, want, sizeof want);
    lk_tensor_release(x);
    lk_tensor_release(packed);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void refuse(lk_tensor *second, int n, lk_status status, const char *message)
{
    lk_tensor *first = lk_ones(device, LK_F32, LK_SHAPE(2)), *tensors[] = {first, second}, *packed = NULL;
    lk_error_clear();
    assert_int_equal(lk_pack(tensors, n, &packed), status);
    assert_string_equal(lk_error_message(), message);
    assert_ptr_equal(tensors[0], first);
    assert_ptr_equal(tensors[1], second);
    assert_null(packed);
    lk_tensor_release(first);
    lk_tensor_release(second);
}

static void test_refused(void **state)
{
    (void)state;
    lk_device *other = lk_device_open("ref:1");
    refuse(NULL, 0, LK_ERR_ARGUMENT, "pack: 0 tensors; at least 1 is needed");
    refuse(NULL, 2, LK_ERR_ARGUMENT, "pack: tensor 1 is NULL");
    refuse(lk_ones(device, LK_F64, LK_SHAPE(2)), 2, LK_ERR_DTYPE, "pack: tensor 1 is f64; it must be f32");
    refuse(lk_ones(other, LK_F32, LK_SHAPE(2)), 2, LK_ERR_DEVICE,
           "pack: tensor 1 is on ref:1 and tensor 0 on ref:0; they must be on one device");
    assert_ok(lk_device_sync(other));
    lk_device_release(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),          cmocka_unit_test(test_views_share), cmocka_unit_test(test_ownership),
        cmocka_unit_test(test_views_of_others), cmocka_unit_test(test_refused),
    };
    return RUN_ON_DEVICE(tests, &device, "ref:0");
}
