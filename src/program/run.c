/* Replays. The calls run one after the other in the device's thread, on the program's own storages: an input's borrows
 * the memory of the tensor that it stands for, an output's gives the memory it got to the tensor that it stands for.
 * Replays on a device follow each other, so all programs of a device share one block of memory for what is inside. */
#include "program/program.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/tensor.h"

#include <string.h>

/* One replay under way. */
typedef struct replay {
    lk_task task;
    lk_program *program;
    uint64_t step;
    lk_tensor **in, **out; /* one reference each; out[i] may be NULL */
    lk_storage **storages; /* reads, then writes */
} replay;

/* --- on the device's thread --------------------------------------------------------------------------------------- */

static void lend_input(lk_value *value, const lk_tensor *tensor)
{
    bool moved = tensor->storage->data && !tensor->storage->layout;
    value->storage->data = moved ? lk__data(tensor) : tensor->storage->data;
    value->storage->layout = tensor->storage->layout;
}

static void give_place(lk_value *value, char *base)
{
    value->storage->data = base ? base + value->offset : NULL;
    value->storage->planned = base ? value->bytes : 0;
    value->storage->layout = NULL;
}

/* Memory that the value got besides its place, if any. */
static void give_back(lk_value *value)
{
    lk_storage *storage = value->storage;
    lk__allocator_put(storage->device->allocator, storage->block);
    storage->block = NULL;
    storage->data = NULL;
    storage->planned = 0;
}

static lk_status bind(const replay *r)
{
    lk_program *program = r->program;
    void *base = NULL;
    if (program->planned && program->plan_bytes > 0)
        LK_TRY(lk__device_arena(program->device, program->plan_bytes, &base));
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_INPUT)
            lend_input(value, r->in[value->index]);
        else if (value->kind == LK_VALUE_INSIDE)
            give_place(value, value->bytes > 0 ? base : NULL);
    }
    return LK_OK;
}

static void unbind(const replay *r)
{
    lk_program *program = r->program;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_INPUT)
            value->storage->data = NULL;
        else if (value->kind != LK_VALUE_OUTSIDE)
            give_back(value);
    }
}

static void hand_over_outputs(const replay *r)
{
    for (int i = 0; i < r->program->n_out; i++) {
        if (!r->out[i])
            continue;
        lk_storage *from = r->program->out[i]->storage;
        lk__storage_replace(r->out[i]->storage, from->block, NULL);
        from->block = NULL;
    }
}

static lk_status run_calls(const replay *r)
{
    lk_program *program = r->program;
    for (int i = 0; i < program->n_calls; i++) {
        lk_call *call = &program->calls[i];
        if (call->op->set_step)
            call->op->set_step(call, r->step);
        LK_TRY(lk__run_call(program->device, call));
        for (int d = program->first_dying[i]; d < program->first_dying[i + 1]; d++)
            give_back(&program->values[program->dying[d]]);
    }
    return LK_OK;
}

