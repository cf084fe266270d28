#include "program/weights.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "program/branches.h"
#include "program/program.h"
#include "program/values.h"

/* Returns whether a cast is to lay out the call's weights, which must be a variable. not_variables: the storages of
 * inputs and of the results of earlier calls. */
static bool program_weights_are_laid_out(const lk_call *call, const lk_numbers *not_variables)
{
    if (call->branch == 0 || !call->kernel || !(call->kernel->flags & LK_KERNEL_LAYS_OUT_WEIGHTS))
        return false;
    lk_storage *weights = call->in[1]->storage;
    return lk__storage_is_written(weights) && lk__number_of(not_variables, weights) < 0;
}

/* Sets laid[i] to a new tensor for the reordered weights of call i; NULL: the call takes them as they are. Sets *n to
 * their number. */
static lk_status program_weights_find(const lk_program *program, lk_numbers *not_variables, lk_tensor **laid, int *n)
{
    *n = 0;
    LK_TRY(lk__number_tensors(not_variables, program->in, program->n_in));
    for (int i = 0; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        if (program_weights_are_laid_out(call, not_variables)) {
            LK_TRY(lk__tensor_new(call->device, call->in[1]->dtype, call->in[1]->shape, &laid[i]));
            (*n)++;
        }
        LK_TRY(lk__number_tensors(not_variables, call->out, call->n_out));
    }
    return LK_OK;
}

/* Makes the cast of the weights of `user`, which takes over user's reference to them. */
static lk_call program_weights_cast(const lk_call *user, lk_tensor *laid)
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
                    .pass = user->pass,
                    .piece = user->piece,
                    .n_in = 1,
                    .n_out = 1,
                    .in = {user->in[1]},
                    .out = {laid}};
    lk__call_set_attrs(&cast, &(lk_cast_attrs){.dtype = cast.dtype}, sizeof(lk_cast_attrs));
    return cast;
}

static lk_status program_weights_insert_casts(lk_program *program, lk_tensor **laid, int n_laid)
{
    int capacity = program->n_calls + n_laid, n = 0;
    lk_call *calls = lk__calloc((size_t)capacity, sizeof *calls);
    if (!calls)
        return LK_ERR_MEMORY;
    for (int i = 0; i < program->n_calls; i++) {
        lk_call call = program->calls[i];
        if (laid[i]) {
            calls[n++] = program_weights_cast(&call, laid[i]);
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
    lk_numbers not_variables = {0};
    int n = 0, n_calls = program->n_calls;
    if (!lk__program_has_branches(program))
        return LK_OK;
    lk_tensor **laid = lk__calloc((size_t)n_calls + 1, sizeof(lk_tensor *));
    lk_status status = laid ? program_weights_find(program, &not_variables, laid, &n) : LK_ERR_MEMORY;
    if (status == LK_OK && n > 0)
        status = program_weights_insert_casts(program, laid, n);
    lk__tensors_release(laid, n_calls);
    lk__free(laid);
    lk__numbers_free(&not_variables);
    return status;
}
