/* Optimizers compared with their formulas in double, and with PyTorch's results for the same numbers. */
#include "optim/optim_test.h"

#include "optim/optimizer.h"
#include "optim/optimizer_torch.h"
#include "optim/optimizer_step.h"

static const char *const kinds[] = {"ref:0", "cpu:0"};

static void expect_close(const fixture *f, const double *want, double tolerance)
{
    float have[ELEMENTS];
    read_parameters(f, have);
    for (int i = 0; i < ELEMENTS; i++)
        if (!(fabs((double)have[i] - want[i]) <= tolerance))
            fail_msg("%s: element %d is %.9g, expected %.9g, tolerance %g", lk_device_name(f->device), i,
                     (double)have[i], want[i], tolerance);
}

/* --- PyTorch ------------------------------------------------------------------------------------------------------ */

/* The rounding of f32 in a few steps on numbers below 2. */
#define TORCH_TOLERANCE 1e-6

typedef struct torch_case {
    const char *name;
    const double *want;
    lk_optimizer_opts opts;
} torch_case;

static const torch_case torch_cases[] = {
    {"sgd", torch_sgd, {.kind = LK_SGD}},
    {"momentum", torch_momentum, {.kind = LK_SGD, .momentum = 0.9}},
    {"momentum and weight decay", torch_momentum_decay, {.kind = LK_SGD, .momentum = 0.9, .weight_decay = 0.05}},
    {"Nesterov's momentum and weight decay",
     torch_nesterov_decay,
     {.kind = LK_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.05}},
    {"Adam", torch_adam, {.kind = LK_ADAM, .epsilon = 1e-7}},
    {"Adam with weight decay",
     torch_adam_decay,
     {.kind = LK_ADAM, .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-7, .weight_decay = 0.05}},
    {"AdamW", torch_adamw_decay, {.kind = LK_ADAMW, .epsilon = 1e-7, .weight_decay = 0.05}},
    {"clipped", torch_clipped, {.kind = LK_SGD, .momentum = 0.9, .clip_norm = 1}},
};

static void run_torch_case(const torch_case *c, const char *kind)
{
    float values[ELEMENTS], gradients[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i * 7 % 11 - 5) / 8;
    fixture f = open_fixture(kind, &c->opts, values);
    for (int t = 0; t < 6; t++) {
        for (int i = 0; i < ELEMENTS; i++)
            gradients[i] = (float)((i * 5 + t * 3) % 13 - 6) / 16;
        step(&f, gradients, t < 3 ? 0.1 : 0.025);
    }
    expect_close(&f, c->want, TORCH_TOLERANCE);
    close_fixture(&f);
}

static void test_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof torch_cases / sizeof *torch_cases; i++) {
        print_message("%s\n", torch_cases[i].name);
        for (int k = 0; k < 2; k++)
            run_torch_case(&torch_cases[i], kinds[k]);
    }
}

/* --- the formulas, in double -------------------------------------------------------------------------------------- */

enum { STEPS = 20 };
#define FORMULA_TOLERANCE 5e-6

