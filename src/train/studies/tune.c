#include "train/studies/tune.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/shape.h"
#include "core/tuning.h"
#include "train/plan/choices.h"
#include "train/studies/tune_time.h"
#include "train/resume.h"
#include "train/trainer.h"

#include <string.h>

typedef struct tuner {
    const lk_tune_opts *opts;
    const lk_choices *choices; /* the backend's */
    lk_trainer *trainer;
    lk_tuning *problems; /* every problem that occurs with any fusion */
    lk_tune_problem *list;
    int n;
    const char *names[LK_MAX_CHOICES];     /* all implementations */
    lk_tuning *preferring[LK_MAX_CHOICES]; /* [i]: prefers names[i] wherever it applies */
    int n_names;
    lk_tuning *apart; /* prefers "apart", separate calls for a fused operator; holds the choices made for these */
    lk_tune_result *result;
} tuner;

/* --- problems ----------------------------------------------------------------------------------------------------- */

/* Adds an implementation unless it is known. */
static lk_status tuner_add_name(tuner *t, const char *name)
{
    for (int i = 0; i < t->n_names; i++)
        if (strcmp(t->names[i], name) == 0)
            return LK_OK;
    if (t->n_names == LK_MAX_CHOICES)
        return LK_OK;
    lk_tuning *tuning = lk_tuning_new(lk_device_kind(t->trainer->devices[0]));
    if (!tuning)
        return lk_error_status();
    lk__tuning_prefer(tuning, name);
    t->preferring[t->n_names] = tuning;
    t->names[t->n_names++] = name;
    return LK_OK;
}

typedef struct gathering {
    tuner *t;
    lk_status status;
} gathering;

static void tuner_add_problem_names(void *user, const char *op, const char *problem, const char *implementation)
{
    gathering *g = user;
    const char *names[LK_MAX_CHOICES];
    int n = 0;
    (void)implementation;
    if (g->status == LK_OK)
        g->status = g->t->choices->list(op, problem, names, &n);
    for (int i = 0; i < n && g->status == LK_OK; i++)
        g->status = tuner_add_name(g->t, names[i]);
}

static lk_status tuner_list_with(tuner *t, lk_tuning *tuning)
{
    gathering g = {t, LK_OK};
    LK_TRY(lk_device_set_tuning(t->trainer->devices[0], tuning));
    LK_TRY(lk__list_choices(t->trainer, t->problems));
    lk_tuning_visit(t->problems, tuner_add_problem_names, &g);
    return g.status;
}

/* Fusion depends on choices, so some problems occur only with some of them. To find all problems, every implementation
 * is preferred once. */
static lk_status tuner_find_problems(tuner *t)
{
    t->problems = lk_tuning_new(lk_device_kind(t->trainer->devices[0]));
    if (!t->problems)
        return lk_error_status();
    if (!t->choices->list) /* no fusion depends on a library's choices */
        return lk__list_choices(t->trainer, t->problems);
    LK_TRY(tuner_list_with(t, NULL));
    for (int i = 0; i < t->n_names; i++)
        LK_TRY(tuner_list_with(t, t->preferring[i]));
    return lk_device_set_tuning(t->trainer->devices[0], NULL);
}

static void tuner_add_problem(void *user, const char *op, const char *problem, const char *implementation)
{
    gathering *g = user;
    tuner *t = g->t;
    lk_tune_problem *p = &t->list[t->n];
    (void)implementation;
    if (g->status != LK_OK)
        return;
    p->is_product = lk__product_problem_parse(op, problem, &p->product);
    if (p->is_product || lk__conv_problem_parse(op, problem, &p->conv)) {
        p->op = op;
        p->text = problem;
        t->n++;
    } else {
        g->status = lk__fail(LK_ERR_UNSUPPORTED, "tune: '%s %s' is no problem that can be measured", op, problem);
    }
}

/* A library may take seconds to say which algorithms it has. */
static lk_status tuner_name_implementations(const tuner *t, lk_tune_problem *p)
{
    if (t->choices->list)
        return t->choices->list(p->op, p->text, p->names, &p->n);
    LK_TRY(t->choices->list_of_library(t->trainer->devices[0], p->op, p->text, p->of_library, &p->n));
    for (int i = 0; i < p->n; i++)
        p->names[i] = p->of_library[i];
    return LK_OK;
}

/* Compares all but the number of images. */
static bool tuner_is_same_conv(const lk_conv_problem *a, const lk_conv_problem *b)
{
    lk_shape x = a->x;
    x.dim[0] = b->x.dim[0];
    return lk__shape_equal(x, b->x) && lk__shape_equal(a->w, b->w) &&
           memcmp(&a->attrs.conv, &b->attrs.conv, sizeof a->attrs.conv) == 0;
}

