/* A thread in workers and servers that sends heartbeats to the chief, also while the process computes. The chief's
 * reply, a pulse, says whether training goes on. */
#pragma once

#include "train/parameter_server/ps_identity.h"
#include "train/parameter_server/ps_protocol.h"

typedef struct lk_ps_pulse_thread lk_ps_pulse_thread;

/* identity: of this process, with the chief's address; it must live as long. beat: the message to send, copied. The
 * caller stops *pulse even after a failure. Errors: LK_ERR_MEMORY, those of lk__peer_open. */
lk_status lk__ps_pulse_start(lk_post *post, const lk_ps_identity *identity, const lk_ps_beat *beat,
                             lk_ps_pulse_thread **pulse);
void lk__ps_pulse_stop(lk_ps_pulse_thread *pulse); /* NULL is fine */

lk_ps_state lk__ps_pulse_state(const lk_ps_pulse_thread *pulse);

/* Returns whether the chief has not answered for identity->timeout seconds. */
bool lk__ps_pulse_is_lost(const lk_ps_pulse_thread *pulse);

/* Changes when a server has come or gone. */
int lk__ps_pulse_generation(const lk_ps_pulse_thread *pulse);

/* LK_ERR_BACKEND: the chief is lost, or reports that training failed, and why. */
lk_status lk__ps_pulse_check(lk_ps_pulse_thread *pulse);
