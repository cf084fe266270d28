#include "train/parameter_server/ps_chief_call.h"

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/status.h"

lk_status lk__ps_refused(const char *who, const lk_mail *mail)
{
    char reason[LK_MESSAGE_BYTES / 2];
    lk__wire_text(mail, 0, reason, sizeof reason);
    LK_FAIL(LK_ERR_ARGUMENT, "%s refuses: %s", who, reason);
}

typedef struct joining {
    const lk_ps_identity *identity;
    lk_peer *peer;
    lk_frame frames[2];
    int n;
    bool (*is_interrupted)(void *user);
    void *user;
    double end;
    bool answered; /* the chief has answered LK_PS_LATER */
} joining;

static lk_status ps_chief_call_fail(const joining *j)
{
    const char *refusal = lk__peer_refusal(j->peer);
    if (refusal)
        LK_FAIL(LK_ERR_BACKEND, "the chief at %s: %s", j->identity->chief_text, refusal);
    if (j->answered)
        LK_FAIL(LK_ERR_BACKEND,
                "the chief at %s: server %d is there already, and lives; give this one another "
                "--task-index",
                j->identity->chief_text, j->identity->index);
    LK_FAIL(LK_ERR_BACKEND, "the chief at %s does not answer: nobody was there within %g s (--join-timeout)",
            j->identity->chief_text, j->identity->join_timeout);
}

/* Receives an answer; *mail stays NULL until the chief has decided. */
static lk_status ps_chief_call_receive(joining *j, lk_mail **mail)
{
    lk_wire_header header;
    LK_TRY(lk__peer_receive(j->peer, 100, mail));
    if (!*mail)
        return LK_OK;
    lk_status status = lk__wire_header(*mail, &header);
    if (status == LK_OK && header.kind == LK_PS_REFUSED)
        status = lk__ps_refused("the chief", *mail);
    if (status == LK_OK && header.kind == LK_PS_OVER)
        status = lk__fail(LK_ERR_STATE, "the chief at %s has ended training", j->identity->chief_text);
    if (status == LK_OK && header.kind != LK_PS_LATER)
        return LK_OK;
    j->answered = true;
    lk__mail_release(*mail);
    *mail = NULL;
    return status;
}

/* Sends the request once a second until an answer comes. Joining twice has the effect of joining once. */
static lk_status ps_chief_call_ask(joining *j, lk_mail **mail)
{
    double send_at = 0;
    while (lk__seconds() < j->end) {
        if (j->is_interrupted(j->user))
            LK_FAIL(LK_ERR_INTERRUPTED, "interrupted before the chief at %s has answered", j->identity->chief_text);
        if (lk__peer_refusal(j->peer))
            break;
        if (lk__seconds() >= send_at) {
            LK_TRY(lk__peer_send(j->peer, j->frames, j->n));
            send_at = lk__seconds() + 1;
        }
        LK_TRY(ps_chief_call_receive(j, mail));
        if (*mail)
            return LK_OK;
    }
    return ps_chief_call_fail(j);
}

lk_status lk__ps_join(lk_post *post, const lk_ps_identity *identity, lk_ps_kind kind, const lk_ps_join *join,
                      const void *more, size_t bytes, bool (*is_interrupted)(void *user), void *user, lk_mail **mail)
{
    lk_wire_first first;
    joining j = {.identity = identity,
                 .n = more ? 2 : 1,
                 .is_interrupted = is_interrupted,
                 .user = user,
                 .end = lk__seconds() + identity->join_timeout};
    *mail = NULL;
    j.frames[0] = lk__wire_first(&first, kind, 0, join, sizeof *join);
    j.frames[1] = (lk_frame){more, bytes};
    LK_TRY(lk__peer_open(post, &identity->chief, identity->chief_key, &j.peer));
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "wait for the chief");
    lk_status status = ps_chief_call_ask(&j, mail);
    lk__activity_end(before);
    lk__peer_release(j.peer);
    return status;
}
