#include "base/clock.h"
#include "base/mem.h"
#include "pjrt/pjrt.h"
#include "pjrt/pjrt_state.h"
#include "lockstep/pjrt.h"

#include <stdio.h>
#include <string.h>

/* --- the process's client ----------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    char path[4096]; /* lk_pjrt_use; empty: the environment names the plug-in */
    lk_pjrt_process process;
    lk_pjrt *found; /* what the plug-in listed; NULL: it was not asked yet, or has failed */
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *pjrt_device_path(void)
{
    return *the.path ? the.path : lk_pjrt_default_path();
}

/* A client stays, because plug-ins give a process only one. */
lk_status lk_pjrt_use(const char *path)
{
    lk_status status = LK_OK;
    pthread_mutex_lock(&the.lock);
    const char *before = pjrt_device_path();
    bool differs = path && (!before || strcmp(before, path) != 0);
    if (differs && the.process.session)
        status = lk__fail(LK_ERR_STATE, "PJRT plug-in: %s is in use; a process cannot use %s as well",
                          the.process.session->plugin.path, path);
    else if (differs && strlen(path) >= sizeof the.path)
        status = lk__fail(LK_ERR_ARGUMENT, "PJRT plug-in: its path is longer than %zu characters", sizeof the.path - 1);
    else if (differs) {
        snprintf(the.path, sizeof the.path, "%s", path);
        lk_pjrt_release(the.found);
        the.found = NULL;
    }
    pthread_mutex_unlock(&the.lock);
    return status;
}

/* Lists the devices, in another process. Under the lock. */
static lk_status pjrt_device_look(void)
{
    if (!the.found)
        LK_TRY(lk_pjrt_find_within(pjrt_device_path(), LK_PJRT_SECONDS, &the.found));
    return LK_OK;
}

static lk_status pjrt_device_open_process(void)
{
    LK_TRY(pjrt_device_look());
    if (the.found->n_devices == 0)
        LK_FAIL(LK_ERR_DEVICE, "%s: has no device", the.found->path);
    lk_pjrt_process *process = &the.process;
    LK_TRY(lk__pjrt_session_open(the.found->path, &process->session));
    lk_status status = lk__pjrt_modules_new(process->session, &process->modules);
    if (status == LK_OK)
        return LK_OK;
    lk__pjrt_session_close(process->session);
    process->session = NULL;
    return status;
}

lk_status lk__pjrt_process(const lk_pjrt_process **process)
{
    pthread_mutex_lock(&the.lock);
    lk_status status = the.process.session ? LK_OK : pjrt_device_open_process();
    pthread_mutex_unlock(&the.lock);
    *process = &the.process;
    return status;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static int pjrt_device_count(const char *platform)
{
    int n = 0;
    pthread_mutex_lock(&the.lock);
    if (pjrt_device_path()) {
        if (pjrt_device_look() != LK_OK)
            lk_error_clear();
        else if (!platform || strcmp(the.found->platform, platform) == 0)
            n = the.found->n_devices;
    }
    pthread_mutex_unlock(&the.lock);
    return n;
}

int lk__pjrt_available(void)
{
    return pjrt_device_count(NULL);
}

int lk__tpu_available(void)
{
    return pjrt_device_count("tpu");
}

lk_status lk__pjrt_describe(int index, char *text, int size)
{
    pthread_mutex_lock(&the.lock);
    lk_status status = pjrt_device_look();
    if (status == LK_OK && index >= the.found->n_devices)
        status = lk__fail(LK_ERR_DEVICE, "%s: has %d devices, and none is number %d", the.found->path,
                          the.found->n_devices, index);
    else if (status == LK_OK)
        snprintf(text, (size_t)size, "%s", the.found->devices[index]);
    pthread_mutex_unlock(&the.lock);
    return status;
}

lk_status lk__pjrt_describe_kind(char *text, int size)
{
    pthread_mutex_lock(&the.lock);
    lk_status status = pjrt_device_look();
    if (status == LK_OK)
        snprintf(text, (size_t)size, "platform %s, PJRT %d.%d, %s", the.found->platform, the.found->major,
                 the.found->minor, the.found->version);
    pthread_mutex_unlock(&the.lock);
    return status;
}

/* The plug-in's compiler chooses how an operator is computed, so the bits depend on the plug-in. */
static void pjrt_device_describe_choices(const lk_device *device, char *text, size_t size)
{
    (void)device;
    if (lk__pjrt_describe_kind(text, (int)size) == LK_OK)
        return;
    snprintf(text, size, "no plug-in");
    lk_error_clear();
}

static lk_status pjrt_device_choice_of_call(const lk_call *call, lk_call_choice *choice)
{
    (void)call;
    choice->op = NULL;
    return LK_OK;
}

const lk_choices lk__pjrt_choices = {.describe = pjrt_device_describe_choices, .of_call = pjrt_device_choice_of_call};

static lk_status pjrt_device_check(const lk_device *device, const lk_pjrt_session *session)
{
    if (device->index >= session->n_devices)
        LK_FAIL(LK_ERR_DEVICE, "%s: there is no such device: %s has %d", device->name, session->plugin.path,
                session->n_devices);
    if (strcmp(device->backend->kind, "tpu") == 0 && strcmp(session->platform, "tpu") != 0)
        LK_FAIL(LK_ERR_DEVICE, "%s: the devices of %s are of platform %s; pjrt:%d names any", device->name,
                session->plugin.path, session->platform, device->index);
    return LK_OK;
}

lk_status lk__pjrt_open(lk_device *device, void **out)
{
    const lk_pjrt_process *process;
    LK_TRY(lk__pjrt_process(&process));
    LK_TRY(pjrt_device_check(device, process->session));
    lk_pjrt_state *state = lk__calloc(1, sizeof *state);
    if (!state)
        return LK_ERR_MEMORY;
    *state = (lk_pjrt_state){.process = process, .session = process->session, .device = device->index};
    lk_status status = lk__pjrt_memory_new(state->session, state->device, &state->memory);
    if (status != LK_OK) {
        lk__free(state);
        return status;
    }
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->ended, NULL);
    *out = state;
    return LK_OK;
}

