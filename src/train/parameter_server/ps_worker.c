/* A worker of a parameter-server training: it asks for a batch, pulls the variables, computes gradients, and pushes
 * them. */
#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/status.h"
#include "train/parameter_server/ps_membership.h"
#include "train/parameter_server/ps_times.h"
#include "train/step/groups.h"
#include "train/step/step.h"

#include <float.h>
#include <math.h>
#include <time.h>

enum { MAX_SUMS = 64 }; /* sizes of nodes: two per depth of the tree */

typedef struct worker {
    lk_trainer *trainer;
    lk_train_result *result;
    lk_ps_membership membership;
    lk_ps_layout layout;
    lk_ps_client *client;
    lk_ps_watch watch;
    lk_shard_sum *sums[MAX_SUMS]; /* sums[i] is over sizes[i] shards */
    int64_t sizes[MAX_SUMS];
    int n_sums;
} worker;

/* --- a hand-out --------------------------------------------------------------------------------------------------- */

static lk_status ps_worker_sum(worker *w, int64_t shards, lk_shard_sum **sum)
{
    for (int i = 0; i < w->n_sums; i++)
        if (w->sizes[i] == shards) {
            *sum = w->sums[i];
            return LK_OK;
        }
    if (w->n_sums == MAX_SUMS)
        LK_FAIL(LK_ERR_FORMAT, "task: a node of %lld shards, after %d other sizes", (long long)shards, MAX_SUMS);
    *sum = lk_shard_sum_new(w->trainer->strategy, shards, w->trainer->sums.n_values);
    if (!*sum)
        return lk_error_status();
    w->sums[w->n_sums] = *sum;
    w->sizes[w->n_sums++] = shards;
    return LK_OK;
}

static lk_status ps_worker_check_task(const worker *w, const lk_ps_task *task)
{
    const lk_plan *plan = &w->trainer->plan;
    bool is_good = task->first_shard >= 0 && task->first_shard < task->end_shard && task->end_shard <= plan->shards &&
                   task->index >= 0 && task->index < plan->steps_per_epoch && task->samples >= 1 &&
                   task->samples <= plan->batch_size && task->batch >= 0 && task->epoch >= 0 &&
                   lk__group_of(w->trainer, task->first_shard).begin == task->first_shard &&
                   lk__group_of(w->trainer, task->end_shard - 1).end == task->end_shard;
    if (!is_good)
        LK_FAIL(LK_ERR_FORMAT, "task: batch %lld of %lld with %lld samples, shards %lld to %lld of %lld",
                (long long)task->index, (long long)plan->steps_per_epoch, (long long)task->samples,
                (long long)task->first_shard, (long long)task->end_shard, (long long)plan->shards);
    return LK_OK;
}

/* Computes the sums over the hand-out's shards, into trainer->sums.results. */
static lk_status ps_worker_compute(worker *w, const lk_ps_task *task)
{
    lk_trainer *trainer = w->trainer;
    lk_shard_sum *sum;
    lk_batch *batch;
    trainer->progress.update = (lk_update){.epoch = task->epoch,
                                           .number = task->batch,
                                           .first = task->index,
                                           .batches = 1,
                                           .samples = task->samples,
                                           .rate = task->rate};
    LK_TRY(ps_worker_sum(w, task->end_shard - task->first_shard, &sum));
    LK_TRY(lk_loader_start_at(trainer->data.train_loader, task->epoch, task->index));
    LK_TRY(lk_loader_next(trainer->data.train_loader, &batch));
    lk__ps_watch_lap(&w->watch, &w->watch.step.input);
    lk_status status = lk__run_training_shards(trainer, sum, task->first_shard, batch, trainer->sums.results);
    if (status == LK_OK)
        status = lk__ps_watch_computed(&w->watch, trainer);
    lk_batch_release(batch);
    return status;
}

static lk_status ps_worker_read_metrics(const worker *w, lk_ps_work *work)
{
    const lk_trainer *trainer = w->trainer;
    lk_tensor *const *metrics = trainer->sums.results + trainer->sums.n_updated;
    LK_TRY(lk_tensor_item(metrics[0], &work->loss));
    LK_TRY(lk_tensor_item(metrics[1], &work->hits));
    return trainer->plan.top_k > 0 ? lk_tensor_item(metrics[2], &work->top_k) : LK_OK;
}

