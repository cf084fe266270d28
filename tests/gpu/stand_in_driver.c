/* libcuda.so.1 for a machine without a GPU: it "loads" whatever cuDNN compiles, so that cuDNN offers engines that it
 * compiles at run time. The other functions of the driver fail; the build writes them from the names that the toolkit's
 * stub exports. */
#include <stdlib.h>

/* CUresult */
enum { SUCCESS = 0, OUT_OF_MEMORY = 2, STUB_LIBRARY = 34 };

enum { DRIVER_VERSION = 13000 };

static int stand_in_new(void **handle)
{
    *handle = malloc(1);
    return *handle ? SUCCESS : OUT_OF_MEMORY;
}

int cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return SUCCESS;
}

int cuLibraryLoadData(void **library)
{
    return stand_in_new(library);
}

int cuLibraryLoadFromFile(void **library)
{
    return stand_in_new(library);
}

int cuLibraryGetKernel(void **kernel)
{
    return stand_in_new(kernel);
}

int cuLibraryGetModule(void **module)
{
    return stand_in_new(module);
}

int cuLibraryUnload(void *library)
{
    free(library);
    return SUCCESS;
}

int cuKernelGetFunction(void **function)
{
    return stand_in_new(function);
}

int cuKernelGetAttribute(int *value)
{
    *value = 0;
    return SUCCESS;
}

int cuKernelSetAttribute(void)
{
    return SUCCESS;
}

int cuModuleLoadData(void **module)
{
    return stand_in_new(module);
}

int cuModuleGetFunction(void **function)
{
    return stand_in_new(function);
}

int cuModuleUnload(void *module)
{
    free(module);
    return SUCCESS;
}

int cuFuncSetAttribute(void)
{
    return SUCCESS;
}

#define FAILS(name)          \
    int name(void)           \
    {                        \
        return STUB_LIBRARY; \
    }
#include "stand_in_driver.inc"
