/* Compares all-reduce bit for bit with the tree in plain C, for tensors on any devices; also tests split and broadcast.
 */
#include "dist/dist_testing.h"

#include "base/status.h"
#include "core/op.h"

/* --- all-reduce --------------------------------------------------------------------------------------------------- */

enum { MOST = 9 };

/* The device of argument i of k. */
typedef int (*placement_fn)(int i, int k);

static int all_on_one(int i, int k)
{
    (void)i, (void)k;
    return 3;
}

static int one_each(int i, int k)
{
    (void)k;
    return i;
}

static int backwards(int i, int k)
{
    return k - 1 - i;
}

static int two_on_each(int i, int k)
{
    (void)k;
    return i / 2;
}

static int dealt_out(int i, int k)
{
    return i * 5 % (k / 2 + 1);
}

static const placement_fn placements[] = {all_on_one, one_each, backwards, two_on_each, dealt_out};
enum { PLACEMENTS = sizeof placements / sizeof placements[0] };

static lk_tensor *addend(int i, int64_t length, lk_device *device)
{
    lk_tensor *tensor = lk_tensor_from(device, LK_F32, LK_SHAPE(length), values_of(i));
    assert_non_null(tensor);
    return tensor;
}

/* Every argument gets its own tensor; the originals keep their values. */
static void out_of_place(lk_tensor **tensors, int k, int64_t length, const float *expected)
{
    lk_tensor *sums[MOST];
    for (int i = 0; i < k; i++)
        if (!tensors[i])
            return;
    assert_ok(lk_allreduce_recorded(tensors, sums, k));
    for (int i = 0; i < k; i++) {
        assert_ptr_equal(lk_tensor_device(sums[i]), lk_tensor_device(tensors[i]));
        assert_bits(sums[i], expected, length);
        assert_bits(tensors[i], values_of(i), length);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(sums[i], sums[j]);
    }
}

static void reduce_and_compare(const bool *present, int k, int64_t length, placement_fn place, const float *expected)
{
    lk_tensor *tensors[MOST] = {NULL};
    lk_scope_begin();
    for (int i = 0; i < k; i++)
        if (present[i])
            tensors[i] = addend(i, length, devices[place(i, k)]);
    out_of_place(tensors, k, length, expected);
    assert_ok(lk_allreduce(tensors, k));
    for (int i = 0; i < k; i++)
        if (present[i])
            assert_bits(tensors[i], expected, length);
    lk_scope_end();
}

static void everywhere(const bool *present, int k, int64_t length)
{
    float *expected = tree_sums(present, k, length);
    for (int p = 0; p < PLACEMENTS; p++)
        reduce_and_compare(present, k, length, placements[p], expected);
    free(expected);
}

/* The method changes at 8,192 elements; 10,007 is a prime, so no number of devices divides it. */
static const int64_t lengths[] = {0, 1, 2, 5, 64, 8191, 8192, 8193, 10007};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static void all_reduce_is_the_tree(void **state)
{
    (void)state;
    bool present[MOST];
    memset(present, true, sizeof present);
    for (int k = 1; k <= MOST; k++)
        for (int l = 0; l < LENGTHS; l++)
            everywhere(present, k, lengths[l]);
}

static void absent_arguments_add_nothing(void **state)
{
    (void)state;
    for (int k = 2; k <= MOST; k++) {
        for (unsigned mask = 1; mask < (1u << k) - 1; mask += k < 6 ? 1 : 37) {
            bool present[MOST];
            for (int i = 0; i < k; i++)
                present[i] = mask >> i & 1;
            everywhere(present, k, 5);
            if (mask % 8 == 5)
                everywhere(present, k, 8200);
        }
    }
}

static void nothing_to_reduce_is_fine(void **state)
{
    (void)state;
    lk_tensor *tensors[3] = {NULL};
    assert_ok(lk_allreduce(tensors, 0));
    assert_ok(lk_allreduce(tensors, 3));
    assert_null(tensors[0]);
}

