/* The temporaries of kernels. A thread runs one kernel at a time, and a kernel that calls another frees its own
 * temporaries last, so temporaries form a stack. Each thread keeps memory for it, as large as any kernel has needed so
 * far. A temporary that is too large to keep is allocated for the call. */
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "ref/ref.h"

#include <string.h>

enum { MOST_KEPT = 1 << 20 };

typedef struct scratch_stack {
    char *memory;
    size_t size;
    size_t used; /* bytes in use, counted as if all of them fitted */
    size_t most; /* largest `used` so far, up to MOST_KEPT */
    bool is_kept;
} scratch_stack;

static _Thread_local scratch_stack own;

static void ref_scratch_free_stack(void)
{
    lk__free_aligned(own.memory);
    own = (scratch_stack){0};
}

static bool ref_scratch_is_stacked(size_t bytes)
{
    if (bytes > MOST_KEPT || !lk__mem_may_keep())
        return false;
    if (!own.is_kept)
        own.is_kept = lk__at_thread_end(ref_scratch_free_stack);
    return own.is_kept;
}

static lk_status ref_scratch_grow_stack(void)
{
    lk__free_aligned(own.memory);
    own.size = 0;
    own.memory = lk__alloc_aligned(own.most);
    if (!own.memory)
        return LK_ERR_MEMORY;
    own.size = own.most;
    return LK_OK;
}

/* Takes zeroed bytes from the stack. *memory stays NULL if they do not fit. */
static lk_status ref_scratch_push(lk_ref_scratch *scratch, size_t bytes, void **memory)
{
    size_t whole = lk__aligned_bytes(bytes);
    if (own.used == 0 && own.size < own.most)
        LK_TRY(ref_scratch_grow_stack());
    scratch->stacked += whole;
    own.used += whole;
    if (own.used > own.most && own.used <= MOST_KEPT)
        own.most = own.used;
    if (own.memory && own.used <= own.size)
        *memory = memset(own.memory + own.used - whole, 0, bytes);
    return LK_OK;
}

static void *ref_scratch_allocate(lk_ref_scratch *scratch, int64_t count, size_t size)
{
    void *block = NULL;
    if (scratch->blocks == LK_REF_MAX_SCRATCH)
        lk__fail(LK_ERR_MEMORY, "a kernel with more than %d temporaries", LK_REF_MAX_SCRATCH);
    else
        block = lk__calloc((size_t)count, size);
    if (block)
        scratch->block[scratch->blocks++] = block;
    else
        scratch->status = LK_ERR_MEMORY;
    return block;
}

static void *ref_scratch_new(lk_ref_scratch *scratch, int64_t count, size_t size)
{
    size_t bytes;
    void *memory = NULL;
    if (scratch->status == LK_OK && lk__mul_size((size_t)count, size, &bytes) && ref_scratch_is_stacked(bytes))
        scratch->status = ref_scratch_push(scratch, bytes, &memory);
    return memory || scratch->status != LK_OK ? memory : ref_scratch_allocate(scratch, count, size);
}

double *lk__ref_new(lk_ref_scratch *scratch, int64_t count)
{
    return ref_scratch_new(scratch, count, sizeof(double));
}

int64_t *lk__ref_new_int(lk_ref_scratch *scratch, int64_t count)
{
    return ref_scratch_new(scratch, count, sizeof(int64_t));
}

lk_status lk__ref_end(lk_ref_scratch *scratch)
{
    for (int i = 0; i < scratch->blocks; i++)
        lk__free(scratch->block[i]);
    own.used -= scratch->stacked;
    return scratch->status;
}
