/* A parameter server's store: pushes are applied once, by the optimizer and tree of every strategy; snapshots are
 * complete or refused. */
#include "train/parameter_server/ps_snapshot.h"

#include "base/folder_testing.h"
#include "base/mem_testing.h"
#include "lockstep/device.h"
#include "train/parameter_server/ps_apply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ELEMENTS = 16 + 32, CHANNELS = 3, STATISTICS = 2 * CHANNELS, SHARDS = 4, BATCHES = 20 };

static const lk_ps_part parts[] = {{5, 1, 1}, {30, 2, 1}};
static const lk_ps_layer layers[] = {{CHANNELS, 4, 0.1}};

static lk_ps_setup setup_of(int optimizer, int64_t max_staleness)
{
    return (lk_ps_setup){.run = 77,
                         .incarnation = 1,
                         .batches = BATCHES,
                         .shards = SHARDS,
                         .max_staleness = max_staleness,
                         .parts = 2,
                         .layers = 1,
                         .optimizer = optimizer,
                         .momentum = optimizer == LK_SGD ? 0.9 : 0,
                         .elements = ELEMENTS,
                         .statistics = STATISTICS};
}

static lk_ps_store *open_store(int optimizer, int64_t max_staleness)
{
    lk_ps_setup setup = setup_of(optimizer, max_staleness);
    lk_ps_store *store;
    float packed[ELEMENTS] = {0}, running[STATISTICS] = {0, 0, 0, 1, 1, 1};
    lk_error_clear();
    for (int i = 0; i < 5; i++)
        packed[i] = (float)i;
    for (int i = 0; i < 30; i++)
        packed[16 + i] = 0.125f * (float)i;
    if (lk__ps_store_new(&setup, parts, layers, &store) != LK_OK || lk__ps_store_write(store, packed, running) != LK_OK)
        fail_msg("%s", lk_error_message());
    return store;
}

/* Gradients and sums that differ from shard to shard, and in their last bits. */
static void fill(int64_t seed, float *gradients, double *sums)
{
    memset(gradients, 0, ELEMENTS * sizeof *gradients);
    for (int i = 0; i < 5; i++)
        gradients[i] = 1.0f / (float)(seed + i + 3);
    for (int i = 0; i < 30; i++)
        gradients[16 + i] = 1.0f / (float)(seed * 7 + i + 2);
    for (int i = 0; i < STATISTICS; i++)
        sums[i] = (double)(seed + 1) / (i + 7) + 10;
}

static lk_ps_push push_of(const lk_ps_store *store, int64_t batch, int64_t begin, int64_t end)
{
    return (lk_ps_push){.run = 77,
                        .batch = batch,
                        .first_shard = begin,
                        .end_shard = end,
                        .incarnation = store->setup.incarnation,
                        .version = store->version,
                        .samples = 32,
                        .rate = 0.1};
}

static lk_ps_pushed push(lk_ps_store *store, const lk_ps_push *push, int64_t seed)
{
    float gradients[ELEMENTS];
    double sums[STATISTICS];
    lk_ps_pushed pushed = {0};
    fill(seed, gradients, sums);
    if (lk__ps_store_push(store, push, gradients, sums, &pushed) != LK_OK)
        fail_msg("%s", lk_error_message());
    return pushed;
}

static void read_all(lk_ps_store *store, float all[ELEMENTS + STATISTICS])
{
    assert_int_equal(lk__ps_store_read(store, all, all + ELEMENTS), LK_OK);
}

static void expect_all(lk_ps_store *store, const float want[ELEMENTS + STATISTICS])
{
    float have[ELEMENTS + STATISTICS];
    read_all(store, have);
    assert_memory_equal(have, want, sizeof have);
}

