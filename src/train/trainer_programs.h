/* The recorded programs that a trainer's steps replay. */
#pragma once

#include "lockstep/train.h"

typedef struct lk_trainer_programs {
    struct lk_shard_programs *shard; /* of one shard each; NULL: operators run one by one, without programs */
    bool merges;                     /* a CPU device's shards are one program, in which they share calls */
    struct lk_cut_programs *cut;   /* of one shard whose group's others run next to it; NULL: devices do not compile */
    struct lk_step_programs *step; /* of all shards of a device, or of a group; NULL: shards run one by one */
} lk_trainer_programs;

/* Decides how steps run, and makes the members for that. They are empty: a program is recorded when a step first needs
 * it. The replicas exist already. */
lk_status lk__trainer_programs_new(lk_trainer *trainer);
void lk__trainer_programs_release(lk_trainer_programs *programs);
