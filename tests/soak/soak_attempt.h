/* The processes of one attempt, and what disturbs them. */
#pragma once

#include "soak_case.h"
#include "soak_place.h"
#include "soak_trial.h"

typedef struct soak_attempt_job {
    const soak_case *given;
    const soak_attempt *attempt;
    const soak_programs *programs;
    const soak_place *place;
    const char *folder;      /* "trial" or "reference", below the place's root */
    const char *name;        /* of its output files */
    const char *checkpoints; /* folder of checkpoints; NULL: none */
    bool is_resuming;
    double seconds; /* moments of disturbances are shares of this time */
    FILE *log;
} soak_attempt_job;

typedef struct soak_outcome {
    int status;            /* the first process's exit status, or minus the signal that ended it */
    bool was_killed;       /* a process was killed by a disturbance */
    bool first_was_killed; /* it was the first */
    bool others_failed;    /* a further process that the attempt started did not end with status 0 */
    bool has_hung;         /* processes did not end, and were killed by the watchdog */
    bool has_left;         /* processes were still there long after the first had ended */
    double seconds;
    char digest[64], state[64]; /* "": not printed */
    int complaints;             /* errors that the first process printed */
    char last[256];             /* last line on standard error */
} soak_outcome;

void soak_attempt_run(const soak_attempt_job *job, soak_outcome *outcome);
