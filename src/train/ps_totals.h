/* What has happened in an asynchronous training, over all runs of it. */
#ifndef LK_TRAIN_PS_TOTALS_H
#define LK_TRAIN_PS_TOTALS_H

#include "lockstep/parameter_server.h"

void lk__ps_totals_add(lk_async_report *sum, const lk_async_report *report);

/* For checkpoints; one without, as of another strategy, gives zeros. */
void lk__ps_totals_save(const lk_async_report *report, lk_state *state);
void lk__ps_totals_resume(lk_async_report *report, const lk_state *state);

#endif
