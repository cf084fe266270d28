#include "train/plan/gpu_shares.h"

#include <string.h>

static bool is_same_gpu(const lk_device_identity *a, const lk_device_identity *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The number of devices on a GPU. */
static int count_gpu_users(const lk_gpu_share *shares, int n, const lk_device_identity *gpu)
{
    int users = 0;
    for (int p = 0; p < n; p++)
        for (int i = 0; i < shares[p].devices; i++)
            if (shares[p].numbers[i] >= 0 && shares[p].numbers[i] < shares[p].seen)
                users += is_same_gpu(&shares[p].gpus[shares[p].numbers[i]], gpu);
    return users;
}

/* The first GPU that has the fewest users. */
static int find_free_gpu(const lk_gpu_share *shares, int n, const lk_gpu_share *share)
{
    int best = 0, fewest = 0;
    for (int gpu = 0; gpu < share->seen; gpu++) {
        int users = count_gpu_users(shares, n, &share->gpus[gpu]);
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
                    shares[p].numbers[i] = find_free_gpu(shares, n, &shares[p]);
}
