/* Where NCCL's kernels are, and what must not be asked of CUDA then: a kernel that waits for another rank is waited for
 * by calls that synchronise with its GPU, which may be what keeps that rank from coming. The real ones hang, now and
 * then; here the program is ended each time. */
#include "cuda_runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

enum { MOST = 64 };

/* Of each device, or stream on it that takes part. */
static std::atomic<int> starting[MOST], under_way[MOST];
static thread_local int started_here[MOST]; /* by this thread, which may start the rest meanwhile */

void emulated_exchange_starts(int device, int change)
{
    starting[device] += change;
    started_here[device] += change;
}

void emulated_exchange_is_under_way(int device, int change)
{
    under_way[device] += change;
}

void emulated_require_no_exchange(int device, bool is_idle, const char *what)
{
    bool is_starting = starting[device] > started_here[device], is_there = is_idle && under_way[device] > 0;
    if (!is_starting && !is_there)
        return;
    fprintf(stderr, "emulated CUDA: GPU %d: %s while an exchange between GPUs is %s\n", device, what,
            is_starting ? "being started" : "under way");
    abort();
}
