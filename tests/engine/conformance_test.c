/* Every operator on two devices, in f32 and bf16, against the reference kernels in f64 on the same numbers. Results
 * must be inside a stated tolerance and have the same bits every time and on both devices. An operator without a case
 * fails. $LOCKSTEP_TEST_DEVICES names the devices (default 2xcpu); arguments name the operators to test (default: all).
 */
#include "conformance_devices.h"

typedef struct worst {
    int runs;
    double error, tolerance;
} worst;

/* The comparison, for messages. */
typedef struct context {
    const conformance_case *c;
    const trial *t;
} context;

static void fail_at(context x, const char *what, int64_t i, double got, double want, double tolerance)
{
    fail_msg("%s %s, %s, %s operands: %s at element %lld: %.17g, expected %.17g, tolerance %.3g", lk_op_name(x.c->op),
             lk_dtype_name(x.t->dtype), x.c->name, layout_names[x.t->layout], what, (long long)i, got, want, tolerance);
}

static void check_same_shape(context x, const outcome *got, const outcome *want)
{
    bool same = got->shape.ndim == want->shape.ndim && got->count == want->count;
    for (int i = 0; same && i < got->shape.ndim; i++)
        same = got->shape.dim[i] == want->shape.dim[i];
    if (!same)
        fail_at(x, "another shape than the reference", -1, (double)got->count, (double)want->count, 0);
}

static void check_same_bits(context x, const char *what, const outcome *got, const outcome *want)
{
    check_same_shape(x, got, want);
    assert_int_equal(got->dtype, want->dtype);
    size_t size = lk_dtype_size(got->dtype);
    for (int64_t i = 0; i < got->count; i++) {
        size_t at = (size_t)i * size;
        double a = value_at(got->elements, got->dtype, i), b = value_at(want->elements, want->dtype, i);
        bool both_nan = isnan(a) && isnan(b);
        if (!both_nan && memcmp((char *)got->elements + at, (char *)want->elements + at, size) != 0)
            fail_at(x, what, i, a, b, 0);
    }
}

static double error_of(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want)))
        return 0;
    double error = fabs(got - want);
    return isnan(error) ? INFINITY : error;
}

static double tolerance_of(const trial *t, lk_dtype dtype, double value, double absolute)
{
    double scale = t->scale == SCALE_RESULT ? fabs(value) : t->scale == SCALE_ONE ? 1 + fabs(value) : absolute;
    if (!isfinite(scale))
        return 0;
    return unit_roundoff(dtype) * (fabs(value) + (t->roundings - 1) * scale) + (double)(t->terms + 4) * 0x1p-24 * scale;
}

static void check_close(context x, const outcome *got, const outcome *want, const outcome *absolute, worst *w)
{
    check_same_shape(x, got, want);
    for (int64_t i = 0; i < got->count; i++) {
        double a = value_at(got->elements, got->dtype, i), b = value_at(want->elements, want->dtype, i);
        double bound = absolute->elements ? fabs(value_at(absolute->elements, absolute->dtype, i)) : 0;
        double error = error_of(a, b), tolerance = tolerance_of(x.t, got->dtype, b, bound);
        if (error > tolerance)
            fail_at(x, "too far from the reference", i, a, b, tolerance);
        if (error * w->tolerance >= w->error * tolerance && tolerance > 0) {
            w->error = error;
            w->tolerance = tolerance;
        }
    }
}

static bool is_integer(lk_dtype dtype)
{
    return dtype == LK_I32 || dtype == LK_I64 || dtype == LK_U8;
}

static void check_against_reference(context x, const outcome *got, operand_set *operands, worst *w)
{
    trial in_f64 = trial_on(ref, LK_F64, x.t->layout, operands);
    outcome want = outcome_of(x.c, &in_f64), absolute = {0};
    if (is_integer(got->dtype)) {
        check_same_bits(x, "not the reference's integer", got, &want);
    } else {
        if (x.t->scale == SCALE_ABSOLUTE) {
            in_f64.absolute = true;
            absolute = outcome_of(x.c, &in_f64);
        }
        check_close(x, got, &want, &absolute, w);
    }
    free(want.elements);
    free(absolute.elements);
}

