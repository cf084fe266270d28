/* The servers that there are: they register here, and are looked for here. */
#include "train/ps_members.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

static void table_changed(ps_coordinator *c)
{
    atomic_fetch_add(&c->generation, 1);
    pthread_cond_broadcast(&c->changed);
}

/* --- registering -------------------------------------------------------------------------------------------------- */

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
           running = restores ? 0 : (size_t)setup.statistics * sizeof(float),
           state = setup.updates > 0 ? (size_t)c->training.n_slots * flat : 0;
    lk_frame frames[] = {{parts, (size_t)n * sizeof *parts},
                         {layout->layers, (size_t)setup.layers * sizeof *layout->layers},
                         {server->initial, flat},
                         {server->initial + setup.elements, running},
                         {server->initial + setup.elements + setup.statistics, state}};
    lk_status status = lk__ps_reply(c, mail, PS_SETUP, number, &setup, sizeof setup, frames, 5);
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

lk_status lk__ps_registry_join(ps_coordinator *c, const lk_mail *mail, uint64_t number, const ps_join *join)
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

/* --- those that are there ----------------------------------------------------------------------------------------- */

lk_status lk__ps_registry_hear(ps_coordinator *c, const ps_beat *beat)
{
    if (beat->run != c->training.setup.run || beat->id < 0 || beat->id >= c->place->servers)
        LK_FAIL(LK_ERR_FORMAT, "beat: of server %lld, run %016llx", (long long)beat->id, (unsigned long long)beat->run);
    ps_server_seat *server = &c->servers[beat->id];
    if (beat->incarnation != server->place.incarnation)
        return LK_OK;
    server->silence = 0;
    server->was_told = c->state != PS_RUNNING;
    if (server->place.is_there)
        return LK_OK;
    server->place.is_there = 1;
    server->missed = 0;
    lk__log(LK_LOG_INFO, "parameter server %d answers again", (int)beat->id);
    table_changed(c);
    return LK_OK;
}

lk_status lk__ps_registry_send(ps_coordinator *c, const lk_mail *mail, uint64_t number)
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

static void watch(ps_coordinator *c, int s, double seconds)
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

void lk__ps_registry_tick(ps_coordinator *c, double seconds)
{
    for (int s = 0; s < c->place->servers; s++)
        watch(c, s, seconds);
}
