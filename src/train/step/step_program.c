/* On offload devices all shards that a device has of a batch are one program. Each shard is a branch, so that the
 * device can compute several at a time; then come their sums, one for each node of the tree that covers the device's
 * shards. Devices exchange these sums, so the program is cut where a bucket of them is finished. A single device
 * without accumulation waits for no other device, so its program is the whole step, update included. Programs are
 * replayed as graphs. Each program is for one batch size; an epoch has at most two. */
#include "train/step/step_program.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "dist/sum/tree.h"
#include "ops/update.h"
#include "optim/optimizer.h"
#include "optim/optimizer_step.h"
#include "program/program.h"
#include "train/plan/choices.h"
#include "train/replicas.h"
#include "train/step/device_data.h"
#include "train/step/shard_programs.h"
#include "train/step/shard_run.h"
#include "train/step/step.h"
#include "train/step/sync_step.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

/* Identifies a program. */
typedef struct purpose {
    lk__shard_pass_fn pass;
    const lk_device_data *data; /* NULL: the loader prepares images */
    int replica;
    int n;         /* values of a shard */
    int64_t count; /* samples of the batch */
    bool updates;
} purpose;

/* The inputs are the samples' indices; the epoch if the device has the data, else images and labels; the gradient that
 * backward starts with, if there is a backward pass; and the optimizer's rates, if there is an update. */
enum { INDICES, EPOCH, IMAGES = EPOCH, LABELS, MAX_INPUTS = LABELS + 3 };

typedef struct step_inputs {
    lk_tensor *in[MAX_INPUTS];
    int n;
} step_inputs;

/* The outputs of a step are the metrics, then whether the update was skipped. */
enum { MAX_OUTPUTS = LK_MAX_METRICS + 1 };

typedef struct recorded {
    struct recorded *next;
    lk_program *program;
    purpose purpose;
} recorded;

struct lk_step_programs {
    recorded *list;
};

bool lk__step_programs_fit(const lk_trainer *trainer)
{
    return trainer->programs.shard && !lk__runs_shards_together(trainer) && !trainer->server.has_optimizer &&
           trainer->devices[0]->backend->graphs;
}

bool lk__step_is_one_program(const lk_trainer *trainer)
{
    bool is_alone = lk_strategy_ranks(trainer->strategy) == 1 && !lk_strategy_storage(trainer->strategy);
    return trainer->programs.step && is_alone && trainer->plan.accumulate == 1;
}

lk_status lk__step_programs_new(lk_step_programs **programs)
{
    *programs = lk__calloc(1, sizeof **programs);
    return *programs ? LK_OK : LK_ERR_MEMORY;
}

void lk__step_programs_release(lk_step_programs *programs)
{
    while (programs && programs->list) {
        recorded *r = programs->list;
        programs->list = r->next;
        lk_program_release(r->program);
        lk__free(r);
    }
    lk__free(programs);
}

/* --- recorded functions ------------------------------------------------------------------------------------------- */

typedef struct recording {
    lk_trainer *trainer;
    const purpose *purpose;
    int n_in;
    lk_range own; /* shards of the replica */
    int n_nodes;
    lk_range nodes[LK_TREE_COVER]; /* of the tree, which cover `own` */
    lk_tensor **values;            /* [own][n] */
    lk_tree_node *leaves;          /* [own] */
    lk_tensor **sums;              /* [n]: for the update */
} recording;

static lk_range step_program_samples(const lk_trainer *trainer, int replica, int64_t count)
{
    return lk__samples_of_shards(count, trainer->plan.shards, lk__replica_shards(trainer, replica));
}

/* Returns a shard's part of an input that has all of the device's samples. */
static lk_tensor *step_program_slice(lk_tensor *all, lk_range samples)
{
    return lk_slice(all, 0, samples.begin, samples.end);
}

static lk_status step_program_record_shard(const recording *r, lk_tensor *const *in, int64_t index, lk_range samples)
{
    const purpose *p = r->purpose;
    lk_shard shard = {.device = r->trainer->devices[p->replica],
                      .replica = p->replica,
                      .index = index,
                      .shards = r->trainer->plan.shards,
                      .global_batch = p->count,
                      .indices = step_program_slice(in[INDICES], samples)};
    if (!p->data) {
        shard.images = step_program_slice(in[IMAGES], samples);
        shard.labels = step_program_slice(in[LABELS], samples);
    }
    if (!shard.indices || (!p->data && (!shard.images || !shard.labels)))
        return lk_error_status();
    LK_TRY(lk__device_data_prepare(p->data, in[EPOCH], &shard));
    int seed = p->data ? EPOCH + 1 : LABELS + 1;
    return p->pass(r->trainer, &shard, seed < r->n_in ? in[seed] : NULL, r->values + (index - r->own.begin) * p->n);
}

