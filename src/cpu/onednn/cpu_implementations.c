/* lk_device_implementations: the implementations that ran on a device. */
#include "base/mem.h"
#include "core/backend.h"
#include "cpu/cpu.h"
#include "cpu/onednn/cpu_state.h"

#include <stdlib.h>
#include <string.h>

static int cpu_implementations_compare_prepared(const void *a, const void *b)
{
    const lk_prepared *left = *(const lk_prepared *const *)a, *right = *(const lk_prepared *const *)b;
    int order = strcmp(left->op, right->op);
    if (order == 0)
        order = strcmp(left->problem, right->problem);
    return order ? order : strcmp(left->implementation, right->implementation);
}

/* A problem has several prepared calls if its inputs came in several layouts; each text is visited once. */
static void cpu_implementations_visit_different(lk_prepared *const *sorted, int n, lk_implementation_fn visit,
                                                void *user)
{
    for (int i = 0; i < n; i++)
        if (i == 0 || cpu_implementations_compare_prepared(&sorted[i - 1], &sorted[i]) != 0)
            visit(user, sorted[i]->op, sorted[i]->problem, sorted[i]->implementation);
}

static lk_status cpu_implementations_visit_locked(lk_cpu *cpu, lk_implementation_fn visit, void *user)
{
    lk_prepared **sorted = lk__calloc((size_t)cpu->n_prepared, sizeof(lk_prepared *));
    int n = 0;
    if (!sorted)
        return LK_ERR_MEMORY;
    for (int i = 0; i < LK_CPU_BUCKETS; i++)
        for (lk_prepared *prepared = cpu->buckets[i]; prepared; prepared = prepared->next)
            sorted[n++] = prepared;
    qsort(sorted, (size_t)n, sizeof *sorted, cpu_implementations_compare_prepared);
    cpu_implementations_visit_different(sorted, n, visit, user);
    lk__free(sorted);
    return LK_OK;
}

lk_status lk__cpu_implementations(lk_device *device, lk_implementation_fn visit, void *user)
{
    lk_cpu *cpu = device->state;
    pthread_mutex_lock(&cpu->lock);
    lk_status status = cpu_implementations_visit_locked(cpu, visit, user);
    pthread_mutex_unlock(&cpu->lock);
    return status;
}
