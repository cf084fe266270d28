/* The chief of a parameter-server training: what a trainer does of it. */
#include "train/ps_coordinator.h"
#include "train/ps_agreement.h"
#include "train/ps_chief_call.h"
#include "train/ps_report.h"
#include "train/ps_totals.h"
#include "train/strategy_options.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

struct ps_chief {
    ps_place place;
    lk_post *post;
    ps_coordinator *coordinator;
    ps_layout layout;
    ps_directory coordinators, directory; /* directory: the same, for somebody who may be interrupted */
    ps_client *client;
    lk_tensor **state[LK_OPTIMIZER_SLOTS]; /* [n_slots][parameters]: the optimiser's, of the first replica */
    int n_slots, n_parameters;
    int64_t *order; /* of the epoch's samples */
    double *rates;
    int64_t optimizer_lead; /* steps that the optimiser counts more than updates; fewer where it began anew */
    int64_t pulled;         /* steps that were through when variables were last pulled */
    bool has_ended;
    lk_async_report report, earlier; /* earlier: of the runs that this one goes on from */
};

/* --- what it cannot do -------------------------------------------------------------------------------------------- */

static lk_status check_plan(const lk_plan *plan, int servers)
{
    if (plan->batch_norm == LK_BN_SYNC)
        LK_FAIL(LK_ERR_ARGUMENT, "--bn sync: needs all shards of a batch at one time, which workers at their own pace "
                                 "have not; strategy parameter-server takes --bn shard");
    if (plan->accumulate > 1)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--accumulate %lld: strategy parameter-server applies every batch by itself; a larger "
                "--batch-size comes to the same",
                (long long)plan->accumulate);
    if (plan->precise_batch_norm > 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--precise-bn: strategy parameter-server leaves running statistics as pushes make "
                                 "them");
    if (plan->optimizer_opts.clip_norm > 0 && servers > 1)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--clip-norm: needs the norm of all gradients, and each of %d servers has a part of "
                "them; it goes with --servers 1",
                servers);
    return LK_OK;
}

static lk_status check_split(const lk_trainer *trainer, const ps_layout *layout)
{
    int split = lk__ps_layout_split(layout);
    if (trainer->plan.optimizer_opts.kind == LK_LARS && split >= 0)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--optimizer lars: needs the norm of each variable, and %s is split over %d servers; "
                "it goes with --servers 1",
                lk_model_variable_name(trainer->model, split), layout->placement.servers);
    return LK_OK;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

lk_status lk_train_role_of(const lk_train_config *config, lk_train_role *role)
{
    ps_place place;
    *role = LK_TRAIN_CHIEF;
    LK_TRY(lk__check_strategy_options(config));
    if (!lk__ps_is_asked_for(config))
        return LK_OK;
    LK_TRY(lk__ps_place_find(config, &place));
    *role = place.role;
    lk__ps_place_free(&place);
    return LK_OK;
}

lk_status lk_make_keys(const char *folder, const char *name)
{
    char public_key[LK_KEY_TEXT], secret_key[LK_KEY_TEXT];
    LK_TRY(lk__keys_generate(public_key, secret_key));
    return lk__keys_write(folder, name, public_key, secret_key);
}

static lk_status open_chief(lk_trainer *trainer, struct ps_chief *chief)
{
    LK_TRY(lk__ps_place_find(&trainer->config, &chief->place));
    LK_TRY(check_plan(&trainer->plan, chief->place.servers));
    LK_TRY(lk__post_open(chief->place.has_keys ? &chief->place.keys : NULL, &chief->post));
    LK_TRY(lk__ps_coordinator_open(chief->post, &chief->place, &chief->coordinator));
    lk__log(LK_LOG_INFO, "the chief listens at %s", chief->place.chief_text);
    return LK_OK;
}

lk_status lk__ps_find_role(lk_trainer *trainer)
{
    trainer->applies_elsewhere = lk__ps_is_asked_for(&trainer->config);
    return lk_train_role_of(&trainer->config, &trainer->role);
}

