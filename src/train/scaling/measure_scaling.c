/* Measures the numbers of the scaling report: it records a window of steps and adds them up, and times the exchange
 * when training has ended. Each process measures its own devices; then all processes exchange their results. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"
#include "core/trace_summary.h"
#include "dist/process/group.h"
#include "dist/strategy.h"
#include "io/bytes.h"
#include "report/scaling_file.h"
#include "report/scaling_folder.h"
#include "train/parameter_server/ps_chief.h"
#include "train/scaling/scaling_exchange.h"
#include "train/trainer.h"
#include "train/trainer_devices.h"
#include "lockstep/callbacks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <unistd.h>

enum {
    FIRST_STEP = 5, /* earlier steps record programs and plan memory */
    WINDOW = 20,
    /* The steps in flight when the window ends have to be of the same epoch, and as large as all others. */
    STEPS_BEHIND = LK_RUN_AHEAD + 1,
    LEAST_WINDOW = 2
};

typedef struct measuring {
    char *dir;                  /* where the report of one device may be; NULL: none */
    int64_t epoch, first, last; /* steps (first, last] of the epoch are recorded; epoch 0: none */
    bool recording;
    double processor; /* seconds of the devices' threads: before the window, then in it */
    lk_trace *trace;
    int64_t marks[WINDOW]; /* the times at which the window's steps ended, except the last one */
    int n_marks;
} measuring;

typedef struct device_times {
    char name[32];
    double compute, exchange, slowest, input, other;
    double waits[WINDOW]; /* the waits in `exchange`, from mark to mark */
} device_times;

/* One process's times, in seconds over the whole window. */
typedef struct process_times {
    int64_t steps; /* 0: nothing was recorded */
    double seconds, operators, processor, update;
    double small_sum, large_sum; /* of the exchange of a small and of a large row: the same in all processes */
    int n;
    device_times devices[LK_MAX_DEVICES];
} process_times;

/* --- the window --------------------------------------------------------------------------------------------------- */

/* Chooses the window's steps, all in one epoch, so that no evaluation is among them. If an epoch is too short for a
 * full window after FIRST_STEP, the window begins after the first step of the second epoch; if there is only one epoch,
 * after its second step. Steps of the first epoch count from where the training is resumed. */
static void scaling_window_plan(measuring *m, const lk_trainer *trainer)
{
    int64_t steps = trainer->plan.steps_per_epoch, left = trainer->plan.epochs - trainer->progress.epoch;
    int64_t taken = trainer->progress.position.batch;
    m->epoch = trainer->progress.epoch + 1;
    m->first = taken + FIRST_STEP;
    if (steps < m->first + WINDOW + STEPS_BEHIND) {
        m->epoch += left > 1;
        m->first = left > 1 ? 1 : taken + 2;
    }
    m->last = m->first + WINDOW < steps - STEPS_BEHIND ? m->first + WINDOW : steps - STEPS_BEHIND;
    if (m->last - m->first < LEAST_WINDOW)
        m->epoch = 0;
}

static lk_status scaling_processor_seconds(const lk_trainer *trainer, double *sum)
{
    *sum = 0;
    int n = trainer->n_devices + lk__has_separate_storage(trainer->strategy);
    for (int d = 0; d < n; d++) {
        double seconds;
        lk_device *device = d < trainer->n_devices ? trainer->devices[d] : lk_strategy_storage(trainer->strategy);
        LK_TRY(lk_device_processor_seconds(device, &seconds));
        *sum += seconds;
    }
    return LK_OK;
}

/* The devices are idle when the window begins and when it ends, so the record has exactly the window's steps. */
static lk_status scaling_window_begin(measuring *m, const lk_trainer *trainer)
{
    if (lk__trace_is_on())
        return LK_OK;
    LK_TRY(scaling_processor_seconds(trainer, &m->processor));
    LK_TRY(lk_trace_start(NULL));
    m->recording = true;
    m->n_marks = 0;
    return LK_OK;
}

static lk_status scaling_window_end(measuring *m, const lk_trainer *trainer)
{
    double before = m->processor;
    if (!m->recording)
        return LK_OK;
    LK_TRY(scaling_processor_seconds(trainer, &m->processor));
    m->processor -= before;
    m->trace = lk_trace_stop();
    m->recording = false;
    return m->trace ? LK_OK : lk_error_status();
}

static void scaling_window_drop(measuring *m)
{
    if (m->recording)
        lk_trace_release(lk_trace_stop());
    lk_trace_release(m->trace);
    m->recording = false;
    m->trace = NULL;
}

/* --- one process -------------------------------------------------------------------------------------------------- */

