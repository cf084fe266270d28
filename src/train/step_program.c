/* On one device that works by itself, a step of all its shards as one program: each shard in a branch, so that the
 * device can compute several at a time, then their sums, and in training the update. It is replayed as one graph. A
 * program is for batches of one size: an epoch has two at most. */
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

/* Inputs: the batch's indices; the epoch, where the data are on the device, else the batch's images and labels; and in
 * training what backward starts with and what the optimiser steps by. */
enum { INDICES, EPOCH, IMAGES = EPOCH, LABELS, MAX_INPUTS = LABELS + 3 };

typedef struct step_inputs {
    lk_tensor *in[MAX_INPUTS];
    int n;
} step_inputs;

/* Outputs: the metrics, and behind them whether the update was skipped. */
enum { MAX_OUTPUTS = LK_MAX_METRICS + 1 };

typedef struct recorded {
    struct recorded *next;
    lk_program *program;
    lk__shard_pass_fn pass;
    int64_t count; /* samples of the batch */
} recorded;

struct lk__step_programs {
    recorded *list;
};

bool lk__step_programs_fit(const lk_trainer *trainer)
{
    bool together = trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model);
    return trainer->programs && lk_strategy_ranks(trainer->strategy) == 1 && trainer->plan.accumulate == 1 &&
           !together && !lk_strategy_storage(trainer->strategy) && trainer->devices[0]->backend->graphs;
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
    lk__shard_pass_fn pass;
    const lk__device_data *data; /* NULL: on the host */
    int n_in;
    int n;               /* values of a shard, the last of them metrics */
    int64_t count;       /* samples */
    lk_tensor **values;  /* [shards][n] */
    lk_tree_node *nodes; /* [shards] */
    lk_tensor **sums;    /* [n] */
} recording;

/* A shard's part of what the batch has. */
static lk_tensor *part_of(lk_tensor *batch, lk_range samples)
{
    return lk_slice(batch, 0, samples.begin, samples.end);
}

static lk_status record_shard(const recording *r, lk_tensor *const *in, int64_t index, lk_range samples)
{
    lk_trainer *trainer = r->trainer;
    lk_shard shard = {.device = trainer->devices[0],
                      .index = index,
                      .shards = trainer->plan.shards,
                      .global_batch = r->count,
                      .indices = part_of(in[INDICES], samples)};
    if (!r->data) {
        shard.images = part_of(in[IMAGES], samples);
        shard.labels = part_of(in[LABELS], samples);
    }
    if (!shard.indices || (!r->data && (!shard.images || !shard.labels)))
        return lk_error_status();
    LK_TRY(lk__device_data_prepare(r->data, in[EPOCH], &shard));
    lk_tensor *seed = r->pass == lk__training_pass ? in[r->n_in - 2] : NULL;
    return r->pass(trainer, &shard, seed, r->values + index * r->n);
}

static lk_status record_shards(const recording *r, lk_tensor *const *in)
{
    int64_t shards = r->trainer->plan.shards, branches = r->trainer->config.branches;
    for (int64_t s = 0; s < shards; s++) {
        lk_range samples = lk_part(r->count, shards, s);
        r->nodes[s] = (lk_tree_node){.range = {s, s + 1}, .values = r->values + s * r->n};
        if (samples.begin == samples.end)
            continue;
        lk_program_branch(branches > 1 ? 1 + (int)(s % branches) : 0);
        LK_TRY(record_shard(r, in, s, samples));
    }
    lk_program_branch(0);
    return LK_OK;
}

static lk_status record_sums(const recording *r)
{
    int64_t shards = r->trainer->plan.shards;
    for (int i = 0; i < r->n; i++)
        LK_TRY(lk__tree_sum(LK_HERE, r->trainer->devices[0], &lk__transport_inproc, (lk_range){0, shards}, r->nodes,
                            shards, i, (lk_range){0, -1}, &r->sums[i]));
    return LK_OK;
}

static lk_status record_step(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    lk_trainer *trainer = r->trainer;
    int metrics = lk__metric_count(trainer);
    LK_TRY(record_shards(r, in));
    LK_TRY(record_sums(r));
    for (int i = 0; i < metrics; i++)
        out[i] = r->sums[r->n - metrics + i];
    if (r->pass != lk__training_pass)
        return LK_OK;
    LK_TRY(lk__replicas_record(trainer->replicas, 0, r->sums, trainer->n_updated, r->count, in[r->n_in - 1]));
    out[metrics] = lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0));
    return LK_OK;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

static lk_status allocate(recording *r)
{
    size_t shards = (size_t)r->trainer->plan.shards, n = (size_t)r->n;
    r->values = lk__calloc(shards * n, sizeof(lk_tensor *));
    r->nodes = lk__calloc(shards, sizeof *r->nodes);
    r->sums = lk__calloc(n, sizeof(lk_tensor *));
    return r->values && r->nodes && r->sums ? LK_OK : LK_ERR_MEMORY;
}

static lk_program *record(lk_trainer *trainer, lk__shard_pass_fn pass, int64_t count, const step_inputs *like)
{
    bool is_training = pass == lk__training_pass;
    int metrics = lk__metric_count(trainer);
    recording r = {.trainer = trainer,
                   .pass = pass,
                   .data = is_training ? trainer->train_data : trainer->val_data,
                   .n_in = like->n,
                   .n = is_training ? trainer->n_values : metrics,
                   .count = count};
    const lk_train_config *config = &trainer->config;
    lk_program_opts opts = {
        .fuse = config->fuse == LK_FUSE_ON, .recompute = config->recompute, .graphs = config->graphs == LK_GRAPHS_ON};
    lk_program *program = NULL;
    if (allocate(&r) == LK_OK)
        program =
            lk_program_record(trainer->devices[0], record_step, &r, like->in, like->n, metrics + is_training, &opts);
    lk__free(r.values);
    lk__free(r.nodes);
    lk__free(r.sums);
    return program;
}

