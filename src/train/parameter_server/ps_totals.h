/* Totals of an asynchronous training, over all its runs. */
#pragma once

#include "lockstep/parameter_server.h"

void lk__ps_totals_add(lk_async_report *sum, const lk_async_report *report);

/* For checkpoints. A checkpoint without totals, as of another strategy, gives zeros. */
void lk__ps_totals_save(const lk_async_report *report, lk_state *state);
void lk__ps_totals_resume(lk_async_report *report, const lk_state *state);
