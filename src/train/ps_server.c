/* A parameter server's life: it listens, joins the chief, is set up or goes on from its snapshot, and answers pulls and
 * pushes until the chief says that training has ended. */
#include "lockstep/parameter_server.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/topology.h"
#include "lockstep/record.h"
#include "train/ps_chief_call.h"
#include "train/ps_pulse.h"
#include "train/ps_snapshot.h"
#include "train/strategy_options.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct lk_parameter_server {
    lk_train_config config;
    ps_place place;
    lk_post *post;
    lk_service *service;
    ps_store *store;
    ps_pulse_thread *pulse;
    char snapshot[PATH_MAX]; /* "": none is kept */
    int64_t kept;            /* version of the last snapshot */
    int damaged;             /* messages that were not understood */
    atomic_bool interrupted;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static lk_status find_snapshot(lk_parameter_server *server)
{
    const char *folder = server->config.snapshot_dir;
    if (!folder)
        return LK_OK;
    LK_TRY(lk_make_directory(folder));
    if (snprintf(server->snapshot, sizeof server->snapshot, "%s/server-%d.snapshot", folder, server->place.index) >=
        (int)sizeof server->snapshot)
        LK_FAIL(LK_ERR_ARGUMENT, "--snapshot-dir: the path is too long: %.60s…", folder);
    return lk__ps_snapshot_read(server->snapshot, &server->store);
}

static lk_status build(lk_parameter_server *server)
{
    const lk_train_config *config = &server->config;
    LK_TRY(lk__check_strategy_options(config));
    if (!lk__ps_is_asked_for(config))
        LK_FAIL(LK_ERR_ARGUMENT, "--role ps: is for --strategy parameter-server");
    LK_TRY(lk__ps_place_find(config, &server->place));
    /* Workers on this machine begin with the first core. */
    lk__topology_begin_at(lk__topology_cores() - 1 - server->place.index % lk__topology_cores());
    LK_TRY(lk__post_open(server->place.has_keys ? &server->place.keys : NULL, &server->post));
    LK_TRY(lk__service_open(server->post, &server->place.own, &server->service));
    server->place.own.port = lk__service_port(server->service);
    lk__address_print(&server->place.own, server->place.own_text);
    return find_snapshot(server);
}

lk_parameter_server *lk_parameter_server_new(const lk_train_config *config)
{
    lk__heartbeat_begin();
    lk_parameter_server *server = lk__calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->config = *config;
    atomic_init(&server->interrupted, false);
    if (build(server) == LK_OK)
        return server;
    lk_parameter_server_release(server);
    return NULL;
}

void lk_parameter_server_release(lk_parameter_server *server)
{
    if (!server)
        return;
    lk__ps_pulse_stop(server->pulse);
    lk__ps_store_release(server->store);
    lk__service_release(server->service);
    lk__post_release(server->post);
    lk__ps_place_free(&server->place);
    lk__free(server);
}