static void a_batch_is_applied_once(void **state)
{
    (void)state;
    float before[ELEMENTS + STATISTICS], once[ELEMENTS + STATISTICS];
    lk_ps_store *store = open_store(LK_SGD, -1);
    lk_ps_push first = push_of(store, 3, 0, SHARDS);
    read_all(store, before);
    assert_int_equal(push(store, &first, 1).status, LK_PS_APPLIED);
    read_all(store, once);
    assert_true(once[0] == before[0] - 0.1f * (1.0f / 4));
    assert_memory_not_equal(once + ELEMENTS, before + ELEMENTS, STATISTICS * sizeof(float));
    assert_int_equal(push(store, &first, 2).status, LK_PS_REPEATED);
    expect_all(store, once);
    assert_int_equal(store->version, 1);
    lk__ps_store_release(store);
}

static void expect_reply(lk_ps_store *store, int64_t batch, const float want[ELEMENTS + STATISTICS], int64_t version)
{
    assert_int_equal(lk__ps_store_make_reply(store, batch), LK_OK);
    assert_memory_equal(store->reply, want, (ELEMENTS + STATISTICS) * sizeof *want);
    assert_int_equal(store->replied, version);
}

/* With max_staleness 0 a batch that was applied is computed again from the variables before it, so that another server
 * can apply it too, and its loss is the same. With another staleness, it is computed from the newest ones. */
static void a_batch_is_computed_again_from_the_same_variables(void **state)
{
    (void)state;
    for (int64_t most = -1; most < 2; most++) {
        float before[ELEMENTS + STATISTICS], after[ELEMENTS + STATISTICS];
        lk_ps_store *store = open_store(LK_SGD, most);
        lk_ps_push p = push_of(store, 3, 0, SHARDS);
        read_all(store, before);
        expect_reply(store, 3, before, 0);
        assert_int_equal(push(store, &p, 1).status, LK_PS_APPLIED);
        read_all(store, after); /* as a snapshot does */
        assert_memory_not_equal(after, before, sizeof after);
        expect_reply(store, 3, most == 0 ? before : after, most != 0);
        expect_reply(store, 4, after, 1);
        expect_reply(store, 3, after, 1); /* a worker that is late by a batch */
        expect_reply(store, -1, after, 1);
        expect_reply(store, INT64_MAX, after, 1);
        lk__ps_store_release(store);
    }
}

static void staleness_is_counted_and_limited(void **state)
{
    (void)state;
    lk_ps_store *store = open_store(LK_SGD, 1);
    lk_ps_push late = push_of(store, 0, 0, SHARDS), later = push_of(store, 1, 0, SHARDS);
    for (int64_t batch = 2; batch < 4; batch++) {
        lk_ps_push p = push_of(store, batch, 0, SHARDS);
        assert_int_equal(push(store, &p, batch).staleness, 0);
        lk_ps_pushed pushed = batch == 2 ? push(store, &late, 0) : push(store, &later, 0);
        assert_int_equal(pushed.staleness, batch == 2 ? 1 : 3);
        assert_int_equal(pushed.status, batch == 2 ? LK_PS_APPLIED : LK_PS_TOO_STALE);
    }
    assert_int_equal(store->version, 3);
    lk__ps_store_release(store);
}

/* The sum of four shards, whichever nodes they come in, in any order: (0 + 1) + (2 + 3). */
static void nodes_are_added_by_the_tree(void **state)
{
    (void)state;
    static const lk_range orders[][4] = {{{0, 1}, {1, 2}, {2, 3}, {3, 4}}, {{3, 4}, {1, 2}, {0, 1}, {2, 3}}};
    float want[ELEMENTS + STATISTICS], gradients[2][ELEMENTS], sum[ELEMENTS];
    double sums[2][STATISTICS], total[STATISTICS];
    lk_ps_store *store = open_store(LK_ADAM, 0);
    memset(sum, 0, sizeof sum);
    memset(total, 0, sizeof total);
    for (int half = 0; half < 2; half++) {
        fill(2 * half, gradients[0], sums[0]);
        fill(2 * half + 1, gradients[1], sums[1]);
        for (int i = 0; i < ELEMENTS; i++) {
            float pair = gradients[0][i] + gradients[1][i];
            sum[i] = half ? sum[i] + pair : pair;
        }
        for (int i = 0; i < STATISTICS; i++) {
            double pair = sums[0][i] + sums[1][i];
            total[i] = half ? total[i] + pair : pair;
        }
    }
    lk_ps_push whole = push_of(store, 0, 0, SHARDS);
    lk_ps_pushed pushed;
    assert_int_equal(lk__ps_store_push(store, &whole, sum, total, &pushed), LK_OK);
    read_all(store, want);
    lk__ps_store_release(store);
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        store = open_store(LK_ADAM, 0);
        for (int n = 0; n < 4; n++) {
            lk_ps_push p = push_of(store, 0, orders[o][n].begin, orders[o][n].end);
            assert_int_equal(push(store, &p, orders[o][n].begin).status, n < 3 ? LK_PS_HELD : LK_PS_APPLIED);
            if (n == 1) /* again: it was handed out again */
                assert_int_equal(push(store, &p, orders[o][n].begin).status, LK_PS_HELD);
        }
        expect_all(store, want);
        lk__ps_store_release(store);
    }
}

