/* Recording: the calls that a thread pushes go into a list instead. Also compiling that list, and freeing a program. */
#include "program/record.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "program/branch_order.h"
#include "program/branches.h"
#include "program/fuse.h"
#include "program/neighbors.h"
#include "program/keep.h"
#include "program/launch.h"
#include "program/layouts.h"
#include "program/memory_plan.h"
#include "program/merge.h"
#include "program/order.h"
#include "program/program.h"
#include "program/recompute.h"
#include "program/segments.h"
#include "program/share.h"
#include "program/values.h"
#include "program/weights.h"
#include "lockstep/ops.h"

lk_status lk__program_append(lk_program *program, const lk_call *call)
{
    LK_TRY(LK_GROW(program->calls, &program->calls_capacity, program->n_calls + 1));
    program->calls[program->n_calls] = *call;
    lk__call_clear_unused(&program->calls[program->n_calls++]);
    lk__call_retain(call);
    return LK_OK;
}

/* `on`: the calling thread records. branch, pass, piece: of the calls that it makes now. */
static _Thread_local struct {
    bool on;
    int branch, pass, piece;
} recording;

void lk_program_branch(int branch)
{
    if (!recording.on)
        return;
    recording.branch = branch > 0 && branch <= LK_MAX_BRANCHES ? branch : 0;
    recording.pass++;
}

void lk__program_next_piece(void)
{
    recording.piece += recording.on;
}

static lk_status program_record_keep_call(void *self, const lk_call *call)
{
    lk_program *program = self;
    if (call->device != program->device)
        LK_FAIL(LK_ERR_DEVICE, "program: %s runs on %s, the program is for %s", call->op->name, call->device->name,
                program->device->name);
    LK_TRY(lk__program_append(program, call));
    program->calls[program->n_calls - 1].branch = recording.branch;
    program->calls[program->n_calls - 1].pass = recording.pass;
    program->calls[program->n_calls - 1].piece = recording.piece;
    return LK_OK;
}

/* Copies outputs that cannot leave the program as they are, and makes all outputs plain. Only a whole tensor that a
 * call makes, and that is neither a variable nor an earlier output, can leave it. `made`: the storages that calls
 * write; `given`: those of outputs. */
static lk_status program_record_separate_outputs(lk_program *program, lk_numbers *made, lk_numbers *given)
{
    int number;
    for (int i = 0; i < program->n_calls; i++)
        LK_TRY(lk__number_tensors(made, program->calls[i].out, program->calls[i].n_out));
    for (int i = 0; i < program->n_out; i++) {
        const lk_tensor *out = program->out[i];
        if (!out)
            continue;
        if (!lk__tensor_is_whole(out) || lk__number_of(made, out->storage) < 0 ||
            lk__number_of(given, out->storage) >= 0 || lk__storage_is_written(out->storage))
            program->out[i] = lk_copy(program->out[i], program->device);
        if (!program->out[i])
            return lk_error_status();
        LK_TRY(lk__number_give(given, program->out[i]->storage, &number));
        LK_TRY(lk__tensor_make_plain(program->out[i]));
    }
    return LK_OK;
}

static lk_status program_record_finish_outputs(lk_program *program)
{
    lk_numbers made = {0}, given = {0};
    lk_status status = program_record_separate_outputs(program, &made, &given);
    lk__numbers_free(&made);
    lk__numbers_free(&given);
    return status;
}

static lk_status program_record_calls(lk_program *program, lk_program_fn fn, void *user)
{
    lk_capture before = lk__capture_set((lk_capture){program_record_keep_call, program});
    lk_scope_begin();
    recording.on = true;
    lk_status status = fn(user, program->in, program->out);
    recording.on = false;
    recording.branch = recording.pass = recording.piece = 0;
    if (status != LK_OK && lk_error_status() == LK_OK)
        lk__fail(status, "program: the recorded function failed: %s", lk_status_name(status));
    if (status == LK_OK)
        status = program_record_finish_outputs(program);
    for (int i = 0; i < program->n_out; i++)
        program->out[i] = status == LK_OK ? lk_tensor_retain(program->out[i]) : NULL;
    lk_scope_end();
    lk__capture_set(before);
    return status;
}

/* An input on another device is copied when its call runs; a graph cannot contain such a copy. */
static bool program_uses_one_device(const lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++)
        for (int k = 0; k < program->calls[i].n_in; k++)
            if (program->calls[i].in[k] && program->calls[i].in[k]->storage->device != program->device)
                return false;
    return true;
}

/* Fails if a call writes an input. `inputs` numbers the inputs' storages. */
static lk_status program_check_inputs_unwritten(const lk_program *program, const lk_numbers *inputs)
{
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        for (int k = 0; k < call->n_out; k++) {
            int input = call->out[k] ? lk__number_of(inputs, call->out[k]->storage) : -1;
            if (input >= 0)
                LK_FAIL(LK_ERR_ARGUMENT, "program: %s writes input %d; write a copy of it, or a variable",
                        call->op->name, input);
        }
    }
    return LK_OK;
}

/* Replays borrow an input's memory or copy it, so that a write would reach the caller's tensor or not. */
static lk_status program_check_inputs_stay(const lk_program *program)
{
    lk_numbers inputs = {0};
    lk_status status = lk__number_tensors(&inputs, program->in, program->n_in);
    if (status == LK_OK)
        status = program_check_inputs_unwritten(program, &inputs);
    lk__numbers_free(&inputs);
    return status;
}

