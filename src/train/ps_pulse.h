/* The thread by which workers and servers tell the chief that they live, whatever else they are doing, and hear from it
 * whether training goes on. */
#ifndef LK_TRAIN_PS_PULSE_H
#define LK_TRAIN_PS_PULSE_H

#include "train/ps_place.h"
#include "train/ps_protocol.h"

typedef struct ps_pulse_thread ps_pulse_thread;

/* place: of the chief; it lives as long. */
lk_status lk__ps_pulse_start(lk_post *post, const ps_place *place, const ps_beat *beat, ps_pulse_thread **pulse);
void lk__ps_pulse_stop(ps_pulse_thread *pulse); /* NULL is fine */

ps_state lk__ps_pulse_state(const ps_pulse_thread *pulse);

/* Whether the chief has not answered for the time that place->timeout says. */
bool lk__ps_pulse_is_lost(const ps_pulse_thread *pulse);

/* Changes when a server has come or gone. */
int lk__ps_pulse_generation(const ps_pulse_thread *pulse);

/* LK_ERR_BACKEND: the chief is lost, or reports that training failed, and why. */
lk_status lk__ps_pulse_check(ps_pulse_thread *pulse);

#endif
