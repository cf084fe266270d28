/* The layout of a row, and the choice of its way. */
#include "dist/collectives/exchange_row.h"
#include "dist/dist_testing.h"
#include "dist/sum/tree.h"

enum { N = 5 };

static void small_quantities_come_first_in_one_span(void **state)
{
    enum { LARGE = LK_SMALL_QUANTITY + 1, PADDED = LK_SMALL_QUANTITY + LK_EXCHANGE_ALIGN };
    const lk_shape shapes[] = {LK_SHAPE(99), LK_SHAPE(LARGE),  LK_SHAPE(65), LK_SHAPE(2, LK_SMALL_QUANTITY),
                               LK_SHAPE(99), LK_SHAPE(4, 2, 8)};
    const int quantities[N] = {1, 2, 3, 0, 5};
    int64_t begins[N];
    lk_exchange_span spans[N];
    (void)state;
    lk_exchange_row row = lk__exchange_row_lay_out(shapes, LK_F32, quantities, N, begins, spans);
    const int64_t want[N] = {320, 0, 320 + PADDED, 128, 256};
    assert_memory_equal(begins, want, sizeof want);
    assert_true(row.copied == 320 && row.words == 320 + PADDED + 2 * LK_SMALL_QUANTITY && !row.whole);
    assert_int_equal(row.n_spans, 3);
    assert_true(spans[0].begin == 0 && spans[0].words == 320);
    assert_true(spans[1].begin == 320 && spans[1].words == LARGE);
    assert_true(spans[2].begin == 320 + PADDED && spans[2].words == 2 * LK_SMALL_QUANTITY);
}

static void a_row_without_small_or_large_quantities(void **state)
{
    const lk_shape shapes[] = {LK_SHAPE(LK_SMALL_QUANTITY), LK_SHAPE(LK_SMALL_QUANTITY + 1)};
    (void)state;
    lk_exchange_row small = lk__exchange_row_lay_out(shapes, LK_F32, (int[]){0}, 1, NULL, NULL);
    assert_true(small.whole && small.n_spans == 1 && small.copied == small.words);
    lk_exchange_row two = lk__exchange_row_lay_out(shapes, LK_F32, (int[]){0, 0}, 2, NULL, NULL);
    assert_true(!two.whole && two.n_spans == 1 && two.copied == 2 * LK_SMALL_QUANTITY);
    lk_exchange_row large = lk__exchange_row_lay_out(shapes, LK_F32, (int[]){1}, 1, NULL, NULL);
    assert_true(!large.whole && large.n_spans == 1 && large.copied == 0);
}

/* The figures of plans (exchange_plan_test.c) for ranks whose shards are nodes. */
static void the_load_is_that_of_a_plan(void **state)
{
    (void)state;
    lk_exchange_load load = lk__exchange_row_load(8, false, false, true);
    assert_true(load.steps == 2 && load.messages == 14 && load.rows == 1.75);
    load = lk__exchange_row_load(8, false, true, true);
    assert_true(load.steps == 6 && load.messages == 6 && load.rows == 1.75);
    load = lk__exchange_row_load(8, true, false, true);
    assert_true(load.steps == 1 && load.messages == 7 && load.rows == 7);
    load = lk__exchange_row_load(8, true, true, true);
    assert_true(load.steps == 3 && load.messages == 3 && load.rows == 3);
}

/* With every transport few ranks go flat, and many along the tree. */
static void the_estimate_prefers_the_tree_for_many_ranks(void **state)
{
    const lk_transport *transports[] = {&lk__transport_mpi, &lk__transport_nccl, &lk__transport_peer};
    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int64_t words = 256; words <= 16 << 20; words *= 4) {
            const lk_transport_cost *of_one = &transports[i]->cost;
            bool was_faster = false;
            assert_false(lk__exchange_row_takes_tree(of_one, LK_EXCHANGE_AUTO, 2, words, false));
            assert_false(lk__exchange_row_takes_tree(of_one, LK_EXCHANGE_AUTO, 3, words, false));
            for (int ranks = 4; ranks <= 1024; ranks *= 2) {
                bool is_faster = lk__exchange_row_takes_tree(of_one, LK_EXCHANGE_AUTO, ranks, words, false);
                assert_true(is_faster || !was_faster);
                was_faster = is_faster;
            }
            assert_true(was_faster);
        }
    }
}

static void a_way_can_be_forced_where_both_are_possible(void **state)
{
    const lk_transport_cost *cost = &lk__transport_mpi.cost;
    (void)state;
    assert_true(lk__exchange_row_takes_tree(cost, LK_EXCHANGE_TREE, 4, 256, false));
    assert_false(lk__exchange_row_takes_tree(cost, LK_EXCHANGE_TREE, 2, 256, false));
    assert_false(lk__exchange_row_takes_tree(cost, LK_EXCHANGE_TREE, 4, 256, true));
    assert_false(lk__exchange_row_takes_tree(cost, LK_EXCHANGE_FLAT, LK_LINKS_ADDENDS, 256, false));
    assert_true(lk__exchange_row_takes_tree(cost, LK_EXCHANGE_FLAT, LK_LINKS_ADDENDS + 1, 256, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_quantities_come_first_in_one_span),
        cmocka_unit_test(a_row_without_small_or_large_quantities),
        cmocka_unit_test(the_load_is_that_of_a_plan),
        cmocka_unit_test(the_estimate_prefers_the_tree_for_many_ranks),
        cmocka_unit_test(a_way_can_be_forced_where_both_are_possible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
