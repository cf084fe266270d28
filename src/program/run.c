/* Replays. The calls run one after the other on the device's thread, on the program's own storages. An input's storage
 * borrows the memory of the tensor given for it; an output's storage passes its memory on to the tensor returned for
 * it. Replays on a device follow each other, so all its programs share one block of memory for the values inside, which
 * stay there from a replay's first segment to its last. */
#include "base/status.h"
#include "core/backend.h"
#include "core/scope.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "program/keep.h"
#include "program/launch.h"
#include "program/memory_plan.h"
#include "program/program.h"
#include "program/values.h"

#include <string.h>

/* A replay's segment as a task for the queue. */
typedef struct part {
    lk_task task;
    lk_replay *replay;
    lk_segment *segment; /* NULL: ends a replay some of whose segments were never pushed */
    bool last;           /* true: the replay is unbound after it */
} part;

struct lk_replay {
    lk_refcount references; /* the caller's, and one for each part in the queue */
    lk_program *program;
    uint64_t step;
    lk_tensor **in, **out; /* one reference each; out[i] may be NULL, and is once it was handed over */
    int pushed;            /* number of segments pushed */
    bool bound;            /* set on the device's thread */
    char *base;            /* of the slots; NULL: another replay has the plan's memory, or there is no plan yet */
    lk_storage **storages; /* [segments][n_shared] */
    uint64_t *versions;    /* [segments][n_shared]; NULL: nothing is kept */
    part parts[];          /* [segments], and one to end early */
};

/* --- on the device's thread --------------------------------------------------------------------------------------- */

static void program_replay_lend_inputs(const lk_replay *r)
{
    const lk_program *program = r->program;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind != LK_VALUE_INPUT)
            continue;
        const lk_tensor *tensor = r->in[value->index];
        bool has_offset = tensor->storage->data && !tensor->storage->layout;
        value->storage->data = has_offset ? lk__data(tensor) : tensor->storage->data;
        value->storage->layout = tensor->storage->layout;
    }
}

/* Returns whether inputs and outputs are copied, because a graph expects them in slots of the plan. */
static bool program_replay_copies(const lk_replay *r)
{
    return r->base && r->program->device->backend->graphs;
}

/* Copies that are started together. */
typedef struct copy_list {
    lk_graph_copy list[32];
    int n;
} copy_list;

static lk_status program_replay_start_copies(lk_device *device, copy_list *copies)
{
    int n = copies->n;
    copies->n = 0;
    return n > 0 ? device->backend->graphs->copy(device, copies->list, n, NULL) : LK_OK;
}

static lk_status program_replay_add_copy(lk_device *device, copy_list *copies, lk_graph_copy copy)
{
    copies->list[copies->n++] = copy;
    bool is_full = copies->n == (int)(sizeof copies->list / sizeof *copies->list);
    return is_full ? program_replay_start_copies(device, copies) : LK_OK;
}

static lk_status program_replay_copy_inputs(const lk_replay *r)
{
    lk_program *program = r->program;
    lk_device *device = program->device;
    copy_list copies = {.n = 0};
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind != LK_VALUE_INPUT)
            continue;
        const lk_tensor *from = r->in[value->index];
        void *to = value->storage->data;
        if (from->storage->layout)
            LK_TRY(device->backend->to_plain(device, from, to));
        else
            LK_TRY(
                program_replay_add_copy(device, &copies, (lk_graph_copy){to, lk__data(from), value->storage->bytes}));
    }
    return device->backend->graphs->copy(device, copies.list, copies.n, &r->step);
}

static lk_status program_replay_bind(lk_replay *r)
{
    lk_program *program = r->program;
    void *base = NULL;
    if (program->planned && program->plan_bytes > 0 && !program->device->backend->modules)
        LK_TRY(lk__device_arena_take(program->device, program->plan_bytes, &base));
    r->bound = true;
    r->base = base;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_INSIDE || (program_replay_copies(r) && value->kind != LK_VALUE_OUTSIDE))
            lk__value_use_slot(value, base);
    }
    return program_replay_copies(r) ? program_replay_copy_inputs(r) : LK_OK;
}

static void program_replay_unbind(lk_replay *r)
{
    lk_program *program = r->program;
    if (!r->bound)
        return;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_INPUT)
            value->storage->data = NULL;
        else if (value->kind != LK_VALUE_OUTSIDE)
            lk__value_give_back(program, value);
    }
    if (r->base)
        lk__device_arena_give_back(program->device);
    r->bound = false;
}