static bool scaling_is_own_device(const lk_trainer *trainer, const char *name)
{
    for (int d = 0; d < trainer->n_devices; d++)
        if (strcmp(lk_device_name(trainer->devices[d]), name) == 0)
            return true;
    return false;
}

static bool scaling_name_ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}

/* Returns whether an operator runs once for an update on a device that has variables, and not once for a shard. */
static bool scaling_operator_is_update(const lk_trace_operator *op)
{
    return scaling_name_ends_in(op->name, "_update") || strcmp(op->name, "squared_norms") == 0 ||
           strcmp(op->name, "update_scales") == 0;
}

static lk_status scaling_process_add_summary(const measuring *m, const lk_trainer *trainer,
                                             const lk_trace_summary *summary, process_times *t)
{
    for (int d = 0; d < summary->n_devices && t->n < LK_MAX_DEVICES; d++) {
        const lk_trace_device *from = &summary->devices[d];
        device_times *to = &t->devices[t->n];
        if (!scaling_is_own_device(trainer, from->name))
            continue;
        t->n++;
        snprintf(to->name, sizeof to->name, "%s", from->name);
        to->compute = from->compute + from->shard_sums;
        to->exchange = from->exchange;
        to->slowest = from->slowest;
        to->input = from->input;
        to->other = from->other;
        LK_TRY(lk__trace_exchange_waits(m->trace, d, m->marks, m->n_marks, to->waits));
    }
    for (int i = 0; i < summary->n_operators; i++) {
        const lk_trace_operator *op = &summary->operators[i];
        t->operators += op->seconds;
        t->update += scaling_operator_is_update(op) ? op->seconds : 0;
    }
    t->seconds = summary->seconds;
    t->processor = m->processor;
    t->steps = t->n == trainer->n_devices ? m->last - m->first : 0;
    return LK_OK;
}

static lk_status scaling_process_add_window(const measuring *m, const lk_trainer *trainer, process_times *t)
{
    if (!m->trace || lk_trace_dropped(m->trace) > 0)
        return LK_OK;
    lk_trace_summary *summary = lk_trace_summarize(m->trace);
    if (!summary)
        return lk_error_status();
    lk_status status = scaling_process_add_summary(m, trainer, summary, t);
    lk_trace_summary_release(summary);
    return status;
}

/* If the run is too short for a window, the exchange is not timed: nothing would follow from it. */
static lk_status scaling_process_time_exchange(const measuring *m, const lk_trainer *trainer, process_times *t)
{
    t->small_sum = t->large_sum = NAN;
    return m->epoch > 0 ? lk__time_rows(trainer, &t->small_sum, &t->large_sum) : LK_OK;
}

/* --- all processes ------------------------------------------------------------------------------------------------ */

/* The times of all processes' devices, added up. Two members of `of` are no sums: `name` is the device that waited
 * least, and waits[i] is the shortest wait of any device. */
typedef struct sums {
    int64_t steps;
    int n; /* devices */
    double seconds, operators, processor, update;
    device_times of;
    double waits, least_wait;
    int rank; /* of the device that waited least */
} sums;

static void scaling_sums_add_device(sums *s, const device_times *d, int rank)
{
    double wait = d->exchange + d->slowest;
    s->of.compute += d->compute;
    s->of.exchange += d->exchange;
    s->of.slowest += d->slowest;
    s->of.input += d->input;
    s->of.other += d->other;
    for (int i = 0; i < WINDOW; i++) {
        s->waits += d->waits[i];
        s->of.waits[i] = s->n == 0 || d->waits[i] < s->of.waits[i] ? d->waits[i] : s->of.waits[i];
    }
    if (s->n == 0 || wait < s->least_wait) {
        s->least_wait = wait;
        s->rank = rank;
        memcpy(s->of.name, d->name, sizeof d->name);
    }
    s->n++;
}

static sums scaling_sums_of_processes(const process_times *all, int processes)
{
    sums s = {.steps = all[0].steps};
    for (int p = 0; p < processes; p++) {
        s.steps = all[p].steps < s.steps ? all[p].steps : s.steps;
        s.seconds += all[p].seconds / processes;
        s.operators += all[p].operators;
        s.processor += all[p].processor;
        s.update += all[p].update;
        for (int d = 0; d < all[p].n; d++)
            scaling_sums_add_device(&s, &all[p].devices[d], p);
    }
    return s;
}

/* A process that waits for a message cannot tell whether the message is late or in flight. The wait of the device that
 * waits least in a step is the exchange's; longer waits of the others are waits for that slowest device. */
