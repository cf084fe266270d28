/* The order in which processes exchange quantities, and their buckets. */
#include "dist/dist_testing.h"
#include "dist/sum/remote_nodes.h"

enum { N = 6 };

static lk_remote_nodes *open_nodes(const int64_t *elements, lk_shape *shapes, lk_dtype *dtypes)
{
    lk_remote_nodes *remote;
    for (int i = 0; i < N; i++) {
        shapes[i] = LK_SHAPE(elements[i]);
        dtypes[i] = LK_F32;
    }
    lk_remote_nodes_opts opts = {.shards = 4, .k = 1, .ranks = 4, .n = N, .shapes = shapes, .dtypes = dtypes};
    assert_ok(lk__remote_nodes_new(&opts, &remote));
    lk__remote_nodes_start(remote, 4);
    return remote;
}

/* Compares the buckets with `want`: the quantities in order, a negative number after each bucket. */
static void assert_buckets(const lk_remote_nodes *remote, const int *want)
{
    const int *bucket;
    for (int done = 0, n; (n = lk__remote_nodes_bucket(remote, done, &bucket)) > 0; done += n) {
        for (int i = 0; i < n; i++)
            assert_int_equal(bucket[i], *want++);
        assert_int_equal(*want++, -1);
    }
    assert_int_equal(*want, -2);
}

static void the_last_quantities_come_first_except_the_late_ones(void **state)
{
    lk_shape shapes[N];
    lk_dtype dtypes[N];
    lk_remote_nodes *remote = open_nodes((int64_t[N]){1, 1, 1, 1, 1, 1}, shapes, dtypes);
    (void)state;
    for (int i = 0; i < N; i++) {
        assert_buckets(remote, (int[]){-2}); /* one is still unknown */
        lk__remote_nodes_learn(remote, i, true);
    }
    assert_buckets(remote, (int[]){5, 4, 3, 2, 1, 0, -1, -2});
    lk__remote_nodes_set_buckets(remote, 4, NULL);
    assert_buckets(remote, (int[]){3, 2, 1, 0, 5, 4, -1, -2});
    lk__remote_nodes_release(remote);
}

static void a_bucket_ends_when_it_is_full_or_values_are_absent(void **state)
{
    enum { FULL = LK_REMOTE_BUCKET_BYTES / 4 };
    lk_shape shapes[N];
    lk_dtype dtypes[N];
    lk_remote_nodes *remote = open_nodes((int64_t[N]){1, 1, FULL, 1, FULL - 1, 1}, shapes, dtypes);
    (void)state;
    for (int i = 0; i < N; i++)
        lk__remote_nodes_learn(remote, i, i > 0);
    assert_buckets(remote, (int[]){5, 4, -1, 3, 2, -1, 1, -1, 0, -1, -2});
    lk__remote_nodes_set_buckets(remote, 5, NULL);
    assert_buckets(remote, (int[]){4, 3, -1, 2, -1, 1, -1, 0, -1, 5, -1, -2});
    lk__remote_nodes_set_buckets(remote, 5, (const int[]){2, 2, 1, 1, 0, 2});
    assert_buckets(remote, (int[]){4, -1, 3, 2, -1, 1, -1, 0, -1, 5, -1, -2});
    lk__remote_nodes_set_buckets(remote, 5, (const int[]){0, 0, 0, 0, 0, 0});
    assert_buckets(remote, (int[]){4, 3, 2, 1, -1, 0, -1, 5, -1, -2});
    lk__remote_nodes_release(remote);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_quantities_come_first_except_the_late_ones),
        cmocka_unit_test(a_bucket_ends_when_it_is_full_or_values_are_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