static lk_status program_replay_copy_outputs(const lk_replay *r, const lk_segment *segment)
{
    const int *ready = r->program->ready + segment->first_ready;
    lk_device *device = r->program->device;
    copy_list copies = {.n = 0};
    for (int i = 0; i < segment->n_ready; i++) {
        if (!r->out[ready[i]])
            continue;
        const lk_storage *from = r->program->out[ready[i]]->storage;
        lk_storage *to = r->out[ready[i]]->storage;
        LK_TRY(lk__storage_allocate(to, to->bytes, NULL));
        LK_TRY(program_replay_add_copy(device, &copies, (lk_graph_copy){to->data, from->data, to->bytes}));
    }
    return program_replay_start_copies(device, &copies);
}

/* No later segment uses these outputs: from here on they belong to the caller alone. */
static void program_replay_hand_over_outputs(lk_replay *r, const lk_segment *segment)
{
    const int *ready = r->program->ready + segment->first_ready;
    for (int i = 0; i < segment->n_ready; i++) {
        lk_tensor **out = &r->out[ready[i]];
        if (!*out)
            continue;
        lk_storage *from = r->program->out[ready[i]]->storage;
        if (!program_replay_copies(r)) {
            lk__storage_replace((*out)->storage, from->block, from->layout);
            from->block = NULL;
        }
        lk_tensor_release(*out);
        *out = NULL;
    }
}

/* Returns whether the engine must know that this segment, or a later one, uses the value. Values inside are not shared.
 */
static bool program_replay_shares_value(const lk_value *value, const lk_segment *segment)
{
    return value->kind != LK_VALUE_INSIDE && value->last >= segment->begin;
}

/* Kernels may reuse what they derived from variables as long as no variable was written. */
static void program_replay_compare_versions(lk_program *program, const part *p)
{
    bool changed = false;
    const uint64_t *version = p->task.versions;
    for (int i = 0; version && i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (value->written || !program_replay_shares_value(value, p->segment))
            continue;
        changed |= value->kind == LK_VALUE_OUTSIDE && value->version != *version;
        if (p->segment ==
            program->segments) /* else the next replay sees the change too: some of what is kept is older */
            value->version = *version;
        version++;
    }
    if (changed)
        lk__program_forget_kept(program, p->segment);
}