lk_status lk__ps_open(lk_trainer *trainer)
{
    if (!trainer->applies_elsewhere || trainer->role == LK_TRAIN_WORKER)
        return LK_OK;
    if (trainer->role != LK_TRAIN_CHIEF)
        LK_FAIL(LK_ERR_ARGUMENT, "trainer: a parameter server trains nothing; see lk_parameter_server_new");
    trainer->chief = lk__calloc(1, sizeof *trainer->chief);
    return trainer->chief ? open_chief(trainer, trainer->chief) : LK_ERR_MEMORY;
}

void lk__ps_release(struct ps_chief *chief)
{
    if (!chief)
        return;
    if (chief->coordinator && !chief->has_ended)
        lk__ps_coordinator_end(chief->coordinator, PS_FAILED, "it could not begin");
    lk__ps_client_release(chief->client);
    lk__ps_coordinator_release(chief->coordinator);
    lk__post_release(chief->post);
    lk__ps_layout_free(&chief->layout);
    lk__ps_place_free(&chief->place);
    for (int slot = 0; slot < chief->n_slots; slot++) {
        lk__release_tensors(chief->state[slot], chief->n_parameters);
        lk__free(chief->state[slot]);
    }
    lk__free(chief->order);
    lk__free(chief->rates);
    lk__free(chief);
}

static ps_setup setup_of(const lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    const lk_optimizer_opts *o = &plan->optimizer_opts;
    return (ps_setup){.run = lk__ps_nonce(),
                      .batches = plan->epochs * plan->steps_per_epoch,
                      .updates = lk_optimizer_steps(lk_replicas_optimizer(trainer->replicas, 0)),
                      .shards = plan->shards,
                      .max_staleness = trainer->config.max_staleness,
                      .optimizer = o->kind,
                      .nesterov = o->nesterov,
                      .momentum = o->momentum,
                      .weight_decay = o->weight_decay,
                      .beta1 = o->beta1,
                      .beta2 = o->beta2,
                      .epsilon = o->epsilon,
                      .trust = o->trust,
                      .clip_norm = o->clip_norm};
}

/* The chief has a copy of what the servers' optimisers remember: of where training goes on from, and for checkpoints.
 */
static lk_status list_state(lk_trainer *trainer, struct ps_chief *chief)
{
    const lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    chief->n_parameters = trainer->n_parameters;
    while (lk_optimizer_state(optimizer, chief->n_slots, NULL)) {
        lk_tensor **parts = lk__calloc((size_t)trainer->n_parameters, sizeof *parts);
        if (!parts)
            return LK_ERR_MEMORY;
        chief->state[chief->n_slots] = parts;
        LK_TRY(lk__replicas_slot(trainer->replicas, 0, chief->n_slots++, parts));
    }
    return LK_OK;
}

static int generation(void *user)
{
    const ps_directory *d = &((lk_trainer *)user)->chief->coordinators;
    return d->generation(d->user);
}

static lk_status look_up(void *user, ps_server_place *places, int *of)
{
    const ps_directory *d = &((lk_trainer *)user)->chief->coordinators;
    return d->look_up(d->user, places, of);
}

/* Who is interrupted waits for no server that is not there. */
static lk_status check(void *user)
{
    const lk_trainer *trainer = user;
    const ps_directory *d = &trainer->chief->coordinators;
    LK_TRY(d->check(d->user));
    if (lk__is_interrupted(trainer) && !lk__ps_coordinator_has_servers(trainer->chief->coordinator))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted while a parameter server is not there");
    return LK_OK;
}

