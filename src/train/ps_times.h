/* Where the time of a worker's steps goes. A step begins with the request for a hand-out and ends when every server has
 * what was made of it. The first few are left out: in them programs are recorded and memory is taken. */
#ifndef LK_TRAIN_PS_TIMES_H
#define LK_TRAIN_PS_TIMES_H

#include "train/ps_client.h"
#include "train/trainer.h"

typedef struct ps_watch {
    ps_times times; /* of the steps that count */
    ps_times step;  /* of the one at hand */
    int64_t begun;  /* steps, all of them */
    int64_t mark;
    double processor[LK_MAX_DEVICES];
} ps_watch;

/* The time since the last lap goes into one of step's parts. */
void lk__ps_watch_start(ps_watch *watch);
void lk__ps_watch_lap(ps_watch *watch, double *part);

/* The lap in which `task` was waited for. */
void lk__ps_watch_waited(ps_watch *watch, const ps_task *task);

/* The lap of pulling, and, in the first steps, a measurement before it that no step has. */
lk_status lk__ps_watch_pull(ps_watch *watch, ps_client *client, lk_tensor *const *const *sets, int n_sets);

/* The lap of what was pushed to the trainer's devices, which it waits for. */
lk_status lk__ps_watch_computed(ps_watch *watch, const lk_trainer *trainer);

/* samples: of the step, 0 where nothing came of it. */
void lk__ps_watch_end_step(ps_watch *watch, int64_t samples);

/* All but the quickest pulls. */
void lk__ps_times_add(ps_times *sum, const ps_times *times);

/* The worker is another one to the chief from now on. */
void lk__ps_watch_restart(ps_watch *watch);

/* What a message says of a worker's times. Errors: LK_ERR_FORMAT. */
lk_status lk__ps_times_check(const ps_times *times);

#endif
