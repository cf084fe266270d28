/* A worker's part in a training: it joins the chief, asks it, hears whether training goes on, and leaves. */
#ifndef LK_TRAIN_PS_MEMBERSHIP_H
#define LK_TRAIN_PS_MEMBERSHIP_H

#include "train/ps_client.h"
#include "train/ps_place.h"
#include "train/ps_pulse.h"
#include "train/trainer.h"

typedef struct ps_membership {
    lk_trainer *trainer;
    ps_place place;
    lk_post *post;
    lk_peer *peer;
    ps_pulse_thread *pulse;
    ps_welcome welcome;
    ps_directory directory; /* where servers are, as the chief says */
    uint64_t number;        /* of the last question */
    bool has_ended;         /* lk__ps_membership_check has found out that training has */
} ps_membership;

/* Finds the chief and joins it. The trainer lives as long. After a failure too it is to be closed. */
lk_status lk__ps_membership_open(lk_trainer *trainer, ps_membership *membership);

/* Takes leave of the chief, however training has ended, unless that is gone. */
void lk__ps_membership_close(ps_membership *membership);

typedef struct ps_question {
    int kind, reply;
    const char *what;
    const void *body;
    size_t bytes;
} ps_question;

/* The chief's answer, which may take as long as others need. Errors: those of lk__ps_membership_check. */
lk_status lk__ps_membership_ask(ps_membership *membership, const ps_question *question, void *answer, size_t bytes);

/* Whether training goes on, and this process with it. Errors: LK_ERR_STATE (it has ended well: has_ended),
 * LK_ERR_BACKEND (it has failed, and why; or the chief is gone), LK_ERR_INTERRUPTED. */
lk_status lk__ps_membership_check(ps_membership *membership);

/* Joins again, as another worker: the chief's answer was PS_FORGOTTEN. */
lk_status lk__ps_membership_renew(ps_membership *membership);

#endif
