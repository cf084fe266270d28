/* lk_estimate_memory: how much memory a training takes on the device that needs most. For GPUs it makes a trainer
 * and reads the trainer's own estimate (gpu_memory.h).
 *
 * For CPU devices the memory follows from the shapes of the layers. Always needed are parameters and buffers, the
 * optimizer's state and its copy of the gradients, and the gradients of the last update. Sums of earlier shards that
 * wait for their sibling in the tree come on top, with --accumulate those of earlier batches, and so does the peak of a
 * shard's backward pass, the maximum over its layers of: outputs up to that layer that a gradient still reads,
 * gradients of its output and its input, and gradients of parameters from it on. Not counted are padding and copies in
 * other layouts, and outputs that no gradient reads: a device that runs behind its queue has freed them by then. */
#include "lockstep/memory.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/device_spec.h"
#include "dist/strategy.h"
#include "dist/sum/tree.h"
#include "program/merge.h"
#include "program/record.h"
#include "train/plan/plan.h"
#include "train/resume.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"

#include <stdio.h>
#include <string.h>

/* --- a shard's step, run once ------------------------------------------------------------------------------------- */

/* Inputs of the recorded program; SEED is the gradient that backward starts with. */
enum { IMAGES, LABELS, INDICES, SEED, INPUTS };

typedef struct shard_step {
    const lk_model *model;
    int64_t samples, micro_batch;
    lk_dtype dtype;
    lk_tensor **variables;
    lk_tensor **piece; /* the outputs of one piece */
    int n_out;         /* gradients, statistics of batch-norm, loss, hits */
    bool merges;       /* set: whether a device's shards share calls (program/merge.h) */
} shard_step;

static lk_status memory_estimate_pass(const shard_step *step, lk_tensor *const *in, lk_tensor **out)
{
    int n = lk_model_parameter_count(step->model);
    lk_tensor **metrics = out + step->n_out - 2;
    lk_tape *tape = lk_tape_begin(step->variables, n);
    if (!tape)
        return lk_error_status();
    lk_forward_opts opts = {.training = true, .dtype = step->dtype, .indices = &in[INDICES], .statistics = out + n};
    lk_tensor *logits = lk_model_forward(step->model, step->variables, in[IMAGES], &opts);
    metrics[0] = lk_sparse_softmax_cross_entropy(logits, in[LABELS], LK_REDUCTION_SUM);
    metrics[1] = lk_sum(lk_in_top_k(logits, in[LABELS], 1), NULL);
    lk_status status = metrics[0] ? lk_tape_gradient(tape, metrics[0], in[SEED], out) : lk_error_status();
    lk_tape_release(tape);
    return status;
}

static lk_status memory_estimate_add_piece(const shard_step *step, lk_tensor *const *in, int64_t begin, int64_t end,
                                           lk_tensor **out)
{
    lk_tensor *piece[INPUTS] = {lk_slice(in[IMAGES], 0, begin, end), lk_slice(in[LABELS], 0, begin, end),
                                lk_slice(in[INDICES], 0, begin, end), in[SEED]};
    if (!piece[IMAGES] || !piece[LABELS] || !piece[INDICES])
        return lk_error_status();
    lk__program_next_piece();
    memset(step->piece, 0, (size_t)step->n_out * sizeof(lk_tensor *));
    lk_status status = memory_estimate_pass(step, piece, step->piece);
    for (int i = 0; i < step->n_out && status == LK_OK; i++) {
        if (out[i] && step->piece[i])
            status = lk_add_into(out[i], out[i], step->piece[i]);
        else if (step->piece[i])
            out[i] = step->piece[i];
    }
    return status;
}

/* The function that is recorded: a shard's pass, in pieces if training does so. */
static lk_status memory_estimate_record(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const shard_step *step = user;
    int64_t size = step->micro_batch;
    if (size == 0 || step->samples <= size)
        return memory_estimate_pass(step, in, out);
    lk_status status = LK_OK;
    for (int64_t begin = 0; begin < step->samples && status == LK_OK; begin += size)
        status = memory_estimate_add_piece(step, in, begin, lk__min(begin + size, step->samples), out);
    return status;
}

