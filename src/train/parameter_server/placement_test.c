/* Placement on servers: every element once, evenly. */
#include "train/parameter_server/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 40 };

static void place(const int64_t *counts, int n, int64_t extra, int servers, lk_placement *p)
{
    assert_int_equal(lk__placement_new(counts, n, extra, servers, p), LK_OK);
}

/* The parts of each variable follow each other without a gap, and parts on a server do not overlap. */
static void check(const int64_t *counts, int n, const lk_placement *p)
{
    int64_t next[MANY] = {0}, end[LK_MAX_SERVERS] = {0};
    assert_int_equal(p->first[0], 0);
    assert_int_equal(p->first[p->servers], p->n);
    for (int v = 0; v < n; v++)
        for (bool found = true; found;) {
            found = false;
            for (int i = 0; i < p->n && !found; i++)
                if (p->parts[i].variable == v && p->parts[i].begin == next[v] && p->parts[i].count > 0) {
                    next[v] += p->parts[i].count;
                    found = true;
                }
        }
    for (int v = 0; v < n; v++)
        assert_int_equal(next[v], counts[v]);
    for (int s = 0; s < p->servers; s++)
        for (int i = p->first[s]; i < p->first[s + 1]; i++) {
            assert_int_equal(p->parts[i].server, s);
            assert_int_equal(p->parts[i].at, end[s]);
            end[s] += (p->parts[i].count + LK_PLACEMENT_STEP - 1) / LK_PLACEMENT_STEP * LK_PLACEMENT_STEP;
        }
    for (int s = 0; s < p->servers; s++)
        assert_int_equal(p->elements[s], end[s]);
}

static void every_element_is_somewhere_once(void **state)
{
    (void)state;
    int64_t counts[MANY];
    for (int servers = 1; servers <= 7; servers++)
        for (int n = 1; n <= MANY; n += 3) {
            lk_placement p;
            for (int v = 0; v < n; v++)
                counts[v] = 1 + (int64_t)(v * 7919 + servers * 104729) % 300000;
            place(counts, n, 12, servers, &p);
            check(counts, n, &p);
            lk__placement_free(&p);
        }
}

static void one_server_holds_all_whole(void **state)
{
    (void)state;
    const int64_t counts[] = {10, 1000000, 3};
    lk_placement p;
    place(counts, 3, 0, 1, &p);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.elements[0], 16 + 1000000 + 16);
    lk__placement_free(&p);
}

static void large_variables_are_split_and_small_ones_balanced(void **state)
{
    (void)state;
    const int64_t counts[] = {LK_PLACEMENT_WHOLE, LK_PLACEMENT_WHOLE + 1, 5, 40000, 30000};
    lk_placement p;
    int parts[5] = {0};
    place(counts, 5, 64, 2, &p);
    check(counts, 5, &p);
    for (int i = 0; i < p.n; i++)
        parts[p.parts[i].variable]++;
    assert_int_equal(parts[0], 1);
    assert_int_equal(parts[1], 2);
    int64_t difference = p.elements[0] - p.elements[1];
    assert_true(difference < 16000 && difference > -16000);
    assert_int_equal(p.extra[p.extra_server], 64);
    assert_int_equal(p.extra[1 - p.extra_server], 0);
    assert_true(p.elements[p.extra_server] <= p.elements[1 - p.extra_server]);
    lk__placement_free(&p);
}

static void what_cannot_be_placed(void **state)
{
    (void)state;
    const int64_t counts[] = {10};
    lk_placement p;
    assert_int_equal(lk__placement_new(counts, 0, 0, 1, &p), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "parameter-server: there are no variables");
    lk_error_clear();
    assert_int_equal(lk__placement_new(counts, 1, 0, LK_MAX_SERVERS + 1, &p), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "parameter-server: 257 servers; 1 to 256 are possible");
    lk_error_clear();
}

/* A frame takes 2^30 elements. */
static void servers_whose_messages_would_be_too_long(void **state)
{
    (void)state;
    const int64_t counts[] = {INT64_C(1) << 30, 10};
    assert_int_equal(lk__placement_check_frames(counts, 1, 1, 0), LK_OK);
    assert_int_equal(lk__placement_check_frames(counts, 1, 1, 1), LK_OK);
    assert_int_equal(lk__placement_check_frames(counts, 1, 2, 2), LK_OK);
    assert_int_equal(lk__placement_check_frames(counts, 2, 1, 0), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "--servers 1: one would have 1073741840 elements of the parameters, and a "
                                            "message takes 1073741824; --servers 2 would do");
    lk_error_clear();
    assert_int_equal(lk__placement_check_frames(counts, 2, 1, 2), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "--servers 1: one would have 1073741840 elements of the parameters, and a "
                                            "message takes 536870912 with the optimizer's state; --servers 3 would do");
    lk_error_clear();
    const int64_t huge[] = {INT64_C(1) << 39};
    assert_int_equal(lk__placement_check_frames(huge, 1, LK_MAX_SERVERS, 0), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "; not even --servers 256 would do"));
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_somewhere_once),
        cmocka_unit_test(one_server_holds_all_whole),
        cmocka_unit_test(large_variables_are_split_and_small_ones_balanced),
        cmocka_unit_test(what_cannot_be_placed),
        cmocka_unit_test(servers_whose_messages_would_be_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
