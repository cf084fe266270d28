/* One step. Every shard runs forward and backward by itself on its device; gradients, batch-norm statistics, loss and
 * hits are summed over shards by the tree; every replica then applies the same sums.
 *
 * The loss is a sum over samples, and backward starts with 1 / (samples of the whole update): that is the one place
 * where anything is divided. With accumulation an update has several batches, whose sums are added in their order. */
#include "train/trainer.h"

#include "base/status.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

/* --- forward and backward ----------------------------------------------------------------------------------------- */

int lk__metric_count(const lk_trainer *trainer)
{
    return trainer->plan.top_k > 0 ? 3 : 2;
}

static lk_tensor *hits(lk_tensor *logits, lk_tensor *labels, int64_t k)
{
    return lk_sum(lk_in_top_k(logits, labels, (int)k), NULL);
}

lk_status lk__metrics_of(const lk_trainer *trainer, lk_tensor *logits, lk_tensor *labels, double smoothing,
                         lk_tensor **metrics)
{
    metrics[0] = lk_smoothed_cross_entropy(logits, labels, smoothing, LK_REDUCTION_SUM);
    metrics[1] = hits(logits, labels, 1);
    lk_tensor *last = metrics[1];
    if (trainer->plan.top_k > 0)
        last = metrics[2] = hits(logits, labels, trainer->plan.top_k);
    return metrics[0] && metrics[1] && last ? LK_OK : lk_error_status();
}

lk_forward_opts lk__training_opts(const lk_trainer *trainer, const lk__update *update)
{
    return (lk_forward_opts){
        .training = true, .dtype = trainer->plan.dtype, .seed = trainer->plan.seed, .step = update->number};
}

static lk_status train_piece(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    int n = trainer->n_parameters;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica),
                     **metrics = values + trainer->n_updated;
    lk_forward_opts opts = lk__training_opts(trainer, &trainer->update);
    opts.indices = &shard->indices;
    opts.statistics = trainer->n_updated > n ? values + n : NULL;
    lk_tape *tape = lk_tape_begin(variables, n);
    if (!tape)
        return lk_error_status();
    lk_tensor *logits = lk_model_forward(trainer->model, variables, shard->images, &opts);
    lk_status status = lk__metrics_of(trainer, logits, shard->labels, trainer->plan.label_smoothing, metrics);
    if (status == LK_OK)
        status = lk_tape_gradient(tape, metrics[0], seed, values);
    lk_tape_release(tape);
    return status;
}

lk_status lk__training_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    return lk__run_pieces(trainer, trainer->plan.micro_batch, train_piece, shard, seed, trainer->n_values, values);
}

static lk_status evaluate_piece(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    (void)seed;
    lk_tensor *const *variables = lk_trainer_variables(trainer, shard->replica);
    lk_tensor *logits =
        lk_model_forward(trainer->model, variables, shard->images, &(lk_forward_opts){.dtype = trainer->plan.dtype});
    return lk__metrics_of(trainer, logits, shard->labels, 0, values);
}

lk_status lk__evaluation_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values)
{
    return lk__run_pieces(trainer, trainer->plan.val_micro_batch, evaluate_piece, shard, seed,
                          lk__metric_count(trainer), values);
}

static lk_status forward_backward(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    lk_trainer *trainer = user;
    lk_tensor *seed = trainer->seeds[shard->replica];
    return lk__begin_shard_pass(trainer, lk__training_pass, trainer->train_data, shard, seed, trainer->n_values, values,
                                replay);
}

static lk_status forward_only(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay)
{
    lk_trainer *trainer = user;
    return lk__begin_shard_pass(trainer, lk__evaluation_pass, trainer->val_data, shard, NULL, lk__metric_count(trainer),
                                values, replay);
}

/* --- what becomes of the sums ------------------------------------------------------------------------------------- */

