/* Compares sums over shards bit for bit with the tree in plain C, on any number of devices. */
#include "dist/dist_testing.h"
#include "base/mem_testing.h"

#include "dist/strategy.h"
#include "dist/sum/shard_sum.h"

enum { QUANTITIES = 4 };

/* A vector, a scalar, a tensor large enough to be exchanged in slices, and one that some shards lack. */
static const int64_t full_lengths[QUANTITIES] = {37, 1, 8209, 5};

typedef struct shard_case {
    int64_t shards;
    int k;
    const bool *empty;     /* [shards] */
    const bool *lacking;   /* [shards]: without the last quantity */
    const int64_t *length; /* [QUANTITIES] */
} shard_case;

static lk_strategy *open_strategy(int k)
{
    lk_strategy *strategy = lk_strategy_new(k == 1 ? "one-device" : "mirrored", devices, k);
    if (!strategy)
        fail_msg("%s", lk_error_message());
    return strategy;
}

static int owner_of(const shard_case *c, int64_t shard)
{
    for (int d = 0; d < c->k; d++) {
        lk_range own = lk_part(c->shards, c->k, d);
        if (shard >= own.begin && shard < own.end)
            return d;
    }
    fail_msg("shard %lld has no owner", (long long)shard);
    return -1;
}

static lk_tensor *shard_value(const shard_case *c, int64_t shard, int quantity)
{
    lk_device *device = devices[owner_of(c, shard)];
    return lk_tensor_from(device, LK_F32, LK_SHAPE(c->length[quantity]), values_of(shard));
}

static bool is_absent(const shard_case *c, int64_t shard, int quantity)
{
    return c->empty[shard] || (quantity == QUANTITIES - 1 && c->lacking[shard]);
}

static lk_status add_values(lk_shard_sum *sum, int64_t shard, int quantity, lk_tensor *const *values)
{
    return quantity < 0 ? lk_shard_sum_add(sum, shard, values)
                        : lk_shard_sum_add_some(sum, shard, &quantity, 1, values);
}

/* quantity < 0: all of them. */
static lk_status add_quantity(const shard_case *c, lk_shard_sum *sum, int64_t shard, int quantity)
{
    lk_tensor *values[QUANTITIES];
    if (c->empty[shard])
        return add_values(sum, shard, quantity, NULL);
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int i = 0; i < QUANTITIES && status == LK_OK; i++) {
        bool absent = is_absent(c, shard, i);
        values[i] = absent ? NULL : shard_value(c, shard, i);
        status = absent || values[i] ? LK_OK : lk_error_status();
    }
    if (status == LK_OK)
        status = add_values(sum, shard, quantity, values);
    lk_scope_end();
    return status;
}

static lk_status add_shard(const shard_case *c, lk_shard_sum *sum, int64_t shard)
{
    return add_quantity(c, sum, shard, -1);
}

/* Every device's first shard, then every device's second, … */
static lk_status add_in_turns(const shard_case *c, lk_shard_sum *sum)
{
    for (int64_t i = 0; i < c->shards; i++) {
        for (int d = 0; d < c->k; d++) {
            lk_range own = lk_part(c->shards, c->k, d);
            lk_status status = own.begin + i < own.end ? add_shard(c, sum, own.begin + i) : LK_OK;
            if (status != LK_OK)
                return status;
        }
    }
    return LK_OK;
}

/* All of the last device's shards, then all of the one before. */
static lk_status add_by_device(const shard_case *c, lk_shard_sum *sum)
{
    for (int d = c->k - 1; d >= 0; d--) {
        lk_range own = lk_part(c->shards, c->k, d);
        for (int64_t s = own.begin; s < own.end; s++) {
            lk_status status = add_shard(c, sum, s);
            if (status != LK_OK)
                return status;
        }
    }
    return LK_OK;
}

/* Gives quantity by quantity, one device always behind the others, and exchanges what is complete. */
static lk_status add_piecewise(const shard_case *c, lk_shard_sum *sum)
{
    lk_status status = LK_OK;
    for (int64_t i = 0; i < c->shards && status == LK_OK; i++) {
        for (int turn = 0; turn < 2 * QUANTITIES && status == LK_OK; turn++) {
            for (int d = 0; d < c->k && status == LK_OK; d++) {
                lk_range own = lk_part(c->shards, c->k, d);
                int quantity = QUANTITIES - 1 - turn + (d == 0);
                if (own.begin + i < own.end && quantity >= 0 && quantity < QUANTITIES)
                    status = add_quantity(c, sum, own.begin + i, quantity);
            }
            if (status == LK_OK)
                status = lk_shard_sum_exchange(sum);
        }
    }
    return status;
}

