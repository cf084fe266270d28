/* Every alternative for a problem computes the same, and a tuning decides which of them runs. */
#include "core/device_testing.h"
#include "cpu/cpu_choice.h"

#include "core/tuning.h"
#include "cpu/isa.h"
#include "lockstep/autograd.h"
#include "lockstep/program.h"
#include "lockstep/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Channels that fill tiles, blocks or neither, images that fill lanes or do not, strides, groups, depthwise. */
static const lk_conv_problem problems[] = {
    {.x = {4, {9, 16, 10, 12}}, .w = {4, {24, 16, 3, 3}}, .attrs.conv = {{1, 1}, {0, 0}, {1, 1}, 1}},
    {.x = {4, {16, 16, 8, 8}}, .w = {4, {16, 16, 3, 3}}, .attrs.conv = {{1, 1}, {1, 1}, {1, 1}, 1}},
    {.x = {4, {8, 5, 9, 9}}, .w = {4, {7, 5, 5, 3}}, .attrs.conv = {{1, 1}, {0, 0}, {1, 1}, 1}},
    {.x = {4, {3, 16, 9, 9}}, .w = {4, {16, 16, 3, 3}}, .attrs.conv = {{2, 2}, {1, 1}, {1, 1}, 1}},
    {.x = {4, {8, 6, 7, 7}}, .w = {4, {9, 2, 3, 3}}, .attrs.conv = {{1, 1}, {0, 0}, {1, 1}, 3}},
    {.x = {4, {3, 32, 9, 8}}, .w = {4, {64, 32, 3, 3}}, .attrs.conv = {{1, 1}, {1, 1}, {1, 1}, 1}},
    {.x = {4, {3, 24, 9, 8}}, .w = {4, {24, 1, 5, 5}}, .attrs.conv = {{2, 1}, {2, 2}, {1, 1}, 24}},
};

static const int ops[] = {LK_OP_CONV2D, LK_OP_CONV2D_INPUT_GRAD, LK_OP_CONV2D_WEIGHT_GRAD};

static lk_tensor *numbers(lk_device *device, lk_dtype dtype, lk_shape shape, uint64_t purpose)
{
    return lk_uniform(device, dtype, shape, -1, 1, (lk_random_key){.seed = 3, .purpose = purpose});
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Returns y, dx and dw, one after the other; the caller frees them. */
static float *compute(lk_device *device, const lk_conv_problem *p, size_t *count)
{
    lk_scope_begin();
    lk_tensor *leaves[] = {numbers(device, p->dtype, p->x, 1), numbers(device, p->dtype, p->w, 2)}, *out[3];
    lk_tape *tape = lk_tape_begin(leaves, 2);
    out[0] = lk_conv2d(leaves[0], leaves[1], NULL, &p->attrs.conv);
    lk_tensor *dy = out[0] ? numbers(device, p->dtype, lk_tensor_shape(out[0]), 3) : NULL;
    if (lk_tape_gradient(tape, out[0], dy, out + 1) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_tape_release(tape);
    *count = 0;
    for (int i = 0; i < 3; i++)
        *count += (size_t)lk_tensor_count(out[i]);
    float *values = malloc(*count * sizeof *values), *at = values;
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)lk_tensor_count(out[i]);
        if (lk_tensor_read(lk_cast(out[i], LK_F32), at, n * sizeof *at) != LK_OK)
            fail_msg("%s", lk_error_message());
        at += n;
    }
    lk_scope_end();
    return values;
}

static void prefer(lk_device *device, const char *name)
{
    lk_tuning *tuning = lk_tuning_new("cpu");
    assert_non_null(tuning);
    lk__tuning_prefer(tuning, name);
    assert_int_equal(lk_device_set_tuning(device, tuning), LK_OK);
    lk_tuning_release(tuning);
}

typedef struct count_of {
    const char *problem, *implementation; /* its beginning */
    int n;
} count_of;

static void count(void *user, const char *op, const char *problem, const char *implementation)
{
    count_of *c = user;
    if (strncmp(op, "conv2d", 6) == 0 && strcmp(problem, c->problem) == 0)
        c->n += strncmp(implementation, c->implementation, strlen(c->implementation)) == 0;
}

/* Counts the directions of the problem that ran on the implementation. */
static int directions(lk_device *device, const lk_conv_problem *problem, const char *name)
{
    char text[LK_CHOICE_TEXT];
    lk__conv_problem_text(problem, text, sizeof text);
    count_of c = {text, name, 0};
    assert_int_equal(lk_device_implementations(device, count, &c), LK_OK);
    return c.n;
}