/* metrics: of replica 0. */
static lk__pending_step *append_pending(lk_trainer *trainer, lk_tensor *const *metrics, const lk_batch *batch)
{
    lk__pending_step *step = &trainer->pending[trainer->n_pending++];
    *step = (lk__pending_step){.loss = lk_tensor_retain(metrics[0]),
                               .hits = lk_tensor_retain(metrics[1]),
                               .count = batch->count,
                               .batch = batch->index};
    if (trainer->plan.top_k > 0)
        step->top_k = lk_tensor_retain(metrics[2]);
    return step;
}

/* into[i] = into[i] + values[i], what is NULL counting as absent. */
static lk_status add_up(lk_tensor **into, lk_tensor *const *values, int n)
{
    for (int i = 0; i < n; i++) {
        lk_scope_begin();
        lk_tensor *sum = into[i] && values[i] ? lk_add(into[i], values[i]) : into[i] ? into[i] : values[i];
        bool failed = !sum && values[i];
        if (sum && sum != into[i]) {
            lk_tensor_retain(sum);
            lk_tensor_release(into[i]);
            into[i] = sum;
        }
        lk_scope_end();
        if (failed)
            return lk_error_status();
    }
    return LK_OK;
}

/* The sums of the update's batches so far, in the batches' order; of the metrics the loss alone. */
static lk_status accumulate(lk_trainer *trainer)
{
    int stride = trainer->n_values;
    for (int64_t r = 0; r < trainer->n_devices; r++)
        LK_TRY(add_up(trainer->accumulated + r * stride, trainer->sums + r * stride, trainer->n_updated + 1));
    return LK_OK;
}

static lk_status apply(lk_trainer *trainer, lk_tensor **sums)
{
    const lk__update *update = &trainer->update;
    LK_TRY(lk__replicas_apply(trainer->replicas, sums, trainer->n_values, trainer->n_updated, update->samples,
                              update->rate));
    trainer->updates++;
    return LK_OK;
}

static lk_status finish_batch(lk_trainer *trainer, const lk_batch *batch)
{
    const lk__update *update = &trainer->update;
    bool last = batch->index + 1 == update->first + update->batches;
    lk_tensor **sums = trainer->sums;
    if (update->batches > 1) {
        LK_TRY(accumulate(trainer));
        sums = trainer->accumulated;
    }
    if (last) {
        LK_TRY(apply(trainer, sums));
        if (update->batches > 1)
            lk__release_tensors(trainer->accumulated, (int64_t)trainer->n_devices * trainer->n_values);
    }
    lk__pending_step *pending = append_pending(trainer, trainer->sums + trainer->n_updated, batch);
    if (last)
        pending->skipped = lk_tensor_retain(lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0)));
    pending->update = *update;
    trainer->steps++;
    return LK_OK;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static lk_status set_seeds(lk_trainer *trainer, int64_t count)
{
    if (trainer->seed_count == count)
        return LK_OK;
    trainer->seed_count = 0;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_tensor_release(trainer->seeds[r]);
        lk_scope_begin();
        trainer->seeds[r] = lk_tensor_retain(lk_full(trainer->devices[r], LK_F32, LK_SCALAR, 1.0 / (double)count));
        lk_scope_end();
        if (!trainer->seeds[r])
            return lk_error_status();
    }
    trainer->seed_count = count;
    return LK_OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Which update the batch is part of; all but its number and rate. */
static lk__update update_of_batch(const lk_trainer *trainer, int64_t epoch, int64_t batch)
{
    const lk_plan *plan = &trainer->plan;
    int64_t first = batch - batch % plan->accumulate, end = least(first + plan->accumulate, plan->steps_per_epoch);
    return (lk__update){.epoch = epoch,
                        .first = first,
                        .batches = end - first,
                        .samples = least(end * plan->batch_size, plan->train_samples) - first * plan->batch_size};
}

/* A step that is one program: its update is in it. */
static lk_status run_program(lk_trainer *trainer, lk_batch *batch)
{
    lk_tensor *metrics[LK_MAX_METRICS], *skipped;
    lk_scope_begin();
    lk_status status = lk__run_training_program(trainer, batch, metrics, &skipped);
    if (status == LK_OK) {
        lk__pending_step *pending = append_pending(trainer, metrics, batch);
        pending->skipped = lk_tensor_retain(skipped);
        pending->update = trainer->update;
        trainer->updates++;
        trainer->steps++;
    }
    lk_scope_end();
    return status;
}

