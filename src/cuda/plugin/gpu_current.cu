#include "cuda/plugin/gpu_current.cuh"

/* cuDevicePrimaryCtxGetState, a function of the driver that the runtime API lacks. */
typedef int (*get_state)(int gpu, unsigned *flags, int *is_active);

static get_state find_get_state(void)
{
    enum { FIRST_VERSION = 7000 }; /* CUDA has this function since 7.0 */
    const char *name = "cuDevicePrimaryCtxGetState";
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, FIRST_VERSION, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
        return (get_state)found;
    cudaGetLastError();
    return nullptr;
}

static bool has_context(int gpu)
{
    static const get_state ask = find_get_state();
    unsigned flags;
    int is_active = 0;
    return ask && ask(gpu, &flags, &is_active) == 0 && is_active;
}

/* Set once the calling thread has a current GPU; never reset. */
static thread_local bool has_gpu;

lk_gpu_status lk__gpu_use(int gpu)
{
    has_gpu = true;
    return lk__gpu_check(cudaSetDevice(gpu), "use a GPU");
}

void lk__gpu_need(int gpu)
{
    int current = 0;
    if (has_gpu)
        return;
    has_gpu = true;
    if (cudaGetDevice(&current) != cudaSuccess || !has_context(current))
        cudaSetDevice(gpu);
}

gpu_scope::gpu_scope(int gpu) : before(gpu)
{
    cudaGetDevice(&before);
    cudaSetDevice(gpu);
    has_gpu = true;
}

/* If the previous GPU has no context, no thread has chosen it. Making it current again would make one. */
gpu_scope::~gpu_scope()
{
    if (has_context(before))
        cudaSetDevice(before);
}
