/* Class probabilities of a data set's samples, in the set's order. Batches are cut into shards as in an evaluation. */
#include "base/mem.h"
#include "base/status.h"
#include "train/step/shard_run.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

/* The shards of one batch. Their probabilities are read after all shards have been pushed. */
typedef struct prediction {
    lk_trainer *trainer;
    lk_dataset *dataset;
    lk_tensor **probabilities; /* [shard], owned by the open scope; NULL: the shard has no samples */
} prediction;

static lk_status prediction_push_shard(const prediction *p, lk_batch *batch, int replica, int64_t index)
{
    lk_trainer *trainer = p->trainer;
    lk_shard shard = {0};
    lk_range samples = lk_part(batch->count, trainer->plan.shards, index);
    p->probabilities[index] = NULL;
    if (samples.begin == samples.end)
        return LK_OK;
    LK_TRY(lk__shard_of_batch(p->dataset, batch, samples, trainer->devices[replica], &shard));
    lk_tensor *logits = lk_model_forward(trainer->model, lk_trainer_variables(trainer, replica), shard.images,
                                         &(lk_forward_opts){.dtype = trainer->plan.dtype});
    p->probabilities[index] = lk_softmax(logits, 1);
    return p->probabilities[index] ? LK_OK : lk_error_status();
}

static lk_status prediction_push_and_read(const prediction *p, lk_batch *batch, float *out)
{
    int64_t shards = p->trainer->plan.shards;
    for (int d = 0; d < p->trainer->n_devices; d++) {
        lk_range own = lk_part(shards, p->trainer->n_devices, d);
        for (int64_t s = own.begin; s < own.end; s++)
            LK_TRY(prediction_push_shard(p, batch, d, s));
    }
    for (int64_t s = 0; s < shards; s++) {
        lk_tensor *shard = p->probabilities[s];
        if (!shard)
            continue;
        int64_t count = lk_tensor_count(shard);
        LK_TRY(lk_tensor_read(shard, out, (size_t)count * sizeof *out));
        out += count;
    }
    return LK_OK;
}

static lk_status prediction_run(const prediction *p, lk_loader *loader, float *probabilities)
{
    int64_t classes = lk_dataset_classes(p->trainer->data.train_set);
    lk_batch *batch;
    LK_TRY(lk_loader_start(loader, 0));
    for (;;) {
        LK_TRY(lk_loader_next(loader, &batch));
        if (!batch)
            return LK_OK;
        lk_scope_begin();
        lk_status status = prediction_push_and_read(p, batch, probabilities);
        lk_scope_end();
        probabilities += batch->count * classes;
        lk_batch_release(batch);
        LK_TRY(status);
    }
}

lk_status lk_trainer_predict(lk_trainer *trainer, lk_dataset *dataset, float *probabilities)
{
    lk_loader *loader;
    LK_TRY(lk__check_images(trainer, dataset, LK_ERR_SHAPE));
    prediction p = {trainer, dataset, lk__calloc((size_t)trainer->plan.shards, sizeof(lk_tensor *))};
    if (!p.probabilities)
        return LK_ERR_MEMORY;
    lk_loader_plan plan = {.dataset = dataset,
                           .batch_size = trainer->plan.val_batch_size,
                           .all_shards = true,
                           .workers = (int)trainer->config.data.workers};
    lk_status status = lk__new_loader(trainer, &plan, &loader);
    if (status == LK_OK) {
        bool swaps = !trainer->progress.averaged; /* not in an evaluation's callback */
        if (swaps)
            status = lk__trainer_swap_average(trainer, LK_OK);
        if (status == LK_OK)
            status = prediction_run(&p, loader, probabilities);
        if (swaps && trainer->progress.averaged)
            status = lk__trainer_swap_average(trainer, status);
        lk_loader_release(loader);
    }
    lk__free(p.probabilities);
    return status;
}
