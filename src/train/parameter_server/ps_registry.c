#include "train/parameter_server/ps_registry.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void ps_registry_changed(lk_ps_coordinator *c)
{
    atomic_fetch_add(&c->generation, 1);
    pthread_cond_broadcast(&c->changed);
}

/* --- registering -------------------------------------------------------------------------------------------------- */

static lk_status ps_registry_send_setup(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number, int s,
                                        bool restores)
{
    const lk_ps_layout *layout = c->training.layout;
    const lk_placement *p = &layout->placement;
    lk_ps_server_seat *server = &c->servers[s];
    int n = p->first[s + 1] - p->first[s];
    lk_ps_part *parts = lk__calloc((size_t)n, sizeof *parts);
    if (!parts)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        const lk_placement_part *placed = &p->parts[p->first[s] + i];
        lk_shape shape = lk_model_variable_shape(layout->model, placed->variable);
        parts[i] = (lk_ps_part){
            .count = placed->count, .axes = shape.ndim, .is_whole = placed->count == lk_shape_count(shape)};
    }
    lk_ps_setup setup = c->training.setup;
    setup.incarnation = server->location.incarnation;
    setup.restores = restores;
    setup.parts = n;
    setup.layers = p->extra[s] > 0 ? layout->n_layers : 0;
    setup.elements = p->elements[s];
    setup.statistics = p->extra[s];
    size_t packed = restores ? 0 : (size_t)setup.elements * sizeof(float),
           running = restores ? 0 : (size_t)setup.statistics * sizeof(float),
           state = setup.updates > 0 ? (size_t)c->training.n_slots * packed : 0;
    lk_frame frames[] = {{parts, (size_t)n * sizeof *parts},
                         {layout->layers, (size_t)setup.layers * sizeof *layout->layers},
                         {server->initial, packed},
                         {server->initial + setup.elements, running},
                         {server->initial + setup.elements + setup.statistics, state}};
    lk_status status = lk__ps_reply(c, mail, LK_PS_SETUP, number, &setup, sizeof setup, frames, 5);
    lk__free(parts);
    return status;
}

static lk_status ps_registry_seat_server(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number,
                                         const lk_ps_join *join)
{
    lk_ps_server_seat *server = &c->servers[join->index];
    bool is_first = server->location.incarnation == 0;
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
    server->location.incarnation++;
    server->location.is_there = 1;
    memcpy(server->location.address, join->address, sizeof server->location.address);
    snprintf(server->location.key, sizeof server->location.key, "%s", mail->key);
    c->report.server_restarts += !is_first;
    lk__log(LK_LOG_INFO, "parameter server %d on %s is %s, at %s", join->index, join->host, is_first ? "there" : "back",
            join->address);
    LK_TRY(ps_registry_send_setup(c, mail, number, join->index, restores));
    ps_registry_changed(c);
    return LK_OK;
}

lk_status lk__ps_registry_join(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number, const lk_ps_join *join)
{
    char reason[128];
    lk_ps_empty nothing = {.run = c->training.setup.run};
    if (join->index < 0 || join->index >= c->identity->servers) {
        snprintf(reason, sizeof reason, "server %d: there are to be %d, from 0 on (--servers)", join->index,
                 c->identity->servers);
        return lk__ps_refuse(c, mail, number, reason);
    }
    lk_ps_server_seat *server = &c->servers[join->index];
    if (server->nonce == join->nonce)
        return ps_registry_send_setup(c, mail, number, join->index,
                                      join->has_snapshot && join->run == c->training.setup.run);
    double grace = fmin(c->identity->timeout, 1); /* seconds for which a killed server may still be taken for alive */
    if (server->location.is_there && server->silence < grace)
        return lk__ps_reply(c, mail, LK_PS_LATER, number, &nothing, sizeof nothing, NULL, 0);
    return ps_registry_seat_server(c, mail, number, join);
}

/* --- registered servers ------------------------------------------------------------------------------------------- */

lk_status lk__ps_registry_hear(lk_ps_coordinator *c, const lk_ps_beat *beat)
{
    if (beat->run != c->training.setup.run || beat->id < 0 || beat->id >= c->identity->servers)
        LK_FAIL(LK_ERR_FORMAT, "beat: of server %lld, run %016llx", (long long)beat->id, (unsigned long long)beat->run);
    lk_ps_server_seat *server = &c->servers[beat->id];
    if (beat->incarnation != server->location.incarnation)
        return LK_OK;
    server->silence = 0;
    server->was_told = c->state != LK_PS_RUNNING;
    if (server->location.is_there)
        return LK_OK;
    server->location.is_there = 1;
    server->missed = 0;
    lk__log(LK_LOG_INFO, "parameter server %d answers again", (int)beat->id);
    ps_registry_changed(c);
    return LK_OK;
}

lk_status lk__ps_registry_send(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number)
{
    lk_ps_empty table;
    LK_TRY(lk__wire_body(mail, LK_PS_TABLE, "table", &table, sizeof table, 0, 0));
    lk_ps_servers servers = {.generation = atomic_load(&c->generation), .servers = c->identity->servers};
    lk_ps_server_location locations[LK_MAX_SERVERS];
    for (int s = 0; s < c->identity->servers; s++)
        locations[s] = c->servers[s].location;
    lk_frame frame = {locations, (size_t)c->identity->servers * sizeof *locations};
    return lk__ps_reply(c, mail, LK_PS_SERVERS, number, &servers, sizeof servers, &frame, 1);
}

static void ps_registry_watch(lk_ps_coordinator *c, int s, double seconds)
{
    lk_ps_server_seat *server = &c->servers[s];
    server->silence += seconds;
    if (server->location.is_there && server->silence > c->identity->timeout) {
        server->location.is_there = 0;
        ps_registry_changed(c);
        lk__log(LK_LOG_WARNING, "parameter server %d at %s has been silent for %g s: training waits for it", s,
                server->location.address, c->identity->timeout);
    }
    if (!server->location.is_there)
        server->missed += seconds;
    if (server->missed > c->identity->join_timeout)
        lk__ps_fail(c, LK_ERR_BACKEND, "parameter server %d %s within %g s (--join-timeout)", s,
                    server->location.incarnation == 0 ? "has not come" : "was lost, and has not come back",
                    c->identity->join_timeout);
}

void lk__ps_registry_tick(lk_ps_coordinator *c, double seconds)
{
    for (int s = 0; s < c->identity->servers; s++)
        ps_registry_watch(c, s, seconds);
}
