/* What a CPU device keeps for oneDNN. */
#ifndef LK_CPU_CPU_STATE_H
#define LK_CPU_CPU_STATE_H

#include "cpu/cpu_prepared.h"
#include "cpu/dnnl_compat.h"

#include <pthread.h>

enum { LK_CPU_BUCKETS = 256 };

typedef struct lk_cpu {
    dnnl_engine_t engine;
    dnnl_stream_t stream;

    /* Prepared calls by hash. Only the device's thread adds; the lock is for readers in other threads. */
    pthread_mutex_t lock;
    lk_prepared *buckets[LK_CPU_BUCKETS];
    int n_prepared;

    /* One buffer for the temporaries of whichever call runs, grown to what the hungriest has needed. */
    void *scratch;
    size_t scratch_bytes;

    /* The same for what stands in for bf16 tensors, while a call runs that needs scratch memory itself. */
    void *wide;
    size_t wide_bytes;
} lk_cpu;

/* At least `bytes` bytes; what was in there is lost. Errors: LK_ERR_MEMORY. */
lk_status lk__cpu_scratch(lk_cpu *cpu, size_t bytes);
lk_status lk__cpu_wide(lk_cpu *cpu, size_t bytes);

#endif
