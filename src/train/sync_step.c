/* A step with batch-norm over the whole batch: its layers need sums over all shards in the middle of the forward and of
 * the backward pass, so all shards run together, layer by layer, on one tape. A shard watches views of its own of its
 * replica's parameters, so that gradients stay apart until the tree adds them up. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

#include <string.h>

typedef struct together {
    int64_t n;               /* shards that have samples */
    lk_shard *shards;        /* [n] */
    lk_tensor *const **sets; /* [n]: the variables of each */
    lk_tensor **images, **indices, **logits;
    lk_tensor **targets, **seeds;
    lk_tensor **gradients;  /* [n * parameters], as the tape gives them */
    lk_tensor **values;     /* [n * values] */
    lk_tensor **watched;    /* [n * parameters] */
    lk_tensor **statistics; /* [n * layers] */
    void *memory;           /* all of the pointers above */
} together;

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_tensor **take(lk_tensor ***free_slots, int64_t count)
{
    lk_tensor **slots = *free_slots;
    *free_slots += count;
    return slots;
}

static lk_status allocate(const lk_trainer *trainer, together *t)
{
    int64_t p = trainer->n_parameters, s = trainer->n_updated - p;
    t->shards = lk__calloc((size_t)t->n, sizeof *t->shards);
    t->sets = lk__calloc((size_t)t->n, sizeof *t->sets);
    t->memory = lk__calloc((size_t)(t->n * (5 + 2 * p + s + trainer->n_values)), sizeof(lk_tensor *));
    if (!t->shards || !t->sets || !t->memory)
        return LK_ERR_MEMORY;
    lk_tensor **slots = t->memory;
    t->images = take(&slots, t->n);
    t->indices = take(&slots, t->n);
    t->logits = take(&slots, t->n);
    t->targets = take(&slots, t->n);
    t->seeds = take(&slots, t->n);
    t->gradients = take(&slots, t->n * p);
    t->watched = take(&slots, t->n * p);
    t->statistics = take(&slots, t->n * s);
    t->values = take(&slots, t->n * trainer->n_values);
    return LK_OK;
}

static void release(together *t)
{
    lk__free(t->shards);
    lk__free(t->sets);
    lk__free(t->memory);
}

/* Views for every shard, made once: a tape tells tensors apart, not what they show. Buffers are not watched. */
static lk_status make_views(lk_trainer *trainer)
{
    if (trainer->watched)
        return LK_OK;
    int64_t n = trainer->n_variables, shards = trainer->plan.shards;
    trainer->watched = lk__calloc((size_t)(shards * n), sizeof(lk_tensor *));
    if (!trainer->watched)
        return LK_ERR_MEMORY;
    lk_status status = LK_OK;
    lk_scope_begin();
    for (int d = 0; d < trainer->n_devices; d++) {
        lk_range own = lk_part(shards, trainer->n_devices, d);
        lk_tensor *const *variables = lk_trainer_variables(trainer, d);
        for (int64_t i = own.begin * n; i < own.end * n && status == LK_OK; i++) {
            lk_tensor *variable = variables[i % n];
            lk_tensor *seen =
                i % n < trainer->n_parameters ? lk_reshape(variable, lk_tensor_shape(variable)) : variable;
            trainer->watched[i] = lk_tensor_retain(seen);
            status = seen ? LK_OK : lk_error_status();
        }
    }
    lk_scope_end();
    return status;
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

static int owner(const lk_trainer *trainer, int64_t shard)
{
    int d = 0;
    while (shard >= lk_part(trainer->plan.shards, trainer->n_devices, d).end)
        d++;
    return d;
}

static lk_status set_up(lk_trainer *trainer, lk_batch *batch, together *t)
{
    int64_t shards = trainer->plan.shards, n = trainer->n_variables, p = trainer->n_parameters, i = 0;
    for (int64_t s = 0; s < shards; s++) {
        lk_range samples = lk_part(batch->count, shards, s);
        if (samples.begin == samples.end)
            continue;
        lk_shard *shard = &t->shards[i];
        int replica = owner(trainer, s);
        *shard = (lk_shard){.replica = replica, .index = s, .shards = shards};
        LK_TRY(lk__shard_of_batch(trainer->train_set, batch, samples, trainer->devices[replica], shard));
        t->images[i] = shard->images;
        t->indices[i] = shard->indices;
        t->seeds[i] = trainer->seeds[replica];
        t->sets[i] = trainer->watched + s * n;
        memcpy(t->watched + i * p, t->sets[i], (size_t)p * sizeof(lk_tensor *));
        i++;
    }
    return LK_OK;
}

static lk_status sync(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    (void)user;
    return lk_allreduce_recorded(parts, sums, n);
}

static lk_status forward(lk_trainer *trainer, const lk_batch *batch, together *t)
{
    lk_forward_opts opts = lk__training_opts(trainer, &trainer->update);
    opts.indices = t->indices;
    opts.statistics = t->statistics;
    opts.sync = sync;
    opts.global_batch = batch->count;
    LK_TRY(lk_model_forward_shards(trainer->model, (int)t->n, t->sets, t->images, &opts, t->logits));
    for (int64_t i = 0; i < t->n; i++) {
        lk_tensor **metrics = t->values + i * trainer->n_values + trainer->n_updated;
        LK_TRY(lk__metrics_of(trainer, t->logits[i], t->shards[i].labels, trainer->plan.label_smoothing, metrics));
        t->targets[i] = metrics[0];
    }
    return LK_OK;
}

static lk_status forward_backward(lk_trainer *trainer, const lk_batch *batch, together *t)
{
    lk_tape *tape = lk_tape_begin(t->watched, (int)t->n * trainer->n_parameters);
    if (!tape)
        return lk_error_status();
    lk_status status = forward(trainer, batch, t);
    if (status == LK_OK)
        status = lk_tape_gradients(tape, t->targets, t->seeds, (int)t->n, t->gradients);
    lk_tape_release(tape);
    return status;
}

/* --- sums over shards --------------------------------------------------------------------------------------------- */

static void gather_values(const lk_trainer *trainer, together *t)
{
    int64_t p = trainer->n_parameters, s = trainer->n_updated - p;
    for (int64_t i = 0; i < t->n; i++) {
        lk_tensor **values = t->values + i * trainer->n_values;
        memcpy(values, t->gradients + i * p, (size_t)p * sizeof(lk_tensor *));
        memcpy(values + p, t->statistics + i * s, (size_t)s * sizeof(lk_tensor *));
    }
}

static lk_status add_shards(lk_trainer *trainer, const together *t)
{
    int64_t i = 0;
    for (int64_t s = 0; s < trainer->plan.shards; s++) {
        bool present = i < t->n && t->shards[i].index == s;
        LK_TRY(lk_shard_sum_add(trainer->train_sum, s, present ? t->values + i * trainer->n_values : NULL));
        i += present;
    }
    return LK_OK;
}

static lk_status run(lk_trainer *trainer, lk_batch *batch, together *t)
{
    LK_TRY(make_views(trainer));
    LK_TRY(allocate(trainer, t));
    LK_TRY(set_up(trainer, batch, t));
    LK_TRY(forward_backward(trainer, batch, t));
    gather_values(trainer, t);
    return add_shards(trainer, t);
}

lk_status lk__run_shards_together(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums)
{
    together t = {.n = batch->count < trainer->plan.shards ? batch->count : trainer->plan.shards};
    lk_scope_begin();
    lk_status status = run(trainer, batch, &t);
    lk_scope_end();
    release(&t);
    lk_status finished = lk_shard_sum_finish(trainer->train_sum, sums);
    return status != LK_OK ? status : finished;
}
