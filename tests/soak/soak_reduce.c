#include "soak_reduce.h"

#include "soak_processes.h"
#include "soak_rules.h"

#include <stdlib.h>
#include <string.h>

/* A failure may depend on the moment, so a smaller case is tried more than once. */
enum { TRIES = 3 };

typedef struct reduction {
    soak_case *given;
    soak_case *smaller;
    const soak_programs *programs;
    double ends;
    soak_result *result;
} reduction;

/* Keeps the smaller case if it fails in the same way. */
static bool reduce_keep(reduction *r)
{
    for (int i = 0; i < TRIES && soak_seconds() < r->ends; i++) {
        soak_result result;
        soak_trial_run(r->smaller, r->programs, &result);
        if (result.verdict == SOAK_WRONG && result.kind == r->result->kind) {
            free(r->result->log);
            *r->result = result;
            *r->given = *r->smaller;
            return true;
        }
        free(result.log);
    }
    return false;
}

static bool reduce_attempts(reduction *r)
{
    bool changed = false;
    for (int i = r->given->attempt_count - 1; i >= 0 && r->given->attempt_count > 1; i--) {
        soak_case *smaller = r->smaller;
        *smaller = *r->given;
        smaller->attempt_count--;
        memmove(&smaller->attempts[i], &smaller->attempts[i + 1],
                (size_t)(smaller->attempt_count - i) * sizeof smaller->attempts[0]);
        changed |= reduce_keep(r);
    }
    return changed;
}

static bool reduce_disturbances(reduction *r)
{
    bool changed = false;
    for (int i = 0; i < r->given->attempt_count; i++)
        for (int d = r->given->attempts[i].disturbance_count - 1; d >= 0; d--) {
            *r->smaller = *r->given;
            soak_attempt *attempt = &r->smaller->attempts[i];
            attempt->disturbance_count--;
            memmove(&attempt->disturbances[d], &attempt->disturbances[d + 1],
                    (size_t)(attempt->disturbance_count - d) * sizeof attempt->disturbances[0]);
            changed |= reduce_keep(r);
        }
    return changed;
}

/* Removes the settings from `first` on. Returns false if there is none to remove: without some a trial takes minutes.
 */
static bool reduce_remove(soak_settings *settings, int first, int count)
{
    int before = settings->count;
    for (int i = first + count - 1; i >= first; i--)
        if (!soak_row_is_needed(soak_row_of(settings->at[i].row->name, settings->at[i].is_launch)))
            soak_settings_remove(settings, i);
    return settings->count < before;
}

/* Tries all settings together, then halves, down to one by one. attempt: whose settings; below 0: those of all. */
static bool reduce_settings(reduction *r, int attempt)
{
    bool changed = false;
    const soak_settings *settings = attempt < 0 ? &r->given->settings : &r->given->attempts[attempt].settings;
    for (int size = settings->count; size > 0; size /= 2)
        for (int first = settings->count - size; first >= 0; first -= size) {
            *r->smaller = *r->given;
            soak_settings *fewer = attempt < 0 ? &r->smaller->settings : &r->smaller->attempts[attempt].settings;
            if (reduce_remove(fewer, first, size) && reduce_keep(r))
                changed = true;
        }
    return changed;
}

static bool reduce_shape(reduction *r, int i)
{
    soak_attempt *attempt = &r->given->attempts[i];
    if (attempt->shape == SOAK_LOCAL && !attempt->is_synchronous && !attempt->is_slow && !attempt->is_overriding)
        return false;
    *r->smaller = *r->given;
    attempt = &r->smaller->attempts[i];
    attempt->is_synchronous = attempt->is_slow = attempt->is_overriding = false;
    if (reduce_keep(r))
        return true;
    if (attempt->shape == SOAK_LOCAL)
        return false;
    *r->smaller = *r->given;
    attempt->shape = SOAK_LOCAL;
    for (int s = attempt->settings.count - 1; s >= 0; s--) {
        const char *name = attempt->settings.at[s].row->name;
        if (attempt->settings.at[s].is_launch || strcmp(name, "max-staleness") == 0 || strstr(name, "-timeout") ||
            strncmp(name, "snapshot-", 9) == 0)
            soak_settings_remove(&attempt->settings, s);
    }
    return reduce_keep(r);
}

void soak_reduce(soak_case *given, const soak_programs *programs, double seconds, soak_result *result)
{
    reduction r = {.given = given,
                   .smaller = malloc(sizeof *given),
                   .programs = programs,
                   .ends = soak_seconds() + seconds,
                   .result = result};
    for (bool changed = r.smaller != NULL; changed && soak_seconds() < r.ends;) {
        changed = reduce_attempts(&r);
        changed |= reduce_disturbances(&r);
        for (int i = 0; i < given->attempt_count; i++)
            changed |= reduce_shape(&r, i);
        for (int i = -1; i < given->attempt_count; i++)
            changed |= reduce_settings(&r, i);
    }
    free(r.smaller);
}
