/* Backend "cpu": oneDNN and own kernels. The registry of backends needs nothing else from this folder. */
#pragma once

#include "core/backend.h"

/* Registered as "cpu". All rows are for f32, some for bf16 too. All but the updates accept private layouts and produce
 * them. */
extern const lk_kernel_table lk__cpu_table;

/* More rows for bf16. Most run the rows of lk__cpu_table on f32 copies: see cpu_bf16.h. */
extern const lk_kernel_table lk__cpu_bf16_table;

/* Open and close the state of a device: engine, stream, primitives and scratch memory. Call them between lk__cpu_enter
 * and lk__cpu_leave. Errors: LK_ERR_UNSUPPORTED (a oneDNN whose threads cannot be limited), LK_ERR_BACKEND,
 * LK_ERR_MEMORY, and those of lk__isa_check. */
lk_status lk__cpu_open(void **state);
void lk__cpu_close(void *state);

/* After enter, oneDNN runs with one thread in the calling thread; leave restores the previous number. */
void lk__cpu_enter(void);
void lk__cpu_leave(void);

/* Members of lk_backend. */
lk_status lk__cpu_to_plain(lk_device *device, const lk_tensor *x, void *plain);
lk_status lk__cpu_implementations(lk_device *device, lk_implementation_fn visit, void *user);
double lk__cpu_multiply_adds(int64_t rounds);
bool lk__cpu_merges(const lk_call *one, const lk_call *all);
lk_apart lk__cpu_stays_apart(const lk_call *one);