static lk_status start(lk_trainer *trainer, struct ps_chief *chief)
{
    const lk_plan *plan = &trainer->plan;
    void *fields;
    LK_TRY(list_state(trainer, chief));
    ps_training training = {.setup = setup_of(trainer),
                            .layout = &chief->layout,
                            .variables = lk_trainer_variables(trainer, 0),
                            .state = (lk_tensor *const *const *)chief->state,
                            .n_slots = chief->n_slots};
    chief->optimizer_lead = training.setup.updates - trainer->updates;
    chief->pulled = trainer->steps;
    LK_TRY(lk__ps_layout_new(trainer->model, chief->place.servers, &chief->layout));
    LK_TRY(check_split(trainer, &chief->layout));
    chief->order = lk__calloc((size_t)plan->train_samples, sizeof *chief->order);
    chief->rates = lk__calloc((size_t)plan->steps_per_epoch, sizeof *chief->rates);
    if (!chief->order || !chief->rates)
        return LK_ERR_MEMORY;
    LK_TRY(lk__agreement_list(trainer, &fields, &training.agreement_bytes));
    training.agreement = fields;
    lk_status status = lk__ps_coordinator_start(chief->coordinator, &training);
    lk__free(fields);
    LK_TRY(status);
    chief->coordinators = lk__ps_coordinator_directory(chief->coordinator);
    chief->directory = (ps_directory){.user = trainer, .generation = generation, .look_up = look_up, .check = check};
    return lk__ps_client_new(chief->post, &chief->layout, training.setup.run, &chief->directory, &chief->client);
}

lk_status lk__ps_start(lk_trainer *trainer)
{
    return trainer->chief ? start(trainer, trainer->chief) : LK_OK;
}

/* --- an epoch ----------------------------------------------------------------------------------------------------- */

lk_status lk__ps_begin_epoch(lk_trainer *trainer, int64_t done, const double *rates)
{
    struct ps_chief *chief = trainer->chief;
    const lk_plan *plan = &trainer->plan;
    LK_TRY(lk_sample_order(plan->train_samples, plan->seed, trainer->epoch, true, chief->order));
    memcpy(chief->rates, rates, (size_t)plan->steps_per_epoch * sizeof *rates);
    ps_epoch epoch = {.epoch = trainer->epoch,
                      .first = trainer->epoch * plan->steps_per_epoch,
                      .count = plan->steps_per_epoch,
                      .done = done,
                      .batch_size = plan->batch_size,
                      .samples = plan->train_samples,
                      .rates = rates};
    return lk__ps_coordinator_begin(chief->coordinator, &epoch);
}

static lk_mean mean(double sum, int64_t count)
{
    return (lk_mean){.sum = sum, .count = count};
}

lk_status lk__ps_next_step(lk_trainer *trainer, lk__pending_step *step, lk__step_metrics *metrics, bool *any)
{
    enum { PATIENCE = 100 };
    struct ps_chief *chief = trainer->chief;
    const lk_plan *plan = &trainer->plan;
    ps_finished f;
    LK_TRY(lk__ps_coordinator_next(chief->coordinator, PATIENCE, &f, any));
    if (!*any)
        return LK_OK;
    *step = (lk__pending_step){.count = f.samples, .batch = f.index};
    step->update = (lk__update){.epoch = trainer->epoch,
                                .number = trainer->updates,
                                .first = f.index,
                                .batches = 1,
                                .samples = f.samples,
                                .rate = chief->rates[f.index]};
    *metrics = (lk__step_metrics){.skipped = f.skipped};
    metrics->metrics.loss = mean(f.loss, f.samples);
    metrics->metrics.accuracy = mean(f.hits, f.samples);
    if (plan->top_k > 0)
        metrics->metrics.top_k = mean(f.top_k, f.samples);
    trainer->updates++;
    trainer->steps++;
    return lk_ledger_add(trainer->train_ledger, chief->order + f.index * plan->batch_size, f.samples);
}

void lk__ps_stop_epoch(lk_trainer *trainer)
{
    lk__ps_coordinator_stop(trainer->chief->coordinator);
}

