/* Who takes part: joining, beats, and those that are not heard of any more. */
#include "train/ps_members.h"

#include "base/log.h"
#include "base/mem.h"
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

int lk__ps_count_workers(const ps_coordinator *c)
{
    int n = 0;
    for (int i = 0; i < c->n_workers; i++)
        n += c->workers[i].is_there;
    return n;
}

lk_status lk__ps_find_worker(ps_coordinator *c, int id, uint64_t run, ps_worker_seat **worker)
{
    if (run != c->training.setup.run)
        LK_FAIL(LK_ERR_FORMAT, "message: of another training, run %016llx", (unsigned long long)run);
    if (id < 0 || id >= c->n_workers)
        LK_FAIL(LK_ERR_FORMAT, "message: of worker %d; there are %d", id, c->n_workers);
    *worker = &c->workers[id];
    return LK_OK;
}

static void heard_of(ps_coordinator *c, ps_worker_seat *worker)
{
    worker->silence = 0;
    if (worker->is_there || worker->has_left || !worker->has_joined)
        return;
    worker->is_there = true;
    c->report.workers_joined++;
    lk__log(LK_LOG_INFO, "worker %d on %s is back", (int)(worker - c->workers), worker->host);
}

/* Whether the seat's devices may be on these cores of the host. */
static bool overlaps(const ps_coordinator *c, const ps_worker_seat *seat, const char *host, int first, int devices)
{
    bool is_coming = !seat->has_joined && seat->silence < c->place->join_timeout;
    return (seat->is_there || is_coming) && strcmp(seat->host, host) == 0 && first < seat->first_core + seat->devices &&
           seat->first_core < first + devices;
}

/* Behind those of workers that are there, or where one was that is gone. */
static int find_cores(const ps_coordinator *c, const char *host, int devices)
{
    int first = 0;
    for (int i = 0; i < c->n_workers; i++)
        if (overlaps(c, &c->workers[i], host, first, devices)) {
            first = c->workers[i].first_core + c->workers[i].devices;
            i = -1;
        }
    return first;
}

/* The seat of a process that has asked already, or a new one. */
static lk_status seat_worker(ps_coordinator *c, const ps_join *join, ps_worker_seat **worker)
{
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].nonce == join->nonce) {
            *worker = &c->workers[i];
            return LK_OK;
        }
    if (c->n_workers == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 8;
        ps_worker_seat *more = lk__realloc(c->workers, (size_t)capacity, sizeof *more);
        if (!more)
            return LK_ERR_MEMORY;
        c->workers = more;
        c->capacity = capacity;
    }
    ps_worker_seat seat = {.nonce = join->nonce, .devices = join->devices};
    memcpy(seat.host, join->host, sizeof join->host);
    seat.first_core = find_cores(c, seat.host, seat.devices);
    *worker = &c->workers[c->n_workers++];
    **worker = seat;
    return LK_OK;
}

static lk_status offer_seat(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
{
    ps_worker_seat *worker;
    LK_TRY(seat_worker(c, join, &worker));
    ps_seated seated = {.first_core = worker->first_core};
    return lk__ps_reply(c, mail, PS_SEATED, number, &seated, sizeof seated, NULL, 0);
}

static void welcome(ps_coordinator *c, ps_worker_seat *worker)
{
    if (worker->has_joined)
        return;
    worker->has_joined = worker->is_there = true;
    c->report.workers_joined++;
    lk__log(LK_LOG_INFO, "worker %d on %s has joined, with %d device%s", (int)(worker - c->workers), worker->host,
            worker->devices, worker->devices == 1 ? "" : "s");
}

static lk_status join_worker(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
{
    char reason[LK_MESSAGE_BYTES / 2];
    ps_worker_seat *worker;
    lk_frame theirs = mail->n > 1 ? mail->frames[1] : (lk_frame){NULL, 0};
    if (!lk__agreement_is_same(c->agreement, c->training.agreement_bytes, theirs.data, theirs.bytes,
                               c->training.setup.max_staleness == 0, join->host, reason, sizeof reason)) {
        lk__log(LK_LOG_WARNING, "a worker is refused: %s", reason);
        return lk__ps_refuse(c, mail, number, reason);
    }
    LK_TRY(seat_worker(c, join, &worker));
    welcome(c, worker);
    heard_of(c, worker);
    ps_welcome body = {.worker = (int32_t)(worker - c->workers),
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
    ps_worker_seat *worker;
    LK_TRY(lk__wire_body(mail, PS_BEAT, "beat", &beat, sizeof beat, 0, 0));
    if (beat.role == PS_WORKER) {
        LK_TRY(lk__ps_find_worker(c, beat.id, beat.run, &worker));
        heard_of(c, worker);
        worker->was_told = c->state != PS_RUNNING;
    } else {
        LK_TRY(lk__ps_registry_hear(c, &beat));
    }
    ps_pulse pulse = {.state = c->state, .generation = atomic_load(&c->generation)};
    lk_frame reason = {c->reason, strlen(c->reason)};
    return lk__ps_reply(c, mail, PS_PULSE, number, &pulse, sizeof pulse, &reason, 1);
}

static lk_status leave(ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    ps_ask ask;
    ps_worker_seat *worker;
    LK_TRY(lk__wire_body(mail, PS_LEAVE, "leave", &ask, sizeof ask, 0, 0));
    LK_TRY(lk__ps_find_worker(c, ask.worker, ask.run, &worker));
    if (worker->is_there)
        lk__log(LK_LOG_INFO, "worker %d on %s has left", ask.worker, worker->host);
    worker->is_there = false;
    worker->has_left = true;
    lk__handouts_give_back(c->handouts, ask.worker);
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

static void lose_worker(ps_coordinator *c, int id)
{
    ps_worker_seat *worker = &c->workers[id];
    worker->is_there = false;
    c->report.workers_lost++;
    int had = lk__handouts_give_back(c->handouts, id);
    lk__log(LK_LOG_WARNING, "worker %d on %s has been silent for %g s%s", id, worker->host, c->place->timeout,
            had ? ": its batch is handed out again" : "");
}

lk_status lk__ps_members_tick(ps_coordinator *c, double seconds)
{
    for (int i = 0; i < c->n_workers; i++) {
        c->workers[i].silence += seconds;
        if (c->workers[i].is_there && c->workers[i].silence > c->place->timeout)
            lose_worker(c, i);
    }
    lk__ps_registry_tick(c, seconds);
    bool waits = !lk__handouts_are_finished(c->handouts) && lk__ps_count_workers(c) == 0;
    c->alone = waits ? c->alone + seconds : 0;
    if (c->alone > c->place->join_timeout)
        lk__ps_fail(c, LK_ERR_BACKEND, "there has been no worker for %g s (--join-timeout)", c->place->join_timeout);
    return LK_OK;
}
