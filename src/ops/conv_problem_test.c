/* A problem's text is complete, and no other text is accepted. */
#include "ops/conv_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void texts_are_read_as_they_are_written(void **state)
{
    (void)state;
    static const struct {
        const char *op, *text;
    } problems[] = {
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "bf16 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d_input_grad", "f32 x[1,16,9,300] w[24,16,5,1] stride 2x1 padding 2x0 dilation 2x1"},
        {"conv2d_weight_grad", "f32 x[7,12,8,8] w[20,3,3,3] stride 1x1 padding 1x1 dilation 1x1 groups 4"},
        {"conv2d", "tf32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 bias"},
        {"conv2d", "bf16 x[32,4,28,28] w[20,2,3,3] stride 1x1 padding 0x0 dilation 1x1 groups 2 bias direct"},
        {"conv2d_weight_grad", "bf16 x[7,12,8,8] w[20,12,3,3] stride 1x1 padding 1x1 dilation 1x1 to f32"},
        {"conv_block", "f32 x[9,4,8,8] w[6,4,3,3] stride 1x1 padding 1x1 dilation 1x1"},
        {"conv_block", "f32 x[9,4,8,8] w[6,4,3,3] stride 1x1 padding 1x1 dilation 1x1 relu"},
        {"conv_block",
         "f32 x[9,4,8,8] w[6,4,3,3] stride 1x1 padding 1x1 dilation 1x1 relu average 2x3 stride 2x4 padding 0x1"},
        {"conv_block",
         "f32 x[9,4,8,8] w[6,4,3,3] stride 1x1 padding 1x1 dilation 1x1 maximum 2x2 stride 2x2 padding 1x0"},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        lk_conv_problem problem;
        char text[320];
        if (!lk__conv_problem_parse(problems[i].op, problems[i].text, &problem))
            fail_msg("'%s %s' is not taken", problems[i].op, problems[i].text);
        assert_string_equal(lk_op_name(problem.op), problems[i].op);
        lk__conv_problem_text(&problem, text, sizeof text);
        assert_string_equal(text, problems[i].text);
    }
}

static void values_are_where_they_belong(void **state)
{
    (void)state;
    lk_conv_problem p;
    assert_true(lk__conv_problem_parse(
        "conv_block",
        "f32 x[9,4,8,7] w[6,4,3,5] stride 1x2 padding 3x4 dilation 1x1 relu maximum 2x3 stride 4x5 padding 0x1", &p));
    assert_int_equal(p.x.dim[3], 7);
    assert_int_equal(p.w.dim[3], 5);
    assert_int_equal(p.attrs.conv.stride[1], 2);
    assert_int_equal(p.attrs.conv.padding[0], 3);
    assert_int_equal(p.attrs.conv.groups, 1);
    assert_true(p.attrs.relu);
    assert_int_equal(p.attrs.pooling, LK_BLOCK_MAX_POOL);
    assert_int_equal(p.attrs.pool.kernel[1], 3);
    assert_int_equal(p.attrs.pool.stride[0], 4);
    assert_int_equal(p.attrs.pool.padding[1], 1);
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *op, *text;
    } others[] = {
        {"relu", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv_block_grad", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", ""},
        {"conv2d", "f32 x[32,1,28,28]"},
        {"conv2d", "f64 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3]  stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 "},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 groups 1"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 relu"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 direct bias"},
        {"conv2d", "bf16 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 to f32"},
        {"conv2d_input_grad", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 bias"},
        {"conv2d_weight_grad", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 to f32"},
        {"conv_block", "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 direct"},
        {"conv2d", "f32 x[32,1,28,028] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[0,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,-3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,2,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,1,28,28] w[20,1,3,3] stride 0x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,1,2,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[9999999999,9,99999,99999] w[20,9,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[99999999999999999999,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"},
        {"conv2d", "f32 x[32,6,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1 groups 6"},
        {"conv_block",
         "f32 x[9,4,8,8] w[6,4,3,3] stride 1x1 padding 1x1 dilation 1x1 relu average 3x3 stride 2x2 padding 0x0"},
        {"conv_block",
         "f32 x[9,4,4,4] w[6,4,3,3] stride 1x1 padding 0x0 dilation 1x1 relu average 3x3 stride 3x3 padding 0x0"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        lk_conv_problem problem;
        if (lk__conv_problem_parse(others[i].op, others[i].text, &problem))
            fail_msg("'%s %s' is taken", others[i].op, others[i].text);
    }
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