void lk__ps_pause(lk_trainer *trainer, bool paused)
{
    lk__ps_coordinator_pause(trainer->chief->coordinator, paused);
}

bool lk__ps_is_at_rest(lk_trainer *trainer)
{
    return lk__ps_coordinator_is_at_rest(trainer->chief->coordinator);
}

bool lk__ps_epoch_is_over(lk_trainer *trainer)
{
    return lk__ps_coordinator_is_idle(trainer->chief->coordinator);
}

/* --- variables and the report ------------------------------------------------------------------------------------- */

/* A server has applied each batch once, but for those that it lost. */
static void update_report(struct ps_chief *chief)
{
    lk_async_report *report = &chief->report;
    lk__ps_coordinator_report(chief->coordinator, report);
    report->lost_updates = 0;
    for (int s = 0; s < chief->place.servers; s++) {
        int64_t lost = report->updates - lk__ps_client_version(chief->client, s);
        report->lost_updates += lost > 0 ? lost : 0;
    }
    lk__ps_totals_add(report, &chief->earlier);
}

static lk_status pull(lk_trainer *trainer, struct ps_chief *chief)
{
    lk_tensor *const *sets[LK_MAX_DEVICES];
    for (int r = 0; r < trainer->n_devices; r++)
        sets[r] = lk_trainer_variables(trainer, r);
    LK_TRY(check(trainer));
    LK_TRY(lk__ps_client_pull_all(chief->client, sets, trainer->n_devices, (lk_tensor *const *const *)chief->state,
                                  chief->n_slots));
    lk__optimizer_resume(lk_replicas_optimizer(trainer->replicas, 0), chief->optimizer_lead + trainer->updates);
    chief->pulled = trainer->steps;
    LK_TRY(lk__ps_client_pull_nothing(chief->client, true));
    update_report(chief);
    return LK_OK;
}

lk_status lk__ps_pull(lk_trainer *trainer)
{
    lk_status status = pull(trainer, trainer->chief);
    if (status != LK_ERR_INTERRUPTED)
        return status;
    lk_error_clear(); /* lk__ps_has_all tells what there is */
    return LK_OK;
}

bool lk__ps_has_all(const lk_trainer *trainer)
{
    const struct ps_chief *chief = trainer->chief;
    return chief->pulled == trainer->steps && !lk__ps_coordinator_has_dropped(chief->coordinator);
}

void lk__ps_save_report(const lk_trainer *trainer, lk_state *state)
{
    lk__ps_totals_save(&trainer->chief->report, state);
}

void lk__ps_resume_report(lk_trainer *trainer, const lk_state *state)
{
    lk__ps_totals_resume(&trainer->chief->earlier, state);
    trainer->chief->report = trainer->chief->earlier;
}

void lk__ps_end(lk_trainer *trainer, lk_status status)
{
    struct ps_chief *chief = trainer->chief;
    if (!chief || chief->has_ended)
        return;
    chief->has_ended = true;
    lk__ps_coordinator_end(chief->coordinator, status == LK_OK ? PS_ENDED : PS_FAILED,
                           status == LK_OK ? "" : lk_error_message());
}

lk_status lk__ps_report(const lk_trainer *trainer, lk_scaling_report *report)
{
    const struct ps_chief *chief = trainer->chief;
    double updates[LK_MAX_SERVERS];
    ps_worked *workers;
    int n;
    LK_TRY(lk__ps_coordinator_workers(chief->coordinator, &workers, &n));
    for (int s = 0; s < chief->place.servers; s++)
        updates[s] = lk__ps_client_update_seconds(chief->client, s);
    lk__ps_put_workers(workers, n, report);
    lk__ps_put_servers(workers, n, &chief->layout, updates, trainer->config.max_staleness, report);
    lk__free(workers);
    return LK_OK;
}

const lk_async_report *lk_trainer_async_report(const lk_trainer *trainer)
{
    return trainer->chief ? &trainer->chief->report : NULL;
}
