#include "program_memory.h"

#include "lockstep/autograd.h"
#include "lockstep/device.h"
#include "lockstep/ops.h"
#include "lockstep/program.h"

#include <stdlib.h>

/* A training step of a shard as a program: images, labels, indices, and what backward starts with. */
enum { IMAGES, LABELS, INDICES, SEED, INPUTS };

typedef struct training_step {
    const lk_model *model;
    lk_tensor **variables;
} training_step;

static int parameter_count(const training_step *step)
{
    return lk_model_parameter_count(step->model);
}

/* Gradients, statistics of batch-norm, loss, hits. */
static lk_status pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const training_step *step = user;
    int n = parameter_count(step);
    lk_tensor **metrics = out + n + lk_model_statistics_count(step->model);
    lk_tape *tape = lk_tape_begin(step->variables, n);
    if (!tape)
        return lk_error_status();
    lk_forward_opts opts = {.training = true, .indices = &in[INDICES], .statistics = out + n};
    lk_tensor *logits = lk_model_forward(step->model, step->variables, in[IMAGES], &opts);
    metrics[0] = lk_sparse_softmax_cross_entropy(logits, in[LABELS], LK_REDUCTION_SUM);
    metrics[1] = lk_sum(lk_in_top_k(logits, in[LABELS], 1), NULL);
    lk_status status = metrics[0] ? lk_tape_gradient(tape, metrics[0], in[SEED], out) : lk_error_status();
    lk_tape_release(tape);
    return status;
}

/* Sizes are known once the kernels have chosen their layouts, so it runs once, on zeros. */
static lk_status run(training_step *step, lk_device *device, int64_t samples, const lk_program_opts *opts,
                     lk_tensor **out, lk_program_memory *memory)
{
    lk_model_input image = lk_model_get_input(step->model);
    int n_out = parameter_count(step) + lk_model_statistics_count(step->model) + 2;
    lk_status status = lk_model_init(step->model, device, 0, step->variables);
    lk_tensor *in[INPUTS] = {lk_zeros(device, LK_F32, LK_SHAPE(samples, image.channels, image.height, image.width)),
                             lk_zeros(device, LK_I32, LK_SHAPE(samples)), lk_zeros(device, LK_I64, LK_SHAPE(samples)),
                             lk_full(device, LK_F32, LK_SCALAR, 1.0 / (double)samples)};
    if (status != LK_OK || !in[SEED])
        return lk_error_status();
    lk_program *program = lk_program_record(device, pass, step, in, INPUTS, n_out, opts);
    if (!program)
        return lk_error_status();
    status = lk_program_run(program, in, 0, out);
    if (status == LK_OK)
        status = lk_program_get_memory(program, memory);
    lk_program_release(program);
    return status;
}

lk_status cli_program_memory(const lk_model *model, int64_t samples, bool recompute, lk_program_memory *memory)
{
    size_t n = (size_t)lk_model_variable_count(model), n_out = n + (size_t)lk_model_statistics_count(model) + 2;
    lk_device *device = lk_device_open("1");
    training_step step = {.model = model, .variables = calloc(n + 1, sizeof(lk_tensor *))};
    lk_tensor **out = calloc(n_out, sizeof *out);
    lk_status status = device ? LK_ERR_MEMORY : lk_error_status();
    lk_scope_begin();
    if (device && step.variables && out)
        status = run(&step, device, samples, &(lk_program_opts){.fuse = true, .recompute = recompute}, out, memory);
    lk_scope_end();
    free(step.variables);
    free(out);
    lk_device_release(device);
    return status;
}