lk_status lk__train_step(lk_trainer *trainer, lk_batch *batch, double rate)
{
    bool together = trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model);
    trainer->update = update_of_batch(trainer, batch->epoch, batch->index);
    trainer->update.number = trainer->updates;
    trainer->update.rate = rate;
    LK_TRY(set_seeds(trainer, trainer->update.samples));
    LK_TRY(lk__device_data_start(trainer->train_data, batch->epoch));
    if (lk__step_is_one_program(trainer))
        return run_program(trainer, batch);
    if (together)
        LK_TRY(lk__run_shards_together(trainer, batch, trainer->sums));
    else
        LK_TRY(lk__run_shards(trainer->train_sum, trainer->n_values, trainer->train_set, batch, forward_backward,
                              trainer, trainer->step_programs != NULL, trainer->sums));
    lk_status status = finish_batch(trainer, batch);
    lk__release_tensors(trainer->sums, (int64_t)trainer->n_devices * trainer->n_values);
    return status;
}

lk_status lk__run_training_shards(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                  lk_tensor **sums)
{
    LK_TRY(set_seeds(trainer, trainer->update.samples));
    LK_TRY(lk__device_data_start(trainer->train_data, batch->epoch));
    return lk__run_shards_of(sum, first, trainer->plan.shards, trainer->n_values, trainer->train_set, batch,
                             forward_backward, trainer, sums);
}

lk_status lk__evaluate_step(lk_trainer *trainer, lk_batch *batch)
{
    int n = lk__metric_count(trainer);
    LK_TRY(lk__device_data_start(trainer->val_data, batch->epoch));
    LK_TRY(lk__run_shards(trainer->val_sum, n, trainer->val_set, batch, forward_only, trainer,
                          trainer->step_programs != NULL, trainer->sums));
    append_pending(trainer, trainer->sums, batch);
    lk__release_tensors(trainer->sums, (int64_t)trainer->n_devices * n);
    return LK_OK;
}

/* --- metrics ------------------------------------------------------------------------------------------------------ */

static void remove_oldest(lk_trainer *trainer)
{
    lk__pending_step *oldest = &trainer->pending[0];
    lk_tensor_release(oldest->loss);
    lk_tensor_release(oldest->hits);
    lk_tensor_release(oldest->top_k);
    lk_tensor_release(oldest->skipped);
    lk_tensor_release(oldest->votes);
    trainer->n_pending--;
    for (int i = 0; i < trainer->n_pending; i++)
        trainer->pending[i] = trainer->pending[i + 1];
}

static lk_status read_mean(lk_tensor *sum, int64_t count, lk_mean *mean)
{
    *mean = (lk_mean){0};
    if (!sum)
        return LK_OK;
    mean->count = count;
    return lk_tensor_item(sum, &mean->sum);
}

/* What the step gives last comes first: the rest is there by then, and the caller sleeps and wakes once. */
static lk_status read_step(const lk__pending_step *step, lk__step_metrics *found)
{
    double skipped = 0, votes = 0;
    if (step->skipped)
        LK_TRY(lk_tensor_item(step->skipped, &skipped));
    if (step->votes)
        LK_TRY(lk_tensor_item(step->votes, &votes));
    found->skipped = skipped != 0;
    found->interrupted = votes != 0;
    LK_TRY(read_mean(step->top_k, step->count, &found->metrics.top_k));
    LK_TRY(read_mean(step->hits, step->count, &found->metrics.accuracy));
    return read_mean(step->loss, step->count, &found->metrics.loss);
}

lk_status lk__take_pending(lk_trainer *trainer, lk__pending_step *step, lk__step_metrics *metrics)
{
    lk_status status = read_step(&trainer->pending[0], metrics);
    *step = trainer->pending[0];
    step->loss = step->hits = step->top_k = step->skipped = step->votes = NULL;
    remove_oldest(trainer);
    return status;
}

void lk__drop_pending(lk_trainer *trainer)
{
    while (trainer->n_pending > 0)
        remove_oldest(trainer);
}