static void check_repeats(context x, const outcome *got, trial again, const char *what)
{
    outcome other = outcome_of(x.c, &again);
    check_same_bits(x, what, &other, got);
    free(other.elements);
}

static void check_bits(context x, const outcome *got, operand_set *operands)
{
    lk_device *const other_way[] = {tested[1], tested[0]};
    check_repeats(x, got, trial_on(tested, LK_F32, x.t->layout, operands), "other bits in a second run");
    check_repeats(x, got, trial_on(other_way, LK_F32, x.t->layout, operands), "other bits on a second device");
    if (x.c->flags & EXACT)
        check_repeats(x, got, trial_on(ref, LK_F32, x.t->layout, operands), "other bits than the reference");
}

static const char *implementation_of(const conformance_case *c, lk_dtype dtype)
{
    return lk_op_implementation(c->op, lk_device_kind(tested[0]), c->flags & OF_BYTES ? LK_U8 : dtype);
}

/* False if the case has no operands, so that all layouts are the same. */
static bool check_layout(const conformance_case *c, lk_dtype dtype, operand_layout how, worst *w)
{
    operand_set operands = {.dtype = dtype};
    trial t = trial_on(tested, dtype, how, &operands);
    outcome got = outcome_of(c, &t);
    bool supported = lk_op_is_view(c->op) || implementation_of(c, dtype);
    assert_int_equal(got.dtype != LK_DTYPE_COUNT, supported);
    if (supported) {
        context x = {c, &t};
        check_against_reference(x, &got, &operands, w);
        if (dtype == LK_F32)
            check_bits(x, &got, &operands);
        w->runs++;
    }
    bool takes_operands = operands.count > 0;
    free(got.elements);
    free_operands(&operands);
    return takes_operands;
}

static void report(int op, lk_dtype dtype, const char *implementation, const worst *w)
{
    if (implementation)
        print_message("%-33s %-4s  %-6s  %3d runs  error %.2e, tolerance %.2e\n", lk_op_name(op), lk_dtype_name(dtype),
                      implementation, w->runs, w->error, w->tolerance);
    else
        print_message("%-33s %-4s  SKIP: unsupported on %s\n", lk_op_name(op), lk_dtype_name(dtype),
                      lk_device_kind(tested[0]));
}

/* Returns whether case i is tried in this layout. A PJRT device compiles a module for each shape and layout, which is
 * nearly all of the time, so there a case has two layouts, the second in turn. */
static bool is_tried(int i, operand_layout how)
{
    return how == DENSE || strcmp(lk_device_kind(tested[0]), "pjrt") != 0 || (int)how == 1 + i % (LAYOUT_COUNT - 1);
}

static void check_dtype(int op, lk_dtype dtype)
{
    worst w = {0};
    const conformance_case *any = NULL;
    for (int i = 0; i < CONFORMANCE_CASES; i++) {
        const conformance_case *c = &conformance_cases[i];
        if (c->op != op || (dtype == LK_BF16 && (c->flags & NO_BF16)))
            continue;
        any = c;
        for (int how = 0; how < LAYOUT_COUNT; how++)
            if (is_tried(i, (operand_layout)how) && !check_layout(c, dtype, (operand_layout)how, &w))
                break;
    }
    if (any)
        report(op, dtype, lk_op_is_view(op) ? "view" : implementation_of(any, dtype), &w);
}

static void test_operator(void **state)
{
    int op = *(const int *)*state;
    int cases = 0;
    for (int i = 0; i < CONFORMANCE_CASES; i++)
        cases += conformance_cases[i].op == op;
    if (cases == 0)
        fail_msg("operator %s has no case in conformance_cases.h", lk_op_name(op));
    check_dtype(op, LK_F32);
    check_dtype(op, LK_BF16);
}

int main(int argc, char **argv)
{
    return test_operators("conformance", test_operator, NULL, argc, argv);
}
