/* An update whose loss or gradients are not finite changes nothing, so its passes can be repeated, here on replica 0
 * alone. Shards, samples, dropout and augmentation are functions of the update, so the finding does not depend on the
 * number of devices. */
#include "train/step/replay.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/step/groups.h"
#include "train/step/shard_pass.h"
#include "train/step/step.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMED = 5 };

/* The earliest position at which a value was not finite, and the first of the update's batches in which it was.
 * Positions number layers in the order of the forward pass, then the loss, then parameters in the order of the backward
 * pass. */
typedef struct finding {
    int64_t position; /* INT64_MAX: nothing found */
    char what[160];
    int64_t epoch, step; /* from 1 */
    int64_t named[MAX_NAMED], count;
} finding;

typedef struct replay {
    lk_trainer *trainer;
    const lk_update *update;
    lk_shard_pass pass; /* of a group's shards */
    int64_t *visited;   /* [n]: layers visited so far */
    lk_status status;   /* the first error of a visit */
    finding found;
} replay;

/* --- findings ----------------------------------------------------------------------------------------------------- */

static void replay_update_note(replay *r, int64_t position, const char *kind, const char *name, int64_t sample)
{
    finding *found = &r->found;
    int64_t step = r->pass.batch->index + 1;
    if (position > found->position || (position == found->position && step > found->step))
        return;
    if (position < found->position) {
        *found = (finding){.position = position, .epoch = r->update->epoch + 1, .step = step};
        snprintf(found->what, sizeof found->what, "%s%.120s", kind, name);
    }
    if (found->count < MAX_NAMED)
        found->named[found->count] = sample;
    found->count++;
}

static int64_t replay_update_sample(const replay *r, int shard, int64_t row)
{
    const lk_batch *batch = r->pass.batch;
    const lk_shard *s = &r->pass.shards[shard];
    return batch->indices[lk_part(batch->count, s->shards, s->index).begin + row];
}

/* Returns the elements as f32; the caller frees them with lk__free. NULL on failure. */
static float *replay_update_read_f32(lk_tensor *tensor, int64_t count)
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

