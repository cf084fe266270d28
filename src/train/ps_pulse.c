#include "train/ps_pulse.h"

#include "base/mem.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { INTERVAL = 200 }; /* milliseconds between two beats */

struct ps_pulse_thread {
    const ps_place *place;
    ps_beat beat;
    lk_peer *peer;
    pthread_t thread;
    bool started;
    atomic_bool stop, lost;
    atomic_int state, generation;
    pthread_mutex_t mutex;
    char reason[LK_MESSAGE_BYTES]; /* of PS_FAILED, under the mutex */
};

static void hear(ps_pulse_thread *p, const lk_mail *mail)
{
    ps_pulse said;
    if (lk__wire_body(mail, PS_PULSE, "pulse", &said, sizeof said, 1, 1) != LK_OK) {
        lk_error_clear();
        return;
    }
    pthread_mutex_lock(&p->mutex);
    lk__wire_text(mail, 0, p->reason, sizeof p->reason);
    pthread_mutex_unlock(&p->mutex);
    atomic_store(&p->generation, said.generation);
    atomic_store(&p->state, said.state);
}

/* Whether an answer came within the interval. All that is under way is read: an old answer is one too. */
static bool beat(ps_pulse_thread *p)
{
    lk_wire_first first;
    lk_frame frame = lk__wire_first(&first, PS_BEAT, 0, &p->beat, sizeof p->beat);
    bool heard = false;
    if (lk__peer_send(p->peer, &frame, 1) != LK_OK)
        lk_error_clear();
    for (int left = INTERVAL; left > 0 && !atomic_load(&p->stop); left -= heard ? 20 : 50) {
        lk_mail *mail = NULL;
        if (lk__peer_receive(p->peer, heard ? 20 : 50, &mail) != LK_OK)
            lk_error_clear();
        if (!mail)
            continue;
        hear(p, mail);
        lk__mail_release(mail);
        heard = true;
    }
    return heard;
}

/* Beats without an answer are counted, not the time: a process that was stopped for a while has not waited. */
static void *run(void *argument)
{
    ps_pulse_thread *p = argument;
    int silent = 0, most = (int)(p->place->timeout * 1000 / INTERVAL) + 1;
    while (!atomic_load(&p->stop)) {
        silent = beat(p) ? 0 : silent + 1;
        atomic_store(&p->lost, silent >= most);
    }
    return NULL;
}

lk_status lk__ps_pulse_start(lk_post *post, const ps_place *place, const ps_beat *own, ps_pulse_thread **pulse)
{
    ps_pulse_thread *p = lk__calloc(1, sizeof *p);
    *pulse = p;
    if (!p)
        return LK_ERR_MEMORY;
    p->place = place;
    p->beat = *own;
    atomic_init(&p->stop, false);
    atomic_init(&p->lost, false);
    atomic_init(&p->state, PS_RUNNING);
    atomic_init(&p->generation, 0);
    pthread_mutex_init(&p->mutex, NULL);
    LK_TRY(lk__peer_open(post, &place->chief, place->chief_key, &p->peer));
    p->started = pthread_create(&p->thread, NULL, run, p) == 0;
    if (!p->started)
        LK_FAIL(LK_ERR_MEMORY, "parameter-server: no thread to tell the chief that this process lives");
    return LK_OK;
}

void lk__ps_pulse_stop(ps_pulse_thread *pulse)
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

ps_state lk__ps_pulse_state(const ps_pulse_thread *pulse)
{
    return (ps_state)atomic_load(&pulse->state);
}

bool lk__ps_pulse_is_lost(const ps_pulse_thread *pulse)
{
    return atomic_load(&pulse->lost);
}

int lk__ps_pulse_generation(const ps_pulse_thread *pulse)
{
    return atomic_load(&pulse->generation);
}

lk_status lk__ps_pulse_check(ps_pulse_thread *pulse)
{
    if (lk__ps_pulse_state(pulse) == PS_FAILED) {
        char reason[LK_MESSAGE_BYTES];
        pthread_mutex_lock(&pulse->mutex);
        memcpy(reason, pulse->reason, sizeof reason);
        pthread_mutex_unlock(&pulse->mutex);
        LK_FAIL(LK_ERR_BACKEND, "the chief has ended training: %s", reason);
    }
    /* One that has said how training ended owes no more answers: it may have gone while this process was at work. */
    if (lk__ps_pulse_state(pulse) == PS_RUNNING && lk__ps_pulse_is_lost(pulse))
        LK_FAIL(LK_ERR_BACKEND, "the chief at %s has not answered for %g s", pulse->place->chief_text,
                pulse->place->timeout);
    return LK_OK;
}
