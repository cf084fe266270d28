/* One step. Every shard runs forward and backward by itself on its device; gradients, loss and hits are summed over
 * shards by the tree; every replica then applies the same sums.
 *
 * The loss is a sum over samples, and backward starts with 1 / (samples of the global batch): that is the one place
 * where anything is divided. */
#include "train/trainer.h"

#include "base/status.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"

/* --- a shard's samples -------------------------------------------------------------------------------------------- */

static void release_batch(void *batch)
{
    lk_batch_release(batch);
}

/* A tensor over the batch's own memory. */
static lk_tensor *wrap(lk_device *device, lk_dtype dtype, lk_shape shape, const void *data, lk_batch *batch)
{
    lk_tensor *tensor = lk_tensor_wrap(device, dtype, shape, (void *)(uintptr_t)data, release_batch, batch);
    if (tensor)
        lk_batch_retain(batch);
    return tensor;
}

typedef struct shard_input {
    lk_tensor *images, *labels;
} shard_input;

static lk_status shard_samples(const lk_trainer *trainer, lk_batch *batch, lk_range samples, lk_device *device,
                               shard_input *input)
{
    int64_t c = lk_dataset_channels(trainer->train_set), h = lk_dataset_height(trainer->train_set),
            w = lk_dataset_width(trainer->train_set), n = samples.end - samples.begin;
    input->images = wrap(device, LK_F32, LK_SHAPE(n, c, h, w), batch->images + samples.begin * c * h * w, batch);
    input->labels = wrap(device, LK_I32, LK_SHAPE(n), batch->labels + samples.begin, batch);
    return input->images && input->labels ? LK_OK : lk_error_status();
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

/* values[0] = sum of losses, values[1] = samples whose largest logit is the label's. */
static lk_status forward(const lk_trainer *trainer, lk_tensor *const *parameters, const shard_input *input,
                         lk_tensor **values)
{
    lk_tensor *logits = lk_model_forward(trainer->model, parameters, input->images);
    values[0] = lk_sparse_softmax_cross_entropy(logits, input->labels, LK_REDUCTION_SUM);
    values[1] = lk_sum(lk_in_top_k(logits, input->labels, 1), NULL);
    return values[0] && values[1] ? LK_OK : lk_error_status();
}

static lk_status forward_backward(lk_trainer *trainer, int replica, const shard_input *input, lk_tensor **values)
{
    int n = trainer->n_parameters;
    lk_tensor *const *parameters = trainer->parameters + (int64_t)replica * n;
    lk_tape *tape = lk_tape_begin(parameters, n);
    if (!tape)
        return lk_error_status();
    lk_status status = forward(trainer, parameters, input, values + n);
    if (status == LK_OK)
        status = lk_tape_gradient(tape, values[n], trainer->seeds[replica], values);
    lk_tape_release(tape);
    return status;
}

typedef lk_status (*shard_fn)(lk_trainer *trainer, int replica, const shard_input *input, lk_tensor **values);

static lk_status forward_only(lk_trainer *trainer, int replica, const shard_input *input, lk_tensor **values)
{
    return forward(trainer, trainer->parameters + (int64_t)replica * trainer->n_parameters, input, values);
}

static lk_status run_shard(lk_trainer *trainer, lk_shard_sum *sum, lk_batch *batch, int replica, int64_t shard,
                           shard_fn run)
{
    lk_range samples = lk_part(batch->count, trainer->plan.shards, shard);
    if (samples.begin == samples.end)
        return lk_shard_sum_add(sum, shard, NULL);
    shard_input input;
    lk_scope_begin();
    lk_status status = shard_samples(trainer, batch, samples, trainer->devices[replica], &input);
    if (status == LK_OK)
        status = run(trainer, replica, &input, trainer->shard_values);
    if (status == LK_OK)
        status = lk_shard_sum_add(sum, shard, trainer->shard_values);
    lk_scope_end();
    return status;
}

/* Every device's first shard, then every device's second, …: all devices have work from the start. */
static lk_status run_shards(lk_trainer *trainer, lk_shard_sum *sum, lk_batch *batch, shard_fn run)
{
    int64_t shards = trainer->plan.shards, most = (shards + trainer->n_devices - 1) / trainer->n_devices;
    for (int64_t i = 0; i < most; i++) {
        for (int d = 0; d < trainer->n_devices; d++) {
            lk_range own = lk_part(shards, trainer->n_devices, d);
            if (own.begin + i < own.end)
                LK_TRY(run_shard(trainer, sum, batch, d, own.begin + i, run));
        }
    }
    return LK_OK;
}

/* --- what becomes of the sums ------------------------------------------------------------------------------------- */

static void append_pending(lk_trainer *trainer, lk_tensor *loss, lk_tensor *hits, int64_t count)
{
    trainer->pending[trainer->n_pending++] = (lk_pending_step){lk_tensor_retain(loss), lk_tensor_retain(hits), count};
}

static void release_sums(lk_tensor **sums, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        lk_tensor_release(sums[i]);
        sums[i] = NULL;
    }
}

static lk_status update_replicas(lk_trainer *trainer)
{
    int n = trainer->n_parameters;
    for (int r = 0; r < trainer->n_devices; r++)
        LK_TRY(lk_sgd(trainer->parameters + (int64_t)r * n, trainer->sums + (int64_t)r * (n + 2), n,
                      trainer->plan.learning_rate));
    return LK_OK;
}

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

lk_status lk__train_step(lk_trainer *trainer, lk_batch *batch)
{
    int n = trainer->n_parameters;
    LK_TRY(set_seeds(trainer, batch->count));
    LK_TRY(run_shards(trainer, trainer->train_sum, batch, forward_backward));
    LK_TRY(lk_shard_sum_finish(trainer->train_sum, trainer->sums));
    lk_status status = update_replicas(trainer);
    if (status == LK_OK)
        append_pending(trainer, trainer->sums[n], trainer->sums[n + 1], batch->count);
    release_sums(trainer->sums, (int64_t)trainer->n_devices * (n + 2));
    return status;
}

lk_status lk__evaluate_step(lk_trainer *trainer, lk_batch *batch)
{
    LK_TRY(run_shards(trainer, trainer->val_sum, batch, forward_only));
    LK_TRY(lk_shard_sum_finish(trainer->val_sum, trainer->sums));
    append_pending(trainer, trainer->sums[0], trainer->sums[1], batch->count);
    release_sums(trainer->sums, (int64_t)trainer->n_devices * 2);
    return LK_OK;
}

/* --- metrics ------------------------------------------------------------------------------------------------------ */

static void remove_oldest(lk_trainer *trainer)
{
    lk_tensor_release(trainer->pending[0].loss);
    lk_tensor_release(trainer->pending[0].hits);
    trainer->n_pending--;
    for (int i = 0; i < trainer->n_pending; i++)
        trainer->pending[i] = trainer->pending[i + 1];
}

lk_status lk__take_pending(lk_trainer *trainer, lk_mean *loss, lk_mean *accuracy)
{
    lk_pending_step *oldest = &trainer->pending[0];
    double loss_sum = 0, hits = 0;
    lk_status status = lk_tensor_item(oldest->loss, &loss_sum);
    if (status == LK_OK)
        status = lk_tensor_item(oldest->hits, &hits);
    loss->sum += loss_sum;
    loss->count += oldest->count;
    accuracy->sum += hits;
    accuracy->count += oldest->count;
    remove_oldest(trainer);
    return status;
}

void lk__drop_pending(lk_trainer *trainer)
{
    while (trainer->n_pending > 0)
        remove_oldest(trainer);
}
