/* The chief's registry of servers. The caller holds the coordinator's mutex. */
#pragma once

#include "train/parameter_server/ps_members.h"

/* Handle a server's LK_PS_JOIN and LK_PS_BEAT, any process's LK_PS_TABLE, and the passing of time. */
lk_status lk__ps_registry_join(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number, const lk_ps_join *join);
lk_status lk__ps_registry_hear(lk_ps_coordinator *c, const lk_ps_beat *beat);
lk_status lk__ps_registry_send(lk_ps_coordinator *c, const lk_mail *mail, uint64_t number);
void lk__ps_registry_tick(lk_ps_coordinator *c, double seconds);