static double scaling_sums_late_messages(const sums *s)
{
    double late = s->waits;
    for (int i = 0; i < WINDOW; i++)
        late -= s->n * s->of.waits[i];
    return late;
}

static void scaling_put_times(const sums *s, int processes, lk_scaling_report *r)
{
    double per_step = 1 / ((double)s->n * (double)s->steps), late = processes > 1 ? scaling_sums_late_messages(s) : 0;
    bool on_cores = strcmp(r->kind, "cpu") == 0 && s->operators > 0;
    r->steps = s->steps;
    r->step_seconds = s->seconds / (double)s->steps;
    r->compute = s->of.compute * per_step;
    r->exchange = (s->of.exchange - late) * per_step;
    r->slowest = (s->of.slowest + late) * per_step;
    r->input = s->of.input * per_step;
    r->other = r->step_seconds - r->compute - r->exchange - r->slowest - r->input;
    r->core_share = on_cores && s->processor < s->operators ? s->processor / s->operators : 1;
    r->update = s->update * per_step * r->core_share;
    r->computing = r->compute * r->core_share;
    if (!*r->storage)
        return;
    /* The storing device makes one update, for which all devices wait: it must not be divided by their number. */
    double share = r->update;
    r->update *= s->n;
    r->computing += r->storing_devices > 0 ? r->update : r->update - share;
}

static void scaling_name_slowest(const lk_trainer *trainer, const lk_group *group, const sums *s, lk_scaling_report *r)
{
    if (trainer->plan.devices < 2)
        return;
    if (group)
        snprintf(r->slowest_device, sizeof r->slowest_device, "%s of rank %d on %s", s->of.name, s->rank,
                 lk__group_host(group, s->rank));
    else
        snprintf(r->slowest_device, sizeof r->slowest_device, "%s", s->of.name);
}

/* --- the report --------------------------------------------------------------------------------------------------- */

/* From how many devices on a bucket goes along the tree. */
static int64_t scaling_count_tree_devices(const lk_trainer *trainer)
{
    enum { MOST = 1024 };
    const lk_strategy *strategy = trainer->strategy;
    if (!strategy->allreduce || strategy->reduce == LK_REDUCE_NCCL)
        return 0;
    return lk__links_allreduce_tree_devices(strategy->allreduce, lk__trainer_bucket_bytes(trainer),
                                            strategy->compressed, MOST);
}

static double scaling_message_share(const lk_strategy *strategy)
{
    if (!strategy->allreduce || strategy->storage)
        return 1;
    const lk_transport_cost *cost = lk__links_allreduce_cost(strategy->allreduce);
    return cost->per_message / (cost->latency + cost->per_message);
}

/* Copies a name as UTF-8. One that is too long ends with "…" and a hash, so that names which begin alike differ. */
static lk_status scaling_copy_name(char *to, size_t size, const char *name)
{
    enum { END = sizeof "…0123456789abcdef" };
    lk_bytes clean = {0};
    lk__bytes_clean(&clean, name);
    lk_status status = lk__bytes_status(&clean);
    if (status == LK_OK && clean.size < size) {
        snprintf(to, size, "%.*s", (int)clean.size, (const char *)clean.data);
    } else if (status == LK_OK) {
        size_t kept = size - END;
        while ((clean.data[kept] & 0xC0) == 0x80) /* in the middle of a character */
            kept--;
        snprintf(to, size, "%.*s…%016" PRIx64, (int)kept, (const char *)clean.data, XXH3_64bits(name, strlen(name)));
    }
    lk__bytes_free(&clean);
    return status;
}

static lk_status scaling_describe_run(const lk_trainer *trainer, const lk_group *group, lk_scaling_report *r)
{
    const lk_plan *plan = &trainer->plan;
    lk__scaling_clear(r);
    LK_TRY(scaling_copy_name(r->model, sizeof r->model, plan->model));
    LK_TRY(scaling_copy_name(r->data, sizeof r->data, plan->data));
    snprintf(r->strategy, sizeof r->strategy, "%s", plan->strategy);
    snprintf(r->transport, sizeof r->transport, "%s", plan->transport);
    snprintf(r->storage, sizeof r->storage, "%s", plan->storage ? plan->storage : "");
    snprintf(r->dtype, sizeof r->dtype, "%s", lk_dtype_name(plan->dtype));
    snprintf(r->kind, sizeof r->kind, "%s", lk_device_kind(trainer->devices[0]));
    snprintf(r->implementations, sizeof r->implementations, "%016" PRIx64, plan->implementations);
    if (group)
        snprintf(r->host, sizeof r->host, "%s", lk__group_host(group, 0));
    else if (gethostname(r->host, sizeof r->host - 1) != 0)
        r->host[0] = '\0';
    r->devices = plan->devices;
    r->storing_devices = lk__has_separate_storage(trainer->strategy);
    r->tree_devices = scaling_count_tree_devices(trainer);
    r->message_share = scaling_message_share(trainer->strategy);
    r->processes = plan->processes;
    r->batch_size = plan->batch_size;
    r->shards = plan->shards;
    r->parameters = plan->parameters;
    return LK_OK;
}

