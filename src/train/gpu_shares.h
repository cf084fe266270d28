/* Which GPUs are whose, among processes of one machine, which may see the same ones or others. */
#ifndef LK_TRAIN_GPU_SHARES_H
#define LK_TRAIN_GPU_SHARES_H

#include "core/backend.h"

enum { LK_GPUS_SEEN = 64 };

/* Of a process: how many GPUs it wants, in its own numbers, -1 where it leaves it open which; and those that it sees.
 */
typedef struct lk_gpu_share {
    int devices, seen;
    int numbers[LK_MAX_DEVICES];
    lk_device_identity gpus[LK_GPUS_SEEN];
} lk_gpu_share;

/* Numbers what was left open, in the order of processes: no GPU is taken twice while one that the process sees is
 * taken by nobody. All processes come to the same. */
void lk__gpu_shares_assign(lk_gpu_share *shares, int n);

#endif
