/* Where a number that is not finite came from. An update whose loss or gradients were not finite has changed nothing,
 * so its passes can be repeated, here on replica 0 alone: shards, samples, dropout and augmentation are functions of
 * the update, and what is found does not depend on how many devices there are. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "lockstep/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMED = 5 };

/* The earliest place at which something was not finite: layers in the order of the forward pass, then the loss, then
 * parameters in the order of the backward pass. Of an update's batches, the first that has it there. */
typedef struct finding {
    int64_t place; /* INT64_MAX: nothing found */
    char what[160];
    int64_t epoch, step; /* from 1 */
    int64_t named[MAX_NAMED], count;
} finding;

typedef struct replay {
    lk_trainer *trainer;
    const lk__update *update;
    lk__shard_pass pass; /* of one shard, or of all with --bn sync */
    lk_tensor **views;   /* [n * variables] */
    int64_t *visited;    /* [n]: layers so far */
    lk_status status;    /* of what a visit could not do */
    finding found;
} replay;

/* --- findings ----------------------------------------------------------------------------------------------------- */

static void note(replay *r, int64_t place, const char *kind, const char *name, int64_t sample)
{
    finding *found = &r->found;
    int64_t step = r->pass.batch->index + 1;
    if (place > found->place || (place == found->place && step > found->step))
        return;
    if (place < found->place) {
        *found = (finding){.place = place, .epoch = r->update->epoch + 1, .step = step};
        snprintf(found->what, sizeof found->what, "%s%.120s", kind, name);
    }
    if (found->count < MAX_NAMED)
        found->named[found->count] = sample;
    found->count++;
}

static int64_t sample_of(const replay *r, int shard, int64_t row)
{
    const lk_batch *batch = r->pass.batch;
    const lk_shard *s = &r->pass.shards[shard];
    return batch->indices[lk_part(batch->count, s->shards, s->index).begin + row];
}

/* The elements as f32, to be freed with lk__free; NULL on failure. */
static float *read_elements(lk_tensor *tensor, int64_t count)
{
    float *values = lk__calloc((size_t)count + 1, sizeof *values);
    lk_scope_begin();
    lk_tensor *plain = lk_tensor_dtype(tensor) == LK_F32 ? tensor : lk_cast(tensor, LK_F32);
    if (values && (!plain || lk_tensor_read(plain, values, (size_t)count * sizeof *values) != LK_OK)) {
        lk__free(values);
        values = NULL;
    }
    lk_scope_end();
    return values;
}

