#include "train/parameter_server/ps_store.h"

#include "base/mem.h"
#include "base/status.h"
#include "optim/optimizer_step.h"
#include "train/parameter_server/placement.h"
#include "train/parameter_server/ps_apply.h"
#include "lockstep/ops.h"

#include <string.h>

/* Limit on any count in a setup, so that products stay far from overflow. */
static const int64_t most = INT64_C(1) << 40;

/* Limit on batches: a server has a bit for each. */
static const int64_t most_batches = INT64_C(1) << 32;

/* --- setup -------------------------------------------------------------------------------------------------------- */

bool lk__ps_is_count(int64_t value, int64_t least)
{
    return value >= least && value <= most;
}

static lk_status ps_store_check_tables(const lk_ps_setup *setup, const lk_ps_part *parts, const lk_ps_layer *layers)
{
    int64_t elements = 0, statistics = 0;
    for (int i = 0; i < setup->parts; i++) {
        if (!lk__ps_is_count(parts[i].count, 1) || elements > most)
            LK_FAIL(LK_ERR_FORMAT, "setup: part %d has %lld elements", i, (long long)parts[i].count);
        elements += (parts[i].count + LK_PLACEMENT_STEP - 1) / LK_PLACEMENT_STEP * LK_PLACEMENT_STEP;
    }
    for (int i = 0; i < setup->layers; i++) {
        const lk_ps_layer *layer = &layers[i];
        if (!lk__ps_is_count(layer->channels, 1) || !lk__ps_is_count(layer->positions, 1) || statistics > most ||
            !(layer->momentum > 0 && layer->momentum <= 1))
            LK_FAIL(LK_ERR_FORMAT, "setup: batch-norm layer %d has %lld channels and momentum %g", i,
                    (long long)layer->channels, layer->momentum);
        statistics += 2 * layer->channels;
    }
    if (elements != setup->elements || statistics != setup->statistics)
        LK_FAIL(LK_ERR_FORMAT, "setup: %lld and %lld elements, where its tables add up to %lld and %lld",
                (long long)setup->elements, (long long)setup->statistics, (long long)elements, (long long)statistics);
    return LK_OK;
}