static lk_status step_program_record_shards(const recording *r, lk_tensor *const *in)
{
    const purpose *p = r->purpose;
    int64_t branches = r->trainer->config.execution.branches,
            first = step_program_samples(r->trainer, p->replica, p->count).begin;
    for (int64_t s = r->own.begin; s < r->own.end; s++) {
        int64_t i = s - r->own.begin;
        lk_range samples = lk_part(p->count, r->trainer->plan.shards, s);
        r->leaves[i] = (lk_tree_node){.range = {s, s + 1}, .values = r->values + i * p->n};
        if (samples.begin == samples.end)
            continue;
        lk_program_branch(branches > 1 ? 1 + (int)(i % branches) : 0);
        LK_TRY(step_program_record_shard(r, in, s, (lk_range){samples.begin - first, samples.end - first}));
    }
    lk_program_branch(0);
    return LK_OK;
}

/* Records the sums over a node; sets sums[0 … n). */
static lk_status step_program_record_sums(const recording *r, lk_range node, lk_tensor **sums)
{
    lk_device *device = r->trainer->devices[r->purpose->replica];
    const lk_tree_node *leaves = r->leaves + (node.begin - r->own.begin);
    for (int i = 0; i < r->purpose->n; i++)
        LK_TRY(lk__tree_sum(LK_HERE, device, &lk__transport_inproc, node, leaves, node.end - node.begin, i,
                            (lk_range){0, -1}, &sums[i]));
    return LK_OK;
}

static lk_status step_program_record_passes(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    LK_TRY(step_program_record_shards(r, in));
    for (int m = 0; m < r->n_nodes; m++)
        LK_TRY(step_program_record_sums(r, r->nodes[m], out + (int64_t)m * r->purpose->n));
    return LK_OK;
}

static lk_status step_program_record_step(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    lk_trainer *trainer = r->trainer;
    int metrics = lk__metric_count(trainer);
    LK_TRY(step_program_record_shards(r, in));
    LK_TRY(step_program_record_sums(r, r->own, r->sums));
    for (int i = 0; i < metrics; i++)
        out[i] = r->sums[trainer->sums.n_updated + i];
    LK_TRY(lk__replicas_record(trainer->replicas, 0, r->sums, trainer->sums.n_updated, r->purpose->count,
                               in[r->n_in - 1]));
    out[metrics] = lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0));
    return LK_OK;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

/* A program is cut into segments only if there are other devices to exchange buckets with. */
static lk_program_opts step_program_opts(const lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    bool is_alone = lk_strategy_ranks(trainer->strategy) == 1;
    return (lk_program_opts){.fuse = config->execution.fuse == LK_FUSE_ON,
                             .recompute = config->execution.recompute,
                             .segment_bytes = is_alone ? 0 : (size_t)(1e6 * config->devices.bucket_mb),
                             .graphs = config->execution.graphs == LK_GRAPHS_ON};
}

static lk_program *step_program_make(lk_trainer *trainer, const purpose *p, const step_inputs *like)
{
    recording r = {.trainer = trainer, .purpose = p, .n_in = like->n, .own = lk__replica_shards(trainer, p->replica)};
    r.n_nodes = lk__tree_cover(trainer->plan.shards, r.own, r.nodes);
    int n_out = p->updates ? lk__metric_count(trainer) + 1 : r.n_nodes * p->n;
    lk_program_opts opts = step_program_opts(trainer);
    lk_program *program = NULL;
    size_t shards = (size_t)(r.own.end - r.own.begin), n = (size_t)p->n;
    r.values = lk__calloc(shards * n, sizeof(lk_tensor *));
    r.leaves = lk__calloc(shards, sizeof *r.leaves);
    r.sums = lk__calloc(n, sizeof(lk_tensor *));
    if (r.values && r.leaves && r.sums)
        program = lk_program_record(trainer->devices[p->replica],
                                    p->updates ? step_program_record_step : step_program_record_passes, &r, like->in,
                                    like->n, n_out, &opts);
    lk__free(r.values);
    lk__free(r.leaves);
    lk__free(r.sums);
    return program;
}

/* Finds the program, or records it with inputs like these. *program: borrowed; NULL on failure. */
static lk_status step_program_get(lk_trainer *trainer, const purpose *p, const step_inputs *like, lk_program **program)
{
    *program = NULL;
    for (recorded *r = trainer->programs.step->list; r; r = r->next)
        if (r->purpose.pass == p->pass && r->purpose.replica == p->replica && r->purpose.count == p->count) {
            *program = r->program;
            return LK_OK;
        }
    recorded *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    *program = step_program_make(trainer, p, like);
    if (!*program) {
        lk__free(r);
        return lk_error_status();
    }
    *r = (recorded){trainer->programs.step->list, *program, *p};
    trainer->programs.step->list = r;
    return LK_OK;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static void step_program_set_inputs(const purpose *p, const lk_shard *own, lk_tensor *seed, step_inputs *inputs)
{
    inputs->in[INDICES] = own->indices;
    inputs->n = p->data ? EPOCH + 1 : LABELS + 1;
    if (p->data) {
        inputs->in[EPOCH] = lk__device_data_epoch(p->data, p->replica);
    } else {
        inputs->in[IMAGES] = own->images;
        inputs->in[LABELS] = own->labels;
    }
    if (seed)
        inputs->in[inputs->n++] = seed;
}

lk_status lk__begin_device_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                                const lk_shard *own, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay)
{
    const purpose p = {.pass = fn, .data = data, .replica = own->replica, .n = n, .count = own->global_batch};
    step_inputs inputs;
    lk_program *program = NULL;
    step_program_set_inputs(&p, own, seed, &inputs);
    LK_TRY(step_program_get(trainer, &p, &inputs, &program));
    return lk_program_begin(program, inputs.in, (uint64_t)trainer->progress.update.number, values, replay);
}