static lk_status scaling_begin_report(lk_trainer *trainer, const lk_group *group, double images_per_second)
{
    lk_scaling_report *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    lk__free(trainer->scaling);
    trainer->scaling = r;
    LK_TRY(scaling_describe_run(trainer, group, r));
    r->images_per_second = images_per_second;
    return LK_OK;
}

static lk_status scaling_find_one_device(const measuring *m, const lk_trainer *trainer)
{
    lk_scaling_report *r = trainer->scaling;
    bool is_alone = r->devices == 1 && r->servers == 0;
    return m->dir && !is_alone && trainer->plan.process == 0 ? lk__scaling_find_one_device(m->dir, r) : LK_OK;
}

/* all: each process's times. group NULL: one process. */
static lk_status scaling_make_report(const measuring *m, lk_trainer *trainer, const lk_group *group,
                                     const process_times *all, double images_per_second)
{
    int processes = trainer->plan.processes;
    sums s = scaling_sums_of_processes(all, processes);
    LK_TRY(scaling_begin_report(trainer, group, images_per_second));
    if (s.steps > 0) {
        scaling_put_times(&s, processes, trainer->scaling);
        scaling_name_slowest(trainer, group, &s, trainer->scaling);
    }
    lk__put_exchange(trainer, all[0].small_sum, all[0].large_sum, trainer->scaling);
    return scaling_find_one_device(m, trainer);
}

static lk_status scaling_measure(const measuring *m, lk_trainer *trainer, double images_per_second)
{
    if (trainer->server.chief) { /* the remote workers have measured */
        LK_TRY(scaling_begin_report(trainer, NULL, images_per_second));
        LK_TRY(lk__ps_report(trainer, trainer->scaling));
        return scaling_find_one_device(m, trainer);
    }
    lk_group *group = NULL;
    if (trainer->plan.processes > 1)
        LK_TRY(lk__group_open(&group));
    process_times *mine = lk__calloc(1, sizeof *mine), *all = mine;
    lk_status status = mine ? scaling_process_add_window(m, trainer, mine) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = scaling_process_time_exchange(m, trainer, mine);
    if (status == LK_OK && group)
        all = lk__group_gather_new(group, mine, sizeof *mine);
    if (status == LK_OK)
        status = all ? scaling_make_report(m, trainer, group, all, images_per_second) : lk_error_status();
    if (all != mine)
        lk__free(all);
    lk__free(mine);
    return status;
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static lk_status scaling_train_begin(void *self, lk_trainer *trainer)
{
    measuring *m = self;
    lk__free(trainer->scaling);
    trainer->scaling = NULL;
    m->epoch = 0;
    if (!trainer->server.chief)
        scaling_window_plan(m, trainer);
    return LK_OK;
}

static lk_status scaling_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    measuring *m = self;
    (void)stop;
    if (report->epoch != m->epoch)
        return LK_OK;
    if (report->step == m->first)
        return scaling_window_begin(m, trainer);
    if (m->recording && report->step < m->last)
        m->marks[m->n_marks++] = lk__nanoseconds();
    return report->step == m->last ? scaling_window_end(m, trainer) : LK_OK;
}

/* All processes call this with the same status: an error that ends one of them ends them all. */
static lk_status scaling_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    measuring *m = self;
    if (status == LK_OK)
        status = scaling_measure(m, trainer, result->images_per_second);
    scaling_window_drop(m);
    return status;
}

static void scaling_release(void *self)
{
    measuring *m = self;
    scaling_window_drop(m);
    lk__free(m->dir);
    lk__free(m);
}

lk_callback lk_callback_scaling(const char *dir)
{
    measuring *m = lk__calloc(1, sizeof *m);
    if (!m)
        return (lk_callback){0};
    m->dir = dir ? lk__strdup(dir) : NULL;
    if (dir && !m->dir) {
        scaling_release(m);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "scaling",
                         .train_begin = scaling_train_begin,
                         .step_end = scaling_step_end,
                         .train_end = scaling_train_end,
                         .release = scaling_release,
                         .self = m};
}

const lk_scaling_report *lk_trainer_scaling(const lk_trainer *trainer)
{
    return trainer->scaling;
}
