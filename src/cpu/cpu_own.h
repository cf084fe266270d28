/* Calls of kernels that are not oneDNN's: they say which layouts they want, and get their arguments in these. */
#ifndef LK_CPU_CPU_OWN_H
#define LK_CPU_CPU_OWN_H

#include "cpu/cpu_convert.h"
#include "cpu/cpu_prepared.h"

/* The kernel proper: in[i] is call->in[i] in prepared->layouts_in[i], or nothing where its dtype is neither f32 nor
 * i32; outputs are allocated in their layouts, and `scratch` has prepared->scratch_bytes. */
typedef void (*lk_own_fn)(lk_call *call, const lk_converted *in, float *scratch);

/* Memory for weights in the kernel's order, and whether they are there already; else the kernel makes them. */
typedef struct lk_packed {
    float *data;
    bool is_made;
} lk_packed;

/* Of the call that lk__own_run runs: prepared->packed_bytes that are kept, or `otherwise`. */
lk_packed lk__own_packed(const lk_call *call, float *otherwise);

/* `prepare` fills the layouts (NULL: plain), scratch_bytes, problem and implementation, once for each `key`.
 * Errors: LK_ERR_MEMORY, LK_ERR_BACKEND. */
lk_status lk__own_run(lk_call *call, const lk_key *key, lk_prepare_fn prepare, lk_own_fn compute);

#endif
