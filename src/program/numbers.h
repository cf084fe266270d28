/* Numbers for storages: 0, 1, … in the order in which they come up, so that what is known of a storage can lie in a
 * plain array, and is found without looking through calls. */
#ifndef LK_PROGRAM_NUMBERS_H
#define LK_PROGRAM_NUMBERS_H

#include "core/storage.h"

typedef struct lk_number {
    const lk_storage *storage; /* NULL: free */
    int number;
} lk_number;

/* Zeros: none yet. */
typedef struct lk_numbers {
    lk_number *slots; /* where a storage's hash, or the next free slot behind that, is */
    size_t n_slots;   /* a power of two, or 0 */
    int n;
} lk_numbers;

/* -1: it has none. */
int lk__number_of(const lk_numbers *numbers, const lk_storage *storage);

/* A storage without a number gets the next one. */
lk_status lk__number_give(lk_numbers *numbers, const lk_storage *storage, int *number);

void lk__numbers_free(lk_numbers *numbers);

#endif
