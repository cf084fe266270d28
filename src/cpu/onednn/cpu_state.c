#include "cpu/onednn/cpu_state.h"

#include "base/mem.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/onednn/cpu_layout.h"

#include <dlfcn.h>
#include <stdint.h>

/* --- threads ------------------------------------------------------------------------------------------------------ */

/* The OpenMP runtime that oneDNN was linked with, which need not be the compiler's. */
static struct {
    int (*get_max_threads)(void);
    void (*set_num_threads)(int);
} omp;

static _Thread_local int callers_threads;

static void *cpu_state_find_symbol(void *library, const char *name)
{
    return dlsym(library ? library : RTLD_DEFAULT, name);
}

/* dlsym on oneDNN's own handle searches the libraries that oneDNN depends on before any other OpenMP runtime in the
 * process. */
static void cpu_state_find_omp(void)
{
    Dl_info info;
    void *library = NULL;
    if (dladdr((const void *)(uintptr_t)dnnl_engine_create, &info) && info.dli_fname)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *(void **)&omp.get_max_threads = cpu_state_find_symbol(library, "omp_get_max_threads");
    *(void **)&omp.set_num_threads = cpu_state_find_symbol(library, "omp_set_num_threads");
    if (library)
        dlclose(library);
}

/* With one thread the order of summation is fixed. OpenMP can be told to use one; a sequential oneDNN has only one; a
 * thread pool is used only if a stream is given one. */
static lk_status cpu_state_limit_threads(void)
{
    unsigned runtime = dnnl_version()->cpu_runtime;
    if (runtime == DNNL_RUNTIME_SEQ || runtime == DNNL_RUNTIME_THREADPOOL)
        return LK_OK;
    if (runtime != DNNL_RUNTIME_OMP || !omp.get_max_threads || !omp.set_num_threads)
        LK_FAIL(LK_ERR_UNSUPPORTED,
                "unsupported: this oneDNN (runtime %u) cannot be held to one thread; OpenMP, sequential or thread pool "
                "is needed",
                runtime);
    return LK_OK;
}

void lk__cpu_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, cpu_state_find_omp);
    if (!omp.set_num_threads)
        return;
    callers_threads = omp.get_max_threads();
    omp.set_num_threads(1);
}

void lk__cpu_leave(void)
{
    if (omp.set_num_threads)
        omp.set_num_threads(callers_threads);
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

static lk_status cpu_state_open_engine(lk_cpu *cpu)
{
    LK_TRY(cpu_state_limit_threads());
    LK_DNNL(dnnl_engine_create(&cpu->engine, dnnl_cpu, 0), "make an engine");
    LK_DNNL(dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags), "make a stream");
    return LK_OK;
}

lk_status lk__cpu_open(void **state)
{
    LK_TRY(lk__isa_check());
    lk_cpu *cpu = lk__calloc(1, sizeof *cpu);
    if (!cpu)
        return LK_ERR_MEMORY;
    pthread_mutex_init(&cpu->lock, NULL);
    lk__layouts_retain();
    lk_status status = cpu_state_open_engine(cpu);
    if (status != LK_OK) {
        lk__cpu_close(cpu);
        return status;
    }
    *state = cpu;
    return LK_OK;
}

void lk__cpu_close(void *state)
{
    lk_cpu *cpu = state;
    for (int i = 0; i < LK_CPU_BUCKETS; i++)
        lk__prepared_free(cpu->buckets[i]);
    if (cpu->stream)
        dnnl_stream_destroy(cpu->stream);
    if (cpu->engine)
        dnnl_engine_destroy(cpu->engine);
    lk__free_aligned(cpu->scratch);
    lk__free_aligned(cpu->wide);
    pthread_mutex_destroy(&cpu->lock);
    lk__free(cpu);
    lk__layouts_release();
}

static lk_status cpu_state_grow_buffer(void **memory, size_t *have, size_t bytes)
{
    if (*have >= bytes)
        return LK_OK;
    lk__free_aligned(*memory);
    *have = 0;
    *memory = lk__alloc_aligned(bytes);
    if (!*memory)
        return LK_ERR_MEMORY;
    *have = bytes;
    return LK_OK;
}

lk_status lk__cpu_scratch(lk_cpu *cpu, size_t bytes)
{
    return cpu_state_grow_buffer(&cpu->scratch, &cpu->scratch_bytes, bytes);
}

lk_status lk__cpu_wide(lk_cpu *cpu, size_t bytes)
{
    return cpu_state_grow_buffer(&cpu->wide, &cpu->wide_bytes, bytes);
}
