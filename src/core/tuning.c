#include "core/tuning.h"
#include "base/mem.h"
#include "base/refcount.h"
#include "base/status.h"
#include "core/text.h"
#include "lockstep/build.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

typedef struct choice {
    char *op, *problem, *implementation;
} choice;

struct lk_tuning {
    lk_refcount references;
    const lk_backend *backend;
    char machine[256];
    char *file;      /* NULL: it was not read from one */
    choice *choices; /* sorted by operator and problem */
    int n;
    int64_t capacity;
    const char *preferred; /* NULL: none */
    _Atomic bool was_used;
};

/* --- making one --------------------------------------------------------------------------------------------------- */

static void tuning_describe_machine(lk_tuning *tuning)
{
    int used = snprintf(tuning->machine, sizeof tuning->machine, "lockstep %s, device %s", lk_build_version(),
                        tuning->backend->kind);
    if (!tuning->backend->choices)
        return;
    used += snprintf(tuning->machine + used, sizeof tuning->machine - (size_t)used, ", ");
    tuning->backend->choices->describe(NULL, tuning->machine + used, sizeof tuning->machine - (size_t)used);
}

lk_tuning *lk_tuning_new(const char *kind)
{
    const lk_backend *backend = lk__backend_of_kind(kind);
    if (!backend) {
        lk__fail(LK_ERR_ARGUMENT, "tuning: unknown kind of device '%s'", kind);
        return NULL;
    }
    lk_tuning *tuning = lk__calloc(1, sizeof *tuning);
    if (!tuning)
        return NULL;
    lk__refcount_init(&tuning->references);
    tuning->backend = backend;
    tuning_describe_machine(tuning);
    return tuning;
}

lk_tuning *lk_tuning_retain(lk_tuning *tuning)
{
    if (tuning)
        lk__refcount_retain(&tuning->references);
    return tuning;
}

static void tuning_free_choice(choice *c)
{
    lk__free(c->op);
    lk__free(c->problem);
    lk__free(c->implementation);
}

void lk_tuning_release(lk_tuning *tuning)
{
    if (!tuning || !lk__refcount_release(&tuning->references))
        return;
    for (int i = 0; i < tuning->n; i++)
        tuning_free_choice(&tuning->choices[i]);
    lk__free(tuning->choices);
    lk__free(tuning->file);
    lk__free(tuning);
}

/* --- choices ------------------------------------------------------------------------------------------------------ */

/* Returns the position of the problem in `choices`, or the one to insert it at. */
static int tuning_position(const lk_tuning *tuning, const char *op, const char *problem, bool *found)
{
    int low = 0, high = tuning->n;
    *found = false;
    while (low < high) {
        int middle = (low + high) / 2;
        const choice *c = &tuning->choices[middle];
        int order = strcmp(c->op, op);
        if (order == 0)
            order = strcmp(c->problem, problem);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static lk_status tuning_replace_choice(choice *c, const char *implementation)
{
    char *name = lk__strdup(implementation);
    if (!name)
        return LK_ERR_MEMORY;
    lk__free(c->implementation);
    c->implementation = name;
    return LK_OK;
}

static lk_status tuning_put(lk_tuning *tuning, const char *op, const char *problem, const char *implementation)
{
    bool found;
    if (strlen(op) >= LK_CHOICE_NAME || strlen(problem) >= LK_CHOICE_TEXT || strlen(implementation) >= LK_CHOICE_NAME)
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "'%.40s' %.40s on '%.40s': is too long: an operator and an implementation have at most %d characters, a "
            "problem %d",
            op, problem, implementation, LK_CHOICE_NAME - 1, LK_CHOICE_TEXT - 1);
    int position = tuning_position(tuning, op, problem, &found);
    if (found)
        return tuning_replace_choice(&tuning->choices[position], implementation);
    LK_TRY(LK_GROW(tuning->choices, &tuning->capacity, tuning->n + 1));
    choice new = {lk__strdup(op), lk__strdup(problem), lk__strdup(implementation)};
    if (!new.op || !new.problem || !new.implementation) {
        tuning_free_choice(&new);
        return LK_ERR_MEMORY;
    }
    choice *at = &tuning->choices[position];
    memmove(at + 1, at, (size_t)(tuning->n - position) * sizeof *at);
    *at = new;
    tuning->n++;
    return LK_OK;
}

static lk_status tuning_refuse(const char *op, const char *problem, const char *implementation,
                               const char *const *names, int n)
{
    char text[256] = "";
    for (int i = 0; i < n; i++) {
        lk__text_append(text, sizeof text, i == 0 ? "" : i + 1 < n ? ", " : " or ");
        lk__text_append(text, sizeof text, names[i]);
    }
    LK_FAIL(LK_ERR_ARGUMENT, "'%s' does not run %s %s: must be %s", implementation, op, problem, text);
}

lk_status lk_tuning_set(lk_tuning *tuning, const char *op, const char *problem, const char *implementation)
{
    const char *names[LK_MAX_CHOICES];
    int n;
    if (!tuning->backend->choices)
        LK_FAIL(LK_ERR_ARGUMENT, "'%s': there is one implementation for every problem on devices of kind %s", op,
                tuning->backend->kind);
    if (!tuning->backend->choices->list)
        return tuning_put(tuning, op, problem, implementation);
    LK_TRY(tuning->backend->choices->list(op, problem, names, &n));
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], implementation) == 0)
            return tuning_put(tuning, op, problem, names[i]);
    return tuning_refuse(op, problem, implementation, names, n);
}

