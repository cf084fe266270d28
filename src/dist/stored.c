/* A device that reads in place has storages of its own over the stored ones' memory, or operators would take its work
 * for the storing device's. The engine knows nothing of what they share: two entries of the storing device's queue
 * that write these storages, in front of an update and behind it, make the update wait for those who read before, and
 * those who read later wait for the update. */
#include "dist/stored.h"

#include "base/mem.h"
#include "base/refcount.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "lockstep/ops.h"

/* What a device has of a stored block. */
typedef struct copy {
    lk_tensor *from, *to;
} copy;

typedef struct bracket {
    lk_task task;
    lk_stored *stored;
} bracket;

struct lk_stored {
    lk_refcount references; /* of entries under way, and the caller's */
    lk_device *storage;     /* the caller's */
    lk_tensor **blocks;     /* [n_blocks]: all of each stored storage */
    lk_storage **sources;   /* [n_blocks]: theirs */
    int n_blocks;
    copy *copies;
    int n_copies;
    lk_tensor **in_place; /* over the blocks' memory */
    lk_storage **readers; /* theirs */
    int n_in_place;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static lk_tensor *whole_of(lk_storage *storage)
{
    lk_tensor like = {.dtype = LK_F32, .shape = LK_SHAPE((int64_t)(storage->bytes / sizeof(float))), .strides = {1}};
    return lk__tensor_over(storage, &like);
}

static int find_block(const lk_stored *s, const lk_storage *storage)
{
    int b = 0;
    while (b < s->n_blocks && s->sources[b] != storage)
        b++;
    return b;
}

/* The blocks' memory does not move: a variable is written in place. */
static lk_status list_blocks(lk_stored *s, lk_tensor *const *stored, int n)
{
    for (int i = 0; i < n; i++) {
        lk_storage *storage = stored[i]->storage;
        int b = find_block(s, storage);
        if (b < s->n_blocks)
            continue;
        LK_TRY(lk_tensor_wait(stored[i]));
        LK_TRY(lk__tensor_make_plain(stored[i]));
        s->blocks[b] = whole_of(storage);
        if (!s->blocks[b])
            return LK_ERR_MEMORY;
        s->sources[b] = storage;
        s->n_blocks++;
    }
    return LK_OK;
}

static void release_block(void *block)
{
    lk_tensor_release(block);
}

/* The block as the device reads it, the open scope's. */
static lk_tensor *reach(lk_stored *s, lk_tensor *block, lk_device *device)
{
    if (s->storage->backend->offload || device->backend->offload) {
        lk_tensor *to = lk_copy(block, device);
        if (to)
            s->copies[s->n_copies++] = (copy){block, lk_tensor_retain(to)};
        return to;
    }
    lk_tensor *over = lk_tensor_wrap(device, LK_F32, block->shape, lk__data(block), release_block, block);
    if (!over)
        return NULL;
    lk_tensor_retain(block);
    s->readers[s->n_in_place] = over->storage;
    s->in_place[s->n_in_place++] = lk_tensor_retain(over);
    return over;
}

static lk_status reach_on(lk_stored *s, lk_tensor *const *stored, int n, lk_device *device, lk_tensor **readers)
{
    if (device == s->storage) {
        for (int i = 0; i < n; i++)
            readers[i] = lk_tensor_retain(stored[i]);
        return LK_OK;
    }
    for (int b = 0; b < s->n_blocks; b++) {
        lk_tensor *block = reach(s, s->blocks[b], device);
        if (!block)
            return lk_error_status();
        for (int i = 0; i < n; i++) {
            if (stored[i]->storage != s->sources[b])
                continue;
            readers[i] = lk__tensor_over(block->storage, stored[i]);
            if (!readers[i])
                return LK_ERR_MEMORY;
        }
    }
    return LK_OK;
}

static lk_status build(lk_stored *s, lk_tensor *const *stored, int n, lk_device *const *devices, int n_devices,
                       lk_tensor **readers)
{
    size_t blocks = (size_t)n, all = blocks * (size_t)n_devices;
    s->blocks = lk__calloc(blocks, sizeof *s->blocks);
    s->sources = lk__calloc(blocks, sizeof *s->sources);
    s->copies = lk__calloc(all, sizeof *s->copies);
    s->in_place = lk__calloc(all, sizeof *s->in_place);
    s->readers = lk__calloc(all, sizeof *s->readers);
    if (!s->blocks || !s->sources || !s->copies || !s->in_place || !s->readers)
        return LK_ERR_MEMORY;
    LK_TRY(list_blocks(s, stored, n));
    for (int d = 0; d < n_devices; d++)
        LK_TRY(reach_on(s, stored, n, devices[d], readers + (size_t)d * blocks));
    return LK_OK;
}

lk_status lk__stored_new(lk_tensor *const *stored, int n, lk_device *const *devices, int n_devices, lk_tensor **readers,
                         lk_stored **s)
{
    for (int64_t i = 0; i < (int64_t)n * n_devices; i++)
        readers[i] = NULL;
    *s = lk__calloc(1, sizeof **s);
    if (!*s)
        return LK_ERR_MEMORY;
    lk__refcount_init(&(*s)->references);
    (*s)->storage = lk_tensor_device(stored[0]);
    lk_scope_begin();
    lk_status status = build(*s, stored, n, devices, n_devices, readers);
    lk_scope_end();
    if (status == LK_OK)
        return LK_OK;
    for (int64_t i = 0; i < (int64_t)n * n_devices; i++) {
        lk_tensor_release(readers[i]);
        readers[i] = NULL;
    }
    lk__stored_release(*s);
    *s = NULL;
    return status;
}

void lk__stored_release(lk_stored *s)
{
    if (!s || !lk__refcount_release(&s->references))
        return;
    for (int c = 0; c < s->n_copies; c++)
        lk_tensor_release(s->copies[c].to);
    for (int p = 0; p < s->n_in_place; p++)
        lk_tensor_release(s->in_place[p]);
    for (int b = 0; b < s->n_blocks; b++)
        lk_tensor_release(s->blocks[b]);
    lk__free(s->blocks);
    lk__free(s->sources);
    lk__free(s->copies);
    lk__free(s->in_place);
    lk__free(s->readers);
    lk__free(s);
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static lk_status run_bracket(lk_task *task)
{
    (void)task;
    return LK_OK;
}

static void release_bracket(lk_task *task)
{
    bracket *b = (bracket *)task;
    lk_device *storage = task->device;
    lk__stored_release(b->stored);
    lk__device_free(storage, b);
    lk__device_release_memory(storage);
}

/* Behind an update it reads what was stored, so that a failure of the update reaches those who read. */
static lk_status push_bracket(lk_stored *s, int n_reads)
{
    if (s->n_in_place == 0)
        return LK_OK;
    bracket *b = lk__device_calloc(s->storage, 1, sizeof *b);
    if (!b)
        return LK_ERR_MEMORY;
    b->task = (lk_task){.device = s->storage,
                        .reads = s->sources,
                        .writes = s->readers,
                        .n_reads = n_reads,
                        .n_writes = s->n_in_place,
                        .run = run_bracket,
                        .release = release_bracket};
    b->stored = s;
    lk__refcount_retain(&s->references);
    lk__device_retain_memory(s->storage);
    lk_status status = lk__engine_push_task(&b->task);
    if (status != LK_OK)
        release_bracket(&b->task);
    return status;
}

lk_status lk__stored_begin_update(lk_stored *s)
{
    return push_bracket(s, 0);
}

lk_status lk__stored_end_update(lk_stored *s)
{
    LK_TRY(push_bracket(s, s->n_blocks));
    lk__phase before = lk__phase_set(LK_PHASE_EXCHANGE);
    lk_status status = LK_OK;
    for (int c = 0; c < s->n_copies && status == LK_OK; c++)
        status = lk_copy_into(s->copies[c].to, s->copies[c].from);
    lk__phase_set(before);
    return status;
}