/* Derives from the other problems whether x is an image and whether the problem is trained. */
static void tuner_complete_problem(const tuner *t, lk_tune_problem *p)
{
    p->reads_images = true;
    for (int i = 0; i < t->n; i++) {
        const lk_conv_problem *other = &t->list[i].conv;
        if (p->is_product || t->list[i].is_product || !tuner_is_same_conv(&p->conv, other))
            continue;
        if (other->op == LK_OP_CONV2D_INPUT_GRAD)
            p->reads_images = false;
        if (other->op == LK_OP_CONV2D_WEIGHT_GRAD && other->x.dim[0] == p->conv.x.dim[0])
            p->trains = true;
    }
}

static lk_status tuner_make_list(tuner *t)
{
    gathering g = {t, LK_OK};
    t->list = lk__calloc((size_t)lk_tuning_count(t->problems), sizeof *t->list);
    if (!t->list)
        return LK_ERR_MEMORY;
    lk_tuning_visit(t->problems, tuner_add_problem, &g);
    for (int i = 0; i < t->n; i++)
        tuner_complete_problem(t, &t->list[i]);
    return g.status;
}

/* --- choosing ----------------------------------------------------------------------------------------------------- */

static lk_status tuner_fail_interrupted(void)
{
    LK_FAIL(LK_ERR_INTERRUPTED, "tune: interrupted");
}

static lk_status tuner_report_row(const tuner *t, int index, int next, int chosen)
{
    const lk_tune_problem *p = &t->list[index];
    lk_tune_row row = {.index = index + 1,
                       .count = t->n,
                       .op = p->op,
                       .problem = p->text,
                       .n = p->n,
                       .names = p->names,
                       .seconds = p->seconds,
                       .chosen = chosen};
    return !t->opts->measuring || t->opts->measuring(t->opts->user, &row, next) ? LK_OK : tuner_fail_interrupted();
}

static void tuner_copy_choice(void *user, const char *op, const char *problem, const char *implementation)
{
    gathering *g = user;
    if (g->status == LK_OK)
        g->status = lk_tuning_set(g->t->apart, op, problem, implementation);
}

/* Makes the tuning for a fused operator that runs as separate calls. These use the choices made for them, which is
 * possible because their problems come first in the list. */
static lk_status tuner_make_apart(tuner *t, const char *name)
{
    gathering g = {t, LK_OK};
    if (t->apart)
        return LK_OK;
    t->apart = lk_tuning_new(lk_device_kind(t->trainer->devices[0]));
    if (!t->apart)
        return lk_error_status();
    lk__tuning_prefer(t->apart, name);
    lk_tuning_visit(t->result->tuning, tuner_copy_choice, &g);
    return g.status;
}

/* A library's name is good for one problem. The tuning that is being made has room for it: nothing else uses it yet. */
static lk_status tuner_find_tuning(tuner *t, const lk_tune_problem *p, const char *name, lk_tuning **tuning)
{
    if (!t->choices->list) {
        *tuning = t->result->tuning;
        return lk_tuning_set(t->result->tuning, p->op, p->text, name);
    }
    if (p->conv.op == LK_OP_CONV_BLOCK && strcmp(name, "apart") == 0) {
        LK_TRY(tuner_make_apart(t, name));
        *tuning = t->apart;
        return LK_OK;
    }
    for (int i = 0; i < t->n_names; i++)
        if (strcmp(t->names[i], name) == 0)
            *tuning = t->preferring[i];
    return LK_OK;
}

static lk_status tuner_measure_problem(tuner *t, int index)
{
    const double enough = 0.95; /* a smaller gain over the built-in choice may be noise */
    lk_device *device = t->trainer->devices[0];
    lk_tune_problem *p = &t->list[index];
    int chosen = 0;
    LK_TRY(tuner_name_implementations(t, p));
    for (int i = 0; i < p->n; i++) {
        lk_tuning *tuning = NULL;
        LK_TRY(tuner_report_row(t, index, i, -1));
        LK_TRY(tuner_find_tuning(t, p, p->names[i], &tuning));
        LK_TRY(lk_device_set_tuning(device, tuning));
        LK_TRY(lk__tune_time(device, p, t->opts->samples, &p->seconds[i]));
        if (p->seconds[i] < p->seconds[chosen] && p->seconds[i] <= enough * p->seconds[0])
            chosen = i;
    }
    t->result->changed += chosen > 0;
    LK_TRY(lk_tuning_set(t->result->tuning, p->op, p->text, p->names[chosen]));
    return tuner_report_row(t, index, p->n, chosen);
}

static lk_status tuner_measure_problems(tuner *t)
{
    for (int i = 0; i < t->n; i++)
        LK_TRY(tuner_measure_problem(t, i));
    return lk_device_set_tuning(t->trainer->devices[0], NULL);
}

/* --- whole steps -------------------------------------------------------------------------------------------------- */

static lk_status tuner_seconds(const lk_trainer *trainer, double *sum)
{
    *sum = 0;
    if (trainer->devices[0]->backend->offload)
        return lk__tune_seconds(trainer->devices[0], sum);
    for (int d = 0; d < trainer->n_devices; d++) {
        double seconds;
        LK_TRY(lk__tune_seconds(trainer->devices[d], &seconds));
        *sum += seconds;
    }
    return LK_OK;
}