/* A node of a batch that was joined may have arrived before. */
static void a_whole_batch_takes_the_place_of_its_nodes(void **state)
{
    (void)state;
    float want[ELEMENTS + STATISTICS];
    lk_ps_store *store = open_store(LK_ADAM, 0);
    lk_ps_push whole = push_of(store, 0, 0, SHARDS), part = push_of(store, 0, 0, SHARDS / 2);
    push(store, &whole, 5);
    read_all(store, want);
    lk__ps_store_release(store);
    store = open_store(LK_ADAM, 0);
    part.is_skipped = 1;
    assert_int_equal(push(store, &part, 1).status, LK_PS_HELD);
    assert_int_equal(push(store, &whole, 5).status, LK_PS_APPLIED);
    expect_all(store, want);
    assert_int_equal(push(store, &part, 1).status, LK_PS_REPEATED);
    lk__ps_store_release(store);
}

static void an_empty_node_is_absent(void **state)
{
    (void)state;
    float want[ELEMENTS + STATISTICS];
    lk_ps_pushed pushed;
    lk_ps_store *store = open_store(LK_SGD, 0);
    lk_ps_push whole = push_of(store, 0, 0, SHARDS), left = push_of(store, 0, 0, 2), right = push_of(store, 0, 2, 4);
    push(store, &whole, 5);
    read_all(store, want);
    lk__ps_store_release(store);
    store = open_store(LK_SGD, 0);
    assert_int_equal(lk__ps_store_push(store, &right, NULL, NULL, &pushed), LK_OK);
    assert_int_equal(pushed.status, LK_PS_HELD);
    assert_int_equal(push(store, &left, 5).status, LK_PS_APPLIED);
    expect_all(store, want);
    lk__ps_store_release(store);
}

static void a_skipped_batch_changes_nothing_but_the_count(void **state)
{
    (void)state;
    float before[ELEMENTS + STATISTICS];
    lk_ps_pushed pushed;
    lk_ps_store *store = open_store(LK_ADAM, -1);
    lk_ps_push skipped = push_of(store, 0, 0, SHARDS);
    skipped.is_skipped = 1;
    read_all(store, before);
    assert_int_equal(lk__ps_store_push(store, &skipped, NULL, NULL, &pushed), LK_OK);
    assert_int_equal(pushed.status, LK_PS_APPLIED);
    expect_all(store, before);
    assert_int_equal(lk_optimizer_steps(store->optimizer), 1);
    lk__ps_store_release(store);
}

