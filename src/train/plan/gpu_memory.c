/* Refuses a training that cannot fit on a GPU. The estimate adds up the memory that the device holds already
 * (variables, the optimizer's state, data), gradients, buffers of their exchange, the memory plan of a step's program
 * by the shapes in it, images of steps in flight, and workspaces of libraries. If operators are pushed one by one, the
 * tensors that they keep for later ones replace the memory plan. Temporaries of single calls are not counted, so a
 * training that is refused cannot fit, and one that is not refused may still run out of memory. */
#include "train/plan/gpu_memory.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "dist/strategy.h"
#include "program/program.h"
#include "train/plan/choices.h"
#include "train/plan/plan.h"
#include "train/step/shard_programs.h"
#include "train/step/step.h"
#include "train/step/step_program.h"
#include "train/step/sync_step.h"
#include "train/trainer.h"

#include <stdio.h>

/* Bytes on one device, in addition to those that it holds already. */
typedef struct needs {
    int64_t gradients, exchange, step, images;
    int branches; /* of the step, each with its own workspace */
} needs;

/* --- the needs of a batch ----------------------------------------------------------------------------------------- */

static int64_t gpu_memory_shards(const lk_trainer *trainer, int64_t batch)
{
    return lk__plan_shards(&trainer->config, batch, trainer->plan.devices);
}

static int gpu_memory_count_branches(const lk_program *program)
{
    int most = 1; /* without branches and merged calls all share a workspace */
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        int its = call->parts > 1 ? LK_PARTS_AT_ONCE : call->branch;
        most = its > most ? its : most;
    }
    return most;
}

/* Records the program of all shards that a device has of a batch. */
static lk_program *gpu_memory_record_step(lk_trainer *trainer, int64_t batch, int64_t shards)
{
    int64_t planned = trainer->plan.shards;
    trainer->plan.shards = shards;
    lk_program *program = lk__step_program_record(trainer, batch);
    trainer->plan.shards = planned;
    return program;
}

/* The bytes that a call allocates, and those that are freed after it, because no later call uses them and they are no
 * result of the pass. */
typedef struct lifetimes {
    int64_t made, gone;
} lifetimes;

/* *bytes: the peak of memory if `shards` shards run every call together: what all of them hold, and what the call
 * allocates for the first of them. */
static lk_status gpu_memory_held_bytes(const lk_program *program, int64_t shards, int64_t *bytes)
{
    lifetimes *calls = lk__calloc((size_t)program->n_calls + 1, sizeof *calls);
    int64_t held = 0;
    if (!calls)
        return LK_ERR_MEMORY;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        int64_t block = (int64_t)lk__allocator_block_bytes(value->storage->bytes);
        if (value->kind == LK_VALUE_INSIDE || value->kind == LK_VALUE_OUTPUT)
            calls[value->first].made += block;
        if (value->kind == LK_VALUE_INSIDE)
            calls[value->last].gone += block;
    }
    *bytes = 0;
    for (int i = 0; i < program->n_calls; i++) {
        int64_t now = shards * held + calls[i].made;
        *bytes = lk__max(*bytes, now);
        held += calls[i].made - calls[i].gone;
    }
    lk__free(calls);
    return LK_OK;
}

/* Gradients outside of programs: one set for each node of the tree that a device's program gives, the optimizer's copy,
 * the sums if devices exchange them, and the sums of an update's earlier batches. If a step is one program, its memory
 * plan has them all. */
static int64_t gpu_memory_gradient_bytes(const lk_trainer *trainer, int64_t shards)
{
    lk_range nodes[LK_TREE_COVER];
    int ranks = lk_strategy_ranks(trainer->strategy), most = 0;
    if (lk__step_is_one_program(trainer))
        return 0;
    for (int r = 0; r < ranks; r++) {
        int n = lk__tree_cover(shards, lk_part(shards, ranks, r), nodes);
        most = n > most ? n : most;
    }
    int copies = most + 1 + (ranks > 1) + (trainer->plan.accumulate > 1);
    return copies * trainer->plan.parameters * (int64_t)sizeof(float);
}

/* Counts the buffers of the exchange. The update's sums lie in them, and need no other memory. */
static void gpu_memory_add_exchange(const lk_trainer *trainer, int64_t shards, needs *n)
{
    lk_links_allreduce *allreduce = trainer->strategy->allreduce;
    int64_t bytes = trainer->plan.parameters * (int64_t)sizeof(float);
    if (!allreduce)
        return;
    n->exchange = lk__links_allreduce_buffer_bytes(allreduce, shards, bytes);
    n->gradients -= bytes;
}

