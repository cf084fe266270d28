/* What workers have told of their times: those that have a seat, and those that had one. The list of the latter is no
 * longer than a report's, however many come and go; who comes later is added up in one last entry. */
#ifndef LK_TRAIN_PS_CREW_H
#define LK_TRAIN_PS_CREW_H

#include "lockstep/scaling.h"
#include "train/ps_seats.h"

typedef struct ps_worked {
    int64_t worker; /* its number; of the last entry that of its first one */
    int64_t count;  /* 1, or how many the last entry stands for */
    int64_t devices;
    char host[64];
    ps_times times; /* of one step at least */
} ps_worked;

typedef struct ps_crew {
    ps_worked gone[LK_SCALING_WORKERS + 1];
    int n;
} ps_crew;

/* The seat is about to be somebody else's. */
void lk__ps_crew_part(ps_crew *crew, const ps_seat *seat);

/* All that have taken a step that counts, in the order of their numbers but for the last entry; to be freed. Errors:
 * LK_ERR_MEMORY. */
lk_status lk__ps_crew_list(const ps_crew *crew, const ps_seats *seats, ps_worked **workers, int *n);

#endif
