/* Micro-batches: a shard in pieces, one after the other, whose values are added up in the pieces' order. What a sample
 * contributes does not depend on the others, but for batch-norm; how contributions are grouped is part of the plan. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "lockstep/ops.h"

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Recording a pass takes time that grows with the square of the pieces. */
enum { MOST_PIECES = 128 };

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static double activations_of_sample(const lk_model *model)
{
    double count = 0;
    for (int i = 0; i < lk_model_layer_count(model); i++)
        count += (double)lk_shape_count(lk_model_layer(model, i).output);
    return count;
}

static double parameters_of(const lk_model *model)
{
    double count = 0;
    for (int i = 0; i < lk_model_parameter_count(model); i++)
        count += (double)lk_shape_count(lk_model_variable_shape(model, i));
    return count;
}

/* What few samples make stays in a cache until backward reads it; but each piece has gradients of all parameters to
 * add. So pieces are for models that make much with few parameters. Where this comes from: docs/performance.md. */
static int64_t fastest_size(const lk_model *model)
{
    enum { SIZE = 16, LEAST_RATIO = 8 };
    bool much = SIZE * activations_of_sample(model) >= LEAST_RATIO * parameters_of(model);
    return much && !lk_model_has_batch_norm(model) ? SIZE : 0;
}

static lk_status check_size(const lk_model *model, int64_t size, int64_t shard)
{
    if (lk_model_has_batch_norm(model))
        LK_FAIL(LK_ERR_ARGUMENT, "--micro-batch %lld: model %s has batch-norm, which looks at a whole shard",
                (long long)size, lk_model_name(model));
    if (divide_up(shard, size) > MOST_PIECES)
        LK_FAIL(LK_ERR_ARGUMENT, "--micro-batch %lld: a shard of %lld samples has at most %d pieces; %lld or more",
                (long long)size, (long long)shard, MOST_PIECES, (long long)divide_up(shard, MOST_PIECES));
    return LK_OK;
}

/* What leaves no more pieces than there may be, where `size` leaves more; 0 where the shard is one piece. */
static int64_t fit(int64_t size, int64_t shard)
{
    int64_t least = divide_up(shard, MOST_PIECES);
    if (size > 0 && size < least)
        size = least;
    return size < shard ? size : 0;
}

lk_status lk_plan_micro_batch(const lk_model *model, int64_t shard, int64_t asked, int64_t *size)
{
    *size = 0;
    if (asked > 0)
        LK_TRY(check_size(model, asked, shard));
    *size = fit(asked < 0 ? fastest_size(model) : asked, shard);
    return LK_OK;
}

/* Each by shards of its own: how a model is evaluated does not change how it is trained. */
lk_status lk__plan_micro_batches(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    int64_t asked = trainer->config.micro_batch, val_shard = divide_up(plan->val_batch_size, plan->shards);
    LK_TRY(lk_plan_micro_batch(trainer->model, divide_up(plan->batch_size, plan->shards), asked, &plan->micro_batch));
    plan->val_micro_batch = fit(asked < 0 ? fastest_size(trainer->model) : asked, val_shard);
    return LK_OK;
}

/* --- the pieces --------------------------------------------------------------------------------------------------- */

static lk_status take_piece(const lk_shard *shard, int64_t begin, int64_t end, lk_shard *piece)
{
    *piece = *shard;
    piece->images = lk_slice(shard->images, 0, begin, end);
    piece->labels = lk_slice(shard->labels, 0, begin, end);
    piece->indices = lk_slice(shard->indices, 0, begin, end);
    return piece->images && piece->labels && piece->indices ? LK_OK : lk_error_status();
}

/* sums[i] += values[i], in place; what is absent from one is what the other has. */
static lk_status add(lk_tensor **sums, lk_tensor *const *values, int n)
{
    for (int i = 0; i < n; i++) {
        if (sums[i] && values[i])
            LK_TRY(lk_add_into(sums[i], sums[i], values[i]));
        else if (values[i])
            sums[i] = lk_tensor_retain(values[i]);
    }
    return LK_OK;
}

typedef struct pieces {
    lk_trainer *trainer;
    lk__shard_pass_fn pass;
    const lk_shard *shard;
    lk_tensor *seed;
    int n;
    lk_tensor **values; /* of one piece */
} pieces;

static lk_status run_piece(const pieces *p, int64_t begin, int64_t end, lk_tensor **sums)
{
    lk_shard piece;
    for (int i = 0; i < p->n; i++)
        p->values[i] = NULL;
    lk_scope_begin();
    lk_status status = take_piece(p->shard, begin, end, &piece);
    if (status == LK_OK)
        status = p->pass(p->trainer, &piece, p->seed, p->values);
    if (status == LK_OK)
        status = add(sums, p->values, p->n);
    lk_scope_end();
    return status;
}

lk_status lk__run_pieces(lk_trainer *trainer, int64_t size, lk__shard_pass_fn pass, const lk_shard *shard,
                         lk_tensor *seed, int n, lk_tensor **values)
{
    int64_t samples = lk_tensor_count(shard->labels);
    if (size == 0 || samples <= size)
        return pass(trainer, shard, seed, values);
    pieces p = {trainer, pass, shard, seed, n, lk__calloc((size_t)n, sizeof *p.values)};
    lk_status status = p.values ? LK_OK : LK_ERR_MEMORY;
    for (int64_t begin = 0; begin < samples && status == LK_OK; begin += size)
        status = run_piece(&p, begin, begin + size < samples ? begin + size : samples, values);
    lk__free(p.values);
    return lk__scope_adopt_all(values, n, status);
}