/* The sum over a node, as its device adds it up; NULL: absent. */
static lk_tensor *node_sum(const shard_case *c, lk_range node, int quantity)
{
    lk_tensor *values[ADDENDS], *sum;
    lk_tree_node leaves[ADDENDS];
    int64_t n = node.end - node.begin;
    for (int64_t s = 0; s < n; s++) {
        values[s] = is_absent(c, node.begin + s, quantity) ? NULL : shard_value(c, node.begin + s, quantity);
        leaves[s] = (lk_tree_node){.range = {node.begin + s, node.begin + s + 1}, .values = values + s};
    }
    assert_ok(lk__tree_sum(LK_HERE, devices[owner_of(c, node.begin)], &lk__transport_inproc, node, leaves, n, 0,
                           (lk_range){0, -1}, &sum));
    return sum;
}

/* Gives every device's nodes, the last quantities first. */
static lk_status add_by_nodes(const shard_case *c, lk_shard_sum *sum)
{
    static const int halves[2][2] = {{3, 1}, {2, 0}};
    lk_range nodes[LK_TREE_COVER];
    lk_status status = LK_OK;
    for (int half = 0; half < 2; half++)
        for (int d = 0; d < c->k; d++) {
            int n = lk__tree_cover(c->shards, lk_part(c->shards, c->k, d), nodes);
            for (int m = 0; m < n && status == LK_OK; m++) {
                lk_tensor *values[QUANTITIES];
                lk_scope_begin();
                for (int i = 0; i < QUANTITIES; i++)
                    values[i] = node_sum(c, nodes[m], i);
                status = lk__shard_sum_add_node(sum, nodes[m], halves[half], 2, values);
                lk_scope_end();
            }
        }
    return status;
}

static void check_sums(const shard_case *c, lk_tensor **sums)
{
    for (int i = 0; i < QUANTITIES; i++) {
        bool present[ADDENDS], any = false;
        for (int64_t s = 0; s < c->shards; s++) {
            present[s] = !c->empty[s] && !(i == QUANTITIES - 1 && c->lacking[s]);
            any |= present[s];
        }
        float *expected = any ? tree_sums(present, c->shards, c->length[i]) : NULL;
        for (int r = 0; r < c->k; r++) {
            lk_tensor *sum = sums[r * QUANTITIES + i];
            if (any) {
                assert_bits(sum, expected, c->length[i]);
                assert_ptr_equal(lk_tensor_device(sum), devices[r]);
            }
            assert_true(any || !sum);
            lk_tensor_release(sum);
        }
        free(expected);
    }
}

static void sum_and_compare(const shard_case *c)
{
    lk_tensor *sums[DEVICES * QUANTITIES];
    lk_strategy *strategy = open_strategy(c->k);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, c->shards, QUANTITIES);
    assert_non_null(sum);
    lk_status (*const ways[])(const shard_case *, lk_shard_sum *) = {add_in_turns, add_by_device, add_piecewise,
                                                                     add_by_nodes};
    for (int round = 0; round < 4; round++) { /* the object is ready for the next step */
        assert_ok(ways[round](c, sum));
        assert_ok(lk_shard_sum_finish(sum, sums));
        check_sums(c, sums);
    }
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
}

static void every_number_of_shards_and_devices(void **state)
{
    (void)state;
    static const int64_t small[QUANTITIES] = {37, 1, 64, 5};
    bool none[DEVICES] = {false};
    for (int64_t shards = 1; shards <= 17; shards++) {
        for (int k = 1; k <= shards; k++) {
            bool large = shards % 4 == 1 && (k <= 3 || k == 7);
            sum_and_compare(&(shard_case){shards, k, none, none, large ? full_lengths : small});
        }
    }
}

static void empty_shards_anywhere(void **state)
{
    (void)state;
    static const int64_t small[QUANTITIES] = {37, 1, 64, 5};
    for (int64_t shards = 1; shards <= 6; shards++) {
        for (unsigned mask = 1; mask < 1u << shards; mask++) {
            bool empty[DEVICES] = {false}, lacking[DEVICES] = {false};
            for (int64_t s = 0; s < shards; s++) {
                empty[s] = mask >> s & 1;
                lacking[s] = mask * 2654435761u >> (s + 8) & 1;
            }
            for (int k = 1; k <= shards; k++)
                sum_and_compare(&(shard_case){shards, k, empty, lacking, small});
        }
    }
}

/* As in a last batch of three samples, in which most devices have none. */
static void fewer_samples_than_devices(void **state)
{
    (void)state;
    bool empty[DEVICES], none[DEVICES] = {false};
    for (int64_t s = 0; s < 12; s++) {
        lk_range samples = lk_part(3, 12, s);
        empty[s] = samples.begin == samples.end;
    }
    for (int k = 1; k <= 12; k++)
        sum_and_compare(&(shard_case){12, k, empty, none, full_lengths});
}