typedef struct model {
    const lk_optimizer_opts *opts; /* without zeros, which mean defaults */
    double w[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
    int t;
} model;

static double norm_of(const double *x, int begin, int end)
{
    double sum = 0;
    for (int i = begin; i < end; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void sgd_model(model *o, const double *gradient, double rate)
{
    for (int i = 0; i < ELEMENTS; i++) {
        double g = gradient[i] + o->opts->weight_decay * o->w[i];
        o->v[i] = o->opts->momentum * o->v[i] + g;
        o->w[i] -= rate * (o->opts->nesterov ? g + o->opts->momentum * o->v[i] : o->v[i]);
    }
}

static void adam_model(model *o, const double *gradient, double rate)
{
    const lk_optimizer_opts *opts = o->opts;
    double c1 = 1 - pow(opts->beta1, o->t), c2 = 1 - pow(opts->beta2, o->t);
    for (int i = 0; i < ELEMENTS; i++) {
        double g = gradient[i];
        if (opts->kind == LK_ADAMW)
            o->w[i] -= rate * opts->weight_decay * o->w[i];
        else
            g += opts->weight_decay * o->w[i];
        o->m[i] += (1 - opts->beta1) * (g - o->m[i]);
        o->v[i] += (1 - opts->beta2) * (g * g - o->v[i]);
        o->w[i] -= rate * (o->m[i] / c1) / (sqrt(o->v[i] / c2) + opts->epsilon);
    }
}

static void lars_model(model *o, const double *gradient, double rate)
{
    double w = norm_of(o->w, 0, MATRIX), g = norm_of(gradient, 0, MATRIX);
    double matrix_ratio = o->opts->trust * w / (g + o->opts->weight_decay * w);
    for (int i = 0; i < ELEMENTS; i++) {
        double ratio = i < MATRIX ? matrix_ratio : 1, decay = i < MATRIX ? o->opts->weight_decay : 0;
        o->v[i] = o->opts->momentum * o->v[i] + rate * ratio * (gradient[i] + decay * o->w[i]);
        o->w[i] -= o->v[i];
    }
}

static void model_step(model *o, const float gradients[ELEMENTS], double rate)
{
    double g[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        g[i] = (double)gradients[i];
    double norm = norm_of(g, 0, ELEMENTS), clip = o->opts->clip_norm;
    for (int i = 0; i < ELEMENTS && clip > 0 && norm > clip; i++)
        g[i] *= clip / norm;
    o->t++;
    if (o->opts->kind == LK_LARS)
        lars_model(o, g, rate);
    else if (o->opts->kind == LK_SGD)
        sgd_model(o, g, rate);
    else
        adam_model(o, g, rate);
}

static const lk_optimizer_opts formulas[] = {
    {.kind = LK_SGD},
    {.kind = LK_SGD, .weight_decay = 0.1},
    {.kind = LK_SGD, .momentum = 0.9, .clip_norm = 1.5},
    {.kind = LK_SGD, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
    {.kind = LK_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7},
    {.kind = LK_ADAM, .beta1 = 0.7, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1, .clip_norm = 1},
    {.kind = LK_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7, .weight_decay = 0.1},
    {.kind = LK_LARS, .trust = 0.001},
    {.kind = LK_LARS, .trust = 0.1, .momentum = 0.9, .weight_decay = 0.05},
    {.kind = LK_LARS, .trust = 0.1, .momentum = 0.9, .weight_decay = 0.05, .clip_norm = 0.5},
};

/* Gaps stay zero, and "cpu" makes the same bits as "ref". */
static void compare_with_model(const lk_optimizer_opts *opts)
{
    float values[ELEMENTS], gradients[ELEMENTS], everything[2][3 * FLAT];
    model o = {.opts = opts};
    random_floats(values, ELEMENTS, 0);
    for (int i = 0; i < ELEMENTS; i++)
        o.w[i] = (double)values[i];
    fixture f[2] = {open_fixture(kinds[0], opts, values), open_fixture(kinds[1], opts, values)};
    for (int t = 1; t <= STEPS; t++) {
        double rate = 0.05 / t;
        random_floats(gradients, ELEMENTS, (uint64_t)t);
        model_step(&o, gradients, rate);
        for (int k = 0; k < 2; k++) {
            step(&f[k], gradients, rate);
            expect_close(&f[k], o.w, FORMULA_TOLERANCE);
            read_everything(&f[k], everything[k]);
        }
        assert_memory_equal(everything[0], everything[1], sizeof *everything);
        for (int i = 0; i < 3 * FLAT; i++)
            if ((i % FLAT >= MATRIX && i % FLAT < 16) || i % FLAT >= 16 + VECTOR)
                assert_true(everything[0][i] == 0);
    }
    assert_int_equal(lk_optimizer_steps(f[0].optimizer), STEPS);
    close_fixture(&f[0]);
    close_fixture(&f[1]);
}

static void test_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        compare_with_model(&formulas[i]);
}

/* A matrix of norm 5 with a gradient of norm 2, and a vector, computed by hand. */
static void test_lars_by_hand(void **state)
{
    (void)state;
    lk_optimizer_opts opts = {.kind = LK_LARS, .trust = 0.5, .weight_decay = 0.1};
    const float values[ELEMENTS] = {3, 4, [MATRIX] = 7}, gradients[ELEMENTS] = {0, 2, [MATRIX] = 1};
    /* ratio = 0.5 * 5 / (2 + 0.1 * 5) = 1 */
    const double want[ELEMENTS] = {3 - 0.1 * 0.3, 4 - 0.1 * 2.4, [MATRIX] = 7 - 0.1};
    fixture f = open_fixture("cpu:0", &opts, values);
    step(&f, gradients, 0.1);
    expect_close(&f, want, 1e-6);
    assert_true(fabs(item(lk_optimizer_gradient_norm(f.optimizer)) - sqrt(5)) < 1e-15);
    close_fixture(&f);
}

/* If the norm of the parameters or of the gradients is 0, the rate does not change. */
static void test_lars_of_nothing(void **state)
{
    (void)state;
    lk_optimizer_opts opts = {.kind = LK_LARS, .trust = 0.5, .weight_decay = 0.1};
    const float zeros[ELEMENTS] = {0}, gradients[ELEMENTS] = {0, 2}, values[ELEMENTS] = {4};
    const double from_zero[ELEMENTS] = {0, -0.2}, decayed[ELEMENTS] = {4 - 0.1 * 0.1 * 4};
    fixture f = open_fixture("cpu:0", &opts, zeros);
    step(&f, gradients, 0.1);
    expect_close(&f, from_zero, 1e-7);
    close_fixture(&f);
    f = open_fixture("cpu:0", &opts, values);
    step(&f, zeros, 0.1);
    expect_close(&f, decayed, 1e-6);
    close_fixture(&f);
}

/* Gradients so small that their ratio, or its product with the rate, is above all floats: the rate does not change. */
static void test_lars_of_almost_nothing(void **state)
{
    (void)state;
    lk_optimizer_opts opts = {.kind = LK_LARS, .trust = 0.5, .momentum = 0.9, .skip_nonfinite = true};
    const float values[ELEMENTS] = {1}, gradients[][ELEMENTS] = {{1e-42F}, {5e-39F}};
    const double rates[] = {0.1, 1000}, want[ELEMENTS] = {1};
    for (int i = 0; i < 2; i++) {
        fixture f = open_fixture("cpu:0", &opts, values);
        step(&f, gradients[i], rates[i]);
        step(&f, gradients[i], rates[i]);
        expect_close(&f, want, 0);
        close_fixture(&f);
    }
}

/* --- clipping ----------------------------------------------------------------------------------------------------- */

static void test_clipping(void **state)
{
    (void)state;
    lk_optimizer_opts opts = {.kind = LK_SGD, .clip_norm = 2.5};
    const float zeros[ELEMENTS] = {0}, large[ELEMENTS] = {3, [MATRIX] = 4}, small[ELEMENTS] = {1.5F, [MATRIX] = 2};
    const double clipped[ELEMENTS] = {-1.5, [MATRIX] = -2}, both[ELEMENTS] = {-3, [MATRIX] = -4};
    fixture f = open_fixture("cpu:0", &opts, zeros);
    assert_null(lk_optimizer_gradient_norm(f.optimizer));
    step(&f, large, 1);
    expect_close(&f, clipped, 0);
    assert_true(item(lk_optimizer_gradient_norm(f.optimizer)) == 5);
    step(&f, small, 1); /* at the limit: unchanged */
    expect_close(&f, both, 0);
    assert_true(item(lk_optimizer_gradient_norm(f.optimizer)) == 2.5);
    assert_null(lk_optimizer_skipped(f.optimizer));
    close_fixture(&f);
}

/* If the gradients are finite, they are not changed. */
static void test_clipping_infinity(void **state)
{
    (void)state;
    lk_optimizer_opts opts = {.kind = LK_SGD, .clip_norm = 1};
    const float zeros[ELEMENTS] = {0}, gradients[ELEMENTS] = {INFINITY, 3};
    float have[ELEMENTS], everything[3 * FLAT];
    fixture f = open_fixture("cpu:0", &opts, zeros);
    step(&f, gradients, 1);
    read_parameters(&f, have);
    assert_true(have[0] == -INFINITY && have[1] == -3);
    read_everything(&f, everything);
    assert_true(everything[MATRIX] == 0 && everything[FLAT - 1] == 0);
    close_fixture(&f);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* NULL counts as zeros, even after a step with a gradient. */
static void test_absent_gradients(void **state)
{
    (void)state;
    lk_optimizer_opts opts = {.kind = LK_SGD, .momentum = 0.5};
    const float zeros[ELEMENTS] = {0};
    const double after_one[ELEMENTS] = {-1, [MATRIX] = 0}, after_two[ELEMENTS] = {-1.5, [MATRIX] = -1};
    fixture f = open_fixture("cpu:0", &opts, zeros);
    lk_scope_begin();
    lk_tensor *matrix = lk_tensor_from(f.device, LK_F32, LK_SHAPE(3, 4), (float[MATRIX]){1});
    lk_tensor *vector = lk_tensor_from(f.device, LK_F32, LK_SHAPE(VECTOR), (float[VECTOR]){1});
    assert_ok(lk_optimizer_step(f.optimizer, ((lk_tensor *[]){matrix, NULL}), 1));
    expect_close(&f, after_one, 0);
    assert_ok(lk_optimizer_step(f.optimizer, ((lk_tensor *[]){NULL, vector}), 1));
    expect_close(&f, after_two, 0);
    lk_scope_end();
    close_fixture(&f);
}

/* Gradients may be transposed or expanded views, as operators make them. */
static void test_gradients_are_views(void **state)
{
    (void)state;
    const float zeros[ELEMENTS] = {0};
    const double want[ELEMENTS] = {-1, -2, -3, -4, -1, -2, -3, -4, -1, -2, -3, -4, -2, -2, -2, -2, -2};
    fixture f = open_fixture("cpu:0", NULL, zeros);
    lk_scope_begin();
    lk_tensor *column = lk_tensor_from(f.device, LK_F32, LK_SHAPE(4, 1), (float[]){1, 2, 3, 4});
    lk_tensor *matrix = lk_transpose(lk_expand(column, LK_SHAPE(4, 3)), 0, 1);
    lk_tensor *vector = lk_expand(lk_full(f.device, LK_F32, LK_SCALAR, 2), LK_SHAPE(VECTOR));
    assert_ok(lk_optimizer_step(f.optimizer, ((lk_tensor *[]){matrix, vector}), 1));
    lk_tensor *const *own = lk_optimizer_gradients(f.optimizer);
    lk_tensor *repeated = lk_expand(lk_slice(own[0], 1, 0, 1), LK_SHAPE(3, 4));
    assert_int_equal(lk_optimizer_step(f.optimizer, ((lk_tensor *[]){repeated, own[1]}), 1), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_scope_end();
    expect_close(&f, want, 0);
    close_fixture(&f);
}

/* --- state and refusals ------------------------------------------------------------------------------------------- */

static void expect_state(lk_optimizer_opts opts, const char *first, const char *second)
{
    const float zeros[ELEMENTS] = {0};
    const char *const want[] = {first, second, NULL};
    fixture f = open_fixture("ref:0", &opts, zeros);
    for (int i = -1; i < 3; i++) {
        const char *name = "unset", *wanted = i < 0 ? NULL : want[i];
        lk_tensor *slot = lk_optimizer_state(f.optimizer, i, &name);
        assert_int_equal(slot != NULL, wanted != NULL);
        if (wanted) {
            assert_string_equal(name, wanted);
            assert_int_equal(lk_tensor_count(slot), FLAT);
        }
    }
    close_fixture(&f);
}

static void test_state(void **state)
{
    (void)state;
    expect_state((lk_optimizer_opts){.kind = LK_SGD}, NULL, NULL);
    expect_state((lk_optimizer_opts){.kind = LK_SGD, .momentum = 0.9}, "momentum", NULL);
    expect_state((lk_optimizer_opts){.kind = LK_LARS}, "momentum", NULL);
    expect_state((lk_optimizer_opts){.kind = LK_ADAM}, "m", "v");
    expect_state((lk_optimizer_opts){.kind = LK_ADAMW}, "m", "v");
    assert_string_equal(lk_optimizer_name(LK_ADAMW), "adamw");
    assert_string_equal(lk_optimizer_name(LK_LARS), "lars");
    assert_null(lk_optimizer_name(LK_OPTIMIZER_COUNT));
    assert_null(lk_optimizer_name(-1));
}

static void refuse(const fixture *f, lk_optimizer_opts opts, const char *message)
{
    lk_error_clear();
    assert_null(lk_optimizer_new(&opts, f->packed, f->parameters, PARAMETERS));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), message);
}

static void test_refused_options(void **state)
{
    (void)state;
    const float zeros[ELEMENTS] = {0};
    fixture f = open_fixture("ref:0", NULL, zeros);
    refuse(&f, (lk_optimizer_opts){.kind = LK_OPTIMIZER_COUNT},
           "optimizer: there is no kind 4; sgd, adam, adamw and lars are 0 to 3");
    refuse(&f, (lk_optimizer_opts){.momentum = 1}, "optimizer: momentum is 1; it must be at least 0 and below 1");
    refuse(&f, (lk_optimizer_opts){.momentum = 0.99999999},
           "optimizer: momentum is 0.99999999, which is 1 in f32; it must be less");
    refuse(&f, (lk_optimizer_opts){.nesterov = true},
           "optimizer: nesterov goes with sgd and a momentum above 0, not with sgd and momentum 0");
    refuse(&f, (lk_optimizer_opts){.kind = LK_LARS, .momentum = 0.5, .nesterov = true},
           "optimizer: nesterov goes with sgd and a momentum above 0, not with lars and momentum 0.5");
    refuse(&f, (lk_optimizer_opts){.weight_decay = -1},
           "optimizer: weight_decay is -1; it must be 0 or more, and a float");
    refuse(&f, (lk_optimizer_opts){.clip_norm = 1e300},
           "optimizer: clip_norm is 1e+300; it must be 0 or more, and a float");
    refuse(&f, (lk_optimizer_opts){.kind = LK_ADAM, .beta2 = 1.5},
           "optimizer: beta2 is 1.5; it must be at least 0 and below 1");
    refuse(&f, (lk_optimizer_opts){.kind = LK_ADAM, .epsilon = 1e-50},
           "optimizer: epsilon is 1e-50; it must be a float of at least 1.17549e-38");
    refuse(&f, (lk_optimizer_opts){.sticky = true},
           "optimizer: sticky goes with skip_nonfinite: nothing is skipped without it");
    close_fixture(&f);
}

static void test_refused_parameters(void **state)
{
    (void)state;
    const float zeros[ELEMENTS] = {0};
    fixture f = open_fixture("ref:0", NULL, zeros);
    lk_error_clear();
    assert_null(lk_optimizer_new(NULL, f.packed, (lk_tensor *[]){f.parameters[1], f.parameters[0]}, PARAMETERS));
    assert_string_equal(lk_error_message(), "optimizer: parameter 0 is not where lk_pack puts it in the packed tensor");
    lk_error_clear();
    assert_null(lk_optimizer_new(NULL, f.packed, f.parameters, 1));
    assert_string_equal(lk_error_message(),
                        "optimizer: the packed tensor has 32 elements; lk_pack gives these parameters 16");
    lk_error_clear();
    assert_null(lk_optimizer_new(NULL, NULL, f.parameters, 1));
    assert_string_equal(lk_error_message(), "optimizer: no parameters");
    close_fixture(&f);
}

static void refuse_step(const fixture *f, lk_tensor *matrix, double rate, lk_status status, const char *message)
{
    lk_error_clear();
    assert_int_equal(lk_optimizer_step(f->optimizer, ((lk_tensor *[]){matrix, NULL}), rate), status);
    assert_string_equal(lk_error_message(), message);
    assert_int_equal(lk_optimizer_steps(f->optimizer), 0);
}

static void test_refused_gradients(void **state)
{
    (void)state;
    const float zeros[ELEMENTS] = {0};
    fixture f = open_fixture("ref:0", NULL, zeros);
    lk_device *other = lk_device_open("ref:1");
    lk_scope_begin();
    refuse_step(&f, lk_ones(f.device, LK_F32, LK_SHAPE(4, 3)), 1, LK_ERR_SHAPE,
                "optimizer: gradient 0 has shape [4,3]; its parameter has [3,4]");
    refuse_step(&f, lk_ones(f.device, LK_F64, LK_SHAPE(3, 4)), 1, LK_ERR_DTYPE,
                "optimizer: gradient 0 is f64; it must be f32");
    refuse_step(&f, lk_ones(other, LK_F32, LK_SHAPE(3, 4)), 1, LK_ERR_DEVICE,
                "optimizer: gradient 0 is on ref:1; its parameter is on ref:0");
    refuse_step(&f, lk_ones(f.device, LK_F32, LK_SHAPE(3, 4)), (double)INFINITY, LK_ERR_ARGUMENT,
                "optimizer: rate is inf; it must be finite in f32");
    refuse_step(&f, lk_ones(f.device, LK_F32, LK_SHAPE(3, 4)), 1e39, LK_ERR_ARGUMENT,
                "optimizer: rate is 1e+39; it must be finite in f32");
    lk_scope_end();
    close_fixture(&f);
    lk_device_release(other);
}

/* A rate that f32 has, and of which Adam makes a factor that f32 does not have: in a step and in a replayed one. */
static void test_refused_factors_of_adam(void **state)
{
    (void)state;
    static const struct {
        lk_optimizer_opts opts;
        const char *message;
    } cases[] = {
        {{.kind = LK_ADAM, .beta1 = 0.99},
         "optimizer: rate is 1e+38, which makes Adam's factors 1e+40 and 1; they must be finite in f32"},
        {{.kind = LK_ADAMW, .weight_decay = 10, .beta1 = 0.5},
         "optimizer: rate is 1e+38, which makes Adam's factors 2e+38 and -1e+39; they must be finite in f32"},
    };
    const float zeros[ELEMENTS] = {0};
    double rates[LK_OPTIMIZER_RATES];
    for (int i = 0; i < 2; i++) {
        fixture f = open_fixture("ref:0", &cases[i].opts, zeros);
        lk_scope_begin();
        refuse_step(&f, NULL, 1e38, LK_ERR_ARGUMENT, cases[i].message);
        lk_error_clear();
        assert_int_equal(lk__optimizer_rates(f.optimizer, 1e38, rates), LK_ERR_ARGUMENT);
        assert_string_equal(lk_error_message(), cases[i].message);
        lk_scope_end();
        close_fixture(&f);
    }
}

/* The powers of beta equal those of steps that were taken, and are found at once for any number of steps. */
static void test_resumed(void **state)
{
    (void)state;
    float values[ELEMENTS] = {1}, gradients[ELEMENTS] = {0};
    fixture f = open_fixture("ref:0", &(lk_optimizer_opts){.kind = LK_ADAM}, values);
    for (int t = 0; t < 7; t++)
        step(&f, gradients, 0.1);
    double power1 = f.optimizer->power1, power2 = f.optimizer->power2;
    assert_non_null(lk_optimizer_gradients(f.optimizer));
    assert_ok(lk__optimizer_resume(f.optimizer, INT64_MAX));
    assert_null(lk_optimizer_gradients(f.optimizer));
    assert_true(lk_optimizer_steps(f.optimizer) == INT64_MAX);
    assert_ok(lk__optimizer_resume(f.optimizer, 7));
    assert_int_equal(lk_optimizer_steps(f.optimizer), 7);
    assert_true(f.optimizer->power1 == power1 && f.optimizer->power2 == power2);
    assert_ok(lk__optimizer_resume(f.optimizer, 0));
    assert_true(f.optimizer->power1 == 1 && f.optimizer->power2 == 1);
    close_fixture(&f);
    f = open_fixture("ref:0", &(lk_optimizer_opts){.kind = LK_ADAM, .beta2 = 1 - 1e-12}, values);
    assert_int_equal(lk__optimizer_resume(f.optimizer, INT64_MAX), LK_ERR_UNSUPPORTED);
    assert_ok(lk__optimizer_resume(f.optimizer, 1000));
    lk_error_clear();
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_lars_by_hand),
        cmocka_unit_test(test_lars_of_nothing),
        cmocka_unit_test(test_lars_of_almost_nothing),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_clipping_infinity),
        cmocka_unit_test(test_absent_gradients),
        cmocka_unit_test(test_gradients_are_views),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_refused_options),
        cmocka_unit_test(test_refused_parameters),
        cmocka_unit_test(test_refused_gradients),
        cmocka_unit_test(test_refused_factors_of_adam),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