static bool all_finite(const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* tensor: [N, …], a row for each of the shard's samples. */
static lk_status look_at_rows(replay *r, int shard, lk_tensor *tensor, int64_t place, const char *kind,
                              const char *name)
{
    int64_t count = lk_tensor_count(tensor), rows = lk_tensor_shape(tensor).dim[0];
    if (place > r->found.place || count == 0)
        return LK_OK;
    float *values = read_elements(tensor, count);
    if (!values)
        return lk_error_status();
    for (int64_t i = 0; i < rows; i++)
        if (!all_finite(values + i * (count / rows), count / rows))
            note(r, place, kind, name, sample_of(r, shard, i));
    lk__free(values);
    return LK_OK;
}

static void visit(void *user, const char *path, int shard, lk_tensor *y)
{
    replay *r = user;
    int64_t place = r->visited[shard]++;
    if (r->status == LK_OK)
        r->status = look_at_rows(r, shard, y, place, "the output of layer ", path);
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

static lk_tensor *loss(const replay *r, int shard, lk_reduction reduction)
{
    const lk__shard_pass *pass = &r->pass;
    return lk_smoothed_cross_entropy(pass->logits[shard], pass->shards[shard].labels, r->trainer->plan.label_smoothing,
                                     reduction);
}

static lk_status look_at_layers(replay *r)
{
    lk_forward_opts opts = lk__shard_pass_opts(&r->pass);
    opts.visit = visit;
    opts.visit_user = r;
    memset(r->visited, 0, (size_t)r->pass.n * sizeof *r->visited);
    LK_TRY(lk__shard_pass_forward(&r->pass, &opts));
    LK_TRY(r->status);
    for (int s = 0; s < r->pass.n; s++) {
        lk_tensor *each = loss(r, s, LK_REDUCTION_NONE);
        LK_TRY(each ? look_at_rows(r, s, each, INT32_MAX, "the loss", "") : lk_error_status());
    }
    return LK_OK;
}

static lk_status forward(void *user)
{
    replay *r = user;
    lk_forward_opts opts = lk__shard_pass_opts(&r->pass);
    LK_TRY(lk__shard_pass_forward(&r->pass, &opts));
    for (int s = 0; s < r->pass.n; s++) {
        r->pass.losses[s] = loss(r, s, LK_REDUCTION_SUM);
        if (!r->pass.losses[s])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status look_at_gradient(replay *r, int shard, int parameter)
{
    int p = r->trainer->n_parameters;
    int64_t place = (int64_t)INT32_MAX + p - parameter;
    lk_tensor *gradient = r->pass.gradients[(int64_t)shard * p + parameter];
    if (!gradient || place > r->found.place)
        return LK_OK;
    int64_t count = lk_tensor_count(gradient);
    float *values = read_elements(gradient, count);
    if (!values)
        return lk_error_status();
    if (!all_finite(values, count))
        for (int64_t i = 0; i < lk_tensor_count(r->pass.shards[shard].labels); i++)
            note(r, place, "the gradient of ", lk_model_variable_name(r->trainer->model, parameter),
                 sample_of(r, shard, i));
    lk__free(values);
    return LK_OK;
}

static lk_status look_at_gradients(replay *r)
{
    LK_TRY(lk__shard_pass_gradients(&r->pass, forward, r));
    for (int s = 0; s < r->pass.n; s++)
        for (int i = r->trainer->n_parameters - 1; i >= 0; i--)
            LK_TRY(look_at_gradient(r, s, i));
    return LK_OK;
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

static lk_status take_shard(replay *r, int64_t index)
{
    lk_trainer *trainer = r->trainer;
    lk_tensor **views = r->views + (int64_t)r->pass.n * trainer->n_variables;
    lk_tensor *seed = lk_full(trainer->devices[0], LK_F32, LK_SCALAR, 1.0 / (double)r->update->samples);
    LK_TRY(seed ? lk__view_variables(trainer, 0, views) : lk_error_status());
    return lk__shard_pass_add(&r->pass, index, 0, views, seed);
}

typedef lk_status (*look_fn)(replay *r);

static lk_status look_at_shards(replay *r, lk_batch *batch, int64_t begin, int64_t end, look_fn look)
{
    lk_status status = LK_OK;
    lk__shard_pass_start(&r->pass, r->update, batch);
    lk_scope_begin();
    for (int64_t s = begin; s < end && status == LK_OK; s++)
        status = take_shard(r, s);
    if (status == LK_OK && r->pass.n > 0)
        status = look(r);
    lk_scope_end();
    return status;
}

static lk_status look_at_batch(replay *r, lk_batch *batch, look_fn look)
{
    int64_t shards = r->trainer->plan.shards;
    if (r->trainer->plan.batch_norm == LK_BN_SYNC)
        return look_at_shards(r, batch, 0, shards, look);
    for (int64_t s = 0; s < shards; s++)
        LK_TRY(look_at_shards(r, batch, s, s + 1, look));
    return LK_OK;
}

static lk_status look_at_batches(replay *r, lk_loader *loader, look_fn look)
{
    lk_status status = lk_loader_start_at(loader, r->update->epoch, r->update->first);
    for (int64_t b = 0; b < r->update->batches && status == LK_OK; b++) {
        lk_batch *batch;
        status = lk_loader_next(loader, &batch);
        if (status != LK_OK || !batch)
            break;
        status = look_at_batch(r, batch, look);
        lk_batch_release(batch);
    }
    return status;
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static lk_status report(const finding *found, const lk__update *update)
{
    char named[160] = "";
    size_t used = 0;
    if (found->place == INT64_MAX)
        LK_FAIL(LK_ERR_NUMERIC,
                "epoch %lld, step %lld: each sample's loss and each shard's gradients are finite, their sums are not; "
                "a smaller --base-lr or --clip-norm may help",
                (long long)update->epoch + 1, (long long)(update->first + update->batches));
    for (int64_t i = 0; i < found->count && i < MAX_NAMED; i++)
        used +=
            (size_t)snprintf(named + used, sizeof named - used, "%s%lld", i ? ", " : "", (long long)found->named[i]);
    if (found->count > MAX_NAMED)
        snprintf(named + used, sizeof named - used, " and %lld more", (long long)(found->count - MAX_NAMED));
    LK_FAIL(LK_ERR_NUMERIC, "epoch %lld, step %lld: %s is not finite, first seen with %s %s of the training set",
            (long long)found->epoch, (long long)found->step, found->what, found->count == 1 ? "sample" : "samples",
            named);
}

static lk_status allocate(replay *r)
{
    const lk_trainer *trainer = r->trainer;
    size_t shards = (size_t)trainer->plan.shards;
    LK_TRY(lk__shard_pass_init(&r->pass, r->trainer, trainer->plan.shards));
    r->views = lk__calloc(shards * (size_t)trainer->n_variables, sizeof(lk_tensor *));
    r->visited = lk__calloc(shards, sizeof *r->visited);
    return r->views && r->visited ? LK_OK : LK_ERR_MEMORY;
}

static void release(replay *r)
{
    lk__shard_pass_free(&r->pass);
    lk__free(r->views);
    lk__free(r->visited);
}

lk_status lk__replay_update(lk_trainer *trainer, const lk__update *update)
{
    lk_loader *loader = NULL;
    replay r = {.trainer = trainer, .update = update, .found = {.place = INT64_MAX}};
    lk__loader_plan plan = {.dataset = trainer->train_set,
                            .data = trainer->train_data,
                            .batch_size = trainer->plan.batch_size,
                            .training = true,
                            .all_shards = true};
    lk_status status = allocate(&r);
    if (status == LK_OK)
        status = lk__new_loader(trainer, &plan, &loader);
    if (status == LK_OK)
        status = look_at_batches(&r, loader, look_at_layers);
    if (status == LK_OK && r.found.place == INT64_MAX)
        status = look_at_batches(&r, loader, look_at_gradients);
    lk_loader_release(loader);
    release(&r);
    return status == LK_OK ? report(&r.found, update) : status;
}