static lk_status memory_estimate_run_on(shard_step *step, lk_device *device, const lk_program_opts *opts,
                                        lk_tensor **out, lk_program_memory *memory)
{
    lk_model_input image = lk_model_get_input(step->model);
    LK_TRY(lk_model_init(step->model, device, 0, step->variables));
    lk_tensor *in[INPUTS] = {
        lk_zeros(device, LK_F32, LK_SHAPE(step->samples, image.channels, image.height, image.width)),
        lk_zeros(device, LK_I32, LK_SHAPE(step->samples)), lk_zeros(device, LK_I64, LK_SHAPE(step->samples)),
        lk_full(device, LK_F32, LK_SCALAR, 1.0 / (double)step->samples)};
    if (!in[SEED])
        return lk_error_status();
    lk_program *program = lk_program_record(device, memory_estimate_record, step, in, INPUTS, step->n_out, opts);
    if (!program)
        return lk_error_status();
    step->merges = lk__program_may_merge(program);
    lk_status status = lk_program_run(program, in, 0, out);
    if (status == LK_OK)
        status = lk_program_get_memory(program, memory);
    lk_program_release(program);
    return status;
}

static lk_status memory_estimate_run_step(const lk_model *model, const lk_program_opts *opts,
                                          lk_memory_estimate *estimate)
{
    shard_step step = {.model = model,
                       .samples = estimate->samples,
                       .micro_batch = estimate->micro_batch,
                       .dtype = estimate->dtype,
                       .n_out = lk_model_parameter_count(model) + lk_model_statistics_count(model) + 2};
    step.variables = lk__calloc((size_t)lk_model_variable_count(model) + 1, sizeof(lk_tensor *));
    step.piece = lk__calloc((size_t)step.n_out, sizeof(lk_tensor *));
    lk_tensor **out = lk__calloc((size_t)step.n_out, sizeof *out);
    lk_device *device = step.variables && step.piece && out ? lk_device_open("cpu") : NULL;
    lk_status status = device ? LK_OK : lk_error_status();
    lk_scope_begin();
    if (device)
        status = memory_estimate_run_on(&step, device, opts, out, &estimate->step);
    lk_scope_end();
    if (status == LK_OK && step.merges && estimate->micro_batch == 0)
        estimate->shards_at_once = lk__divide_up(estimate->shards, estimate->devices);
    lk_device_release(device);
    lk__free(step.variables);
    lk__free(step.piece);
    lk__free(out);
    return status;
}

/* --- by the layers' shapes ---------------------------------------------------------------------------------------- */

static double memory_estimate_variable_bytes(const lk_model *model, int begin, int end)
{
    double bytes = 0;
    for (int i = begin; i < end; i++)
        bytes += (double)lk_shape_count(lk_model_variable_shape(model, i)) * sizeof(float);
    return bytes;
}

/* The number of tensors of the parameters' size in the optimizer's state. An optimizer of one parameter is made to
 * count them. */
static lk_status memory_estimate_count_states(const lk_optimizer_opts *opts, int *states)
{
    *states = 0;
    lk_device *device = lk_device_open("cpu");
    if (!device)
        return lk_error_status();
    lk_scope_begin();
    lk_tensor *parameter = lk_tensor_retain(lk_zeros(device, LK_F32, LK_SHAPE(1))), *packed = NULL;
    lk_status status = parameter ? lk_pack(&parameter, 1, &packed) : lk_error_status();
    lk_optimizer *optimizer = status == LK_OK ? lk_optimizer_new(opts, packed, &parameter, 1) : NULL;
    while (optimizer && lk_optimizer_state(optimizer, *states, NULL))
        ++*states;
    if (!optimizer)
        status = lk_error_status();
    lk_optimizer_release(optimizer);
    lk_tensor_release(parameter);
    lk_scope_end();
    lk_device_release(device);
    return status;
}

