/* A stream's handles of cuBLASLt and cuDNN, and the cache of what they have chosen. */
#include "cuda/plugin/gpu_libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the cache of choices ----------------------------------------------------------------------------------------- */

/* Returns the index of the list that holds a key: FNV-1a over its words, folded. */
static size_t gpu_libraries_list_of_key(const int64_t key[LK_GPU_KEY_WORDS])
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < LK_GPU_KEY_WORDS; i++)
        hash = (hash ^ (uint64_t)key[i]) * 0x100000001b3u;
    return (size_t)((hash ^ hash >> 32) % LK_GPU_CACHE_LISTS);
}

lk_gpu_problem *lk__gpu_cache_find(const lk_gpu_cache *cache, const int64_t key[LK_GPU_KEY_WORDS])
{
    lk_gpu_problem *problem = cache->lists[gpu_libraries_list_of_key(key)];
    while (problem && memcmp(problem->key, key, sizeof problem->key) != 0)
        problem = problem->next;
    return problem;
}

void lk__gpu_cache_add(lk_gpu_cache *cache, lk_gpu_problem *problem, const int64_t key[LK_GPU_KEY_WORDS])
{
    lk_gpu_problem **list = &cache->lists[gpu_libraries_list_of_key(key)];
    memcpy(problem->key, key, sizeof problem->key);
    problem->next = *list;
    *list = problem;
}

lk_gpu_status lk__gpu_choose(lk_gpu_stream *stream, lk_gpu_choice *choice)
{
    return choice->kernel == LK_GPU_MATMUL ? lk__gpu_choose_product(stream, choice)
                                           : lk__gpu_choose_convolution(stream, choice);
}

lk_gpu_status lk__gpu_engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most, int *n)
{
    return choice->kernel == LK_GPU_MATMUL ? lk__gpu_product_engines(stream, choice, names, most, n)
                                           : lk__gpu_convolution_engines(stream, choice, names, most, n);
}

/* Asks again for each cached problem, because lk__gpu_choose also names the parts that run outside the library. */
static void gpu_libraries_visit_choices(lk_gpu_stream *stream, const lk_gpu_cache *cache,
                                        void (*visit)(void *user, const lk_gpu_choice *choice), void *user)
{
    for (int i = 0; i < LK_GPU_CACHE_LISTS; i++) {
        for (const lk_gpu_problem *problem = cache->lists[i]; problem; problem = problem->next) {
            lk_gpu_choice choice = problem->choice;
            if (lk__gpu_choose(stream, &choice) == LK_GPU_OK)
                visit(user, &choice);
        }
    }
}

void lk__gpu_choices(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user)
{
    if (!stream->libraries)
        return;
    gpu_libraries_visit_choices(stream, &stream->libraries->products, visit, user);
    gpu_libraries_visit_choices(stream, &stream->libraries->convolutions, visit, user);
}

/* --- a stream's libraries ----------------------------------------------------------------------------------------- */

void lk__gpu_libraries_close(lk_gpu_libraries *libraries)
{
    lk__gpu_products_free(&libraries->products);
    lk__gpu_convolutions_free(&libraries->convolutions);
    lk__gpu_products_free(&libraries->products_of_parts);
    lk__gpu_convolutions_free(&libraries->convolutions_of_parts);
    if (libraries->blas)
        cublasLtDestroy(libraries->blas);
    if (libraries->dnn)
        cudnnDestroy(libraries->dnn);
    free(libraries);
}

/* Loads NVRTC, which then stays loaded, and writes its version. cuDNN loads it by the same name. */
static lk_gpu_status gpu_libraries_find_nvrtc(char *version, size_t size)
{
    char name[32];
    int major = 0, minor = 0;
    int (*ask)(int *major, int *minor) = NULL;
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library)
        *(void **)&ask = dlsym(library, "nvrtcVersion");
    if (!ask || ask(&major, &minor) != 0)
        return lk__gpu_fail(LK_GPU_FAILED,
                            "NVRTC, by which cuDNN compiles kernels, cannot be loaded: %s; it is part of "
                            "the CUDA toolkit",
                            library ? name : dlerror());
    snprintf(version, size, "%d.%d", major, minor);
    return LK_GPU_OK;
}

static lk_gpu_status gpu_libraries_describe_machine(lk_gpu_libraries *libraries, const char *nvrtc)
{
    struct cudaDeviceProp gpu;
    int current = 0, driver = 0;
    LK_GPU_TRY(lk__gpu_check(cudaGetDevice(&current), "find the current GPU"));
    LK_GPU_TRY(lk__gpu_check(cudaGetDeviceProperties(&gpu, current), "describe the current GPU"));
    LK_GPU_TRY(lk__gpu_check(cudaDriverGetVersion(&driver), "ask for the driver's version"));
    libraries->capability = 10 * gpu.major + gpu.minor;
    snprintf(libraries->machine, sizeof libraries->machine,
             "%s, compute capability %d.%d, %d multiprocessors, driver %d, NVRTC %s", gpu.name, gpu.major, gpu.minor,
             gpu.multiProcessorCount, driver, nvrtc);
    return LK_GPU_OK;
}

/* Without NVRTC cuDNN would take other kernels, which round more, and say nothing. */
lk_gpu_status lk__gpu_libraries_open(lk_gpu_libraries **out)
{
    char nvrtc[sizeof((lk_gpu_versions *)0)->nvrtc];
    lk_gpu_libraries *libraries = calloc(1, sizeof *libraries);
    if (!libraries)
        return lk__gpu_fail(LK_GPU_NO_MEMORY, "out of memory for the handles of cuBLASLt and cuDNN");
    lk_gpu_status status = gpu_libraries_find_nvrtc(nvrtc, sizeof nvrtc);
    if (status == LK_GPU_OK)
        status = lk__gpu_check_blas(cublasLtCreate(&libraries->blas), "start");
    if (status == LK_GPU_OK)
        status = lk__gpu_check_dnn(cudnnCreate(&libraries->dnn), "start");
    if (status == LK_GPU_OK)
        status = gpu_libraries_describe_machine(libraries, nvrtc);
    if (status == LK_GPU_OK)
        *out = libraries;
    else
        lk__gpu_libraries_close(libraries);
    return status;
}

/* major 10000 + minor 100 + patch */
static void write_library_version(char *text, size_t size, size_t version)
{
    snprintf(text, size, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

void lk__gpu_libraries_versions(lk_gpu_versions *versions)
{
    write_library_version(versions->cublas, sizeof versions->cublas, cublasLtGetVersion());
    write_library_version(versions->cudnn, sizeof versions->cudnn, cudnnGetVersion());
    gpu_libraries_find_nvrtc(versions->nvrtc, sizeof versions->nvrtc); /* stays empty if it is missing */
}

int64_t lk__gpu_libraries_workspace(void)
{
    return LK_GPU_WORKSPACE_BYTES;
}
