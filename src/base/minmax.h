/* Small integer arithmetic: the smaller and the larger of two numbers, and division rounded up. */
#pragma once

#include <stdint.h>

static inline int64_t lk__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t lk__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ceil(a / b), for a >= 0 and b > 0. */
static inline int64_t lk__divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
