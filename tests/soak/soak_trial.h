/* A trial: the case's reference, its attempts, and whether all of them did what they must. */
#pragma once

#include "soak_case.h"

typedef enum soak_verdict { SOAK_PASSED, SOAK_REFUSED, SOAK_WRONG } soak_verdict;

typedef struct soak_result {
    soak_verdict verdict;
    char reason[512]; /* if it is wrong */
    const char *kind; /* the same text for reasons of one kind */
    char *log;        /* the command lines, and what happened; freed by the caller */
    int disturbed[SOAK_DISTURBANCE_KINDS];
} soak_result;

typedef struct soak_programs {
    char lockstep[512], clock[512], cuda[512], pjrt[512];
} soak_programs;

void soak_trial_run(const soak_case *given, const soak_programs *programs, soak_result *result);

/* Counts an option that processes were given. */
void soak_cover(const char *name, bool is_launch);
int soak_covered(const char *name, bool is_launch);
