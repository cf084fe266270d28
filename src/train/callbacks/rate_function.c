/* A callback that takes the learning rate from a function. */
#include "base/mem.h"
#include "lockstep/callbacks.h"

typedef struct rate_function {
    lk_rate_fn rate;
    void *user;
} rate_function;

static double rate_function_call(void *self, lk_trainer *trainer, double epoch, double before)
{
    (void)trainer;
    rate_function *f = self;
    return f->rate(f->user, epoch, before);
}

lk_callback lk_callback_rate(lk_rate_fn function, void *user)
{
    rate_function *f = lk__calloc(1, sizeof *f);
    if (!f)
        return (lk_callback){0};
    *f = (rate_function){function, user};
    return (lk_callback){.name = "rate", .rate = rate_function_call, .release = lk__free, .self = f};
}
