/* Replicas that have had the same updates must be equal: parameters, buffers and the optimizer's state, on all devices
 * of all processes. An audit reads and hashes everything, one tensor after the other.
 */
#include "train/audit.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/tensor.h"
#include "dist/process/group.h"
#include "dist/strategy.h"
#include "train/digest.h"
#include "train/parameter_server/ps_identity.h"
#include "train/replicas.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* A copy is a replica's tensors, or those that the storing device has for all replicas. */
typedef struct audit {
    lk_trainer *trainer;
    lk_group *group; /* NULL: one process */
    int slots;       /* kinds of optimizer state that each copy has; 0: copies share the state */
    int tensors;     /* in a copy: the variables, then for each slot a tensor for each parameter */
    int here, most;  /* copies that this process has, and that the process with the most has */
    int processes;
    uint64_t *own; /* [most][tensors] */
    uint64_t *all; /* [processes][most][tensors] */
} audit;

/* Identifies a copy among those of all processes. */
typedef struct copy_id {
    int process, copy;
} copy_id;

static int audit_copies_of(const audit *a, int process)
{
    const int *starts = lk_trainer_strategy(a->trainer)->starts;
    return starts ? starts[process + 1] - starts[process] : a->here;
}

static const uint64_t *audit_hashes_of(const audit *a, copy_id p)
{
    return a->all + ((int64_t)p.process * a->most + p.copy) * a->tensors;
}

/* --- hashing ------------------------------------------------------------------------------------------------------ */

/* Hashes a parameter's part of a slot, which has the layout of the packed parameters. */
static lk_status audit_hash_state(lk_tensor *slot, lk_tensor *parameter, uint64_t *hash)
{
    lk_tensor *part = lk__tensor_over(slot->storage, parameter);
    if (!part)
        return LK_ERR_MEMORY;
    lk_status status = lk__hash_tensor(part, hash);
    lk_tensor_release(part);
    return status;
}

static lk_status audit_hash_copy(const audit *a, int copy, uint64_t *hashes)
{
    lk_trainer *trainer = a->trainer;
    bool is_stored = copy == trainer->n_devices;
    lk_tensor *const *variables =
        is_stored ? lk__replicas_stored(trainer->replicas) : lk_trainer_variables(trainer, copy);
    for (int i = 0; i < trainer->n_variables; i++)
        LK_TRY(lk__hash_tensor(variables[i], hashes++));
    for (int s = 0; s < a->slots; s++)
        for (int i = 0; i < trainer->n_parameters; i++)
            LK_TRY(audit_hash_state(lk_optimizer_state(lk_replicas_optimizer(trainer->replicas, copy), s, NULL),
                                    variables[i], hashes++));
    return LK_OK;
}

