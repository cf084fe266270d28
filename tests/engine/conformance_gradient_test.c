/* Gradients of every differentiable operator, including views: on device "ref" in f64 against central differences, then
 * in f32 on the first device that $LOCKSTEP_TEST_DEVICES names (default 2xcpu) against "ref" in f64. Arguments name the
 * operators to test (default: all). */
#include "conformance_devices.h"

/* Differences are taken for this many elements of an operand, spread evenly, or for all if it has fewer. */
#define PROBES 12

/* The step h balances truncation, h^2, and cancellation, 1e-16 / h. */
#define STEP 1e-5
#define DIFFERENCE_TOLERANCE 2e-8

/* Relative to the largest element of an operand's gradient, for sums of up to a few thousand f32 products. The terms of
 * such a sum may cancel: the gradient of an expanded operand is a sum over its copies, and a gradient may be 0
 * everywhere, as in batch-norm of single elements. In these cases 1, the size of the terms, is added to the largest
 * element. */
#define F32_TOLERANCE 2e-5

typedef struct gradients {
    double *values[MAX_OPERANDS]; /* NULL: the operand has no gradient */
    double *seed;                 /* the result's gradient, with which the walk starts */
    int64_t seed_count;
} gradients;

static void free_gradients(gradients *g)
{
    for (int i = 0; i < MAX_OPERANDS; i++)
        free(g->values[i]);
    free(g->seed);
}

/* Draws the operands with a first run, which shows how many there are and their shapes. */
static void draw_operands(const conformance_case *c, trial *t)
{
    outcome first = outcome_of(c, t);
    free(first.elements);
}

static int make_leaves(trial *t, lk_tensor **leaves, int *index)
{
    int n = 0;
    for (int i = 0; i < t->operands->count; i++) {
        operand *o = &t->operands->item[i];
        if (!o->is_float)
            continue;
        o->leaf = lk_tensor_retain(operand_leaf(t, o));
        index[n] = i;
        leaves[n++] = o->leaf;
    }
    return n;
}

static void drop_leaves(operand_set *operands)
{
    for (int i = 0; i < operands->count; i++) {
        lk_tensor_release(operands->item[i].leaf);
        operands->item[i].leaf = NULL;
    }
}

static lk_tensor *draw_seed(lk_tensor *y, gradients *g)
{
    g->seed_count = lk_tensor_count(y);
    g->seed = allocate(g->seed_count, sizeof *g->seed);
    random_values(g->seed, g->seed_count, 1000, -1, 1, LK_F32);
    return tensor_from(lk_tensor_device(y), lk_tensor_dtype(y), lk_tensor_shape(y), g->seed);
}

/* If `gradient` is NULL, the result does not depend on the operand: zeros. */
static double *gradient_values(lk_tensor *gradient, int64_t count)
{
    return gradient ? read_values(gradient) : allocate(count, sizeof(double));
}

static void fail_case(const conformance_case *c, const trial *t, const char *what)
{
    fail_msg("%s, %s, %s operands: %s: %s", lk_op_name(c->op), c->name, layout_names[t->layout], what,
             lk_error_message());
}

static gradients analytic(const conformance_case *c, trial *t)
{
    gradients g = {.seed = NULL};
    lk_tensor *leaves[MAX_OPERANDS], *found[MAX_OPERANDS] = {NULL};
    int index[MAX_OPERANDS];
    lk_scope_begin();
    int n = make_leaves(t, leaves, index);
    lk_tape *tape = lk_tape_begin(leaves, n);
    lk_tensor *y = run_case(c, t);
    if (!tape || !y)
        fail_case(c, t, "forward");
    if (lk_tape_gradient(tape, y, draw_seed(y, &g), found) != LK_OK)
        fail_case(c, t, "backward");
    for (int i = 0; i < n; i++)
        g.values[index[i]] = gradient_values(found[i], t->operands->item[index[i]].count);
    lk_tape_release(tape);
    drop_leaves(t->operands);
    lk_scope_end();
    return g;
}

/* --- against differences ----------------------------------------------------------------------------------------- */

/* Σ seed · y */
static double objective(const conformance_case *c, trial *t, const gradients *g)
{
    outcome y = outcome_of(c, t);
    assert_int_equal(y.count, g->seed_count);
    double sum = 0;
    for (int64_t i = 0; i < y.count; i++)
        sum += g->seed[i] * value_at(y.elements, y.dtype, i);
    free(y.elements);
    return sum;
}

