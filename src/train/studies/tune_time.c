#include "train/studies/tune_time.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "lockstep/autograd.h"
#include "lockstep/program.h"
#include "ops/conv2d.h"
#include "ops/matmul.h"

#include <stdlib.h>

/* --- times -------------------------------------------------------------------------------------------------------- */

static int tune_time_compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double lk__tune_median(double *times, int64_t n)
{
    qsort(times, (size_t)n, sizeof *times, tune_time_compare);
    return times[n / 2];
}

lk_status lk__tune_seconds(lk_device *device, double *seconds)
{
    if (!device->backend->offload)
        return lk_device_processor_seconds(device, seconds);
    LK_TRY(lk_wait_all());
    *seconds = 1e-9 * (double)lk__nanoseconds();
    return LK_OK;
}

/* A call to measure. It runs in a new scope each time. */
typedef struct subject {
    const lk_tune_problem *problem;
    lk_device *device;
    lk_tensor *x, *w, *bias, *dy;
    lk_program *program; /* conv_block only */
    lk_status (*run)(const struct subject *subject);
} subject;

static lk_status tune_subject_run_calls(const subject *s, int64_t calls, double *seconds)
{
    double before, after;
    LK_TRY(lk__tune_seconds(s->device, &before));
    for (int64_t i = 0; i < calls; i++) {
        lk_scope_begin();
        lk_status status = s->run(s);
        lk_scope_end();
        LK_TRY(status);
    }
    LK_TRY(lk__tune_seconds(s->device, &after));
    *seconds = after - before;
    return LK_OK;
}

/* The first call, which allocates memory and chooses, does not count. A sample lasts a millisecond or more; on an
 * offload device ten, so that the wait at its end takes little of it. */
static lk_status tune_subject_measure(const subject *s, int64_t samples, double *times)
{
    enum { MOST_CALLS = 1000 };
    const double least = s->device->backend->offload ? 1e-2 : 1e-3;
    double once;
    LK_TRY(tune_subject_run_calls(s, 1, &once));
    LK_TRY(tune_subject_run_calls(s, 1, &once));
    int64_t calls = once * MOST_CALLS > least ? (int64_t)(least / once) + 1 : MOST_CALLS;
    for (int64_t i = 0; i < samples; i++) {
        LK_TRY(tune_subject_run_calls(s, calls, &times[i]));
        times[i] /= (double)calls;
    }
    return LK_OK;
}

/* --- convolutions ------------------------------------------------------------------------------------------------- */

static lk_status tune_subject_run_conv(const subject *s)
{
    const lk_conv_problem *p = &s->problem->conv;
    const lk_conv2d_opts *opts = &p->attrs.conv;
    lk_tensor *y = p->op == LK_OP_CONV2D ? lk_conv2d(s->x, s->w, p->bias ? s->bias : NULL, opts)
                   : p->op == LK_OP_CONV2D_INPUT_GRAD
                       ? lk__conv2d_input_grad(LK_HERE, s->dy, s->w, p->x, opts)
                       : lk__conv2d_weight_grad(LK_HERE, s->dy, s->x, p->w, opts, p->to_f32, NULL);
    return y ? LK_OK : lk_error_status();
}

/* In training, operands come from other convolutions and have the layouts that these choose. So dy and x are computed
 * by the measured implementations, in their layouts, instead of being plain. */