static lk_status audit_hash_all(audit *a)
{
    for (int copy = 0; copy < a->here; copy++)
        LK_TRY(audit_hash_copy(a, copy, a->own + (int64_t)copy * a->tensors));
    size_t bytes = (size_t)a->most * (size_t)a->tensors * sizeof *a->own;
    if (a->group)
        return lk__group_gather(a->group, a->own, bytes, a->all);
    memcpy(a->all, a->own, bytes);
    return LK_OK;
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static bool audit_next_copy(const audit *a, copy_id *p)
{
    p->copy++;
    while (p->process < a->processes && p->copy >= audit_copies_of(a, p->process))
        *p = (copy_id){p->process + 1, 0};
    return p->process < a->processes;
}

/* *usual: the first copy with the value that most copies have. *other: the first copy that differs from it. False: all
 * are equal. */
static bool audit_find_difference(const audit *a, int tensor, copy_id *usual, copy_id *other)
{
    int best = 0;
    for (copy_id p = {0, -1}; audit_next_copy(a, &p);) {
        int n = 0;
        for (copy_id q = {0, -1}; audit_next_copy(a, &q);)
            n += audit_hashes_of(a, q)[tensor] == audit_hashes_of(a, p)[tensor];
        if (n > best) {
            best = n;
            *usual = p;
        }
    }
    for (*other = (copy_id){0, -1}; audit_next_copy(a, other);)
        if (audit_hashes_of(a, *other)[tensor] != audit_hashes_of(a, *usual)[tensor])
            return true;
    return false;
}

typedef char name_text[384];

static const char *audit_name_tensor(const audit *a, int tensor, name_text text)
{
    const lk_trainer *trainer = a->trainer;
    int state = tensor - trainer->n_variables;
    if (state < 0)
        return lk_model_variable_name(trainer->model, tensor);
    const char *slot = "";
    lk_optimizer_state(lk_replicas_optimizer(trainer->replicas, 0), state / trainer->n_parameters, &slot);
    snprintf(text, sizeof(name_text), "%s of %s", slot,
             lk_model_variable_name(trainer->model, state % trainer->n_parameters));
    return text;
}

static const char *audit_name_copy(const audit *a, copy_id p, name_text text)
{
    const lk_trainer *trainer = a->trainer;
    if (p.copy == trainer->n_devices && lk_strategy_storage(trainer->strategy))
        snprintf(text, sizeof(name_text), "what %s stores", trainer->plan.storage);
    else if (a->group)
        snprintf(text, sizeof(name_text), "replica %d of rank %d on %s", p.copy, p.process,
                 lk__group_host(a->group, p.process));
    else
        snprintf(text, sizeof(name_text), "replica %d (%s)", p.copy, lk_device_name(trainer->devices[p.copy]));
    return text;
}

/* Every process compares the same hashes, so all get the same status. */
static lk_status audit_compare(const audit *a)
{
    name_text name, here, there, more = "";
    copy_id usual = {0, 0}, other = {0, 0};
    int first = -1, n = 0;
    for (int t = 0; t < a->tensors; t++) {
        copy_id found_usual = {0, 0}, found_other;
        if (!audit_find_difference(a, t, &found_usual, &found_other))
            continue;
        if (n++ == 0) {
            first = t;
            usual = found_usual;
            other = found_other;
        }
    }
    if (n == 0)
        return LK_OK;
    if (n > 1)
        snprintf(more, sizeof more, ", and %d more tensor%s", n - 1, n == 2 ? "" : "s");
    LK_FAIL(LK_ERR_STATE,
            "audit after step %lld: %s of %s differs from that of %s%s; after the same updates they have to be equal",
            (long long)a->trainer->progress.steps, audit_name_tensor(a, first, name), audit_name_copy(a, other, here),
            audit_name_copy(a, usual, there), more);
}

/* --- auditing ----------------------------------------------------------------------------------------------------- */

static int audit_count_slots(const lk_trainer *trainer)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    int n = 0;
    while (lk_optimizer_state(optimizer, n, NULL))
        n++;
    return n;
}

static lk_status audit_init(audit *a, lk_trainer *trainer)
{
    bool is_central = lk_strategy_storage(trainer->strategy);
    *a = (audit){.trainer = trainer,
                 .slots = is_central || lk__replicas_slices(trainer->replicas) ? 0 : audit_count_slots(trainer),
                 .here = trainer->n_devices + is_central,
                 .processes = trainer->plan.processes};
    a->tensors = trainer->n_variables + a->slots * trainer->n_parameters;
    if (a->processes > 1)
        LK_TRY(lk__group_open(&a->group));
    for (int process = 0; process < a->processes; process++)
        a->most = (int)lk__max(a->most, audit_copies_of(a, process));
    size_t hashes = (size_t)a->most * (size_t)a->tensors;
    a->own = lk__calloc(hashes, sizeof *a->own);
    a->all = lk__calloc((size_t)a->processes * hashes, sizeof *a->all);
    return a->own && a->all ? LK_OK : LK_ERR_MEMORY;
}

static lk_status audit_run(lk_trainer *trainer)
{
    audit a;
    lk_status status = audit_init(&a, trainer);
    if (status == LK_OK)
        status = audit_hash_all(&a);
    if (status == LK_OK)
        status = audit_compare(&a);
    lk__free(a.own);
    lk__free(a.all);
    return status;
}

static bool audit_has_copies(const lk_trainer *trainer)
{
    return trainer->plan.devices > 1 || lk_strategy_storage(trainer->strategy);
}

lk_status lk__plan_audit(const lk_trainer *trainer)
{
    if (trainer->config.checks.audit_every == 0)
        return LK_OK;
    if (lk__ps_is_asked_for(&trainer->config))
        LK_FAIL(LK_ERR_ARGUMENT, "--audit-every: workers of strategy parameter-server have their own updates each, and "
                                 "need not be equal");
    if (!audit_has_copies(trainer))
        lk__log(LK_LOG_WARNING, "--audit-every %lld: there is one replica, and nothing to compare it with",
                (long long)trainer->config.checks.audit_every);
    return LK_OK;
}

lk_status lk__audit(lk_trainer *trainer, bool at_end)
{
    int64_t every = trainer->config.checks.audit_every, steps = trainer->progress.steps;
    bool is_due = every > 0 && (at_end || steps % every == 0);
    if (!is_due || !audit_has_copies(trainer))
        return LK_OK;
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WORK, "audit");
    lk_status status = audit_run(trainer);
    lk__activity_end(before);
    trainer->progress.audits += status == LK_OK;
    return status;
}