static lk_status run(lk_task *task)
{
    replay *r = (replay *)task;
    lk_status status = bind(r);
    if (status == LK_OK)
        status = run_calls(r);
    if (status == LK_OK)
        hand_over_outputs(r);
    unbind(r);
    if (status == LK_OK && !r->program->planned) {
        status = lk__program_plan_memory(r->program);
        r->program->planned = status == LK_OK;
    }
    return status;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static void release_tensors(lk_tensor **tensors, int n)
{
    for (int i = 0; tensors && i < n; i++)
        lk_tensor_release(tensors[i]);
}

static void release(lk_task *task)
{
    replay *r = (replay *)task;
    release_tensors(r->in, r->program->n_in);
    release_tensors(r->out, r->program->n_out);
    lk_program_release(r->program);
    lk__free(r);
}

static lk_status check_input(const lk_program *program, int i, const lk_tensor *tensor)
{
    const lk_tensor *want = program->in[i];
    char have_text[128], want_text[128];
    if (!tensor)
        LK_FAIL(LK_ERR_ARGUMENT, "program: input %d is NULL", i);
    if (tensor->dtype != want->dtype)
        LK_FAIL(LK_ERR_DTYPE, "program: input %d is %s, recorded with %s", i, lk_dtype_name(tensor->dtype),
                lk_dtype_name(want->dtype));
    if (!lk__shape_equal(tensor->shape, want->shape)) {
        lk__shape_text(tensor->shape, have_text, sizeof have_text);
        lk__shape_text(want->shape, want_text, sizeof want_text);
        LK_FAIL(LK_ERR_SHAPE, "program: input %d has shape %s, recorded with %s", i, have_text, want_text);
    }
    if (tensor->storage->device != program->device)
        LK_FAIL(LK_ERR_DEVICE, "program: input %d is on %s, the program on %s", i, tensor->storage->device->name,
                program->device->name);
    if (!lk__tensor_is_dense(tensor))
        LK_FAIL(LK_ERR_ARGUMENT, "program: input %d is a view with gaps; copy it with lk_copy first", i);
    return LK_OK;
}

static size_t bytes_of(const lk_program *program)
{
    return sizeof(replay) + (size_t)(program->n_in + program->n_out) * sizeof(lk_tensor *) +
           2 * (size_t)program->n_values * sizeof(lk_storage *);
}

/* What is inside is nobody else's, so nobody waits for it. */
static void list_storages(replay *r)
{
    const lk_program *program = r->program;
    r->task.reads = r->storages;
    r->task.writes = r->storages + program->n_values;
    for (int i = 0; i < program->n_values; i++) {
        const lk_value *value = &program->values[i];
        if (value->kind == LK_VALUE_INSIDE)
            continue;
        lk_storage *storage = value->kind == LK_VALUE_INPUT    ? r->in[value->index]->storage
                              : value->kind == LK_VALUE_OUTPUT ? r->out[value->index]->storage
                                                               : value->storage;
        if (value->written)
            r->task.writes[r->task.n_writes++] = storage;
        else
            r->task.reads[r->task.n_reads++] = storage;
    }
}

static lk_status prepare(replay *r, lk_tensor *const *in)
{
    lk_program *program = r->program;
    for (int i = 0; i < program->n_in; i++) {
        LK_TRY(check_input(program, i, in[i]));
        r->in[i] = lk_tensor_retain(in[i]);
    }
    for (int i = 0; i < program->n_out; i++)
        if (program->out[i])
            LK_TRY(lk__tensor_new(program->device, program->out[i]->dtype, program->out[i]->shape, &r->out[i]));
    list_storages(r);
    return LK_OK;
}

lk_status lk_program_run(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out)
{
    memset(out, 0, (size_t)program->n_out * sizeof *out);
    replay *r = lk__calloc(1, bytes_of(program));
    if (!r)
        return LK_ERR_MEMORY;
    lk__refcount_retain(&program->references);
    r->program = program;
    r->step = step;
    r->in = (lk_tensor **)(r + 1);
    r->out = r->in + program->n_in;
    r->storages = (lk_storage **)(r->out + program->n_out);
    r->task = (lk_task){.device = program->device, .flops = program->flops, .run = run, .release = release};
    lk_status status = prepare(r, in);
    for (int i = 0; i < program->n_out && status == LK_OK; i++)
        out[i] = lk_tensor_retain(r->out[i]);
    if (status == LK_OK)
        status = lk__engine_push_task(&r->task);
    if (status != LK_OK)
        release(&r->task);
    return lk__scope_adopt_all(out, program->n_out, status);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

lk_status lk_program_get_memory(lk_program *program, lk_program_memory *memory)
{
    LK_TRY(lk_device_sync(program->device));
    if (!program->planned)
        LK_FAIL(LK_ERR_STATE, "program: its memory is known once it has run");
    *memory = (lk_program_memory){(int64_t)program->plan_bytes, (int64_t)program->peak_bytes,
                                  (int64_t)program->sum_bytes, program->n_calls};
    return LK_OK;
}