static void refuses(lk_ps_store *store, lk_ps_push p, const char *message)
{
    float gradients[ELEMENTS] = {0};
    double sums[STATISTICS] = {0};
    lk_ps_pushed pushed;
    lk_error_clear();
    assert_int_equal(lk__ps_store_push(store, &p, gradients, sums, &pushed), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
}

static void pushes_that_make_no_sense(void **state)
{
    (void)state;
    lk_ps_store *store = open_store(LK_SGD, -1);
    refuses(store, push_of(store, -1, 0, 4), "push of batch -1: there are 20");
    refuses(store, push_of(store, BATCHES, 0, 4), "push of batch 20: there are 20");
    refuses(store, push_of(store, 0, 1, 3), "push of batch 0: shards 1 to 3 are no node of the tree over 4");
    refuses(store, push_of(store, 0, 2, 2), "push of batch 0: shards 2 to 2 are no node of the tree over 4");
    refuses(store, push_of(store, 0, 0, 5), "push of batch 0: shards 0 to 5 are no node of the tree over 4");
    lk_ps_push p = push_of(store, 0, 0, 4);
    p.samples = 0;
    refuses(store, p, "push of batch 0: rate 0.1, 0 samples, version 0");
    lk__ps_store_release(store);
}

static void setups_that_make_no_sense(void **state)
{
    (void)state;
    lk_ps_store *store;
    lk_ps_setup setup = setup_of(LK_SGD, -1);
    setup.elements++;
    lk_error_clear();
    assert_int_equal(lk__ps_store_new(&setup, parts, layers, &store), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), "setup: 49 and 6 elements, where its tables add up to 48 and 6");
    setup = setup_of(LK_SGD, -1);
    setup.parts = -1;
    lk_error_clear();
    assert_int_equal(lk__ps_store_new(&setup, parts, layers, &store), LK_ERR_FORMAT);
    setup = setup_of(LK_SGD, -1);
    setup.updates = -1;
    lk_error_clear();
    assert_int_equal(lk__ps_store_new(&setup, parts, layers, &store), LK_ERR_FORMAT);
    setup = setup_of(9, -1);
    lk_error_clear();
    assert_int_equal(lk__ps_store_new(&setup, parts, layers, &store), LK_ERR_FORMAT);
    lk_error_clear();
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

static void train(lk_ps_store *store, int64_t begin, int64_t end)
{
    for (int64_t batch = begin; batch < end; batch++) {
        lk_ps_push p = push_of(store, batch, 0, SHARDS);
        assert_int_equal(push(store, &p, batch).status, LK_PS_APPLIED);
    }
}

static const char *path;

static void a_snapshot_goes_on_where_it_was(void **state)
{
    (void)state;
    for (int optimizer = LK_SGD; optimizer <= LK_LARS; optimizer++) {
        float want[ELEMENTS + STATISTICS];
        lk_ps_store *store = open_store(optimizer, -1), *restored;
        train(store, 0, 5);
        assert_int_equal(lk__ps_snapshot_write(store, path), LK_OK);
        train(store, 5, 12);
        read_all(store, want);
        assert_int_equal(lk__ps_snapshot_read(path, &restored), LK_OK);
        assert_int_equal(restored->version, 5);
        assert_int_equal(restored->setup.run, 77);
        lk_ps_push before = push_of(store, 4, 0, SHARDS);
        assert_int_equal(push(restored, &before, 4).status, LK_PS_REPEATED);
        /* A pull from before it was lost is as old as the snapshot. */
        restored->setup.incarnation = 2;
        lk_ps_push pulled_before = push_of(store, 5, 0, SHARDS);
        assert_int_equal(push(restored, &pulled_before, 5).staleness, 0);
        train(restored, 6, 12);
        expect_all(restored, want);
        lk__ps_store_release(store);
        lk__ps_store_release(restored);
    }
}

/* A server that continues from a checkpoint. */
static void a_new_store_takes_up_what_another_one_had(void **state)
{
    (void)state;
    for (int optimizer = LK_SGD; optimizer <= LK_LARS; optimizer++) {
        float all[ELEMENTS + STATISTICS], want[ELEMENTS + STATISTICS];
        float memory[LK_OPTIMIZER_SLOTS * ELEMENTS];
        lk_ps_store *store = open_store(optimizer, -1), *next = open_store(optimizer, -1);
        train(store, 0, 5);
        read_all(store, all);
        assert_int_equal(lk__ps_store_read_state(store, memory), LK_OK);
        assert_int_equal(lk__ps_store_write(next, all, all + ELEMENTS), LK_OK);
        assert_int_equal(lk__ps_store_write_state(next, memory, 5), LK_OK);
        train(store, 5, 12);
        read_all(store, want);
        train(next, 5, 12);
        expect_all(next, want);
        assert_int_equal(next->version, 7); /* of its own run */
        lk__ps_store_release(store);
        lk__ps_store_release(next);
    }
}

static void a_damaged_snapshot_is_refused(void **state)
{
    (void)state;
    static unsigned char bytes[8192];
    lk_ps_store *store = open_store(LK_ADAM, -1), *restored;
    train(store, 0, 3);
    assert_int_equal(lk__ps_snapshot_write(store, path), LK_OK);
    lk__ps_store_release(store);
    FILE *file = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_in_range(size, 100, sizeof bytes - 1);
    for (size_t i = 0; i < size + 3; i++) {
        /* One byte is changed, or the file ends too early or too late. */
        size_t length = i < size ? size : i == size ? size - 1 : i == size + 1 ? 10 : size + 1;
        if (i < size)
            bytes[i] ^= 0x10;
        file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, length, file), length);
        fclose(file);
        if (i < size)
            bytes[i] ^= 0x10;
        lk_error_clear();
        assert_int_equal(lk__ps_snapshot_read(path, &restored), LK_ERR_FORMAT);
        assert_null(restored);
        assert_non_null(strstr(lk_error_message(), path));
    }
    lk_error_clear();
    unlink(path);
    assert_int_equal(lk__ps_snapshot_read(path, &restored), LK_OK);
    assert_null(restored);
}

