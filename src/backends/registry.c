/* The kinds of device and the kernel tables of each. This is the only file that names all backends. */
#include "base/mem.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "core/topology.h"
#include "cuda/cuda.h"
#include "pjrt/pjrt.h"
#include "ref/ref_table.h"
#include "lockstep/ops.h"
#ifdef LK_HAVE_ONEDNN
#include "cpu/cpu.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_dense.h"
#endif

#include <fenv.h>
#include <string.h>

/* A device computes with the rounding, denormals and exceptions that the ABI prescribes. A new thread inherits its
 * creator's control register, so it must be reset. */
static _Thread_local fenv_t callers_environment;

static void registry_enter_ref(lk_device *device, void *state)
{
    (void)device;
    (void)state;
    fegetenv(&callers_environment);
    fesetenv(FE_DFL_ENV);
}

static void registry_leave_ref(lk_device *device, void *state)
{
    (void)device;
    (void)state;
    fesetenv(&callers_environment);
}

/* A queue's own thread keeps the settings. In the synchronous engine the thread is the caller's, which gets its
 * settings back. */
static lk_status registry_open_ref(lk_device *device, void **state)
{
    *state = NULL;
    registry_enter_ref(device, NULL);
    if (lk__engine_is_sync())
        registry_leave_ref(device, NULL);
    return LK_OK;
}

static void registry_close_ref(lk_device *device, void *state)
{
    (void)device;
    (void)state;
}

#ifdef LK_HAVE_ONEDNN

static void registry_close_cpu(lk_device *device, void *state)
{
    (void)device;
    lk__cpu_close(state);
}

static void registry_enter_cpu(lk_device *device, void *state)
{
    registry_enter_ref(device, state);
    lk__cpu_enter();
}

static void registry_leave_cpu(lk_device *device, void *state)
{
    lk__cpu_leave();
    registry_leave_ref(device, state);
}

static lk_status registry_open_cpu(lk_device *device, void **state)
{
    registry_enter_cpu(device, NULL);
    lk_status status = lk__cpu_open(state);
    if (lk__engine_is_sync())
        registry_leave_cpu(device, NULL);
    return status;
}

static const lk_kernel_table *const cpu_tables[] = {&lk__cpu_table, &lk__cpu_bf16_table, &lk__ref_table, NULL};

static const lk_backend cpu = {
    .kind = "cpu",
    .tables = cpu_tables,
    .available = lk__topology_cores,
    .describe = lk__topology_describe,
    .open = registry_open_cpu,
    .close = registry_close_cpu,
    .enter = registry_enter_cpu,
    .leave = registry_leave_cpu,
    .alloc = lk__host_alloc,
    .free = lk__host_free,
    .to_plain = lk__cpu_to_plain,
    .multiply_adds = lk__cpu_multiply_adds,
    .implementations = lk__cpu_implementations,
    .choices = &lk__cpu_choices,
    .products = &lk__cpu_products,
    .merges = lk__cpu_merges,
    .stays_apart = lk__cpu_stays_apart,
    .bf16_is_fast = lk__cpu_bf16_is_fast,
};

#endif

static const lk_kernel_table *const ref_tables[] = {&lk__ref_table, NULL};

#define PLAIN_C_BACKEND(name)                                                                                   \
    {                                                                                                           \
        .kind = name, .tables = ref_tables, .available = lk__topology_cores, .describe = lk__topology_describe, \
        .open = registry_open_ref, .close = registry_close_ref, .enter = registry_enter_ref,                    \
        .leave = registry_leave_ref, .alloc = lk__host_alloc, .free = lk__host_free,                            \
    }

#ifndef LK_HAVE_ONEDNN
static const lk_backend cpu = PLAIN_C_BACKEND("cpu");
#endif

/* The oracle of the tests: plain C kernels only, on the same cores. */
static const lk_backend ref = PLAIN_C_BACKEND("ref");

/* This table is in every build: everything that depends on CUDA is in a plug-in that is loaded at run time. */
static const lk_kernel_table *const cuda_tables[] = {&lk__cuda_table, NULL};

