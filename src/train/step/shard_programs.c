/* There is a program for each replica, number of samples and kind of pass. It is recorded when it is first needed. */
#include "train/step/shard_programs.h"

#include "base/mem.h"
#include "base/status.h"
#include "program/defer.h"
#include "train/step/device_data.h"
#include "train/step/step.h"
#include "train/step/step_program.h"
#include "train/trainer.h"
#include "train/trainer_sums.h"

typedef struct cached {
    lk_program *program;
    lk__shard_pass_fn pass;
    int replica;
    int64_t samples;
} cached;

struct lk_shard_programs {
    cached *list;
    int64_t n, capacity;
};

/* A recording calls the pass over a shard whose tensors are the program's inputs. */
enum { MAX_INPUTS = 4 };

typedef struct recording {
    lk_trainer *trainer;
    const lk_device_data *data;
    const lk_shard *shard;
    lk__shard_pass_fn pass;
    bool has_seed;
} recording;

/* Sets in[]; returns the number of inputs. */
static int shard_programs_inputs(const lk_device_data *data, const lk_shard *shard, lk_tensor *seed, lk_tensor **in)
{
    int n = 0;
    if (!data) {
        in[n++] = shard->images;
        in[n++] = shard->labels;
    }
    in[n++] = shard->indices;
    if (data)
        in[n++] = lk__device_data_epoch(data, shard->replica);
    if (seed)
        in[n++] = seed;
    return n;
}

static lk_status shard_programs_record_pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const recording *r = user;
    lk_shard shard = *r->shard;
    if (r->data) {
        shard.indices = *in++;
        LK_TRY(lk__device_data_prepare(r->data, *in++, &shard));
    } else {
        shard.images = *in++;
        shard.labels = *in++;
        shard.indices = *in++;
    }
    return r->pass(r->trainer, &shard, r->has_seed ? *in : NULL, out);
}

lk_program *lk__shard_program_record(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                                     const lk_shard *shard, lk_tensor *seed, int n, const lk_program_opts *opts)
{
    lk_tensor *in[MAX_INPUTS];
    int n_in = shard_programs_inputs(data, shard, seed, in);
    recording r = {trainer, data, shard, fn, seed != NULL};
    return lk_program_record(shard->device, shard_programs_record_pass, &r, in, n_in, n, opts);
}

/* If a device computes several shards between two updates, with the same weights, the kernels may keep copies of these
 * in their own order, as large as the weights. Shards of an epoch's last, smaller batch are too few for that. */
static size_t shard_programs_keep_bytes(const lk_trainer *trainer, lk__shard_pass_fn fn, int64_t samples)
{
    const lk_plan *plan = &trainer->plan;
    bool repeats = plan->shards > trainer->n_devices || plan->accumulate > 1;
    if (fn != lk__training_pass || !repeats || samples < plan->batch_size / plan->shards)
        return 0;
    return (size_t)plan->parameters * sizeof(float);
}

lk_status lk__shard_programs_new(lk_shard_programs **programs)
{
    *programs = lk__calloc(1, sizeof **programs);
    return *programs ? LK_OK : LK_ERR_MEMORY;
}

void lk__shard_programs_release(lk_shard_programs *programs)
{
    if (!programs)
        return;
    for (int64_t i = 0; i < programs->n; i++)
        lk_program_release(programs->list[i].program);
    lk__free(programs->list);
    lk__free(programs);
}

/* Finds the program of a pass, or records it. */
static lk_status shard_programs_get(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                                    const lk_shard *shard, lk_tensor *seed, int n, lk_program **program)
{
    const lk_train_config *config = &trainer->config;
    lk_shard_programs *programs = trainer->programs.shard;
    int64_t samples = lk_tensor_shape(shard->indices).dim[0];
    for (int64_t i = 0; i < programs->n; i++) {
        const cached *c = &programs->list[i];
        if (c->pass == fn && c->replica == shard->replica && c->samples == samples) {
            *program = c->program;
            return LK_OK;
        }
    }
    LK_TRY(LK_GROW(programs->list, &programs->capacity, programs->n + 1));
    lk_program_opts opts = {.fuse = config->execution.fuse == LK_FUSE_ON,
                            .recompute = config->execution.recompute,
                            .keep_bytes = shard_programs_keep_bytes(trainer, fn, samples),
                            .graphs = config->execution.graphs == LK_GRAPHS_ON};
    if (fn == lk__training_pass)
        lk__trainer_sums_cut(trainer, &opts);
    *program = lk__shard_program_record(trainer, fn, data, shard, seed, n, &opts);
    if (!*program)
        return lk_error_status();
    if (fn == lk__training_pass && trainer->plan.shards > trainer->n_devices) /* else nothing is added up on a device */
        lk__program_defer_products(*program);
    programs->list[programs->n++] = (cached){*program, fn, shard->replica, samples};
    return LK_OK;
}

lk_status lk__begin_shard_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk_device_data *data,
                               const lk_shard *shard, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay)
{
    if (lk__step_program_units(trainer, fn))
        return lk__begin_device_pass(trainer, fn, data, shard, seed, n, values, replay);
    if (trainer->programs.shard) {
        lk_tensor *in[MAX_INPUTS];
        lk_program *program;
        LK_TRY(shard_programs_get(trainer, fn, data, shard, seed, n, &program));
        shard_programs_inputs(data, shard, seed, in);
        return lk_program_begin(program, in, (uint64_t)trainer->progress.update.number, values, replay);
    }
    lk_shard whole = *shard;
    *replay = NULL;
    LK_TRY(lk__device_data_prepare(data, lk__device_data_epoch(data, shard->replica), &whole));
    return fn(trainer, &whole, seed, values);
}
