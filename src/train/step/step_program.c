/* All shards that a GPU has of a batch are one program, and so are the shards of a group of batch-norm, and up to
 * MERGED_SAMPLES of those that a CPU device has if their calls can be merged. On a GPU, shards that share no group are
 * branches, so that the device can compute several at a time; then come their sums, one for each node of the tree that
 * covers the program's shards. Devices exchange these sums, so the program is cut where a bucket of them is finished. A
 * single GPU without accumulation waits for no other device, so its program is the whole step, update included.
 * Programs are replayed as graphs. */
#include "train/step/step_program.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "dist/sum/tree.h"
#include "ops/update.h"
#include "optim/optimizer.h"
#include "optim/optimizer_step.h"
#include "program/defer.h"
#include "program/merge.h"
#include "program/program.h"
#include "train/plan/choices.h"
#include "train/replicas.h"
#include "train/step/device_data.h"
#include "train/step/groups.h"
#include "train/step/precise_bn.h"
#include "train/step/shard_pass.h"
#include "train/step/shard_programs.h"
#include "train/step/shard_run.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "train/trainer_sums.h"
#include "lockstep/ops.h"

#include <string.h>

/* Identifies a program. */
typedef struct purpose {
    lk__shard_pass_fn pass;
    const lk_device_data *data; /* NULL: the loader prepares images */
    int replica;
    lk_range shards;
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

/* Shards that a GPU computes at the same time if their passes cannot be merged. */
enum { BRANCHES = 4 };

typedef struct recorded {
    struct recorded *next;
    lk_program *program;
    purpose purpose;
} recorded;

struct lk_step_programs {
    recorded *list;
    lk_tensor *rates; /* of the last step, on its device; NULL: no step has updated yet */
    double values[LK_OPTIMIZER_RATES];
};

/* Returns whether all shards of a device are one program. */
static bool step_program_takes_devices(const lk_trainer *trainer)
{
    return !trainer->server.has_optimizer && trainer->devices[0]->backend->graphs;
}

lk_status lk__step_programs_find_merging(lk_trainer *trainer)
{
    const lk_plan *plan = &trainer->plan;
    lk_range own = lk__replica_shards(trainer, 0);
    if (!trainer->programs.shard || trainer->server.has_optimizer || !trainer->devices[0]->backend->stays_apart ||
        own.end - own.begin < 2 || plan->micro_batch > 0)
        return LK_OK;
    lk_program_opts opts = {.fuse = trainer->config.execution.fuse == LK_FUSE_ON};
    lk_program *program = lk__record_pass(trainer, true, lk__divide_up(plan->batch_size, plan->shards), &opts);
    if (!program)
        return lk_error_status();
    trainer->programs.merges = lk__program_may_merge(program);
    lk_program_release(program);
    return LK_OK;
}

bool lk__step_programs_fit(const lk_trainer *trainer)
{
    bool spans = !trainer->server.has_optimizer && lk__groups_span_devices(trainer, trainer->sums.train, 0);
    return trainer->programs.shard && !spans &&
           (trainer->sums.groups || trainer->programs.merges || step_program_takes_devices(trainer));
}

bool lk__step_is_one_program(const lk_trainer *trainer)
{
    bool is_alone = lk_strategy_ranks(trainer->strategy) == 1 && !lk_strategy_storage(trainer->strategy);
    return trainer->programs.step && is_alone && trainer->plan.accumulate == 1 && step_program_takes_devices(trainer);
}

static lk_range step_program_replica(const lk_trainer *trainer, int replica, int64_t shard)
{
    (void)shard;
    return lk__replica_shards(trainer, replica);
}

/* The activations of so many samples stay in the second-level cache, and a product of so many rows seldom waits for
 * weights. */
enum { MERGED_SAMPLES = 256 };

/* Cuts a device's shards into runs of at most MERGED_SAMPLES. */
static lk_range step_program_merged(const lk_trainer *trainer, int replica, int64_t shard)
{
    const lk_plan *plan = &trainer->plan;
    lk_range own = lk__replica_shards(trainer, replica);
    int64_t most = lk__max(MERGED_SAMPLES / lk__divide_up(plan->batch_size, plan->shards), 1), n = own.end - own.begin;
    int64_t runs = lk__divide_up(n, most);
    lk_range run = lk_part(n, runs, lk__divide_up((shard - own.begin + 1) * runs, n) - 1);
    return (lk_range){own.begin + run.begin, own.begin + run.end};
}

static lk_range step_program_group(const lk_trainer *trainer, int replica, int64_t shard)
{
    (void)replica;
    return lk__group_of(trainer, shard);
}

/* On CPU devices a program gives the values of each shard: a sum over shards adds up several in one pass over memory
 * (dist/array_sum.h), which operators cannot. */
const lk_shard_units *lk__step_program_units(const lk_trainer *trainer, lk__shard_pass_fn fn)
{
    static const lk_shard_units replicas = {step_program_replica, true}, merged = {step_program_merged, false},
                                groups = {step_program_group, false};
    if (!trainer->programs.step)
        return NULL;
    if (step_program_takes_devices(trainer))
        return &replicas;
    if (fn == lk__evaluation_pass)
        return NULL;
    return trainer->programs.merges ? &merged : &groups;
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
    lk_tensor_release(programs ? programs->rates : NULL);
    lk__free(programs);
}

lk_status lk__step_programs_split(lk_trainer *trainer)
{
    trainer->config.execution.branches = BRANCHES;
    lk__step_programs_release(trainer->programs.step);
    trainer->programs.step = NULL;
    return lk__step_programs_new(&trainer->programs.step);
}

/* --- recorded functions ------------------------------------------------------------------------------------------- */

typedef struct recording {
    lk_trainer *trainer;
    const purpose *purpose;
    int n_in;
    lk_range own;                  /* the purpose's shards */
    lk_shard whole;                /* the samples of all of them */
    int n_nodes;                   /* 0: the outputs are the values of each shard */
    lk_range nodes[LK_TREE_COVER]; /* of the tree, which cover `own` */
    lk_tensor **values;            /* [own][n] */
    lk_tree_node *leaves;          /* [own] */
    lk_tensor **sums;              /* [n]: for the update */
} recording;

static lk_range step_program_samples(const lk_trainer *trainer, const purpose *p)
{
    return lk__samples_of_shards(p->count, trainer->plan.shards, p->shards);
}

/* Makes the images and labels of all shards in one call each, if the device has the data. */
static lk_status step_program_record_samples(recording *r, lk_tensor *const *in)
{
    const purpose *p = r->purpose;
    lk_range samples = step_program_samples(r->trainer, p);
    if (samples.begin == samples.end)
        return LK_OK;
    r->whole = (lk_shard){.replica = p->replica,
                          .indices = in[INDICES],
                          .images = p->data ? NULL : in[IMAGES],
                          .labels = p->data ? NULL : in[LABELS]};
    LK_TRY(lk__device_data_prepare(p->data, in[EPOCH], &r->whole));
    return lk__tensor_make_plain(r->whole.images); /* the first slice would do so, but in a branch */
}

/* Sets *shard, and *seed to the gradient that backward starts with; NULL: there is no backward pass. */
static lk_status step_program_record_inputs(const recording *r, lk_tensor *const *in, int64_t index, lk_shard *shard,
                                            lk_tensor **seed)
{
    const purpose *p = r->purpose;
    int64_t first = step_program_samples(r->trainer, p).begin;
    lk_range samples = lk_part(p->count, r->trainer->plan.shards, index);
    samples = (lk_range){samples.begin - first, samples.end - first};
    *shard = (lk_shard){.device = r->trainer->devices[p->replica],
                        .replica = p->replica,
                        .index = index,
                        .shards = r->trainer->plan.shards,
                        .global_batch = p->count,
                        .indices = lk_slice(in[INDICES], 0, samples.begin, samples.end),
                        .images = lk_slice(r->whole.images, 0, samples.begin, samples.end),
                        .labels = lk_slice(r->whole.labels, 0, samples.begin, samples.end)};
    int after = p->data ? EPOCH + 1 : LABELS + 1;
    *seed = after < r->n_in ? in[after] : NULL;
    return shard->indices && shard->images && shard->labels ? LK_OK : lk_error_status();
}

static bool step_program_has_samples(const recording *r, int64_t shard)
{
    lk_range samples = lk_part(r->purpose->count, r->trainer->plan.shards, shard);
    return samples.begin < samples.end;
}

static lk_status step_program_record_shard(const recording *r, lk_tensor *const *in, int64_t index)
{
    lk_shard shard;
    lk_tensor *seed;
    if (!step_program_has_samples(r, index))
        return LK_OK;
    LK_TRY(step_program_record_inputs(r, in, index, &shard, &seed));
    return r->purpose->pass(r->trainer, &shard, seed, r->values + (index - r->own.begin) * r->purpose->n);
}

/* Runs the pass over the group's shards and copies their values to r->values. values: scratch. */
static lk_status step_program_record_pass(const recording *r, lk_tensor *const *in, lk_range group, lk_shard_pass *pass,
                                          lk_tensor **values)
{
    lk_trainer *trainer = r->trainer;
    int n = r->purpose->n;
    lk__shard_pass_start(pass, &trainer->progress.update, NULL, r->purpose->count);
    for (int64_t s = group.begin; s < group.end; s++) {
        lk_shard shard;
        lk_tensor *seed;
        if (!step_program_has_samples(r, s))
            continue;
        LK_TRY(step_program_record_inputs(r, in, s, &shard, &seed));
        LK_TRY(lk__shard_pass_take(pass, &shard, seed));
    }
    if (pass->n == 0)
        return LK_OK;
    bool trains = r->purpose->pass == lk__training_pass;
    LK_TRY(trains ? lk__shard_pass_train(pass, values) : lk__shard_pass_statistics(pass));
    for (int64_t i = 0; i < pass->n; i++)
        memcpy(r->values + (pass->shards[i].index - r->own.begin) * n, (trains ? values : pass->statistics) + i * n,
               (size_t)n * sizeof *values);
    return LK_OK;
}

/* If there are groups, each group is one pass on one tape, even a group of one shard: the bits must be those of a step
 * that runs all shards together. */
static lk_status step_program_record_group(const recording *r, lk_tensor *const *in, lk_range group)
{
    lk_shard_pass pass;
    if (!r->trainer->sums.groups || r->purpose->pass == lk__evaluation_pass)
        return step_program_record_shard(r, in, group.begin);
    size_t shards = (size_t)(group.end - group.begin);
    lk_tensor **values = lk__calloc(shards * (size_t)r->purpose->n, sizeof *values);
    lk_status status = lk__shard_pass_init(&pass, r->trainer, (int64_t)shards);
    if (status == LK_OK)
        status = values ? step_program_record_pass(r, in, group, &pass, values) : LK_ERR_MEMORY;
    lk__shard_pass_free(&pass);
    lk__free(values);
    return status;
}

static lk_status step_program_record_shards(recording *r, lk_tensor *const *in)
{
    const purpose *p = r->purpose;
    int64_t asked = r->trainer->config.execution.branches, branches = asked > 0 ? asked : BRANCHES, g = 0;
    bool has_branches = step_program_takes_devices(r->trainer) && branches > 1;
    for (int64_t s = r->own.begin; s < r->own.end; s++)
        r->leaves[s - r->own.begin] =
            (lk_tree_node){.range = {s, s + 1}, .values = r->values + (s - r->own.begin) * p->n};
    LK_TRY(step_program_record_samples(r, in));
    for (lk_range group = {r->own.begin, r->own.begin}; group.end < r->own.end; g++) {
        group =
            p->pass == lk__evaluation_pass ? (lk_range){group.end, group.end + 1} : lk__group_of(r->trainer, group.end);
        lk_program_branch(has_branches ? 1 + (int)(g % branches) : 0);
        LK_TRY(step_program_record_group(r, in, group));
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
    recording *r = user;
    LK_TRY(step_program_record_shards(r, in));
    for (int64_t i = 0; i < (r->own.end - r->own.begin) * r->purpose->n && r->n_nodes == 0; i++)
        out[i] = r->values[i];
    for (int m = 0; m < r->n_nodes; m++)
        LK_TRY(step_program_record_sums(r, r->nodes[m], out + (int64_t)m * r->purpose->n));
    return LK_OK;
}

static lk_status step_program_record_step(void *user, lk_tensor *const *in, lk_tensor **out)
{
    recording *r = user;
    lk_trainer *trainer = r->trainer;
    int n = lk__metric_count(trainer);
    lk_tensor *results[LK_MAX_METRICS + 1], *skipped;
    LK_TRY(step_program_record_shards(r, in));
    LK_TRY(step_program_record_sums(r, r->own, r->sums));
    LK_TRY(lk__replicas_record(trainer->replicas, 0, r->sums, trainer->sums.n_updated, r->purpose->count,
                               in[r->n_in - 1]));
    memcpy(results, r->sums + trainer->sums.n_updated, (size_t)n * sizeof *results);
    skipped = lk_optimizer_skipped(lk_replicas_optimizer(trainer->replicas, 0));
    if (skipped)
        results[n++] = skipped;
    for (int i = 0; i < n; i++)
        results[i] = lk_reshape(results[i], LK_SHAPE(1));
    out[0] = lk_concat(results, n, 0);
    return out[0] ? LK_OK : lk_error_status();
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

/* A program of all of a device's shards is cut into segments only if there are other devices to exchange buckets with.
 * In a pass over groups operators are not fused, because those of a step that runs all shards together are not. As in
 * shard_programs.c, kernels may keep what they derive from weights if a program runs several times between updates;
 * merged shards of two sizes keep it twice. */
static lk_program_opts step_program_opts(const lk_trainer *trainer, const purpose *p)
{
    const lk_train_config *config = &trainer->config;
    const lk_plan *plan = &trainer->plan;
    bool by_device = step_program_takes_devices(trainer), is_alone = lk_strategy_ranks(trainer->strategy) == 1;
    lk_range own = lk__replica_shards(trainer, p->replica);
    bool has_runs = trainer->programs.merges && p->shards.end - p->shards.begin < own.end - own.begin;
    bool repeats = trainer->sums.n_groups > trainer->n_devices || has_runs || plan->accumulate > 1;
    bool keeps = !by_device && repeats && p->pass == lk__training_pass && p->count == plan->batch_size;
    bool is_group = trainer->sums.groups && p->pass != lk__evaluation_pass;
    lk_program_opts opts = {.fuse = config->execution.fuse == LK_FUSE_ON && !is_group,
                            .recompute = config->execution.recompute,
                            .keep_bytes = keeps ? (has_runs ? 2 : 1) * (size_t)plan->parameters * sizeof(float) : 0,
                            .merge = config->execution.branches == 0,
                            .graphs = config->execution.graphs == LK_GRAPHS_ON};
    if (p->pass == lk__training_pass && !(by_device && is_alone))
        lk__trainer_sums_cut(trainer, &opts);
    return opts;
}

static lk_program *step_program_make(lk_trainer *trainer, const purpose *p, const step_inputs *like)
{
    recording r = {.trainer = trainer, .purpose = p, .n_in = like->n, .own = p->shards};
    int64_t parts = r.own.end - r.own.begin;
    if (step_program_takes_devices(trainer))
        parts = r.n_nodes = lk__tree_cover(trainer->plan.shards, r.own, r.nodes);
    int n_out = p->updates ? 1 : (int)parts * p->n;
    lk_program_opts opts = step_program_opts(trainer, p);
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
    if (program && trainer->programs.merges)
        lk__program_defer_products(program);
    return program;
}

/* Returns whether the same program serves both: it depends on the sizes of shards and on which share a group. */
static bool step_program_is_same(const lk_trainer *trainer, const purpose *a, const purpose *b)
{
    int64_t n = a->shards.end - a->shards.begin, shards = trainer->plan.shards;
    bool same = a->pass == b->pass && a->replica == b->replica && b->shards.end - b->shards.begin == n &&
                (a->count == b->count || !a->updates);
    for (int64_t i = 0; i < n && same; i++) {
        int64_t s = a->shards.begin + i, t = b->shards.begin + i;
        lk_range x = lk_part(a->count, shards, s), y = lk_part(b->count, shards, t);
        same = x.end - x.begin == y.end - y.begin &&
               s - lk__group_of(trainer, s).begin == t - lk__group_of(trainer, t).begin;
    }
    return same;
}

/* Finds the program, or records it with inputs like these. *program: borrowed; NULL on failure. */
static lk_status step_program_get(lk_trainer *trainer, const purpose *p, const step_inputs *like, lk_program **program)
{
    *program = NULL;
    for (recorded *r = trainer->programs.step->list; r; r = r->next)
        if (step_program_is_same(trainer, &r->purpose, p)) {
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
    const purpose p = {.pass = fn,
                       .data = data,
                       .replica = own->replica,
                       .shards = lk__step_program_units(trainer, fn)->of(trainer, own->replica, own->index),
                       .n = n,
                       .count = own->global_batch};
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
                     .shards = lk__replica_shards(trainer, replica),
                     .n = trainer->sums.n_values,
                     .count = count,
                     .updates = lk__step_is_one_program(trainer)};
}

/* Brings the rates to the device if they are others than those of the last step. */
static lk_status step_program_find_rates(lk_trainer *trainer, lk_optimizer *optimizer)
{
    lk_step_programs *programs = trainer->programs.step;
    double rates[LK_OPTIMIZER_RATES];
    LK_TRY(lk__optimizer_rates(optimizer, trainer->progress.update.rate, rates));
    int n = lk__optimizer_rate_count(optimizer);
    bool same = programs->rates != NULL;
    for (int i = 0; i < n; i++)
        same = same && rates[i] == programs->values[i];
    if (same)
        return LK_OK;
    lk_tensor_release(programs->rates);
    programs->rates = lk_tensor_retain(lk_tensor_from(trainer->devices[0], LK_F64, LK_SHAPE(n), rates));
    memcpy(programs->values, rates, sizeof rates);
    return programs->rates ? LK_OK : lk_error_status();
}

lk_status lk__run_training_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **results)
{
    const purpose p = step_program_purpose(trainer, 0, batch->count);
    lk_shard whole = {.shards = 1};
    step_inputs inputs;
    lk_program *program = NULL;
    lk_optimizer *optimizer = lk_replicas_optimizer(trainer->replicas, 0);
    LK_TRY(
        lk__shard_of_batch(trainer->data.train_set, batch, (lk_range){0, batch->count}, trainer->devices[0], &whole));
    step_program_set_inputs(&p, &whole, trainer->sums.seeds[0], &inputs);
    LK_TRY(step_program_find_rates(trainer, optimizer));
    inputs.in[inputs.n++] = trainer->programs.step->rates;
    LK_TRY(step_program_get(trainer, &p, &inputs, &program));
    LK_TRY(lk_program_run(program, inputs.in, (uint64_t)trainer->progress.update.number, results));
    lk__optimizer_replayed(optimizer);
    return LK_OK;
}

/* --- before there is a batch -------------------------------------------------------------------------------------- */

/* Makes inputs that are only shapes, to record with. The caller releases them, also after a failure. */
static lk_status step_program_make_inputs(const lk_trainer *trainer, const purpose *p, step_inputs *inputs)
{
    lk_device *device = trainer->devices[0];
    lk_range samples = step_program_samples(trainer, p);
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
    if (!p->updates)
        return LK_OK;
    lk_shape rates = LK_SHAPE(lk__optimizer_rate_count(lk_replicas_optimizer(trainer->replicas, 0)));
    return lk__tensor_new(device, LK_F64, rates, &inputs->in[inputs->n++]);
}

/* The replica that has the most samples of a batch. */
static int step_program_fullest_replica(const lk_trainer *trainer, int64_t count)
{
    int64_t most = 0;
    int replica = 0;
    for (int r = 0; r < trainer->n_devices; r++) {
        lk_range samples = lk__samples_of_shards(count, trainer->plan.shards, lk__replica_shards(trainer, r));
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
