/* Sums in shared memory: which memory results get, how failures spread, and the order among devices. */
#include "dist/dist_testing.h"

#include "base/mem_testing.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "dist/sum/shared_sum.h"

#include <semaphore.h>

enum { COUNT = 9001 };

/* --- holding devices back ----------------------------------------------------------------------------------------- */

typedef struct gate {
    lk_task task;
    sem_t open;
} gate;

static lk_status wait_at_gate(lk_task *task)
{
    sem_wait(&((gate *)task)->open);
    return LK_OK;
}

static void leave_gate(lk_task *task)
{
    (void)task;
}

/* Work pushed to the device from here on runs once the gate is open. */
static void close_gate(gate *g, lk_device *device)
{
    g->task = (lk_task){.device = device, .run = wait_at_gate, .release = leave_gate};
    sem_init(&g->open, 0, 0);
    assert_ok(lk__engine_push_task(&g->task));
}

/* --- two addends, on as many devices as there are results --------------------------------------------------------- */

typedef struct pair {
    int k;
    lk_tensor *addends[2], *sums[2];
    void *memory[2]; /* of the addends */
    lk_tree_node nodes[2];
    lk_shared_sum sum;
} pair;

static lk_tensor *new_tensor(lk_device *device)
{
    lk_tensor *tensor;
    assert_ok(lk__tensor_new(device, LK_F32, LK_SHAPE(COUNT), &tensor));
    return tensor;
}

static void make_pair(pair *p, int k)
{
    *p = (pair){.k = k};
    for (int i = 0; i < 2; i++) {
        p->addends[i] = new_tensor(devices[i % k]);
        assert_ok(lk_tensor_write(p->addends[i], values_of(i), COUNT * sizeof(float)));
        p->memory[i] = p->addends[i]->storage->data;
        p->nodes[i] = (lk_tree_node){.range = {i, i + 1}, .values = &p->addends[i]};
        if (i < k)
            p->sums[i] = new_tensor(devices[i]);
    }
    p->sum = (lk_shared_sum){.devices = devices,
                             .n_devices = k,
                             .root = {0, 2},
                             .nodes = p->nodes,
                             .n_nodes = 2,
                             .n_quantities = 1,
                             .results = p->sums,
                             .n_results = k,
                             .stride = 1};
    assert_true(lk__shared_sum_takes(p->nodes, 2, 0));
}

static void check_pair(pair *p)
{
    static const bool present[2] = {true, true};
    float *expected = tree_sums(present, 2, COUNT);
    for (int d = 0; d < p->k; d++)
        assert_bits(p->sums[d], expected, COUNT);
    free(expected);
}

static void release_addends(pair *p)
{
    for (int i = 0; i < 2; i++) {
        lk_tensor_release(p->addends[i]);
        p->addends[i] = NULL;
    }
}

static void release_pair(pair *p)
{
    release_addends(p);
    for (int d = 0; d < p->k; d++)
        lk_tensor_release(p->sums[d]);
}

/* Sums on one of three devices, large and small: all devices work, or only that one. */
static void a_result_may_be_wanted_on_one_device(void **state)
{
    (void)state;
    static const bool present[3] = {true, true, true};
    static const int64_t counts[] = {COUNT, 7};
    for (int c = 0; c < 2; c++) {
        for (int home = 0; home < 3; home++) {
            lk_tensor *addends[3], *result;
            lk_tree_node nodes[3];
            lk_shape shape = LK_SHAPE(counts[c]);
            for (int i = 0; i < 3; i++) {
                addends[i] = lk_tensor_from(devices[i], LK_F32, shape, values_of(i));
                nodes[i] = (lk_tree_node){.range = {i, i + 1}, .values = &addends[i]};
            }
            assert_ok(lk__tensor_new(devices[home], LK_F32, shape, &result));
            assert_ok(lk__shared_sum(&(lk_shared_sum){.devices = devices,
                                                      .n_devices = 3,
                                                      .root = {0, 3},
                                                      .nodes = nodes,
                                                      .n_nodes = 3,
                                                      .n_quantities = 1,
                                                      .results = &result,
                                                      .n_results = 1,
                                                      .stride = 1}));
            for (int i = 0; i < 3; i++)
                lk_tensor_release(addends[i]);
            float *expected = tree_sums(present, 3, counts[c]);
            assert_bits(result, expected, counts[c]);
            free(expected);
            lk_tensor_release(result);
        }
    }
}

static void results_take_over_what_nobody_holds(void **state)
{
    (void)state;
    for (int k = 1; k <= 2; k++) {
        pair p;
        gate gates[2];
        make_pair(&p, k);
        for (int d = 0; d < k; d++)
            close_gate(&gates[d], devices[d]);
        assert_ok(lk__shared_sum(&p.sum));
        release_addends(&p);
        for (int d = 0; d < k; d++)
            sem_post(&gates[d].open);
        check_pair(&p);
        for (int d = 0; d < k; d++) {
            assert_ptr_equal(p.sums[d]->storage->data, p.memory[d]);
            sem_destroy(&gates[d].open);
        }
        release_pair(&p);
    }
}

