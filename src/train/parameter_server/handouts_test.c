/* Hand-outs to simulated workers and a server: in any order, each batch is finished once, staleness stays within its
 * limit, and nobody waits forever. */
#include "train/parameter_server/handouts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { WORKERS = 6, BATCHES = 300, SHARDS = 8 };

typedef enum doing { ASKS, PULLS, COMPUTES, WAITS, PUSHES, REPORTS } doing;

typedef struct player {
    doing doing;
    lk_handout handout;
    int64_t pulled;
    bool is_lost;
} player;

typedef struct play {
    lk_handouts *handouts;
    int64_t limit, version, worst;
    int finished[BATCHES];
    player players[WORKERS];
    int workers;
    uint64_t random;
} play;

static unsigned draw(play *p, unsigned n)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(p->random >> 33) % n;
}

static void push(play *p, player *w)
{
    int64_t staleness = p->version - w->pulled;
    p->worst = staleness > p->worst ? staleness : p->worst;
    if (p->limit >= 0)
        assert_in_range(staleness, 0, p->limit);
    p->version++;
}

/* Returns whether the worker could do something. */
static bool act(play *p, int id)
{
    player *w = &p->players[id];
    lk_take take;
    switch (w->doing) {
    case ASKS:
        assert_int_equal(lk__handouts_take(p->handouts, id, 1, 1, &w->handout, &take), LK_OK);
        w->doing = take == LK_TAKEN ? PULLS : ASKS;
        return take == LK_TAKEN;
    case PULLS:
        w->pulled = p->version;
        w->doing = COMPUTES;
        return true;
    case COMPUTES:
        w->doing = w->handout.granted ? PUSHES : WAITS;
        return true;
    case WAITS: {
        lk_grant grant = lk__handouts_grant(p->handouts, id, w->handout.batch);
        w->doing = grant == LK_GRANTED ? PUSHES : grant == LK_GRANT_NEVER ? ASKS : WAITS;
        return grant != LK_GRANT_LATER;
    }
    case PUSHES:
        push(p, w);
        w->doing = REPORTS;
        return true;
    default:
        assert_int_equal(lk__handouts_finish(p->handouts, w->handout.batch, w->handout.node), LK_FINISHED_BATCH);
        p->finished[w->handout.batch - 1000]++;
        w->doing = ASKS;
        return true;
    }
}

/* From time to time a worker is lost before it pushes, and comes back. */
static void lose(play *p, int id)
{
    player *w = &p->players[id];
    if (w->doing != COMPUTES && w->doing != WAITS)
        return;
    assert_int_equal(lk__handouts_give_back(p->handouts, id), 1);
    assert_int_equal(lk__handouts_grant(p->handouts, id, w->handout.batch), LK_GRANT_NEVER);
    w->doing = ASKS;
}

static void run(play *p, unsigned losses)
{
    int idle = 0;
    lk__handouts_start(p->handouts, 1000, BATCHES);
    while (!lk__handouts_are_finished(p->handouts)) {
        int id = (int)draw(p, (unsigned)p->workers);
        if (losses && draw(p, losses) == 0)
            lose(p, id);
        idle = act(p, id) ? 0 : idle + 1;
        if (idle < 100)
            continue;
        bool any = false; /* no worker drawn could go on: can any? */
        for (int i = 0; i < p->workers; i++)
            any = act(p, i) || any;
        assert_true(any);
        idle = 0;
    }
    for (int b = 0; b < BATCHES; b++)
        assert_int_equal(p->finished[b], 1);
}

static void whatever_the_order(int64_t limit, int workers, unsigned losses)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        play p = {.limit = limit, .workers = workers, .random = seed};
        assert_int_equal(lk__handouts_new(SHARDS, limit, &p.handouts), LK_OK);
        run(&p, losses);
        lk_handout_counts counts = lk__handouts_counts(p.handouts);
        assert_int_equal(counts.handed_out, BATCHES);
        assert_int_equal(counts.repeated, 0);
        assert_true(losses ? counts.again > 0 : counts.again == 0);
        if (limit > 0 && workers > limit)
            assert_int_equal(p.worst, limit); /* the batch is not kept from it although nobody else works */
        lk__handouts_release(p.handouts);
    }
}

