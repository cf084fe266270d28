#include "train/parameter_server/ps_pulse.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { INTERVAL = 200 }; /* milliseconds between two beats */

struct lk_ps_pulse_thread {
    const lk_ps_identity *identity;
    lk_ps_beat beat;
    lk_peer *peer;
    pthread_t thread;
    bool started;
    atomic_bool stop, lost;
    atomic_int state, generation;
    pthread_mutex_t mutex;
    char reason[LK_MESSAGE_BYTES]; /* the reason of LK_PS_FAILED; guarded by the mutex */
};

static void ps_pulse_take_reply(lk_ps_pulse_thread *p, const lk_mail *mail)
{
    lk_ps_pulse said;
    if (lk__wire_body(mail, LK_PS_PULSE, "pulse", &said, sizeof said, 1, 1) != LK_OK) {
        lk_error_clear();
        return;
    }
    pthread_mutex_lock(&p->mutex);
    lk__wire_text(mail, 0, p->reason, sizeof p->reason);
    pthread_mutex_unlock(&p->mutex);
    atomic_store(&p->generation, said.generation);
    atomic_store(&p->state, said.state);
}

/* Sends a heartbeat; returns whether an answer, to this or an earlier one, came within the interval. */
static bool ps_pulse_send_beat(lk_ps_pulse_thread *p)
{
    lk_wire_first first;
    lk_frame frame = lk__wire_first(&first, LK_PS_BEAT, 0, &p->beat, sizeof p->beat);
    bool heard = false;
    if (lk__peer_send(p->peer, &frame, 1) != LK_OK)
        lk_error_clear();
    for (int left = INTERVAL; left > 0 && !atomic_load(&p->stop); left -= heard ? 20 : 50) {
        lk_mail *mail = NULL;
        if (lk__peer_receive(p->peer, heard ? 20 : 50, &mail) != LK_OK)
            lk_error_clear();
        if (!mail)
            continue;
        ps_pulse_take_reply(p, mail);
        lk__mail_release(mail);
        heard = true;
    }
    return heard;
}

/* Counts heartbeats without an answer, not time: a process that was stopped for a while has not waited. */
static void *ps_pulse_run(void *argument)
{
    lk_ps_pulse_thread *p = argument;
    int silent = 0, most = (int)(p->identity->timeout * 1000 / INTERVAL) + 1;
    while (!atomic_load(&p->stop)) {
        silent = ps_pulse_send_beat(p) ? 0 : silent + 1;
        atomic_store(&p->lost, silent >= most);
    }
    return NULL;
}

lk_status lk__ps_pulse_start(lk_post *post, const lk_ps_identity *identity, const lk_ps_beat *beat,
                             lk_ps_pulse_thread **pulse)
{
    lk_ps_pulse_thread *p = lk__calloc(1, sizeof *p);
    *pulse = p;
    if (!p)
        return LK_ERR_MEMORY;
    p->identity = identity;
    p->beat = *beat;
    atomic_init(&p->stop, false);
    atomic_init(&p->lost, false);
    atomic_init(&p->state, LK_PS_RUNNING);
    atomic_init(&p->generation, 0);
    pthread_mutex_init(&p->mutex, NULL);
    LK_TRY(lk__peer_open(post, &identity->chief, identity->chief_key, &p->peer));
    int error = lk__thread_start(&p->thread, ps_pulse_run, p);
    p->started = error == 0;
    if (error)
        LK_FAIL(LK_ERR_MEMORY, "parameter-server: no thread to tell the chief that this process lives: %s",
                strerror(error));
    return LK_OK;
}

void lk__ps_pulse_stop(lk_ps_pulse_thread *pulse)
{
    if (!pulse)
        return;
    atomic_store(&pulse->stop, true);
    if (pulse->started)
        pthread_join(pulse->thread, NULL);
    lk__peer_release(pulse->peer);
    pthread_mutex_destroy(&pulse->mutex);
    lk__free(pulse);
}

lk_ps_state lk__ps_pulse_state(const lk_ps_pulse_thread *pulse)
{
    return (lk_ps_state)atomic_load(&pulse->state);
}

bool lk__ps_pulse_is_lost(const lk_ps_pulse_thread *pulse)
{
    return atomic_load(&pulse->lost);
}

int lk__ps_pulse_generation(const lk_ps_pulse_thread *pulse)
{
    return atomic_load(&pulse->generation);
}

lk_status lk__ps_pulse_check(lk_ps_pulse_thread *pulse)
{
    if (lk__ps_pulse_state(pulse) == LK_PS_FAILED) {
        char reason[LK_MESSAGE_BYTES];
        pthread_mutex_lock(&pulse->mutex);
        memcpy(reason, pulse->reason, sizeof reason);
        pthread_mutex_unlock(&pulse->mutex);
        LK_FAIL(LK_ERR_BACKEND, "the chief has ended training: %s", reason);
    }
    /* A chief that has said how training ended owes no more answers: it may have exited while this process was busy. */
    if (lk__ps_pulse_state(pulse) == LK_PS_RUNNING && lk__ps_pulse_is_lost(pulse))
        LK_FAIL(LK_ERR_BACKEND, "the chief at %s has not answered for %g s", pulse->identity->chief_text,
                pulse->identity->timeout);
    return LK_OK;
}