static purpose step_program_purpose(const lk_trainer *trainer, int replica, int64_t count)
{
    return (purpose){.pass = lk__training_pass,
                     .data = trainer->data.train_on_devices,
                     .replica = replica,
                     .n = trainer->sums.n_values,
                     .count = count,
                     .updates = lk__step_is_one_program(trainer)};
}

lk_status lk__run_training_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **metrics, lk_tensor **skipped)
{
    const purpose p = step_program_purpose(trainer, 0, batch->count);
    lk_shard whole = {.shards = 1};
    step_inputs inputs;
    lk_tensor *out[MAX_OUTPUTS];
    lk_program *program = NULL;
    lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    double rates[LK_UPDATE_RATES];
    int n = lk__metric_count(trainer);
    LK_TRY(
        lk__shard_of_batch(trainer->data.train_set, batch, (lk_range){0, batch->count}, trainer->devices[0], &whole));
    step_program_set_inputs(&p, &whole, trainer->sums.seeds[0], &inputs);
    LK_TRY(lk__optimizer_rates(optimizer, trainer->progress.update.rate, rates));
    inputs.in[inputs.n] = lk_tensor_from(trainer->devices[0], LK_F64, LK_SHAPE(LK_UPDATE_RATES), rates);
    if (!inputs.in[inputs.n++])
        return lk_error_status();
    LK_TRY(step_program_get(trainer, &p, &inputs, &program));
    LK_TRY(lk_program_run(program, inputs.in, (uint64_t)trainer->progress.update.number, out));
    lk__optimizer_replayed(optimizer);
    for (int i = 0; i < n; i++)
        metrics[i] = out[i];
    *skipped = out[n];
    return LK_OK;
}

/* --- before there is a batch -------------------------------------------------------------------------------------- */

/* Makes inputs that are only shapes, to record with. The caller releases them, also after a failure. */
static lk_status step_program_make_inputs(const lk_trainer *trainer, const purpose *p, step_inputs *inputs)
{
    lk_device *device = trainer->devices[0];
    lk_range samples = step_program_samples(trainer, p->replica, p->count);
    lk_shard own = {.shards = 1};
    lk_status status = lk__make_shard(trainer, samples.end - samples.begin, &own);
    inputs->in[inputs->n++] = own.indices;
    if (p->data) {
        lk__release_tensors((lk_tensor *[]){own.images, own.labels}, 2);
        LK_TRY(lk__tensor_new(device, LK_I64, LK_SCALAR, &inputs->in[inputs->n++]));
    } else {
        inputs->in[inputs->n++] = own.images;
        inputs->in[inputs->n++] = own.labels;
    }
    LK_TRY(status);
    LK_TRY(lk__tensor_new(device, LK_F32, LK_SCALAR, &inputs->in[inputs->n++]));
    return p->updates ? lk__tensor_new(device, LK_F64, LK_SHAPE(LK_UPDATE_RATES), &inputs->in[inputs->n++]) : LK_OK;
}

/* The replica that has the most samples of a batch. */
static int step_program_fullest_replica(const lk_trainer *trainer, int64_t count)
{
    int64_t most = 0;
    int replica = 0;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range samples = step_program_samples(trainer, r, count);
        if (samples.end - samples.begin <= most)
            continue;
        most = samples.end - samples.begin;
        replica = r;
    }
    return replica;
}

lk_program *lk__step_program_record(lk_trainer *trainer, int64_t samples)
{
    const purpose p = step_program_purpose(trainer, step_program_fullest_replica(trainer, samples), samples);
    bool will_run = trainer->programs.step && samples == trainer->plan.batch_size;
    step_inputs like = {0};
    lk_program *program = NULL;
    lk_status status = step_program_make_inputs(trainer, &p, &like);
    if (status == LK_OK && !will_run)
        program = step_program_make(trainer, &p, &like);
    else if (status == LK_OK && step_program_get(trainer, &p, &like, &program) == LK_OK)
        lk__refcount_retain(&program->references);
    lk__release_tensors(like.in, like.n);
    return program;
}
