/* Weights in a kernel's order: where a call in a branch would lay a variable out for itself, a cast in front of it does
 * so, which calls can share. */
#include "program/program.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "ops/ops.h"

/* What is no variable for the calls to come: what the program is given, or has written. */
static lk_status note(lk_numbers *others, lk_tensor *const *tensors, int n)
{
    int number;
    for (int i = 0; i < n; i++)
        if (tensors[i])
            LK_TRY(lk__number_give(others, tensors[i]->storage, &number));
    return LK_OK;
}

static bool lays_out_a_variable(const lk_call *call, const lk_numbers *others)
{
    if (call->branch == 0 || !call->kernel || !(call->kernel->flags & LK_KERNEL_LAYS_OUT_WEIGHTS))
        return false;
    lk_storage *weights = call->in[1]->storage;
    return lk__storage_is_written(weights) && lk__number_of(others, weights) < 0;
}

/* laid[i]: a new tensor for the weights of call i in another order; NULL: it takes them as they are. *n: how many. */
static lk_status find_weights(const lk_program *program, lk_numbers *others, lk_tensor **laid, int *n)
{
    *n = 0;
    LK_TRY(note(others, program->in, program->n_in));
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        if (lays_out_a_variable(call, others)) {
            LK_TRY(lk__tensor_new(call->device, call->in[1]->dtype, call->in[1]->shape, &laid[i]));
            (*n)++;
        }
        LK_TRY(note(others, call->out, call->n_out));
    }
    return LK_OK;
}

/* Of the weights of `user`, from which it takes over its reference to them. */
static lk_call cast_of(const lk_call *user, lk_tensor *laid)
{
    lk_call cast = {.op = &lk__op_cast,
                    .place = user->place,
                    .device = user->device,
                    .dtype = laid->dtype,
                    .kernel = lk__backend_kernel(user->device->backend, LK_OP_CAST, laid->dtype, NULL),
                    .algorithms = user->algorithms,
                    .tuning = user->tuning,
                    .tf32 = user->tf32,
                    .free_layout = true,
                    .branch = user->branch,
                    .n_in = 1,
                    .n_out = 1,
                    .in = {user->in[1]},
                    .out = {laid}};
    lk__call_set_attrs(&cast, &(lk_cast_attrs){.dtype = cast.dtype}, sizeof(lk_cast_attrs));
    return cast;
}

static lk_status insert_casts(lk_program *program, lk_tensor **laid, int n_laid)
{
    int capacity = program->n_calls + n_laid, n = 0;
    lk_call *calls = lk__calloc((size_t)capacity, sizeof *calls);
    if (!calls)
        return LK_ERR_MEMORY;
    for (int i = 0; i < program->n_calls; i++) {
        lk_call call = program->calls[i];
        if (laid[i]) {
            calls[n++] = cast_of(&call, laid[i]);
            call.in[1] = lk_tensor_retain(laid[i]);
            laid[i] = NULL;
        }
        calls[n++] = call;
    }
    lk__free(program->calls);
    program->calls = calls;
    program->n_calls = program->calls_capacity = n;
    return LK_OK;
}

lk_status lk__program_lay_out_weights(lk_program *program)
{
    lk_numbers others = {0};
    int n = 0, n_calls = program->n_calls;
    if (!lk__program_has_branches(program))
        return LK_OK;
    lk_tensor **laid = lk__calloc((size_t)n_calls + 1, sizeof(lk_tensor *));
    lk_status status = laid ? find_weights(program, &others, laid, &n) : LK_ERR_MEMORY;
    if (status == LK_OK && n > 0)
        status = insert_casts(program, laid, n);
    for (int i = 0; laid && i < n_calls; i++)
        lk_tensor_release(laid[i]);
    lk__free(laid);
    lk__numbers_free(&others);
    return status;
}
