/* A program is recorded twice: the first recording only finds how many sums of groups there are, and their shapes. */
#include "train/step/cut_programs.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "core/tensor.h"
#include "program/program.h"
#include "train/step/groups.h"
#include "train/step/shard_pass.h"
#include "train/step/shard_run.h"
#include "train/trainer.h"
#include "lockstep/ops.h"

enum { IMAGES, LABELS, INDICES, SEED, FIRST_SUM };

typedef struct cut_program {
    lk_program *program;
    int position, replica;
    int64_t samples, group; /* of the shard, and of its group */
    int cuts;
    lk_tensor **in, **out; /* of the pass that has begun last */
} cut_program;

struct lk_cut_programs {
    cut_program *list;
    int64_t n, capacity;
};

/* --- recording ---------------------------------------------------------------------------------------------------- */

enum { MOST_SUMS = 4096 };

/* The pass that is recorded. */
typedef struct recording {
    lk_shard_pass pass; /* first, so that a function of the pass finds the rest */
    lk_trainer *trainer;
    const lk_shard *shard;
    int64_t count;
    int n;                                  /* sums so far */
    lk_tensor *const *given, **parts;       /* NULL while they are counted */
    lk_tensor *like[FIRST_SUM + MOST_SUMS]; /* of the inputs; those of sums are parts of the first recording */
} recording;

static lk_status cut_programs_add_groups(lk_shard_pass *pass, lk_call_site at, lk_tensor *const *parts,
                                         lk_tensor **sums)
{
    recording *r = (recording *)pass;
    lk_tensor *sum = parts[0];
    if (r->n == MOST_SUMS)
        LK_FAIL(LK_ERR_UNSUPPORTED, "batch-norm over shards: a network may have at most %d layers of it",
                MOST_SUMS / 2);
    if (r->given) {
        r->parts[r->n] = parts[0];
        sum = r->given[r->n];
    } else {
        r->like[FIRST_SUM + r->n] = lk_tensor_retain(parts[0]);
    }
    r->n++;
    sums[0] = lk_reshape_at(at, sum, lk_tensor_shape(sum));
    return sums[0] ? LK_OK : lk_error_status();
}

static lk_status cut_programs_record_pass(void *user, lk_tensor *const *in, lk_tensor **out)
{
    recording *r = user;
    lk_shard shard = *r->shard;
    shard.images = in[IMAGES];
    shard.labels = in[LABELS];
    shard.indices = in[INDICES];
    bool counts = !r->parts;
    r->n = 0;
    r->given = counts ? NULL : in + FIRST_SUM;
    r->parts = counts ? NULL : out + r->trainer->sums.n_values;
    lk_status status = lk__shard_pass_init(&r->pass, r->trainer, 1);
    if (status == LK_OK) {
        r->pass.add_groups = cut_programs_add_groups;
        lk__shard_pass_start(&r->pass, &r->trainer->progress.update, NULL, r->count);
        status = lk__shard_pass_take(&r->pass, &shard, in[SEED]);
    }
    if (status == LK_OK)
        status = lk__shard_pass_train(&r->pass, out);
    lk__shard_pass_free(&r->pass);
    return status;
}

static lk_program *cut_programs_record(recording *r, int cuts)
{
    const lk_train_config *config = &r->trainer->config;
    lk_program_opts opts = {.fuse = config->execution.fuse == LK_FUSE_ON, .cuts = cuts};
    return lk_program_record(r->shard->device, cut_programs_record_pass, r, r->like, FIRST_SUM + cuts,
                             r->trainer->sums.n_values + cuts, &opts);
}

static lk_status cut_programs_record_twice(recording *r, cut_program *c)
{
    lk_tensor *none[1];
    lk_program *counted = cut_programs_record(r, 0);
    if (!counted)
        return lk_error_status();
    lk_program_release(counted);
    c->cuts = r->n;
    c->in = lk__calloc((size_t)FIRST_SUM + (size_t)c->cuts, sizeof(lk_tensor *));
    c->out = lk__calloc((size_t)r->trainer->sums.n_values + (size_t)c->cuts, sizeof(lk_tensor *));
    if (!c->in || !c->out)
        return LK_ERR_MEMORY;
    r->parts = none; /* the second recording */
    c->program = cut_programs_record(r, c->cuts);
    return c->program ? LK_OK : lk_error_status();
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

lk_status lk__cut_programs_new(lk_cut_programs **programs)
{
    *programs = lk__calloc(1, sizeof **programs);
    return *programs ? LK_OK : LK_ERR_MEMORY;
}

static void cut_program_free(const cut_program *c)
{
    lk_program_release(c->program);
    lk__free(c->in);
    lk__free(c->out);
}

void lk__cut_programs_release(lk_cut_programs *programs)
{
    if (!programs)
        return;
    for (int64_t i = 0; i < programs->n; i++)
        cut_program_free(&programs->list[i]);
    lk__free(programs->list);
    lk__free(programs);
}

/* Finds the program for the shard, or records it. */
static lk_status cut_programs_get(lk_trainer *trainer, const lk_shard *shard, int position, int64_t count,
                                  lk_tensor *seed, cut_program **found)
{
    lk_cut_programs *programs = trainer->programs.cut;
    lk_range group = lk__samples_of_shards(count, shard->shards, lk__group_of(trainer, shard->index));
    cut_program c = {.position = position,
                     .replica = shard->replica,
                     .samples = lk_tensor_shape(shard->indices).dim[0],
                     .group = group.end - group.begin};
    for (int64_t i = 0; i < programs->n; i++) {
        *found = &programs->list[i];
        if ((*found)->position == position && (*found)->replica == c.replica && (*found)->samples == c.samples &&
            (*found)->group == c.group)
            return LK_OK;
    }
    LK_TRY(LK_GROW(programs->list, &programs->capacity, programs->n + 1));
    recording *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    r->trainer = trainer;
    r->shard = shard;
    r->count = count;
    r->like[IMAGES] = shard->images;
    r->like[LABELS] = shard->labels;
    r->like[INDICES] = shard->indices;
    r->like[SEED] = seed;
    lk_status status = cut_programs_record_twice(r, &c);
    lk__tensors_release(r->like + FIRST_SUM, MOST_SUMS);
    lk__free(r);
    if (status != LK_OK) {
        cut_program_free(&c);
        return status;
    }
    programs->list[programs->n] = c;
    *found = &programs->list[programs->n++];
    return LK_OK;
}

lk_status lk__cut_pass_begin(lk_trainer *trainer, const lk_shard *shard, int position, int64_t count, lk_tensor *seed,
                             lk_cut_pass *pass)
{
    cut_program *c;
    LK_TRY(cut_programs_get(trainer, shard, position, count, seed, &c));
    *pass = (lk_cut_pass){.cuts = c->cuts, .out = c->out, .sums = c->in + FIRST_SUM};
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a program in the list has its arrays */
    c->in[IMAGES] = shard->images;
    c->in[LABELS] = shard->labels;
    c->in[INDICES] = shard->indices;
    c->in[SEED] = seed;
    for (int k = 0; k < c->cuts; k++) {
        const lk_tensor *like = c->program->in[FIRST_SUM + k];
        c->in[FIRST_SUM + k] = lk_tensor_new(shard->device, like->dtype, like->shape);
        if (!c->in[FIRST_SUM + k])
            return lk_error_status();
    }
    return lk_program_begin(c->program, c->in, (uint64_t)trainer->progress.update.number, c->out, &pass->replay);
}