/* The largest number of sums that one device keeps while it runs a shard: the nodes of the tree over all shards that
 * cover the shards that it has finished. */
static int memory_estimate_most_sums(int64_t shards, int64_t devices)
{
    lk_range nodes[LK_TREE_COVER];
    int most = 0;
    for (int64_t d = 0; d < devices; d++) {
        lk_range own = lk_part(shards, devices, d), done = own;
        for (done.end = own.begin; done.end < own.end; done.end++)
            most = (int)lk__max(most, lk__tree_cover(shards, done, nodes));
    }
    return most;
}

/* Finds the layer in whose backward pass the most bytes are in use. *activations: those that backward has yet to read,
 * and the gradients of the layer's input and output. *gradients: of the parameters of this layer and the later ones. */
static void memory_estimate_find_peak(const lk_model *model, double samples, double *activations, double *gradients)
{
    double kept = 0, parameters = 0, peak = 0;
    int n = lk_model_layer_count(model);
    for (int i = 0; i < n; i++)
        kept += samples * (double)lk_model_layer(model, i).bytes;
    *activations = *gradients = 0;
    for (int i = n - 1; i >= 0; i--) {
        lk_layer_info layer = lk_model_layer(model, i);
        lk_model_input in = lk_model_get_input(model);
        double in_count = i > 0 ? (double)lk_shape_count(lk_model_layer(model, i - 1).output)
                                : (double)in.channels * (double)in.height * (double)in.width;
        double passing = samples * sizeof(float) * ((double)lk_shape_count(layer.output) + in_count);
        parameters += (double)layer.parameters * sizeof(float);
        if (kept + passing + parameters > peak) {
            peak = kept + passing + parameters;
            *activations = kept + passing;
            *gradients = parameters;
        }
        kept -= samples * (double)layer.bytes;
    }
}

/* Returns a lower bound of what the devices of a process take together. When a shard's backward pass ends, each device
 * has its gradients, and each copy of the variables has the optimizer's state and packed gradients next to it. Sums
 * that wait are left out: those of dense layers may be factors, which are small. With --accumulate each copy also has
 * the sums of the update's earlier batches. Activations are left out too: pieces of a shard, recomputation and kernels
 * that keep less make them smaller than the layers' outputs. */
static double memory_estimate_least(const lk_train_config *config, const lk_memory_estimate *e, double parameters)
{
    double packed = config->accumulate > 1 ? 2 * parameters : parameters;
    const char *strategy = config->devices.strategy;
    double devices = e->devices, copies = lk__strategy_has(strategy, LK_STRATEGY_STORES) ? 1 : devices;
    if (lk_strategy_kind_of(strategy) == LK_STRATEGY_ASYNCHRONOUS)
        return devices * e->variables; /* the servers have the optimizer's state */
    return copies * (e->variables + e->optimizer + packed) + devices * parameters;
}

/* The most shards whose activations a device holds at the same time unless it merges them: those of a group of
 * batch-norm, or all of the device's if devices share a group. */
static int64_t memory_estimate_shards_at_once(const lk_plan *plan, int64_t shards, int devices)
{
    int64_t largest = 1;
    for (int64_t s = 0; s < shards;) {
        lk_range group = lk__tree_group(shards, plan->batch_size, plan->batch_norm_group, s);
        largest = lk__max(largest, group.end - group.begin);
        s = group.end;
    }
    for (int d = 1; d < devices && largest > 1; d++) {
        int64_t begin = lk_part(shards, devices, d).begin;
        if (lk__tree_group(shards, plan->batch_size, plan->batch_norm_group, begin).begin != begin)
            return lk__divide_up(shards, devices);
    }
    return largest;
}

