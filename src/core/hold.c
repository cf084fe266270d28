#include "core/hold.h"
#include "base/mem.h"
#include "core/backend.h"

typedef struct held {
    struct held *next;
    lk_block *block;
    int branch;
    bool free;
} held;

struct lk_hold {
    held *list;
    int branch;
};

/* Returns the smallest free block that is large enough. */
static held *hold_find_free(const lk_hold *hold, size_t bytes)
{
    held *best = NULL;
    for (held *h = hold->list; h; h = h->next)
        if (h->free && h->branch == hold->branch && h->block->size >= bytes &&
            (!best || h->block->size < best->block->size))
            best = h;
    return best;
}

static lk_status hold_take(lk_device *device, lk_hold *hold, size_t bytes, lk_block **block)
{
    held *h = hold_find_free(hold, bytes);
    if (!h) {
        h = lk__calloc(1, sizeof *h);
        if (!h)
            return LK_ERR_MEMORY;
        lk_status status = lk__allocator_get(device->allocator, bytes, &h->block);
        if (status != LK_OK) {
            lk__free(h);
            return status;
        }
        h->branch = hold->branch;
        h->next = hold->list;
        hold->list = h;
    }
    h->free = false;
    *block = h->block;
    return LK_OK;
}

lk_status lk__device_take(lk_device *device, size_t bytes, lk_block **block)
{
    return device->hold ? hold_take(device, device->hold, bytes, block)
                        : lk__allocator_get(device->allocator, bytes, block);
}

void lk__device_put(lk_device *device, lk_block *block)
{
    if (!device->hold) {
        lk__allocator_put(device->allocator, block);
        return;
    }
    for (held *h = device->hold->list; h; h = h->next)
        if (h->block == block)
            h->free = true;
}

lk_status lk__hold_new(lk_hold **hold)
{
    *hold = lk__calloc(1, sizeof **hold);
    return *hold ? LK_OK : LK_ERR_MEMORY;
}

void lk__hold_use(lk_device *device, lk_hold *hold, int branch)
{
    device->hold = hold;
    if (hold)
        hold->branch = branch;
}

void lk__hold_free(lk_device *device, lk_hold *hold)
{
    while (hold && hold->list) {
        held *h = hold->list;
        hold->list = h->next;
        lk__allocator_put(device->allocator, h->block);
        lk__free(h);
    }
    lk__free(hold);
}