/* --- misuse ------------------------------------------------------------------------------------------------------- */

static const bool nowhere[DEVICES];
static const int64_t one_each[QUANTITIES] = {1, 1, 1, 1};
static const shard_case five = {5, 2, nowhere, nowhere, one_each};

#define expect_out_of_order(call, shard) \
    expect_error(call, LK_ERR_ARGUMENT, "shard sum: shard " #shard " of 5 is given twice or out of order")

static void misuse_changes_nothing(void **state)
{
    (void)state;
    lk_tensor *sums[2 * QUANTITIES];
    lk_strategy *strategy = open_strategy(2);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, 5, QUANTITIES);
    expect_out_of_order(add_shard(&five, sum, 1), 1);
    assert_ok(add_shard(&five, sum, 0));
    expect_out_of_order(add_shard(&five, sum, 0), 0);
    expect_out_of_order(lk_shard_sum_add(sum, -1, NULL), -1);
    expect_out_of_order(lk_shard_sum_add(sum, 5, NULL), 5);
    assert_ok(add_quantity(&five, sum, 1, 2));
    expect_out_of_order(add_quantity(&five, sum, 1, 2), 1);
    expect_out_of_order(add_shard(&five, sum, 1), 1);
    for (int i = 0; i < QUANTITIES; i++)
        if (i != 2)
            assert_ok(add_quantity(&five, sum, 1, i));
    for (int64_t s = 2; s < 5; s++)
        assert_ok(add_shard(&five, sum, s));
    expect_out_of_order(add_shard(&five, sum, 4), 4);
    assert_ok(lk_shard_sum_finish(sum, sums));
    check_sums(&five, sums);
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
}

static void a_missing_shard_is_named_and_forgotten(void **state)
{
    (void)state;
    lk_tensor *sums[2 * QUANTITIES];
    lk_strategy *strategy = open_strategy(2);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, 5, QUANTITIES);
    for (int64_t s = 0; s < 4; s++)
        assert_ok(add_shard(&five, sum, s));
    memset(sums, 1, sizeof sums);
    expect_error(lk_shard_sum_finish(sum, sums), LK_ERR_STATE, "shard sum: shard 4 of 5 is missing");
    for (int i = 0; i < 2 * QUANTITIES; i++)
        assert_null(sums[i]);
    assert_ok(add_in_turns(&five, sum));
    assert_ok(lk_shard_sum_finish(sum, sums));
    check_sums(&five, sums);
    for (int64_t s = 0; s < 4; s++)
        assert_ok(add_shard(&five, sum, s));
    assert_ok(add_quantity(&five, sum, 4, 1));
    assert_ok(lk_shard_sum_exchange(sum));
    assert_ok(lk_shard_sum_exchange(sum));
    expect_error(lk_shard_sum_finish(sum, sums), LK_ERR_STATE, "shard sum: shard 4 of 5 is missing");
    assert_ok(add_piecewise(&five, sum));
    lk_shard_sum_release(sum); /* while sums are in flight */
    sum = lk_shard_sum_new(strategy, 5, QUANTITIES);
    assert_ok(add_shard(&five, sum, 0)); /* released with a value in it */
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
}

static void fewer_shards_than_devices_are_refused(void **state)
{
    (void)state;
    lk_strategy *strategy = open_strategy(3);
    assert_null(lk_shard_sum_new(strategy, 2, 1));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT,
                 "shard sum: 2 shards for 3 devices; at least one a device is needed");
    lk_shard_sum_release(NULL);
    lk_strategy_release(strategy);
}