/* Asks whether the result may be pushed. Waits if others must push first. */
static lk_status ps_worker_ask_for_grant(worker *w, const lk_ps_task *task, bool *granted)
{
    const lk_ps_welcome *welcome = &w->membership.welcome;
    lk_ps_ask body = {.worker = welcome->worker, .batch = task->batch, .run = welcome->run};
    lk_ps_question q = {LK_PS_ASK, LK_PS_ANSWER, "answer", &body, sizeof body};
    lk_ps_answer answer;
    *granted = task->granted != 0;
    if (*granted)
        return LK_OK;
    lk__ps_watch_lap(&w->watch, &w->watch.step.exchange);
    LK_TRY(lk__ps_membership_ask(&w->membership, &q, &answer, sizeof answer));
    lk__ps_watch_lap(&w->watch, &w->watch.step.stale);
    *granted = answer.granted != 0;
    return LK_OK;
}

static lk_status ps_worker_push(worker *w, const lk_ps_task *task, bool is_empty, lk_ps_work *work)
{
    lk_ps_push_result result;
    bool granted;
    lk_ps_push body = {.batch = task->batch,
                       .first_shard = task->first_shard,
                       .end_shard = task->end_shard,
                       .is_skipped = work->outcome == LK_PS_SKIPPED,
                       .samples = task->samples,
                       .rate = task->rate};
    LK_TRY(ps_worker_ask_for_grant(w, task, &granted));
    if (granted)
        LK_TRY(lk__ps_client_push(w->client, &body, is_empty, &result));
    if (!granted || result.too_stale > 0) {
        work->outcome = LK_PS_DROPPED;
        return LK_OK;
    }
    work->staleness = result.staleness;
    work->repeated = result.repeated;
    return LK_OK;
}

/* An update is checked as a whole, and its sum over all nodes is known to no worker. So a node of numbers so large that
 * the sum may overflow is not pushed; one worker computes the whole batch then. largest: of the gradients. */
static lk_ps_outcome ps_worker_check_result(const worker *w, const lk_ps_task *task, float largest, double loss)
{
    const lk_trainer *trainer = w->trainer;
    int64_t shards = trainer->plan.shards;
    double most = fmax(largest, fabs(loss));
    if (trainer->config.checks.nan_guard == LK_NAN_GUARD_OFF)
        return LK_PS_DONE;
    if (!isfinite(largest) || !isfinite(loss))
        return trainer->config.checks.nan_guard == LK_NAN_GUARD_SKIP ? LK_PS_SKIPPED : LK_PS_NOT_FINITE;
    bool is_whole = task->end_shard - task->first_shard == shards;
    return is_whole || most < FLT_MAX / (2 * (double)shards) ? LK_PS_DONE : LK_PS_TOO_LARGE;
}

/* Pushes the result; a node whose shards are all empty has none. */
static lk_status ps_worker_deliver(worker *w, const lk_ps_task *task, lk_ps_work *work)
{
    const lk_trainer *trainer = w->trainer;
    float largest = 0;
    bool is_empty = !trainer->sums.results[trainer->sums.n_updated];
    if (!is_empty) {
        LK_TRY(lk__ps_client_load(w->client, trainer->sums.results, &largest));
        LK_TRY(ps_worker_read_metrics(w, work));
    }
    work->outcome = (int32_t)ps_worker_check_result(w, task, largest, work->loss);
    bool is_pushed = work->outcome == LK_PS_DONE || work->outcome == LK_PS_SKIPPED;
    return is_pushed ? ps_worker_push(w, task, is_empty, work) : LK_OK;
}