static const lk_backend cuda = {
    .kind = "cuda",
    .tables = cuda_tables,
    .available = lk__cuda_available,
    .may_be_best = lk__cuda_has_driver,
    .describe = lk__cuda_describe,
    .identify = lk__cuda_identify,
    .describe_kind = lk__cuda_describe_kind,
    .open = lk__cuda_open,
    .close = lk__cuda_close,
    .enter = lk__cuda_enter,
    .alloc = lk__cuda_alloc,
    .free = lk__cuda_free,
    .offload = &lk__cuda_offload,
    .graphs = &lk__cuda_graphs,
    .links = &lk__cuda_links,
    .to_plain = lk__cuda_to_plain,
    .implementations = lk__cuda_implementations,
    .choices = &lk__cuda_choices,
    .merges = lk__cuda_merges,
    .has_tf32 = true,
    .bf16_is_fast = lk__cuda_bf16_is_fast,
};

/* These are in every build too: a plug-in is loaded at run time. Both kinds are devices of the same plug-in. */
static const lk_kernel_table *const pjrt_tables[] = {&lk__pjrt_table, NULL};

static const char *registry_pjrt_bf16_is_fast(const lk_device *device)
{
    return strcmp(device->backend->kind, "tpu") == 0 ? "TPUs multiply bf16" : NULL;
}

#define PJRT_BACKEND(name, count)                                                                                   \
    {                                                                                                               \
        .kind = name, .tables = pjrt_tables, .available = count, .describe = lk__pjrt_describe,                     \
        .describe_kind = lk__pjrt_describe_kind, .open = lk__pjrt_open, .close = lk__pjrt_close,                    \
        .alloc = lk__pjrt_alloc, .free = lk__pjrt_free, .offload = &lk__pjrt_offload, .modules = &lk__pjrt_modules, \
        .choices = &lk__pjrt_choices, .bf16_is_fast = registry_pjrt_bf16_is_fast,                                   \
    }

static const lk_backend tpu = PJRT_BACKEND("tpu", lk__tpu_available);
static const lk_backend pjrt = PJRT_BACKEND("pjrt", lk__pjrt_available);

const lk_backend *const lk__backends[] = {&cpu, &ref, &cuda, &tpu, &pjrt, NULL};

static bool registry_is_present(const lk_kernel *row, lk_dtype dtype)
{
    return row->run && (row->dtypes & LK_DTYPE_BIT(dtype));
}

const lk_kernel *lk__backend_kernel(const lk_backend *backend, int op, lk_dtype dtype, const char **implementation)
{
    for (int t = 0; backend->tables[t]; t++) {
        const lk_kernel *row = &backend->tables[t]->rows[op];
        if (!registry_is_present(row, dtype))
            continue;
        if (implementation)
            *implementation = backend->tables[t]->name;
        return row;
    }
    return NULL;
}

const lk_kernel *lk__backend_kernel_of(const lk_call *call)
{
    const lk_kernel_table *const *tables = call->device->backend->tables;
    for (int t = 0; tables[t]; t++) {
        const lk_kernel *row = &tables[t]->rows[call->op->id];
        if (registry_is_present(row, call->dtype) && (!row->takes || row->takes(call)))
            return row;
    }
    return NULL;
}

const char *lk_op_implementation(int op, const char *kind, lk_dtype dtype)
{
    const char *implementation = NULL;
    if (!lk_op_name(op) || (unsigned)dtype >= LK_DTYPE_COUNT)
        return NULL;
    for (int b = 0; lk__backends[b]; b++)
        if (strcmp(lk__backends[b]->kind, kind) == 0)
            lk__backend_kernel(lk__backends[b], op, dtype, &implementation);
    return implementation;
}

lk_status lk_device_implementations(lk_device *device, lk_implementation_fn visit, void *user)
{
    LK_TRY(lk_device_sync(device));
    return device->backend->implementations ? device->backend->implementations(device, visit, user) : LK_OK;
}