/* At most two steps are in flight. If the devices have the data, there are no images to transfer. */
static int64_t gpu_memory_image_bytes(const lk_trainer *trainer, int64_t batch)
{
    const lk_dataset *data = trainer->data.train_set;
    int64_t image = lk_dataset_channels(data) * lk_dataset_height(data) * lk_dataset_width(data);
    if (trainer->data.train_on_devices)
        return 0;
    return 2 * lk__divide_up(batch, trainer->plan.devices) * image * (int64_t)sizeof(float);
}

/* Operators that are pushed one by one run a shard at a time, or all of a device's shards together. The estimate
 * ignores that some shards have one sample more. */
static lk_status gpu_memory_operator_needs(lk_trainer *trainer, int64_t batch, needs *n)
{
    int64_t shards = gpu_memory_shards(trainer, batch), held;
    int64_t together =
        lk__runs_shards_together(trainer, trainer->sums.train, 0) ? lk__divide_up(shards, trainer->plan.devices) : 1;
    const lk_program_opts as_pushed = {0};
    lk_program *program = lk__record_pass(trainer, true, batch / shards, &as_pushed);
    if (!program)
        return lk_error_status();
    lk_status status = gpu_memory_held_bytes(program, together, &held);
    lk_program_release(program);
    LK_TRY(status);
    /* Two sets of gradients: the last update's, and the optimizer's copy. */
    *n = (needs){.gradients = 2 * trainer->plan.parameters * (int64_t)sizeof(float),
                 .step = held,
                 .images = gpu_memory_image_bytes(trainer, batch)};
    gpu_memory_add_exchange(trainer, shards, n);
    return LK_OK;
}

static lk_status gpu_memory_needs(lk_trainer *trainer, int64_t batch, needs *n)
{
    if (!trainer->programs.shard || lk__runs_shards_together(trainer, trainer->sums.train, 0))
        return gpu_memory_operator_needs(trainer, batch, n);
    int64_t shards = gpu_memory_shards(trainer, batch);
    lk_program *program = gpu_memory_record_step(trainer, batch, shards);
    if (!program)
        return lk_error_status();
    *n = (needs){.gradients = gpu_memory_gradient_bytes(trainer, shards),
                 .step = (int64_t)lk__allocator_block_bytes(program->plan_bytes),
                 .images = gpu_memory_image_bytes(trainer, batch),
                 .branches = gpu_memory_count_branches(program)};
    lk_program_release(program);
    gpu_memory_add_exchange(trainer, shards, n);
    return LK_OK;
}

/* --- the memory of a GPU ------------------------------------------------------------------------------------------ */

typedef struct memory {
    int devices;        /* logical devices that share it */
    int64_t held, left; /* bytes that they hold, and bytes that are free */
    int64_t workspace;  /* of a branch */
} memory;

static int64_t gpu_memory_needs_total(const needs *n, const memory *m)
{
    return n->gradients + n->exchange + n->step + n->images + n->branches * m->workspace;
}

/* Describes the memory of the trainer's device d. */
static lk_status gpu_memory_measure(const lk_trainer *trainer, int d, memory *m)
{
    lk_device *device = trainer->devices[d];
    *m = (memory){0};
    for (int i = 0; i < trainer->n_devices; i++) {
        lk_device *other = trainer->devices[i];
        int64_t now, peak;
        if (other->backend != device->backend || other->index != device->index)
            continue;
        LK_TRY(lk_device_sync(other));
        lk__allocator_trim(other->allocator);
        lk_device_memory(other, &now, &peak);
        m->devices++;
        m->held += now;
    }
    LK_TRY(device->backend->offload->workspace(device, &m->workspace));
    return device->backend->offload->memory_left(device, &m->left);
}

static bool gpu_memory_needs_fit(const needs *n, const memory *m)
{
    return m->devices * gpu_memory_needs_total(n, m) <= m->left;
}

/* --- the largest batch -------------------------------------------------------------------------------------------- */

static lk_status gpu_memory_batch_fits(lk_trainer *trainer, int64_t batch, const memory *m, bool *fits)
{
    needs n;
    lk_status status = gpu_memory_needs(trainer, batch, &n);
    *fits = status == LK_OK && gpu_memory_needs_fit(&n, m);
    return status;
}

/* The smallest batch with as many shards as `batch`. */
static int64_t gpu_memory_least_batch(const lk_trainer *trainer, int64_t batch)
{
    int64_t low = 1, high = batch;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (gpu_memory_shards(trainer, middle) == gpu_memory_shards(trainer, batch))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* *largest: the largest batch that fits in [low, high], all of which have the same number of shards; `low` fits. */
static lk_status gpu_memory_search_largest(lk_trainer *trainer, int64_t low, int64_t high, const memory *m,
                                           int64_t *largest)
{
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        bool is_enough;
        LK_TRY(gpu_memory_batch_fits(trainer, middle, m, &is_enough));
        if (is_enough)
            low = middle;
        else
            high = middle - 1;
    }
    *largest = low;
    return LK_OK;
}

