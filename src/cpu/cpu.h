/* oneDNN kernels: what the registry of backends takes from this folder. */
#ifndef LK_CPU_CPU_H
#define LK_CPU_CPU_H

#include "core/backend.h"

/* Registered as "cpu". Rows are f32 only; all but the updates take and give private layouts. */
extern const lk_kernel_table lk__cpu_table;

/* Rows for bf16, which run those of lk__cpu_table: see cpu_bf16.h. */
extern const lk_kernel_table lk__cpu_bf16_table;

/* A device's engine, stream, primitives and scratch memory. Between lk__cpu_enter and lk__cpu_leave. Errors:
 * LK_ERR_UNSUPPORTED (a oneDNN whose threads cannot be limited), LK_ERR_BACKEND, LK_ERR_MEMORY. */
lk_status lk__cpu_open(void **state);
void lk__cpu_close(void *state);

/* From enter on, oneDNN runs with one thread in the calling thread; leave gives it back the number it had. */
void lk__cpu_enter(void);
void lk__cpu_leave(void);

/* See lk_backend. */
lk_status lk__cpu_to_plain(lk_device *device, const lk_tensor *x, void *plain);
lk_status lk__cpu_implementations(lk_device *device, lk_implementation_fn visit, void *user);
double lk__cpu_multiply_adds(int64_t rounds);

#endif
