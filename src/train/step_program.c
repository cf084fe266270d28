/* Where devices work by themselves, a device's shards of a batch as one program: each shard in a branch, so that the
 * device can compute several at a time, then their sums, one for each node of the tree over shards that lies in its
 * range. What devices exchange is such sums, so the program is cut where a bucket of them is finished. One device whose
 * batches are updates by themselves has nobody to wait for: its program is a whole step, update included. Programs are
 * replayed as graphs. One is for batches of one size: an epoch has two at most. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "dist/tree.h"
#include "lockstep/ops.h"
#include "ops/update.h"
#include "optim/optimizer.h"
#include "program/program.h"

/* What a program is for. */
typedef struct purpose {
    lk__shard_pass_fn pass;
    const lk__device_data *data; /* NULL: on the host */
    int replica;
    int n;         /* values of a shard */
    int64_t count; /* samples of the batch */
    bool updates;
} purpose;

/* Inputs: the samples' indices; the epoch, where the data are on the device, else images and labels; what backward
 * starts with, if there is one; and what the optimiser steps by, if it does. */
enum { INDICES, EPOCH, IMAGES = EPOCH, LABELS, MAX_INPUTS = LABELS + 3 };

typedef struct step_inputs {
    lk_tensor *in[MAX_INPUTS];
    int n;
} step_inputs;

/* Outputs of a step: the metrics, and behind them whether the update was skipped. */
enum { MAX_OUTPUTS = LK_MAX_METRICS + 1 };

typedef struct recorded {
    struct recorded *next;
    lk_program *program;
    purpose purpose;
} recorded;

struct lk__step_programs {
    recorded *list;
};

bool lk__step_programs_fit(const lk_trainer *trainer)
{
    bool together = trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model);
    return trainer->programs && !together && !trainer->applies_elsewhere && trainer->devices[0]->backend->graphs;
}

bool lk__step_is_one_program(const lk_trainer *trainer)
{
    bool is_alone = lk_strategy_ranks(trainer->strategy) == 1 && !lk_strategy_storage(trainer->strategy);
    return trainer->step_programs && is_alone && trainer->plan.accumulate == 1;
}

lk_status lk__step_programs_new(lk__step_programs **programs)
{
    *programs = lk__calloc(1, sizeof **programs);
    return *programs ? LK_OK : LK_ERR_MEMORY;
}

void lk__step_programs_release(lk__step_programs *programs)
{
    while (programs && programs->list) {
        recorded *r = programs->list;
        programs->list = r->next;
        lk_program_release(r->program);
        lk__free(r);
    }
    lk__free(programs);
}

/* --- what is recorded --------------------------------------------------------------------------------------------- */

typedef struct recording {
    lk_trainer *trainer;
    const purpose *purpose;
    int n_in;
    lk_range own; /* shards … */
    int n_nodes;
    lk_range nodes[LK_TREE_COVER]; /* … and what covers them */
    lk_tensor **values;            /* [own][n] */
    lk_tree_node *leaves;          /* [own] */
    lk_tensor **sums;              /* [n]: of an update */
} recording;

static lk_range shards_of(const lk_trainer *trainer, int replica)
{
    int rank = lk_strategy_first_rank(trainer->strategy) + replica;
    return lk_part(trainer->plan.shards, lk_strategy_ranks(trainer->strategy), rank);
}

static lk_range samples_of(const lk_trainer *trainer, int replica, int64_t count)
{
    lk_range own = shards_of(trainer, replica);
    int64_t shards = trainer->plan.shards;
    return (lk_range){lk_part(count, shards, own.begin).begin, lk_part(count, shards, own.end - 1).end};
}

/* A shard's part of what the device has. */
static lk_tensor *part_of(lk_tensor *all, lk_range samples)
{
    return lk_slice(all, 0, samples.begin, samples.end);
}

static lk_status record_shard(const recording *r, lk_tensor *const *in, int64_t index, lk_range samples)
{
    const purpose *p = r->purpose;
    lk_shard shard = {.device = r->trainer->devices[p->replica],
                      .replica = p->replica,
                      .index = index,
                      .shards = r->trainer->plan.shards,
                      .global_batch = p->count,
                      .indices = part_of(in[INDICES], samples)};
    if (!p->data) {
        shard.images = part_of(in[IMAGES], samples);
        shard.labels = part_of(in[LABELS], samples);
    }
    if (!shard.indices || (!p->data && (!shard.images || !shard.labels)))
        return lk_error_status();
    LK_TRY(lk__device_data_prepare(p->data, in[EPOCH], &shard));
    int seed = p->data ? EPOCH + 1 : LABELS + 1;
    return p->pass(r->trainer, &shard, seed < r->n_in ? in[seed] : NULL, r->values + (index - r->own.begin) * p->n);
}