/* *largest: the largest batch below `batch` that fits; 0: none. Fewer shards may need more memory, so the batches with
 * each number of shards are searched separately. */
static lk_status gpu_memory_find_largest(lk_trainer *trainer, int64_t batch, const memory *m, int64_t *largest)
{
    *largest = 0;
    for (int64_t high = batch - 1, low; high >= gpu_memory_shards(trainer, 1) && *largest == 0; high = low - 1) {
        bool is_enough;
        int64_t least = gpu_memory_shards(trainer, high);
        low = gpu_memory_least_batch(trainer, high);
        low = lk__max(low, least);
        LK_TRY(gpu_memory_batch_fits(trainer, low, m, &is_enough));
        if (is_enough)
            LK_TRY(gpu_memory_search_largest(trainer, low, high, m, largest));
    }
    return LK_OK;
}

/* --- refusing ----------------------------------------------------------------------------------------------------- */

static double gpu_memory_mebibytes(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static lk_status gpu_memory_refuse_batch(lk_trainer *trainer, int d, const needs *n, const memory *m)
{
    int64_t largest, batch = trainer->plan.batch_size, each = m->held / m->devices;
    char instead[64] = "no batch does", sharing[64] = "";
    LK_TRY(gpu_memory_find_largest(trainer, batch, m, &largest));
    if (largest > 0)
        snprintf(instead, sizeof instead, "the largest that does is %lld", (long long)largest);
    if (m->devices > 1)
        snprintf(sharing, sizeof sharing, ", for each of %d devices", m->devices);
    LK_FAIL(LK_ERR_MEMORY,
            "--batch-size %lld does not fit on %s: training needs %.1f MiB%s (variables and optimizer %.1f, gradients "
            "%.1f, exchange %.1f, a step %.1f, images %.1f, workspaces %.1f), and %.1f MiB are there; %s",
            (long long)batch, lk_device_name(trainer->devices[d]),
            gpu_memory_mebibytes(each + gpu_memory_needs_total(n, m)), sharing, gpu_memory_mebibytes(each),
            gpu_memory_mebibytes(n->gradients), gpu_memory_mebibytes(n->exchange), gpu_memory_mebibytes(n->step),
            gpu_memory_mebibytes(n->images), gpu_memory_mebibytes(n->branches * m->workspace),
            gpu_memory_mebibytes(m->held + m->left), instead);
}

static lk_status gpu_memory_device(lk_trainer *trainer, int d, const needs *n)
{
    lk_plan *plan = &trainer->plan;
    memory m;
    LK_TRY(gpu_memory_measure(trainer, d, &m));
    if (!gpu_memory_needs_fit(n, &m))
        return gpu_memory_refuse_batch(trainer, d, n, &m);
    int64_t needed = m.held + m.devices * gpu_memory_needs_total(n, &m), there = m.held + m.left;
    if (plan->memory_there == 0 || there - needed < plan->memory_there - plan->memory_needed) {
        plan->memory_needed = needed;
        plan->memory_there = there;
    }
    return LK_OK;
}

/* Merged shards need more memory. If it is not there, shards are computed a few at a time, with the same bits. */
static lk_status gpu_memory_fit_step(lk_trainer *trainer, needs *n)
{
    bool fits = true;
    LK_TRY(gpu_memory_needs(trainer, trainer->plan.batch_size, n));
    for (int d = 0; d < trainer->n_devices && trainer->programs.step && trainer->config.execution.branches == 0; d++) {
        memory m;
        if (!trainer->devices[d]->backend->offload)
            continue;
        LK_TRY(gpu_memory_measure(trainer, d, &m));
        fits = fits && gpu_memory_needs_fit(n, &m);
    }
    if (fits)
        return LK_OK;
    LK_TRY(lk__step_programs_split(trainer));
    return gpu_memory_needs(trainer, trainer->plan.batch_size, n);
}

lk_status lk__check_gpu_memory(lk_trainer *trainer)
{
    needs n = {.step = 0};
    if (!trainer->devices[0]->backend->offload)
        return LK_OK;
    LK_TRY(gpu_memory_fit_step(trainer, &n));
    for (int d = 0; d < trainer->n_devices; d++)
        if (trainer->devices[d]->backend->offload)
            LK_TRY(gpu_memory_device(trainer, d, &n));
    return LK_OK;
}
