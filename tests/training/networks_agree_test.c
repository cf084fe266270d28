/* One step of every network on the device that $LOCKSTEP_TEST_DEVICES names (default 1xcpu), as trainings run it: a
 * program with fused calls and merged shards. Its gradients, update and running statistics are those of operators that
 * a core runs one by one, which other tests compare with plain C. Arguments name the networks (default: all). */
#include "training.h"

#include <math.h>

#define EXAMPLE(name) LK_TEST_DATA "/../../examples/models/" name ".lk"
#define TESTED(name) LK_TEST_DATA "/networks/" name ".lk"

/* The images make two shards, each with statistics of its own. */
typedef struct network {
    const char *model;
    int64_t images;
} network;

static const network networks[] = {
    {"lenet", 8},
    {"keras-cnn", 8},
    {"fast-cnn", 8},
    {"resnet18", 2},
    {"wrn-16-10", 2},
    {EXAMPLE("convnext"), 8},
    {EXAMPLE("densenet"), 8},
    {EXAMPLE("mobilenet-v2"), 8},
    {EXAMPLE("resnet18-torchvision"), 8},
    {TESTED("kinds"), 8},
    {TESTED("residual"), 8},
    {TESTED("squeeze-excite"), 8},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static lk_trainer *step_on(const char *devices, const network *net, lk_precision dtype, lk_executor executor)
{
    lk_train_config config = training_of(net->images, 0, net->images, 2);
    config.model = net->model;
    config.devices.spec = devices;
    config.batch_norm.group = net->images / 2;
    config.optimizer.name = "sgd";
    config.optimizer.base_lr = 1;
    config.optimizer.momentum = 0;
    config.execution.dtype = dtype;
    config.execution.executor = executor;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 1));
    return trainer;
}

static double *values_of(lk_tensor *x)
{
    size_t bytes = (size_t)lk_tensor_count(x) * sizeof(double);
    double *values = malloc(bytes);
    assert_non_null(values);
    assert_ok(lk_tensor_read(lk_cast(x, LK_F64), values, bytes));
    return values;
}

/* Returns the norm of a - b, or of a if b is NULL; infinity if it is not a number. */
static double distance(lk_tensor *a, lk_tensor *b)
{
    double *x = values_of(a), *y = b ? values_of(b) : NULL, sum = 0;
    for (int64_t i = 0; i < lk_tensor_count(a); i++)
        sum += (x[i] - (y ? y[i] : 0)) * (x[i] - (y ? y[i] : 0));
    free(x);
    free(y);
    return isfinite(sum) ? sqrt(sum) : INFINITY;
}

/* A step in a dtype as it is tested, the same of single operators, and that in f32. */
typedef struct steps {
    lk_trainer *tested, *single, *exact;
} steps;

/* A tested step rounds in other places than single operators, which give the size of roundings: nothing in f32.
 * Roundings also change the sign of some of relu's inputs; in bf16 that may change a gradient of deep networks by its
 * norm. */
static void expect_close(const char *what, const char *name, lk_tensor *tested, lk_tensor *single, lk_tensor *exact,
                         double most)
{
    double rounding = distance(single, exact), d = distance(tested, exact);
    if (!(d <= 3 * rounding + most))
        fail_msg("%s of %s, of norm %.3g, is off by %.3g; that of single operators, by %.3g", what, name,
                 distance(exact, NULL), d, rounding);
}

/* In f32 gradients were seen to differ by 3e-4 of their norm where statistics are of four values, by 7e-6 elsewhere,
 * and by 1e-2 if the sign of a value before relu changed. A wrong mask or a missing term changes one by about its norm.
 * A bias before batch-norm has no gradient but roundings, which are relative to the gradients of others. */
static void expect_agreement(const steps *s, lk_precision dtype)
{
    const lk_model *model = lk_trainer_model(s->exact);
    lk_tensor *const *gradients = lk_trainer_gradients(s->exact), *const *values = lk_trainer_variables(s->exact, 0);
    int parameters = lk_model_parameter_count(model);
    double all = 0;
    for (int i = 0; i < parameters; i++)
        all = hypot(all, distance(gradients[i], NULL));
    double zero = dtype == LK_PRECISION_BF16 ? 1e-3 * all : 1e-6 * all, part = dtype == LK_PRECISION_BF16 ? 0.1 : 0.03;
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        const char *name = lk_model_variable_name(model, i);
        double most = zero + 1e-3 * distance(values[i], NULL);
        if (i < parameters) {
            most = zero + part * distance(gradients[i], NULL);
            expect_close("the gradient", name, lk_trainer_gradients(s->tested)[i], lk_trainer_gradients(s->single)[i],
                         gradients[i], most);
            most += 1e-6 * distance(values[i], NULL); /* the update subtracts the gradient */
        }
        expect_close("the new value", name, lk_trainer_variables(s->tested, 0)[i],
                     lk_trainer_variables(s->single, 0)[i], values[i], most);
    }
}

static void step_agrees(void **state)
{
    const network *net = *state;
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES");
    lk_trainer *exact = step_on("1xcpu", net, LK_PRECISION_F32, LK_EXECUTOR_EAGER);
    for (lk_precision dtype = LK_PRECISION_F32; dtype <= LK_PRECISION_BF16; dtype++) {
        lk_scope_begin();
        steps s = {.tested = step_on(spec ? spec : "1xcpu", net, dtype, LK_EXECUTOR_PROGRAM),
                   .single = step_on("1xcpu", net, dtype, LK_EXECUTOR_EAGER),
                   .exact = exact};
        expect_agreement(&s, dtype);
        lk_scope_end();
        lk_trainer_release(s.tested);
        lk_trainer_release(s.single);
    }
    lk_trainer_release(exact);
}

/* "resnet18" of ".../resnet18.lk". */
static const char *name_of(const char *model)
{
    static char names[NETWORKS][32];
    static int n;
    const char *slash = strrchr(model, '/');
    const char *file = slash ? slash + 1 : model;
    snprintf(names[n], sizeof names[n], "%.*s", (int)strcspn(file, "."), file);
    return names[n++];
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[NETWORKS] = {{0}}; /* cmocka leaves out those without a function */
    int n = 0;
    for (int i = 0; i < NETWORKS; i++) {
        const char *name = name_of(networks[i].model);
        bool is_named = argc == 1;
        for (int k = 1; k < argc && !is_named; k++)
            is_named = strcmp(argv[k], name) == 0;
        if (is_named)
            tests[n++] = (struct CMUnitTest){
                .name = name, .test_func = step_agrees, .initial_state = (void *)(uintptr_t)&networks[i]};
    }
    if (argc > 1 && n != argc - 1) {
        print_error("there is no such network\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
