/* The list of callbacks, and what is asked of all of them. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"

static void release(const lk_callback *callback)
{
    if (callback->release)
        callback->release(callback->self);
}

lk_status lk_trainer_add(lk_trainer *trainer, lk_callback callback)
{
    /* A constructor that failed has left its error; lk__fail keeps it. */
    if (!callback.name) {
        lk__fail(LK_ERR_ARGUMENT, "a callback without a name");
        release(&callback);
        return lk_error_status();
    }
    lk_callback *callbacks =
        lk__realloc(trainer->callbacks, (size_t)trainer->n_callbacks + 1, sizeof *trainer->callbacks);
    if (!callbacks) {
        release(&callback);
        return LK_ERR_MEMORY;
    }
    trainer->callbacks = callbacks;
    callbacks[trainer->n_callbacks++] = callback;
    return LK_OK;
}

double lk__callbacks_rate(lk_trainer *trainer, double epoch, double rate)
{
    for (int i = 0; i < trainer->n_callbacks; i++) {
        const lk_callback *callback = &trainer->callbacks[i];
        if (callback->rate)
            rate = callback->rate(callback->self, trainer, epoch, rate);
    }
    return rate;
}

lk_status lk__callbacks_train_begin(lk_trainer *trainer, int *begun)
{
    for (*begun = 0; *begun < trainer->n_callbacks; (*begun)++) {
        const lk_callback *callback = &trainer->callbacks[*begun];
        if (callback->train_begin)
            LK_TRY(callback->train_begin(callback->self, trainer));
    }
    return LK_OK;
}

lk_status lk__callbacks_epoch_begin(lk_trainer *trainer, int64_t epoch)
{
    for (int i = 0; i < trainer->n_callbacks; i++) {
        const lk_callback *callback = &trainer->callbacks[i];
        if (callback->epoch_begin)
            LK_TRY(callback->epoch_begin(callback->self, trainer, epoch));
    }
    return LK_OK;
}

/* All callbacks see the report, also where an earlier one has asked for the end; the first one to ask is named. */
lk_status lk__callbacks_step_end(lk_trainer *trainer, const lk_step_report *report, const char **stopped_by)
{
    for (int i = 0; i < trainer->n_callbacks; i++) {
        const lk_callback *callback = &trainer->callbacks[i];
        bool stop = false;
        if (callback->step_end)
            LK_TRY(callback->step_end(callback->self, trainer, report, &stop));
        if (stop && !*stopped_by)
            *stopped_by = callback->name;
    }
    return LK_OK;
}

lk_status lk__callbacks_epoch_end(lk_trainer *trainer, const lk_epoch_report *report, const char **stopped_by)
{
    for (int i = 0; i < trainer->n_callbacks; i++) {
        const lk_callback *callback = &trainer->callbacks[i];
        bool stop = false;
        if (callback->epoch_end)
            LK_TRY(callback->epoch_end(callback->self, trainer, report, &stop));
        if (stop && !*stopped_by)
            *stopped_by = callback->name;
    }
    return LK_OK;
}

lk_status lk__callbacks_train_end(lk_trainer *trainer, int begun, const lk_train_result *result, lk_status status)
{
    lk_status first = status;
    for (int i = 0; i < begun; i++) {
        const lk_callback *callback = &trainer->callbacks[i];
        if (!callback->train_end)
            continue;
        lk_status ended = callback->train_end(callback->self, trainer, result, status);
        if (first == LK_OK)
            first = ended;
    }
    return first;
}

void lk__callbacks_release(lk_trainer *trainer)
{
    for (int i = 0; i < trainer->n_callbacks; i++)
        release(&trainer->callbacks[i]);
    lk__free(trainer->callbacks);
}
