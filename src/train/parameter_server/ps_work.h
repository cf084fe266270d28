/* The chief's answers to workers that ask for work. The caller holds the coordinator's mutex. */
#pragma once

#include "train/parameter_server/ps_members.h"

/* Answers LK_PS_WORK or LK_PS_ASK, or keeps the message to answer later: *keep. Errors: LK_ERR_FORMAT (the sender has
 * no reply yet). */
lk_status lk__ps_work_answer(lk_ps_coordinator *c, lk_mail *mail, const lk_wire_header *header, bool *keep);

/* Tells a worker without a seat, which sent LK_PS_ASK or LK_PS_WORK, to join again. */
lk_status lk__ps_forget(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number, bool asks_push);

/* Answers all waiting workers that can be answered now. */
lk_status lk__ps_work_serve(lk_ps_coordinator *c);
