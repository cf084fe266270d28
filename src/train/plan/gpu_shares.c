#include "train/plan/gpu_shares.h"

#include <string.h>

/* The number of devices on a GPU. */
static int gpu_shares_count_users(const lk_gpu_share *shares, int n, const lk_device_identity *gpu)
{
    int users = 0;
    for (int p = 0; p < n; p++)
        for (int i = 0; i < shares[p].devices; i++)
            if (shares[p].numbers[i] >= 0 && shares[p].numbers[i] < shares[p].seen)
                users += memcmp(&shares[p].gpus[shares[p].numbers[i]], gpu, sizeof *gpu) == 0;
    return users;
}

/* The first GPU that has the fewest users. */
static int gpu_shares_find_free(const lk_gpu_share *shares, int n, const lk_gpu_share *share)
{
    int best = 0, fewest = 0;
    for (int gpu = 0; gpu < share->seen; gpu++) {
        int users = gpu_shares_count_users(shares, n, &share->gpus[gpu]);
        if (gpu > 0 && users >= fewest)
            continue;
        best = gpu;
        fewest = users;
    }
    return best;
}

/* Processes that see fewer GPUs choose first. */
void lk__gpu_shares_assign(lk_gpu_share *shares, int n)
{
    for (int seen = 0; seen <= LK_GPUS_SEEN; seen++)
        for (int p = 0; p < n; p++)
            for (int i = 0; i < shares[p].devices && shares[p].seen == seen; i++)
                if (shares[p].numbers[i] < 0)
                    shares[p].numbers[i] = gpu_shares_find_free(shares, n, &shares[p]);
}
