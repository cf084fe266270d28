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

/* What few samples make stays in a cache until backward reads it; but each piece has gradients of all parameters to
 * add. So pieces are for models that make much with few parameters. Where this comes from: docs/performance.md. */
static int64_t fastest_size(const lk_trainer *trainer)
{
    enum { SIZE = 16, LEAST_RATIO = 8 };
    bool much = SIZE * activations_of_sample(trainer->model) >= LEAST_RATIO * (double)trainer->plan.parameters;
    return much && !lk_model_has_batch_norm(trainer->model) ? SIZE : 0;
}

/* The fastest size, or what leaves no more pieces than there may be. */
static int64_t default_size(const lk_trainer *trainer, int64_t shard)
{
    int64_t size = fastest_size(trainer), least = divide_up(shard, MOST_PIECES);
    return size == 0 || size > least ? size : least;
}

static lk_status check_size(const lk_trainer *trainer, int64_t size, int64_t shard)
{
    if (lk_model_has_batch_norm(trainer->model))
        LK_FAIL(LK_ERR_ARGUMENT, "--micro-batch %lld: model %s has batch-norm, which looks at a whole shard",
                (long long)size, trainer->plan.model);
    if (divide_up(shard, size) > MOST_PIECES)
        LK_FAIL(LK_ERR_ARGUMENT, "--micro-batch %lld: a shard of %lld samples has at most %d pieces; %lld or more",
                (long long)size, (long long)shard, MOST_PIECES, (long long)divide_up(shard, MOST_PIECES));
    return LK_OK;
}

lk_status lk__plan_micro_batch(lk_trainer *trainer)
{
    lk_plan *plan = &trainer->plan;
    int64_t size = trainer->config.micro_batch;
    int64_t batch =
        plan->val_batch_size > plan->batch_size && trainer->val_set ? plan->val_batch_size : plan->batch_size;
    int64_t shard = divide_up(batch, plan->shards);
    if (size > 0)
        LK_TRY(check_size(trainer, size, shard));
    else if (size < 0)
        size = default_size(trainer, shard);
    plan->micro_batch = size < shard ? size : 0;
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

lk_status lk__run_pieces(lk_trainer *trainer, lk__shard_pass_fn pass, const lk_shard *shard, lk_tensor *seed, int n,
                         lk_tensor **values)
{
    int64_t samples = lk_tensor_count(shard->labels), size = trainer->plan.micro_batch;
    if (size == 0 || samples <= size)
        return pass(trainer, shard, seed, values);
    pieces p = {trainer, pass, shard, seed, n, lk__calloc((size_t)n, sizeof *p.values)};
    lk_status status = p.values ? LK_OK : LK_ERR_MEMORY;
    for (int64_t begin = 0; begin < samples && status == LK_OK; begin += size)
        status = run_piece(&p, begin, begin + size < samples ? begin + size : samples, values);
    lk__free(p.values);
    return lk__scope_adopt_all(values, n, status);
}
