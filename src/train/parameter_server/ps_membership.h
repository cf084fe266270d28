/* A worker's membership in a training: it joins the chief, asks it questions, learns whether training goes on, and
 * leaves. */
#pragma once

#include "train/parameter_server/ps_client.h"
#include "train/parameter_server/ps_identity.h"
#include "train/parameter_server/ps_pulse.h"
#include "train/trainer.h"

typedef struct lk_ps_membership {
    lk_trainer *trainer;
    lk_ps_identity identity;
    lk_post *post;
    lk_peer *peer;
    lk_ps_pulse_thread *pulse;
    lk_ps_welcome welcome;
    lk_ps_directory directory; /* where the servers are, according to the chief */
    bool has_ended;            /* the chief has said so in a pulse, or when this worker joined */
} lk_ps_membership;

/* Finds the chief and joins it. The trainer must live as long. Close the membership even after a failure. */
lk_status lk__ps_membership_open(lk_trainer *trainer, lk_ps_membership *membership);

/* Takes leave of the chief, unless it is lost. */
void lk__ps_membership_close(lk_ps_membership *membership);

typedef struct lk_ps_question {
    int kind, reply;
    const char *what;
    const void *body;
    size_t bytes;
} lk_ps_question;

/* Asks the chief and waits for its answer, which may depend on other workers. Errors: those of lk__ps_membership_check.
 */
lk_status lk__ps_membership_ask(lk_ps_membership *membership, const lk_ps_question *question, void *answer,
                                size_t bytes);

/* Checks that training, and this process's part in it, goes on. Errors: LK_ERR_STATE (it has ended well: has_ended),
 * LK_ERR_BACKEND (it has failed, and why; or the chief is lost), LK_ERR_INTERRUPTED. */
lk_status lk__ps_membership_check(lk_ps_membership *membership);

/* Joins again under a new number, after the chief answered LK_PS_FORGOTTEN. */
lk_status lk__ps_membership_renew(lk_ps_membership *membership);

/* Asks the chief for a seat with this many devices on this machine. *first_core: the first core that they use; other
 * workers on the machine use those before it. Errors: those of lk_trainer_work. */
lk_status lk__ps_take_seat(lk_trainer *trainer, int devices, int *first_core);