void lk__pjrt_close(lk_device *device, void *closed)
{
    (void)device;
    lk_pjrt_state *state = closed;
    lk__pjrt_memory_free(state->memory);
    pthread_cond_destroy(&state->ended);
    pthread_mutex_destroy(&state->lock);
    lk__free(state);
}

void *lk__pjrt_alloc(void *self, size_t bytes)
{
    const lk_pjrt_state *state = ((const lk_device *)self)->state;
    return lk__pjrt_memory_alloc(state->memory, bytes);
}

void lk__pjrt_free(void *self, void *data)
{
    const lk_pjrt_state *state = ((const lk_device *)self)->state;
    lk__pjrt_memory_drop(state->memory, data);
}

/* --- work in flight ----------------------------------------------------------------------------------------------- */

/* How many runs of modules may be in flight: enough to hide the host, and few enough to bound their results' memory. */
enum { MOST_WORKS = 128 };

struct lk_pjrt_work {
    lk_pjrt_state *state;
    lk_pjrt_event *done;
    uint64_t sequence;   /* the entry of the queue that started it */
    int stamp, n_stamps; /* the slots that get the time of its end, [stamp, stamp + n_stamps) */
    lk_pjrt_work *previous, *next;
};

static void pjrt_work_note_fault(lk_pjrt_state *state, lk_pjrt_error *error)
{
    lk_error_state kept;
    lk__error_save(&kept);
    lk_status status = lk__pjrt_check(&state->session->plugin, "work on a device", error);
    if (state->fault == LK_OK) {
        state->fault = status;
        snprintf(state->message, sizeof state->message, "%s", lk_error_message());
    }
    lk__error_restore(&kept);
}

/* On a thread of the plug-in. The state may be gone once the lock is free. */
static void pjrt_work_end(lk_pjrt_error *error, void *user)
{
    lk_pjrt_work *work = user;
    lk_pjrt_state *state = work->state;
    lk__pjrt_event_free(state->session, work->done);
    pthread_mutex_lock(&state->lock);
    if (error)
        pjrt_work_note_fault(state, error);
    for (int i = 0; i < work->n_stamps; i++)
        state->stamps[work->stamp + i] = lk__nanoseconds();
    *(work->previous ? &work->previous->next : &state->first) = work->next;
    *(work->next ? &work->next->previous : &state->last) = work->previous;
    state->n_works--;
    pthread_cond_broadcast(&state->ended);
    pthread_mutex_unlock(&state->lock);
    lk__free(work);
}

