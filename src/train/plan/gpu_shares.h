/* Shares the GPUs of one machine among its processes, each of which may see all of them or some. */
#pragma once

#include "core/backend.h"

enum { LK_GPUS_SEEN = 64 };

/* The devices that a process wants, and the GPUs that it sees. */
typedef struct lk_gpu_share {
    int devices;                 /* how many it wants */
    int seen;                    /* how many it sees */
    int numbers[LK_MAX_DEVICES]; /* the GPUs that it wants, as it numbers them; -1: any */
    lk_device_identity gpus[LK_GPUS_SEEN];
} lk_gpu_share;

/* Replaces each -1 by a number, so that no GPU is taken twice while the process sees a free one. The result depends
 * only on `shares`, so all processes compute the same. */
void lk__gpu_shares_assign(lk_gpu_share *shares, int n);
