/* Checks that no call synchronizes with a GPU while an NCCL kernel may run there. The kernel waits for another rank,
 * which the call may keep from coming. With real GPUs the program then hangs now and then; here it aborts every time.
 */
#include "cuda_runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

enum { MOST = 64 };

/* For each device, the number of its streams that take part. */
static std::atomic<int> starting[MOST], in_flight[MOST];
static thread_local int started_here[MOST]; /* by this thread, which is able to start the rest */

void emulated_exchange_starts(int device, int change)
{
    starting[device] += change;
    started_here[device] += change;
}

void emulated_exchange_in_flight(int device, int change)
{
    in_flight[device] += change;
}

void emulated_require_no_exchange(int device, bool until_idle, const char *what)
{
    bool is_starting = starting[device] > started_here[device], is_there = until_idle && in_flight[device] > 0;
    if (!is_starting && !is_there)
        return;
    fprintf(stderr, "emulated CUDA: GPU %d: %s while an exchange between GPUs is %s\n", device, what,
            is_starting ? "being started" : "in flight");
    abort();
}
