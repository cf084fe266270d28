#include "train/callbacks/step_points.h"

#include "train/checkpoint/callback_state.h"

#include <math.h>

/* With accumulation only the last step of an update tells that it is skipped. An earlier sign is a loss that is not
 * finite and that the epoch's means leave out. */
static bool step_points_leave_out(const lk_step_report *report)
{
    return report->skipped || (!isfinite(report->batch.loss.sum) && isfinite(report->so_far.loss.sum));
}

static void step_points_add_mean(lk_mean *sum, lk_mean mean)
{
    sum->sum += mean.sum;
    sum->count += mean.count;
}

/* Returns whether a point ends at this step. */
static bool step_points_end_at(const lk_step_points *points, int64_t step)
{
    int64_t length = 1;
    while (step / 2 / length >= points->every)
        length *= 2;
    return step % length == 0;
}

bool lk__step_points_add(lk_step_points *points, const lk_step_report *report, lk_step_point *point)
{
    lk_step_point *open = &points->open;
    open->step = report->total; /* a training that was resumed may have had epochs with other numbers of steps */
    open->epoch = (double)(report->epoch - 1) + (double)report->step / (double)report->steps;
    open->rate = report->rate;
    open->skipped += report->skipped;
    if (!step_points_leave_out(report)) {
        step_points_add_mean(&open->loss, report->batch.loss);
        step_points_add_mean(&open->accuracy, report->batch.accuracy);
    }
    return step_points_end_at(points, open->step) && lk__step_points_end(points, point);
}

bool lk__step_points_end(lk_step_points *points, lk_step_point *point)
{
    *point = points->open;
    points->open = (lk_step_point){0};
    return point->step > 0;
}

enum { STEP, EPOCH, LOSS, LOSS_COUNT, ACCURACY, ACCURACY_COUNT, RATE, SKIPPED, NUMBERS };

void lk__step_points_save(const lk_step_points *points, lk_state *state)
{
    const lk_step_point *open = &points->open;
    const double numbers[NUMBERS] = {[STEP] = (double)open->step,
                                     [EPOCH] = open->epoch,
                                     [LOSS] = open->loss.sum,
                                     [LOSS_COUNT] = (double)open->loss.count,
                                     [ACCURACY] = open->accuracy.sum,
                                     [ACCURACY_COUNT] = (double)open->accuracy.count,
                                     [RATE] = open->rate,
                                     [SKIPPED] = (double)open->skipped};
    lk_state_set(state, "open_point", numbers, NUMBERS);
}

void lk__step_points_resume(lk_step_points *points, const lk_state *state)
{
    double numbers[NUMBERS];
    points->open = (lk_step_point){0};
    if (lk_state_get(state, "open_point", numbers, NUMBERS) != NUMBERS)
        return; /* a checkpoint from before points were recorded */
    points->open = (lk_step_point){.step = lk__state_integer(numbers[STEP]),
                                   .epoch = numbers[EPOCH],
                                   .loss = {numbers[LOSS], lk__state_integer(numbers[LOSS_COUNT])},
                                   .accuracy = {numbers[ACCURACY], lk__state_integer(numbers[ACCURACY_COUNT])},
                                   .rate = numbers[RATE],
                                   .skipped = lk__state_integer(numbers[SKIPPED])};
}
