/* Prints the images a second of each epoch. `self` is the stream. */
#include "lockstep/callbacks.h"

static lk_status throughput_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    if (report->epoch_seconds > 0) {
        fprintf(self, "Images/sec: %.2f\n", (double)report->samples / report->epoch_seconds);
        fflush(self);
    }
    return LK_OK;
}

lk_callback lk_callback_throughput(FILE *stream)
{
    return (lk_callback){.name = "throughput", .epoch_end = throughput_epoch_end, .self = stream};
}