static lk_status record_shards(const recording *r, lk_tensor *const *in)
{
    const purpose *p = r->purpose;
    int64_t branches = r->trainer->config.branches, first = samples_of(r->trainer, p->replica, p->count).begin;
    for (int64_t s = r->own.begin; s < r->own.end; s++) {
        int64_t i = s - r->own.begin;
        lk_range samples = lk_part(p->count, r->trainer->plan.shards, s);
        r->leaves[i] = (lk_tree_node){.range = {s, s + 1}, .values = r->values + i * p->n};
        if (samples.begin == samples.end)
            continue;
        lk_program_branch(branches > 1 ? 1 + (int)(i % branches) : 0);
        LK_TRY(record_shard(r, in, s, (lk_range){samples.begin - first, samples.end - first}));
    }
    lk_program_branch(0);
    return LK_OK;
}

/* sums[0 … n) over a node. */
static lk_status record_sums(const recording *r, lk_range node, lk_tensor **sums)
{
    lk_device *device = r->trainer->devices[r->purpose->replica];
    const lk_tree_node *leaves = r->leaves + (node.begin - r->own.begin);
    for (int i = 0; i < r->purpose->n; i++)
        LK_TRY(lk__tree_sum(LK_HERE, device, &lk__transport_inproc, node, leaves, node.end - node.begin, i,
                            (lk_range){0, -1}, &sums[i]));
    return LK_OK;
}

static lk_status record_passes(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    LK_TRY(record_shards(r, in));
    for (int m = 0; m < r->n_nodes; m++)
        LK_TRY(record_sums(r, r->nodes[m], out + (int64_t)m * r->purpose->n));
    return LK_OK;
}

static lk_status record_step(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    lk_trainer *trainer = r->trainer;
    int metrics = lk__metric_count(trainer);
    LK_TRY(record_shards(r, in));
    LK_TRY(record_sums(r, r->own, r->sums));
    for (int i = 0; i < metrics; i++)
        out[i] = r->sums[trainer->n_updated + i];
    LK_TRY(lk__replicas_record(trainer->replicas, 0, r->sums, trainer->n_updated, r->purpose->count, in[r->n_in - 1]));
    out[metrics] = lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0));
    return LK_OK;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

static lk_status allocate(recording *r)
{
    size_t shards = (size_t)(r->own.end - r->own.begin), n = (size_t)r->purpose->n;
    r->values = lk__calloc(shards * n, sizeof(lk_tensor *));
    r->leaves = lk__calloc(shards, sizeof *r->leaves);
    r->sums = lk__calloc(n, sizeof(lk_tensor *));
    return r->values && r->leaves && r->sums ? LK_OK : LK_ERR_MEMORY;
}

/* A bucket can leave only where there is somebody to send it to. */
static lk_program_opts opts_for(const lk_trainer *trainer)
{
    const lk_train_config *config = &trainer->config;
    bool is_alone = lk_strategy_ranks(trainer->strategy) == 1;
    return (lk_program_opts){.fuse = config->fuse == LK_FUSE_ON,
                             .recompute = config->recompute,
                             .segment_bytes = is_alone ? 0 : (size_t)(1e6 * config->bucket_mb),
                             .graphs = config->graphs == LK_GRAPHS_ON};
}

static lk_program *record(lk_trainer *trainer, const purpose *p, const step_inputs *like)
{
    recording r = {.trainer = trainer, .purpose = p, .n_in = like->n, .own = shards_of(trainer, p->replica)};
    r.n_nodes = lk__tree_cover(trainer->plan.shards, r.own, r.nodes);
    int n_out = p->updates ? lk__metric_count(trainer) + 1 : r.n_nodes * p->n;
    lk_program_opts opts = opts_for(trainer);
    lk_program *program = NULL;
    if (allocate(&r) == LK_OK)
        program = lk_program_record(trainer->devices[p->replica], p->updates ? record_step : record_passes, &r,
                                    like->in, like->n, n_out, &opts);
    lk__free(r.values);
    lk__free(r.leaves);
    lk__free(r.sums);
    return program;
}

