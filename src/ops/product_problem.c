#include "ops/product_problem.h"

#include "core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void lk__product_problem_text(const lk_product_problem *p, char *text, size_t size)
{
    snprintf(text, size, "%s a[%" PRId64 ",%" PRId64 "]%s b[%" PRId64 ",%" PRId64 "]%s%s to %s",
             p->tf32 ? "tf32" : lk_dtype_name(p->dtype), p->rows, p->inner, p->a_transposed ? " transposed" : "",
             p->inner, p->columns, p->b_transposed ? " transposed" : "", p->bias ? " bias" : "", lk_dtype_name(p->to));
}

static bool product_problem_parse_matrix(const char **text, const char *name, int64_t *rows, int64_t *columns,
                                         bool *transposed)
{
    if (!lk__text_take(text, name) || !lk__text_take_number(text, rows) || !lk__text_take(text, ",") ||
        !lk__text_take_number(text, columns) || !lk__text_take(text, "]"))
        return false;
    *transposed = lk__text_take(text, " transposed");
    return *rows > 0 && *columns > 0 && (double)*rows * (double)*columns < 1e12;
}

bool lk__product_problem_parse(const char *op, const char *text, lk_product_problem *p)
{
    char again[128];
    const char *rest = text;
    *p = (lk_product_problem){.dtype = LK_F32};
    if (strcmp(op, "matmul") != 0)
        return false;
    if (lk__text_take(&rest, "bf16"))
        p->dtype = LK_BF16;
    else
        p->tf32 = lk__text_take(&rest, "tf32");
    if ((p->dtype == LK_F32 && !p->tf32 && !lk__text_take(&rest, "f32")) ||
        !product_problem_parse_matrix(&rest, " a[", &p->rows, &p->inner, &p->a_transposed) ||
        !product_problem_parse_matrix(&rest, " b[", &p->inner, &p->columns, &p->b_transposed))
        return false;
    p->bias = lk__text_take(&rest, " bias");
    p->to = lk__text_take(&rest, " to bf16") ? LK_BF16 : LK_F32;
    lk__product_problem_text(p, again, sizeof again);
    return strcmp(text, again) == 0;
}
