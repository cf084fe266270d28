/* relu and its gradient. oneDNN's relu turns NaN into 0, so these are own loops. They go over the elements in memory
 * order; padding is 0 in every layout and stays 0. */
#include "base/avx2.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/onednn/cpu_convert.h"

static void relu_elements(const float *x, float *y, size_t count)
{
    LK_ANY_ORDER
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] <= 0 ? 0 : x[i];
}

static void relu_grad_elements(const float *dy, const float *y, float *dx, size_t count)
{
    LK_ANY_ORDER
    for (size_t i = 0; i < count; i++) {
        float value = dy[i]; /* read unconditionally, or the loop cannot be vectorized */
        dx[i] = y[i] > 0 ? value : 0;
    }
}

/* Allocates `out` in `layout`; *count is the number of elements, padding included. */
static lk_status cpu_relu_allocate_elements(lk_tensor *out, const lk_layout *layout, size_t *count)
{
    size_t bytes = layout ? layout->bytes : out->storage->bytes;
    *count = bytes / sizeof(float);
    return lk__storage_allocate(out->storage, bytes, layout);
}

lk_status lk__cpu_relu(lk_call *call)
{
    const lk_layout *layout = call->free_layout ? call->in[0]->storage->layout : NULL;
    lk_tensor *out = call->out[0];
    lk_converted x;
    size_t count;
    lk_status status = lk__cpu_as(call->device, call->in[0], layout, &x);
    if (status == LK_OK)
        status = cpu_relu_allocate_elements(out, layout, &count);
    if (status == LK_OK)
        relu_elements(x.data, out->storage->data, count);
    lk__cpu_as_end(call->device, &x);
    return status;
}

static lk_status run_relu_grad(lk_call *call, const lk_layout *layout, lk_converted *dy, lk_converted *y)
{
    lk_tensor *out = call->out[0];
    size_t count;
    LK_TRY(lk__cpu_as(call->device, call->in[0], layout, dy));
    LK_TRY(lk__cpu_as(call->device, call->in[1], layout, y));
    LK_TRY(cpu_relu_allocate_elements(out, layout, &count));
    relu_grad_elements(dy->data, y->data, out->storage->data, count);
    return LK_OK;
}

/* dx goes to the operator that made y, so y's layout suits it best. */
lk_status lk__cpu_relu_grad(lk_call *call)
{
    const lk_layout *layout =
        call->in[1]->storage->layout ? call->in[1]->storage->layout : call->in[0]->storage->layout;
    lk_converted dy = {0}, y = {0};
    lk_status status = run_relu_grad(call, call->free_layout ? layout : NULL, &dy, &y);
    lk__cpu_as_end(call->device, &dy);
    lk__cpu_as_end(call->device, &y);
    return status;
}
