#include "train/ps_chief_call.h"

#include "base/heartbeat.h"
#include "base/status.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

lk_status lk__ps_refused(const char *who, const lk_mail *mail)
{
    char reason[LK_MESSAGE_BYTES / 2];
    lk__wire_text(mail, 0, reason, sizeof reason);
    LK_FAIL(LK_ERR_ARGUMENT, "%s refuses: %s", who, reason);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

uint64_t lk__ps_nonce(void)
{
    uint64_t nonce;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        nonce = (uint64_t)getpid() << 32 ^ (uint64_t)(now() * 1e9);
    return nonce | 1;
}

typedef struct joining {
    const ps_place *place;
    lk_peer *peer;
    lk_frame frames[2];
    int n;
    bool (*is_interrupted)(void *user);
    void *user;
    double end;
    bool answered; /* it has asked for patience */
} joining;

static lk_status give_up(const joining *j)
{
    const char *refusal = lk__peer_refusal(j->peer);
    if (refusal)
        LK_FAIL(LK_ERR_BACKEND, "the chief at %s: %s", j->place->chief_text, refusal);
    if (j->answered)
        LK_FAIL(LK_ERR_BACKEND,
                "the chief at %s: server %d is there already, and lives; give this one another "
                "--task-index",
                j->place->chief_text, j->place->index);
    LK_FAIL(LK_ERR_BACKEND, "the chief at %s does not answer: nobody was there within %g s (--join-timeout)",
            j->place->chief_text, j->place->join_timeout);
}

/* *mail NULL: no answer that is one yet. */
static lk_status hear(joining *j, lk_mail **mail)
{
    lk_wire_header header;
    LK_TRY(lk__peer_receive(j->peer, 100, mail));
    if (!*mail)
        return LK_OK;
    lk_status status = lk__wire_header(*mail, &header);
    if (status == LK_OK && header.kind == PS_REFUSED)
        status = lk__ps_refused("the chief", *mail);
    if (status == LK_OK && header.kind != PS_LATER)
        return LK_OK;
    j->answered = true;
    lk__mail_release(*mail);
    *mail = NULL;
    return status;
}

/* The request is sent once a second until somebody answers: to join twice is to join once. */
static lk_status ask(joining *j, lk_mail **mail)
{
    double send_at = 0;
    while (now() < j->end) {
        if (j->is_interrupted(j->user))
            LK_FAIL(LK_ERR_INTERRUPTED, "interrupted before the chief at %s has answered", j->place->chief_text);
        if (lk__peer_refusal(j->peer))
            break;
        if (now() >= send_at) {
            LK_TRY(lk__peer_send(j->peer, j->frames, j->n));
            send_at = now() + 1;
        }
        LK_TRY(hear(j, mail));
        if (*mail)
            return LK_OK;
    }
    return give_up(j);
}

lk_status lk__ps_join(lk_post *post, const ps_place *place, ps_kind kind, const ps_join *join, const void *more,
                      size_t bytes, bool (*is_interrupted)(void *user), void *user, lk_mail **mail)
{
    lk_wire_first first;
    joining j = {.place = place,
                 .n = more ? 2 : 1,
                 .is_interrupted = is_interrupted,
                 .user = user,
                 .end = now() + place->join_timeout};
    *mail = NULL;
    j.frames[0] = lk__wire_first(&first, kind, 0, join, sizeof *join);
    j.frames[1] = (lk_frame){more, bytes};
    LK_TRY(lk__peer_open(post, &place->chief, place->chief_key, &j.peer));
    lk__doing before = lk__now_for_a_while(LK_DOING_OTHERS, "wait for the chief");
    lk_status status = ask(&j, mail);
    lk__now_again(before);
    lk__peer_release(j.peer);
    return status;
}
