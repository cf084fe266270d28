#include "train/trainer_progress.h"

#include "base/status.h"
#include "train/trainer.h"

lk_pending_step *lk__pending_append(lk_trainer *trainer, lk_tensor *const *metrics, const lk_batch *batch)
{
    lk_pending_step *step = &trainer->progress.pending[trainer->progress.n_pending++];
    *step = (lk_pending_step){.loss = lk_tensor_retain(metrics[0]),
                              .hits = lk_tensor_retain(metrics[1]),
                              .count = batch->count,
                              .batch = batch->index};
    if (trainer->plan.top_k > 0)
        step->top_k = lk_tensor_retain(metrics[2]);
    return step;
}

static void progress_remove_oldest(lk_trainer_progress *progress)
{
    const lk_pending_step *oldest = &progress->pending[0];
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
    lk_status status = progress_read_step(&trainer->progress.pending[0], metrics);
    *step = trainer->progress.pending[0];
    step->loss = step->hits = step->top_k = step->skipped = step->votes = NULL;
    progress_remove_oldest(&trainer->progress);
    return status;
}

void lk__pending_drop(lk_trainer *trainer)
{
    while (trainer->progress.n_pending > 0)
        progress_remove_oldest(&trainer->progress);
}
