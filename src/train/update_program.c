#include "train/update_program.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "ops/update.h"
#include "optim/optimizer.h"
#include "optim/optimizer_step.h"
#include "train/replicas.h"
#include "lockstep/ops.h"
#include "lockstep/program.h"

typedef struct lk_update_programs {
    struct lk_update_programs *next;
    lk_program *program;
    int owner, loss;
    int64_t samples;
} recorded;

/* The update that is recorded. Its inputs are the sums that are not NULL, and then the rates. */
typedef struct recording {
    lk_replicas *replicas;
    lk_tensor **sums; /* [n]: those of the recording */
    const bool *present;
    int owner, n, loss;
    int64_t samples;
} recording;

void lk__update_programs_release(lk_update_programs *programs)
{
    while (programs) {
        recorded *next = programs->next;
        lk_program_release(programs->program);
        lk__free(programs);
        programs = next;
    }
}

static lk_status update_program_record(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    int n_in = 0;
    for (int i = 0; i < r->n; i++)
        r->sums[i] = r->present[i] ? in[n_in++] : NULL;
    LK_TRY(lk__replicas_record(r->replicas, r->owner, r->sums, r->loss, r->samples, in[n_in]));
    out[0] = lk_optimizer_skipped(lk_replicas_optimizer(r->replicas, r->owner));
    return LK_OK;
}

/* Finds the program, or records it with inputs like in[0 … n_in). */
static lk_status update_program_get(lk_update_programs **programs, recording *r, lk_tensor *const *in, int n_in,
                                    lk_program **program)
{
    for (recorded *p = *programs; p; p = p->next)
        if (p->owner == r->owner && p->loss == r->loss && p->samples == r->samples) {
            *program = p->program;
            return LK_OK;
        }
    recorded *p = lk__calloc(1, sizeof *p);
    if (!p)
        return LK_ERR_MEMORY;
    lk_device *device = lk_tensor_device(in[0]);
    p->program = *program = lk_program_record(device, update_program_record, r, in, n_in, 1, NULL);
    if (!p->program) {
        lk__free(p);
        return lk_error_status();
    }
    p->owner = r->owner;
    p->loss = r->loss;
    p->samples = r->samples;
    p->next = *programs;
    *programs = p;
    return LK_OK;
}

/* The same values of a bucket are present in every step. Gradients that the optimizer has kept from the last step are
 * copied, because the program writes their memory. The loss, sums[loss], may lie past the sums that are applied; then
 * it is one more of them. */
static lk_status update_program_run(lk_update_programs **programs, recording *r, lk_tensor *const *sums, double rate,
                                    lk_tensor **in, bool *present, lk_tensor **skipped)
{
    lk_optimizer *optimizer = lk_replicas_optimizer(r->replicas, r->owner);
    lk_tensor *const *kept = lk_optimizer_gradients(optimizer);
    double rates[LK_OPTIMIZER_RATES];
    lk_program *program;
    int n_in = 0;
    for (int i = 0; i < r->n; i++) {
        present[i] = sums[i] != NULL;
        if (!present[i])
            continue;
        bool is_kept = kept && sums[i]->storage == kept[0]->storage;
        in[n_in] = is_kept ? lk_copy(sums[i], lk_tensor_device(sums[i])) : sums[i];
        if (!in[n_in++])
            return lk_error_status();
    }
    LK_TRY(lk__optimizer_rates(optimizer, rate, rates));
    in[n_in] = lk_tensor_from(lk_tensor_device(lk__replicas_owned(r->replicas, r->owner)[0]), LK_F64,
                              LK_SHAPE(lk__optimizer_rate_count(optimizer)), rates);
    if (!in[n_in++])
        return lk_error_status();
    LK_TRY(update_program_get(programs, r, in, n_in, &program));
    LK_TRY(lk_program_run(program, in, 0, skipped));
    lk__optimizer_replayed(optimizer);
    lk_tensor_retain(*skipped);
    return LK_OK;
}

lk_status lk__update_program_run(lk_update_programs **programs, lk_replicas *replicas, int owner,
                                 lk_tensor *const *sums, int n_sums, int loss, int64_t samples, double rate,
                                 lk_tensor **skipped)
{
    int n = loss >= n_sums ? loss + 1 : n_sums;
    lk_tensor **memory = lk__calloc(2 * (size_t)n + 1, sizeof(lk_tensor *));
    bool *present = lk__calloc((size_t)n, sizeof *present);
    recording r = {.replicas = replicas,
                   .sums = memory,
                   .present = present,
                   .owner = owner,
                   .n = n,
                   .loss = loss,
                   .samples = samples};
    lk_scope_begin();
    lk_status status =
        memory && present ? update_program_run(programs, &r, sums, rate, memory + n, present, skipped) : LK_ERR_MEMORY;
    lk_scope_end();
    LK_FREE_ALL(memory, present);
    return status;
}