static bool replay_update_is_finite(const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* Notes the samples whose rows are not finite. tensor: [N, …], a row for each of the shard's samples. */
static lk_status replay_update_check_rows(replay *r, int shard, lk_tensor *tensor, int64_t position, const char *kind,
                                          const char *name)
{
    int64_t count = lk_tensor_count(tensor), rows = lk_tensor_shape(tensor).dim[0];
    if (position > r->found.position || count == 0)
        return LK_OK;
    float *values = replay_update_read_f32(tensor, count);
    if (!values)
        return lk_error_status();
    for (int64_t i = 0; i < rows; i++)
        if (!replay_update_is_finite(values + i * (count / rows), count / rows))
            replay_update_note(r, position, kind, name, replay_update_sample(r, shard, i));
    lk__free(values);
    return LK_OK;
}

static void replay_update_visit_layer(void *user, const char *path, int shard, lk_tensor *y)
{
    replay *r = user;
    int64_t position = r->visited[shard]++;
    if (r->status == LK_OK)
        r->status = replay_update_check_rows(r, shard, y, position, "the output of layer ", path);
}

/* --- the passes --------------------------------------------------------------------------------------------------- */

static lk_tensor *replay_update_loss(const replay *r, int shard, lk_reduction reduction)
{
    return lk__training_loss(r->trainer, r->pass.logits[shard], &r->pass.shards[shard], reduction);
}

static lk_status replay_update_check_layers(replay *r)
{
    lk_forward_opts opts = lk__shard_pass_opts(&r->pass);
    opts.visit = replay_update_visit_layer;
    opts.visit_user = r;
    memset(r->visited, 0, (size_t)r->pass.n * sizeof *r->visited);
    LK_TRY(lk__shard_pass_forward(&r->pass, &opts));
    LK_TRY(r->status);
    for (int s = 0; s < r->pass.n; s++) {
        lk_tensor *each = replay_update_loss(r, s, LK_REDUCTION_NONE);
        LK_TRY(each ? replay_update_check_rows(r, s, each, INT32_MAX, "the loss", "") : lk_error_status());
    }
    return LK_OK;
}

static lk_status replay_update_forward(void *user)
{
    replay *r = user;
    lk_forward_opts opts = lk__shard_pass_opts(&r->pass);
    LK_TRY(lk__shard_pass_forward(&r->pass, &opts));
    for (int s = 0; s < r->pass.n; s++) {
        r->pass.losses[s] = replay_update_loss(r, s, LK_REDUCTION_SUM);
        if (!r->pass.losses[s])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status replay_update_check_gradient(replay *r, int shard, int parameter)
{
    int p = r->trainer->n_parameters;
    int64_t position = (int64_t)INT32_MAX + p - parameter;
    lk_tensor *gradient = r->pass.gradients[(int64_t)shard * p + parameter];
    if (!gradient || position > r->found.position)
        return LK_OK;
    int64_t count = lk_tensor_count(gradient);
    float *values = replay_update_read_f32(gradient, count);
    if (!values)
        return lk_error_status();
    if (!replay_update_is_finite(values, count))
        for (int64_t i = 0; i < lk_tensor_count(r->pass.shards[shard].labels); i++)
            replay_update_note(r, position, "the gradient of ", lk_model_variable_name(r->trainer->model, parameter),
                               replay_update_sample(r, shard, i));
    lk__free(values);
    return LK_OK;
}

static lk_status replay_update_check_gradients(replay *r)
{
    LK_TRY(lk__shard_pass_gradients(&r->pass, replay_update_forward, r));
    for (int s = 0; s < r->pass.n; s++)
        for (int i = r->trainer->n_parameters - 1; i >= 0; i--)
            LK_TRY(replay_update_check_gradient(r, s, i));
    return LK_OK;
}

/* --- shards ------------------------------------------------------------------------------------------------------- */

typedef lk_status (*replay_check_fn)(replay *r);

static lk_status replay_update_shards(replay *r, lk_batch *batch, lk_range shards, replay_check_fn check)
{
    lk_trainer *trainer = r->trainer;
    lk_status status = LK_OK;
    lk__shard_pass_start(&r->pass, r->update, batch, batch->count);
    lk_scope_begin();
    for (int64_t s = shards.begin; s < shards.end && status == LK_OK; s++) {
        lk_tensor *seed = lk_full(trainer->devices[0], LK_F32, LK_SCALAR, 1.0 / (double)r->update->samples);
        status = seed ? lk__shard_pass_add(&r->pass, s, 0, seed) : lk_error_status();
    }
    if (status == LK_OK && r->pass.n > 0)
        status = check(r);
    lk_scope_end();
    return status;
}

static lk_status replay_update_batch(replay *r, lk_batch *batch, replay_check_fn check)
{
    lk_range group = {0, 0};
    while (group.end < r->trainer->plan.shards) {
        group = lk__group_of(r->trainer, group.end);
        LK_TRY(replay_update_shards(r, batch, group, check));
    }
    return LK_OK;
}

static lk_status replay_update_batches(replay *r, lk_loader *loader, replay_check_fn check)
{
    lk_status status = lk_loader_start_at(loader, r->update->epoch, r->update->first);
    for (int64_t b = 0; b < r->update->batches && status == LK_OK; b++) {
        lk_batch *batch;
        status = lk_loader_next(loader, &batch);
        if (status != LK_OK || !batch)
            break;
        status = replay_update_batch(r, batch, check);
        lk_batch_release(batch);
    }
    return status;
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static lk_status replay_update_report(const finding *found, const lk_update *update)
{
    char named[160] = "";
    size_t used = 0;
    if (found->position == INT64_MAX)
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

lk_status lk__replay_update(lk_trainer *trainer, const lk_update *update)
{
    lk_loader *loader = NULL;
    replay r = {.trainer = trainer, .update = update, .found = {.position = INT64_MAX}};
    lk_loader_plan plan = {.dataset = trainer->data.train_set,
                           .data = trainer->data.train_on_devices,
                           .batch_size = trainer->plan.batch_size,
                           .training = true,
                           .all_shards = true};
    lk_status status = lk__shard_pass_init(&r.pass, trainer, trainer->plan.shards);
    r.visited = lk__calloc((size_t)trainer->plan.shards, sizeof *r.visited);
    if (!r.visited)
        status = LK_ERR_MEMORY;
    if (status == LK_OK)
        status = lk__new_loader(trainer, &plan, &loader);
    if (status == LK_OK)
        status = replay_update_batches(&r, loader, replay_update_check_layers);
    if (status == LK_OK && r.found.position == INT64_MAX)
        status = replay_update_batches(&r, loader, replay_update_check_gradients);
    lk_loader_release(loader);
    lk__shard_pass_free(&r.pass);
    lk__free(r.visited);
    return status == LK_OK ? replay_update_report(&r.found, update) : status;
}
