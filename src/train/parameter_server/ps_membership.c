#include "train/parameter_server/ps_membership.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "train/parameter_server/ps_chief_call.h"
#include "train/plan/agreement.h"

#include <string.h>
#include <unistd.h>

static bool ps_membership_is_interrupted(void *user)
{
    return atomic_load(&((lk_ps_membership *)user)->trainer->progress.interrupted);
}

/* --- asking the chief --------------------------------------------------------------------------------------------- */

lk_status lk__ps_membership_check(lk_ps_membership *m)
{
    LK_TRY(lk__ps_pulse_check(m->pulse));
    m->has_ended = lk__ps_pulse_state(m->pulse) == LK_PS_ENDED;
    if (m->has_ended)
        LK_FAIL(LK_ERR_STATE, "the chief at %s has ended training", m->identity.chief_text);
    if (ps_membership_is_interrupted(m))
        LK_FAIL(LK_ERR_INTERRUPTED, "worker %lld: interrupted", (long long)m->welcome.worker);
    return LK_OK;
}

/* Receives the answer to `number`; drops answers to earlier questions. */
static lk_status ps_membership_receive(lk_ps_membership *m, uint64_t number, lk_mail **mail)
{
    lk_wire_header header;
    LK_TRY(lk__peer_receive(m->peer, 50, mail));
    if (!*mail)
        return LK_OK;
    lk_status status = lk__wire_header(*mail, &header);
    if (status == LK_OK && header.number == number)
        return LK_OK;
    lk__mail_release(*mail);
    *mail = NULL;
    return status;
}

/* Asks the chief. *mail is the answer, for the caller to release, with `frames` frames after its structure. The
 * question is repeated from time to time, for a connection may have been lost. */
static lk_status ps_membership_ask(lk_ps_membership *m, const lk_ps_question *q, void *answer, size_t bytes, int frames,
                                   lk_mail **mail)
{
    enum { LOOKS = 100 };
    lk_wire_first first;
    uint64_t number = ++m->trainer->server.questions;
    lk_frame frame = lk__wire_first(&first, q->kind, number, q->body, q->bytes);
    *mail = NULL;
    for (int looks = 0; !*mail; looks++) {
        lk__activity_remain(LK_ACTIVITY_WAIT_REMOTE, "wait for the chief");
        if (looks % LOOKS == 0)
            LK_TRY(lk__peer_send(m->peer, &frame, 1));
        LK_TRY(ps_membership_receive(m, number, mail));
        if (!*mail)
            LK_TRY(lk__ps_membership_check(m));
    }
    lk__activity_set(LK_ACTIVITY_WORK, "training");
    lk_status status = lk__wire_body(*mail, q->reply, q->what, answer, bytes, frames, frames);
    if (status != LK_OK) {
        lk__mail_release(*mail);
        *mail = NULL;
    }
    return status;
}

