#include "train/parameter_server/ps_chief.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "optim/optimizer_step.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/replicas_state.h"
#include "train/parameter_server/ps_chief_call.h"
#include "train/parameter_server/ps_coordinator.h"
#include "train/parameter_server/ps_report.h"
#include "train/parameter_server/ps_totals.h"
#include "train/plan/agreement.h"
#include "train/plan/strategy_options.h"
#include "train/processes.h"
#include "train/step/groups.h"

#include <string.h>

struct lk_ps_chief {
    lk_ps_identity identity;
    lk_post *post;
    lk_ps_coordinator *coordinator;
    lk_ps_layout layout;
    lk_ps_directory coordinators; /* the coordinator's own directory of servers */
    lk_ps_directory directory;    /* the same, but an interrupt ends a wait for a server */
    lk_ps_client *client;
    lk_tensor **state[LK_OPTIMIZER_SLOTS]; /* [n_slots][parameters]: the optimizer state of the first replica */
    int n_slots, n_parameters;
    int64_t *order; /* order of the epoch's samples */
    double *rates;
    int64_t optimizer_lead; /* the optimizer's steps minus the trainer's updates; negative if it started afresh */
    int64_t pulled;         /* steps finished when the variables were last pulled */
    bool has_ended;
    lk_async_report report, earlier; /* earlier: of the runs that this one resumes */
};

/* --- unsupported settings ----------------------------------------------------------------------------------------- */

static lk_status ps_chief_check_plan(const lk_plan *plan, int servers)
{
    if (plan->batch_norm == LK_BN_SYNC)
        LK_FAIL(LK_ERR_ARGUMENT, "--bn sync: needs all shards of a batch at one time, which workers at their own pace "
                                 "have not; strategy parameter-server takes --bn group and --bn shard");
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

static lk_status ps_chief_check_split(const lk_trainer *trainer, const lk_ps_layout *layout)
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
    lk_ps_identity identity;
    *role = LK_TRAIN_CHIEF;
    LK_TRY(lk__check_strategy_options(config));
    if (!lk__ps_is_asked_for(config))
        return LK_OK;
    LK_TRY(lk__ps_identity_find(config, &identity));
    *role = identity.role;
    lk__ps_identity_free(&identity);
    return LK_OK;
}

lk_status lk_make_keys(const char *folder, const char *name)
{
    char public_key[LK_KEY_TEXT], secret_key[LK_KEY_TEXT];
    LK_TRY(lk__keys_generate(public_key, secret_key));
    return lk__keys_write(folder, name, public_key, secret_key);
}

lk_status lk__ps_find_role(lk_trainer *trainer)
{
    trainer->server.has_optimizer = lk__ps_is_asked_for(&trainer->config);
    return lk_train_role_of(&trainer->config, &trainer->server.role);
}

lk_status lk__ps_open(lk_trainer *trainer)
{
    if (!trainer->server.has_optimizer || trainer->server.role == LK_TRAIN_WORKER)
        return LK_OK;
    if (trainer->server.role != LK_TRAIN_CHIEF)
        LK_FAIL(LK_ERR_ARGUMENT, "trainer: a parameter server trains nothing; see lk_parameter_server_new");
    struct lk_ps_chief *chief = trainer->server.chief = lk__calloc(1, sizeof *chief);
    if (!chief)
        return LK_ERR_MEMORY;
    LK_TRY(lk__ps_identity_find(&trainer->config, &chief->identity));
    LK_TRY(ps_chief_check_plan(&trainer->plan, chief->identity.servers));
    LK_TRY(lk__ps_open_post(&chief->identity, &chief->post));
    LK_TRY(lk__ps_coordinator_open(chief->post, &chief->identity, &chief->coordinator));
    lk__log(LK_LOG_INFO, "the chief listens at %s", chief->identity.chief_text);
    return LK_OK;
}

void lk__ps_release(struct lk_ps_chief *chief)
{
    if (!chief)
        return;
    if (chief->coordinator && !chief->has_ended)
        lk__ps_coordinator_end(chief->coordinator, LK_PS_FAILED, "it could not begin");
    lk__ps_client_release(chief->client);
    lk__ps_coordinator_release(chief->coordinator);
    lk__post_release(chief->post);
    lk__ps_layout_free(&chief->layout);
    lk__ps_identity_free(&chief->identity);
    for (int slot = 0; slot < chief->n_slots; slot++) {
        lk__release_tensors(chief->state[slot], chief->n_parameters);
        lk__free(chief->state[slot]);
    }
    lk__free(chief->order);
    lk__free(chief->rates);
    lk__free(chief);
}