/* Inputs are lent anew for each segment: work pushed in between may have moved them. */
static lk_status program_replay_run_part(lk_task *task)
{
    const part *p = (const part *)task;
    lk_replay *r = p->replay;
    lk_program *program = r->program;
    if (!p->segment)
        return LK_OK;
    if (p->segment == program->segments)
        LK_TRY(program_replay_bind(r));
    if (!program_replay_copies(r))
        program_replay_lend_inputs(r);
    program_replay_compare_versions(program, p);
    LK_TRY(lk__program_launch(program, p->segment, r->step, program_replay_copies(r) ? r->base : NULL));
    if (program_replay_copies(r))
        LK_TRY(program_replay_copy_outputs(r, p->segment));
    if (p->last && !program->planned) {
        LK_TRY(lk__program_plan_memory(program, false));
        lk__allocator_trim(program->device->allocator);
    }
    program_replay_hand_over_outputs(r, p->segment); /* comes last: nothing after it may fail */
    return LK_OK;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static void program_replay_release(lk_replay *r)
{
    if (!lk__refcount_release(&r->references))
        return;
    lk_program *program = r->program;
    lk__tensors_release(r->in, program->n_in);
    lk__tensors_release(r->out, program->n_out);
    lk__device_free(program->device, r);
    lk_program_release(program);
}

/* Also called if poison kept the part from running. */
static void program_replay_release_part(lk_task *task)
{
    const part *p = (const part *)task;
    if (p->last)
        program_replay_unbind(p->replay);
    program_replay_release(p->replay);
}

static lk_status program_replay_check_input(const lk_program *program, int i, const lk_tensor *tensor)
{
    const lk_tensor *want = program->in[i];
    if (!tensor)
        LK_FAIL(LK_ERR_ARGUMENT, "program: input %d is NULL", i);
    if (tensor->dtype != want->dtype)
        LK_FAIL(LK_ERR_DTYPE, "program: input %d is %s, recorded with %s", i, lk_dtype_name(tensor->dtype),
                lk_dtype_name(want->dtype));
    if (!lk__shape_equal(tensor->shape, want->shape))
        LK_FAIL(LK_ERR_SHAPE, "program: input %d has shape %s, recorded with %s", i, lk__text(tensor->shape).string,
                lk__text(want->shape).string);
    if (tensor->storage->device != program->device)
        LK_FAIL(LK_ERR_DEVICE, "program: input %d is on %s, the program on %s", i, tensor->storage->device->name,
                program->device->name);
    if (!lk__tensor_is_dense(tensor))
        LK_FAIL(LK_ERR_ARGUMENT, "program: input %d is a view with gaps; copy it with lk_copy first", i);
    const lk_value *variable = lk__program_value(program, tensor);
    if (variable && variable->written)
        LK_FAIL(LK_ERR_ARGUMENT, "program: input %d is a variable that the program writes; give a copy of it", i);
    return LK_OK;
}

/* A segment's task also lists the storages that later segments use: if the segment fails, their outputs are poisoned,
 * and the later segments are left out. */
static void program_replay_list_storages(lk_replay *r, int s)
{
    const lk_program *program = r->program;
    lk_task *task = &r->parts[s].task;
    lk_storage **storages = r->storages + (size_t)s * (size_t)program->n_shared;
    task->reads = storages;
    task->writes = storages + program->n_shared;
    if (r->versions)
        task->versions = r->versions + (size_t)s * (size_t)program->n_shared;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (!program_replay_shares_value(value, &program->segments[s]))
            continue;
        lk_storage *storage = value->kind == LK_VALUE_INPUT    ? r->in[value->index]->storage
                              : value->kind == LK_VALUE_OUTPUT ? r->out[value->index]->storage
                                                               : value->storage;
        if (value->written) {
            *--task->writes = storage;
            task->n_writes++;
        } else {
            task->reads[task->n_reads++] = storage;
        }
    }
}

static void program_replay_make_parts(lk_replay *r)
{
    lk_program *program = r->program;
    for (int s = 0; s <= program->n_segments; s++) {
        bool early = s == program->n_segments;
        r->parts[s] = (part){
            .task = {.device = program->device, .run = program_replay_run_part, .release = program_replay_release_part},
            .replay = r,
            .segment = early ? NULL : &program->segments[s],
            .last = early || s + 1 == program->n_segments};
        if (!early)
            program_replay_list_storages(r, s);
    }
    r->parts[0].task.flops = program->flops;
}

static lk_status program_replay_prepare(lk_replay *r, lk_tensor *const *in)
{
    lk_program *program = r->program;
    for (int i = 0; i < program->n_in; i++) {
        LK_TRY(program_replay_check_input(program, i, in[i]));
        r->in[i] = lk_tensor_retain(in[i]);
    }
    for (int i = 0; i < program->n_out; i++) {
        const lk_tensor *like = program->out[i];
        if (!like)
            continue;
        LK_TRY(lk__tensor_new(program->device, like->dtype, like->shape, &r->out[i]));
        r->out[i]->storage->free_layout = r->out[i]->storage->is_product = like->storage->is_product;
    }
    program_replay_make_parts(r);
    return LK_OK;
}

static lk_replay *program_replay_allocate(lk_program *program)
{
    size_t parts = (size_t)program->n_segments + 1, tensors = (size_t)program->n_in + (size_t)program->n_out,
           storages = (size_t)program->n_segments * (size_t)program->n_shared;
    size_t arrays = parts * sizeof(part) + tensors * sizeof(lk_tensor *) + storages * sizeof(lk_storage *);
    if (program->kept)
        arrays += storages * sizeof(uint64_t);
    lk_replay *r = lk__device_calloc(program->device, 1, sizeof *r + arrays);
    if (!r)
        return NULL;
    lk__refcount_init(&r->references);
    lk__refcount_retain(&program->references);
    r->program = program;
    r->in = (lk_tensor **)(r->parts + parts);
    r->out = r->in + program->n_in;
    r->storages = (lk_storage **)(r->out + program->n_out);
    if (program->kept)
        r->versions = (uint64_t *)(r->storages + storages);
    return r;
}

