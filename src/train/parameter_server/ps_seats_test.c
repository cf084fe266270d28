/* The chief's list of workers, however many come and go. */
#include "train/parameter_server/ps_seats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double patience = 60;

static lk_ps_seat *sit(lk_ps_seats *seats, uint64_t nonce, int devices)
{
    lk_ps_join join = {.devices = devices, .nonce = nonce, .host = "here"};
    lk_ps_seat *seat;
    assert_int_equal(lk__ps_seats_find(seats, &seat), LK_OK);
    lk__ps_seat_clear(seat);
    lk__ps_seats_keep(seats, seat, &join, patience);
    return seat;
}

static int64_t join(lk_ps_seats *seats, uint64_t nonce, int devices)
{
    lk_ps_seat *seat = sit(seats, nonce, devices);
    lk__ps_seats_number(seats, seat);
    seat->state = LK_PS_SEAT_TAKEN;
    return seat->worker;
}

static void those_that_come_and_go_share_seats(void **state)
{
    (void)state;
    lk_ps_seats seats = {NULL};
    uint64_t nonce = 1;
    int64_t first = join(&seats, nonce++, 1);
    for (int64_t i = 1; i <= 1000; i++) {
        int64_t worker = join(&seats, nonce++, 1);
        assert_int_equal(worker, i); /* never one that somebody had */
        lk__ps_seat_clear(lk__ps_seats_of_worker(&seats, worker));
        assert_null(lk__ps_seats_of_worker(&seats, worker));
        assert_int_equal(seats.n, 2);
    }
    assert_int_equal(lk__ps_seats_of_process(&seats, 1)->worker, first);
    assert_null(lk__ps_seats_of_process(&seats, 2));
    assert_int_equal(lk__ps_seats_count_taken(&seats), 1);
    lk__ps_seats_free(&seats);
}

static void those_that_vanish_give_way(void **state)
{
    (void)state;
    lk_ps_seats seats = {NULL};
    uint64_t nonce = 1;
    int64_t there = join(&seats, nonce++, 1), lost = join(&seats, nonce++, 1);
    lk__ps_seats_of_worker(&seats, lost)->state = LK_PS_SEAT_LOST;
    lk__ps_seats_of_worker(&seats, lost)->silence = 50;
    for (int i = 0; i < 1000; i++) {
        sit(&seats, nonce++, 1)->silence = 1;
        /* A lost worker may come back as long as there are seats to spare. */
        assert_int_equal(lk__ps_seats_of_worker(&seats, lost) != NULL, i + 1 < LK_PS_SPARE_SEATS);
    }
    assert_int_equal(seats.n, 1 + LK_PS_SPARE_SEATS);
    assert_non_null(lk__ps_seats_of_worker(&seats, there));
    for (int i = 0; i < LK_PS_SPARE_SEATS; i++) /* the limit does not apply to workers that are present */
        join(&seats, nonce++, 1);
    assert_int_equal(lk__ps_seats_count_taken(&seats), 1 + LK_PS_SPARE_SEATS);
    assert_true(seats.n <= 1 + 2 * LK_PS_SPARE_SEATS);
    lk__ps_seats_free(&seats);
}

static void workers_of_a_host_have_cores_of_their_own(void **state)
{
    (void)state;
    lk_ps_seats seats = {NULL};
    assert_int_equal(sit(&seats, 1, 2)->first_core, 0);
    assert_int_equal(sit(&seats, 2, 3)->first_core, 2);
    lk_ps_join other = {.devices = 1, .nonce = 3, .host = "there"};
    lk_ps_seat *seat;
    assert_int_equal(lk__ps_seats_find(&seats, &seat), LK_OK);
    lk__ps_seats_keep(&seats, seat, &other, patience);
    assert_int_equal(seat->first_core, 0);
    lk__ps_seat_clear(lk__ps_seats_of_process(&seats, 1));
    assert_int_equal(sit(&seats, 4, 2)->first_core, 0); /* where the first one was */
    lk__ps_seats_of_process(&seats, 2)->silence = patience;
    assert_int_equal(sit(&seats, 5, 1)->first_core, 2); /* the seat of one that was expected for too long */
    lk__ps_seats_free(&seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_come_and_go_share_seats),
        cmocka_unit_test(those_that_vanish_give_way),
        cmocka_unit_test(workers_of_a_host_have_cores_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