/* Winograd's points are rounded to bf16, too, which costs about three binary digits more than rounding the results. */
static float tolerance_of(const lk_conv_problem *problem, const char *name)
{
    if (problem->dtype == LK_F32)
        return 16e-4F;
    return strstr(name, "winograd") && strstr(name, "bf16") ? 1.0F / 2 : 1.0F / 64;
}

/* An implementation runs if it takes the problem of a direction, and then gives the reference's result. */
static void check_alternative(const lk_conv_problem *problem, const char *name, const float *want, size_t n_want)
{
    lk_device *device = open_device("cpu");
    int taken = 0;
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        lk_conv_problem p = *problem;
        char text[LK_CHOICE_TEXT];
        const char *names[LK_MAX_CHOICES];
        int n;
        p.op = ops[o];
        lk__conv_problem_text(&p, text, sizeof text);
        assert_int_equal(lk__cpu_choices.list(lk_op_name(p.op), text, names, &n), LK_OK);
        for (int i = 0; i < n; i++)
            taken += strcmp(names[i], name) == 0;
    }
    prefer(device, name);
    size_t n_have;
    float *have = compute(device, problem, &n_have);
    assert_int_equal(n_have, n_want);
    for (size_t i = 0; i < n_have; i++)
        if (!(fabsf(have[i] - want[i]) <= tolerance_of(problem, name) * (1 + fabsf(want[i]))))
            fail_msg("%s: element %zu is %.9g, not %.9g", name, i, (double)have[i], (double)want[i]);
    free(have);
    if (problem->dtype == LK_F32 ? strcmp(name, "onednn") != 0
                                 : strstr(name, "bf16") != NULL) /* its name shows that it ran */
        assert_int_equal(directions(device, problem, name), taken);
    lk_device_release(device);
}

static void check_alternatives(lk_dtype dtype)
{
    lk_device *ref = open_device("ref");
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        lk_conv_problem problem = problems[i];
        char text[LK_CHOICE_TEXT];
        const char *names[LK_MAX_CHOICES];
        int n;
        size_t n_want;
        problem.dtype = dtype;
        float *want = compute(ref, &problem, &n_want);
        lk__conv_problem_text(&problem, text, sizeof text);
        /* every alternative of another direction is one here */
        assert_int_equal(lk__cpu_choices.list("conv2d_weight_grad", text, names, &n), LK_OK);
        assert_true(n >= 1);
        for (int k = 0; k < n; k++)
            check_alternative(&problem, names[k], want, n_want);
        free(want);
    }
    lk_device_release(ref);
}

static void every_alternative_has_the_references_result(void **state)
{
    (void)state;
    check_alternatives(LK_F32);
}

static void every_alternative_for_bf16_has_the_references_result(void **state)
{
    (void)state;
    if (!lk__isa_runs(&lk__isa_emulatedamxbf16)) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    lk__isa_force(&lk__isa_emulatedamxbf16);
    check_alternatives(LK_BF16);
    lk__isa_force(NULL);
}

/* --- choices by a tuning ------------------------------------------------------------------------------------------ */

static void a_tuning_decides_problem_by_problem(void **state)
{
    (void)state;
    const lk_conv_problem *problem = &problems[1];
    char text[LK_CHOICE_TEXT];
    lk__conv_problem_text(problem, text, sizeof text);
    lk_tuning *tuning = lk_tuning_new("cpu");
    assert_int_equal(lk_tuning_set(tuning, "conv2d", text, "onednn"), LK_OK);
    lk_device *tuned = open_device("cpu"), *other = open_device("cpu");
    assert_int_equal(lk_device_set_tuning(tuned, tuning), LK_OK);
    lk_tuning_release(tuning);
    size_t n;
    free(compute(tuned, problem, &n));
    free(compute(other, problem, &n));
    int own = directions(other, problem, "direct") + directions(other, problem, "winograd");
    int own_tuned = directions(tuned, problem, "direct") + directions(tuned, problem, "winograd");
    assert_int_equal(own_tuned, own == 3 ? 2 : 0);
    lk_device_release(tuned);
    lk_device_release(other);
}

