/* Who takes part: joining, beats, and those that are not heard of any more. */
#include "train/ps_members.h"

#include "base/log.h"
#include "base/status.h"
#include "train/ps_agreement.h"

#include <stdio.h>
#include <string.h>

lk_status lk__ps_reply(ps_coordinator *c, const lk_mail *to, int kind, uint64_t number, const void *body, size_t bytes,
                       const lk_frame *more, int n_more)
{
    lk_wire_first first;
    lk_frame frames[LK_MAX_FRAMES] = {lk__wire_first(&first, kind, number, body, bytes)};
    for (int i = 0; i < n_more; i++)
        frames[i + 1] = more[i];
    return lk__service_reply(c->service, to, frames, n_more + 1);
}

lk_status lk__ps_refuse(ps_coordinator *c, const lk_mail *to, uint64_t number, const char *reason)
{
    ps_empty nothing = {.run = c->training.setup.run};
    lk_frame text = {reason, strlen(reason)};
    return lk__ps_reply(c, to, PS_REFUSED, number, &nothing, sizeof nothing, &text, 1);
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

lk_status lk__ps_find_seat(ps_coordinator *c, int64_t worker, uint64_t run, ps_seat **seat)
{
    if (run != c->training.setup.run)
        LK_FAIL(LK_ERR_FORMAT, "message: of another training, run %016llx", (unsigned long long)run);
    if (worker < 0 || worker >= c->seats.workers)
        LK_FAIL(LK_ERR_FORMAT, "message: of worker %lld; there have been %lld", (long long)worker,
                (long long)c->seats.workers);
    *seat = lk__ps_seats_of_worker(&c->seats, worker);
    return LK_OK;
}

/* A worker is there when it is heard of under its number: a request to join may come late, when it has gone. */
static void heard_of(ps_coordinator *c, ps_seat *seat)
{
    long long worker = (long long)seat->worker;
    seat->silence = 0;
    if (seat->state == PS_SEAT_TAKEN)
        return;
    if (seat->state == PS_SEAT_LOST)
        lk__log(LK_LOG_INFO, "worker %lld on %s is back", worker, seat->host);
    else
        lk__log(LK_LOG_INFO, "worker %lld on %s has joined, with %d device%s", worker, seat->host, seat->devices,
                seat->devices == 1 ? "" : "s");
    seat->state = PS_SEAT_TAKEN;
    c->report.workers_joined++;
}

/* The seat of a process that has asked already, or one for it. */
static lk_status seat_worker(ps_coordinator *c, const ps_join *join, ps_seat **seat)
{
    *seat = lk__ps_seats_of_process(&c->seats, join->nonce);
    if (*seat)
        return LK_OK;
    LK_TRY(lk__ps_seats_find(&c->seats, seat));
    if ((*seat)->waiting)
        LK_TRY(lk__ps_forget(c, (*seat)->waiting, (*seat)->number, (*seat)->asks_push));
    lk__ps_crew_part(&c->crew, *seat);
    lk__ps_seat_clear(*seat);
    lk__ps_seats_keep(&c->seats, *seat, join, c->place->join_timeout);
    return LK_OK;
}

static lk_status offer_seat(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
{
    ps_seat *seat;
    LK_TRY(seat_worker(c, join, &seat));
    ps_seated seated = {.first_core = seat->first_core};
    return lk__ps_reply(c, mail, PS_SEATED, number, &seated, sizeof seated, NULL, 0);
}

static lk_status join_worker(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
{
    char reason[LK_MESSAGE_BYTES / 2];
    ps_seat *seat;
    lk_frame theirs = mail->n > 1 ? mail->frames[1] : (lk_frame){NULL, 0};
    if (!lk__agreement_is_same(c->agreement, c->training.agreement_bytes, theirs.data, theirs.bytes,
                               c->training.setup.max_staleness == 0, join->host, reason, sizeof reason)) {
        lk__log(LK_LOG_WARNING, "a worker is refused: %s", reason);
        return lk__ps_refuse(c, mail, number, reason);
    }
    LK_TRY(seat_worker(c, join, &seat));
    lk__ps_seats_number(&c->seats, seat);
    if (seat->state == PS_SEAT_KEPT)
        seat->silence = 0;
    ps_welcome body = {.worker = seat->worker,
                       .servers = c->place->servers,
                       .run = c->training.setup.run,
                       .max_staleness = c->training.setup.max_staleness,
                       .shards = c->training.setup.shards};
    return lk__ps_reply(c, mail, PS_WELCOME, number, &body, sizeof body, NULL, 0);
}

/* A worker: the seat comes before its devices are open, joining when it has all. */
static lk_status let_in(ps_coordinator *c, const lk_mail *mail, const lk_wire_header *header, const ps_join *join)
{
    char reason[128];
    long long shards = (long long)c->training.setup.shards;
    if (join->devices < 1 || join->devices > shards) {
        snprintf(reason, sizeof reason, "%d devices, where a batch has %lld shards", join->devices, shards);
        return lk__ps_refuse(c, mail, header->number, reason);
    }
    return header->kind == PS_SEAT ? offer_seat(c, mail, header->number, join)
                                   : join_worker(c, mail, header->number, join);
}

static lk_status join(ps_coordinator *c, const lk_mail *mail, const lk_wire_header *header)
{
    ps_join join;
    uint64_t number = header->number;
    LK_TRY(lk__wire_body(mail, header->kind, "join", &join, sizeof join, 0, 1));
    lk__wire_tame(join.host, sizeof join.host);
    lk__wire_tame(join.address, sizeof join.address);
    if (c->state != PS_RUNNING)
        return lk__ps_refuse(c, mail, number, "training has ended");
    if (join.role == PS_SERVER && header->kind == PS_JOIN)
        return lk__ps_registry_join(c, mail, number, &join);
    if (join.role == PS_WORKER)
        return let_in(c, mail, header, &join);
    LK_FAIL(LK_ERR_FORMAT, "join: role %d; must be %d or %d", join.role, PS_WORKER, PS_SERVER);
}

/* --- beats -------------------------------------------------------------------------------------------------------- */

static lk_status hear_beat(ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    ps_beat beat;
    ps_seat *seat = NULL;
    LK_TRY(lk__wire_body(mail, PS_BEAT, "beat", &beat, sizeof beat, 0, 0));
    if (beat.role == PS_WORKER)
        LK_TRY(lk__ps_find_seat(c, beat.id, beat.run, &seat));
    else
        LK_TRY(lk__ps_registry_hear(c, &beat));
    if (seat)
        heard_of(c, seat);
    ps_pulse pulse = {.state = c->state, .generation = atomic_load(&c->generation)};
    lk_frame reason = {c->reason, strlen(c->reason)};
    return lk__ps_reply(c, mail, PS_PULSE, number, &pulse, sizeof pulse, &reason, 1);
}

static lk_status leave(ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    ps_ask ask;
    ps_seat *seat;
    LK_TRY(lk__wire_body(mail, PS_LEAVE, "leave", &ask, sizeof ask, 0, 0));
    LK_TRY(lk__ps_find_seat(c, ask.worker, ask.run, &seat));
    if (seat && seat->state == PS_SEAT_TAKEN && c->state == PS_RUNNING)
        lk__log(LK_LOG_INFO, "worker %lld on %s has left", (long long)ask.worker, seat->host);
    lk__handouts_give_back(c->handouts, ask.worker);
    if (seat) {
        lk__ps_crew_part(&c->crew, seat);
        lk__ps_seat_clear(seat);
    }
    return lk__ps_reply(c, mail, PS_FAREWELL, number, &ask, sizeof ask, NULL, 0);
}

lk_status lk__ps_members_answer(ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep)
{
    *keep = false;
    switch (header->kind) {
    case PS_SEAT:
    case PS_JOIN:
        return join(c, mail, header);
    case PS_BEAT:
        return hear_beat(c, mail, header->number);
    case PS_TABLE:
        return lk__ps_registry_send(c, mail, header->number);
    case PS_LEAVE:
        return leave(c, mail, header->number);
    default:
        LK_FAIL(LK_ERR_FORMAT, "message: the chief has no answer to kind %d", header->kind);
    }
}

/* --- silence ------------------------------------------------------------------------------------------------------ */

static void lose(ps_coordinator *c, ps_seat *seat)
{
    seat->state = PS_SEAT_LOST;
    c->report.workers_lost++;
    int had = lk__handouts_give_back(c->handouts, seat->worker);
    lk__log(LK_LOG_WARNING, "worker %lld on %s has been silent for %g s%s", (long long)seat->worker, seat->host,
            c->place->timeout, had ? ": its batch is handed out again" : "");
}

lk_status lk__ps_members_tick(ps_coordinator *c, double seconds)
{
    for (int i = 0; i < c->seats.n; i++) {
        ps_seat *seat = &c->seats.seats[i];
        seat->silence += seconds;
        if (seat->state == PS_SEAT_TAKEN && seat->silence > c->place->timeout)
            lose(c, seat);
    }
    lk__ps_registry_tick(c, seconds);
    if (c->is_stopping && lk__ps_seats_count(&c->seats) == 0)
        c->dropped += lk__handouts_drop(c->handouts);
    bool waits = !lk__handouts_are_finished(c->handouts) && lk__ps_seats_count(&c->seats) == 0;
    c->alone = waits ? c->alone + seconds : 0;
    if (c->alone > c->place->join_timeout)
        lk__ps_fail(c, LK_ERR_BACKEND, "there has been no worker for %g s (--join-timeout)", c->place->join_timeout);
    return LK_OK;
}
