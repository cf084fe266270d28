/* A product's problem is everything that a library's choice of an algorithm for it depends on. */
#pragma once

#include "core/op.h"

/* y = a b + bias. a: [rows, inner], b: [inner, columns], transposed in memory or not. */
typedef struct lk_product_problem {
    lk_dtype dtype, to; /* of the operands, and of the result */
    int64_t rows, inner, columns;
    bool a_transposed, b_transposed, bias;
    bool tf32; /* f32 operands may be rounded to 10 bits of mantissa */
} lk_product_problem;

/* "bf16 a[64,500] transposed b[500,10] bias to f32" */
void lk__product_problem_text(const lk_product_problem *problem, char *text, size_t size);

/* The inverse. False: `op` is not matmul, or the text is not one that lk__product_problem_text writes. */
bool lk__product_problem_parse(const char *op, const char *text, lk_product_problem *problem);