static double difference(const conformance_case *c, trial *t, const gradients *g, double *value)
{
    double before = *value;
    *value = before + STEP;
    double above = objective(c, t, g);
    *value = before - STEP;
    double below = objective(c, t, g);
    *value = before;
    return (above - below) / (2 * STEP);
}

static double check_differences(const conformance_case *c, trial *t, const gradients *g)
{
    double worst = 0, scale = 1 + fabs(objective(c, t, g));
    for (int i = 0; i < t->operands->count; i++) {
        operand *o = &t->operands->item[i];
        int64_t step = o->count / PROBES + 1;
        for (int64_t e = 0; o->is_float && e < o->count; e += step) {
            double numeric = difference(c, t, g, &o->values[e]), exact = g->values[i][e];
            double error = fabs(numeric - exact) / (scale + fabs(exact));
            if (!(error <= DIFFERENCE_TOLERANCE))
                fail_msg("%s, %s, %s operands: gradient of operand %d at %lld is %.12g, by differences %.12g",
                         lk_op_name(c->op), c->name, layout_names[t->layout], i, (long long)e, exact, numeric);
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

/* --- f32 against ref --------------------------------------------------------------------------------------------- */

static double largest(const double *values, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs(values[i]) > most ? fabs(values[i]) : most;
    return most;
}

static double check_f32(const conformance_case *c, const trial *t, const gradients *got, const gradients *want)
{
    double worst = 0;
    for (int i = 0; i < t->operands->count; i++) {
        if (!want->values[i])
            continue;
        int64_t count = t->operands->item[i].count;
        double most = largest(want->values[i], count), scale = most + (t->layout == EXPANDED || most == 0);
        for (int64_t e = 0; e < count; e++) {
            double error = fabs(got->values[i][e] - want->values[i][e]);
            if (!(error <= F32_TOLERANCE * scale))
                fail_msg("%s f32, %s, %s operands: gradient of operand %d at %lld is %.9g, expected %.9g",
                         lk_op_name(c->op), c->name, layout_names[t->layout], i, (long long)e, got->values[i][e],
                         want->values[i][e]);
            worst = scale > 0 && error / scale > worst ? error / scale : worst;
        }
    }
    return worst;
}

/* --- operators --------------------------------------------------------------------------------------------------- */

typedef struct worst {
    double difference, f32;
    int runs;
} worst;

static void check_layout(const conformance_case *c, operand_layout how, worst *w)
{
    operand_set operands = {.dtype = LK_F32};
    trial in_f64 = trial_on(ref, LK_F64, how, &operands), in_f32 = trial_on(tested, LK_F32, how, &operands);
    draw_operands(c, &in_f64);
    gradients want = analytic(c, &in_f64), got = analytic(c, &in_f32);
    double f32 = check_f32(c, &in_f32, &got, &want), differences = check_differences(c, &in_f64, &want);
    w->f32 = f32 > w->f32 ? f32 : w->f32;
    w->difference = differences > w->difference ? differences : w->difference;
    w->runs++;
    free_gradients(&want);
    free_gradients(&got);
    free_operands(&operands);
}

static void test_gradient(void **state)
{
    int op = *(const int *)*state;
    const char *kind = lk_device_kind(tested[0]);
    if (!lk_op_is_view(op) && !lk_op_implementation(op, kind, LK_F32)) {
        print_message("%-33s SKIP: unsupported on %s\n", lk_op_name(op), kind);
        return;
    }
    worst w = {0};
    for (int i = 0; i < CONFORMANCE_CASES; i++)
        for (int how = 0; how < LAYOUT_COUNT && conformance_cases[i].op == op; how++)
            if (!(conformance_cases[i].flags & NO_GRADIENT))
                check_layout(&conformance_cases[i], (operand_layout)how, &w);
    if (w.runs == 0)
        fail_msg("operator %s is differentiable and has no case that checks its gradient", lk_op_name(op));
    print_message("%-33s %3d runs  differences %.1e of %.1e, f32 %.1e of %.1e\n", lk_op_name(op), w.runs, w.difference,
                  DIFFERENCE_TOLERANCE, w.f32, F32_TOLERANCE);
}

int main(int argc, char **argv)
{
    return test_operators("gradients", test_gradient, lk_op_is_differentiable, argc, argv);
}