/* All-reduce works in place also on views with gaps, and in any shape. */
static void views_and_shapes(void **state)
{
    (void)state;
    bool present[3] = {true, true, true};
    for (int64_t rows = 3; rows <= 90; rows += 87) {
        int64_t columns = 101, length = rows * columns;
        float *expected = tree_sums(present, 3, length);
        lk_tensor *whole[3], *views[3];
        lk_scope_begin();
        for (int i = 0; i < 3; i++) {
            whole[i] = lk_zeros(devices[i], LK_F32, LK_SHAPE(columns, rows + 2));
            views[i] = lk_transpose(lk_slice(whole[i], 1, 1, rows + 1), 0, 1);
            assert_ok(lk_copy_into(views[i], lk_reshape(addend(i, length, devices[i]), LK_SHAPE(rows, columns))));
        }
        assert_ok(lk_allreduce(views, 3));
        for (int i = 0; i < 3; i++) {
            double margin;
            assert_bits(views[i], expected, length);
            lk_tensor *edges = lk_concat(
                (lk_tensor *[]){lk_slice(whole[i], 1, 0, 1), lk_slice(whole[i], 1, rows + 1, rows + 2)}, 2, 1);
            assert_ok(lk_tensor_item(lk_max(edges, NULL), &margin));
            assert_true(margin == 0);
        }
        lk_scope_end();
        free(expected);
    }
}

static void one_tensor_twice_counts_twice(void **state)
{
    (void)state;
    double value;
    lk_scope_begin();
    lk_tensor *x = lk_full(devices[0], LK_F32, LK_SCALAR, 1.5);
    assert_ok(lk_allreduce((lk_tensor *[]){x, x}, 2));
    assert_ok(lk_tensor_item(x, &value));
    assert_true(value == 3);
    lk_scope_end();
}

static void other_dtypes(void **state)
{
    (void)state;
    static const lk_dtype dtypes[] = {LK_BF16, LK_F64, LK_I32, LK_I64};
    for (int t = 0; t < 4; t++) {
        double value;
        lk_tensor *tensors[5];
        lk_scope_begin();
        for (int i = 0; i < 5; i++)
            tensors[i] = lk_full(devices[i % 3], dtypes[t], LK_SHAPE(9000), i + 1);
        assert_ok(lk_allreduce(tensors, 5));
        for (int i = 0; i < 5; i++) {
            assert_ok(lk_tensor_item(lk_max(tensors[i], NULL), &value));
            assert_true(value == 15);
        }
        lk_scope_end();
    }
}

static lk_status refuse_function(void *self, const lk_function *function)
{
    (void)self, (void)function;
    return lk__fail(LK_ERR_MEMORY, "no memory for the tape");
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    lk_device *ref = lk_device_open("ref:0");
    assert_non_null(ref);
    lk_scope_begin();
    lk_tensor *x = lk_zeros(devices[0], LK_F32, LK_SHAPE(3, 2)), *y = lk_zeros(devices[1], LK_F32, LK_SHAPE(2, 3)),
              *z = lk_zeros(devices[1], LK_F64, LK_SHAPE(3, 2)), *r = lk_zeros(ref, LK_F32, LK_SHAPE(3, 2));
    expect_error(lk_allreduce((lk_tensor *[]){NULL, x, y}, 3), LK_ERR_SHAPE,
                 "allreduce: tensor 2 has shape [2,3], the first [3,2]");
    expect_error(lk_allreduce((lk_tensor *[]){x, z}, 2), LK_ERR_DTYPE, "allreduce: tensor 1 is f64, the first f32");
    expect_error(lk_allreduce((lk_tensor *[]){x, r}, 2), LK_ERR_DEVICE,
                 "allreduce: tensors on cpu:0 and ref:0; devices of one kind are needed");
    lk_tensor *sums[2];
    lk_recorder before = lk__recorder_set((lk_recorder){.record_function = refuse_function});
    expect_error(lk_allreduce_recorded((lk_tensor *[]){x, x}, sums, 2), LK_ERR_MEMORY, "no memory for the tape");
    lk__recorder_set(before);
    assert_true(!sums[0] && !sums[1]);
    lk_scope_end();
    lk_device_release(ref);
}

/* --- split and broadcast ------------------------------------------------------------------------------------------ */

