#include "program_memory.h"

#include "lockstep/autograd.h"
#include "lockstep/device.h"
#include "lockstep/ops.h"
#include "lockstep/program.h"

#include <stdlib.h>
#include <string.h>

/* A training step of a shard as a program: images, labels, indices, and what backward starts with. */
enum { IMAGES, LABELS, INDICES, SEED, INPUTS };

typedef struct training_step {
    const lk_model *model;
    const cli_training_step *shard;
    lk_tensor **variables;
    lk_tensor **piece; /* the outputs of one piece */
    int n_out;         /* gradients, statistics of batch-norm, loss, hits */
} training_step;

static lk_status pass(const training_step *step, lk_tensor *const *in, lk_tensor **out)
{
    int n = lk_model_parameter_count(step->model);
    lk_tensor **metrics = out + step->n_out - 2;
    lk_tape *tape = lk_tape_begin(step->variables, n);
    if (!tape)
        return lk_error_status();
    lk_forward_opts opts = {
        .training = true, .dtype = step->shard->dtype, .indices = &in[INDICES], .statistics = out + n};
    lk_tensor *logits = lk_model_forward(step->model, step->variables, in[IMAGES], &opts);
    metrics[0] = lk_sparse_softmax_cross_entropy(logits, in[LABELS], LK_REDUCTION_SUM);
    metrics[1] = lk_sum(lk_in_top_k(logits, in[LABELS], 1), NULL);
    lk_status status = metrics[0] ? lk_tape_gradient(tape, metrics[0], in[SEED], out) : lk_error_status();
    lk_tape_release(tape);
    return status;
}

/* Adds to out[] what a piece gives. */
static lk_status add_piece(const training_step *step, lk_tensor *const *in, int64_t begin, int64_t end, lk_tensor **out)
{
    lk_tensor *piece[INPUTS] = {lk_slice(in[IMAGES], 0, begin, end), lk_slice(in[LABELS], 0, begin, end),
                                lk_slice(in[INDICES], 0, begin, end), in[SEED]};
    if (!piece[IMAGES] || !piece[LABELS] || !piece[INDICES])
        return lk_error_status();
    memset(step->piece, 0, (size_t)step->n_out * sizeof(lk_tensor *));
    lk_status status = pass(step, piece, step->piece);
    for (int i = 0; i < step->n_out && status == LK_OK; i++) {
        if (out[i] && step->piece[i])
            status = lk_add_into(out[i], out[i], step->piece[i]);
        else if (step->piece[i])
            out[i] = step->piece[i];
    }
    return status;
}

/* As training runs it. */
static lk_status shard_pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const training_step *step = user;
    int64_t samples = step->shard->samples, size = step->shard->micro_batch;
    if (size == 0 || samples <= size)
        return pass(step, in, out);
    lk_status status = LK_OK;
    for (int64_t begin = 0; begin < samples && status == LK_OK; begin += size)
        status = add_piece(step, in, begin, begin + size < samples ? begin + size : samples, out);
    return status;
}

/* Sizes are known once the kernels have chosen their layouts, so it runs once, on zeros. */
static lk_status run(training_step *step, lk_device *device, lk_tensor **out, lk_program_memory *memory)
{
    int64_t samples = step->shard->samples;
    lk_model_input image = lk_model_get_input(step->model);
    lk_program_opts opts = {.fuse = true, .recompute = step->shard->recompute, .keep_bytes = step->shard->keep_bytes};
    lk_status status = lk_model_init(step->model, device, 0, step->variables);
    lk_tensor *in[INPUTS] = {lk_zeros(device, LK_F32, LK_SHAPE(samples, image.channels, image.height, image.width)),
                             lk_zeros(device, LK_I32, LK_SHAPE(samples)), lk_zeros(device, LK_I64, LK_SHAPE(samples)),
                             lk_full(device, LK_F32, LK_SCALAR, 1.0 / (double)samples)};
    if (status != LK_OK || !in[SEED])
        return lk_error_status();
    lk_program *program = lk_program_record(device, shard_pass, step, in, INPUTS, step->n_out, &opts);
    if (!program)
        return lk_error_status();
    status = lk_program_run(program, in, 0, out);
    if (status == LK_OK)
        status = lk_program_get_memory(program, memory);
    lk_program_release(program);
    return status;
}

lk_status cli_program_memory(const lk_model *model, const cli_training_step *shard, lk_program_memory *memory)
{
    training_step step = {.model = model, .shard = shard};
    step.n_out = lk_model_parameter_count(model) + lk_model_statistics_count(model) + 2;
    step.variables = calloc((size_t)lk_model_variable_count(model) + 1, sizeof(lk_tensor *));
    step.piece = calloc((size_t)step.n_out, sizeof(lk_tensor *));
    lk_tensor **out = calloc((size_t)step.n_out, sizeof *out);
    lk_device *device = lk_device_open("cpu");
    lk_status status = device ? LK_ERR_MEMORY : lk_error_status();
    lk_scope_begin();
    if (device && step.variables && step.piece && out)
        status = run(&step, device, out, memory);
    lk_scope_end();
    free(step.variables);
    free(step.piece);
    free(out);
    lk_device_release(device);
    return status;
}