static lk_ps_setup ps_chief_setup(const lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    const lk_optimizer_opts *o = &plan->optimizer_opts;
    return (lk_ps_setup){.run = lk__wire_nonce(),
                         .batches = plan->epochs * plan->steps_per_epoch,
                         .updates = lk_optimizer_steps(lk_replicas_optimizer(trainer->replicas, 0)),
                         .shards = plan->shards,
                         .max_staleness = trainer->config.servers.max_staleness,
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

/* Lists the chief's copy of the servers' optimizer state: the initial state of a resumed training, and for checkpoints.
 */
static lk_status ps_chief_list_state(lk_trainer *trainer, struct lk_ps_chief *chief)
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

static int ps_chief_generation(void *user)
{
    const lk_ps_directory *d = &((lk_trainer *)user)->server.chief->coordinators;
    return d->generation(d->user);
}

static lk_status ps_chief_look_up(void *user, lk_ps_server_location *locations, int *generation)
{
    const lk_ps_directory *d = &((lk_trainer *)user)->server.chief->coordinators;
    return d->look_up(d->user, locations, generation);
}

/* An interrupted chief does not wait for missing servers. */
static lk_status ps_chief_check(void *user)
{
    const lk_trainer *trainer = user;
    const lk_ps_directory *d = &trainer->server.chief->coordinators;
    LK_TRY(d->check(d->user));
    if (lk__is_interrupted(trainer) && !lk__ps_coordinator_has_servers(trainer->server.chief->coordinator))
        LK_FAIL(LK_ERR_INTERRUPTED, "training: interrupted while a parameter server is not there");
    return LK_OK;
}

static lk_status ps_chief_start(lk_trainer *trainer, struct lk_ps_chief *chief)
{
    const lk_plan *plan = &trainer->plan;
    void *fields;
    LK_TRY(ps_chief_list_state(trainer, chief));
    lk_ps_training training = {.setup = ps_chief_setup(trainer),
                               .most_nodes = lk__group_nodes(trainer),
                               .layout = &chief->layout,
                               .variables = lk_trainer_variables(trainer, 0),
                               .state = (lk_tensor *const *const *)chief->state,
                               .n_slots = chief->n_slots};
    chief->optimizer_lead = training.setup.updates - trainer->progress.updates;
    chief->pulled = trainer->progress.steps;
    LK_TRY(lk__ps_layout_new(trainer->model, chief->identity.servers, chief->n_slots, &chief->layout));
    LK_TRY(ps_chief_check_split(trainer, &chief->layout));
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
    chief->directory = (lk_ps_directory){
        .user = trainer, .generation = ps_chief_generation, .look_up = ps_chief_look_up, .check = ps_chief_check};
    return lk__ps_client_new(chief->post, &chief->layout, training.setup.run, &chief->directory, &chief->client);
}

lk_status lk__ps_start(lk_trainer *trainer)
{
    return trainer->server.chief ? ps_chief_start(trainer, trainer->server.chief) : LK_OK;
}

/* --- an epoch ----------------------------------------------------------------------------------------------------- */

lk_status lk__ps_begin_epoch(lk_trainer *trainer, int64_t done, const double *rates)
{
    struct lk_ps_chief *chief = trainer->server.chief;
    const lk_plan *plan = &trainer->plan;
    LK_TRY(lk_sample_order(plan->train_samples, plan->seed, trainer->progress.epoch, true, chief->order));
    memcpy(chief->rates, rates, (size_t)plan->steps_per_epoch * sizeof *rates);
    lk_ps_epoch epoch = {.epoch = trainer->progress.epoch,
                         .first = trainer->progress.epoch * plan->steps_per_epoch,
                         .count = plan->steps_per_epoch,
                         .done = done,
                         .batch_size = plan->batch_size,
                         .samples = plan->train_samples,
                         .rates = rates};
    return lk__ps_coordinator_begin(chief->coordinator, &epoch);
}

static lk_mean ps_chief_step_mean(double sum, int64_t count)
{
    return (lk_mean){.sum = sum, .count = count};
}

lk_status lk__ps_next_step(lk_trainer *trainer, lk_pending_step *step, lk_step_metrics *metrics, bool *any)
{
    enum { PATIENCE = 100 }; /* milliseconds */
    struct lk_ps_chief *chief = trainer->server.chief;
    const lk_plan *plan = &trainer->plan;
    lk_ps_finished f;
    LK_TRY(lk__ps_coordinator_next(chief->coordinator, PATIENCE, &f, any));
    if (!*any)
        return LK_OK;
    *step = (lk_pending_step){.count = f.samples, .batch = f.index};
    step->update = (lk_update){.epoch = trainer->progress.epoch,
                               .number = trainer->progress.updates,
                               .first = f.index,
                               .batches = 1,
                               .samples = f.samples,
                               .rate = chief->rates[f.index]};
    *metrics = (lk_step_metrics){.skipped = f.skipped};
    metrics->metrics.loss = ps_chief_step_mean(f.loss, f.samples);
    metrics->metrics.accuracy = ps_chief_step_mean(f.hits, f.samples);
    if (plan->top_k > 0)
        metrics->metrics.top_k = ps_chief_step_mean(f.top_k, f.samples);
    trainer->progress.updates++;
    trainer->progress.steps++;
    return lk_ledger_add(trainer->data.train_ledger, chief->order + f.index * plan->batch_size, f.samples);
}

void lk__ps_stop_epoch(lk_trainer *trainer)
{
    lk__ps_coordinator_stop(trainer->server.chief->coordinator);
}

void lk__ps_pause(lk_trainer *trainer, bool paused)
{
    lk__ps_coordinator_pause(trainer->server.chief->coordinator, paused);
}

bool lk__ps_is_at_rest(lk_trainer *trainer)
{
    return lk__ps_coordinator_is_at_rest(trainer->server.chief->coordinator);
}

bool lk__ps_epoch_is_over(lk_trainer *trainer)
{
    return lk__ps_coordinator_is_idle(trainer->server.chief->coordinator);
}

/* --- variables and the report ------------------------------------------------------------------------------------- */

/* Updates the report. A server has applied every batch once, except for updates that it lost. */
static void ps_chief_update_report(struct lk_ps_chief *chief)
{
    lk_async_report *report = &chief->report;
    lk__ps_coordinator_report(chief->coordinator, report);
    report->lost_updates = 0;
    for (int s = 0; s < chief->identity.servers; s++)
        report->lost_updates += lk__max(report->updates - lk__ps_client_version(chief->client, s), 0);
    lk__ps_totals_add(report, &chief->earlier);
}

static lk_status ps_chief_pull(lk_trainer *trainer, struct lk_ps_chief *chief)
{
    lk_tensor *const *sets[LK_MAX_DEVICES];
    for (int r = 0; r < trainer->n_devices; r++)
        sets[r] = lk_trainer_variables(trainer, r);
    LK_TRY(ps_chief_check(trainer));
    LK_TRY(lk__ps_client_pull_all(chief->client, sets, trainer->n_devices, (lk_tensor *const *const *)chief->state,
                                  chief->n_slots));
    LK_TRY(lk__optimizer_resume(lk_replicas_optimizer(trainer->replicas, 0),
                                chief->optimizer_lead + trainer->progress.updates));
    chief->pulled = trainer->progress.steps;
    LK_TRY(lk__ps_client_pull_nothing(chief->client, true));
    ps_chief_update_report(chief);
    return LK_OK;
}

lk_status lk__ps_pull(lk_trainer *trainer)
{
    lk_status status = ps_chief_pull(trainer, trainer->server.chief);
    if (status != LK_ERR_INTERRUPTED)
        return status;
    lk_error_clear(); /* lk__ps_has_all reports whether the variables are complete */
    return LK_OK;
}

bool lk__ps_has_all(const lk_trainer *trainer)
{
    const struct lk_ps_chief *chief = trainer->server.chief;
    return chief->pulled == trainer->progress.steps && !lk__ps_coordinator_has_dropped(chief->coordinator);
}

void lk__ps_save_report(const lk_trainer *trainer, lk_state *state)
{
    lk__ps_totals_save(&trainer->server.chief->report, state);
}

void lk__ps_resume_report(lk_trainer *trainer, const lk_state *state)
{
    lk__ps_totals_resume(&trainer->server.chief->earlier, state);
    trainer->server.chief->report = trainer->server.chief->earlier;
}

void lk__ps_end(lk_trainer *trainer, lk_status status)
{
    struct lk_ps_chief *chief = trainer->server.chief;
    if (!chief || chief->has_ended)
        return;
    chief->has_ended = true;
    lk__ps_coordinator_end(chief->coordinator, status == LK_OK ? LK_PS_ENDED : LK_PS_FAILED,
                           status == LK_OK ? "" : lk_error_message());
}

lk_status lk__ps_report(const lk_trainer *trainer, lk_scaling_report *report)
{
    const struct lk_ps_chief *chief = trainer->server.chief;
    double updates[LK_MAX_SERVERS];
    lk_ps_worker_record *workers;
    int n;
    LK_TRY(lk__ps_coordinator_workers(chief->coordinator, &workers, &n));
    for (int s = 0; s < chief->identity.servers; s++)
        updates[s] = lk__ps_client_update_seconds(chief->client, s);
    lk__ps_put_workers(workers, n, report);
    lk__ps_put_servers(workers, n, &chief->layout, updates, trainer->config.servers.max_staleness, report);
    lk__free(workers);
    return LK_OK;
}

const lk_async_report *lk_trainer_async_report(const lk_trainer *trainer)
{
    return trainer->server.chief ? &trainer->server.chief->report : NULL;
}