static void check_split(int64_t samples, int64_t shards, int k)
{
    enum { FEATURES = 3 };
    lk_tensor *parts[20];
    lk_scope_begin();
    lk_tensor *batch = lk_tensor_from(devices[1], LK_F32, LK_SHAPE(samples, FEATURES), values_of(0));
    assert_ok(lk_split_batch(batch, shards, devices, k, parts));
    for (int d = 0; d < k; d++) {
        lk_range own = lk_part(shards, k, d);
        for (int64_t s = own.begin; s < own.end; s++) {
            lk_range range = lk_part(samples, shards, s);
            assert_ptr_equal(lk_tensor_device(parts[s]), devices[d]);
            assert_int_equal(lk_tensor_shape(parts[s]).ndim, 2);
            assert_int_equal(lk_tensor_shape(parts[s]).dim[0], range.end - range.begin);
            assert_bits(parts[s], values_of(0) + range.begin * FEATURES, (range.end - range.begin) * FEATURES);
        }
    }
    lk_scope_end();
}

static void split_gives_every_device_its_shards(void **state)
{
    (void)state;
    static const int64_t samples[] = {0, 1, 3, 10, 64};
    for (int n = 0; n < 5; n++)
        for (int64_t shards = 1; shards <= 12; shards += shards < 4 ? 1 : 4)
            for (int k = 1; k <= shards && k <= 7; k++)
                check_split(samples[n], shards, k);
}

static void split_shares_memory_on_its_own_device(void **state)
{
    (void)state;
    static const float ones[2] = {1, 1};
    lk_tensor *parts[2];
    double batch_sum;
    lk_scope_begin();
    lk_tensor *batch = lk_zeros(devices[0], LK_F32, LK_SHAPE(4));
    assert_ok(lk_split_batch(batch, 2, devices, 2, parts));
    assert_ok(lk_tensor_write(parts[0], ones, sizeof ones));
    assert_ok(lk_tensor_write(parts[1], ones, sizeof ones));
    assert_ok(lk_tensor_item(lk_sum(batch, NULL), &batch_sum));
    assert_true(batch_sum == 2);
    lk_scope_end();
}

static void split_refuses(void **state)
{
    (void)state;
    lk_tensor *parts[2] = {(void *)1, (void *)1};
    lk_scope_begin();
    lk_tensor *scalar = lk_zeros(devices[0], LK_F32, LK_SCALAR), *batch = lk_zeros(devices[0], LK_F32, LK_SHAPE(4));
    expect_error(lk_split_batch(scalar, 2, devices, 1, parts), LK_ERR_SHAPE, "split_batch: a scalar has no samples");
    assert_null(parts[0]);
    assert_null(parts[1]);
    expect_error(lk_split_batch(batch, 0, devices, 1, parts), LK_ERR_ARGUMENT, "split_batch: 0 shards on 1 devices");
    expect_error(lk_split_batch(batch, 2, devices, 3, parts), LK_ERR_ARGUMENT, "split_batch: 2 shards on 3 devices");
    assert_int_not_equal(lk_split_batch(NULL, 2, devices, 1, parts), LK_OK);
    lk_error_clear();
    lk_scope_end();
}

static void broadcast_copies(void **state)
{
    (void)state;
    lk_tensor *copies[5];
    float zero[7] = {0};
    lk_scope_begin();
    lk_tensor *x = addend(4, 7, devices[2]);
    assert_ok(lk_broadcast(x, devices, 5, copies));
    assert_ok(lk_tensor_write(x, zero, sizeof zero));
    for (int d = 0; d < 5; d++) {
        assert_ptr_equal(lk_tensor_device(copies[d]), devices[d]);
        assert_bits(copies[d], values_of(4), 7);
    }
    assert_int_not_equal(lk_broadcast(NULL, devices, 5, copies), LK_OK);
    for (int d = 0; d < 5; d++)
        assert_null(copies[d]);
    lk_error_clear();
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIST_TEST(all_reduce_is_the_tree),
        DIST_TEST(absent_arguments_add_nothing),
        DIST_TEST(nothing_to_reduce_is_fine),
        DIST_TEST(views_and_shapes),
        DIST_TEST(one_tensor_twice_counts_twice),
        DIST_TEST(other_dtypes),
        DIST_TEST(what_does_not_fit_is_refused),
        DIST_TEST(split_gives_every_device_its_shards),
        DIST_TEST(split_shares_memory_on_its_own_device),
        DIST_TEST(split_refuses),
        DIST_TEST(broadcast_copies),
    };
    return RUN_DIST_TESTS(tests);
}
