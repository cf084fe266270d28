/* The calls of an exported C file, as text, and what they are made of. */
#ifndef LK_EXPORT_C_CALLS_H
#define LK_EXPORT_C_CALLS_H

#include "export/c_plan.h"
#include "io/bytes.h"

/* A line for each call, below the name of its layer. */
void lk__c_put_calls(lk__bytes *out, const lk__network *network, const lk__c_plan *plan);

/* Hexadecimal: exact, in any locale. */
void lk__c_put_number(lk__bytes *out, float value);

/* "scratch + 16"; a place below 0: "NULL". Of several with ", " between them. */
void lk__c_put_place(lk__bytes *out, const char *array, int64_t place);
void lk__c_put_places(lk__bytes *out, const char *const *arrays, const int64_t *places, int n);

/* ", 3, 28" */
void lk__c_put_numbers(lk__bytes *out, const int64_t *numbers, size_t n);
#define LK__C_PUT_NUMBERS(out, ...) \
    lk__c_put_numbers(out, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

#endif