lk_status lk__ps_setup_check(const lk_ps_setup *setup, const lk_ps_part *parts, const lk_ps_layer *layers)
{
    enum { MOST_PARTS = 1 << 20 };
    if (setup->parts < 1 || setup->parts > MOST_PARTS || setup->layers < 0 || setup->layers > MOST_PARTS ||
        setup->batches < 1 || setup->batches > most_batches || !lk__ps_is_count(setup->shards, 1) ||
        setup->max_staleness < -1 || !lk__ps_is_count(setup->updates, 0) || setup->optimizer < 0 ||
        setup->optimizer >= LK_OPTIMIZER_COUNT)
        LK_FAIL(LK_ERR_FORMAT,
                "setup: %d parts, %d batch-norm layers, %lld batches of %lld shards, %lld updates, optimizer %d",
                setup->parts, setup->layers, (long long)setup->batches, (long long)setup->shards,
                (long long)setup->updates, setup->optimizer);
    if (!lk__ps_is_count(setup->elements, 1) || !lk__ps_is_count(setup->statistics, 0))
        LK_FAIL(LK_ERR_FORMAT, "setup: %lld elements of parameters and %lld of statistics", (long long)setup->elements,
                (long long)setup->statistics);
    return parts ? ps_store_check_tables(setup, parts, layers) : LK_OK;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static lk_status ps_store_allocate(lk_ps_store *s, const lk_ps_part *parts, const lk_ps_layer *layers)
{
    size_t n = (size_t)s->setup.parts, m = (size_t)s->setup.layers;
    s->parts = lk__calloc(n, sizeof *s->parts);
    s->layers = lk__calloc(m + 1, sizeof *s->layers);
    s->variables = lk__calloc(n, sizeof(lk_tensor *));
    s->running = lk__calloc(2 * m + 1, sizeof(lk_tensor *));
    s->applied = lk__calloc((size_t)(s->setup.batches / 8 + 1), 1);
    s->reply = lk__calloc((size_t)(s->setup.elements + s->setup.statistics), sizeof *s->reply);
    if (!s->parts || !s->layers || !s->variables || !s->running || !s->applied || !s->reply)
        return LK_ERR_MEMORY;
    memcpy(s->parts, parts, n * sizeof *parts);
    if (m > 0)
        memcpy(s->layers, layers, m * sizeof *layers);
    return LK_OK;
}

/* LARS treats tensors of one axis differently; updates depend on nothing else of a shape. */
lk_shape lk__ps_part_shape(const lk_ps_part *part)
{
    return part->axes > 1 ? LK_SHAPE(1, part->count) : LK_SHAPE(part->count);
}

static lk_status ps_store_make_tensors(lk_ps_store *s)
{
    for (int i = 0; i < s->setup.parts; i++) {
        s->variables[i] = lk_tensor_retain(lk_zeros(s->device, LK_F32, lk__ps_part_shape(&s->parts[i])));
        if (!s->variables[i])
            return lk_error_status();
    }
    for (int i = 0; i < 2 * s->setup.layers; i++) {
        s->running[i] = lk_tensor_retain(lk_zeros(s->device, LK_F32, LK_SHAPE(s->layers[i / 2].channels)));
        if (!s->running[i])
            return lk_error_status();
    }
    lk_tensor *packed = NULL;
    LK_TRY(lk_pack(s->variables, s->setup.parts, &packed));
    s->packed = lk_tensor_retain(packed);
    return LK_OK;
}

/* Makes the optimizer. It does not look for values that are not finite: workers have checked before they push
 * (ps_worker_check_result). */
static lk_status ps_store_make_optimizer(lk_ps_store *s)
{
    const lk_ps_setup *setup = &s->setup;
    lk_optimizer_opts opts = {.kind = (lk_optimizer_kind)setup->optimizer,
                              .momentum = setup->momentum,
                              .nesterov = setup->nesterov != 0,
                              .weight_decay = setup->weight_decay,
                              .beta1 = setup->beta1,
                              .beta2 = setup->beta2,
                              .epsilon = setup->epsilon,
                              .trust = setup->trust,
                              .clip_norm = setup->clip_norm};
    s->optimizer = lk_optimizer_new(&opts, s->packed, s->variables, setup->parts);
    return s->optimizer ? LK_OK : lk_error_status();
}

static lk_status ps_store_build(lk_ps_store *s, const lk_ps_part *parts, const lk_ps_layer *layers)
{
    LK_TRY(ps_store_allocate(s, parts, layers));
    s->device = lk_device_open("cpu:0");
    if (!s->device)
        return lk_error_status();
    lk_scope_begin();
    lk_status status = ps_store_make_tensors(s);
    lk_scope_end();
    return status == LK_OK ? ps_store_make_optimizer(s) : status;
}

lk_status lk__ps_store_new(const lk_ps_setup *setup, const lk_ps_part *parts, const lk_ps_layer *layers,
                           lk_ps_store **store)
{
    *store = NULL;
    LK_TRY(lk__ps_setup_check(setup, parts, layers));
    lk_ps_store *made = lk__calloc(1, sizeof *made);
    if (!made)
        return LK_ERR_MEMORY;
    made->setup = *setup;
    made->pending = made->replied = -1;
    lk_status status = ps_store_build(made, parts, layers);
    if (status == LK_OK)
        *store = made;
    else
        lk__ps_store_release(made);
    return status;
}

void lk__ps_store_release(lk_ps_store *s)
{
    if (!s)
        return;
    lk__ps_store_forget_nodes(s);
    lk_optimizer_release(s->optimizer);
    for (int i = 0; s->variables && i < s->setup.parts; i++)
        lk_tensor_release(s->variables[i]);
    for (int i = 0; s->running && i < 2 * s->setup.layers; i++)
        lk_tensor_release(s->running[i]);
    lk_tensor_release(s->packed);
    lk_device_release(s->device);
    LK_FREE_ALL(s->nodes, s->parts, s->layers, s->variables, s->running, s->applied, s->reply, s->state, s);
}

/* --- reading and writing ------------------------------------------------------------------------------------------ */

lk_status lk__ps_store_write(lk_ps_store *s, const float *packed, const float *running)
{
    LK_TRY(lk_tensor_write(s->packed, packed, (size_t)s->setup.elements * sizeof *packed));
    for (int i = 0; i < 2 * s->setup.layers; i++) {
        int64_t channels = s->layers[i / 2].channels;
        LK_TRY(lk_tensor_write(s->running[i], running, (size_t)channels * sizeof *running));
        running += channels;
    }
    return LK_OK;
}

lk_status lk__ps_store_read(lk_ps_store *s, float *packed, float *running)
{
    LK_TRY(lk_tensor_read(s->packed, packed, (size_t)s->setup.elements * sizeof *packed));
    for (int i = 0; i < 2 * s->setup.layers; i++) {
        int64_t channels = s->layers[i / 2].channels;
        LK_TRY(lk_tensor_read(s->running[i], running, (size_t)channels * sizeof *running));
        running += channels;
    }
    return LK_OK;
}

lk_status lk__ps_store_make_reply(lk_ps_store *s, int64_t batch)
{
    bool again = s->setup.max_staleness == 0 && lk__ps_store_has_applied(s, batch);
    if (again && s->replied == s->version - 1)
        return LK_OK;
    s->replied = -1;
    LK_TRY(lk__ps_store_read(s, s->reply, s->reply + s->setup.elements));
    s->replied = s->version;
    return LK_OK;
}

int lk__ps_store_slots(const lk_ps_store *s)
{
    int n = 0;
    while (lk_optimizer_state(s->optimizer, n, NULL))
        n++;
    return n;
}

lk_status lk__ps_store_write_state(lk_ps_store *s, const float *state, int64_t updates)
{
    for (int i = 0; i < lk__ps_store_slots(s); i++)
        LK_TRY(lk_tensor_write(lk_optimizer_state(s->optimizer, i, NULL), state + i * s->setup.elements,
                               (size_t)s->setup.elements * sizeof *state));
    return lk__optimizer_resume(s->optimizer, updates);
}

lk_status lk__ps_store_read_state(lk_ps_store *s, float *state)
{
    for (int i = 0; i < lk__ps_store_slots(s); i++)
        LK_TRY(lk_tensor_read(lk_optimizer_state(s->optimizer, i, NULL), state + i * s->setup.elements,
                              (size_t)s->setup.elements * sizeof *state));
    return LK_OK;
}

/* --- timing ------------------------------------------------------------------------------------------------------- */

lk_status lk__ps_store_begin_timing(lk_ps_store *s)
{
    enum { LEFT_OUT = 5 }; /* first updates, which allocate memory and create kernels */
    if (s->timed_seconds > 0 || s->version - s->restored < LEFT_OUT)
        return LK_OK;
    s->timed_from = s->version;
    return lk_device_processor_seconds(s->device, &s->timed_seconds);
}

lk_status lk__ps_store_time(lk_ps_store *s, int64_t *timed, double *seconds)
{
    *timed = 0;
    *seconds = 0;
    if (s->timed_seconds == 0)
        return LK_OK;
    LK_TRY(lk_device_processor_seconds(s->device, seconds));
    *seconds -= s->timed_seconds;
    *timed = s->version - s->timed_from;
    return LK_OK;
}
