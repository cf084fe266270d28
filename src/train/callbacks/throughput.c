/* Prints how many images a second an epoch took. */
#include "lockstep/callbacks.h"

#include "base/mem.h"

typedef struct throughput {
    FILE *stream;
    double epoch_began; /* seconds since fit began */
} throughput;

static lk_status train_begin(void *self, lk_trainer *trainer)
{
    (void)trainer;
    throughput *t = self;
    t->epoch_began = 0;
    return LK_OK;
}

static lk_status epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer, (void)stop;
    throughput *t = self;
    double seconds = report->total_seconds - t->epoch_began;
    t->epoch_began = report->total_seconds;
    if (seconds > 0) {
        fprintf(t->stream, "Images/sec: %.2f\n", (double)report->samples / seconds);
        fflush(t->stream);
    }
    return LK_OK;
}

lk_callback lk_callback_throughput(FILE *stream)
{
    throughput *t = lk__calloc(1, sizeof *t);
    if (!t)
        return (lk_callback){0};
    t->stream = stream;
    return (lk_callback){
        .name = "throughput", .train_begin = train_begin, .epoch_end = epoch_end, .release = lk__free, .self = t};
}