lk_status lk__pjrt_work_add(lk_pjrt_state *state, lk_pjrt_event *done)
{
    if (!done)
        return LK_OK;
    lk_pjrt_work *work = lk__calloc(1, sizeof *work);
    if (!work) {
        lk__pjrt_event_wait(state->session, done);
        return LK_ERR_MEMORY;
    }
    *work = (lk_pjrt_work){.state = state, .done = done, .sequence = atomic_load(&state->marked) + 1};
    pthread_mutex_lock(&state->lock);
    while (state->n_works >= MOST_WORKS)
        pthread_cond_wait(&state->ended, &state->lock);
    work->previous = state->last;
    *(state->last ? &state->last->next : &state->first) = work;
    state->last = work;
    state->n_works++;
    pthread_mutex_unlock(&state->lock);
    lk_status status = lk__pjrt_event_then(state->session, done, pjrt_work_end, work);
    if (status != LK_OK) /* nobody will tell when it ends */
        pjrt_work_end(NULL, work);
    return status;
}

/* Works are in the order in which they were started. */
static lk_status pjrt_work_wait(lk_pjrt_state *state, uint64_t sequence)
{
    pthread_mutex_lock(&state->lock);
    while (state->first && state->first->sequence <= sequence)
        pthread_cond_wait(&state->ended, &state->lock);
    lk_status status = state->fault == LK_OK ? LK_OK : lk__fail(state->fault, "%s", state->message);
    pthread_mutex_unlock(&state->lock);
    return status;
}

/* --- what the engine asks for ------------------------------------------------------------------------------------- */

static lk_status pjrt_offload_mark(lk_device *device, uint64_t sequence)
{
    lk_pjrt_state *state = device->state;
    atomic_store(&state->marked, sequence);
    return LK_OK;
}

static lk_status pjrt_offload_wait(lk_device *device, uint64_t sequence)
{
    return pjrt_work_wait(device->state, sequence);
}

/* Whatever uses a buffer waits for what makes it. */
static lk_status pjrt_offload_follow(lk_device *device, lk_device *other, uint64_t sequence)
{
    (void)device;
    (void)other;
    (void)sequence;
    return LK_OK;
}

/* Outside the synchronous engine a drain is the end of a queue, where no caller waits for a status. */
static lk_status pjrt_offload_drain(lk_device *device)
{
    lk_status status = pjrt_work_wait(device->state, UINT64_MAX);
    if (lk__engine_is_sync() || status == LK_OK)
        return status;
    lk_error_clear();
    return LK_OK;
}

static lk_status pjrt_offload_read(lk_device *device, const void *from, void *to, size_t bytes)
{
    const lk_pjrt_state *state = device->state;
    return lk__pjrt_memory_read(state->memory, from, to, bytes);
}

static lk_status pjrt_offload_write(lk_device *device, void *to, const void *from, size_t bytes, lk_dtype dtype)
{
    const lk_pjrt_state *state = device->state;
    return lk__pjrt_memory_write(state->memory, to, from, bytes, dtype);
}

static lk_status pjrt_offload_bring(lk_device *device, void *to, lk_device *other, const void *from, size_t bytes)
{
    const lk_pjrt_state *state = device->state, *source = other->state;
    return lk__pjrt_memory_bring(state->memory, to, source->memory, from, bytes);
}

/* The device reaches this point when the work that was started last has ended. Slots are used in order. */
static lk_status pjrt_offload_stamp(lk_device *device, int slot)
{
    lk_pjrt_state *state = device->state;
    pthread_mutex_lock(&state->lock);
    if (!state->last)
        state->stamps[slot] = lk__nanoseconds();
    else if (state->last->n_stamps++ == 0)
        state->last->stamp = slot;
    pthread_mutex_unlock(&state->lock);
    return LK_OK;
}

static lk_status pjrt_offload_read_stamps(lk_device *device, int n, int64_t *times)
{
    lk_pjrt_state *state = device->state;
    lk_status status = pjrt_work_wait(state, UINT64_MAX);
    memcpy(times, state->stamps, (size_t)n * sizeof *times);
    return status;
}

/* A plug-in that does not tell, such as one for the processor, has what the process has. */
static lk_status pjrt_offload_memory_left(lk_device *device, int64_t *bytes)
{
    const lk_pjrt_state *state = device->state;
    return lk__pjrt_memory_left(state->session, state->device, bytes);
}

static lk_status pjrt_offload_workspace(lk_device *device, int64_t *bytes)
{
    (void)device;
    *bytes = 0;
    return LK_OK;
}

const lk_offload lk__pjrt_offload = {
    .mark = pjrt_offload_mark,
    .wait = pjrt_offload_wait,
    .follow = pjrt_offload_follow,
    .drain = pjrt_offload_drain,
    .read = pjrt_offload_read,
    .write = pjrt_offload_write,
    .bring = pjrt_offload_bring,
    .stamp = pjrt_offload_stamp,
    .read_stamps = pjrt_offload_read_stamps,
    .memory_left = pjrt_offload_memory_left,
    .workspace = pjrt_offload_workspace,
};
