#include "train/ps_membership.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "train/ps_agreement.h"
#include "train/ps_chief_call.h"

#include <string.h>
#include <unistd.h>

static bool is_interrupted(void *user)
{
    return atomic_load(&((ps_membership *)user)->trainer->interrupted);
}

/* --- asking the chief --------------------------------------------------------------------------------------------- */

lk_status lk__ps_membership_check(ps_membership *m)
{
    LK_TRY(lk__ps_pulse_check(m->pulse));
    m->has_ended = lk__ps_pulse_state(m->pulse) == PS_ENDED;
    if (m->has_ended)
        LK_FAIL(LK_ERR_STATE, "the chief at %s has ended training", m->place.chief_text);
    if (is_interrupted(m))
        LK_FAIL(LK_ERR_INTERRUPTED, "worker %lld: interrupted", (long long)m->welcome.worker);
    return LK_OK;
}

/* Answers to earlier questions are dropped. */
static lk_status hear(ps_membership *m, uint64_t number, lk_mail **mail)
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

/* *mail: the answer, to be released, with `frames` behind its structure. The question is repeated now and then, for a
 * connection may have been lost. */
static lk_status ask(ps_membership *m, const ps_question *q, void *answer, size_t bytes, int frames, lk_mail **mail)
{
    enum { LOOKS = 100 };
    lk_wire_first first;
    uint64_t number = ++m->number;
    lk_frame frame = lk__wire_first(&first, q->kind, number, q->body, q->bytes);
    *mail = NULL;
    for (int looks = 0; !*mail; looks++) {
        lk__still(LK_DOING_OTHERS, "wait for the chief");
        if (looks % LOOKS == 0)
            LK_TRY(lk__peer_send(m->peer, &frame, 1));
        LK_TRY(hear(m, number, mail));
        if (!*mail)
            LK_TRY(lk__ps_membership_check(m));
    }
    lk__now(LK_DOING_WORK, "training");
    lk_status status = lk__wire_body(*mail, q->reply, q->what, answer, bytes, frames, frames);
    if (status != LK_OK) {
        lk__mail_release(*mail);
        *mail = NULL;
    }
    return status;
}

