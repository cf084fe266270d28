#include "cuda/cuda_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "liblockstep_cuda.so"

static const lk_gpu_driver *driver;
static char why_not[512];
static pthread_once_t asked = PTHREAD_ONCE_INIT;

/* The folder of the shared library that this is in, or of the program. */
static void own_folder(char *folder, size_t size)
{
    Dl_info info;
    static const char here;
    bool is_found = dladdr(&here, &info) && info.dli_fname && strchr(info.dli_fname, '/');
    snprintf(folder, size, "%s", is_found ? info.dli_fname : "");
    ssize_t length = is_found ? -1 : readlink("/proc/self/exe", folder, size - 1);
    if (length >= 0)
        folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* What dlerror says begins with the file's name: the plug-in's, or that of a library which it needs. */
static void note_failure(void)
{
    const char *message = dlerror();
    bool is_missing = message && strstr(message, "cannot open shared object file");
    bool needs_another = is_missing && strncmp(message, "lib", 3) == 0 && !strstr(message, FILE_NAME);
    snprintf(why_not, sizeof why_not, "%s%s", message ? message : FILE_NAME ": cannot be loaded",
             needs_another ? ": the plug-in for CUDA needs it; install it, or name its folder in LD_LIBRARY_PATH" : "");
}

static void *open_beside(const char *format)
{
    char folder[2048], path[2304];
    own_folder(folder, sizeof folder);
    snprintf(path, sizeof path, format, folder);
    if (access(path, F_OK) != 0)
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        note_failure();
    return library;
}

static void *open_library(void)
{
    const char *path = getenv("LOCKSTEP_CUDA_PLUGIN");
    void *library = NULL;
    if (!path || !*path) {
        library = open_beside("%s/" FILE_NAME);
        if (!library && !*why_not)
            library = open_beside("%s/../lib/" FILE_NAME);
    }
    if (library || *why_not)
        return library;
    library = dlopen(path && *path ? path : FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        note_failure();
    return library;
}

static void load(void)
{
    void *library = open_library();
    if (!library)
        return;
    lk_gpu_driver_fn table;
    *(void **)&table = dlsym(library, LK_GPU_DRIVER_SYMBOL);
    const lk_gpu_driver *found = table ? table() : NULL;
    if (!found || found->interface != LK_GPU_INTERFACE || found->size != sizeof *found) {
        snprintf(why_not, sizeof why_not, "%s: is of another version of lockstep", FILE_NAME);
        dlclose(library);
        return;
    }
    driver = found;
}

const lk_gpu_driver *lk__cuda_driver(const char **reason)
{
    pthread_once(&asked, load);
    if (reason)
        *reason = why_not;
    return driver;
}

lk_status lk__cuda_check(const lk_gpu_driver *from, lk_gpu_status status)
{
    switch (status) {
    case LK_GPU_OK:
        return LK_OK;
    case LK_GPU_NO_MEMORY:
        return lk__fail(LK_ERR_MEMORY, "%s", from->error());
    case LK_GPU_UNSUPPORTED:
        return lk__fail(LK_ERR_UNSUPPORTED, "%s", from->error());
    case LK_GPU_LOST:
        return lk__fail(LK_ERR_DEVICE, "%s", from->error());
    default:
        return lk__fail(LK_ERR_BACKEND, "%s", from->error());
    }
}
