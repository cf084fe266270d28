/* A parameter server: it listens, joins the chief, is set up or resumes from its snapshot, and answers pulls and pushes
 * until the chief says that training has ended. */
#include "lockstep/parameter_server.h"

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/topology.h"
#include "io/durable.h"
#include "train/parameter_server/ps_apply.h"
#include "train/parameter_server/ps_chief_call.h"
#include "train/parameter_server/ps_pulse.h"
#include "train/parameter_server/ps_snapshot.h"
#include "train/plan/strategy_options.h"
#include "lockstep/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct lk_parameter_server {
    lk_train_config config;
    lk_ps_identity identity;
    lk_post *post;
    lk_service *service;
    lk_ps_store *store;
    lk_ps_pulse_thread *pulse;
    char snapshot[PATH_MAX]; /* path; "": no snapshots */
    char snapshot_lock[PATH_MAX];
    int lock;      /* an open file that this server alone has locked; -1: none */
    int64_t saved; /* version of the last snapshot */
    int damaged;   /* number of messages that could not be read */
    atomic_bool interrupted;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

/* The system ends the lock with the process. A server that was killed may be busy with its end while launch starts it
 * again, so the lock is waited for. Succeeds without a lock if the file system has no locks. */
static lk_status ps_server_lock_snapshot(lk_parameter_server *server)
{
    static const struct timespec look = {.tv_nsec = 10 * 1000000L};
    double end = lk__seconds() + 5;
    server->lock = open(server->snapshot_lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (server->lock >= 0 && flock(server->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (lk__seconds() >= end)
            LK_FAIL(LK_ERR_STATE, "--snapshot-dir: a server of another training writes %s", server->snapshot);
        lk__activity_set(LK_ACTIVITY_WORK, "wait for the snapshot's lock");
        nanosleep(&look, NULL);
    }
    return LK_OK;
}

static lk_status ps_server_find_snapshot(lk_parameter_server *server)
{
    const char *folder = server->config.servers.snapshot_dir;
    if (!folder)
        return LK_OK;
    LK_TRY(lk_make_directory(folder));
    if (snprintf(server->snapshot, sizeof server->snapshot, "%s/server-%d.snapshot", folder, server->identity.index) >=
            (int)sizeof server->snapshot ||
        snprintf(server->snapshot_lock, sizeof server->snapshot_lock, "%s.lock", server->snapshot) >=
            (int)sizeof server->snapshot_lock)
        LK_FAIL(LK_ERR_ARGUMENT, "--snapshot-dir: the path is too long: %.60s…", folder);
    LK_TRY(ps_server_lock_snapshot(server));
    return lk__ps_snapshot_read(server->snapshot, &server->store);
}

static lk_status ps_server_build(lk_parameter_server *server)
{
    const lk_train_config *config = &server->config;
    LK_TRY(lk__check_strategy_options(config));
    if (!lk__ps_is_asked_for(config))
        LK_FAIL(LK_ERR_ARGUMENT, "--role ps: is for --strategy parameter-server");
    LK_TRY(lk__ps_identity_find(config, &server->identity));
    /* Takes cores from the end, because workers on this machine begin with the first core. */
    lk__topology_begin_at(lk__topology_cores() - 1 - server->identity.index % lk__topology_cores());
    LK_TRY(lk__ps_open_post(&server->identity, &server->post));
    LK_TRY(lk__service_open(server->post, &server->identity.own, &server->service));
    server->identity.own.port = lk__service_port(server->service);
    lk__address_print(&server->identity.own, server->identity.own_text);
    return ps_server_find_snapshot(server);
}

lk_parameter_server *lk_parameter_server_new(const lk_train_config *config)
{
    lk__heartbeat_begin();
    lk_parameter_server *server = lk__calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->config = *config;
    server->lock = -1;
    atomic_init(&server->interrupted, false);
    if (ps_server_build(server) == LK_OK)
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
    lk__ps_identity_free(&server->identity);
    if (server->lock >= 0)
        close(server->lock);
    lk__free(server);
}

void lk_parameter_server_interrupt(lk_parameter_server *server)
{
    atomic_store(&server->interrupted, true);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* Copies a table from a message, where it may be unaligned; the caller frees it. */
static lk_status ps_server_copy_table(const lk_mail *mail, int frame, size_t bytes, void **table)
{
    const void *data;
    LK_TRY(lk__wire_frame(mail, frame, "setup", bytes, &data));
    *table = lk__calloc(bytes + 1, 1);
    if (!*table)
        return LK_ERR_MEMORY;
    memcpy(*table, data, bytes);
    return LK_OK;
}

static lk_status ps_server_make_store(lk_parameter_server *server, const lk_mail *mail, const lk_ps_setup *setup)
{
    void *parts = NULL, *layers = NULL;
    lk_status status = ps_server_copy_table(mail, 0, (size_t)setup->parts * sizeof(lk_ps_part), &parts);
    if (status == LK_OK)
        status = ps_server_copy_table(mail, 1, (size_t)setup->layers * sizeof(lk_ps_layer), &layers);
    if (status == LK_OK)
        status = lk__ps_store_new(setup, parts, layers, &server->store);
    lk__free(parts);
    lk__free(layers);
    return status;
}

static size_t ps_server_state_bytes(const lk_ps_store *store)
{
    return (size_t)lk__ps_store_slots(store) * (size_t)store->setup.elements * sizeof(float);
}

/* Makes a new store from the setup, which also brings its variables. */
static lk_status ps_server_set_up(lk_parameter_server *server, const lk_mail *mail, const lk_ps_setup *setup)
{
    const void *packed, *running, *state;
    LK_TRY(lk__ps_setup_check(setup, NULL, NULL));
    lk__ps_store_release(server->store);
    server->store = NULL;
    LK_TRY(lk__wire_frame(mail, 2, "setup", (size_t)setup->elements * sizeof(float), &packed));
    LK_TRY(lk__wire_frame(mail, 3, "setup", (size_t)setup->statistics * sizeof(float), &running));
    LK_TRY(ps_server_make_store(server, mail, setup));
    LK_TRY(lk__ps_store_write(server->store, packed, running));
    if (setup->updates == 0)
        return LK_OK;
    LK_TRY(lk__wire_frame(mail, 4, "setup", ps_server_state_bytes(server->store), &state));
    return lk__ps_store_write_state(server->store, state, setup->updates);
}

static lk_status ps_server_take_setup(lk_parameter_server *server, const lk_mail *mail)
{
    lk_ps_setup setup;
    LK_TRY(lk__wire_body(mail, LK_PS_SETUP, "setup", &setup, sizeof setup, 5, 5));
    if (setup.restores && server->store)
        server->store->setup.incarnation = setup.incarnation;
    else
        LK_TRY(ps_server_set_up(server, mail, &setup));
    server->saved = server->store->version;
    lk__log(LK_LOG_INFO, "parameter server %d at %s: %lld elements in %d parts%s", server->identity.index,
            server->identity.own_text, (long long)server->store->setup.elements, server->store->setup.parts,
            setup.restores ? ", as its snapshot has them" : "");
    /* Without this a server that died before its first snapshot would have nothing to resume from. */
    return *server->snapshot && !setup.restores ? lk__ps_snapshot_write(server->store, server->snapshot) : LK_OK;
}

static bool ps_server_is_interrupted(void *user)
{
    return atomic_load(&((lk_parameter_server *)user)->interrupted);
}

static lk_status ps_server_join(lk_parameter_server *server)
{
    lk_ps_join join = {.role = LK_PS_SERVER, .index = server->identity.index, .nonce = lk__wire_nonce()};
    if (server->store) {
        join.has_snapshot = 1;
        join.run = server->store->setup.run;
        join.version = server->store->version;
    }
    snprintf(join.address, sizeof join.address, "%s", server->identity.own_text);
    gethostname(join.host, sizeof join.host - 1);
    lk_mail *mail;
    LK_TRY(lk__ps_join(server->post, &server->identity, LK_PS_JOIN, &join, NULL, 0, ps_server_is_interrupted, server,
                       &mail));
    lk_status status = ps_server_take_setup(server, mail);
    lk__mail_release(mail);
    if (status != LK_OK)
        return status;
    const lk_ps_setup *setup = &server->store->setup;
    lk_ps_beat beat = {
        .role = LK_PS_SERVER, .id = server->identity.index, .incarnation = setup->incarnation, .run = setup->run};
    return lk__ps_pulse_start(server->post, &server->identity, &beat, &server->pulse);
}

/* --- serving ------------------------------------------------------------------------------------------------------ */

static lk_status ps_server_check_run(const lk_parameter_server *server, uint64_t run)
{
    if (run != server->store->setup.run)
        LK_FAIL(LK_ERR_FORMAT, "message: of another training; this server belongs to run %016llx",
                (unsigned long long)server->store->setup.run);
    return LK_OK;
}

static lk_status ps_server_answer_pull(lk_parameter_server *server, const lk_mail *mail, uint64_t number)
{
    lk_ps_pull pull;
    lk_wire_first first;
    lk_ps_store *store = server->store;
    LK_TRY(lk__wire_body(mail, LK_PS_PULL, "pull", &pull, sizeof pull, 0, 0));
    LK_TRY(ps_server_check_run(server, pull.run));
    lk_ps_variables variables = {.incarnation = store->setup.incarnation, .version = store->version};
    if (!pull.is_empty) {
        LK_TRY(lk__ps_store_make_reply(store, pull.batch));
        variables.version = store->replied;
    }
    if (pull.is_timed)
        LK_TRY(lk__ps_store_time(store, &variables.timed, &variables.seconds));
    if (pull.with_state && !store->state)
        store->state = lk__calloc(ps_server_state_bytes(store) + 1, 1);
    if (pull.with_state)
        LK_TRY(store->state ? lk__ps_store_read_state(store, store->state) : LK_ERR_MEMORY);
    size_t elements = pull.is_empty ? 0 : (size_t)store->setup.elements,
           statistics = pull.is_empty ? 0 : (size_t)store->setup.statistics;
    lk_frame frames[] = {lk__wire_first(&first, LK_PS_VARIABLES, number, &variables, sizeof variables),
                         {store->reply, elements * sizeof(float)},
                         {store->reply + store->setup.elements, statistics * sizeof(float)},
                         {store->state, pull.with_state ? ps_server_state_bytes(store) : 0}};
    return lk__service_reply(server->service, mail, frames, 4);
}

static lk_status ps_server_save_snapshot(lk_parameter_server *server)
{
    enum { EVERY = 100 };
    int64_t every = server->config.servers.snapshot_every > 0 ? server->config.servers.snapshot_every : EVERY;
    if (!*server->snapshot || server->store->version - server->saved < every)
        return LK_OK;
    server->saved = server->store->version;
    return lk__ps_snapshot_write(server->store, server->snapshot);
}

/* Writes a snapshot that is due before it acknowledges the push. An acknowledged push is not safe until it is in one.
 */
static lk_status ps_server_answer_push(lk_parameter_server *server, const lk_mail *mail, uint64_t number)
{
    lk_ps_push push;
    lk_ps_pushed pushed;
    lk_wire_first first;
    const void *gradients = NULL, *sums = NULL;
    const lk_ps_setup *setup = &server->store->setup;
    LK_TRY(lk__wire_body(mail, LK_PS_PUSH, "push", &push, sizeof push, 2, 2));
    LK_TRY(ps_server_check_run(server, push.run));
    if (mail->frames[1].bytes > 0) {
        LK_TRY(lk__wire_frame(mail, 0, "push", (size_t)setup->elements * sizeof(float), &gradients));
        LK_TRY(lk__wire_frame(mail, 1, "push", (size_t)setup->statistics * sizeof(double), &sums));
    }
    LK_TRY(lk__ps_store_push(server->store, &push, gradients, sums, &pushed));
    LK_TRY(lk__ps_store_begin_timing(server->store));
    LK_TRY(ps_server_save_snapshot(server));
    lk_frame frame = lk__wire_first(&first, LK_PS_PUSHED, number, &pushed, sizeof pushed);
    return lk__service_reply(server->service, mail, &frame, 1);
}

/* Tells a sender what was wrong with its message. This does not end the training of the others. */
static lk_status ps_server_refuse(lk_parameter_server *server, const lk_mail *mail, uint64_t number)
{
    enum { MOST_LOGGED = 10 };
    char reason[LK_MESSAGE_BYTES];
    lk_wire_first first;
    lk_ps_empty nothing = {.run = 0};
    snprintf(reason, sizeof reason, "%s", lk_error_message());
    lk_error_clear();
    if (server->damaged++ < MOST_LOGGED)
        lk__log(LK_LOG_WARNING, "parameter server %d refuses a message: %s", server->identity.index, reason);
    lk_frame frames[] = {lk__wire_first(&first, LK_PS_REFUSED, number, &nothing, sizeof nothing),
                         {reason, strlen(reason)}};
    return lk__service_reply(server->service, mail, frames, 2);
}

static lk_status ps_server_answer(lk_parameter_server *server, const lk_mail *mail)
{
    lk_wire_header header = {.number = 0};
    lk_status status = lk__wire_header(mail, &header);
    if (status == LK_OK && header.kind == LK_PS_PULL)
        status = ps_server_answer_pull(server, mail, header.number);
    else if (status == LK_OK && header.kind == LK_PS_PUSH)
        status = ps_server_answer_push(server, mail, header.number);
    else if (status == LK_OK)
        status = lk__fail(LK_ERR_FORMAT, "message: a server has no answer to kind %d", header.kind);
    return status == LK_ERR_FORMAT ? ps_server_refuse(server, mail, header.number) : status;
}

static lk_status ps_server_serve(lk_parameter_server *server)
{
    enum { PATIENCE = 50 }; /* milliseconds */
    while (lk__ps_pulse_state(server->pulse) == LK_PS_RUNNING) {
        lk_mail *mail;
        LK_TRY(lk__ps_pulse_check(server->pulse));
        if (atomic_load(&server->interrupted))
            LK_FAIL(LK_ERR_INTERRUPTED, "parameter server %d: interrupted", server->identity.index);
        lk__activity_remain(LK_ACTIVITY_WAIT_REMOTE, "wait for workers");
        LK_TRY(lk__service_receive(server->service, PATIENCE, &mail));
        if (mail)
            lk__activity_set(LK_ACTIVITY_WORK, "answer a worker");
        lk_status status = mail ? ps_server_answer(server, mail) : LK_OK;
        lk__mail_release(mail);
        LK_TRY(status);
    }
    return lk__ps_pulse_check(server->pulse);
}

lk_status lk_parameter_server_run(lk_parameter_server *server)
{
    lk_status status = ps_server_join(server);
    if (status == LK_ERR_STATE) { /* it came when training had ended */
        lk_error_clear();
        return LK_OK;
    }
    LK_TRY(status);
    status = ps_server_serve(server);
    char unfinished[PATH_MAX];
    /* A training that has ended is not resumed. A server that was killed while it wrote has left an unfinished file. */
    if (status == LK_OK && *server->snapshot) {
        if (lk__durable_temporary(server->snapshot, unfinished) == LK_OK)
            unlink(unfinished);
        unlink(server->snapshot);
        unlink(server->snapshot_lock);
    }
    return status;
}
