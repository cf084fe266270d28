/* What workers get to do, and what became of it. */
#include "train/ps_members.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"
#include "train/ps_times.h"

#include <stdio.h>
#include <string.h>

/* --- finished batches --------------------------------------------------------------------------------------------- */

static lk_status note_finished(ps_coordinator *c, const ps_finished *finished)
{
    if (c->n_finished == c->finished_capacity) {
        int capacity = c->finished_capacity ? 2 * c->finished_capacity : 16;
        ps_finished *more = lk__realloc(c->finished, (size_t)capacity, sizeof *more);
        if (!more)
            return LK_ERR_MEMORY;
        c->finished = more;
        c->finished_capacity = capacity;
    }
    c->finished[c->n_finished++] = *finished;
    pthread_cond_broadcast(&c->changed);
    return LK_OK;
}

static void note_staleness(ps_coordinator *c, int64_t staleness)
{
    lk_async_report *r = &c->report;
    int64_t limit = c->training.setup.max_staleness, last = LK_STALENESS_BINS - 1;
    r->staleness[staleness < last ? staleness : last]++;
    r->max_staleness = staleness > r->max_staleness ? staleness : r->max_staleness;
    if (limit >= 0 && staleness > limit)
        lk__ps_fail(c, LK_ERR_STATE, "an update was %lld behind, where --max-staleness allows %lld",
                    (long long)staleness, (long long)limit);
}

static int64_t samples_of(const ps_coordinator *c, int64_t index)
{
    int64_t begin = index * c->epoch.batch_size, end = begin + c->epoch.batch_size;
    return (end < c->epoch.samples ? end : c->epoch.samples) - begin;
}

static lk_status finish_batch(ps_coordinator *c, int64_t batch)
{
    ps_finished finished = c->partial;
    finished.index = batch - c->epoch.first;
    finished.samples = samples_of(c, finished.index);
    c->partial = (ps_finished){0};
    c->report.updates++;
    note_staleness(c, c->stale);
    c->stale = 0;
    return note_finished(c, &finished);
}

/* Every server has the worker's node of a batch. */
static lk_status take_done(ps_coordinator *c, const ps_work *work)
{
    c->report.repeated_pushes += work->repeated;
    lk_finish finish = lk__handouts_finish(c->handouts, work->batch, (lk_range){work->first_shard, work->end_shard});
    if (finish == LK_FINISHED_BEFORE)
        return LK_OK;
    c->partial.loss += work->loss;
    c->partial.hits += work->hits;
    c->partial.top_k += work->top_k;
    c->partial.skipped |= work->outcome == PS_SKIPPED;
    c->stale = work->staleness > c->stale ? work->staleness : c->stale;
    return finish == LK_FINISHED_BATCH ? finish_batch(c, work->batch) : LK_OK;
}

