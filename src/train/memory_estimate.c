/* What training needs of a device's own memory, before it runs: what the device holds already (variables, the
 * optimiser's state, data), gradients, rooms of their exchange, the memory plan of a step's program by the shapes in
 * it, images of steps under way, and workspaces of libraries. Where operators are pushed one by one, what they must
 * keep for later ones takes the plan's place. Temporaries of single calls are not in it, so what is refused cannot fit,
 * and what is not refused may still run out. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "dist/strategy.h"
#include "program/program.h"

#include <stdio.h>

/* Bytes on one device, beside what is there before. */
typedef struct needs {
    int64_t gradients, exchange, step, images;
    int branches; /* of the step, with a workspace of their own each */
} needs;

/* --- of a batch --------------------------------------------------------------------------------------------------- */

static int64_t shards_of(const lk_trainer *trainer, int64_t batch)
{
    return trainer->config.shards ? trainer->config.shards : lk_default_shards(batch, trainer->plan.devices);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int branches_of(const lk_program *program)
{
    int most = 0;
    for (int i = 0; i < program->n_calls; i++)
        most = program->calls[i].branch > most ? program->calls[i].branch : most;
    return most;
}

/* With --bn sync. */
static bool runs_together(const lk_trainer *trainer)
{
    return trainer->plan.batch_norm == LK_BN_SYNC && lk_model_has_batch_norm(trainer->model);
}

static bool runs_operators(const lk_trainer *trainer)
{
    return !trainer->programs || runs_together(trainer);
}

/* Of a shard. */
static lk_program *record_shard(lk_trainer *trainer, int64_t samples)
{
    const lk_program_opts as_pushed = {0};
    lk_shard shard = {0};
    lk_tensor *seed = NULL;
    lk_program *program = NULL;
    if (lk__make_shard(trainer, samples, &shard) == LK_OK &&
        lk__tensor_new(trainer->devices[0], LK_F32, LK_SCALAR, &seed) == LK_OK)
        program =
            lk__shard_program_record(trainer, lk__training_pass, NULL, &shard, seed, trainer->n_values, &as_pushed);
    lk__release_tensors((lk_tensor *[]){shard.images, shard.labels, shard.indices, seed}, 4);
    return program;
}

/* Of all shards of a device. */
static lk_program *record_step(lk_trainer *trainer, int64_t batch, int64_t shards)
{
    int64_t planned = trainer->plan.shards;
    trainer->plan.shards = shards;
    lk_program *program = lk__step_program_record(trainer, batch);
    trainer->plan.shards = planned;
    return program;
}

/* Of one call after the other, in bytes. */
typedef struct lifetimes {
    int64_t made; /* by the call */
    int64_t gone; /* once it has run: nothing uses it again, and it is no result of the pass */
} lifetimes;

static void find_lifetimes(const lk_program *program, lifetimes *calls)
{
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        int64_t block = (int64_t)lk__allocator_block_bytes(value->storage->bytes);
        if (value->kind == LK_VALUE_INSIDE || value->kind == LK_VALUE_OUTPUT)
            calls[value->first].made += block;
        if (value->kind == LK_VALUE_INSIDE)
            calls[value->last].gone += block;
    }
}

/* At the worst call, where so many shards come by every call together: what all of them hold, and what the call makes
 * for the first of them. */
static lk_status held_bytes(const lk_program *program, int64_t shards, int64_t *bytes)
{
    lifetimes *calls = lk__calloc((size_t)program->n_calls + 1, sizeof *calls);
    int64_t held = 0;
    if (!calls)
        return LK_ERR_MEMORY;
    find_lifetimes(program, calls);
    *bytes = 0;
    for (int i = 0; i < program->n_calls; i++) {
        int64_t now = shards * held + calls[i].made;
        *bytes = now > *bytes ? now : *bytes;
        held += calls[i].made - calls[i].gone;
    }
    lk__free(calls);
    return LK_OK;
}

/* Gradients outside of programs: of the nodes of the tree that a device's program gives, and the optimiser's copy;
 * where devices exchange them, those of all; and those of an update's earlier batches. A step that is one program has
 * all of them inside. */
static int64_t gradient_bytes(const lk_trainer *trainer, int64_t shards)
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

/* Of a step: the sums of its update lie there, and are in no other place. */
static void count_exchange(const lk_trainer *trainer, int64_t shards, needs *n)
{
    const lk_flat *flat = trainer->strategy->flat;
    int64_t bytes = trainer->plan.parameters * (int64_t)sizeof(float);
    if (!flat)
        return;
    n->exchange = lk__flat_room_bytes(flat, shards, bytes);
    n->gradients -= bytes;
}

/* Two steps are under way at most; nothing where data are on the devices. */
static int64_t image_bytes(const lk_trainer *trainer, int64_t batch)
{
    const lk_dataset *data = trainer->train_set;
    int64_t image = lk_dataset_channels(data) * lk_dataset_height(data) * lk_dataset_width(data);
    if (trainer->train_data)
        return 0;
    return 2 * divide_up(batch, trainer->plan.devices) * image * (int64_t)sizeof(float);
}

/* Operator by operator: a shard, or with --bn sync all of a device's, which come by every operator together. Shards
 * with a sample more are taken as the others. */
static lk_status estimate_operators(lk_trainer *trainer, int64_t batch, needs *n)
{
    int64_t shards = shards_of(trainer, batch), held;
    int64_t together = runs_together(trainer) ? divide_up(shards, trainer->plan.devices) : 1;
    lk_program *program = record_shard(trainer, batch / shards);
    if (!program)
        return lk_error_status();
    lk_status status = held_bytes(program, together, &held);
    lk_program_release(program);
    LK_TRY(status);
    /* The last update's gradients, and the optimiser's copy. */
    *n = (needs){.gradients = 2 * trainer->plan.parameters * (int64_t)sizeof(float),
                 .step = held,
                 .images = image_bytes(trainer, batch)};
    count_exchange(trainer, shards, n);
    return LK_OK;
}

