#include "soak_trial.h"

#include "soak_attempt.h"
#include "soak_inputs.h"
#include "soak_place.h"
#include "soak_processes.h"
#include "soak_rules.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct trial {
    const soak_case *given;
    const soak_programs *programs;
    soak_place place;
    soak_outcome reference;
    bool has_ended; /* an attempt ended well: the next ones may only print its last lines, with no work for others */
    soak_result *result;
    FILE *log;
} trial;

static int trial_covered[2 * SOAK_MAX_SETTINGS]; /* by row */

void soak_cover(const char *name, bool is_launch)
{
    int count;
    const soak_row *rows = soak_rows(&count), *row = soak_row_of(name, is_launch);
    trial_covered[row - rows]++;
}

int soak_covered(const char *name, bool is_launch)
{
    int count;
    const soak_row *rows = soak_rows(&count), *row = soak_row_of(name, is_launch);
    return trial_covered[row - rows];
}

/* Returns false, so that it can end a trial. */
static bool trial_fail(trial *t, const char *format, ...) LK_PRINTF(2, 3);

static bool trial_fail(trial *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->result->reason, sizeof t->result->reason, format, arguments);
    va_end(arguments);
    t->result->verdict = SOAK_WRONG;
    t->result->kind = format;
    fprintf(t->log, "wrong: %s\n", t->result->reason);
    return false;
}

/* --- judging -------------------------------------------------------------------------------------------------------
 */

static bool trial_check_digest(trial *t, const soak_outcome *outcome, const char *name)
{
    if (strcmp(outcome->digest, t->reference.digest) == 0 && strcmp(outcome->state, t->reference.state) == 0)
        return true;
    return trial_fail(t, "%s: digest %s, state digest %s; the reference has %s and %s", name, outcome->digest,
                      outcome->state, t->reference.digest, t->reference.state);
}

/* Returns whether the disturbances may end the attempt by an error. */
static bool trial_may_fail(const soak_attempt *attempt)
{
    return soak_attempt_has(attempt, SOAK_KILL) || soak_attempt_has(attempt, SOAK_INTERRUPT) ||
           soak_attempt_has(attempt, SOAK_DISK) || soak_attempt_has(attempt, SOAK_MEMORY) ||
           soak_attempt_has(attempt, SOAK_PIPE);
}

static bool trial_was_interrupted(const soak_attempt *attempt, const soak_outcome *outcome)
{
    if (!soak_attempt_has(attempt, SOAK_INTERRUPT))
        return false;
    /* A signal may come before it is caught. */
    return outcome->status == 130 || outcome->status == -15 || outcome->status == -2;
}

/* libzmq ends a process for which it gets no memory, with a line of its own. */
static bool trial_was_ended_by_libzmq(const soak_attempt *attempt, const soak_outcome *outcome)
{
    static const char line[] = "FATAL ERROR: OUT OF MEMORY";
    return outcome->status == -SIGABRT && soak_attempt_has(attempt, SOAK_MEMORY) &&
           strncmp(outcome->last, line, sizeof line - 1) == 0;
}

/* The attempt ended with the reference's digest, or as its disturbances allow. */
static bool trial_judge(trial *t, const soak_attempt *attempt, const soak_outcome *outcome, const char *name)
{
    const soak_outcome *reference = &t->reference;
    char left[700];
    bool after_kill = outcome->was_killed || soak_attempt_has(attempt, SOAK_MEMORY), had_ended = t->has_ended;
    t->has_ended |= *outcome->digest != '\0'; /* a closed pipe may still make its status 1 */
    if (outcome->has_hung)
        return trial_fail(t, "%s: hangs", name);
    if (outcome->has_left)
        return trial_fail(t, "%s: processes are left", name);
    if (soak_place_find_left(&t->place, after_kill, attempt->disturbance_count == 0, left, sizeof left))
        return trial_fail(t, "%s: left behind: %s", name, left);
    if (outcome->status == 0 && reference->status == 0) {
        if (outcome->others_failed && attempt->disturbance_count == 0 && !had_ended)
            return trial_fail(t, "%s: a process that is not the first failed", name);
        return trial_check_digest(t, outcome, name);
    }
    if ((outcome->first_was_killed && outcome->status == -9) || trial_was_interrupted(attempt, outcome) ||
        trial_was_ended_by_libzmq(attempt, outcome))
        return true;
    if (outcome->status == reference->status && *outcome->last)
        return true;
    /* A pipe whose reader has read enough is no reason for a message. */
    int least = soak_attempt_has(attempt, SOAK_PIPE) ? 0 : 1;
    bool is_clear = outcome->status == 1 && *outcome->last &&
                    (attempt->shape != SOAK_LOCAL || (outcome->complaints >= least && outcome->complaints <= 1));
    if (is_clear && trial_may_fail(attempt))
        return true;
    return trial_fail(t, "%s: status %d with %d errors, the reference %d; the last line: %s", name, outcome->status,
                      outcome->complaints, reference->status, outcome->last);
}

