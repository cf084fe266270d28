/* Links between devices in the process's memory, used when sums are finished with other processes: a queue in addition
 * to those of the devices, so that they can compute while messages are in flight. Its thread runs on the first device's
 * core. */
#include "dist/transports/host_links.h"

#include "core/backend.h"
#include "dist/array_sum.h"

#include <fenv.h>
#include <string.h>

/* --- the queue's backend ------------------------------------------------------------------------------------------ */

/* Sums are made with the rounding and denormals that the ABI prescribes, on whatever thread. */
static _Thread_local fenv_t thread_environment;

static void host_links_enter(lk_device *device, void *state)
{
    (void)device;
    (void)state;
    fegetenv(&thread_environment);
    fesetenv(FE_DFL_ENV);
}

static void host_links_leave(lk_device *device, void *state)
{
    (void)device;
    (void)state;
    fesetenv(&thread_environment);
}

static lk_status host_links_open(lk_device *device, void **state)
{
    *state = NULL;
    host_links_enter(device, NULL);
    if (lk__engine_is_sync())
        host_links_leave(device, NULL);
    return LK_OK;
}

static void host_links_close(lk_device *device, void *state)
{
    (void)device;
    (void)state;
}

static int host_links_available(void)
{
    return 0;
}

static const lk_kernel_table *const no_tables[] = {NULL};
static const lk_backend backend = {
    .kind = "host links",
    .tables = no_tables,
    .available = host_links_available,
    .open = host_links_open,
    .close = host_links_close,
    .enter = host_links_enter,
    .leave = host_links_leave,
    .alloc = lk__host_alloc,
    .free = lk__host_free,
};

/* --- work --------------------------------------------------------------------------------------------------------- */

static lk_status host_links_pack(lk_device *device, const lk_links_copy *copies, int n)
{
    (void)device;
    for (int i = 0; i < n; i++)
        memcpy(copies[i].to, copies[i].from, (size_t)copies[i].count * sizeof(float));
    return LK_OK;
}

static lk_status host_links_copy(lk_device *links, int to, float *y, int from, const float *x, int64_t count)
{
    (void)links;
    (void)to;
    (void)from;
    memcpy(y, x, (size_t)count * sizeof *x);
    return LK_OK;
}

/* Adds up doubles: only small quantities, which every rank adds up, such as the sums of batch-norm. */
static void host_links_sum_doubles(const lk_links_sum *s)
{
    double *y = s->y;
    for (int64_t i = 0; i < s->count; i++) {
        double stack[LK_LINKS_LEVELS + 1] = {0};
        int depth = 0;
        for (int a = 0; a < s->n_addends; a++) {
            stack[depth++] = ((const double *)s->addends[a])[i];
            for (int n = 0; n < s->additions[a]; n++, depth--)
                stack[depth - 2] += stack[depth - 1];
        }
        y[i] = stack[0];
    }
}

static lk_status host_links_sum(lk_device *links, int on, const lk_links_sum *s)
{
    (void)links;
    (void)on;
    if (s->dtype == LK_F64) {
        host_links_sum_doubles(s);
        return LK_OK;
    }
    const float *addends[LK_LINKS_ADDENDS];
    float *y = s->y;
    for (int i = 0; i < s->n_addends; i++)
        addends[i] = s->addends[i];
    if (s->n_addends == 1 && addends[0] != y)
        memcpy(y, addends[0], (size_t)s->count * sizeof *y);
    else if (s->n_addends > 1)
        lk__array_sum(&(lk_array_sum){.addends = addends,
                                      .additions = s->additions,
                                      .n_addends = s->n_addends,
                                      .results = &y,
                                      .n_results = 1},
                      0, s->count);
    return LK_OK;
}

static lk_status host_links_clear(lk_device *links, int on, float *y, int64_t count)
{
    (void)links;
    (void)on;
    memset(y, 0, (size_t)count * sizeof *y);
    return LK_OK;
}

static lk_status host_links_join(lk_device *links)
{
    (void)links;
    return LK_OK;
}

const lk_links_table lk__host_links = {
    .backend = &backend,
    .dtypes = LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64),
    .in_place = true,
    .pack = host_links_pack,
    .copy = host_links_copy,
    .sum = host_links_sum,
    .clear = host_links_clear,
    .join = host_links_join,
};
