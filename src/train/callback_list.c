#include "train/callback_list.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/json.h"
#include "train/checkpoint/callback_state.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static void callback_release(const lk_callback *callback)
{
    if (callback->release)
        callback->release(callback->self);
}

lk_status lk__callbacks_add(lk_callbacks *callbacks, lk_callback callback)
{
    /* If a constructor has failed, lk__fail keeps the error that it left. */
    if (!callback.name) {
        lk__fail(LK_ERR_ARGUMENT, "a callback without a name");
        callback_release(&callback);
        return lk_error_status();
    }
    lk_callback *list = lk__realloc(callbacks->list, (size_t)callbacks->n + 1, sizeof *list);
    if (!list) {
        callback_release(&callback);
        return LK_ERR_MEMORY;
    }
    callbacks->list = list;
    list[callbacks->n++] = callback;
    return LK_OK;
}

void lk__callbacks_release(lk_callbacks *callbacks)
{
    for (int i = 0; i < callbacks->n; i++)
        callback_release(&callbacks->list[i]);
    lk__free(callbacks->list);
}

/* Says which hook has failed, unless it has said more itself. */
static lk_status callback_name_failure(const lk_callback *callback, const char *hook, lk_status status)
{
    if (status != LK_OK && lk_error_status() == LK_OK)
        lk__fail(status, "callback %s: its %s failed: %s", callback->name, hook, lk_status_name(status));
    return status;
}

/* A hook may add callbacks, which moves the list: the loops copy each callback. */

lk_status lk__callbacks_train_begin(lk_callbacks *callbacks, lk_trainer *trainer)
{
    for (callbacks->begun = 0; callbacks->begun < callbacks->n; callbacks->begun++) {
        const lk_callback callback = callbacks->list[callbacks->begun];
        if (callback.train_begin)
            LK_TRY(callback_name_failure(&callback, "train_begin", callback.train_begin(callback.self, trainer)));
    }
    return LK_OK;
}

lk_status lk__callbacks_epoch_begin(const lk_callbacks *callbacks, lk_trainer *trainer, int64_t epoch)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback callback = callbacks->list[i];
        if (callback.epoch_begin)
            LK_TRY(
                callback_name_failure(&callback, "epoch_begin", callback.epoch_begin(callback.self, trainer, epoch)));
    }
    return LK_OK;
}

double lk__callbacks_rate(const lk_callbacks *callbacks, lk_trainer *trainer, double epoch, double rate)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback callback = callbacks->list[i];
        if (callback.rate)
            rate = callback.rate(callback.self, trainer, epoch, rate);
    }
    return rate;
}

lk_status lk__callbacks_step_end(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_step_report *report,
                                 const char **stopped_by)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback callback = callbacks->list[i];
        bool stop = false;
        if (callback.step_end)
            LK_TRY(
                callback_name_failure(&callback, "step_end", callback.step_end(callback.self, trainer, report, &stop)));
        if (stop && !*stopped_by)
            *stopped_by = callback.name;
    }
    return LK_OK;
}

lk_status lk__callbacks_epoch_end(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_epoch_report *report,
                                  const char **stopped_by)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback callback = callbacks->list[i];
        bool stop = false;
        if (callback.epoch_end)
            LK_TRY(callback_name_failure(&callback, "epoch_end",
                                         callback.epoch_end(callback.self, trainer, report, &stop)));
        if (stop && !*stopped_by)
            *stopped_by = callback.name;
    }
    return LK_OK;
}

lk_status lk__callbacks_eval_step(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_eval_report *report)
{
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback callback = callbacks->list[i];
        if (callback.eval_step)
            LK_TRY(callback_name_failure(&callback, "eval_step", callback.eval_step(callback.self, trainer, report)));
    }
    return LK_OK;
}

bool lk__callbacks_want_rest(const lk_callbacks *callbacks, lk_trainer *trainer, int64_t steps)
{
    bool wanted = false;
    for (int i = 0; i < callbacks->n; i++) {
        const lk_callback callback = callbacks->list[i];
        if (callback.wants_rest)
            wanted |= callback.wants_rest(callback.self, trainer, steps);
    }
    return wanted;
}

lk_status lk__callbacks_rest(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_rest_report *report)
{
    lk_status status = LK_OK;
    bool before = trainer->progress.at_rest; /* a callback may itself have a list of callbacks */
    trainer->progress.at_rest = true;
    for (int i = 0; i < callbacks->n && status == LK_OK; i++) {
        const lk_callback callback = callbacks->list[i];
        if (callback.rest)
            status = callback_name_failure(&callback, "rest", callback.rest(callback.self, trainer, report));
    }
    trainer->progress.at_rest = before;
    return status;
}

enum { MEMBER_NAME = 80 };
typedef char member_name[MEMBER_NAME];

static bool callback_names_hold(const member_name *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Names the callbacks' members of a state, no two alike. Free the names with lk__free; NULL: out of memory. */
static member_name *callback_member_names(const lk_callbacks *callbacks)
{
    member_name *names = lk__calloc((size_t)callbacks->n + 1, sizeof *names);
    for (int i = 0; names && i < callbacks->n; i++) {
        snprintf(names[i], MEMBER_NAME, "%.60s", callbacks->list[i].name);
        for (int number = 2; callback_names_hold(names, i, names[i]); number++)
            snprintf(names[i], MEMBER_NAME, "%.60s %d", callbacks->list[i].name, number);
    }
    return names;
}

lk_status lk__callbacks_save(const lk_callbacks *callbacks, lk_trainer *trainer, lk_state *state)
{
    member_name *names = callback_member_names(callbacks);
    lk_status status = names ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < callbacks->n && status == LK_OK; i++) {
        const lk_callback callback = callbacks->list[i];
        if (!callback.save)
            continue;
        lk__json_open(state->out, names[i], '{');
        status = callback_name_failure(&callback, "save", callback.save(callback.self, trainer, state));
        lk__json_close(state->out, '}');
    }
    lk__free(names);
    return status;
}

lk_status lk__callbacks_resume(const lk_callbacks *callbacks, lk_trainer *trainer, const lk_state *state)
{
    member_name *names = callback_member_names(callbacks);
    lk_status status = names ? LK_OK : LK_ERR_MEMORY;
    for (int i = callbacks->n - 1; i >= 0 && status == LK_OK; i--) {
        const lk_callback callback = callbacks->list[i];
        lk_state member = {.in = json_object_get(state->in, names[i])};
        if (callback.resume && member.in)
            status = callback_name_failure(&callback, "resume", callback.resume(callback.self, trainer, &member));
    }
    lk__free(names);
    return status;
}

lk_status lk__callbacks_train_end(lk_callbacks *callbacks, lk_trainer *trainer, const lk_train_result *result,
                                  lk_status status)
{
    lk_status first = status;
    for (int i = 0; i < callbacks->begun; i++) {
        const lk_callback callback = callbacks->list[i];
        if (!callback.train_end)
            continue;
        lk_status ended =
            callback_name_failure(&callback, "train_end", callback.train_end(callback.self, trainer, result, status));
        if (first == LK_OK)
            first = ended;
    }
    callbacks->begun = 0;
    return first;
}
