/* Joining the chief, from a worker or a server. */
#pragma once

#include "train/parameter_server/ps_identity.h"
#include "train/parameter_server/ps_protocol.h"

/* Joins the training: sends `join` as a message of `kind`, LK_PS_SEAT or LK_PS_JOIN, together with `more` (NULL:
 * nothing), until the chief answers with LK_PS_SEATED, LK_PS_WELCOME or LK_PS_SETUP. *mail is the answer, for the
 * caller to release. Errors: LK_ERR_BACKEND (no answer within identity->join_timeout, or the keys are refused),
 * LK_ERR_ARGUMENT (the chief refuses, and why), LK_ERR_STATE (training has ended), LK_ERR_INTERRUPTED. */
lk_status lk__ps_join(lk_post *post, const lk_ps_identity *identity, lk_ps_kind kind, const lk_ps_join *join,
                      const void *more, size_t bytes, bool (*is_interrupted)(void *user), void *user, lk_mail **mail);

/* Fails with the text of a LK_PS_REFUSED, LK_ERR_ARGUMENT. */
lk_status lk__ps_refused(const char *who, const lk_mail *mail);
