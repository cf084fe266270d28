/* Membership: joining, heartbeats, and members that have gone silent. */
#include "train/parameter_server/ps_members.h"

#include "base/log.h"
#include "base/status.h"
#include "train/parameter_server/ps_registry.h"
#include "train/parameter_server/ps_work.h"
#include "train/plan/agreement.h"

#include <stdio.h>
#include <string.h>

lk_status lk__ps_reply(lk_ps_coordinator *c, const lk_mail *to, int kind, uint64_t number, const void *body,
                       size_t bytes, const lk_frame *more, int n_more)
{
    lk_wire_first first;
    lk_frame frames[LK_MAX_FRAMES] = {lk__wire_first(&first, kind, number, body, bytes)};
    for (int i = 0; i < n_more; i++)
        frames[i + 1] = more[i];
    return lk__service_reply(c->service, to, frames, n_more + 1);
}

lk_status lk__ps_refuse(lk_ps_coordinator *c, const lk_mail *to, uint64_t number, const char *reason)
{
    lk_ps_empty nothing = {.run = c->training.setup.run};
    lk_frame text = {reason, strlen(reason)};
    return lk__ps_reply(c, to, LK_PS_REFUSED, number, &nothing, sizeof nothing, &text, 1);
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

lk_status lk__ps_find_seat(lk_ps_coordinator *c, int64_t worker, uint64_t run, lk_ps_seat **seat)
{
    if (run != c->training.setup.run)
        LK_FAIL(LK_ERR_FORMAT, "message: of another training, run %016llx", (unsigned long long)run);
    if (worker < 0 || worker >= c->seats.workers)
        LK_FAIL(LK_ERR_FORMAT, "message: of worker %lld; there have been %lld", (long long)worker,
                (long long)c->seats.workers);
    *seat = lk__ps_seats_of_worker(&c->seats, worker);
    return LK_OK;
}

/* A worker counts as present once a message comes under its number. A request to join does not count: it may arrive
 * late, after the worker has gone. */
static void ps_members_hear_worker(lk_ps_coordinator *c, lk_ps_seat *seat)
{
    long long worker = (long long)seat->worker;
    seat->silence = 0;
    if (seat->state == LK_PS_SEAT_TAKEN)
        return;
    if (seat->state == LK_PS_SEAT_LOST)
        lk__log(LK_LOG_INFO, "worker %lld on %s is back", worker, seat->host);
    else
        lk__log(LK_LOG_INFO, "worker %lld on %s has joined, with %d device%s", worker, seat->host, seat->devices,
                seat->devices == 1 ? "" : "s");
    seat->state = LK_PS_SEAT_TAKEN;
    c->report.workers_joined++;
}

/* Finds the seat of a process that has already asked, or a new one for it. */
static lk_status ps_members_seat_worker(lk_ps_coordinator *c, const lk_ps_join *join, lk_ps_seat **seat)
{
    *seat = lk__ps_seats_of_process(&c->seats, join->nonce);
    if (*seat)
        return LK_OK;
    LK_TRY(lk__ps_seats_find(&c->seats, seat));
    if ((*seat)->waiting)
        LK_TRY(lk__ps_forget(c, (*seat)->waiting, (*seat)->number, (*seat)->asks_push));
    lk__ps_worker_records_add(&c->records, *seat);
    lk__ps_seat_clear(*seat);
    lk__ps_seats_keep(&c->seats, *seat, join, c->identity->join_timeout);
    return LK_OK;
}

static lk_status ps_members_offer_seat(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number,
                                       const lk_ps_join *join)
{
    lk_ps_seat *seat;
    LK_TRY(ps_members_seat_worker(c, join, &seat));
    lk_ps_seated seated = {.first_core = seat->first_core};
    return lk__ps_reply(c, mail, LK_PS_SEATED, number, &seated, sizeof seated, NULL, 0);
}

static lk_status ps_members_join_worker(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number,
                                        const lk_ps_join *join)
{
    char reason[LK_MESSAGE_BYTES / 2], who[sizeof join->host + 16];
    lk_ps_seat *seat;
    lk_frame theirs = mail->n > 1 ? mail->frames[1] : (lk_frame){NULL, 0};
    snprintf(who, sizeof who, "a worker on %s", join->host);
    if (!lk__agreement_is_same(c->agreement, c->training.agreement_bytes, theirs.data, theirs.bytes,
                               c->training.setup.max_staleness == 0, "the chief", who, reason, sizeof reason)) {
        lk__log(LK_LOG_WARNING, "a worker is refused: %s", reason);
        return lk__ps_refuse(c, mail, number, reason);
    }
    LK_TRY(ps_members_seat_worker(c, join, &seat));
    lk__ps_seats_number(&c->seats, seat);
    if (seat->state == LK_PS_SEAT_KEPT)
        seat->silence = 0;
    lk_ps_welcome body = {.worker = seat->worker,
                          .servers = c->identity->servers,
                          .run = c->training.setup.run,
                          .max_staleness = c->training.setup.max_staleness,
                          .shards = c->training.setup.shards};
    return lk__ps_reply(c, mail, LK_PS_WELCOME, number, &body, sizeof body, NULL, 0);
}

/* Lets a worker in. It first asks for a seat, then opens its devices, then joins. */
static lk_status ps_members_let_worker_in(lk_ps_coordinator *c, const lk_mail *mail, const lk_wire_header *header,
                                          const lk_ps_join *join)
{
    char reason[128];
    long long shards = (long long)c->training.setup.shards;
    if (join->devices < 1 || join->devices > shards) {
        snprintf(reason, sizeof reason, "%d devices, where a batch has %lld shards", join->devices, shards);
        return lk__ps_refuse(c, mail, header->number, reason);
    }
    return header->kind == LK_PS_SEAT ? ps_members_offer_seat(c, mail, header->number, join)
                                      : ps_members_join_worker(c, mail, header->number, join);
}

static lk_status ps_members_join(lk_ps_coordinator *c, const lk_mail *mail, const lk_wire_header *header)
{
    lk_ps_join join;
    uint64_t number = header->number;
    LK_TRY(lk__wire_body(mail, header->kind, "join", &join, sizeof join, 0, 1));
    lk__wire_tame(join.host, sizeof join.host);
    lk__wire_tame(join.address, sizeof join.address);
    if (c->state == LK_PS_ENDED) {
        lk_ps_empty nothing = {.run = c->training.setup.run};
        return lk__ps_reply(c, mail, LK_PS_OVER, number, &nothing, sizeof nothing, NULL, 0);
    }
    if (c->state == LK_PS_FAILED) {
        char reason[sizeof c->reason + 32];
        snprintf(reason, sizeof reason, "training has failed: %s", c->reason);
        return lk__ps_refuse(c, mail, number, reason);
    }
    if (join.role == LK_PS_SERVER && header->kind == LK_PS_JOIN)
        return lk__ps_registry_join(c, mail, number, &join);
    if (join.role == LK_PS_WORKER)
        return ps_members_let_worker_in(c, mail, header, &join);
    LK_FAIL(LK_ERR_FORMAT, "join: role %d; must be %d or %d", join.role, LK_PS_WORKER, LK_PS_SERVER);
}

/* --- beats -------------------------------------------------------------------------------------------------------- */

static lk_status ps_members_take_beat(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    lk_ps_beat beat;
    lk_ps_seat *seat = NULL;
    LK_TRY(lk__wire_body(mail, LK_PS_BEAT, "beat", &beat, sizeof beat, 0, 0));
    if (beat.role == LK_PS_WORKER)
        LK_TRY(lk__ps_find_seat(c, beat.id, beat.run, &seat));
    else
        LK_TRY(lk__ps_registry_hear(c, &beat));
    if (seat)
        ps_members_hear_worker(c, seat);
    lk_ps_pulse pulse = {.state = c->state, .generation = atomic_load(&c->generation)};
    lk_frame reason = {c->reason, strlen(c->reason)};
    return lk__ps_reply(c, mail, LK_PS_PULSE, number, &pulse, sizeof pulse, &reason, 1);
}

static lk_status ps_members_leave(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    lk_ps_ask ask;
    lk_ps_seat *seat;
    LK_TRY(lk__wire_body(mail, LK_PS_LEAVE, "leave", &ask, sizeof ask, 0, 0));
    LK_TRY(lk__ps_find_seat(c, ask.worker, ask.run, &seat));
    if (seat && seat->state == LK_PS_SEAT_TAKEN && c->state == LK_PS_RUNNING)
        lk__log(LK_LOG_INFO, "worker %lld on %s has left", (long long)ask.worker, seat->host);
    lk__handouts_give_back(c->handouts, ask.worker);
    if (seat) {
        lk__ps_worker_records_add(&c->records, seat);
        lk__ps_seat_clear(seat);
    }
    return lk__ps_reply(c, mail, LK_PS_FAREWELL, number, &ask, sizeof ask, NULL, 0);
}

lk_status lk__ps_members_answer(lk_ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep)
{
    *keep = false;
    switch (header->kind) {
    case LK_PS_SEAT:
    case LK_PS_JOIN:
        return ps_members_join(c, mail, header);
    case LK_PS_BEAT:
        return ps_members_take_beat(c, mail, header->number);
    case LK_PS_TABLE:
        return lk__ps_registry_send(c, mail, header->number);
    case LK_PS_LEAVE:
        return ps_members_leave(c, mail, header->number);
    default:
        LK_FAIL(LK_ERR_FORMAT, "message: the chief has no answer to kind %d", header->kind);
    }
}

/* --- silence ------------------------------------------------------------------------------------------------------ */

static void ps_members_lose(lk_ps_coordinator *c, lk_ps_seat *seat)
{
    seat->state = LK_PS_SEAT_LOST;
    c->report.workers_lost++;
    int had = lk__handouts_give_back(c->handouts, seat->worker);
    lk__log(LK_LOG_WARNING, "worker %lld on %s has been silent for %g s%s", (long long)seat->worker, seat->host,
            c->identity->timeout, had ? ": its batch is handed out again" : "");
}

lk_status lk__ps_members_tick(lk_ps_coordinator *c, double seconds)
{
    for (int i = 0; i < c->seats.n; i++) {
        lk_ps_seat *seat = &c->seats.seats[i];
        seat->silence += seconds;
        if (seat->state == LK_PS_SEAT_TAKEN && seat->silence > c->identity->timeout)
            ps_members_lose(c, seat);
    }
    lk__ps_registry_tick(c, seconds);
    if (c->is_stopping && lk__ps_seats_count_taken(&c->seats) == 0)
        c->dropped += lk__handouts_drop(c->handouts);
    bool waits = !lk__handouts_are_finished(c->handouts) && lk__ps_seats_count_taken(&c->seats) == 0;
    c->alone = waits ? c->alone + seconds : 0;
    if (c->alone > c->identity->join_timeout)
        lk__ps_fail(c, LK_ERR_BACKEND, "there has been no worker for %g s (--join-timeout)", c->identity->join_timeout);
    return LK_OK;
}
