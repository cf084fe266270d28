/* Buckets of gradients: which quantities they have, and that the last one is small. */
#include "dist/dist_testing.h"
#include "dist/sum/bucket_plan.h"

enum { MOST = 8, KB = 1 << 10, MB = 1 << 20 };

static void assert_plan(const int64_t *bytes, int n, int64_t full, bool tapers, const int *want)
{
    int buckets[MOST];
    assert_int_equal(lk__bucket_plan(bytes, n, full, tapers, buckets), want[0] + 1);
    for (int i = 0; i < n; i++)
        assert_int_equal(buckets[i], want[i]);
}

static void a_bucket_begins_when_the_one_before_is_full(void **state)
{
    const int64_t bytes[] = {1, 1, MB, 1, MB - 1, 1};
    (void)state;
    assert_plan(bytes, 6, MB, false, (int[]){2, 2, 1, 1, 0, 0});
    assert_plan(bytes, 6, 2, false, (int[]){2, 2, 1, 1, 0, 0});
    assert_plan(bytes, 6, INT64_MAX, false, (int[]){0, 0, 0, 0, 0, 0});
    assert_plan(bytes, 1, 1, false, (int[]){0});
    assert_int_equal(lk__bucket_plan(bytes, 0, 1, true, NULL), 0);
}

/* LeNet: the large gradients of the dense layers can be exchanged while the convolutions are still computed. */
static void a_network_of_one_bucket_is_divided(void **state)
{
    const int64_t lenet[] = {4 * 180, 4 * 20, 4 * 25000, 4 * 50, 4 * 102400, 4 * 128, 4 * 1280, 4 * 10};
    (void)state;
    assert_plan(lenet, 8, 4 * MB, false, (int[]){0, 0, 0, 0, 0, 0, 0, 0});
    assert_plan(lenet, 8, 4 * MB, true, (int[]){2, 2, 1, 1, 0, 0, 0, 0});
}

static void what_goes_whole_is_not_divided(void **state)
{
    (void)state;
    assert_plan((int64_t[]){16 * KB, 16 * KB}, 2, MB, true, (int[]){0, 0});
    assert_plan((int64_t[]){16 * KB, 16 * KB, 96 * KB}, 3, MB, true, (int[]){1, 1, 0});
    assert_plan((int64_t[]){16 * KB, 48 * KB}, 2, MB, true, (int[]){1, 0});
    assert_plan((int64_t[]){4 * MB, 4 * MB, 4 * MB}, 3, 4 * MB, true, (int[]){2, 1, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_begins_when_the_one_before_is_full),
        cmocka_unit_test(a_network_of_one_bucket_is_divided),
        cmocka_unit_test(what_goes_whole_is_not_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
