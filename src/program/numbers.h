/* Numbers for storages: 0, 1, … in the order in which they are first seen. Facts about storages can then be
 * kept in a plain array and found without searching calls. */
#pragma once

#include "core/storage.h"

typedef struct lk_number {
    const lk_storage *storage; /* NULL: free */
    int number;
} lk_number;

/* Zero-initialized: no numbers yet. */
typedef struct lk_numbers {
    lk_number *slots; /* a hash table with linear probing */
    size_t n_slots;   /* a power of two, or 0 */
    int n;
} lk_numbers;

/* Returns the storage's number; -1: it has none. */
int lk__number_of(const lk_numbers *numbers, const lk_storage *storage);

/* Sets *number to the storage's number; a new storage gets the next one. */
lk_status lk__number_give(lk_numbers *numbers, const lk_storage *storage, int *number);

void lk__numbers_free(lk_numbers *numbers);