/* --- the reference -------------------------------------------------------------------------------------------------
 */

static void trial_add(soak_settings *settings, const char *name, bool is_launch, const char *format, ...)
    LK_PRINTF(4, 5);

static void trial_add(soak_settings *settings, const char *name, bool is_launch, const char *format, ...)
{
    char text[SOAK_VALUE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    soak_settings_add(settings, soak_row_of(name, is_launch)->option, is_launch, text);
}

/* One device and one process, unless the bits depend on the number of devices. */
static void trial_make_plain(const soak_case *given, soak_attempt *plain)
{
    int devices = given->fixed_devices > 0 ? given->fixed_devices : 1;
    bool is_compressed = soak_settings_value(&given->settings, "compress") != NULL;
    *plain = (soak_attempt){.shape = is_compressed ? SOAK_RANKS : SOAK_LOCAL, .processes = 1, .devices = devices};
    if (is_compressed)
        trial_add(&plain->settings, "processes", true, "1");
    trial_add(&plain->settings, "devices", false, "%dx%s%s", devices, given->device_kind,
              strcmp(given->device_kind, "cpu") == 0 ? ":0" : "");
}

/* Trains once for the files that --weights and --algorithms name. */
static void trial_make_files(trial *t)
{
    soak_case *given = malloc(sizeof *given);
    soak_attempt plain;
    soak_outcome outcome;
    char from[1024], command[2400];
    if (!given)
        abort();
    *given = *t->given;
    for (int i = given->settings.count - 1; i >= 0; i--) {
        const char *name = given->settings.at[i].row->name;
        if (strcmp(name, "weights") == 0 || strcmp(name, "weights-skip") == 0 || strcmp(name, "algorithms") == 0 ||
            strcmp(name, "epochs") == 0)
            soak_settings_remove(&given->settings, i);
    }
    trial_make_plain(given, &plain);
    trial_add(&plain.settings, "epochs", false, "1");
    trial_add(&plain.settings, "log-dir", false, "../inputs/before/log");
    soak_attempt_run(&(soak_attempt_job){.given = given,
                                         .attempt = &plain,
                                         .programs = t->programs,
                                         .place = &t->place,
                                         .folder = "reference",
                                         .name = "run-before",
                                         .checkpoints = "../inputs/before/checkpoints",
                                         .log = t->log},
                     &outcome);
    free(given);
    if (soak_place_newest(&t->place, "inputs/before/checkpoints", from, sizeof from) == 0)
        return;
    snprintf(command, sizeof command, "cp %s/model.safetensors %s/inputs/before/weights.safetensors", from,
             t->place.root);
    fprintf(t->log, "%s\n", command);
    if (system(command) != 0)
        fprintf(t->log, "failed\n");
}

static bool trial_run_reference(trial *t)
{
    soak_attempt plain;
    const char *algorithms = soak_settings_value(&t->given->settings, "algorithms");
    if (soak_settings_value(&t->given->settings, "weights") || (algorithms && strchr(algorithms, '/')))
        trial_make_files(t);
    trial_make_plain(t->given, &plain);
    soak_attempt_run(&(soak_attempt_job){.given = t->given,
                                         .attempt = &plain,
                                         .programs = t->programs,
                                         .place = &t->place,
                                         .folder = "reference",
                                         .name = "run",
                                         .log = t->log},
                     &t->reference);
    const soak_outcome *reference = &t->reference;
    if (reference->has_hung || reference->has_left || reference->status < 0 || reference->status > 2)
        return trial_fail(t, "the reference ended with %d%s", reference->status,
                          reference->has_hung ? ", or rather hung" : "");
    if (reference->status == 0 && (!*reference->digest || !*reference->state))
        return trial_fail(t, "the reference printed no digest");
    return reference->status == 0 || reference->complaints == 1 ||
           trial_fail(t, "the reference ended with %d and %d errors", reference->status, reference->complaints);
}

/* --- attempts ------------------------------------------------------------------------------------------------------
 */

static void trial_run_attempt(trial *t, const soak_attempt *attempt, const char *name, bool is_resuming,
                              soak_outcome *outcome)
{
    soak_attempt_run(&(soak_attempt_job){.given = t->given,
                                         .attempt = attempt,
                                         .programs = t->programs,
                                         .place = &t->place,
                                         .folder = "trial",
                                         .name = name,
                                         .checkpoints = "disk/checkpoints",
                                         .is_resuming = is_resuming,
                                         .seconds = t->reference.seconds + (attempt->shape == SOAK_LOCAL ? 0.1 : 0.4),
                                         .log = t->log},
                     outcome);
}

static void trial_clear(trial *t)
{
    char path[600];
    snprintf(path, sizeof path, "%s/trial/disk/checkpoints", t->place.root);
    soak_place_clear(path);
    snprintf(path, sizeof path, "%s/trial/disk/log", t->place.root);
    soak_place_clear(path);
}

/* Training on a TPU is refused, and the plug-in is asked for its devices first. */
static bool trial_check_tpu(trial *t)
{
    soak_attempt attempt = {.shape = SOAK_LOCAL, .processes = 1, .devices = 1};
    soak_outcome outcome;
    trial_add(&attempt.settings, "strategy", false, "tpu");
    trial_add(&attempt.settings, "pjrt", false, "../inputs/pjrt.so");
    trial_run_attempt(t, &attempt, "run-tpu", false, &outcome);
    trial_clear(t);
    return (outcome.status == 1 || outcome.status == 2) && outcome.complaints == 1
               ? true
               : trial_fail(t, "run-tpu: status %d with %d errors; the last line: %s", outcome.status,
                            outcome.complaints, outcome.last);
}

/* The only checkpoint is damaged: training must not go on, and says so. */
static bool trial_check_refusal(trial *t, const char *name)
{
    soak_attempt plain;
    soak_outcome outcome;
    char probe[64];
    snprintf(probe, sizeof probe, "%s-damaged", name);
    trial_make_plain(t->given, &plain);
    trial_run_attempt(t, &plain, probe, true, &outcome);
    trial_clear(t);
    return (outcome.status == 1 && outcome.complaints == 1) ||
           trial_fail(t, "%s: status %d with %d errors from a damaged checkpoint; the last line: %s", probe,
                      outcome.status, outcome.complaints, outcome.last);
}

static bool trial_damage(trial *t, const soak_attempt *attempt, const char *name)
{
    for (int i = 0; i < attempt->disturbance_count; i++) {
        const soak_disturbance *d = &attempt->disturbances[i];
        soak_random random = {d->choice};
        char path[1024], text[1200];
        if (d->kind != SOAK_DAMAGE)
            continue;
        if (soak_random_chance(&random, 0.3)) {
            snprintf(path, sizeof path, "%s/trial/disk/log", t->place.root);
            soak_place_damage(path, &random, text, sizeof text);
            fprintf(t->log, "  %s\n", text);
            continue;
        }
        int count = soak_place_newest(&t->place, "trial/disk/checkpoints", path, sizeof path);
        if (count == 0)
            continue;
        soak_place_damage(path, &random, text, sizeof text);
        fprintf(t->log, "  %s\n", text);
        if (count == 1 && !trial_check_refusal(t, name))
            return false;
    }
    return true;
}

static bool trial_run_attempts(trial *t)
{
    const soak_case *given = t->given;
    bool is_resuming = false;
    if (given->tries_tpu && !trial_check_tpu(t))
        return false;
    for (int i = t->reference.status == 0 ? 0 : given->attempt_count - 1; i < given->attempt_count; i++) {
        const soak_attempt *attempt = &given->attempts[i];
        char name[16];
        soak_outcome outcome;
        snprintf(name, sizeof name, "run-%d", i + 1);
        if (!trial_damage(t, attempt, name))
            return false;
        trial_run_attempt(t, attempt, name, is_resuming, &outcome);
        if (!trial_judge(t, attempt, &outcome, name))
            return false;
        is_resuming = true;
    }
    return true;
}

void soak_trial_run(const soak_case *given, const soak_programs *programs, soak_result *result)
{
    trial t = {.given = given, .programs = programs, .result = result};
    size_t size;
    char inputs[600];
    *result = (soak_result){.verdict = SOAK_PASSED};
    t.log = open_memstream(&result->log, &size);
    if (!t.log || !soak_place_make(&t.place))
        exit(1);
    if (*given->model)
        fprintf(t.log, "cat >../inputs/net.lk <<'END'\n%sEND\n", given->model);
    snprintf(inputs, sizeof inputs, "%s/inputs", t.place.root);
    if (!soak_inputs_write(given, inputs))
        exit(1);
    snprintf(inputs, sizeof inputs, "%s/inputs/pjrt.so", t.place.root);
    if (given->tries_tpu && symlink(programs->pjrt, inputs) != 0)
        exit(1);
    if (trial_run_reference(&t) && trial_run_attempts(&t)) {
        result->verdict = t.reference.status == 0 ? SOAK_PASSED : SOAK_REFUSED;
        for (int i = 0; t.reference.status == 0 && i < given->attempt_count; i++)
            for (int d = 0; d < given->attempts[i].disturbance_count; d++)
                result->disturbed[given->attempts[i].disturbances[d].kind]++;
    }
    fclose(t.log);
    soak_place_remove(&t.place);
}