static lk_status add(lk_trainer *trainer, const purpose *p, const step_inputs *like, lk_program **program)
{
    recorded *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    r->program = record(trainer, p, like);
    if (!r->program) {
        lk__free(r);
        return lk_error_status();
    }
    r->purpose = *p;
    r->next = trainer->step_programs->list;
    trainer->step_programs->list = r;
    *program = r->program;
    return LK_OK;
}

static lk_status find(lk_trainer *trainer, const purpose *p, const step_inputs *like, lk_program **program)
{
    for (recorded *r = trainer->step_programs->list; r; r = r->next) {
        *program = r->program;
        if (r->purpose.pass == p->pass && r->purpose.replica == p->replica && r->purpose.count == p->count)
            return LK_OK;
    }
    return add(trainer, p, like, program);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static void take_inputs(const purpose *p, const lk_shard *own, lk_tensor *seed, step_inputs *inputs)
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

lk_status lk__begin_device_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                                const lk_shard *own, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay)
{
    const purpose p = {.pass = fn, .data = data, .replica = own->replica, .n = n, .count = own->global_batch};
    step_inputs inputs;
    lk_program *program = NULL;
    take_inputs(&p, own, seed, &inputs);
    LK_TRY(find(trainer, &p, &inputs, &program));
    return lk_program_begin(program, inputs.in, (uint64_t)trainer->update.number, values, replay);
}

static lk_status take_rates(lk_trainer *trainer, step_inputs *inputs)
{
    double rates[LK_UPDATE_RATES];
    LK_TRY(lk__optimizer_rates(lk_replicas_optimizer(trainer->replicas, 0), trainer->update.rate, rates));
    inputs->in[inputs->n] = lk_tensor_from(trainer->devices[0], LK_F64, LK_SHAPE(LK_UPDATE_RATES), rates);
    return inputs->in[inputs->n++] ? LK_OK : lk_error_status();
}

static purpose training(const lk_trainer *trainer, int replica, int64_t count)
{
    return (purpose){.pass = lk__training_pass,
                     .data = trainer->train_data,
                     .replica = replica,
                     .n = trainer->n_values,
                     .count = count,
                     .updates = lk__step_is_one_program(trainer)};
}

lk_status lk__run_training_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **metrics, lk_tensor **skipped)
{
    const purpose p = training(trainer, 0, batch->count);
    lk_shard whole = {.shards = 1};
    step_inputs inputs;
    lk_tensor *out[MAX_OUTPUTS];
    lk_program *program = NULL;
    int n = lk__metric_count(trainer);
    LK_TRY(lk__shard_of_batch(trainer->train_set, batch, (lk_range){0, batch->count}, trainer->devices[0], &whole));
    take_inputs(&p, &whole, trainer->seeds[0], &inputs);
    LK_TRY(take_rates(trainer, &inputs));
    LK_TRY(find(trainer, &p, &inputs, &program));
    LK_TRY(lk_program_run(program, inputs.in, (uint64_t)trainer->update.number, out));
    lk__optimizer_replayed(lk_replicas_optimizer(trainer->replicas, 0));
    for (int i = 0; i < n; i++)
        metrics[i] = out[i];
    *skipped = out[n];
    return LK_OK;
}

/* --- before there is a batch -------------------------------------------------------------------------------------- */

/* Tensors without elements, all of them to be released. */
static lk_status make_inputs(const lk_trainer *trainer, const purpose *p, step_inputs *inputs)
{
    lk_device *device = trainer->devices[0];
    lk_range samples = samples_of(trainer, p->replica, p->count);
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

/* The replica that has most of a batch. */
static int fullest(const lk_trainer *trainer, int64_t count)
{
    int64_t most = 0;
    int replica = 0;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range samples = samples_of(trainer, r, count);
        if (samples.end - samples.begin <= most)
            continue;
        most = samples.end - samples.begin;
        replica = r;
    }
    return replica;
}

static lk_program *keep(lk_trainer *trainer, const purpose *p, const step_inputs *like)
{
    lk_program *program;
    if (find(trainer, p, like, &program) != LK_OK)
        return NULL;
    lk__refcount_retain(&program->references);
    return program;
}

lk_program *lk__step_program_record(lk_trainer *trainer, int64_t samples)
{
    const purpose p = training(trainer, fullest(trainer, samples), samples);
    bool will_run = trainer->step_programs && samples == trainer->plan.batch_size;
    step_inputs like = {0};
    lk_program *program = NULL;
    if (make_inputs(trainer, &p, &like) == LK_OK)
        program = will_run ? keep(trainer, &p, &like) : record(trainer, &p, &like);
    lk__release_tensors(like.in, like.n);
    return program;
}