static void what_is_held_stays_as_it_is(void **state)
{
    (void)state;
    for (int k = 1; k <= 2; k++) {
        pair p;
        make_pair(&p, k);
        assert_ok(lk__shared_sum(&p.sum));
        check_pair(&p);
        for (int i = 0; i < 2; i++)
            assert_bits(p.addends[i], values_of(i), COUNT);
        release_pair(&p);
    }
}

/* --- halves ------------------------------------------------------------------------------------------------------- */

static void a_device_goes_on_between_the_halves(void **state)
{
    (void)state;
    pair p;
    gate g;
    lk_shared_sum_job *begun = NULL;
    make_pair(&p, 2);
    close_gate(&g, devices[1]);
    assert_ok(lk__shared_sum_begin(&p.sum, &begun));
    assert_non_null(begun);
    lk_scope_begin();
    assert_ok(lk_tensor_wait(lk_zeros(devices[0], LK_F32, LK_SHAPE(1)))); /* while the other device is held back */
    lk_scope_end();
    sem_post(&g.open);
    assert_ok(lk__shared_sum_finish(begun));
    lk__shared_sum_release(&begun);
    assert_null(begun);
    check_pair(&p);
    sem_destroy(&g.open);
    release_pair(&p);
}

static void a_half_that_is_given_up_leaves_nothing(void **state)
{
    (void)state;
    pair p;
    lk_shared_sum_job *begun = NULL;
    make_pair(&p, 2);
    assert_ok(lk__shared_sum_begin(&p.sum, &begun));
    lk__shared_sum_release(&begun);
    release_pair(&p);
}

/* A sum waits for earlier readers of what it overwrites, and later readers wait for it. */
static void in_place_readers_keep_their_order(void **state)
{
    (void)state;
    static const bool present[2] = {true, true};
    pair p;
    gate g;
    make_pair(&p, 2);
    lk_scope_begin();
    close_gate(&g, devices[2]);
    lk_tensor *before = lk_copy(p.addends[0], devices[2]);
    assert_ok(lk_allreduce(p.addends, 2));
    lk_tensor *after = lk_copy(p.addends[1], devices[3]);
    sem_post(&g.open);
    float *expected = tree_sums(present, 2, COUNT);
    assert_bits(before, values_of(0), COUNT);
    assert_bits(after, expected, COUNT);
    free(expected);
    lk_scope_end();
    sem_destroy(&g.open);
    release_pair(&p);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static void what_was_never_written_is_told_by_every_result(void **state)
{
    (void)state;
    for (int k = 1; k <= 2; k++) {
        pair p;
        make_pair(&p, k);
        lk_tensor_release(p.addends[1]);
        p.addends[1] = new_tensor(devices[1 % k]);
        assert_ok(lk__shared_sum(&p.sum));
        for (int d = 0; d < k; d++)
            expect_error(lk_tensor_wait(p.sums[d]), LK_ERR_STATE,
                         "allreduce: a tensor was made by lk_tensor_new and never written");
        release_pair(&p);
        lk_wait_all(); /* each result failed: the second failure is reported here at the latest */
        lk_error_clear();
    }
}

static void poison_reaches_every_result(void **state)
{
    (void)state;
    for (int k = 1; k <= 2; k++) {
        pair p;
        make_pair(&p, k);
        lk_scope_begin();
        lk_tensor *unwritten = lk_tensor_new(devices[0], LK_F32, LK_SHAPE(COUNT));
        lk_tensor *bad = lk_add(unwritten, unwritten);
        lk_tensor_release(p.addends[0]);
        p.addends[0] = lk_tensor_retain(bad);
        assert_ok(lk__shared_sum(&p.sum));
        for (int d = 0; d < k; d++)
            assert_int_equal(lk_tensor_wait(p.sums[d]), LK_ERR_STATE);
        lk_scope_end();
        lk_error_clear();
        release_pair(&p);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    int failures = 0;
    failing f = fail_every(1);
    do {
        pair p;
        make_pair(&p, 2);
        fail_next(&f);
        lk_status status = lk__shared_sum(&p.sum);
        for (int d = 0; d < 2 && status == LK_OK; d++)
            status = lk_tensor_wait(p.sums[d]);
        lk_device_sync(devices[0]);
        lk_device_sync(devices[1]);
        stop_failing(&f);
        assert_true(status == LK_OK || status == LK_ERR_MEMORY);
        failures += status != LK_OK;
        lk_wait_all();
        lk_error_clear();
        release_pair(&p);
    } while (f.reached);
    assert_true(failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIST_TEST(a_result_may_be_wanted_on_one_device),
        DIST_TEST(results_take_over_what_nobody_holds),
        DIST_TEST(what_is_held_stays_as_it_is),
        DIST_TEST(a_device_goes_on_between_the_halves),
        DIST_TEST(a_half_that_is_given_up_leaves_nothing),
        DIST_TEST(in_place_readers_keep_their_order),
        DIST_TEST(what_was_never_written_is_told_by_every_result),
        DIST_TEST(poison_reaches_every_result),
        DIST_TEST(every_allocation_may_fail),
    };
    return RUN_DIST_TESTS(tests);
}
