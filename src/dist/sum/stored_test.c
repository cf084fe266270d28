/* Variables of one device that others read: reads before an update see the old values, reads after it the new ones. */
#include "dist/dist_testing.h"
#include "dist/sum/stored.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"

enum { LARGE = 1 << 20, UPDATES = 40 };

static lk_tensor *filled(lk_device *device, int64_t n, double value)
{
    lk_tensor *tensor = lk_full(device, LK_F32, LK_SHAPE(n), value);
    assert_non_null(tensor);
    return tensor;
}

static void assert_all(lk_tensor *tensor, float value)
{
    static float elements[LARGE];
    int64_t n = lk_tensor_count(tensor);
    assert_ok(lk_tensor_read(tensor, elements, (size_t)n * sizeof *elements));
    for (int64_t i = 0; i < n; i++)
        if (elements[i] != value)
            fail_msg("element %lld is %g, not %g", (long long)i, (double)elements[i], (double)value);
}

/* The reader takes longer than the update, so reads of old values are in flight when the next update is pushed. */
static void readers_and_updates_take_turns(void **state)
{
    (void)state;
    lk_tensor *readers[6], *sums[2];
    lk_stored *s;
    lk_scope_begin();
    lk_tensor *stored[2] = {filled(devices[0], LARGE, 0), filled(devices[0], 3, 5)};
    lk_tensor *one = filled(devices[0], LARGE, 1);
    assert_ok(lk__stored_new(stored, 2, devices, 3, readers, &s));
    assert_ptr_equal(readers[0], stored[0]);
    assert_ptr_equal(readers[1], stored[1]);
    for (int update = 0; update < UPDATES; update++) {
        lk_scope_begin();
        for (int d = 1; d < 3; d++) {
            sums[d - 1] = readers[2 * d];
            assert_ptr_equal(lk_tensor_device(readers[2 * d]), devices[d]);
            for (int i = 0; i < 3; i++)
                sums[d - 1] = lk_add(sums[d - 1], readers[2 * d]);
        }
        assert_ok(lk__stored_begin_update(s));
        assert_ok(lk_add_into(stored[0], stored[0], one));
        assert_ok(lk__stored_end_update(s));
        lk_tensor *after = lk_add(readers[2], readers[2]);
        assert_all(after, 2.0F * (float)(update + 1));
        assert_all(sums[0], 4.0F * (float)update);
        assert_all(sums[1], 4.0F * (float)update);
        lk_scope_end();
    }
    assert_all(readers[5], 5);
    for (int i = 0; i < 6; i++)
        lk_tensor_release(readers[i]);
    lk__stored_release(s);
    lk__stored_release(NULL);
    lk_scope_end();
}

/* Views of one storage stay views of one, with their offsets and shapes. */
static void packed_variables_are_one_block(void **state)
{
    (void)state;
    lk_tensor *readers[4], *flat, *parts[2];
    lk_stored *s;
    lk_scope_begin();
    parts[0] = lk_tensor_retain(filled(devices[1], 6, 2));
    parts[1] = lk_tensor_retain(lk_reshape(filled(devices[1], 4, 3), LK_SHAPE(2, 2)));
    assert_ok(lk_pack(parts, 2, &flat));
    assert_ok(lk__stored_new(parts, 2, devices, 2, readers, &s));
    assert_int_equal(lk_tensor_shape(readers[1]).ndim, 2);
    assert_all(readers[0], 2);
    assert_all(readers[1], 3);
    assert_ok(lk__stored_begin_update(s));
    assert_ok(lk_add_into(parts[1], parts[1], parts[1]));
    assert_ok(lk__stored_end_update(s));
    assert_all(readers[0], 2);
    assert_all(readers[1], 6);
    assert_ptr_equal(readers[2], parts[0]);
    for (int i = 0; i < 4; i++)
        lk_tensor_release(readers[i]);
    lk__stored_release(s);
    lk_tensor_release(parts[0]);
    lk_tensor_release(parts[1]);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIST_TEST(readers_and_updates_take_turns),
        DIST_TEST(packed_variables_are_one_block),
    };
    return RUN_DIST_TESTS(tests);
}