lk_status lk__tuning_set_file(lk_tuning *tuning, const char *path)
{
    char *copy = lk__strdup(path);
    if (!copy)
        return LK_ERR_MEMORY;
    lk__free(tuning->file);
    tuning->file = copy;
    return LK_OK;
}

lk_status lk__tuning_fail(const lk_tuning *tuning, const lk_call_choice *wanted, const char *why)
{
    LK_FAIL(LK_ERR_UNSUPPORTED, "tuning%s%s: %s %s: must run on %s, but %s", tuning->file ? " " : "",
            tuning->file ? tuning->file : "", wanted->op, wanted->problem, wanted->implementation, why);
}

lk_status lk__tuning_add_call(lk_tuning *tuning, const lk_call *call)
{
    lk_call_choice made = {.op = NULL};
    const lk_choices *choices = tuning->backend->choices;
    if (choices)
        LK_TRY(choices->of_call(call, &made));
    if (!made.op)
        return LK_OK;
    return tuning_put(tuning, made.op, made.problem, made.implementation);
}

void lk__tuning_prefer(lk_tuning *tuning, const char *implementation)
{
    tuning->preferred = implementation;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

const char *lk__tuning_find(const lk_tuning *tuning, const char *op, const char *problem)
{
    bool found;
    int position = tuning_position(tuning, op, problem, &found);
    if (found && !lk__tuning_was_used(tuning)) /* the tuning is const to its users, who do not see this flag change */
        atomic_store_explicit(&((lk_tuning *)(uintptr_t)tuning)->was_used, true, memory_order_relaxed);
    return found ? tuning->choices[position].implementation : tuning->preferred;
}

bool lk__tuning_was_used(const lk_tuning *tuning)
{
    return atomic_load_explicit(&tuning->was_used, memory_order_relaxed);
}

const lk_backend *lk__tuning_backend(const lk_tuning *tuning)
{
    return tuning->backend;
}

int lk_tuning_count(const lk_tuning *tuning)
{
    return tuning->n;
}

const char *lk_tuning_machine(const lk_tuning *tuning)
{
    return tuning->machine;
}

void lk_tuning_visit(const lk_tuning *tuning, lk_implementation_fn visit, void *user)
{
    for (int i = 0; i < tuning->n; i++)
        visit(user, tuning->choices[i].op, tuning->choices[i].problem, tuning->choices[i].implementation);
}

static void tuning_add_to_hash(void *user, const char *op, const char *problem, const char *implementation)
{
    uint64_t *hash = user;
    char line[LK_CHOICE_TEXT + 2 * LK_CHOICE_NAME + 8];
    int length = snprintf(line, sizeof line, "%s %s = %s\n", op, problem, implementation);
    *hash = XXH3_64bits_withSeed(line, (size_t)length, *hash);
}

uint64_t lk_tuning_hash(const lk_tuning *tuning)
{
    uint64_t hash = XXH3_64bits(tuning->machine, strlen(tuning->machine));
    lk_tuning_visit(tuning, tuning_add_to_hash, &hash);
    return hash;
}