static lk_status memory_estimate_on_cpu(const lk_train_config *config, const lk_model *model, bool run_step,
                                        lk_memory_estimate *e)
{
    lk_plan plan = {0};
    LK_TRY(lk__plan_numbers(config, lk_model_name(model), &plan));
    int n = lk_model_parameter_count(model), states;
    LK_TRY(memory_estimate_count_states(&plan.optimizer_opts, &states));
    e->shards = lk__plan_shards(config, plan.batch_size, 1);
    if (!config->devices.shards || !config->devices.spec) /* further devices stay idle */
        e->devices = (int)lk__min(e->devices, e->shards);
    LK_TRY(lk__check_shards(e->shards, plan.batch_size, e->devices));
    e->samples = lk__divide_up(plan.batch_size, e->shards);
    e->shards_at_once =
        lk_model_has_batch_norm(model) ? memory_estimate_shards_at_once(&plan, e->shards, e->devices) : 1;
    e->dtype = plan.dtype;
    LK_TRY(lk_plan_micro_batch(model, e->samples, config->execution.micro_batch, &e->micro_batch));

    double parameters = memory_estimate_variable_bytes(model, 0, n), gradients;
    lk_program_opts opts = {.fuse = true, .recompute = config->execution.recompute};
    if (e->shards > e->devices) /* as shard_programs.c: kernels keep copies of the parameters */
        opts.keep_bytes = (size_t)parameters;
    if (run_step)
        LK_TRY(memory_estimate_run_step(model, &opts, e));
    memory_estimate_find_peak(model, (double)(e->samples * e->shards_at_once), &e->activations, &gradients);
    /* Sums that wait, or with several shards at once each shard's own; the optimizer's copy and the last update's. */
    double sums = e->shards_at_once > 1 ? (double)(e->shards_at_once - 1) * gradients
                                        : memory_estimate_most_sums(e->shards, e->devices) * parameters;
    e->variables = memory_estimate_variable_bytes(model, 0, lk_model_variable_count(model));
    e->gradients = 2 * parameters + sums + gradients;
    if (plan.accumulate > 1) /* the sums of earlier batches */
        e->gradients += parameters;
    e->optimizer = states * parameters / (config->devices.optimizer_state ? e->devices : 1);
    e->least = memory_estimate_least(config, e, parameters);
    return LK_OK;
}

/* --- GPUs --------------------------------------------------------------------------------------------------------- */

static lk_status memory_estimate_on_gpu(const lk_train_config *config, lk_memory_estimate *e)
{
    lk_train_config here = *config;
    lk__leave_out_checkpoints(&here);
    lk_trainer *trainer = lk_trainer_new(&here);
    if (!trainer)
        return lk_error_status();
    const lk_plan *plan = lk_trainer_plan(trainer);
    e->shards = plan->shards;
    e->dtype = plan->dtype;
    e->needed = plan->memory_needed;
    e->available = plan->memory_there;
    lk_trainer_release(trainer);
    return LK_OK;
}

lk_status lk_estimate_memory(const lk_train_config *config, const lk_model *model, bool run_step,
                             lk_memory_estimate *estimate)
{
    *estimate = (lk_memory_estimate){0};
    lk_device_spec_entry devices[LK_MAX_DEVICES];
    char cores[16];
    snprintf(cores, sizeof cores, "%dxcpu", (int)lk__min(lk_device_available("cpu"), LK_MAX_DEVICES));
    const char *spec = config->devices.spec ? config->devices.spec : cores;
    LK_TRY(lk__device_spec_parse(spec, devices, LK_MAX_DEVICES, &estimate->devices));
    if (lk__strategy_has(config->devices.strategy, LK_STRATEGY_PLUGIN) || lk__backend_of_kind(devices[0].kind)->modules)
        LK_FAIL(LK_ERR_UNSUPPORTED, "memory: an estimate is for CPU devices and GPUs, not for those of a PJRT plug-in");
    estimate->on_gpu = strcmp(devices[0].kind, "cuda") == 0;
    return estimate->on_gpu ? memory_estimate_on_gpu(config, estimate)
                            : memory_estimate_on_cpu(config, model, run_step, estimate);
}
