/* Work runs on the device of its tensors' storages, so a device that reads in place has storages of its own over the
 * stored memory. The engine does not know that they overlap with the stored ones. So an update is bracketed by two
 * entries on the storing device's queue that write the readers' storages: the update waits for earlier readers, and
 * later readers wait for the update. */
#include "dist/sum/stored.h"

#include "base/mem.h"
#include "base/refcount.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "core/trace.h"
#include "lockstep/ops.h"

/* A device's copy of a stored block. */
typedef struct stored_copy {
    lk_tensor *from, *to;
} stored_copy;

typedef struct stored_bracket {
    lk_task task;
    lk_stored *stored;
} stored_bracket;

struct lk_stored {
    lk_refcount references; /* of entries in flight, and the caller's */
    lk_device *home;        /* the device that stores the variables; the caller's */
    lk_tensor **blocks;     /* [n_blocks]: each whole stored storage as one tensor */
    lk_storage **sources;   /* [n_blocks]: the storages of the blocks */
    int n_blocks;
    stored_copy *copies;
    int n_copies;
    lk_tensor **in_place; /* tensors over the blocks' memory */
    lk_storage **readers; /* the storages of in_place */
    int n_in_place;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static lk_tensor *stored_as_tensor(lk_storage *storage)
{
    lk_tensor like = {.dtype = LK_F32, .shape = LK_SHAPE((int64_t)(storage->bytes / sizeof(float))), .strides = {1}};
    return lk__tensor_over(storage, &like);
}

/* Lists the distinct storages of the stored variables. Their memory does not move: variables are written in place. */
static lk_status stored_list_blocks(lk_stored *s, lk_tensor *const *stored, int n)
{
    for (int i = 0; i < n; i++) {
        lk_storage *storage = stored[i]->storage;
        int b = 0;
        while (b < s->n_blocks && s->sources[b] != storage)
            b++;
        if (b < s->n_blocks)
            continue;
        LK_TRY(lk_tensor_wait(stored[i]));
        LK_TRY(lk__tensor_make_plain(stored[i]));
        s->blocks[b] = stored_as_tensor(storage);
        if (!s->blocks[b])
            return LK_ERR_MEMORY;
        s->sources[b] = storage;
        s->n_blocks++;
    }
    return LK_OK;
}

static void stored_release_block(void *block)
{
    lk_tensor_release(block);
}

/* Returns the block as the device reads it, owned by the open scope. */
static lk_tensor *stored_reach(lk_stored *s, lk_tensor *block, lk_device *device)
{
    if (s->home->backend->offload || device->backend->offload) {
        lk_tensor *to = lk_copy(block, device);
        if (to)
            s->copies[s->n_copies++] = (stored_copy){block, lk_tensor_retain(to)};
        return to;
    }
    lk_tensor *over = lk_tensor_wrap(device, LK_F32, block->shape, lk__data(block), stored_release_block, block);
    if (!over)
        return NULL;
    lk_tensor_retain(block);
    s->readers[s->n_in_place] = over->storage;
    s->in_place[s->n_in_place++] = lk_tensor_retain(over);
    return over;
}

static lk_status stored_reach_all(lk_stored *s, lk_tensor *const *stored, int n, lk_device *device, lk_tensor **readers)
{
    if (device == s->home) {
        for (int i = 0; i < n; i++)
            readers[i] = lk_tensor_retain(stored[i]);
        return LK_OK;
    }
    for (int b = 0; b < s->n_blocks; b++) {
        lk_tensor *block = stored_reach(s, s->blocks[b], device);
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

static lk_status stored_build(lk_stored *s, lk_tensor *const *stored, int n, lk_device *const *devices, int n_devices,
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
    LK_TRY(stored_list_blocks(s, stored, n));
    for (int d = 0; d < n_devices; d++)
        LK_TRY(stored_reach_all(s, stored, n, devices[d], readers + (size_t)d * blocks));
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
    (*s)->home = lk_tensor_device(stored[0]);
    lk_scope_begin();
    lk_status status = stored_build(*s, stored, n, devices, n_devices, readers);
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
    LK_FREE_ALL(s->blocks, s->sources, s->copies, s->in_place, s->readers, s);
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static lk_status stored_bracket_run(lk_task *task)
{
    (void)task;
    return LK_OK;
}

static void stored_bracket_release(lk_task *task)
{
    stored_bracket *b = (stored_bracket *)task;
    lk_device *home = task->device;
    lk__stored_release(b->stored);
    lk__device_free(home, b);
    lk__device_release_memory(home);
}

/* Pushes an entry that writes the readers' storages. After an update it also reads the stored blocks, so that a failed
 * update poisons what readers see. */
static lk_status stored_push_bracket(lk_stored *s, int n_reads)
{
    if (s->n_in_place == 0)
        return LK_OK;
    stored_bracket *b = lk__device_calloc(s->home, 1, sizeof *b);
    if (!b)
        return LK_ERR_MEMORY;
    b->task = (lk_task){.device = s->home,
                        .reads = s->sources,
                        .writes = s->readers,
                        .n_reads = n_reads,
                        .n_writes = s->n_in_place,
                        .run = stored_bracket_run,
                        .release = stored_bracket_release};
    b->stored = s;
    lk__refcount_retain(&s->references);
    lk__device_retain_memory(s->home);
    lk_status status = lk__engine_push_task(&b->task);
    if (status != LK_OK)
        stored_bracket_release(&b->task);
    return status;
}

lk_status lk__stored_begin_update(lk_stored *s)
{
    return stored_push_bracket(s, 0);
}

lk_status lk__stored_end_update(lk_stored *s)
{
    LK_TRY(stored_push_bracket(s, s->n_blocks));
    lk_phase before = lk__phase_set(LK_PHASE_EXCHANGE);
    lk_status status = LK_OK;
    for (int c = 0; c < s->n_copies && status == LK_OK; c++)
        status = lk_copy_into(s->copies[c].to, s->copies[c].from);
    lk__phase_set(before);
    return status;
}