static lk_status program_check_opts(const lk_program *program, const lk_program_opts *opts)
{
    int n = opts->n_quantities;
    if (opts->cuts < 0 || opts->cuts > program->n_in || opts->cuts > program->n_out)
        LK_FAIL(LK_ERR_ARGUMENT,
                "program: %d cuts of %d inputs and %d outputs; none may be negative or more than these", opts->cuts,
                program->n_in, program->n_out);
    if (opts->buckets && n < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "program: buckets of %d quantities; must be at least 1", n);
    for (int q = 0; opts->buckets && q < n; q++)
        if (opts->buckets[q] < 0 || opts->buckets[q] >= n)
            LK_FAIL(LK_ERR_ARGUMENT, "program: quantity %d is in bucket %d; must be from 0 to %d", q, opts->buckets[q],
                    n - 1);
    return LK_OK;
}

/* Records the calls of `fn` and compiles them. */
static lk_status program_build(lk_program *program, lk_tensor *const *like, lk_program_fn fn, void *user,
                               const lk_program_opts *opts)
{
    LK_TRY(program_check_opts(program, opts));
    program->in = lk__calloc((size_t)program->n_in, sizeof(lk_tensor *));
    program->out = lk__calloc((size_t)program->n_out, sizeof(lk_tensor *));
    if (!program->in || !program->out)
        return LK_ERR_MEMORY;
    for (int i = 0; i < program->n_in; i++)
        LK_TRY(lk__tensor_new(program->device, like[i]->dtype, like[i]->shape, &program->in[i]));
    LK_TRY(program_record_calls(program, fn, user));
    LK_TRY(program_check_inputs_stay(program));
    lk_program_opts segments = *opts;
    if (program->device->backend->modules) /* `cuts` alone cut it */
        segments.segment_bytes = 0, segments.buckets = NULL;
    program->graphs = program->graphs && program_uses_one_device(program);
    for (int i = 0; i < program->n_calls; i++)
        if (program->calls[i].op->flops)
            program->flops += program->calls[i].op->flops(&program->calls[i]);
    LK_TRY(lk__program_lay_out_weights(program));
    LK_TRY(lk__program_share(program));
    if (opts->fuse)
        LK_TRY(lk__program_fuse(program));
    if (opts->merge)
        LK_TRY(lk__program_merge(program));
    LK_TRY(lk__program_skip_copies(program));
    LK_TRY(lk__program_finish_outputs_early(program));
    if (opts->recompute)
        LK_TRY(lk__program_recompute(program));
    LK_TRY(lk__program_order_branches(program, &segments));
    lk__program_join_neighbors(program, &segments);
    LK_TRY(lk__program_find_values(program));
    LK_TRY(lk__program_choose_layouts(program));
    LK_TRY(lk__program_check_branches(program));
    LK_TRY(lk__program_keep(program, opts->keep_bytes));
    LK_TRY(lk__program_cut(program, &segments));
    return program->device->backend->offload ? lk__program_plan_memory(program, true) : LK_OK;
}

lk_program *lk_program_record(lk_device *device, lk_program_fn fn, void *user, lk_tensor *const *like, int n_in,
                              int n_out, const lk_program_opts *opts)
{
    static const lk_program_opts defaults = {.fuse = true, .graphs = true};
    int missing = 0;
    while (missing < n_in && like[missing])
        missing++;
    if (!device || missing < n_in) {
        lk__fail(LK_ERR_ARGUMENT, "program: %s must not be NULL",
                 device ? "the tensors that inputs are like" : "the device");
        return NULL;
    }
    lk_program *program = lk__calloc(1, sizeof *program);
    if (!program)
        return NULL;
    lk__refcount_init(&program->references);
    atomic_init(&program->being_pushed, false);
    /* A reference to the device's memory, not to the device: a replay holds the program, and must not be the one to
     * close the device that it runs on. */
    program->device = device;
    lk__device_retain_memory(device);
    program->graphs = (opts ? opts : &defaults)->graphs && device->backend->graphs;
    program->n_in = n_in;
    program->n_out = n_out;
    program->cuts = opts ? opts->cuts : 0;
    if (program_build(program, like, fn, user, opts ? opts : &defaults) == LK_OK)
        return program;
    lk_program_release(program);
    return NULL;
}

void lk_program_visit(const lk_program *program, void (*visit)(void *user, const char *op, const char *call),
                      void *user)
{
    char text[256];
    for (int i = 0; i < program->n_calls; i++) {
        lk__call_describe(&program->calls[i], text, sizeof text);
        visit(user, program->calls[i].op->name, text);
    }
}

void lk_program_release(lk_program *program)
{
    if (!program || !lk__refcount_release(&program->references))
        return;
    lk__program_drop_graphs(program);
    lk__program_drop_kept(program);
    for (int i = 0; i < program->n_calls; i++)
        lk__call_release(&program->calls[i]);
    lk__tensors_release(program->in, program->n_in);
    lk__tensors_release(program->out, program->n_out);
    LK_FREE_ALL(program->in, program->out, program->calls, program->values);
    lk__numbers_free(&program->numbers);
    LK_FREE_ALL(program->dying, program->first_dying, program->segments, program->ready);
    lk__device_release_memory(program->device);
    lk__free(program);
}
