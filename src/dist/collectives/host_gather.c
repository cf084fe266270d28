#include "dist/collectives/host_gather.h"

#include "base/abandon.h"
#include "base/heartbeat.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "lockstep/ops.h"

/* A tensor of the gathering. */
typedef struct host_gather_part {
    lk_tensor *value; /* NULL: another process sends it */
    lk_tensor *copy;  /* in the process's memory */
    int process;      /* that sends it */
} part;

/* An entry of the links' queue that copies this process's tensors to its memory, and exchanges them with the other
 * processes. */
typedef struct host_gather {
    lk_task task;
    lk_device *home; /* whose memory holds this entry */
    lk_group *group;
    lk_abandoned abandoned;
    bool is_kept; /* its copies for the rest of the process, because messages may still use them */
    int64_t n;
    lk_storage **reads, **writes; /* of values, and of copies */
    lk_group_message *messages;   /* room for those of all parts */
    part parts[];                 /* [n] */
} host_gather;

/* --- on the links' thread ----------------------------------------------------------------------------------------- */

static size_t host_gather_bytes(const lk_tensor *x)
{
    return (size_t)lk_tensor_count(x) * lk_dtype_size(x->dtype);
}

static lk_status host_gather_fetch(const part *p)
{
    LK_TRY(lk__storage_allocate(p->copy->storage, p->copy->storage->bytes, NULL));
    if (!p->value)
        return LK_OK;
    lk_device *device = lk_tensor_device(p->value);
    return device->backend->offload->read(device, lk__data(p->value), lk__data(p->copy), host_gather_bytes(p->copy));
}

static lk_status host_gather_exchange(const host_gather *g)
{
    int n = 0, here = lk__group_rank(g->group);
    for (int64_t i = 0; i < g->n; i++)
        LK_TRY(host_gather_fetch(&g->parts[i]));
    for (int64_t i = 0; i < g->n; i++) {
        const part *p = &g->parts[i];
        lk_group_message message = {.is_sent = p->value != NULL,
                                    .other = p->process,
                                    .data = lk__data(p->copy),
                                    .bytes = host_gather_bytes(p->copy)};
        if (!p->value)
            g->messages[n++] = message;
        for (int to = 0; to < lk__group_ranks(g->group) && p->value; to++) {
            message.other = to;
            if (to != here)
                g->messages[n++] = message;
        }
    }
    lk__activity_set(LK_ACTIVITY_WAIT_REMOTE, "exchange");
    return lk__group_exchange(g->group, LK_CHANNEL_DATA, g->messages, n);
}

static void host_gather_leave_out(lk_task *task, lk_status status, const char *why)
{
    lk__group_give_up(((host_gather *)task)->group, status, why);
}

static lk_status host_gather_run(lk_task *task)
{
    host_gather *g = (host_gather *)task;
    lk_status status = lk__group_check(g->group);
    if (status == LK_OK)
        status = host_gather_exchange(g);
    if (status != LK_OK) {
        g->is_kept = true;
        lk__abandon(&g->abandoned);
        host_gather_leave_out(task, status, lk_error_message());
    }
    return status;
}

static void host_gather_release(lk_task *task)
{
    host_gather *g = (host_gather *)task;
    lk_device *home = g->home;
    if (g->is_kept)
        return;
    for (int64_t i = 0; i < g->n; i++) {
        lk_tensor_release(g->parts[i].value);
        lk_tensor_release(g->parts[i].copy);
    }
    lk__device_free(home, g->reads);
    lk__device_free(home, g->writes);
    lk__device_free(home, g->messages);
    lk__device_free(home, g);
    lk__device_release_memory(home);
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static host_gather *host_gather_new(const lk_strategy *s, size_t most)
{
    lk_device *home = s->devices[0];
    host_gather *g = lk__device_calloc(home, 1, sizeof *g + most * sizeof g->parts[0]);
    if (!g)
        return NULL;
    lk__device_retain_memory(home);
    g->home = home;
    g->group = s->group;
    g->reads = lk__device_calloc(home, most, sizeof(lk_storage *));
    g->writes = lk__device_calloc(home, most, sizeof(lk_storage *));
    g->messages = lk__device_calloc(home, most * (size_t)lk__group_ranks(s->group), sizeof *g->messages);
    g->task = (lk_task){.device = lk__links_allreduce_describe(s->allreduce).queue,
                        .reads = g->reads,
                        .writes = g->writes,
                        .run = host_gather_run,
                        .leave_out = host_gather_leave_out,
                        .release = host_gather_release};
    if (g->reads && g->writes && g->messages)
        return g;
    host_gather_release(&g->task);
    return NULL;
}

static int host_gather_process_of(const lk_strategy *s, int rank)
{
    int process = 0;
    while (s->starts[process + 1] <= rank)
        process++;
    return process;
}

static lk_status host_gather_add(lk_call_site at, host_gather *g, const lk_strategy *s, lk_gathered *t)
{
    part *p = &g->parts[g->n];
    lk_tensor *value = t->value;
    if (value && !lk__tensor_is_dense(value) && !(value = lk_copy_at(at, value, lk_tensor_device(value))))
        return lk_error_status();
    LK_TRY(lk__tensor_new(g->task.device, value ? value->dtype : t->dtype, value ? value->shape : t->shape, &p->copy));
    g->n++;
    p->value = lk_tensor_retain(value);
    g->writes[g->task.n_writes++] = p->copy->storage;
    if (value) {
        g->reads[g->task.n_reads++] = value->storage;
    } else {
        p->process = host_gather_process_of(s, t->rank);
        t->copy = lk_tensor_retain(p->copy);
    }
    return LK_OK;
}

lk_status lk__host_gather(lk_call_site at, const lk_strategy *s, lk_gathered *tensors, int64_t n)
{
    if (n == 0)
        return LK_OK;
    host_gather *g = host_gather_new(s, (size_t)n);
    lk_status status = g ? LK_OK : LK_ERR_MEMORY;
    for (int64_t i = 0; i < n && status == LK_OK; i++)
        status = host_gather_add(at, g, s, &tensors[i]);
    if (status == LK_OK)
        status = lk__engine_push_task(&g->task);
    if (status != LK_OK && g)
        host_gather_release(&g->task);
    return status;
}
