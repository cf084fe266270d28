#include "program/numbers.h"
#include "base/mem.h"
#include "base/status.h"

static lk_number *numbers_probe(lk_number *slots, size_t n_slots, const lk_storage *storage)
{
    uint64_t hash = (uint64_t)(uintptr_t)storage * 0x9E3779B97F4A7C15u;
    for (size_t i = (size_t)(hash >> 32);; i++) {
        lk_number *slot = &slots[i & (n_slots - 1)];
        if (!slot->storage || slot->storage == storage)
            return slot;
    }
}

int lk__number_of(const lk_numbers *numbers, const lk_storage *storage)
{
    if (numbers->n_slots == 0)
        return -1;
    const lk_number *slot = numbers_probe(numbers->slots, numbers->n_slots, storage);
    return slot->storage ? slot->number : -1;
}

static lk_status numbers_grow(lk_numbers *numbers)
{
    size_t n_slots = numbers->n_slots ? 2 * numbers->n_slots : 256;
    lk_number *slots = lk__calloc(n_slots, sizeof *slots);
    if (!slots)
        return LK_ERR_MEMORY;
    for (size_t i = 0; i < numbers->n_slots; i++)
        if (numbers->slots[i].storage)
            *numbers_probe(slots, n_slots, numbers->slots[i].storage) = numbers->slots[i];
    lk__free(numbers->slots);
    numbers->slots = slots;
    numbers->n_slots = n_slots;
    return LK_OK;
}

lk_status lk__number_give(lk_numbers *numbers, const lk_storage *storage, int *number)
{
    if (2 * ((size_t)numbers->n + 1) > numbers->n_slots)
        LK_TRY(numbers_grow(numbers));
    lk_number *slot = numbers_probe(numbers->slots, numbers->n_slots, storage);
    if (!slot->storage)
        *slot = (lk_number){storage, numbers->n++};
    *number = slot->number;
    return LK_OK;
}

void lk__numbers_free(lk_numbers *numbers)
{
    lk__free(numbers->slots);
    *numbers = (lk_numbers){0};
}
