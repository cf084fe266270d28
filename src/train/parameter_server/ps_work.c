#include "train/parameter_server/ps_work.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "dist/sum/tree.h"
#include "train/parameter_server/ps_times.h"

/* --- finished batches --------------------------------------------------------------------------------------------- */

static void ps_work_note_staleness(lk_ps_coordinator *c, int64_t staleness)
{
    lk_async_report *r = &c->report;
    int64_t limit = c->training.setup.max_staleness;
    r->staleness[lk__min(staleness, LK_STALENESS_BINS - 1)]++;
    r->max_staleness = lk__max(staleness, r->max_staleness);
    if (limit >= 0 && staleness > limit)
        lk__ps_fail(c, LK_ERR_STATE, "an update was %lld behind, where --max-staleness allows %lld",
                    (long long)staleness, (long long)limit);
}

static int64_t ps_work_batch_samples(const lk_ps_coordinator *c, int64_t index)
{
    return lk__min(c->epoch.batch_size, c->epoch.samples - index * c->epoch.batch_size);
}

static lk_status ps_work_add_node(lk_ps_coordinator *c, const lk_ps_work *work)
{
    LK_TRY(LK_GROW(c->sums, &c->sums_capacity, c->n_sums + 1));
    c->sums[c->n_sums++] = (lk_ps_node_sums){.node = {work->first_shard, work->end_shard},
                                             .loss = (float)work->loss,
                                             .hits = (float)work->hits,
                                             .top_k = (float)work->top_k};
    return LK_OK;
}

/* Adds up the sums over `root`, along the tree and in the workers' precision. Nodes arrive in any order, so nothing
 * else gives the bits of one process. A node without samples has sums of 0. */
static lk_ps_node_sums ps_work_add_up(const lk_ps_coordinator *c, lk_range root)
{
    for (int i = 0; i < c->n_sums; i++)
        if (c->sums[i].node.begin == root.begin && c->sums[i].node.end == root.end)
            return c->sums[i];
    if (root.end - root.begin <= 1)
        return (lk_ps_node_sums){.node = root};
    int64_t middle = lk__tree_middle(root);
    lk_ps_node_sums left = ps_work_add_up(c, (lk_range){root.begin, middle}),
                    right = ps_work_add_up(c, (lk_range){middle, root.end});
    return (lk_ps_node_sums){.node = root,
                             .loss = left.loss + right.loss,
                             .hits = left.hits + right.hits,
                             .top_k = left.top_k + right.top_k};
}

static lk_status ps_work_finish_batch(lk_ps_coordinator *c, int64_t batch)
{
    int64_t index = batch - c->epoch.first;
    lk_ps_node_sums sums = ps_work_add_up(c, (lk_range){0, c->training.setup.shards});
    lk_ps_finished finished = {.index = index,
                               .samples = ps_work_batch_samples(c, index),
                               .loss = (double)sums.loss,
                               .hits = (double)sums.hits,
                               .top_k = (double)sums.top_k,
                               .skipped = c->is_skipped};
    c->n_sums = 0;
    c->report.updates++;
    ps_work_note_staleness(c, c->stale);
    c->stale = 0;
    c->is_skipped = false;
    LK_TRY(LK_GROW(c->finished, &c->finished_capacity, c->n_finished + 1));
    c->finished[c->n_finished++] = finished;
    pthread_cond_broadcast(&c->changed);
    return LK_OK;
}

/* Records that every server has the worker's node of a batch. */
static lk_status ps_work_take_done(lk_ps_coordinator *c, const lk_ps_work *work)
{
    c->report.repeated_pushes += work->repeated;
    lk_finish finish = lk__handouts_finish(c->handouts, work->batch, (lk_range){work->first_shard, work->end_shard});
    if (finish == LK_FINISHED_BEFORE)
        return LK_OK;
    LK_TRY(ps_work_add_node(c, work));
    c->is_skipped |= work->outcome == LK_PS_SKIPPED;
    c->stale = lk__max(c->stale, work->staleness);
    return finish == LK_FINISHED_BATCH ? ps_work_finish_batch(c, work->batch) : LK_OK;
}

