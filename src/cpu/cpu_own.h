/* Runs kernels that are not oneDNN's. A kernel states the layouts that it wants and gets its arguments in these. */
#pragma once

#include "cpu/onednn/cpu_convert.h"
#include "cpu/onednn/cpu_prepared.h"

/* The kernel itself. in[i] holds the elements of call->in[i] in prepared->layouts_in[i]; it is empty if the input is
 * absent, or neither f32, i32 nor bf16. The outputs have memory, in prepared->layouts_out. `scratch` has
 * prepared->scratch_bytes. */
typedef void (*lk_own_fn)(lk_call *call, const lk_converted *in, float *scratch);

/* Memory for packed weights. If is_made, an earlier call packed them; otherwise the kernel does. */
typedef struct lk_packed {
    float *data;
    bool is_made;
} lk_packed;

/* Returns the memory, of prepared->packed_bytes, in which this call's packed weights are kept between calls;
 * `otherwise` if none is kept. */
lk_packed lk__own_packed(const lk_call *call, float *otherwise);

/* Returns the layout of `like`, so that it need not be converted, or row-major if the outputs must be row-major. */
static inline dnnl_format_tag_t lk__own_tag(const lk_call *call, const lk_tensor *like)
{
    return call->free_layout ? lk__tag_of(like) : dnnl_nchw;
}

/* Returns the number of elements of x in memory in this layout (NULL: row-major), padding included. */
int64_t lk__own_elements(const lk_tensor *x, const lk_layout *layout);

/* Fills `prepared` for a call that computes each element by itself: all operands have this layout. */
void lk__own_prepare_elements(const lk_call *call, const lk_layout *layout, lk_prepared *prepared);

/* Runs `compute`. `prepare` runs once for each `key` and fills the layouts (NULL: row-major), scratch_bytes, problem
 * and implementation. Errors: LK_ERR_MEMORY, LK_ERR_BACKEND. */
lk_status lk__own_run(lk_call *call, const lk_key *key, lk_prepare_fn prepare, lk_own_fn compute);

/* The same for kernels that take f32 and bf16 in every tagged layout, but not bf16 channels in pairs: calls on these
 * run on f32 stand-ins (cpu_bf16.h). */
lk_status lk__own_run_tagged(lk_call *call, const lk_key *key, lk_prepare_fn prepare, lk_own_fn compute);