static lk_status take_report(ps_coordinator *c, ps_seat *seat, const ps_work *work)
{
    seat->times = work->times;
    bool is_of_epoch = work->batch >= c->epoch.first && work->batch < c->epoch.first + c->epoch.count;
    if (work->outcome == PS_DROPPED) {
        c->report.refused_pushes++;
        lk__handouts_give_back(c->handouts, work->worker);
    }
    if (work->outcome == PS_NOT_FINITE)
        lk__ps_fail(
            c, LK_ERR_NUMERIC,
            "epoch %lld, step %lld: loss or gradients are not finite, found by worker %lld; a smaller --base-lr or "
            "--clip-norm may help, --nan-guard skip leaves such updates out",
            (long long)c->epoch.epoch + 1, (long long)(work->batch - c->epoch.first) + 1, (long long)work->worker);
    bool is_done = work->outcome == PS_DONE || work->outcome == PS_SKIPPED;
    if (is_done && (work->staleness < 0 || work->first_shard < 0 || work->end_shard > c->training.setup.shards))
        LK_FAIL(LK_ERR_FORMAT, "work: shards %lld to %lld, staleness %lld", (long long)work->first_shard,
                (long long)work->end_shard, (long long)work->staleness);
    return is_done && is_of_epoch ? take_done(c, work) : LK_OK;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* The answer to what the worker waits for, which is kept in case it does not arrive. */
static lk_status answer(ps_coordinator *c, ps_seat *seat, int kind, const void *body, size_t bytes)
{
    lk_frame frame = lk__wire_first(&seat->reply, kind, seat->number, body, bytes);
    lk_status status = lk__service_reply(c->service, seat->waiting, &frame, 1);
    seat->replied = true;
    lk__mail_release(seat->waiting);
    seat->waiting = NULL;
    return status;
}

lk_status lk__ps_forget(ps_coordinator *c, const lk_mail *mail, uint64_t number, bool asks_push)
{
    ps_state state = c->state == PS_RUNNING ? PS_FORGOTTEN : c->state;
    ps_answer no = {.granted = 0, .state = state};
    ps_task none = {.state = state};
    return asks_push ? lk__ps_reply(c, mail, PS_ANSWER, number, &no, sizeof no, NULL, 0)
                     : lk__ps_reply(c, mail, PS_TASK, number, &none, sizeof none, NULL, 0);
}

/* As many nodes as there are workers, rounded up to a power of two, of no fewer shards than a worker has devices. */
static int64_t nodes_of_batch(const ps_coordinator *c)
{
    const ps_seats *seats = &c->seats;
    int64_t nodes = 1, workers = lk__ps_seats_count(seats), devices = 1;
    for (int i = 0; i < seats->n; i++)
        if (seats->seats[i].state == PS_SEAT_TAKEN && seats->seats[i].devices > devices)
            devices = seats->seats[i].devices;
    while (nodes < workers && c->training.setup.shards / (2 * nodes) >= devices)
        nodes *= 2;
    return nodes;
}

/* What kept it waiting until now did so since the last look. */
static void hold(ps_hold *h, ps_reason reason)
{
    int64_t now = lk__trace_clock();
    double seconds = 1e-9 * (double)(now - h->since);
    h->held_back += h->reason == PS_HELD_BACK ? seconds : 0;
    h->between += h->reason == PS_BETWEEN ? seconds : 0;
    h->reason = reason;
    h->since = now;
}

static ps_reason reason_of(const ps_coordinator *c, lk_take take)
{
    if (take == LK_TAKE_HELD_BACK)
        return PS_HELD_BACK;
    return take == LK_TAKE_NONE && lk__handouts_are_finished(c->handouts) ? PS_BETWEEN : PS_BUSY;
}

static lk_status hand_out(ps_coordinator *c, ps_seat *seat)
{
    lk_handout handout;
    lk_take take;
    ps_task task = {.state = c->state};
    if (c->state == PS_RUNNING) {
        LK_TRY(lk__handouts_take(c->handouts, seat->worker, nodes_of_batch(c), &handout, &take));
        hold(&seat->hold, reason_of(c, take));
        if (take != LK_TAKEN)
            return LK_OK;
        task.granted = handout.granted;
        task.batch = handout.batch;
        task.epoch = c->epoch.epoch;
        task.index = handout.batch - c->epoch.first;
        task.first_shard = handout.node.begin;
        task.end_shard = handout.node.end;
        task.samples = samples_of(c, task.index);
        task.rate = c->rates[task.index];
        task.held_back = seat->hold.held_back;
        task.between = seat->hold.between;
    }
    return answer(c, seat, PS_TASK, &task, sizeof task);
}

static lk_status grant(ps_coordinator *c, ps_seat *seat)
{
    lk_grant granted = lk__handouts_grant(c->handouts, seat->worker, seat->ask.batch);
    ps_answer body = {.granted = granted == LK_GRANTED, .state = c->state};
    if (granted == LK_GRANT_LATER && c->state == PS_RUNNING)
        return LK_OK;
    return answer(c, seat, PS_ANSWER, &body, sizeof body);
}

/* Pushes come first: they may be what the others wait for. */
lk_status lk__ps_work_serve(ps_coordinator *c)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < c->seats.n; i++) {
            ps_seat *seat = &c->seats.seats[i];
            bool is_served = seat->state == PS_SEAT_TAKEN || c->state != PS_RUNNING;
            if (!seat->waiting || seat->asks_push != (pass == 0) || !is_served)
                continue;
            LK_TRY(pass == 0 ? grant(c, seat) : hand_out(c, seat));
        }
    return LK_OK;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* A request that has come before is not carried out again: its answer is repeated, or still to come. */
static lk_status begin(ps_coordinator *c, ps_seat *seat, lk_mail *mail, uint64_t number, bool *is_new)
{
    *is_new = number != seat->number;
    if (!*is_new && seat->replied) {
        lk_frame frame = {&seat->reply, seat->reply.bytes};
        LK_TRY(lk__service_reply(c->service, mail, &frame, 1));
        lk__mail_release(mail);
        return LK_OK;
    }
    lk__mail_release(seat->waiting);
    seat->waiting = mail;
    if (*is_new)
        seat->hold = (ps_hold){.reason = PS_BUSY, .since = lk__trace_clock()};
    seat->number = number;
    seat->replied = false;
    return LK_OK;
}

lk_status lk__ps_work_answer(ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep)
{
    ps_seat *seat;
    ps_work work = {.outcome = PS_NOTHING};
    ps_ask ask;
    bool is_new, asks = header->kind == PS_ASK;
    *keep = false;
    if (asks)
        LK_TRY(lk__wire_body(mail, PS_ASK, "ask", &ask, sizeof ask, 0, 0));
    else
        LK_TRY(lk__wire_body(mail, PS_WORK, "work", &work, sizeof work, 0, 0));
    LK_TRY(lk__ps_find_seat(c, asks ? ask.worker : work.worker, asks ? ask.run : work.run, &seat));
    if (!seat)
        return lk__ps_forget(c, mail, header->number, asks);
    LK_TRY(lk__ps_times_check(&work.times));
    LK_TRY(begin(c, seat, mail, header->number, &is_new));
    *keep = true;
    seat->asks_push = asks;
    if (asks)
        seat->ask = ask;
    else if (is_new)
        LK_TRY(take_report(c, seat, &work));
    return LK_OK;
}