/* Checks the numbers of a report from outside: they are added up, and compared with the hand-outs. */
static lk_status ps_work_check_report(const lk_ps_coordinator *c, const lk_ps_work *work)
{
    const lk_ps_setup *setup = &c->training.setup;
    bool is_good = work->batch >= 0 && work->batch < setup->batches && work->first_shard >= 0 &&
                   work->end_shard <= setup->shards && work->staleness >= 0 && work->staleness <= setup->batches &&
                   work->repeated >= 0 && work->repeated <= c->identity->servers;
    if (!is_good)
        LK_FAIL(LK_ERR_FORMAT, "work: batch %lld, shards %lld to %lld, staleness %lld, %lld servers had it",
                (long long)work->batch, (long long)work->first_shard, (long long)work->end_shard,
                (long long)work->staleness, (long long)work->repeated);
    return lk__ps_times_check(&work->times);
}

/* Has one worker compute the whole batch, so that its sums are checked as a whole. */
static void ps_work_join_batch(lk_ps_coordinator *c, int64_t batch)
{
    if (!lk__handouts_join(c->handouts, batch))
        return;
    c->n_sums = 0;
    c->stale = 0;
    c->is_skipped = false;
}

static lk_status ps_work_take_report(lk_ps_coordinator *c, lk_ps_seat *seat, const lk_ps_work *work)
{
    seat->times = work->times;
    bool is_of_epoch = work->batch >= c->epoch.first && work->batch < c->epoch.first + c->epoch.count;
    if (work->outcome == LK_PS_DROPPED) {
        c->report.refused_pushes++;
        lk__handouts_give_back(c->handouts, work->worker);
    }
    if (work->outcome == LK_PS_TOO_LARGE)
        ps_work_join_batch(c, work->batch);
    if (work->outcome == LK_PS_NOT_FINITE)
        lk__ps_fail(
            c, LK_ERR_NUMERIC,
            "epoch %lld, step %lld: loss or gradients are not finite, found by worker %lld; a smaller --base-lr or "
            "--clip-norm may help, --nan-guard skip leaves such updates out",
            (long long)c->epoch.epoch + 1, (long long)(work->batch - c->epoch.first) + 1, (long long)work->worker);
    bool is_done = work->outcome == LK_PS_DONE || work->outcome == LK_PS_SKIPPED;
    return is_done && is_of_epoch ? ps_work_take_done(c, work) : LK_OK;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* Answers the waiting request. The answer is kept in case it gets lost. */
static lk_status ps_work_answer(lk_ps_coordinator *c, lk_ps_seat *seat, int kind, const void *body, size_t bytes)
{
    lk_frame frame = lk__wire_first(&seat->reply, kind, seat->number, body, bytes);
    lk_status status = lk__service_reply(c->service, seat->waiting, &frame, 1);
    seat->replied = true;
    lk__mail_release(seat->waiting);
    seat->waiting = NULL;
    return status;
}

lk_status lk__ps_forget(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number, bool asks_push)
{
    lk_ps_state state = c->state == LK_PS_RUNNING ? LK_PS_FORGOTTEN : c->state;
    lk_ps_answer no = {.granted = 0, .state = state};
    lk_ps_task none = {.state = state};
    return asks_push ? lk__ps_reply(c, mail, LK_PS_ANSWER, number, &no, sizeof no, NULL, 0)
                     : lk__ps_reply(c, mail, LK_PS_TASK, number, &none, sizeof none, NULL, 0);
}

/* The nodes to cut a batch into: as many as there are workers, rounded up to a power of two, but each with at least as
 * many shards as a worker has devices, and with whole groups of batch-norm. */
static int64_t ps_work_nodes(const lk_ps_coordinator *c)
{
    const lk_ps_seats *seats = &c->seats;
    int64_t nodes = 1, workers = lk__ps_seats_count_taken(seats), devices = 1;
    for (int i = 0; i < seats->n; i++)
        if (seats->seats[i].state == LK_PS_SEAT_TAKEN && seats->seats[i].devices > devices)
            devices = seats->seats[i].devices;
    while (nodes < workers && 2 * nodes <= c->training.most_nodes && c->training.setup.shards / (2 * nodes) >= devices)
        nodes *= 2;
    return nodes;
}

/* Adds the time since the last call to the reason that held then, and sets the reason from now on. */
static void ps_work_hold(lk_ps_hold *h, lk_ps_reason reason)
{
    int64_t now = lk__nanoseconds();
    double seconds = 1e-9 * (double)(now - h->since);
    h->held_back += h->reason == LK_PS_HELD_BACK ? seconds : 0;
    h->between += h->reason == LK_PS_BETWEEN ? seconds : 0;
    h->reason = reason;
    h->since = now;
}

/* Returns why a request was not answered after this attempt to hand something out. */
static lk_ps_reason ps_work_reason(const lk_ps_coordinator *c, lk_take take)
{
    if (take == LK_TAKE_HELD_BACK)
        return LK_PS_HELD_BACK;
    return take == LK_TAKE_NONE && lk__handouts_are_finished(c->handouts) ? LK_PS_BETWEEN : LK_PS_BUSY;
}

static lk_status ps_work_hand_out(lk_ps_coordinator *c, lk_ps_seat *seat)
{
    lk_handout handout;
    lk_take take;
    lk_ps_task task = {.state = c->state};
    if (c->state == LK_PS_RUNNING) {
        LK_TRY(lk__handouts_take(c->handouts, seat->worker, seat->devices, ps_work_nodes(c), &handout, &take));
        if (take == LK_TAKE_TOO_SMALL) {
            ps_work_join_batch(c, handout.batch);
            LK_TRY(lk__handouts_take(c->handouts, seat->worker, seat->devices, 1, &handout, &take));
        }
        ps_work_hold(&seat->hold, ps_work_reason(c, take));
        if (take != LK_TAKEN)
            return LK_OK;
        task.granted = handout.granted;
        task.batch = handout.batch;
        task.epoch = c->epoch.epoch;
        task.index = handout.batch - c->epoch.first;
        task.first_shard = handout.node.begin;
        task.end_shard = handout.node.end;
        task.samples = ps_work_batch_samples(c, task.index);
        task.rate = c->rates[task.index];
        task.held_back = seat->hold.held_back;
        task.between = seat->hold.between;
    }
    return ps_work_answer(c, seat, LK_PS_TASK, &task, sizeof task);
}

static lk_status ps_work_grant(lk_ps_coordinator *c, lk_ps_seat *seat)
{
    lk_grant granted = lk__handouts_grant(c->handouts, seat->worker, seat->ask.batch);
    lk_ps_answer body = {.granted = granted == LK_GRANTED, .state = c->state};
    if (granted == LK_GRANT_LATER && c->state == LK_PS_RUNNING)
        return LK_OK;
    return ps_work_answer(c, seat, LK_PS_ANSWER, &body, sizeof body);
}

lk_status lk__ps_work_serve(lk_ps_coordinator *c)
{
    for (int pass = 0; pass < 2; pass++) /* pushes first: other workers may be waiting for them */
        for (int i = 0; i < c->seats.n; i++) {
            lk_ps_seat *seat = &c->seats.seats[i];
            bool is_served = seat->state == LK_PS_SEAT_TAKEN || c->state != LK_PS_RUNNING;
            if (!seat->waiting || seat->asks_push != (pass == 0) || !is_served)
                continue;
            LK_TRY(pass == 0 ? ps_work_grant(c, seat) : ps_work_hand_out(c, seat));
        }
    return LK_OK;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* Takes a request. A repeated one is not carried out again: its answer is repeated, or still to come. */
static lk_status ps_work_take_request(lk_ps_coordinator *c, lk_ps_seat *seat, lk_mail *mail, uint64_t number,
                                      bool *is_new)
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
        seat->hold = (lk_ps_hold){.reason = LK_PS_BUSY, .since = lk__nanoseconds()};
    seat->number = number;
    seat->replied = false;
    return LK_OK;
}

lk_status lk__ps_work_answer(lk_ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep)
{
    lk_ps_seat *seat;
    lk_ps_work work = {.outcome = LK_PS_NOTHING};
    lk_ps_ask ask;
    bool is_new, asks = header->kind == LK_PS_ASK;
    *keep = false;
    if (asks)
        LK_TRY(lk__wire_body(mail, LK_PS_ASK, "ask", &ask, sizeof ask, 0, 0));
    else
        LK_TRY(lk__wire_body(mail, LK_PS_WORK, "work", &work, sizeof work, 0, 0));
    LK_TRY(lk__ps_find_seat(c, asks ? ask.worker : work.worker, asks ? ask.run : work.run, &seat));
    if (!seat)
        return lk__ps_forget(c, mail, header->number, asks);
    if (header->number < seat->number)
        return LK_OK; /* late, by another connection: the worker has its answer */
    if (!asks)
        LK_TRY(ps_work_check_report(c, &work));
    LK_TRY(ps_work_take_request(c, seat, mail, header->number, &is_new));
    *keep = true;
    seat->asks_push = asks;
    if (asks)
        seat->ask = ask;
    else if (is_new)
        LK_TRY(ps_work_take_report(c, seat, &work));
    return LK_OK;
}
