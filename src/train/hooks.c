/* What a list of callbacks is asked, one after the other. */
#include "train/hooks.h"

#include "base/mem.h"
#include "base/status.h"

static void release(const lk_callback *callback)
{
    if (callback->release)
        callback->release(callback->self);
}

lk_status lk__callbacks_add(lk__callbacks *callbacks, lk_callback callback)
{
    /* A constructor that failed has left its error; lk__fail keeps it. */
    if (!callback.name) {
        lk__fail(LK_ERR_ARGUMENT, "a callback without a name");
        release(&callback);
        return lk_error_status();
    }
    lk_callback *list = lk__realloc(callbacks->list, (size_t)callbacks->n + 1, sizeof *list);
    if (!list) {
        release(&callback);
        return LK_ERR_MEMORY;
    }
    callbacks->list = list;
    list[callbacks->n++] = callback;
    return LK_OK;
}

void lk__callbacks_release(lk__callbacks *callbacks)
{
    for (int i = 0; i < callbacks->n; i++)
        release(&callbacks->list[i]);
    lk__free(callbacks->list);
}

lk_status lk__callbacks_train_begin(lk__callbacks *callbacks, lk_trainer *trainer)
{
    for (callbacks->begun = 0; callbacks->begun < callbacks->n; callbacks->begun++) {
        const lk_callback *callback = &callbacks->list[callbacks->begun];
        if (callback->train_begin)
            LK_TRY(callback->train_begin(callback->self, trainer));
    }
    return LK_OK;
}

lk_status lk__callbacks_epoch_begin(const lk__callbacks *callbacks, lk_trainer *trainer, int64_t epoch)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback *callback = &callbacks->list[i];
        if (callback->epoch_begin)
            LK_TRY(callback->epoch_begin(callback->self, trainer, epoch));
    }
    return LK_OK;
}

double lk__callbacks_rate(const lk__callbacks *callbacks, lk_trainer *trainer, double epoch, double rate)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback *callback = &callbacks->list[i];
        if (callback->rate)
            rate = callback->rate(callback->self, trainer, epoch, rate);
    }
    return rate;
}

typedef lk_status (*report_fn)(const lk_callback *callback, lk_trainer *trainer, const void *report, bool *stop);

static lk_status report_to_all(const lk__callbacks *callbacks, lk_trainer *trainer, report_fn tell, const void *report,
                               const char **stopped_by)
{
    for (int i = 0; i < callbacks->n; i++) {
        bool stop = false;
        LK_TRY(tell(&callbacks->list[i], trainer, report, &stop));
        if (stop && !*stopped_by)
            *stopped_by = callbacks->list[i].name;
    }
    return LK_OK;
}

static lk_status report_step(const lk_callback *callback, lk_trainer *trainer, const void *report, bool *stop)
{
    return callback->step_end ? callback->step_end(callback->self, trainer, report, stop) : LK_OK;
}

lk_status lk__callbacks_step_end(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_step_report *report,
                                 const char **stopped_by)
{
    return report_to_all(callbacks, trainer, report_step, report, stopped_by);
}

static lk_status report_epoch(const lk_callback *callback, lk_trainer *trainer, const void *report, bool *stop)
{
    return callback->epoch_end ? callback->epoch_end(callback->self, trainer, report, stop) : LK_OK;
}

lk_status lk__callbacks_epoch_end(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_epoch_report *report,
                                  const char **stopped_by)
{
    return report_to_all(callbacks, trainer, report_epoch, report, stopped_by);
}

lk_status lk__callbacks_eval_step(const lk__callbacks *callbacks, lk_trainer *trainer, const lk_eval_report *report)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback *callback = &callbacks->list[i];
        if (callback->eval_step)
            LK_TRY(callback->eval_step(callback->self, trainer, report));
    }
    return LK_OK;
}

lk_status lk__callbacks_train_end(lk__callbacks *callbacks, lk_trainer *trainer, const lk_train_result *result,
                                  lk_status status)
{
    lk_status first = status;
    for (int i = 0; i < callbacks->begun; i++) {
        const lk_callback *callback = &callbacks->list[i];
        if (!callback->train_end)
            continue;
        lk_status ended = callback->train_end(callback->self, trainer, result, status);
        if (first == LK_OK)
            first = ended;
    }
    callbacks->begun = 0;
    return first;
}