static lk_status tune_subject_prepare_conv(subject *s)
{
    const lk_conv_problem *p = &s->problem->conv;
    s->run = tune_subject_run_conv;
    s->dy = lk_conv2d(s->x, s->w, NULL, &p->attrs.conv);
    if (s->dy && !s->problem->reads_images)
        s->x = lk__conv2d_input_grad(LK_HERE, s->dy, s->w, p->x, &p->attrs.conv);
    return s->dy && s->x ? LK_OK : lk_error_status();
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* w is b, and x is a. */
static lk_status tune_subject_run_product(const subject *s)
{
    const lk_product_problem *p = &s->problem->product;
    const lk_dense_act_attrs attrs = {.relu = false};
    lk_tensor *in[] = {s->x, s->w, s->bias};
    lk_tensor *y = p->bias ? lk__call_simple(LK_HERE, &lk__op_dense_act, in, 3, 3, &attrs, sizeof attrs)
                           : lk__matmul(LK_HERE, s->x, s->w, p->to == LK_F32);
    return y ? LK_OK : lk_error_status();
}

static lk_tensor *tune_product_matrix(const subject *s, int64_t rows, int64_t columns, bool transposed)
{
    lk_random_key key = {.purpose = lk_random_purpose("tuning")};
    lk_shape shape = transposed ? LK_SHAPE(columns, rows) : LK_SHAPE(rows, columns);
    lk_tensor *x = lk_normal(s->device, s->problem->product.dtype, shape, 0, 1, key);
    return transposed ? lk_transpose(x, 0, 1) : x;
}

static lk_status tune_subject_prepare_product(subject *s)
{
    const lk_product_problem *p = &s->problem->product;
    s->run = tune_subject_run_product;
    s->x = tune_product_matrix(s, p->rows, p->inner, p->a_transposed);
    s->w = tune_product_matrix(s, p->inner, p->columns, p->b_transposed);
    s->bias = lk_full(s->device, p->dtype, LK_SHAPE(p->columns), 0.1);
    return s->x && s->w && s->bias ? LK_OK : lk_error_status();
}

/* --- conv_block --------------------------------------------------------------------------------------------------- */

enum { X, W, BIAS, DY, INPUTS };

static lk_tensor *tune_block_forward(const lk_conv_problem *p, lk_tensor *const *in)
{
    lk_tensor *y = lk_conv2d(in[X], in[W], in[BIAS], &p->attrs.conv);
    if (p->attrs.relu)
        y = lk_relu(y);
    if (p->attrs.pooling == LK_BLOCK_AVG_POOL)
        y = lk_avg_pool2d(y, &p->attrs.pool);
    else if (p->attrs.pooling == LK_BLOCK_MAX_POOL)
        y = lk_max_pool2d(y, &p->attrs.pool);
    return y;
}

/* out: y, then the gradients of w, bias and x, if these are measured. */
static lk_status tune_block_pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const subject *s = user;
    const lk_tune_problem *problem = s->problem;
    if (!problem->trains) {
        out[0] = tune_block_forward(&problem->conv, in);
        return out[0] ? LK_OK : lk_error_status();
    }
    lk_tape *tape = lk_tape_begin((lk_tensor *[]){in[W], in[BIAS], in[X]}, problem->reads_images ? 2 : 3);
    out[0] = tape ? tune_block_forward(&problem->conv, in) : NULL;
    lk_status status = out[0] ? lk_tape_gradient(tape, out[0], in[DY], out + 1) : lk_error_status();
    lk_tape_release(tape);
    return status;
}

static lk_status tune_subject_run_block(const subject *s)
{
    lk_tensor *out[4];
    return lk_program_run(s->program, (lk_tensor *[]){s->x, s->w, s->bias, s->dy}, 0, out);
}

static lk_status tune_subject_prepare_block(subject *s)
{
    const lk_tune_problem *problem = s->problem;
    lk_tensor *in[INPUTS] = {s->x, s->w, s->bias};
    s->run = tune_subject_run_block;
    lk_tensor *y = tune_block_forward(&problem->conv, in);
    in[DY] = s->dy = lk_full(s->device, problem->conv.dtype, y ? lk_tensor_shape(y) : LK_SCALAR, 1);
    if (!y || !s->dy)
        return lk_error_status();
    int outputs = !problem->trains ? 1 : problem->reads_images ? 3 : 4;
    s->program = lk_program_record(s->device, tune_block_pass, s, in, INPUTS, outputs, NULL);
    return s->program ? LK_OK : lk_error_status();
}

/* --- one problem -------------------------------------------------------------------------------------------------- */

static lk_status tune_subject_make_operands(subject *s)
{
    const lk_conv_problem *p = &s->problem->conv;
    double terms = (double)(p->w.dim[1] * p->w.dim[2] * p->w.dim[3]);
    lk_random_key key = {.purpose = lk_random_purpose("tuning")};
    s->x = lk_normal(s->device, p->dtype, p->x, 0, 1, key);
    s->w = lk_uniform(s->device, p->dtype, p->w, -1 / terms, 1 / terms, key);
    s->bias = lk_full(s->device, p->dtype, LK_SHAPE(p->w.dim[0]), 0.1);
    return s->x && s->w && s->bias ? LK_OK : lk_error_status();
}

static lk_status tune_subject_prepare(subject *s)
{
    if (s->problem->is_product)
        return tune_subject_prepare_product(s);
    LK_TRY(tune_subject_make_operands(s));
    return s->problem->conv.op == LK_OP_CONV_BLOCK ? tune_subject_prepare_block(s) : tune_subject_prepare_conv(s);
}

static lk_status tune_subject_time(subject *s, int64_t samples, double *times)
{
    LK_TRY(tune_subject_prepare(s));
    return tune_subject_measure(s, samples, times);
}

lk_status lk__tune_time(lk_device *device, const lk_tune_problem *problem, int64_t samples, double *seconds)
{
    subject s = {.problem = problem, .device = device};
    bool tf32 = device->tf32;
    double *times = lk__calloc((size_t)samples, sizeof *times);
    if (!times)
        return LK_ERR_MEMORY;
    device->tf32 = problem->is_product ? problem->product.tf32 : problem->conv.tf32;
    lk_scope_begin();
    lk_status status = tune_subject_time(&s, samples, times);
    lk_scope_end();
    device->tf32 = tf32;
    if (status == LK_OK)
        *seconds = lk__tune_median(times, samples);
    lk_program_release(s.program);
    lk__free(times);
    return status;
}