lk_status lk__ps_membership_ask(lk_ps_membership *m, const lk_ps_question *question, void *answer, size_t bytes)
{
    lk_mail *mail;
    LK_TRY(ps_membership_ask(m, question, answer, bytes, 0, &mail));
    lk__mail_release(mail);
    return LK_OK;
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

static int ps_membership_generation(void *user)
{
    return lk__ps_pulse_generation(((lk_ps_membership *)user)->pulse);
}

static lk_status ps_membership_look_up(void *user, lk_ps_server_location *locations, int *generation)
{
    lk_ps_membership *m = user;
    lk_ps_empty table = {.run = m->welcome.run};
    lk_ps_servers servers;
    const void *data;
    lk_mail *mail;
    lk_ps_question q = {LK_PS_TABLE, LK_PS_SERVERS, "table of servers", &table, sizeof table};
    size_t bytes = (size_t)m->welcome.servers * sizeof *locations;
    LK_TRY(ps_membership_ask(m, &q, &servers, sizeof servers, 1, &mail));
    lk_status status = lk__wire_frame(mail, 0, q.what, bytes, &data);
    if (status == LK_OK) {
        memcpy(locations, data, bytes);
        *generation = servers.generation;
    }
    lk__mail_release(mail);
    for (int s = 0; s < m->welcome.servers && status == LK_OK; s++)
        locations[s].address[sizeof locations[s].address - 1] = locations[s].key[sizeof locations[s].key - 1] = '\0';
    return status;
}

static lk_status ps_membership_check(void *user)
{
    return lk__ps_membership_check(user);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static lk_status ps_membership_open_post(lk_ps_membership *m)
{
    LK_TRY(lk__ps_identity_find(&m->trainer->config, &m->identity));
    return lk__ps_open_post(&m->identity, &m->post);
}

static lk_status ps_membership_ask_for_seat(lk_ps_membership *m, int devices, int *first_core)
{
    lk_ps_join body = {.role = LK_PS_WORKER, .devices = devices, .nonce = m->trainer->server.nonce};
    lk_ps_seated seated;
    lk_mail *mail;
    gethostname(body.host, sizeof body.host - 1);
    LK_TRY(lk__ps_join(m->post, &m->identity, LK_PS_SEAT, &body, NULL, 0, ps_membership_is_interrupted, m, &mail));
    lk_status status = lk__wire_body(mail, LK_PS_SEATED, "seat", &seated, sizeof seated, 0, 0);
    lk__mail_release(mail);
    *first_core = status == LK_OK && seated.first_core > 0 ? seated.first_core : 0;
    return status;
}

lk_status lk__ps_take_seat(lk_trainer *trainer, int devices, int *first_core)
{
    lk_ps_membership m = {.trainer = trainer};
    trainer->server.nonce = lk__wire_nonce();
    lk_status status = ps_membership_open_post(&m);
    if (status == LK_OK)
        status = ps_membership_ask_for_seat(&m, devices, first_core);
    lk__ps_membership_close(&m);
    return status;
}

static lk_status ps_membership_join(lk_ps_membership *m)
{
    lk_ps_join body = {.role = LK_PS_WORKER, .devices = m->trainer->n_devices, .nonce = m->trainer->server.nonce};
    void *fields;
    size_t bytes;
    lk_mail *mail = NULL;
    gethostname(body.host, sizeof body.host - 1);
    LK_TRY(lk__agreement_list(m->trainer, &fields, &bytes));
    lk_status status =
        lk__ps_join(m->post, &m->identity, LK_PS_JOIN, &body, fields, bytes, ps_membership_is_interrupted, m, &mail);
    lk__free(fields);
    m->has_ended = status == LK_ERR_STATE;
    LK_TRY(status);
    status = lk__wire_body(mail, LK_PS_WELCOME, "welcome", &m->welcome, sizeof m->welcome, 0, 0);
    lk__mail_release(mail);
    LK_TRY(status);
    lk__log(LK_LOG_INFO, "worker %lld of the chief at %s, %d parameter server%s", (long long)m->welcome.worker,
            m->identity.chief_text, m->welcome.servers, m->welcome.servers == 1 ? "" : "s");
    lk_ps_beat beat = {.role = LK_PS_WORKER, .id = m->welcome.worker, .run = m->welcome.run};
    return lk__ps_pulse_start(m->post, &m->identity, &beat, &m->pulse);
}

lk_status lk__ps_membership_open(lk_trainer *trainer, lk_ps_membership *m)
{
    *m = (lk_ps_membership){.trainer = trainer};
    m->directory = (lk_ps_directory){.user = m,
                                     .generation = ps_membership_generation,
                                     .look_up = ps_membership_look_up,
                                     .check = ps_membership_check};
    LK_TRY(ps_membership_open_post(m));
    LK_TRY(lk__peer_open(m->post, &m->identity.chief, m->identity.chief_key, &m->peer));
    return ps_membership_join(m);
}

lk_status lk__ps_membership_renew(lk_ps_membership *m)
{
    uint64_t run = m->welcome.run;
    lk__ps_pulse_stop(m->pulse);
    m->pulse = NULL;
    LK_TRY(ps_membership_join(m));
    if (m->welcome.run != run)
        LK_FAIL(LK_ERR_BACKEND, "the chief at %s has begun another training", m->identity.chief_text);
    return LK_OK;
}

/* Tells the chief that this worker leaves, so that the chief does not wait for it. */
static void ps_membership_leave(lk_ps_membership *m)
{
    lk_ps_ask body = {.worker = m->welcome.worker, .run = m->welcome.run};
    lk_wire_first first;
    lk_frame frame = lk__wire_first(&first, LK_PS_LEAVE, ++m->trainer->server.questions, &body, sizeof body);
    lk_mail *mail = NULL;
    if (lk__peer_send(m->peer, &frame, 1) == LK_OK && lk__peer_receive(m->peer, 500, &mail) == LK_OK)
        lk__mail_release(mail);
}

void lk__ps_membership_close(lk_ps_membership *m)
{
    if (m->pulse && !lk__ps_pulse_is_lost(m->pulse))
        ps_membership_leave(m);
    lk__ps_pulse_stop(m->pulse);
    lk__peer_release(m->peer);
    lk__post_release(m->post);
    lk__ps_identity_free(&m->identity);
}
