/* Shards' passes as programs: one for each replica, number of samples and kind of pass, recorded when it comes up. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/status.h"

typedef struct cached {
    lk_program *program;
    lk__shard_pass_fn pass;
    int replica;
    int64_t samples;
} cached;

struct lk__shard_programs {
    cached *list;
    int n, capacity;
};

static lk_program *find(const lk__shard_programs *programs, lk__shard_pass_fn pass, int replica, int64_t samples)
{
    for (int i = 0; i < programs->n; i++) {
        const cached *c = &programs->list[i];
        if (c->pass == pass && c->replica == replica && c->samples == samples)
            return c->program;
    }
    return NULL;
}

static lk_status grow(lk__shard_programs *programs)
{
    if (programs->n < programs->capacity)
        return LK_OK;
    int capacity = programs->capacity ? 2 * programs->capacity : 8;
    cached *list = lk__realloc(programs->list, (size_t)capacity, sizeof *list);
    if (!list)
        return LK_ERR_MEMORY;
    programs->list = list;
    programs->capacity = capacity;
    return LK_OK;
}

/* What is recorded: the pass over a shard whose tensors are the program's inputs. The seed comes last, where there is
 * one. */
enum { MAX_INPUTS = 4 };

typedef struct recording {
    lk_trainer *trainer;
    const lk__device_data *data;
    const lk_shard *shard;
    lk__shard_pass_fn pass;
    bool has_seed;
} recording;

/* in[], and how many there are. */
static int inputs_of(const lk__device_data *data, const lk_shard *shard, lk_tensor *seed, lk_tensor **in)
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

static lk_status pass(void *user, lk_tensor *const *in, lk_tensor **out)
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

lk_program *lk__shard_program_record(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                                     const lk_shard *shard, lk_tensor *seed, int n, const lk_program_opts *opts)
{
    lk_tensor *in[MAX_INPUTS];
    int n_in = inputs_of(data, shard, seed, in);
    recording r = {trainer, data, shard, fn, seed != NULL};
    return lk_program_record(shard->device, pass, &r, in, n_in, n, opts);
}

/* Between two updates a device computes several shards of a batch with the same weights; then these may take as much
 * memory again in the order that kernels want. An epoch's last batch is left out: its shards are not that many. */
static size_t bytes_to_keep(const lk_trainer *trainer, lk__shard_pass_fn fn, int64_t samples)
{
    const lk_plan *plan = &trainer->plan;
    bool repeats = plan->shards > trainer->n_devices || plan->accumulate > 1;
    if (fn != lk__training_pass || !repeats || samples < plan->batch_size / plan->shards)
        return 0;
    lk_tensor *const *variables = lk_replicas_variables(trainer->replicas, 0);
    size_t bytes = 0;
    for (int i = 0; i < trainer->n_parameters; i++)
        bytes += (size_t)lk_tensor_count(variables[i]) * sizeof(float);
    return bytes;
}

static lk_status add(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data, const lk_shard *shard,
                     lk_tensor *seed, int n, lk_program **program)
{
    lk__shard_programs *programs = trainer->programs;
    int64_t samples = lk_tensor_shape(shard->indices).dim[0];
    LK_TRY(grow(programs));
    const lk_train_config *config = &trainer->config;
    lk_program_opts opts = {.fuse = config->fuse == LK_FUSE_ON,
                            .recompute = config->recompute,
                            .segment_bytes = (size_t)(1e6 * config->bucket_mb),
                            .keep_bytes = bytes_to_keep(trainer, fn, samples),
                            .graphs = config->graphs == LK_GRAPHS_ON};
    *program = lk__shard_program_record(trainer, fn, data, shard, seed, n, &opts);
    if (!*program)
        return lk_error_status();
    programs->list[programs->n++] = (cached){*program, fn, shard->replica, samples};
    return LK_OK;
}

lk_status lk__shard_programs_new(lk__shard_programs **programs)
{
    *programs = lk__calloc(1, sizeof **programs);
    return *programs ? LK_OK : LK_ERR_MEMORY;
}

void lk__shard_programs_release(lk__shard_programs *programs)
{
    if (!programs)
        return;
    for (int i = 0; i < programs->n; i++)
        lk_program_release(programs->list[i].program);
    lk__free(programs->list);
    lk__free(programs);
}

static lk_status begin_replay(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                              const lk_shard *shard, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay)
{
    lk_tensor *in[MAX_INPUTS];
    lk_program *program = find(trainer->programs, fn, shard->replica, lk_tensor_shape(shard->indices).dim[0]);
    if (!program)
        LK_TRY(add(trainer, fn, data, shard, seed, n, &program));
    inputs_of(data, shard, seed, in);
    return lk_program_begin(program, in, (uint64_t)trainer->update.number, values, replay);
}

lk_status lk__begin_shard_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                               const lk_shard *shard, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay)
{
    lk_shard whole = *shard;
    if (trainer->step_programs)
        return lk__begin_device_pass(trainer, fn, data, shard, seed, n, values, replay);
    if (trainer->programs)
        return begin_replay(trainer, fn, data, shard, seed, n, values, replay);
    *replay = NULL;
    LK_TRY(lk__device_data_prepare(data, lk__device_data_epoch(data, shard->replica), &whole));
    return fn(trainer, &whole, seed, values);
}