static lk_status estimate(lk_trainer *trainer, int64_t batch, needs *n)
{
    if (runs_operators(trainer))
        return estimate_operators(trainer, batch, n);
    int64_t shards = shards_of(trainer, batch);
    lk_program *program = record_step(trainer, batch, shards);
    if (!program)
        return lk_error_status();
    *n = (needs){.gradients = gradient_bytes(trainer, shards),
                 .step = (int64_t)lk__allocator_block_bytes(program->plan_bytes),
                 .images = image_bytes(trainer, batch),
                 .branches = branches_of(program)};
    lk_program_release(program);
    count_exchange(trainer, shards, n);
    return LK_OK;
}

/* --- of a GPU ----------------------------------------------------------------------------------------------------- */

typedef struct memory {
    int devices;        /* that share it */
    int64_t held, left; /* bytes that they have taken so far, and that are left */
    int64_t workspace;  /* of a branch */
} memory;

static int64_t total(const needs *n, const memory *m)
{
    return n->gradients + n->exchange + n->step + n->images + n->branches * m->workspace;
}

/* Where the trainer's device d has its memory. */
static lk_status look_at(const lk_trainer *trainer, int d, memory *m)
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

static bool fits(const needs *n, const memory *m)
{
    return m->devices * total(n, m) <= m->left;
}

/* --- the largest batch -------------------------------------------------------------------------------------------- */

static lk_status batch_fits(lk_trainer *trainer, int64_t batch, const memory *m, bool *it_does)
{
    needs n;
    lk_status status = estimate(trainer, batch, &n);
    *it_does = status == LK_OK && fits(&n, m);
    return status;
}

/* The smallest batch with as many shards as `batch`. */
static int64_t first_of_its_shards(const lk_trainer *trainer, int64_t batch)
{
    int64_t low = 1, high = batch;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (shards_of(trainer, middle) == shards_of(trainer, batch))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* In [low, high], of batches with as many shards; `low` fits. */
static lk_status search(lk_trainer *trainer, int64_t low, int64_t high, const memory *m, int64_t *largest)
{
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        bool it_does;
        LK_TRY(batch_fits(trainer, middle, m, &it_does));
        if (it_does)
            low = middle;
        else
            high = middle - 1;
    }
    *largest = low;
    return LK_OK;
}

/* Below `batch`, which does not fit; 0: none. Fewer shards may need more, so batches with as many shards are looked at
 * by themselves. */
static lk_status find_largest(lk_trainer *trainer, int64_t batch, const memory *m, int64_t *largest)
{
    *largest = 0;
    for (int64_t high = batch - 1, low; high >= shards_of(trainer, 1) && *largest == 0; high = low - 1) {
        bool it_does;
        int64_t least = shards_of(trainer, high);
        low = first_of_its_shards(trainer, high);
        low = low < least ? least : low;
        LK_TRY(batch_fits(trainer, low, m, &it_does));
        if (it_does)
            LK_TRY(search(trainer, low, high, m, largest));
    }
    return LK_OK;
}

/* --- refusing ----------------------------------------------------------------------------------------------------- */

static double mebibytes(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static lk_status refuse(lk_trainer *trainer, int d, const needs *n, const memory *m)
{
    int64_t largest, batch = trainer->plan.batch_size, each = m->held / m->devices;
    char instead[64] = "no batch does", sharing[64] = "";
    LK_TRY(find_largest(trainer, batch, m, &largest));
    if (largest > 0)
        snprintf(instead, sizeof instead, "the largest that does is %lld", (long long)largest);
    if (m->devices > 1)
        snprintf(sharing, sizeof sharing, ", for each of %d devices", m->devices);
    LK_FAIL(LK_ERR_MEMORY,
            "--batch-size %lld does not fit on %s: training needs %.1f MiB%s (variables and optimiser %.1f, gradients "
            "%.1f, exchange %.1f, a step %.1f, images %.1f, workspaces %.1f), and %.1f MiB are there; %s",
            (long long)batch, lk_device_name(trainer->devices[d]), mebibytes(each + total(n, m)), sharing,
            mebibytes(each), mebibytes(n->gradients), mebibytes(n->exchange), mebibytes(n->step), mebibytes(n->images),
            mebibytes(n->branches * m->workspace), mebibytes(m->held + m->left), instead);
}

static lk_status check_device(lk_trainer *trainer, int d, const needs *n)
{
    lk_plan *plan = &trainer->plan;
    memory m;
    LK_TRY(look_at(trainer, d, &m));
    if (!fits(n, &m))
        return refuse(trainer, d, n, &m);
    int64_t needed = m.held + m.devices * total(n, &m), there = m.held + m.left;
    if (plan->memory_there == 0 || there - needed < plan->memory_there - plan->memory_needed) {
        plan->memory_needed = needed;
        plan->memory_there = there;
    }
    return LK_OK;
}

lk_status lk__check_memory(lk_trainer *trainer)
{
    needs n = {.step = 0};
    if (!trainer->devices[0]->backend->offload)
        return LK_OK;
    LK_TRY(estimate(trainer, trainer->plan.batch_size, &n));
    for (int d = 0; d < trainer->n_devices; d++)
        if (trainer->devices[d]->backend->offload)
            LK_TRY(check_device(trainer, d, &n));
    return LK_OK;
}
