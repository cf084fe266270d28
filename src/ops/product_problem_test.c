/* A product's text is complete, and no other text is accepted. */
#include "ops/product_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void texts_are_read_as_they_are_written(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "f32 a[64,800] b[800,500] bias to f32",       "tf32 a[64,800] b[800,500] to f32",
        "bf16 a[64,500] b[500,10] bias to bf16",      "bf16 a[800,64] transposed b[64,500] to f32",
        "bf16 a[64,10] b[10,500] transposed to bf16", "f32 a[1,1] transposed b[1,1] transposed bias to f32",
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        lk_product_problem p;
        char again[128];
        assert_true(lk__product_problem_parse("matmul", problems[i], &p));
        lk__product_problem_text(&p, again, sizeof again);
        assert_string_equal(again, problems[i]);
    }
}

static void values_are_where_they_belong(void **state)
{
    (void)state;
    lk_product_problem p;
    assert_true(lk__product_problem_parse("matmul", "bf16 a[7,64] transposed b[64,500] bias to f32", &p));
    assert_int_equal(p.dtype, LK_BF16);
    assert_int_equal(p.to, LK_F32);
    assert_true(p.rows == 7 && p.inner == 64 && p.columns == 500);
    assert_true(p.a_transposed && !p.b_transposed && p.bias && !p.tf32);
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "bf16",
        "f64 a[64,800] b[800,500] to f32",
        "bf16 a[64,800] b[801,500] to f32",
        "bf16 a[64,800] b[800,500] to f16",
        "bf16 a[64,800] b[800,500]",
        "bf16 a[064,800] b[800,500] to f32",
        "bf16 a[0,800] b[800,500] to f32",
        "bf16 a[-1,800] b[800,500] to f32",
        "bf16 a[1000000,800] b[800,10000000000] to f32",
        "bf16 a[64,99999999999999999999] b[99999999999999999999,5] to f32",
        "bf16 a[64,800]transposed b[800,500] to f32",
        "bf16 a[64,800] b[800,500] bias  to f32",
        "bf16 a[64,800] b[800,500] to f32 ",
    };
    lk_product_problem p;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(lk__product_problem_parse("matmul", texts[i], &p));
    assert_false(lk__product_problem_parse("conv2d", "bf16 a[64,500] b[500,10] to bf16", &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read_as_they_are_written),
        cmocka_unit_test(values_are_where_they_belong),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