static void the_first_alternative_is_the_built_in_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        char text[LK_CHOICE_TEXT];
        const char *names[LK_MAX_CHOICES];
        lk_call_choice choice;
        int n;
        lk_scope_begin();
        lk_device *device = open_device("cpu");
        lk_tensor *x = numbers(device, LK_F32, problems[i].x, 1), *w = numbers(device, LK_F32, problems[i].w, 2);
        lk_call call = {
            .op = &lk__op_conv2d, .device = device, .dtype = LK_F32, .free_layout = true, .n_in = 3, .in = {x, w}};
        memcpy(call.attrs.bytes, &problems[i].attrs.conv, sizeof problems[i].attrs.conv);
        lk__conv_problem_text(&problems[i], text, sizeof text);
        assert_int_equal(lk__cpu_choices.list("conv2d", text, names, &n), LK_OK);
        assert_int_equal(lk__cpu_choices.of_call(&call, &choice), LK_OK);
        assert_string_equal(choice.op, "conv2d");
        assert_string_equal(choice.problem, text);
        assert_string_equal(choice.implementation, names[0]);
        call.algorithms = LK_ALGORITHMS_DIRECT;
        assert_int_equal(lk__cpu_choices.of_call(&call, &choice), LK_OK);
        assert_null(strstr(choice.implementation, "winograd"));
        lk_scope_end();
        lk_device_release(device);
    }
}

/* --- fused or separate -------------------------------------------------------------------------------------------- */

static lk_status conv_relu_pool(void *user, lk_tensor *const *in, lk_tensor **out)
{
    (void)user;
    out[0] = lk_avg_pool2d(lk_relu(lk_conv2d(in[0], in[1], NULL, NULL)), &(lk_pool2d_opts){.kernel = {2, 2}});
    return out[0] ? LK_OK : lk_error_status();
}

typedef struct counts {
    int blocks, poolings;
} counts;

static void count_call(void *user, const char *op, const char *call)
{
    counts *seen = user;
    (void)call;
    seen->blocks += strcmp(op, "conv_block") == 0;
    seen->poolings += strcmp(op, "avg_pool2d") == 0;
}

static counts count_calls(lk_device *device, const lk_conv_problem *p)
{
    counts seen = {0};
    lk_scope_begin();
    lk_tensor *in[] = {numbers(device, LK_F32, p->x, 1), numbers(device, LK_F32, p->w, 2)};
    lk_program *program = lk_program_record(device, conv_relu_pool, NULL, in, 2, 1, NULL);
    assert_non_null(program);
    lk_program_visit(program, count_call, &seen);
    lk_program_release(program);
    lk_scope_end();
    return seen;
}

/* Expects the pooling to be fused unless `name` is "apart". With AVX2 there is a conv_block in either case, with the
 * pooling or without. */
static void expect_built_in(const lk_conv_problem *p, const char *name)
{
    lk_device *device = open_device("cpu");
    counts seen = count_calls(device, p);
    assert_int_equal(seen.poolings, strcmp(name, "apart") == 0);
    if (lk__isa() && lk__isa()->width == 8)
        assert_int_equal(seen.blocks, 1);
    lk_device_release(device);
}

/* Pooling is not fused with blocks of eight channels unless a tuning requires it; other blocks are fused unless a
 * tuning forbids it. A conv_block that a tuning keeps separate has no fused parts. */
static void a_tuning_decides_what_is_fused(void **state)
{
    (void)state;
    for (int channels = 5; channels <= 8; channels += 3) {
        lk_conv_problem p = {.op = LK_OP_CONV_BLOCK,
                             .x = LK_SHAPE(8, channels, 8, 8),
                             .w = LK_SHAPE(channels, channels, 3, 3),
                             .attrs = {.conv = {{1, 1}, {0, 0}, {1, 1}, 1},
                                       .pool = {.kernel = {2, 2}, .stride = {2, 2}},
                                       .pooling = LK_BLOCK_AVG_POOL,
                                       .relu = true}};
        char text[LK_CHOICE_TEXT];
        const char *names[LK_MAX_CHOICES];
        int n;
        lk__conv_problem_text(&p, text, sizeof text);
        assert_int_equal(lk__cpu_choices.list("conv_block", text, names, &n), LK_OK);
        expect_built_in(&p, names[0]);
        for (int i = 0; i < n; i++) {
            lk_device *device = open_device("cpu");
            lk_tuning *tuning = lk_tuning_new("cpu");
            assert_int_equal(lk_tuning_set(tuning, "conv_block", text, names[i]), LK_OK);
            assert_int_equal(lk_device_set_tuning(device, tuning), LK_OK);
            lk_tuning_release(tuning);
            counts seen = count_calls(device, &p);
            assert_int_equal(seen.blocks, strcmp(names[i], "apart") != 0);
            assert_int_equal(seen.poolings, seen.blocks == 0);
            lk_device_release(device);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_alternative_has_the_references_result),
        cmocka_unit_test(every_alternative_for_bf16_has_the_references_result),
        cmocka_unit_test(a_tuning_decides_problem_by_problem),
        cmocka_unit_test(the_first_alternative_is_the_built_in_one),
        cmocka_unit_test(a_tuning_decides_what_is_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
