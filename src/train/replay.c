/* Where a number that is not finite came from. An update whose loss or gradients were not finite has changed nothing,
 * so its passes can be repeated, here on replica 0 alone: shards, samples, dropout and augmentation are functions of
 * the update, and what is found does not depend on how many devices there are. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"
#include "lockstep/autograd.h"
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
    lk_batch *batch;
    /* Shards that run in one pass: one, or all with --bn sync. */
    int n;
    lk_shard *shards;
    const int64_t **samples; /* [n]: the shard's part of batch->indices */
    int64_t *visited;        /* [n]: layers so far */
    lk_tensor *const **sets; /* [n] variables */
    lk_tensor **views;       /* [n * variables] */
    lk_tensor **watched;     /* [n * parameters] */
    lk_tensor **images, **indices, **logits, **losses, **seeds, **gradients;
    lk_status status; /* of what a visit could not do */
    finding found;
} replay;

/* --- findings ----------------------------------------------------------------------------------------------------- */

static void note(replay *r, int64_t place, const char *kind, const char *name, int64_t sample)
{
    finding *found = &r->found;
    int64_t step = r->batch->index + 1;
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
            note(r, place, kind, name, r->samples[shard][i]);
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

static lk_status sync(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    (void)user;
    return lk_allreduce_recorded(parts, sums, n);
}

static lk_status forward(replay *r, bool look)
{
    lk_forward_opts opts = lk__training_opts(r->trainer, r->update);
    opts.indices = r->indices;
    opts.global_batch = r->batch->count;
    if (r->trainer->plan.batch_norm == LK_BN_SYNC)
        opts.sync = sync;
    if (look) {
        opts.visit = visit;
        opts.visit_user = r;
        memset(r->visited, 0, (size_t)r->n * sizeof *r->visited);
    }
    LK_TRY(lk_model_forward_shards(r->trainer->model, r->n, r->sets, r->images, &opts, r->logits));
    return r->status;
}

static lk_tensor *loss(const replay *r, int shard, lk_reduction reduction)
{
    return lk_smoothed_cross_entropy(r->logits[shard], r->shards[shard].labels, r->trainer->plan.label_smoothing,
                                     reduction);
}

static lk_status look_at_layers(replay *r)
{
    LK_TRY(forward(r, true));
    for (int s = 0; s < r->n; s++) {
        lk_tensor *each = loss(r, s, LK_REDUCTION_NONE);
        LK_TRY(each ? look_at_rows(r, s, each, INT32_MAX, "the loss", "") : lk_error_status());
    }
    return LK_OK;
}

static lk_status backward(replay *r)
{
    int p = r->trainer->n_parameters;
    lk_tape *tape = lk_tape_begin(r->watched, r->n * p);
    if (!tape)
        return lk_error_status();
    lk_status status = forward(r, false);
    for (int s = 0; s < r->n && status == LK_OK; s++) {
        r->losses[s] = loss(r, s, LK_REDUCTION_SUM);
        status = r->losses[s] ? LK_OK : lk_error_status();
    }
    if (status == LK_OK)
        status = lk_tape_gradients(tape, r->losses, r->seeds, r->n, r->gradients);
    lk_tape_release(tape);
    return status;
}

static lk_status look_at_gradient(replay *r, int shard, int parameter)
{
    int p = r->trainer->n_parameters;
    int64_t place = (int64_t)INT32_MAX + p - parameter;
    lk_tensor *gradient = r->gradients[(int64_t)shard * p + parameter];
    if (!gradient || place > r->found.place)
        return LK_OK;
    int64_t count = lk_tensor_count(gradient);
    float *values = read_elements(gradient, count);
    if (!values)
        return lk_error_status();
    if (!all_finite(values, count))
        for (int64_t i = 0; i < lk_tensor_count(r->shards[shard].labels); i++)
            note(r, place, "the gradient of ", lk_model_variable_name(r->trainer->model, parameter),
                 r->samples[shard][i]);
    lk__free(values);
    return LK_OK;
}

static lk_status look_at_gradients(replay *r)
{
    LK_TRY(backward(r));
    for (int s = 0; s < r->n; s++)
        for (int i = r->trainer->n_parameters - 1; i >= 0; i--)
            LK_TRY(look_at_gradient(r, s, i));
    return LK_OK;
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

/* Takes shard `index` of the batch as number r->n of the pass. */
static lk_status take_shard(replay *r, int64_t index)
{
    lk_trainer *trainer = r->trainer;
    lk_range samples = lk_part(r->batch->count, trainer->plan.shards, index);
    if (samples.begin == samples.end)
        return LK_OK;
    int p = trainer->n_parameters, n = trainer->n_variables, i = r->n;
    lk_shard *shard = &r->shards[i];
    LK_TRY(lk__shard_of_batch(trainer->train_set, r->batch, samples, trainer->devices[0], shard));
    r->samples[i] = r->batch->indices + samples.begin;
    r->images[i] = shard->images;
    r->indices[i] = shard->indices;
    r->seeds[i] = lk_full(trainer->devices[0], LK_F32, LK_SCALAR, 1.0 / (double)r->update->samples);
    lk_tensor **views = r->views + (int64_t)i * n;
    for (int v = 0; v < n; v++) {
        lk_tensor *variable = lk_trainer_variables(trainer, 0)[v];
        views[v] = v < p ? lk_reshape(variable, lk_tensor_shape(variable)) : variable;
        if (!views[v])
            return lk_error_status();
    }
    memcpy(r->watched + (int64_t)i * p, views, (size_t)p * sizeof(lk_tensor *));
    r->sets[i] = views;
    r->n++;
    return r->seeds[i] ? LK_OK : lk_error_status();
}

typedef lk_status (*look_fn)(replay *r);

static lk_status look_at_shards(replay *r, int64_t begin, int64_t end, look_fn look)
{
    lk_status status = LK_OK;
    r->n = 0;
    lk_scope_begin();
    for (int64_t s = begin; s < end && status == LK_OK; s++)
        status = take_shard(r, s);
    if (status == LK_OK && r->n > 0)
        status = look(r);
    lk_scope_end();
    return status;
}

static lk_status look_at_batch(replay *r, look_fn look)
{
    int64_t shards = r->trainer->plan.shards;
    if (r->trainer->plan.batch_norm == LK_BN_SYNC)
        return look_at_shards(r, 0, shards, look);
    for (int64_t s = 0; s < shards; s++)
        LK_TRY(look_at_shards(r, s, s + 1, look));
    return LK_OK;
}

static lk_status look_at_batches(replay *r, lk_loader *loader, look_fn look)
{
    lk_status status = lk_loader_start_at(loader, r->update->epoch, r->update->first);
    for (int64_t b = 0; b < r->update->batches && status == LK_OK; b++) {
        status = lk_loader_next(loader, &r->batch);
        if (status != LK_OK || !r->batch)
            break;
        status = look_at_batch(r, look);
        lk_batch_release(r->batch);
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
    size_t shards = (size_t)r->trainer->plan.shards, n = (size_t)r->trainer->n_variables,
           p = (size_t)r->trainer->n_parameters;
    r->shards = lk__calloc(shards, sizeof *r->shards);
    r->samples = lk__calloc(shards, sizeof *r->samples);
    r->visited = lk__calloc(shards, sizeof *r->visited);
    r->sets = lk__calloc(shards, sizeof *r->sets);
    r->views = lk__calloc(shards * (n + 2 * p + 5), sizeof *r->views);
    if (!r->shards || !r->samples || !r->visited || !r->sets || !r->views)
        return LK_ERR_MEMORY;
    r->watched = r->views + shards * n;
    r->gradients = r->watched + shards * p;
    r->images = r->gradients + shards * p;
    r->indices = r->images + shards;
    r->logits = r->indices + shards;
    r->losses = r->logits + shards;
    r->seeds = r->losses + shards;
    return LK_OK;
}

static void release(replay *r)
{
    lk__free(r->shards);
    lk__free(r->samples);
    lk__free(r->visited);
    lk__free(r->sets);
    lk__free(r->views);
}

lk_status lk__replay_update(lk_trainer *trainer, const lk__update *update)
{
    lk_loader *loader = NULL;
    replay r = {.trainer = trainer, .update = update, .found = {.place = INT64_MAX}};
    lk_status status = allocate(&r);
    if (status == LK_OK)
        status = lk__new_loader(trainer, trainer->train_set, trainer->plan.batch_size, true, 0, &loader);
    if (status == LK_OK)
        status = look_at_batches(&r, loader, look_at_layers);
    if (status == LK_OK && r.found.place == INT64_MAX)
        status = look_at_batches(&r, loader, look_at_gradients);
    lk_loader_release(loader);
    release(&r);
    return status == LK_OK ? report(&r.found, update) : status;
}