lk_status lk__ps_membership_ask(ps_membership *m, const ps_question *question, void *answer, size_t bytes)
{
    lk_mail *mail;
    LK_TRY(ask(m, question, answer, bytes, 0, &mail));
    lk__mail_release(mail);
    return LK_OK;
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

static int generation(void *user)
{
    return lk__ps_pulse_generation(((ps_membership *)user)->pulse);
}

static lk_status look_up(void *user, ps_server_place *places, int *of)
{
    ps_membership *m = user;
    ps_empty table = {.run = m->welcome.run};
    ps_servers servers;
    const void *data;
    lk_mail *mail;
    ps_question q = {PS_TABLE, PS_SERVERS, "table of servers", &table, sizeof table};
    size_t bytes = (size_t)m->welcome.servers * sizeof *places;
    LK_TRY(ask(m, &q, &servers, sizeof servers, 1, &mail));
    lk_status status = lk__wire_frame(mail, 0, q.what, bytes, &data);
    if (status == LK_OK) {
        memcpy(places, data, bytes);
        *of = servers.generation;
    }
    lk__mail_release(mail);
    for (int s = 0; s < m->welcome.servers && status == LK_OK; s++)
        places[s].address[sizeof places[s].address - 1] = places[s].key[sizeof places[s].key - 1] = '\0';
    return status;
}

static lk_status check(void *user)
{
    return lk__ps_membership_check(user);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static lk_status open_post(ps_membership *m)
{
    LK_TRY(lk__ps_place_find(&m->trainer->config, &m->place));
    return lk__post_open(m->place.has_keys ? &m->place.keys : NULL, &m->post);
}

static lk_status ask_for_seat(ps_membership *m, int devices, int *before)
{
    ps_join body = {.role = PS_WORKER, .devices = devices, .nonce = m->trainer->nonce};
    ps_seated seated;
    lk_mail *mail;
    gethostname(body.host, sizeof body.host - 1);
    LK_TRY(lk__ps_join(m->post, &m->place, PS_SEAT, &body, NULL, 0, is_interrupted, m, &mail));
    lk_status status = lk__wire_body(mail, PS_SEATED, "seat", &seated, sizeof seated, 0, 0);
    lk__mail_release(mail);
    *before = status == LK_OK && seated.first_core > 0 ? seated.first_core : 0;
    return status;
}

lk_status lk__ps_take_seat(lk_trainer *trainer, int devices, int *before)
{
    ps_membership m = {.trainer = trainer};
    trainer->nonce = lk__ps_nonce();
    lk_status status = open_post(&m);
    if (status == LK_OK)
        status = ask_for_seat(&m, devices, before);
    lk__ps_membership_close(&m);
    return status;
}

static lk_status join(ps_membership *m)
{
    ps_join body = {.role = PS_WORKER, .devices = m->trainer->n_devices, .nonce = m->trainer->nonce};
    void *fields;
    size_t bytes;
    lk_mail *mail = NULL;
    gethostname(body.host, sizeof body.host - 1);
    LK_TRY(lk__agreement_list(m->trainer, &fields, &bytes));
    lk_status status = lk__ps_join(m->post, &m->place, PS_JOIN, &body, fields, bytes, is_interrupted, m, &mail);
    lk__free(fields);
    LK_TRY(status);
    status = lk__wire_body(mail, PS_WELCOME, "welcome", &m->welcome, sizeof m->welcome, 0, 0);
    lk__mail_release(mail);
    LK_TRY(status);
    lk__log(LK_LOG_INFO, "worker %lld of the chief at %s, %d parameter server%s", (long long)m->welcome.worker,
            m->place.chief_text, m->welcome.servers, m->welcome.servers == 1 ? "" : "s");
    ps_beat beat = {.role = PS_WORKER, .id = m->welcome.worker, .run = m->welcome.run};
    return lk__ps_pulse_start(m->post, &m->place, &beat, &m->pulse);
}

lk_status lk__ps_membership_open(lk_trainer *trainer, ps_membership *m)
{
    *m = (ps_membership){.trainer = trainer};
    m->directory = (ps_directory){.user = m, .generation = generation, .look_up = look_up, .check = check};
    LK_TRY(open_post(m));
    LK_TRY(lk__peer_open(m->post, &m->place.chief, m->place.chief_key, &m->peer));
    return join(m);
}

lk_status lk__ps_membership_renew(ps_membership *m)
{
    uint64_t run = m->welcome.run;
    lk__ps_pulse_stop(m->pulse);
    m->pulse = NULL;
    LK_TRY(join(m));
    if (m->welcome.run != run)
        LK_FAIL(LK_ERR_BACKEND, "the chief at %s has begun another training", m->place.chief_text);
    return LK_OK;
}

/* In good order, so that nobody waits for this worker. */
static void leave(ps_membership *m)
{
    ps_ask body = {.worker = m->welcome.worker, .run = m->welcome.run};
    lk_wire_first first;
    lk_frame frame = lk__wire_first(&first, PS_LEAVE, ++m->number, &body, sizeof body);
    lk_mail *mail = NULL;
    if (lk__peer_send(m->peer, &frame, 1) == LK_OK && lk__peer_receive(m->peer, 500, &mail) == LK_OK)
        lk__mail_release(mail);
}

void lk__ps_membership_close(ps_membership *m)
{
    if (m->pulse && !lk__ps_pulse_is_lost(m->pulse))
        leave(m);
    lk__ps_pulse_stop(m->pulse);
    lk__peer_release(m->peer);
    lk__post_release(m->post);
    lk__ps_place_free(&m->place);
}
