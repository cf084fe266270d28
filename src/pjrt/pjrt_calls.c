/* Calls as modules: one call, or those of a program's segment. */
#include "base/mem.h"
#include "core/execute.h"
#include "ops/ops.h"
#include "pjrt/pjrt.h"
#include "pjrt/pjrt_state.h"

/* Lowered calls, and the module that was compiled from them. */
typedef struct compiled {
    lk_lowered lowered;
    lk_pjrt_module *module;
} compiled;

/* --- compiling ---------------------------------------------------------------------------------------------------- */

lk_status lk__pjrt_lower(const lk_call *calls, int n, bool (*keeps)(void *user, lk_storage *storage), void *user,
                         lk_lowered *lowered)
{
    lk_lowering *lowering = lk__lowering_new();
    lk_status status = lowering ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < n && status == LK_OK; i++)
        if (calls[i].op != &lk__op_plain) /* every storage is plain */
            status = lk__lower_call(lowering, &calls[i]);
    if (status == LK_OK)
        status = lk__lowering_end(lowering, keeps, user, lowered);
    lk__lowering_free(lowering);
    return status;
}

static lk_status pjrt_calls_compile(const lk_device *device, const lk_call *calls, int n,
                                    bool (*keeps)(void *user, lk_storage *storage), void *user, compiled *c)
{
    const lk_pjrt_state *state = device->state;
    LK_TRY(lk__pjrt_lower(calls, n, keeps, user, &c->lowered));
    lk_status status = lk__pjrt_modules_get(state->process->modules, c->lowered.text, c->lowered.size, &c->module);
    if (status != LK_OK)
        lk__lowered_free(&c->lowered);
    return status;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* The arrays of one run. */
typedef struct running {
    lk_pjrt_value **values;   /* [parameters] */
    lk_pjrt_buffer **buffers; /* [parameters, with the step] */
    lk_pjrt_buffer **results;
    int64_t *kept;
    lk_pjrt_buffer *step;
} running;

static bool pjrt_calls_writes(const lk_lowered *lowered, const lk_storage *storage)
{
    for (int i = 0; i < lowered->n_results; i++)
        if (lowered->results[i] == storage)
            return true;
    return false;
}

/* A parameter that is also a result gives its memory away, unless something else holds its value. */
static lk_status pjrt_calls_take_parameters(const lk_pjrt_state *state, const lk_lowered *lowered, running *r,
                                            lk_pjrt_run *run)
{
    for (int i = 0; i < lowered->n_parameters; i++) {
        lk_storage *storage = lowered->parameters[i];
        if (!storage->data) /* its first write covers only a part */
            LK_TRY(lk__storage_allocate(storage, storage->bytes, NULL));
        LK_TRY(lk__pjrt_memory_get(state->memory, storage->data, lowered->parameter_dtypes[i],
                                   lowered->parameter_counts[i], &r->values[i]));
        r->buffers[i] = r->values[i]->buffer;
        if (lk__pjrt_value_is_shared(r->values[i]) && pjrt_calls_writes(lowered, storage))
            r->kept[run->n_kept++] = i;
    }
    return LK_OK;
}

/* Every result belongs to the block of its storage from here on; those after a failure are freed. */
static lk_status pjrt_calls_give_results(const lk_pjrt_state *state, const lk_lowered *lowered, const running *r)
{
    lk_status status = LK_OK;
    for (int i = 0; i < lowered->n_results; i++) {
        lk_storage *storage = lowered->results[i];
        lk_pjrt_value *value;
        lk_status made = lk__pjrt_value_new(state->session, r->results[i], lowered->result_dtypes[i],
                                            lowered->result_counts[i], &value);
        status = status == LK_OK ? made : status;
        if (status == LK_OK)
            status = lk__storage_allocate(storage, storage->bytes, NULL);
        if (status == LK_OK)
            lk__pjrt_memory_set(state->memory, storage->data, value);
        else if (made == LK_OK)
            lk__pjrt_value_release(value);
    }
    return status;
}

static lk_status pjrt_calls_run_with(lk_pjrt_state *state, const compiled *c, uint64_t step, running *r)
{
    const lk_lowered *lowered = &c->lowered;
    lk_pjrt_run run = {.module = c->module,
                       .device = state->device,
                       .parameters = r->buffers,
                       .kept = r->kept,
                       .results = r->results,
                       .n_parameters = lowered->n_parameters};
    LK_TRY(pjrt_calls_take_parameters(state, lowered, r, &run));
    if (lowered->takes_step) {
        LK_TRY(lk__pjrt_upload_step(state->session, state->device, step, &r->step));
        r->buffers[run.n_parameters++] = r->step;
    }
    LK_TRY(lk__pjrt_run(state->session, &run));
    lk_status given = pjrt_calls_give_results(state, lowered, r), added = lk__pjrt_work_add(state, run.done);
    return given == LK_OK ? added : given;
}

static lk_status pjrt_calls_run(lk_device *device, const compiled *c, uint64_t step)
{
    size_t in = (size_t)c->lowered.n_parameters + 1, out = (size_t)c->lowered.n_results + 1;
    running r = {0};
    r.values = lk__device_calloc(device, in, sizeof *r.values);
    r.buffers = lk__device_calloc(device, in, sizeof *r.buffers);
    r.kept = lk__device_calloc(device, in, sizeof *r.kept);
    r.results = lk__device_calloc(device, out, sizeof *r.results);
    lk_pjrt_state *state = device->state;
    lk_status status =
        r.values && r.buffers && r.kept && r.results ? pjrt_calls_run_with(state, c, step, &r) : LK_ERR_MEMORY;
    for (int i = 0; r.values && i < c->lowered.n_parameters; i++)
        lk__pjrt_value_release(r.values[i]);
    lk__pjrt_buffer_free(state->session, r.step);
    lk__device_free(device, r.values);
    lk__device_free(device, r.buffers);
    lk__device_free(device, r.kept);
    lk__device_free(device, r.results);
    return status;
}

/* --- one call ----------------------------------------------------------------------------------------------------- */

static bool pjrt_calls_keep_all(void *user, lk_storage *storage)
{
    (void)user;
    (void)storage;
    return true;
}

/* The step that a module takes is the epoch of the random key of dropout. */
static uint64_t pjrt_calls_step(const lk_call *call)
{
    const lk_dropout_attrs *drop = call->op->id == LK_OP_DROPOUT ? LK_ATTRS(call, lk_dropout_attrs)
                                                                 : &LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop;
    return call->op->set_step ? drop->key.epoch : 0;
}

lk_status lk__pjrt_call(lk_call *call)
{
    compiled c;
    LK_TRY(pjrt_calls_compile(call->device, call, 1, pjrt_calls_keep_all, NULL, &c));
    lk_status status = pjrt_calls_run(call->device, &c, pjrt_calls_step(call));
    lk__lowered_free(&c.lowered);
    return status;
}

/* --- a segment of a program --------------------------------------------------------------------------------------- */

static lk_status pjrt_modules_compile(lk_device *device, const lk_call *calls, int n,
                                      bool (*keeps)(void *user, lk_storage *storage), void *user, void **module)
{
    compiled *c = lk__calloc(1, sizeof *c);
    *module = NULL;
    if (!c)
        return LK_ERR_MEMORY;
    lk_status status = pjrt_calls_compile(device, calls, n, keeps, user, c);
    if (status == LK_OK)
        *module = c;
    else
        lk__free(c);
    return status;
}

static lk_status pjrt_modules_run(lk_device *device, void *module, uint64_t step)
{
    return pjrt_calls_run(device, module, step);
}

static void pjrt_modules_free(void *module)
{
    compiled *c = module;
    if (c)
        lk__lowered_free(&c->lowered);
    lk__free(c);
}

const lk_modules lk__pjrt_modules = {
    .compile = pjrt_modules_compile, .run = pjrt_modules_run, .free = pjrt_modules_free};
