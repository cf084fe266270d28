/* The state of a CPU device: oneDNN's engine and stream, prepared calls, and scratch memory. */
#pragma once

#include "cpu/onednn/cpu_prepared.h"
#include "cpu/onednn/dnnl_compat.h"

#include <pthread.h>

enum { LK_CPU_BUCKETS = 256 };

typedef struct lk_cpu {
    dnnl_engine_t engine;
    dnnl_stream_t stream;

    /* Prepared calls by hash. Only the device's thread adds to them; the lock protects readers in other threads. */
    pthread_mutex_t lock;
    lk_prepared *buckets[LK_CPU_BUCKETS];
    int n_prepared;

    /* One buffer for the temporaries of the running call. It grows to the largest size needed so far. */
    void *scratch;
    size_t scratch_bytes;

    /* A second buffer, for the f32 stand-ins of bf16 tensors: the kernel that runs on them uses `scratch`. */
    void *wide;
    size_t wide_bytes;
} lk_cpu;

/* Make the buffer at least `bytes` long; its contents are lost. Errors: LK_ERR_MEMORY. */
lk_status lk__cpu_scratch(lk_cpu *cpu, size_t bytes);
lk_status lk__cpu_wide(lk_cpu *cpu, size_t bytes);
