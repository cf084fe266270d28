/* Measures how a worker's steps spend their time. A step begins with the request for a hand-out and ends when every
 * server has the result. The first few steps, which record programs and allocate memory, are left out. */
#pragma once

#include "train/parameter_server/ps_client.h"
#include "train/trainer.h"

typedef struct lk_ps_watch {
    lk_ps_times times;                /* of all steps that count */
    lk_ps_times step;                 /* of the current step */
    int64_t ended;                    /* steps ended, including those left out */
    int64_t mark;                     /* when the current lap began */
    double processor[LK_MAX_DEVICES]; /* each device's processor time at the end of the previous step's computing */
} lk_ps_watch;

/* `lap` adds the time since the previous lap, or since `start`, to one part of the step. `restart` also forgets all
 * steps, because the chief now counts this process as another worker. */
void lk__ps_watch_start(lk_ps_watch *watch);
void lk__ps_watch_restart(lk_ps_watch *watch);
void lk__ps_watch_lap(lk_ps_watch *watch, double *part);

/* Ends the lap in which the worker waited for `task`. */
void lk__ps_watch_waited(lk_ps_watch *watch, const lk_ps_task *task);

/* Pulls the variables, as a lap. In the first steps it first times an empty pull, which counts for no step. */
lk_status lk__ps_watch_pull(lk_ps_watch *watch, lk_ps_client *client, int64_t batch, lk_tensor *const *const *sets,
                            int n_sets);

/* Waits for the work pushed to the trainer's devices, as a lap. */
lk_status lk__ps_watch_computed(lk_ps_watch *watch, const lk_trainer *trainer);

/* Ends the step. samples: those that it computed; 0 if its result was not used. */
void lk__ps_watch_end_step(lk_ps_watch *watch, int64_t samples);

/* Adds everything but the fastest pulls, `small` and `large`. */
void lk__ps_times_add(lk_ps_times *sum, const lk_ps_times *times);

/* Checks the times in a message. Errors: LK_ERR_FORMAT. */
lk_status lk__ps_times_check(const lk_ps_times *times);
