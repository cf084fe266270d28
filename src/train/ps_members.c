/* Who takes part: joining, beats, and those that are not heard of any more. */
#include "train/ps_members.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "train/ps_agreement.h"

#include <math.h>
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

static void table_changed(ps_coordinator *c)
{
    atomic_fetch_add(&c->generation, 1);
    pthread_cond_broadcast(&c->changed);
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

/* --- servers ------------------------------------------------------------------------------------------------------ */

static lk_status send_setup(ps_coordinator *c, const lk_mail *mail, uint64_t number, int s, bool restores)
{
    const ps_layout *layout = c->training.layout;
    const lk_placement *p = &layout->placement;
    ps_server_seat *server = &c->servers[s];
    int n = p->first[s + 1] - p->first[s];
    ps_part *parts = lk__calloc((size_t)n, sizeof *parts);
    if (!parts)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        const lk_placed *placed = &p->parts[p->first[s] + i];
        lk_shape shape = lk_model_variable_shape(layout->model, placed->variable);
        parts[i] =
            (ps_part){.count = placed->count, .axes = shape.ndim, .is_whole = placed->count == lk_shape_count(shape)};
    }
    ps_setup setup = c->training.setup;
    setup.incarnation = server->place.incarnation;
    setup.restores = restores;
    setup.parts = n;
    setup.layers = p->extra[s] > 0 ? layout->n_layers : 0;
    setup.elements = p->elements[s];
    setup.statistics = p->extra[s];
    size_t flat = restores ? 0 : (size_t)setup.elements * sizeof(float),
           running = restores ? 0 : (size_t)setup.statistics * sizeof(float);
    lk_frame frames[] = {{parts, (size_t)n * sizeof *parts},
                         {layout->layers, (size_t)setup.layers * sizeof *layout->layers},
                         {server->initial, flat},
                         {server->initial + setup.elements, running}};
    lk_status status = lk__ps_reply(c, mail, PS_SETUP, number, &setup, sizeof setup, frames, 4);
    lk__free(parts);
    return status;
}

/* Seconds in which a server that was killed is still taken for alive. */
static double grace(const ps_coordinator *c)
{
    return c->place->timeout < 1 ? c->place->timeout : 1;
}