void lk_parameter_server_interrupt(lk_parameter_server *server)
{
    atomic_store(&server->interrupted, true);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* A table of a message, which may begin anywhere; to be freed. */
static lk_status copy_table(const lk_mail *mail, int frame, size_t bytes, void **table)
{
    const void *data;
    LK_TRY(lk__wire_frame(mail, frame, "setup", bytes, &data));
    *table = lk__calloc(bytes + 1, 1);
    if (!*table)
        return LK_ERR_MEMORY;
    memcpy(*table, data, bytes);
    return LK_OK;
}

static lk_status make_store(lk_parameter_server *server, const lk_mail *mail, const ps_setup *setup)
{
    void *parts = NULL, *layers = NULL;
    lk_status status = copy_table(mail, 0, (size_t)setup->parts * sizeof(ps_part), &parts);
    if (status == LK_OK)
        status = copy_table(mail, 1, (size_t)setup->layers * sizeof(ps_layer), &layers);
    if (status == LK_OK)
        status = lk__ps_store_new(setup, parts, layers, &server->store);
    lk__free(parts);
    lk__free(layers);
    return status;
}

static size_t state_bytes(const ps_store *store)
{
    return (size_t)lk__ps_store_slots(store) * (size_t)store->setup.elements * sizeof(float);
}

/* A new store as the setup says; its variables come with it. */
static lk_status set_up(lk_parameter_server *server, const lk_mail *mail, const ps_setup *setup)
{
    const void *flat, *running, *state;
    LK_TRY(lk__ps_setup_check(setup, NULL, NULL));
    lk__ps_store_release(server->store);
    server->store = NULL;
    LK_TRY(make_store(server, mail, setup));
    LK_TRY(lk__wire_frame(mail, 2, "setup", (size_t)setup->elements * sizeof(float), &flat));
    LK_TRY(lk__wire_frame(mail, 3, "setup", (size_t)setup->statistics * sizeof(float), &running));
    LK_TRY(lk__ps_store_write(server->store, flat, running));
    if (setup->updates == 0)
        return LK_OK;
    LK_TRY(lk__wire_frame(mail, 4, "setup", state_bytes(server->store), &state));
    return lk__ps_store_write_state(server->store, state, setup->updates);
}

static lk_status take_setup(lk_parameter_server *server, const lk_mail *mail)
{
    ps_setup setup;
    LK_TRY(lk__wire_body(mail, PS_SETUP, "setup", &setup, sizeof setup, 5, 5));
    if (setup.restores && server->store)
        server->store->setup.incarnation = setup.incarnation;
    else
        LK_TRY(set_up(server, mail, &setup));
    server->kept = server->store->version;
    lk__log(LK_LOG_INFO, "parameter server %d at %s: %lld elements in %d parts%s", server->place.index,
            server->place.own_text, (long long)server->store->setup.elements, server->store->setup.parts,
            setup.restores ? ", as its snapshot has them" : "");
    /* One that dies before its first snapshot would have nothing to go on from. */
    return *server->snapshot && !setup.restores ? lk__ps_snapshot_write(server->store, server->snapshot) : LK_OK;
}

static bool is_interrupted(void *user)
{
    return atomic_load(&((lk_parameter_server *)user)->interrupted);
}

static lk_status join(lk_parameter_server *server)
{
    ps_join join = {.role = PS_SERVER, .index = server->place.index, .nonce = lk__ps_nonce()};
    if (server->store) {
        join.has_snapshot = 1;
        join.run = server->store->setup.run;
        join.version = server->store->version;
    }
    snprintf(join.address, sizeof join.address, "%s", server->place.own_text);
    gethostname(join.host, sizeof join.host - 1);
    lk_mail *mail;
    LK_TRY(lk__ps_join(server->post, &server->place, PS_JOIN, &join, NULL, 0, is_interrupted, server, &mail));
    lk_status status = take_setup(server, mail);
    lk__mail_release(mail);
    if (status != LK_OK)
        return status;
    const ps_setup *setup = &server->store->setup;
    ps_beat beat = {.role = PS_SERVER, .id = server->place.index, .incarnation = setup->incarnation, .run = setup->run};
    return lk__ps_pulse_start(server->post, &server->place, &beat, &server->pulse);
}

/* --- serving ------------------------------------------------------------------------------------------------------ */

static lk_status check_run(const lk_parameter_server *server, uint64_t run)
{
    if (run != server->store->setup.run)
        LK_FAIL(LK_ERR_FORMAT, "message: of another training; this server belongs to run %016llx",
                (unsigned long long)server->store->setup.run);
    return LK_OK;
}

/* Room for it is made when the chief asks for the first time. */
static lk_status read_state(ps_store *store)
{
    if (!store->state)
        store->state = lk__calloc(state_bytes(store) + 1, 1);
    return store->state ? lk__ps_store_read_state(store, store->state) : LK_ERR_MEMORY;
}

static lk_status answer_pull(lk_parameter_server *server, const lk_mail *mail, uint64_t number)
{
    ps_pull pull;
    lk_wire_first first;
    ps_store *store = server->store;
    LK_TRY(lk__wire_body(mail, PS_PULL, "pull", &pull, sizeof pull, 0, 0));
    LK_TRY(check_run(server, pull.run));
    ps_variables variables = {.incarnation = store->setup.incarnation, .version = store->version};
    if (!pull.is_empty)
        LK_TRY(lk__ps_store_read(store));
    if (pull.is_timed)
        LK_TRY(lk__ps_store_time(store, &variables.timed, &variables.seconds));
    if (pull.with_state)
        LK_TRY(read_state(store));
    size_t elements = pull.is_empty ? 0 : (size_t)store->setup.elements,
           statistics = pull.is_empty ? 0 : (size_t)store->setup.statistics;
    lk_frame frames[] = {lk__wire_first(&first, PS_VARIABLES, number, &variables, sizeof variables),
                         {store->reply, elements * sizeof(float)},
                         {store->reply + store->setup.elements, statistics * sizeof(float)},
                         {store->state, pull.with_state ? state_bytes(store) : 0}};
    return lk__service_reply(server->service, mail, frames, 4);
}

static lk_status keep_snapshot(lk_parameter_server *server)
{
    enum { EVERY = 100 };
    int64_t every = server->config.snapshot_every > 0 ? server->config.snapshot_every : EVERY;
    if (!*server->snapshot || server->store->version - server->kept < every)
        return LK_OK;
    server->kept = server->store->version;
    return lk__ps_snapshot_write(server->store, server->snapshot);
}

/* A snapshot is taken before the push is acknowledged: what is in none is not said to be safe, only applied. */
static lk_status answer_push(lk_parameter_server *server, const lk_mail *mail, uint64_t number)
{
    ps_push push;
    ps_pushed pushed;
    lk_wire_first first;
    const void *gradients = NULL, *sums = NULL;
    const ps_setup *setup = &server->store->setup;
    LK_TRY(lk__wire_body(mail, PS_PUSH, "push", &push, sizeof push, 2, 2));
    LK_TRY(check_run(server, push.run));
    if (mail->frames[1].bytes > 0) {
        LK_TRY(lk__wire_frame(mail, 0, "push", (size_t)setup->elements * sizeof(float), &gradients));
        LK_TRY(lk__wire_frame(mail, 1, "push", (size_t)setup->statistics * sizeof(double), &sums));
    }
    LK_TRY(lk__ps_store_push(server->store, &push, gradients, sums, &pushed));
    LK_TRY(lk__ps_store_begin_timing(server->store));
    LK_TRY(keep_snapshot(server));
    lk_frame frame = lk__wire_first(&first, PS_PUSHED, number, &pushed, sizeof pushed);
    return lk__service_reply(server->service, mail, &frame, 1);
}

/* What one sender does wrong is told to that sender, and does not end the others' training. */
static lk_status refuse(lk_parameter_server *server, const lk_mail *mail, uint64_t number)
{
    enum { LOUD = 10 };
    char reason[LK_MESSAGE_BYTES];
    lk_wire_first first;
    ps_empty nothing = {.run = 0};
    snprintf(reason, sizeof reason, "%s", lk_error_message());
    lk_error_clear();
    if (server->damaged++ < LOUD)
        lk__log(LK_LOG_WARNING, "parameter server %d refuses a message: %s", server->place.index, reason);
    lk_frame frames[] = {lk__wire_first(&first, PS_REFUSED, number, &nothing, sizeof nothing),
                         {reason, strlen(reason)}};
    return lk__service_reply(server->service, mail, frames, 2);
}

static lk_status answer(lk_parameter_server *server, const lk_mail *mail)
{
    lk_wire_header header = {.number = 0};
    lk_status status = lk__wire_header(mail, &header);
    if (status == LK_OK && header.kind == PS_PULL)
        status = answer_pull(server, mail, header.number);
    else if (status == LK_OK && header.kind == PS_PUSH)
        status = answer_push(server, mail, header.number);
    else if (status == LK_OK)
        status = lk__fail(LK_ERR_FORMAT, "message: a server has no answer to kind %d", header.kind);
    return status == LK_ERR_FORMAT ? refuse(server, mail, header.number) : status;
}

static lk_status serve(lk_parameter_server *server)
{
    enum { PATIENCE = 50 };
    while (lk__ps_pulse_state(server->pulse) == PS_RUNNING) {
        lk_mail *mail;
        LK_TRY(lk__ps_pulse_check(server->pulse));
        if (atomic_load(&server->interrupted))
            LK_FAIL(LK_ERR_INTERRUPTED, "parameter server %d: interrupted", server->place.index);
        lk__still(LK_DOING_OTHERS, "wait for workers");
        LK_TRY(lk__service_receive(server->service, PATIENCE, &mail));
        if (mail)
            lk__now(LK_DOING_WORK, "answer a worker");
        lk_status status = mail ? answer(server, mail) : LK_OK;
        lk__mail_release(mail);
        LK_TRY(status);
    }
    return lk__ps_pulse_check(server->pulse);
}

lk_status lk_parameter_server_run(lk_parameter_server *server)
{
    LK_TRY(join(server));
    lk_status status = serve(server);
    /* Of a training that has ended nothing is to be gone on with. */
    if (status == LK_OK && *server->snapshot)
        unlink(server->snapshot);
    return status;
}
