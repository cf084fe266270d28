/* Writes the calls of an exported C file as text. */
#pragma once

#include "export/c_plan.h"
#include "io/bytes.h"

/* Writes a line for each call, below the name of its layer. */
void lk__c_put_calls(lk_bytes *out, const lk_network *network, const lk_c_plan *plan);

/* Writes a number in hexadecimal, which is exact and the same in any locale. */
void lk__c_put_number(lk_bytes *out, float value);

/* Writes "scratch + 16" for an offset into an array, and "NULL" for a negative offset; lk__c_put_offsets separates
 * several by ", ". */
void lk__c_put_offset(lk_bytes *out, const char *array, int64_t offset);
void lk__c_put_offsets(lk_bytes *out, const char *const *arrays, const int64_t *offsets, int n);

/* Writes ", 3, 28". */
void lk__c_put_numbers(lk_bytes *out, const int64_t *numbers, size_t n);
#define LK__C_PUT_NUMBERS(out, ...) \
    lk__c_put_numbers(out, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
