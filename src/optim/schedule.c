/* Learning-rate schedules (lk_schedule_rate). */
#include "base/float_env.h"
#include "base/number.h"
#include "base/status.h"
#include "lockstep/optim.h"

#include <math.h>

/* --- rates -------------------------------------------------------------------------------------------------------- */

/* cos(pi t) for t in [0, 1] by its Taylor series about 0 or, mirrored, about 1. C libraries differ in the last bits of
 * cos(), which would change the rate. */
static double schedule_cos_pi(double t)
{
    const double pi = 3.141592653589793;
    double x = pi * (t > 0.5 ? 1 - t : t), square = x * x, sum = 1;
    for (int k = 22; k > 0; k -= 2)
        sum = 1 - square / (double)(k * (k - 1)) * sum;
    return t > 0.5 ? -sum : sum;
}

static double schedule_cosine(const lk_schedule *schedule, double epoch)
{
    double t = schedule->epochs > 0 ? epoch / schedule->epochs : 1;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return schedule->minimum + (schedule->base - schedule->minimum) * ((1 + schedule_cos_pi(t)) / 2);
}

static double schedule_stepped(const lk_schedule *schedule, double epoch)
{
    double factor = 1;
    for (int i = 0; i < schedule->n_steps && i < LK_SCHEDULE_MAX_STEPS; i++)
        if (epoch >= schedule->at[i])
            factor = schedule->factor[i];
    return schedule->base * factor;
}

static double schedule_base_rate(const lk_schedule *schedule, double epoch)
{
    switch (schedule->kind) {
    case LK_SCHEDULE_STEP:
        return schedule_stepped(schedule, epoch);
    case LK_SCHEDULE_COSINE:
        return schedule_cosine(schedule, epoch);
    default:
        return schedule->base;
    }
}

/* The share of the warm-up that is done after the update that begins at `epoch`. Updates are counted in whole
 * numbers, so that the last one reaches 1. */
static double schedule_warmed_up(const lk_schedule *schedule, double epoch)
{
    double updates = (double)schedule->updates_per_epoch;
    return updates > 0 ? (round(epoch * updates) + 1) / (schedule->warmup_epochs * updates)
                       : epoch / schedule->warmup_epochs;
}

static double schedule_warm_rate(const lk_schedule *schedule, double epoch)
{
    double rate = schedule_base_rate(schedule, epoch), start = schedule->warmup_start;
    if (!(epoch < schedule->warmup_epochs))
        return rate;
    double share = schedule_warmed_up(schedule, epoch);
    return share < 1 ? rate * (start + (1 - start) * share) : rate;
}

double lk_schedule_rate(const lk_schedule *schedule, double epoch)
{
    fenv_t callers = lk__float_begin();
    double rate = schedule_warm_rate(schedule, epoch);
    lk__float_end(&callers);
    return rate;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Reads a number of 0 or more at *text, and the character after it, which must be `after`, ':' or ','. The text may end
 * instead of a ','. */
static lk_status schedule_read_number(const char *whole, const char **text, const char *what, char after, double *value)
{
    char *end;
    size_t column = (size_t)(*text - whole) + 1;
    if (!lk__number_starts(*text))
        LK_FAIL(LK_ERR_ARGUMENT, "schedule '%s', column %zu: expected %s, a number", whole, column, what);
    *value = lk__number_parse(*text, &end);
    if (!(*value >= 0) || !isfinite(*value))
        LK_FAIL(LK_ERR_ARGUMENT, "schedule '%s', column %zu: %s is %.*s; it must be a finite number of 0 or more",
                whole, column, what, (int)(end - *text), *text);
    if (*end != after && (*end || after == ':'))
        LK_FAIL(LK_ERR_ARGUMENT, "schedule '%s', column %zu: expected %s after %s", whole, (size_t)(end - whole) + 1,
                after == ':' ? "':'" : "',' or the end", what);
    *text = *end ? end + 1 : end;
    return LK_OK;
}

static lk_status schedule_read_step(const char *whole, const char **text, lk_schedule *steps)
{
    int i = steps->n_steps;
    size_t column = (size_t)(*text - whole) + 1;
    if (i == LK_SCHEDULE_MAX_STEPS)
        LK_FAIL(LK_ERR_ARGUMENT, "schedule '%s', column %zu: more than %d steps", whole, column, LK_SCHEDULE_MAX_STEPS);
    LK_TRY(schedule_read_number(whole, text, "an epoch", ':', &steps->at[i]));
    LK_TRY(schedule_read_number(whole, text, "a factor", ',', &steps->factor[i]));
    if (i > 0 && !(steps->at[i] > steps->at[i - 1]))
        LK_FAIL(LK_ERR_ARGUMENT, "schedule '%s', column %zu: epoch %g comes after epoch %g; epochs must ascend", whole,
                column, steps->at[i], steps->at[i - 1]);
    steps->n_steps++;
    return LK_OK;
}

lk_status lk_schedule_parse_steps(const char *text, lk_schedule *schedule)
{
    lk_schedule read = *schedule;
    const char *rest = text;
    read.n_steps = 0;
    do {
        LK_TRY(schedule_read_step(text, &rest, &read));
    } while (*rest || (rest > text && rest[-1] == ','));
    *schedule = read;
    return LK_OK;
}