static lk_status seat_server(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
{
    ps_server_seat *server = &c->servers[join->index];
    bool is_first = server->place.incarnation == 0;
    bool restores = join->has_snapshot && join->run == c->training.setup.run;
    if (!is_first && !restores && c->report.updates > 0) {
        lk__ps_fail(c, LK_ERR_BACKEND,
                    "parameter server %d came back without a snapshot of this training: its part of the variables is "
                    "lost; --snapshot-dir keeps one",
                    join->index);
        return lk__ps_refuse(c, mail, number, "there is no snapshot of this training to go on from");
    }
    server->nonce = join->nonce;
    server->silence = server->missed = 0;
    server->place.incarnation++;
    server->place.is_there = 1;
    memcpy(server->place.address, join->address, sizeof server->place.address);
    snprintf(server->place.key, sizeof server->place.key, "%s", mail->key);
    c->report.server_restarts += !is_first;
    lk__log(LK_LOG_INFO, "parameter server %d on %s is %s, at %s", join->index, join->host, is_first ? "there" : "back",
            join->address);
    LK_TRY(send_setup(c, mail, number, join->index, restores));
    table_changed(c);
    return LK_OK;
}

static lk_status join_server(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
{
    char reason[128];
    ps_empty nothing = {.run = c->training.setup.run};
    if (join->index < 0 || join->index >= c->place->servers) {
        snprintf(reason, sizeof reason, "server %d: there are to be %d, from 0 on (--servers)", join->index,
                 c->place->servers);
        return lk__ps_refuse(c, mail, number, reason);
    }
    ps_server_seat *server = &c->servers[join->index];
    if (server->nonce == join->nonce)
        return send_setup(c, mail, number, join->index, join->has_snapshot && join->run == c->training.setup.run);
    if (server->place.is_there && server->silence < grace(c))
        return lk__ps_reply(c, mail, PS_LATER, number, &nothing, sizeof nothing, NULL, 0);
    return seat_server(c, mail, number, join);
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
        return join_server(c, mail, number, &join);
    if (join.role == PS_WORKER)
        return let_in(c, mail, header, &join);
    LK_FAIL(LK_ERR_FORMAT, "join: role %d; must be %d or %d", join.role, PS_WORKER, PS_SERVER);
}

/* --- beats -------------------------------------------------------------------------------------------------------- */

static void hear_server(ps_coordinator *c, const ps_beat *beat)
{
    ps_server_seat *server = &c->servers[beat->id];
    if (beat->incarnation != server->place.incarnation)
        return;
    server->silence = 0;
    server->was_told = c->state != PS_RUNNING;
    if (server->place.is_there)
        return;
    server->place.is_there = 1;
    server->missed = 0;
    lk__log(LK_LOG_INFO, "parameter server %d answers again", beat->id);
    table_changed(c);
}

static lk_status hear_beat(ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    ps_beat beat;
    ps_worker_seat *worker;
    LK_TRY(lk__wire_body(mail, PS_BEAT, "beat", &beat, sizeof beat, 0, 0));
    if (beat.role == PS_WORKER) {
        LK_TRY(lk__ps_find_worker(c, beat.id, beat.run, &worker));
        heard_of(c, worker);
        worker->was_told = c->state != PS_RUNNING;
    } else if (beat.run == c->training.setup.run && beat.id >= 0 && beat.id < c->place->servers) {
        hear_server(c, &beat);
    } else {
        LK_FAIL(LK_ERR_FORMAT, "beat: of server %d, run %016llx", beat.id, (unsigned long long)beat.run);
    }
    ps_pulse pulse = {.state = c->state, .generation = atomic_load(&c->generation)};
    lk_frame reason = {c->reason, strlen(c->reason)};
    return lk__ps_reply(c, mail, PS_PULSE, number, &pulse, sizeof pulse, &reason, 1);
}

static lk_status send_table(ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    ps_empty table;
    LK_TRY(lk__wire_body(mail, PS_TABLE, "table", &table, sizeof table, 0, 0));
    ps_servers servers = {.generation = atomic_load(&c->generation), .servers = c->place->servers};
    ps_server_place places[LK_MAX_SERVERS];
    for (int s = 0; s < c->place->servers; s++)
        places[s] = c->servers[s].place;
    lk_frame frame = {places, (size_t)c->place->servers * sizeof *places};
    return lk__ps_reply(c, mail, PS_SERVERS, number, &servers, sizeof servers, &frame, 1);
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
        return send_table(c, mail, header->number);
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

static void watch_server(ps_coordinator *c, int s, double seconds)
{
    ps_server_seat *server = &c->servers[s];
    server->silence += seconds;
    if (server->place.is_there && server->silence > c->place->timeout) {
        server->place.is_there = 0;
        table_changed(c);
        lk__log(LK_LOG_WARNING, "parameter server %d at %s has been silent for %g s: training waits for it", s,
                server->place.address, c->place->timeout);
    }
    if (!server->place.is_there)
        server->missed += seconds;
    if (server->missed > c->place->join_timeout)
        lk__ps_fail(c, LK_ERR_BACKEND, "parameter server %d %s within %g s (--join-timeout)", s,
                    server->place.incarnation == 0 ? "has not come" : "was lost, and has not come back",
                    c->place->join_timeout);
}

lk_status lk__ps_members_tick(ps_coordinator *c, double seconds)
{
    for (int i = 0; i < c->n_workers; i++) {
        c->workers[i].silence += seconds;
        if (c->workers[i].is_there && c->workers[i].silence > c->place->timeout)
            lose_worker(c, i);
    }
    for (int s = 0; s < c->place->servers; s++)
        watch_server(c, s, seconds);
    bool waits = !lk__handouts_are_finished(c->handouts) && lk__ps_count_workers(c) == 0;
    c->alone = waits ? c->alone + seconds : 0;
    if (c->alone > c->place->join_timeout)
        lk__ps_fail(c, LK_ERR_BACKEND, "there has been no worker for %g s (--join-timeout)", c->place->join_timeout);
    return LK_OK;
}