static lk_status add(lk_trainer *trainer, lk__shard_pass_fn pass, int64_t count, const step_inputs *like,
                     lk_program **program)
{
    recorded *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    r->program = record(trainer, pass, count, like);
    if (!r->program) {
        lk__free(r);
        return lk_error_status();
    }
    r->pass = pass;
    r->count = count;
    r->next = trainer->step_programs->list;
    trainer->step_programs->list = r;
    *program = r->program;
    return LK_OK;
}

static lk_status find(lk_trainer *trainer, lk__shard_pass_fn pass, int64_t count, const step_inputs *like,
                      lk_program **program)
{
    for (recorded *r = trainer->step_programs->list; r; r = r->next) {
        *program = r->program;
        if (r->pass == pass && r->count == count)
            return LK_OK;
    }
    return add(trainer, pass, count, like, program);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static lk_status take_batch(lk_trainer *trainer, const lk_dataset *dataset, const lk__device_data *data,
                            lk_batch *batch, step_inputs *inputs)
{
    lk_shard whole = {.shards = 1};
    LK_TRY(lk__shard_of_batch(dataset, batch, (lk_range){0, batch->count}, trainer->devices[0], &whole));
    inputs->in[INDICES] = whole.indices;
    inputs->n = data ? EPOCH + 1 : LABELS + 1;
    if (data) {
        inputs->in[EPOCH] = lk__device_data_epoch(data, 0);
        return LK_OK;
    }
    inputs->in[IMAGES] = whole.images;
    inputs->in[LABELS] = whole.labels;
    return LK_OK;
}

static lk_status take_rates(lk_trainer *trainer, step_inputs *inputs)
{
    double rates[LK_UPDATE_RATES];
    LK_TRY(lk__optimizer_rates(lk_replicas_optimizer(trainer->replicas, 0), trainer->update.rate, rates));
    inputs->in[inputs->n++] = trainer->seeds[0];
    inputs->in[inputs->n] = lk_tensor_from(trainer->devices[0], LK_F64, LK_SHAPE(LK_UPDATE_RATES), rates);
    return inputs->in[inputs->n++] ? LK_OK : lk_error_status();
}

static lk_status run(lk_trainer *trainer, lk__shard_pass_fn pass, const lk_batch *batch, const step_inputs *inputs,
                     lk_tensor **out)
{
    lk_program *program = NULL;
    LK_TRY(find(trainer, pass, batch->count, inputs, &program));
    return lk_program_run(program, inputs->in, (uint64_t)trainer->update.number, out);
}

lk_status lk__run_training_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **metrics, lk_tensor **skipped)
{
    step_inputs inputs;
    lk_tensor *out[MAX_OUTPUTS];
    int n = lk__metric_count(trainer);
    LK_TRY(take_batch(trainer, trainer->train_set, trainer->train_data, batch, &inputs));
    LK_TRY(take_rates(trainer, &inputs));
    LK_TRY(run(trainer, lk__training_pass, batch, &inputs, out));
    lk__optimizer_replayed(lk_replicas_optimizer(trainer->replicas, 0));
    for (int i = 0; i < n; i++)
        metrics[i] = out[i];
    *skipped = out[n];
    return LK_OK;
}

lk_status lk__run_evaluation_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **metrics)
{
    step_inputs inputs;
    LK_TRY(take_batch(trainer, trainer->val_set, trainer->val_data, batch, &inputs));
    return run(trainer, lk__evaluation_pass, batch, &inputs, metrics);
}

/* --- before there is a batch -------------------------------------------------------------------------------------- */

/* Tensors without elements, all of them to be released. */
static lk_status make_inputs(const lk_trainer *trainer, int64_t samples, step_inputs *inputs)
{
    lk_device *device = trainer->devices[0];
    lk_shard whole = {.shards = 1};
    lk_status status = lk__make_shard(trainer, samples, &whole);
    inputs->in[inputs->n++] = whole.indices;
    if (trainer->train_data) {
        lk__release_tensors((lk_tensor *[]){whole.images, whole.labels}, 2);
        LK_TRY(lk__tensor_new(device, LK_I64, LK_SCALAR, &inputs->in[inputs->n++]));
    } else {
        inputs->in[inputs->n++] = whole.images;
        inputs->in[inputs->n++] = whole.labels;
    }
    LK_TRY(status);
    LK_TRY(lk__tensor_new(device, LK_F32, LK_SCALAR, &inputs->in[inputs->n++]));
    return lk__tensor_new(device, LK_F64, LK_SHAPE(LK_UPDATE_RATES), &inputs->in[inputs->n++]);
}

static lk_program *keep(lk_trainer *trainer, int64_t samples, const step_inputs *like)
{
    lk_program *program;
    if (find(trainer, lk__training_pass, samples, like, &program) != LK_OK)
        return NULL;
    lk__refcount_retain(&program->references);
    return program;
}

lk_program *lk__step_program_record(lk_trainer *trainer, int64_t samples)
{
    step_inputs like = {0};
    lk_program *program = NULL;
    if (make_inputs(trainer, samples, &like) == LK_OK)
        program = samples == trainer->plan.batch_size ? keep(trainer, samples, &like)
                                                      : record(trainer, lk__training_pass, samples, &like);
    lk__release_tensors(like.in, like.n);
    return program;
}
