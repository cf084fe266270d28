/* The processes that train together. */
#pragma once

#include "train/trainer.h"

/* If the strategy is for several synchronous processes, joins them; sets plan.process and plan.processes. *cores: this
 * process's share of the cores, if all processes on its machine take equal shares. */
lk_status lk__join_processes(lk_trainer *trainer, int *cores);

/* Sets plan.devices, the number of all processes' devices. spec: this process's devices. If the default number of
 * shards is too small for all of them, the last ones are removed, with a warning. Numbers are filled in so that
 * processes on one machine take different GPUs. CPU devices begin at cores that no other process takes. Errors:
 * LK_ERR_ARGUMENT (more processes than shards). */
typedef char lk__spec_text[2048];
lk_status lk__count_devices(lk_trainer *trainer, lk__spec_text spec);

/* Returns whether training, or an evaluation, has to end at the current step; the same in all processes. */
bool lk__is_interrupted(const lk_trainer *trainer);

/* Forgets the interruption. Returns whether there was one. */
bool lk__end_interruption(lk_trainer *trainer);

/* Makes trainer->sums.votes if there are several processes. */
lk_status lk__plan_votes(lk_trainer *trainer);

/* Returns whether training has to rest for this process's callback, which `wants` it to: in one process at once, in
 * several once one of them has voted for it, after the same update everywhere. */
bool lk__vote_to_rest(lk_trainer *trainer, bool wants);

/* Forgets the votes to rest, in a rest. */
void lk__end_rest_vote(lk_trainer *trainer);

/* Pushes the sums of all processes' votes to end and to rest. *votes: a new reference; NULL: there is one process. */
lk_status lk__push_vote(lk_trainer *trainer, lk_tensor **votes);

/* *decision becomes that of the first process. Waits for it. */
lk_status lk__follow_first(const lk_trainer *trainer, bool *decision);

/* Adds the uses in the other processes' ledgers to this one. */
lk_status lk__merge_ledger(const lk_trainer *trainer, lk_ledger *ledger);

/* *value becomes the sum of all processes' values. */
lk_status lk__add_over_processes(const lk_trainer *trainer, double *value);

/* Returns `status`. If it is an error, tells the other processes, which then fail too. */
lk_status lk__or_give_up(const lk_trainer *trainer, lk_status status);
