#include "train/trainer_progress.h"

#include "base/status.h"
#include "train/step/step.h"
#include "train/trainer.h"

lk_pending_step *lk__pending_append(lk_trainer *trainer, lk_tensor *const *metrics, const lk_batch *batch)
{
    lk_pending_step *step = &trainer->progress.pending[trainer->progress.n_pending++];
    *step = (lk_pending_step){.count = batch->count, .batch = batch->index};
    if (!metrics)
        return step;
    step->loss = lk_tensor_retain(metrics[0]);
    step->hits = lk_tensor_retain(metrics[1]);
    if (trainer->plan.top_k > 0)
        step->top_k = lk_tensor_retain(metrics[2]);
    return step;
}

static void progress_remove_oldest(lk_trainer_progress *progress)
{
    const lk_pending_step *oldest = &progress->pending[0];
    lk_tensor_release(oldest->results);
    lk_tensor_release(oldest->loss);
    lk_tensor_release(oldest->hits);
    lk_tensor_release(oldest->top_k);
    lk_tensor_release(oldest->skipped);
    lk_tensor_release(oldest->votes);
    progress->n_pending--;
    for (int i = 0; i < progress->n_pending; i++)
        progress->pending[i] = progress->pending[i + 1];
}

static lk_status progress_read_mean(lk_tensor *sum, int64_t count, lk_mean *mean)
{
    *mean = (lk_mean){0};
    if (!sum)
        return LK_OK;
    mean->count = count;
    return lk_tensor_item(sum, &mean->sum);
}

static lk_status progress_read_results(const lk_pending_step *step, bool has_top_k, lk_step_metrics *found)
{
    float values[LK_MAX_METRICS + 1] = {0}, *skipped = values + (has_top_k ? 3 : 2);
    LK_TRY(lk_tensor_read(step->results, values, (size_t)lk_tensor_count(step->results) * sizeof *values));
    found->metrics =
        (lk_metrics){.loss = {(double)values[0], step->count}, .accuracy = {(double)values[1], step->count}};
    if (has_top_k)
        found->metrics.top_k = (lk_mean){(double)values[2], step->count};
    found->skipped = *skipped != 0;
    return LK_OK;
}

/* Reads first what the step computes last: the rest is ready by then, and the caller sleeps and wakes once. */
static lk_status progress_read_step(const lk_pending_step *step, lk_step_metrics *found)
{
    double skipped = 0;
    float votes[LK_VOTES] = {0};
    if (step->skipped)
        LK_TRY(lk_tensor_item(step->skipped, &skipped));
    if (step->votes)
        LK_TRY(lk_tensor_read(step->votes, votes, sizeof votes));
    found->skipped = skipped != 0;
    for (int i = 0; i < LK_VOTES; i++)
        found->votes[i] = votes[i] != 0;
    LK_TRY(progress_read_mean(step->top_k, step->count, &found->metrics.top_k));
    LK_TRY(progress_read_mean(step->hits, step->count, &found->metrics.accuracy));
    return progress_read_mean(step->loss, step->count, &found->metrics.loss);
}

lk_status lk__pending_take(lk_trainer *trainer, lk_pending_step *step, lk_step_metrics *metrics)
{
    lk_pending_step *oldest = &trainer->progress.pending[0];
    *metrics = (lk_step_metrics){0};
    lk_status status = oldest->results ? progress_read_results(oldest, trainer->plan.top_k > 0, metrics)
                                       : progress_read_step(oldest, metrics);
    *step = *oldest;
    step->results = step->loss = step->hits = step->top_k = step->skipped = step->votes = NULL;
    progress_remove_oldest(&trainer->progress);
    return status;
}

void lk__pending_drop(lk_trainer *trainer)
{
    while (trainer->progress.n_pending > 0)
        progress_remove_oldest(&trainer->progress);
}