static lk_status ps_worker_carry_out(worker *w, const lk_ps_task *task, lk_ps_work *work)
{
    lk_trainer *trainer = w->trainer;
    lk_tensor *const *sets[LK_MAX_DEVICES];
    LK_TRY(ps_worker_check_task(w, task));
    for (int r = 0; r < trainer->n_devices; r++)
        sets[r] = lk_trainer_variables(trainer, r);
    work->batch = task->batch;
    work->first_shard = task->first_shard;
    work->end_shard = task->end_shard;
    LK_TRY(lk__ps_watch_pull(&w->watch, w->client, task->batch, sets, trainer->n_devices));
    lk_status status = ps_worker_compute(w, task);
    if (status == LK_OK)
        status = ps_worker_deliver(w, task, work);
    lk__ps_watch_lap(&w->watch, &w->watch.step.exchange);
    lk__release_tensors(trainer->sums.results, (int64_t)trainer->n_devices * trainer->sums.n_values);
    LK_TRY(status);
    lk_range samples = {lk_part(task->samples, trainer->plan.shards, task->first_shard).begin,
                        lk_part(task->samples, trainer->plan.shards, task->end_shard - 1).end};
    bool is_done = work->outcome == LK_PS_DONE || work->outcome == LK_PS_SKIPPED;
    w->result->steps += is_done;
    lk__heartbeat_step(w->result->steps + 1);
    w->result->samples_seen += samples.end - samples.begin;
    lk__ps_watch_end_step(&w->watch, is_done ? samples.end - samples.begin : 0);
    return LK_OK;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Waits for the next pulse, which says why training has ended. */
static lk_status ps_worker_end(worker *w, lk_ps_state state)
{
    static const struct timespec look = {.tv_nsec = 10 * 1000000L};
    for (int looks = 0; state == LK_PS_FAILED && looks < 500; looks++) {
        LK_TRY(lk__ps_pulse_check(w->membership.pulse));
        nanosleep(&look, NULL);
    }
    if (state == LK_PS_FAILED)
        LK_FAIL(LK_ERR_BACKEND, "the chief has ended training");
    return LK_OK;
}

static lk_status ps_worker_loop(worker *w)
{
    lk_ps_work report = {.outcome = LK_PS_NOTHING};
    lk__ps_watch_start(&w->watch);
    for (;;) {
        lk_ps_task task;
        report.times = w->watch.times;
        report.worker = w->membership.welcome.worker;
        report.run = w->membership.welcome.run;
        lk_ps_question q = {LK_PS_WORK, LK_PS_TASK, "task", &report, sizeof report};
        LK_TRY(lk__ps_membership_ask(&w->membership, &q, &task, sizeof task));
        if (task.state == LK_PS_FORGOTTEN) {
            LK_TRY(lk__ps_membership_renew(&w->membership));
            lk__ps_watch_restart(&w->watch);
            continue; /* sends the same report again */
        }
        if (task.state != LK_PS_RUNNING)
            return ps_worker_end(w, (lk_ps_state)task.state);
        LK_TRY(lk__ps_membership_check(&w->membership)); /* if answers come at once, this is the only check */
        lk__ps_watch_waited(&w->watch, &task);
        double began = lk__seconds();
        report = (lk_ps_work){.outcome = LK_PS_NOTHING};
        LK_TRY(ps_worker_carry_out(w, &task, &report));
        w->result->seconds += lk__seconds() - began;
    }
}

static lk_status ps_worker_join(worker *w)
{
    lk_ps_membership *m = &w->membership;
    LK_TRY(lk__ps_membership_open(w->trainer, m));
    LK_TRY(lk__ps_layout_new(w->trainer->model, m->welcome.servers, 0, &w->layout));
    return lk__ps_client_new(m->post, &w->layout, m->welcome.run, &m->directory, &w->client);
}

static lk_status ps_worker_run(worker *w)
{
    lk_status status = ps_worker_join(w);
    if (status == LK_OK)
        status = ps_worker_loop(w);
    if (!w->membership.has_ended)
        return status;
    lk_error_clear(); /* the error of an unfinished hand-out, which is no longer needed */
    return LK_OK;
}

lk_status lk_trainer_work(lk_trainer *trainer, lk_train_result *result)
{
    worker w = {.trainer = trainer, .result = result};
    *result = (lk_train_result){0};
    if (trainer->server.role != LK_TRAIN_WORKER)
        LK_FAIL(LK_ERR_STATE, "training: this process is no worker of strategy parameter-server (--role worker)");
    double began = lk__seconds();
    lk_status status = ps_worker_run(&w);
    result->total_seconds = lk__seconds() - began;
    lk__ps_client_release(w.client);
    lk__ps_layout_free(&w.layout);
    lk__ps_membership_close(&w.membership);
    for (int i = 0; i < w.n_sums; i++)
        lk_shard_sum_release(w.sums[i]);
    atomic_store(&trainer->progress.interrupted, false);
    return status;
}