/* Everything a server does, with each of its allocations failing once. */
static lk_status live(void)
{
    lk_ps_setup setup = setup_of(LK_ADAM, 0);
    lk_ps_store *store = NULL, *restored = NULL;
    lk_ps_pushed pushed;
    float packed[ELEMENTS] = {0}, running[STATISTICS] = {0}, gradients[ELEMENTS];
    double sums[STATISTICS];
    fill(1, gradients, sums);
    lk_status status = lk__ps_store_new(&setup, parts, layers, &store);
    if (status == LK_OK)
        status = lk__ps_store_write(store, packed, running);
    for (int64_t n = 0; n < 2 && status == LK_OK; n++) {
        lk_ps_push p = push_of(store, 0, 2 * n, 2 * n + 2);
        status = lk__ps_store_push(store, &p, gradients, sums, &pushed);
    }
    if (status == LK_OK)
        status = lk__ps_snapshot_write(store, path);
    if (status == LK_OK)
        status = lk__ps_snapshot_read(path, &restored);
    lk__ps_store_release(store);
    lk__ps_store_release(restored);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    int64_t failures = 0;
    for (failing f = fail_every(1); fail_next(&f);) {
        lk_status status = live();
        stop_failing(&f);
        (void)lk_wait_all();
        assert_true(status == LK_OK || status == LK_ERR_MEMORY);
        failures += status != LK_OK;
    }
    lk_error_clear();
    assert_true(failures > 10);
    assert_int_equal(live(), LK_OK);
}

static int make_path(void **state)
{
    int result = make_test_dir(state);
    path = in_dir("snapshot");
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_applied_once),
        cmocka_unit_test(a_batch_is_computed_again_from_the_same_variables),
        cmocka_unit_test(staleness_is_counted_and_limited),
        cmocka_unit_test(nodes_are_added_by_the_tree),
        cmocka_unit_test(a_whole_batch_takes_the_place_of_its_nodes),
        cmocka_unit_test(an_empty_node_is_absent),
        cmocka_unit_test(a_skipped_batch_changes_nothing_but_the_count),
        cmocka_unit_test(pushes_that_make_no_sense),
        cmocka_unit_test(setups_that_make_no_sense),
        cmocka_unit_test(a_snapshot_goes_on_where_it_was),
        cmocka_unit_test(a_new_store_takes_up_what_another_one_had),
        cmocka_unit_test(a_damaged_snapshot_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_path, remove_test_dir);
}
