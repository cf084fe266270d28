/* Records a trace from the beginning to the end of training. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/callbacks.h"
#include "lockstep/trace.h"

typedef struct tracing {
    char *path;
    bool recording;
} tracing;

static lk_status trace_training_train_begin(void *self, lk_trainer *trainer)
{
    tracing *t = self;
    (void)trainer;
    lk_status status = lk_trace_start(NULL);
    t->recording = status == LK_OK;
    return status;
}

static lk_status trace_training_train_end(void *self, lk_trainer *trainer, const lk_train_result *result,
                                          lk_status status)
{
    tracing *t = self;
    (void)trainer, (void)result;
    if (status == LK_OK)
        LK_TRY(lk_wait_all());
    lk_trace *trace = lk_trace_stop();
    t->recording = false;
    lk_status written = trace ? lk_trace_write(trace, t->path) : lk_error_status();
    if (written == LK_OK && lk_trace_dropped(trace) > 0)
        lk__log(LK_LOG_WARNING, "trace %s: the last %lld events of the run did not fit", t->path,
                (long long)lk_trace_dropped(trace));
    lk_trace_release(trace);
    return written;
}

static void trace_training_release(void *self)
{
    tracing *t = self;
    if (t->recording) /* training did not end */
        lk_trace_release(lk_trace_stop());
    lk__free(t->path);
    lk__free(t);
}

lk_callback lk_callback_trace(const char *path)
{
    if (lk_trace_write(NULL, path) != LK_OK)
        return (lk_callback){0};
    tracing *t = lk__calloc(1, sizeof *t);
    if (!t)
        return (lk_callback){0};
    t->path = lk__strdup(path);
    if (!t->path) {
        trace_training_release(t);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "trace",
                         .train_begin = trace_training_train_begin,
                         .train_end = trace_training_train_end,
                         .release = trace_training_release,
                         .self = t};
}
