/* Parts, the default number of shards, the tree's shape, and the values the other tests of this folder add. */
#include "dist/dist_testing.h"
#include "dist/sum/tree.h"

static void check_parts(int64_t count, int64_t parts)
{
    int64_t next = 0;
    for (int64_t p = 0; p < parts; p++) {
        lk_range range = lk_part(count, parts, p);
        int64_t size = range.end - range.begin;
        assert_int_equal(range.begin, next);
        assert_true(size == count / parts || size == count / parts + (count % parts != 0));
        next = range.end;
    }
    assert_int_equal(next, count);
}

static void parts_cover_everything_in_order(void **state)
{
    (void)state;
    for (int64_t count = 0; count <= 70; count++)
        for (int64_t parts = 1; parts <= 40; parts++)
            check_parts(count, parts);
    check_parts(60000, 257);
    check_parts(INT64_MAX, 1);
    check_parts(INT64_MAX, 65536);
    check_parts(INT64_MAX - 1, 7);
}

/* part * count / parts, rounded down: the rule that decides which shards are empty. */
static void parts_begin_at_the_rounded_product(void **state)
{
    (void)state;
    for (int64_t count = 0; count <= 40; count++)
        for (int64_t parts = 1; parts <= 20; parts++)
            for (int64_t p = 0; p < parts; p++)
                assert_int_equal(lk_part(count, parts, p).begin, p * count / parts);
}

static void default_shards_follow_the_rule(void **state)
{
    (void)state;
    assert_int_equal(lk_default_shards(256), 8);
    assert_int_equal(lk_default_shards(255), 4);
    assert_int_equal(lk_default_shards(128), 4);
    assert_int_equal(lk_default_shards(64), 2);
    assert_int_equal(lk_default_shards(32), 2);
    assert_int_equal(lk_default_shards(31), 1);
    assert_int_equal(lk_default_shards(1), 1);
    assert_int_equal(lk_default_shards(512), 8);
    assert_int_equal(lk_default_shards(513), 16);
    assert_int_equal(lk_default_shards(65536), 1024);
    assert_int_equal(lk_default_shards(1 << 24), 65536);
    for (int64_t batch_size = 1; batch_size < 3000; batch_size++) {
        int64_t shards = lk_default_shards(batch_size);
        assert_true((shards & (shards - 1)) == 0);
        assert_true(batch_size >= (shards == 1 ? 1 : shards == 2 ? 32 : 32 * shards));
        assert_true(batch_size < (shards == 1 ? 32 : shards < 8 ? 64 * shards : 64 * shards + 1));
    }
}

/* Groups are whole nodes, as small as they may be. */
static void groups_are_nodes_with_enough_samples(void **state)
{
    (void)state;
    lk_range group = lk__tree_group(8, 128, 32, 3);
    assert_true(group.begin == 2 && group.end == 4);
    group = lk__tree_group(3, 96, 32, 2); /* shards of 32, though the tree is not balanced */
    assert_true(group.begin == 2 && group.end == 3);
    group = lk__tree_group(4, 63, 32, 0); /* the halves would have 31 and 32 samples */
    assert_true(group.begin == 0 && group.end == 4);
    for (int64_t shards = 1; shards <= 13; shards++)
        for (int64_t samples = shards; samples < 70; samples += 3)
            for (int64_t least = 1; least < 40; least += 4)
                for (int64_t s = 0; s < shards; s++) {
                    lk_range in = lk__tree_group(shards, samples, least, s), nodes[LK_TREE_COVER];
                    int64_t count = lk_part(samples, shards, in.end - 1).end - lk_part(samples, shards, in.begin).begin;
                    int64_t middle = lk_part(samples, shards, lk__tree_middle(in)).begin;
                    int64_t left = middle - lk_part(samples, shards, in.begin).begin;
                    assert_true(in.begin <= s && s < in.end);
                    assert_int_equal(lk__tree_cover(shards, in, nodes), 1);
                    assert_true(count >= least || in.end - in.begin == shards);
                    assert_true(in.end - in.begin == 1 || left < least || count - left < least);
                }
}

/* Returns whether [lo, hi) is a node of the tree over [begin, end). */
static bool is_node(int64_t begin, int64_t end, int64_t lo, int64_t hi)
{
    int64_t middle = (begin + end) / 2;
    if (begin == lo && end == hi)
        return true;
    return end - begin > 1 && (is_node(begin, middle, lo, hi) || is_node(middle, end, lo, hi));
}

static void a_shard_completes_the_largest_node_that_ends_with_it(void **state)
{
    (void)state;
    for (int64_t v = 1; v <= 17; v++) {
        for (int64_t shard = 0; shard < v; shard++) {
            for (int64_t first = 0; first <= shard; first++) {
                int64_t begin = first;
                while (!is_node(0, v, begin, shard + 1))
                    begin++;
                lk_range found = lk__tree_completed(v, (lk_range){first, v}, shard);
                assert_int_equal(found.begin, begin);
                assert_int_equal(found.end, shard + 1);
            }
        }
    }
}

static void a_range_is_covered_by_the_largest_nodes(void **state)
{
    (void)state;
    for (int64_t v = 1; v <= 17; v++) {
        for (int64_t first = 0; first < v; first++) {
            for (int64_t end = first + 1; end <= v; end++) {
                lk_range nodes[LK_TREE_COVER];
                int n = lk__tree_cover(v, (lk_range){first, end}, nodes);
                int64_t next = first;
                for (int i = 0; i < n; i++) {
                    int64_t last = end;
                    while (!is_node(0, v, next, last))
                        last--;
                    assert_int_equal(nodes[i].begin, next);
                    assert_int_equal(nodes[i].end, last);
                    next = last;
                }
                assert_int_equal(next, end);
            }
        }
    }
    lk_range nodes[LK_TREE_COVER];
    assert_in_range(lk__tree_cover(INT64_MAX, (lk_range){1, INT64_MAX - 1}, nodes), 100, LK_TREE_COVER);
}

/* The bitwise comparisons would prove nothing if every order of additions gave the same bits. */
static void another_order_of_addition_gives_other_bits(void **state)
{
    (void)state;
    bool present[ADDENDS];
    memset(present, true, sizeof present);
    for (int64_t count = 3; count <= 17; count++) {
        int in_turn = 0, reversed = 0, halves_rounded_up = 0;
        for (int64_t i = 0; i < 64; i++) {
            float tree, forward = values_of(0)[i], backward = values_of(count - 1)[i];
            assert_true(tree_sum(present, 0, count, i, &tree));
            for (int64_t a = 1; a < count; a++) {
                forward += values_of(a)[i];
                backward += values_of(count - 1 - a)[i];
            }
            int64_t up = (count + 1) / 2;
            float left, right;
            tree_sum(present, 0, up, i, &left);
            tree_sum(present, up, count, i, &right);
            in_turn += forward != tree;
            reversed += backward != tree;
            halves_rounded_up += left + right != tree;
        }
        assert_true(in_turn > 0);
        assert_true(count == 3 || reversed > 0); /* (2 + 1) + 0 is the tree over three */
        assert_true(count % 2 == 0 || halves_rounded_up > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_everything_in_order),
        cmocka_unit_test(parts_begin_at_the_rounded_product),
        cmocka_unit_test(default_shards_follow_the_rule),
        cmocka_unit_test(groups_are_nodes_with_enough_samples),
        cmocka_unit_test(a_shard_completes_the_largest_node_that_ends_with_it),
        cmocka_unit_test(a_range_is_covered_by_the_largest_nodes),
        cmocka_unit_test(another_order_of_addition_gives_other_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