static lk_status tuner_time_step(lk_trainer *trainer, double *seconds)
{
    double before, after;
    LK_TRY(tuner_seconds(trainer, &before));
    LK_TRY(lk_trainer_run(trainer, 1));
    LK_TRY(tuner_seconds(trainer, &after));
    *seconds = after - before;
    return LK_OK;
}

/* Runs steps of both trainers in turns. The first step of each records programs and does not count. */
static lk_status tuner_compare_steps(tuner *t, lk_trainer *const *trainers, double *times)
{
    int64_t samples = t->opts->samples, steps = 2 * (samples + 1);
    for (int64_t i = 0; i < steps; i++) {
        if (t->opts->comparing && !t->opts->comparing(t->opts->user, i, steps))
            return tuner_fail_interrupted();
        LK_TRY(tuner_time_step(trainers[i % 2], times + i % 2 * (samples + 1) + i / 2));
    }
    t->result->elapsed = t->trainer->devices[0]->backend->offload != NULL;
    t->result->built_in = lk__tune_median(times + 1, samples);
    t->result->tuned = lk__tune_median(times + samples + 2, samples);
    return !t->opts->comparing || t->opts->comparing(t->opts->user, steps, steps) ? LK_OK : tuner_fail_interrupted();
}

/* *changes: true if a step runs other implementations with the tuning. Fusion may hide every changed choice. */
static lk_status tuner_changes_step(tuner *t, bool *changes)
{
    lk_device *device = t->trainer->devices[0];
    lk_tuning *implementations = lk_tuning_new(lk_device_kind(device));
    lk_status status = implementations ? lk_device_set_tuning(device, t->result->tuning) : lk_error_status();
    if (status == LK_OK)
        status = lk__list_choices(t->trainer, implementations);
    if (status == LK_OK)
        *changes = lk_tuning_hash(implementations) != lk_tuning_hash(t->trainer->implementations);
    lk_tuning_release(implementations);
    return status == LK_OK ? lk_device_set_tuning(device, NULL) : status;
}

static lk_status tuner_compare_with_built_in(tuner *t)
{
    bool changes = false;
    LK_TRY(tuner_changes_step(t, &changes));
    if (!changes)
        return LK_OK;
    lk_trainer *tuned = lk_trainer_new(&t->trainer->config);
    if (!tuned)
        return lk_error_status();
    double *times = lk__calloc(2 * ((size_t)t->opts->samples + 1), sizeof *times);
    lk_status status = times ? LK_OK : LK_ERR_MEMORY;
    for (int d = 0; status == LK_OK && d < tuned->n_devices; d++)
        status = lk_device_set_tuning(tuned->devices[d], t->result->tuning);
    if (times && status == LK_OK)
        status = tuner_compare_steps(t, (lk_trainer *[]){t->trainer, tuned}, times);
    lk__free(times);
    lk_trainer_release(tuned);
    return status;
}

/* --- tuning ------------------------------------------------------------------------------------------------------- */

static lk_status tuner_run(tuner *t)
{
    t->choices = t->trainer->devices[0]->backend->choices;
    if (!t->choices || !(t->choices->list || t->choices->list_of_library))
        LK_FAIL(LK_ERR_UNSUPPORTED, "tune: devices of kind %s have one implementation for every problem",
                lk_device_kind(t->trainer->devices[0]));
    t->result->tuning = lk_tuning_new(lk_device_kind(t->trainer->devices[0]));
    if (!t->result->tuning)
        return lk_error_status();
    LK_TRY(tuner_find_problems(t));
    LK_TRY(tuner_make_list(t));
    LK_TRY(tuner_measure_problems(t));
    return tuner_compare_with_built_in(t);
}

static void tuner_release(tuner *t)
{
    lk__free(t->list);
    for (int i = 0; i < t->n_names; i++)
        lk_tuning_release(t->preferring[i]);
    lk_tuning_release(t->apart);
    lk_tuning_release(t->problems);
    lk_trainer_release(t->trainer);
}

lk_status lk_tune(const lk_train_config *config, const lk_tune_opts *opts, lk_tune_result *result)
{
    *result = (lk_tune_result){.tuning = NULL};
    if (opts->samples < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "tune: %lld samples: must be at least 1", (long long)opts->samples);
    lk_train_config built_in = *config;
    built_in.execution.algorithms = "fast";
    lk__leave_out_checkpoints(&built_in);
    tuner t = {.opts = opts, .result = result, .trainer = lk_trainer_new(&built_in)};
    lk_status status = t.trainer ? tuner_run(&t) : lk_error_status();
    tuner_release(&t);
    if (status != LK_OK) {
        lk_tuning_release(result->tuning);
        result->tuning = NULL;
    }
    return status;
}