/* Sets out[] to references to the replay's outputs, before the device's thread can hand the outputs over. On failure
 * *replay may be set, and must be ended. The program's storages are in use until all segments were pushed. */
static lk_status program_replay_begin(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out,
                                      lk_replay **replay)
{
    *replay = NULL;
    memset(out, 0, (size_t)program->n_out * sizeof *out);
    if (program->n_segments > 1 && atomic_exchange(&program->being_pushed, true))
        LK_FAIL(LK_ERR_STATE, "program: a replay of it has segments left to push; end it with lk_replay_end first");
    lk_replay *r = program_replay_allocate(program);
    lk_status status = r ? program_replay_prepare(r, in) : LK_ERR_MEMORY;
    *replay = r;
    if (r)
        r->step = step;
    else
        atomic_store(&program->being_pushed, false);
    for (int i = 0; status == LK_OK && i < program->n_out; i++)
        out[i] = lk_tensor_retain(r->out[i]);
    return status;
}

int lk_replay_segments_left(const lk_replay *r)
{
    return r->program->n_segments - r->pushed;
}

static lk_status program_replay_push_part(lk_replay *r, int p)
{
    lk__refcount_retain(&r->references);
    lk_status status = lk__engine_push_task(&r->parts[p].task);
    if (status != LK_OK)
        program_replay_release(r);
    return status;
}

lk_status lk_replay_push(lk_replay *r, const int **ready, int *n_ready)
{
    lk_program *program = r->program;
    *n_ready = 0;
    if (r->pushed == program->n_segments)
        LK_FAIL(LK_ERR_STATE, "program: all %d segments of the replay were pushed", program->n_segments);
    const lk_segment *segment = &program->segments[r->pushed];
    LK_TRY(program_replay_push_part(r, r->pushed));
    r->pushed++;
    if (r->pushed == program->n_segments)
        atomic_store(&program->being_pushed, false);
    *ready = program->ready + segment->first_ready;
    *n_ready = segment->n_ready;
    return LK_OK;
}

/* If nothing can be pushed, as when the device was released, this thread unbinds, once the segments have run. */
static void program_replay_end_early(lk_replay *r)
{
    lk_error_state kept;
    lk__error_save(&kept);
    if (r->pushed > 0 && program_replay_push_part(r, r->program->n_segments) != LK_OK) {
        lk__engine_wait_device(r->program->device);
        program_replay_unbind(r);
    }
    lk__error_restore(&kept);
    atomic_store(&r->program->being_pushed, false);
}

void lk_replay_end(lk_replay *r)
{
    if (!r)
        return;
    if (lk_replay_segments_left(r) > 0)
        program_replay_end_early(r);
    program_replay_release(r);
}

/* A program that could not be recorded is easily replayed all the same. */
static lk_status program_replay_check(const lk_program *program)
{
    if (!program)
        LK_FAIL(LK_ERR_ARGUMENT, "program: must not be NULL");
    return LK_OK;
}

lk_status lk_program_begin(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out,
                           lk_replay **replay)
{
    lk_replay *r;
    *replay = NULL;
    LK_TRY(program_replay_check(program));
    lk_status status = program_replay_begin(program, in, step, out, &r);
    status = lk__scope_adopt_all(out, program->n_out, status);
    if (status == LK_OK)
        *replay = r;
    else
        lk_replay_end(r);
    return status;
}

lk_status lk_program_run(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out)
{
    lk_replay *r;
    const int *ready;
    int n_ready;
    LK_TRY(program_replay_check(program));
    lk_status status = program_replay_begin(program, in, step, out, &r);
    while (status == LK_OK && lk_replay_segments_left(r) > 0)
        status = lk_replay_push(r, &ready, &n_ready);
    lk_replay_end(r);
    return lk__scope_adopt_all(out, program->n_out, status);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

lk_status lk_program_get_memory(lk_program *program, lk_program_memory *memory)
{
    LK_TRY(lk_device_sync(program->device));
    if (!program->planned)
        LK_FAIL(LK_ERR_STATE, "program: its memory is known once it has run");
    *memory = (lk_program_memory){(int64_t)program->plan_bytes,
                                  (int64_t)program->peak_bytes,
                                  (int64_t)program->sum_bytes,
                                  (int64_t)lk__program_kept_bytes(program),
                                  program->n_calls,
                                  program->n_segments};
    return LK_OK;
}
