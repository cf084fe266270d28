/* Prints the time that training has taken so far. `self` is the stream. */
#include "lockstep/callbacks.h"

static lk_status total_time_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    fprintf(self, "Cumulative training time after epoch %lld: %.2f\n", (long long)report->epoch, report->total_seconds);
    fflush(self);
    return LK_OK;
}

static lk_status total_time_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)status;
    fprintf(self, "Cumulative training time: %.2f\n", result->total_seconds);
    fflush(self);
    return LK_OK;
}

lk_callback lk_callback_total_time(FILE *stream)
{
    return (lk_callback){
        .name = "total time", .epoch_end = total_time_epoch_end, .train_end = total_time_train_end, .self = stream};
}