static void strategies(void **state)
{
    (void)state;
    assert_string_equal(lk_strategy_name_at(0), "one-device");
    assert_string_equal(lk_strategy_name_at(1), "mirrored");
    assert_string_equal(lk_strategy_name_at(2), "central-storage");
    assert_string_equal(lk_strategy_name_at(3), "multi-worker");
    assert_string_equal(lk_strategy_name_at(4), "parameter-server");
    assert_string_equal(lk_strategy_name_at(5), "tpu");
    assert_null(lk_strategy_name_at(6));
    assert_int_equal(lk_strategy_kind_of("mirrored"), LK_STRATEGY_LOCAL);
    assert_int_equal(lk_strategy_kind_of("multi-worker"), LK_STRATEGY_SYNCHRONOUS);
    assert_int_equal(lk_strategy_kind_of("parameter-server"), LK_STRATEGY_ASYNCHRONOUS);
    assert_int_equal(lk_strategy_kind_of(NULL), LK_STRATEGY_LOCAL);
    assert_null(lk_strategy_new("sparse", devices, 1));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT,
                 "unknown strategy 'sparse': one-device, mirrored, central-storage, multi-worker, "
                 "parameter-server, tpu");
    assert_null(lk_strategy_new("one-device", devices, 2));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "strategy one-device: 2 devices; use mirrored for several");
    assert_null(lk_strategy_new("mirrored", devices, 0));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT, "strategy: 0 devices, where 1 to 256 are possible");
    lk_device *ref = lk_device_open("ref:0");
    assert_null(lk_strategy_new("mirrored", (lk_device *[]){devices[0], ref}, 2));
    expect_error(lk_error_status(), LK_ERR_ARGUMENT,
                 "strategy: cpu:0 and ref:0 compute different bits; use devices of one kind");
    lk_device_release(ref);
    const char *const of_several[] = {"mirrored", "central-storage", "multi-worker"};
    for (int i = 0; i < 3; i++) {
        assert_null(lk_strategy_new(of_several[i], (lk_device *[]){devices[1], devices[0], devices[1]}, 3));
        expect_error(lk_error_status(), LK_ERR_ARGUMENT,
                     "strategy: cpu:1 is given twice; \"2xcpu:1\" opens two devices in its place");
    }
    lk_strategy *strategy = open_strategy(3);
    assert_string_equal(lk_strategy_name(strategy), "mirrored");
    assert_int_equal(lk_strategy_num_replicas(strategy), 3);
    assert_ptr_equal(lk_strategy_device(strategy, 2), devices[2]);
    assert_null(lk_strategy_device(strategy, 3));
    lk_strategy_release(strategy);
    lk_strategy_release(NULL);
}

static void replicas_start_equal(void **state)
{
    (void)state;
    for (int k = 1; k <= 3; k++) {
        lk_tensor *variables[6];
        lk_strategy *strategy = open_strategy(k);
        lk_scope_begin();
        lk_tensor *initial[2] = {lk_tensor_from(devices[1], LK_F32, LK_SHAPE(9), values_of(1)),
                                 lk_tensor_from(devices[1], LK_F32, LK_SHAPE(4), values_of(2))};
        assert_ok(lk_strategy_distribute(strategy, initial, 2, variables));
        lk_scope_end();
        for (int r = 0; r < k; r++) {
            assert_ptr_equal(lk_tensor_device(variables[2 * r]), devices[r]);
            assert_bits(variables[2 * r], values_of(1), 9);
            assert_bits(variables[2 * r + 1], values_of(2), 4);
            lk_tensor_release(variables[2 * r]);
            lk_tensor_release(variables[2 * r + 1]);
        }
        lk_strategy_release(strategy);
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_status sum_once(const shard_case *c, lk_shard_sum *sum, bool piecewise, lk_tensor **sums)
{
    lk_status status = piecewise ? add_piecewise(c, sum) : add_in_turns(c, sum);
    lk_status finished = lk_shard_sum_finish(sum, sums); /* after a failure it empties the object */
    return status != LK_OK ? status : finished;
}

/* Work that was pushed may fail later, on a device's thread; then reading a sum gives the error. */
static lk_status read_all(lk_tensor **sums, int n)
{
    lk_status status = LK_OK;
    for (int i = 0; i < n; i++) {
        if (status == LK_OK)
            status = lk_tensor_wait(sums[i]);
        lk_tensor_release(sums[i]);
    }
    return status;
}

static void check_failures(bool piecewise)
{
    shard_case c = {6, 3, nowhere, nowhere, (int64_t[]){9000, 1, 1, 1}};
    lk_tensor *sums[3 * QUANTITIES];
    lk_strategy *strategy = open_strategy(3);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, 6, QUANTITIES);
    int64_t failures = 0;
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_status status = sum_once(&c, sum, piecewise, sums);
        if (status == LK_OK)
            status = read_all(sums, 3 * QUANTITIES);
        stop_failing(&f);
        if (lk_wait_all() != LK_OK) /* clears failures that nobody waited for */
            assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
        failures += status != LK_OK;
        assert_true(status == LK_OK || (status == LK_ERR_MEMORY && *lk_error_message()));
        lk_error_clear();
        assert_ok(sum_once(&c, sum, piecewise, sums));
        check_sums(&c, sums);
    }
    assert_true(failures > 10);
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    check_failures(false);
    check_failures(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIST_TEST(every_number_of_shards_and_devices),
        DIST_TEST(empty_shards_anywhere),
        DIST_TEST(fewer_samples_than_devices),
        DIST_TEST(misuse_changes_nothing),
        DIST_TEST(a_missing_shard_is_named_and_forgotten),
        DIST_TEST(fewer_shards_than_devices_are_refused),
        DIST_TEST(strategies),
        DIST_TEST(replicas_start_equal),
        DIST_TEST(every_allocation_may_fail),
    };
    return RUN_DIST_TESTS(tests);
}
