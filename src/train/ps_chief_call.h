/* Asking the chief. */
#ifndef LK_TRAIN_PS_CHIEF_CALL_H
#define LK_TRAIN_PS_CHIEF_CALL_H

#include "train/ps_place.h"
#include "train/ps_protocol.h"

/* A number that no other process has. */
uint64_t lk__ps_nonce(void);

/* Takes part in the training: sends `join` as a message of `kind`, PS_SEAT or PS_JOIN, and with it `more` (NULL:
 * nothing), until the chief answers with PS_SEATED, PS_WELCOME or PS_SETUP: *mail, to be released. Errors:
 * LK_ERR_BACKEND (nobody answers within place->join_timeout, or the keys are refused), LK_ERR_ARGUMENT (the chief
 * refuses, and why), LK_ERR_INTERRUPTED. */
lk_status lk__ps_join(lk_post *post, const ps_place *place, ps_kind kind, const ps_join *join, const void *more,
                      size_t bytes, bool (*is_interrupted)(void *user), void *user, lk_mail **mail);

/* The text of a PS_REFUSED as an error, LK_ERR_ARGUMENT. */
lk_status lk__ps_refused(const char *who, const lk_mail *mail);

#endif
