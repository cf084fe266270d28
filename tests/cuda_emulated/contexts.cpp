/* Tracks CUDA contexts. A GPU's context is made by the first call that needs one on a thread whose current GPU it is;
 * that is GPU 0 if the thread has chosen none. A context in which no stream is made was made by mistake, and costs
 * hundreds of MB on a real GPU, so the program then ends with an error.
 *
 * If $LOCKSTEP_EMULATED_CONTEXTS is set the program says on stderr, at its end, on which of the machine's GPUs it has
 * contexts. */
#include "cuda_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>

namespace
{
class contexts
{
  public:
    void need(int device)
    {
        std::lock_guard<std::mutex> guard(lock);
        has_streams.emplace(emulated_gpu(device), false);
    }
    void opened(int device)
    {
        std::lock_guard<std::mutex> guard(lock);
        has_streams[emulated_gpu(device)] = true;
    }
    bool are_there(int device)
    {
        std::lock_guard<std::mutex> guard(lock);
        return has_streams.count(emulated_gpu(device)) > 0;
    }
    ~contexts()
    {
        std::string list;
        for (const auto &c : has_streams)
            list += " " + std::to_string(c.first);
        if (getenv("LOCKSTEP_EMULATED_CONTEXTS"))
            fprintf(stderr, "emulated CUDA: process %d has contexts on GPUs%s\n", (int)getpid(), list.c_str());
        for (const auto &c : has_streams) {
            if (c.second)
                continue;
            fprintf(stderr, "emulated CUDA: a context was made on GPU %d, which nobody has opened\n", c.first);
            _exit(3);
        }
    }

  private:
    std::mutex lock;
    std::map<int, bool> has_streams; /* by the machine's number */
};
} // namespace

static contexts all;

void emulated_need_context(int device)
{
    all.need(device);
}

void emulated_context_is_used(int device)
{
    all.opened(device);
}

static int primary_context_state(int device, unsigned *flags, int *is_active)
{
    *flags = 0;
    *is_active = all.are_there(device);
    return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result)
{
    bool is_known = strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
    *function = is_known ? (void *)primary_context_state : nullptr;
    *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