static void limits_hold_and_nobody_waits_for_ever(void **state)
{
    (void)state;
    for (int workers = 1; workers <= WORKERS; workers++)
        for (int64_t limit = 1; limit <= 7; limit++)
            whatever_the_order(limit, workers, 0);
}

static void without_a_limit_nobody_asks(void **state)
{
    (void)state;
    whatever_the_order(LK_NO_STALENESS_LIMIT, 4, 0);
}

static void what_the_lost_had_is_handed_out_again(void **state)
{
    (void)state;
    whatever_the_order(LK_NO_STALENESS_LIMIT, 4, 10);
    whatever_the_order(1, 4, 10);
    whatever_the_order(3, 6, 5);
}

static lk_handouts *begin_batches(int64_t max_staleness, int64_t first, int64_t count)
{
    lk_handouts *h;
    assert_int_equal(lk__handouts_new(SHARDS, max_staleness, &h), LK_OK);
    lk__handouts_start(h, first, count);
    return h;
}

static void workers_share_a_batch_without_staleness(void **state)
{
    (void)state;
    lk_handouts *h = begin_batches(0, 0, 2);
    lk_handout a, b, c;
    lk_take take;
    assert_int_equal(lk__handouts_take(h, 0, 1, 2, &a, &take), LK_OK);
    assert_true(take == LK_TAKEN && a.granted);
    assert_int_equal(lk__handouts_take(h, 1, 1, 2, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKEN);
    assert_int_equal(a.batch, 0);
    assert_int_equal(b.batch, 0);
    assert_int_equal(a.node.begin + b.node.begin, SHARDS / 2);
    assert_int_equal(a.node.end - a.node.begin, SHARDS / 2);
    assert_int_equal(lk__handouts_take(h, 2, 1, 2, &c, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_HELD_BACK); /* the next batch needs this one's update */
    assert_int_equal(lk__handouts_finish(h, 0, a.node), LK_FINISHED_PART);
    assert_int_equal(lk__handouts_take(h, 0, 1, 2, &c, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_HELD_BACK);
    assert_int_equal(lk__handouts_give_back(h, 1), 1);
    assert_int_equal(lk__handouts_take(h, 2, 1, 2, &c, &take), LK_OK);
    assert_true(take == LK_TAKEN && c.batch == 0 && c.node.begin == b.node.begin);
    assert_int_equal(lk__handouts_finish(h, 0, b.node), LK_FINISHED_BATCH); /* the first one was only late */
    assert_int_equal(lk__handouts_finish(h, 0, c.node), LK_FINISHED_BEFORE);
    assert_int_equal(lk__handouts_take(h, 0, 1, 4, &a, &take), LK_OK);
    assert_true(take == LK_TAKEN && a.batch == 1 && a.node.end - a.node.begin == SHARDS / 4);
    lk_handout_counts counts = lk__handouts_counts(h);
    assert_int_equal(counts.handed_out, 3);
    assert_int_equal(counts.again, 1);
    assert_int_equal(counts.repeated, 1);
    lk__handouts_release(h);
}

/* A worker of more devices than a node has shards gets none of them; if nobody else is left, it gets the batch. */
static void a_batch_is_joined_for_a_worker_of_many_devices(void **state)
{
    (void)state;
    lk_handouts *h = begin_batches(0, 0, 2);
    lk_handout a, b, c;
    lk_take take;
    assert_int_equal(lk__handouts_take(h, 0, 1, 2, &a, &take), LK_OK);
    assert_int_equal(lk__handouts_take(h, 1, SHARDS / 2 + 1, 2, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_HELD_BACK);
    assert_int_equal(lk__handouts_finish(h, 0, a.node), LK_FINISHED_PART);
    assert_int_equal(lk__handouts_take(h, 1, SHARDS / 2 + 1, 2, &b, &take), LK_OK);
    assert_true(take == LK_TAKE_TOO_SMALL && b.batch == 0);
    assert_false(lk__handouts_join(h, 1));
    assert_true(lk__handouts_join(h, 0));
    assert_false(lk__handouts_join(h, 0));
    assert_int_equal(lk__handouts_take(h, 1, SHARDS / 2 + 1, 2, &b, &take), LK_OK);
    assert_true(take == LK_TAKEN && b.batch == 0 && b.node.begin == 0 && b.node.end == SHARDS);
    assert_int_equal(lk__handouts_take(h, 0, 1, 2, &c, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_HELD_BACK);
    assert_int_equal(lk__handouts_finish(h, 0, a.node), LK_FINISHED_BEFORE);
    assert_int_equal(lk__handouts_finish(h, 0, b.node), LK_FINISHED_BATCH);
    lk__handouts_release(h);
}

static void who_waits_for_others_is_told_so(void **state)
{
    (void)state;
    lk_handouts *h = begin_batches(1, 0, 3);
    lk_handout handout;
    lk_take take;
    for (int worker = 0; worker < 2; worker++) {
        assert_int_equal(lk__handouts_take(h, worker, 1, 1, &handout, &take), LK_OK);
        assert_int_equal(take, LK_TAKEN);
    }
    assert_int_equal(lk__handouts_take(h, 2, 1, 1, &handout, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_HELD_BACK); /* two updates would be applied between its pull and its push */
    lk__handouts_stop(h);
    assert_int_equal(lk__handouts_take(h, 2, 1, 1, &handout, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_NONE);
    lk__handouts_release(h);
}

/* Begins with batches from `first` on; workers 0 and 1 have one each. */
static lk_handouts *two_are_out(int64_t first, lk_handout *a, lk_handout *b)
{
    lk_handouts *h = begin_batches(LK_NO_STALENESS_LIMIT, first, 10);
    lk_take take;
    assert_true(lk__handouts_are_at_rest(h));
    assert_int_equal(lk__handouts_take(h, 0, 1, 1, a, &take), LK_OK);
    assert_int_equal(lk__handouts_take(h, 1, 1, 1, b, &take), LK_OK);
    return h;
}

static void a_stop_ends_what_is_out(void **state)
{
    (void)state;
    lk_handout a, b;
    lk_take take;
    lk_handouts *h = two_are_out(0, &a, &b);
    assert_int_equal(lk__handouts_give_back(h, 1), 1);
    lk__handouts_stop(h);
    assert_int_equal(lk__handouts_take(h, 2, 1, 1, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKEN); /* batches begun are finished by any worker present … */
    assert_int_equal(b.batch, 1);
    assert_int_equal(lk__handouts_take(h, 1, 1, 1, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_NONE);
    assert_int_equal(lk__handouts_give_back(h, 2), 1);
    assert_int_equal(lk__handouts_drop(h), 1); /* … unless there is none */
    assert_false(lk__handouts_are_finished(h));
    assert_int_equal(lk__handouts_finish(h, a.batch, a.node), LK_FINISHED_BATCH);
    assert_true(lk__handouts_are_finished(h));
    lk__handouts_release(h);
}

static void a_pause_lets_what_is_out_come_to_its_end(void **state)
{
    (void)state;
    lk_handout a, b;
    lk_take take;
    lk_handouts *h = two_are_out(5, &a, &b);
    lk__handouts_pause(h, true);
    assert_int_equal(lk__handouts_finish(h, b.batch, b.node), LK_FINISHED_BATCH);
    assert_int_equal(lk__handouts_take(h, 1, 1, 1, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKE_NONE);
    assert_false(lk__handouts_are_at_rest(h));
    assert_int_equal(lk__handouts_give_back(h, 0), 1);
    assert_int_equal(lk__handouts_take(h, 1, 1, 1, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKEN);
    assert_int_equal(b.batch, a.batch);
    assert_int_equal(lk__handouts_finish(h, b.batch, b.node), LK_FINISHED_BATCH);
    assert_true(lk__handouts_are_at_rest(h));
    assert_false(lk__handouts_are_finished(h));
    lk__handouts_pause(h, false);
    assert_int_equal(lk__handouts_take(h, 1, 1, 1, &b, &take), LK_OK);
    assert_int_equal(take, LK_TAKEN);
    assert_int_equal(b.batch, 7);
    lk__handouts_release(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_hold_and_nobody_waits_for_ever),
        cmocka_unit_test(without_a_limit_nobody_asks),
        cmocka_unit_test(what_the_lost_had_is_handed_out_again),
        cmocka_unit_test(workers_share_a_batch_without_staleness),
        cmocka_unit_test(a_batch_is_joined_for_a_worker_of_many_devices),
        cmocka_unit_test(who_waits_for_others_is_told_so),
        cmocka_unit_test(a_stop_ends_what_is_out),
        cmocka_unit_test(a_pause_lets_what_is_out_come_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
