#include "train/ps_store.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/placement.h"
#include "dist/tree.h"
#include "lockstep/ops.h"
#include "lockstep/optim.h"
#include "optim/pack.h"

#include <math.h>
#include <string.h>

enum { GRADIENTS, SUMS, QUANTITIES };

static const int64_t most = INT64_C(1) << 40; /* of any count in a setup: products stay far from int64's end */

/* --- setup -------------------------------------------------------------------------------------------------------- */

static bool is_count(int64_t value, int64_t least)
{
    return value >= least && value <= most;
}

static lk_status check_tables(const ps_setup *setup, const ps_part *parts, const ps_layer *layers)
{
    int64_t elements = 0, statistics = 0;
    for (int i = 0; i < setup->parts; i++) {
        if (!is_count(parts[i].count, 1) || elements > most)
            LK_FAIL(LK_ERR_FORMAT, "setup: part %d has %lld elements", i, (long long)parts[i].count);
        elements += (parts[i].count + LK_PLACEMENT_STEP - 1) / LK_PLACEMENT_STEP * LK_PLACEMENT_STEP;
    }
    for (int i = 0; i < setup->layers; i++) {
        const ps_layer *layer = &layers[i];
        if (!is_count(layer->channels, 1) || !is_count(layer->positions, 1) || statistics > most ||
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

lk_status lk__ps_setup_check(const ps_setup *setup, const ps_part *parts, const ps_layer *layers)
{
    enum { MOST_PARTS = 1 << 20 };
    if (setup->parts < 1 || setup->parts > MOST_PARTS || setup->layers < 0 || setup->layers > MOST_PARTS ||
        !is_count(setup->batches, 1) || !is_count(setup->shards, 1) || setup->max_staleness < -1 ||
        setup->optimizer < 0 || setup->optimizer >= LK_OPTIMIZER_COUNT)
        LK_FAIL(LK_ERR_FORMAT, "setup: %d parts, %d batch-norm layers, %lld batches of %lld shards, optimizer %d",
                setup->parts, setup->layers, (long long)setup->batches, (long long)setup->shards, setup->optimizer);
    return parts ? check_tables(setup, parts, layers) : LK_OK;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static lk_status allocate(ps_store *s, const ps_part *parts, const ps_layer *layers)
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

/* LARS tells tensors of one axis from others; updates look at nothing else of a shape. */
static lk_shape shape_of(const ps_part *part)
{
    return part->axes > 1 ? LK_SHAPE(1, part->count) : LK_SHAPE(part->count);
}

static lk_status make_tensors(ps_store *s)
{
    for (int i = 0; i < s->setup.parts; i++) {
        s->variables[i] = lk_tensor_retain(lk_zeros(s->device, LK_F32, shape_of(&s->parts[i])));
        if (!s->variables[i])
            return lk_error_status();
    }
    for (int i = 0; i < 2 * s->setup.layers; i++) {
        s->running[i] = lk_tensor_retain(lk_zeros(s->device, LK_F32, LK_SHAPE(s->layers[i / 2].channels)));
        if (!s->running[i])
            return lk_error_status();
    }
    lk_tensor *flat = NULL;
    LK_TRY(lk_pack(s->variables, s->setup.parts, &flat));
    s->flat = lk_tensor_retain(flat);
    return LK_OK;
}

/* A worker has looked for what is not finite before it pushes. */
static lk_status make_optimizer(ps_store *s)
{
    const ps_setup *setup = &s->setup;
    lk_optimizer_opts opts = {.kind = (lk_optimizer_kind)setup->optimizer,
                              .momentum = setup->momentum,
                              .nesterov = setup->nesterov != 0,
                              .weight_decay = setup->weight_decay,
                              .beta1 = setup->beta1,
                              .beta2 = setup->beta2,
                              .epsilon = setup->epsilon,
                              .trust = setup->trust,
                              .clip_norm = setup->clip_norm};
    s->optimizer = lk_optimizer_new(&opts, s->flat, s->variables, setup->parts);
    return s->optimizer ? LK_OK : lk_error_status();
}

static lk_status build(ps_store *s, const ps_part *parts, const ps_layer *layers)
{
    LK_TRY(allocate(s, parts, layers));
    s->device = lk_device_open("cpu:0");
    if (!s->device)
        return lk_error_status();
    lk_scope_begin();
    lk_status status = make_tensors(s);
    lk_scope_end();
    return status == LK_OK ? make_optimizer(s) : status;
}

lk_status lk__ps_store_new(const ps_setup *setup, const ps_part *parts, const ps_layer *layers, ps_store **store)
{
    *store = NULL;
    LK_TRY(lk__ps_setup_check(setup, parts, layers));
    ps_store *made = lk__calloc(1, sizeof *made);
    if (!made)
        return LK_ERR_MEMORY;
    made->setup = *setup;
    made->pending = -1;
    lk_status status = build(made, parts, layers);
    if (status == LK_OK)
        *store = made;
    else
        lk__ps_store_release(made);
    return status;
}

static void drop_nodes(ps_store *s)
{
    for (int i = 0; i < s->n_nodes; i++)
        for (int q = 0; q < QUANTITIES; q++)
            lk_tensor_release(s->nodes[i].values[q]);
    s->n_nodes = 0;
    s->pending = -1;
    s->pending_skipped = false;
}

void lk__ps_store_release(ps_store *s)
{
    if (!s)
        return;
    drop_nodes(s);
    lk_optimizer_release(s->optimizer);
    for (int i = 0; s->variables && i < s->setup.parts; i++)
        lk_tensor_release(s->variables[i]);
    for (int i = 0; s->running && i < 2 * s->setup.layers; i++)
        lk_tensor_release(s->running[i]);
    lk_tensor_release(s->flat);
    lk_device_release(s->device);
    lk__free(s->nodes);
    lk__free(s->parts);
    lk__free(s->layers);
    lk__free(s->variables);
    lk__free(s->running);
    lk__free(s->applied);
    lk__free(s->reply);
    lk__free(s);
}

/* --- reading and writing ------------------------------------------------------------------------------------------ */

lk_status lk__ps_store_write(ps_store *s, const float *flat, const float *running)
{
    LK_TRY(lk_tensor_write(s->flat, flat, (size_t)s->setup.elements * sizeof *flat));
    for (int i = 0; i < 2 * s->setup.layers; i++) {
        int64_t channels = s->layers[i / 2].channels;
        LK_TRY(lk_tensor_write(s->running[i], running, (size_t)channels * sizeof *running));
        running += channels;
    }
    return LK_OK;
}

lk_status lk__ps_store_read(ps_store *s)
{
    float *running = s->reply + s->setup.elements;
    LK_TRY(lk_tensor_read(s->flat, s->reply, (size_t)s->setup.elements * sizeof *s->reply));
    for (int i = 0; i < 2 * s->setup.layers; i++) {
        int64_t channels = s->layers[i / 2].channels;
        LK_TRY(lk_tensor_read(s->running[i], running, (size_t)channels * sizeof *running));
        running += channels;
    }
    return LK_OK;
}

/* --- applying ----------------------------------------------------------------------------------------------------- */

static bool is_applied(const ps_store *s, int64_t batch)
{
    return s->applied[batch / 8] >> (batch % 8) & 1;
}

/* Parts of the summed gradients, by the optimiser. */
static lk_status apply_gradients(ps_store *s, lk_tensor *sum, double rate)
{
    lk_tensor **parts = lk__calloc((size_t)s->setup.parts, sizeof *parts);
    int64_t begin = 0;
    lk_status status = parts ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < s->setup.parts && status == LK_OK; i++) {
        parts[i] = lk__pack_view(LK_HERE, sum, begin, shape_of(&s->parts[i]));
        status = parts[i] ? lk__pack_add(s->variables[i], &begin) : lk_error_status();
    }
    if (status == LK_OK)
        status = lk_optimizer_step(s->optimizer, parts, rate);
    for (int i = 0; parts && i < s->setup.parts; i++)
        lk_tensor_release(parts[i]);
    lk__free(parts);
    return status;
}

static lk_status apply_sums(ps_store *s, lk_tensor *sum, int64_t samples)
{
    int64_t begin = 0;
    for (int i = 0; i < s->setup.layers; i++) {
        const ps_layer *layer = &s->layers[i];
        lk_tensor *part =
            lk_reshape(lk_slice(sum, 0, begin, begin + 2 * layer->channels), LK_SHAPE(2, layer->channels));
        LK_TRY(lk_batch_norm_update(s->running[2 * i], s->running[2 * i + 1], part, samples * layer->positions,
                                    layer->momentum, NULL));
        begin += 2 * layer->channels;
    }
    return LK_OK;
}

static lk_status sum_nodes(ps_store *s, int quantity, lk_tensor **sum)
{
    lk_tree_node *nodes = lk__calloc((size_t)s->n_nodes, sizeof *nodes);
    if (!nodes)
        return LK_ERR_MEMORY;
    for (int i = 0; i < s->n_nodes; i++) {
        nodes[i].range = s->nodes[i].range;
        nodes[i].values = s->nodes[i].is_empty ? NULL : s->nodes[i].values;
    }
    lk_status status = lk__tree_sum(LK_HERE, s->device, &lk__transport_inproc, (lk_range){0, s->setup.shards}, nodes,
                                    s->n_nodes, quantity, (lk_range){0, -1}, sum);
    lk__free(nodes);
    return status;
}

static lk_status apply_nodes(ps_store *s, const ps_push *push)
{
    lk_tensor *gradients, *sums = NULL;
    if (s->pending_skipped) {
        lk__optimizer_replayed(s->optimizer);
        return LK_OK;
    }
    LK_TRY(sum_nodes(s, GRADIENTS, &gradients));
    if (s->setup.layers > 0)
        LK_TRY(sum_nodes(s, SUMS, &sums));
    if (!gradients)
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: all of its shards are empty", (long long)push->batch);
    LK_TRY(apply_gradients(s, gradients, push->rate));
    return sums ? apply_sums(s, sums, push->samples) : LK_OK;
}

/* Whether the nodes are all of the tree's. */
static bool is_complete(const ps_store *s)
{
    int64_t covered = 0;
    for (int i = 0; i < s->n_nodes; i++)
        covered += s->nodes[i].range.end - s->nodes[i].range.begin;
    return covered == s->setup.shards;
}

static lk_status make_room(ps_store *s)
{
    if (s->n_nodes < s->nodes_capacity)
        return LK_OK;
    int capacity = s->nodes_capacity ? 2 * s->nodes_capacity : 4;
    ps_node *nodes = lk__realloc(s->nodes, (size_t)capacity, sizeof *nodes);
    if (!nodes)
        return LK_ERR_MEMORY;
    s->nodes = nodes;
    s->nodes_capacity = capacity;
    return LK_OK;
}

static lk_tensor *tensor_of(ps_store *s, lk_dtype dtype, int64_t count, const void *data)
{
    lk_scope_begin();
    lk_tensor *tensor = lk_tensor_retain(lk_tensor_from(s->device, dtype, LK_SHAPE(count), data));
    lk_scope_end();
    return tensor;
}

static lk_status add_node(ps_store *s, const ps_push *push, const float *gradients, const double *sums)
{
    int place = s->n_nodes;
    ps_node node = {.range = {push->first_shard, push->end_shard}, .is_empty = !gradients};
    LK_TRY(make_room(s));
    if (gradients) {
        node.values[GRADIENTS] = tensor_of(s, LK_F32, s->setup.elements, gradients);
        if (s->setup.layers > 0)
            node.values[SUMS] = tensor_of(s, LK_F64, s->setup.statistics, sums);
        if (!node.values[GRADIENTS] || (s->setup.layers > 0 && !node.values[SUMS])) {
            lk_tensor_release(node.values[GRADIENTS]);
            lk_tensor_release(node.values[SUMS]);
            return lk_error_status();
        }
    }
    for (; place > 0 && s->nodes[place - 1].range.begin > node.range.begin; place--)
        s->nodes[place] = s->nodes[place - 1];
    s->nodes[place] = node;
    s->n_nodes++;
    s->pending_skipped |= push->is_skipped != 0;
    return LK_OK;
}

/* --- a push ------------------------------------------------------------------------------------------------------- */

static bool is_node(lk_range node, lk_range wanted)
{
    while (node.begin < wanted.begin || node.end > wanted.end) {
        int64_t middle = lk__tree_middle(node);
        if (wanted.begin >= middle)
            node.begin = middle;
        else
            node.end = middle;
        if (node.end - node.begin < wanted.end - wanted.begin)
            return false;
    }
    return node.begin == wanted.begin && node.end == wanted.end;
}

static lk_status check_push(const ps_store *s, const ps_push *push)
{
    lk_range node = {push->first_shard, push->end_shard};
    if (push->batch < 0 || push->batch >= s->setup.batches)
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: there are %lld", (long long)push->batch,
                (long long)s->setup.batches);
    if (node.begin < 0 || node.begin >= node.end || node.end > s->setup.shards ||
        !is_node((lk_range){0, s->setup.shards}, node))
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: shards %lld to %lld are no node of the tree over %lld",
                (long long)push->batch, (long long)node.begin, (long long)node.end, (long long)s->setup.shards);
    if (!isfinite(push->rate) || !is_count(push->samples, 1))
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: rate %g, %lld samples", (long long)push->batch, push->rate,
                (long long)push->samples);
    return LK_OK;
}

/* Updates between the pull and now. What was pulled before this process went on from a snapshot is as old as that. */
static int64_t staleness_of(const ps_store *s, const ps_push *push)
{
    int64_t since = push->incarnation == s->setup.incarnation ? push->version : s->restored;
    return s->version > since ? s->version - since : 0;
}

static bool is_held(const ps_store *s, const ps_push *push)
{
    for (int i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].range.begin < push->end_shard && s->nodes[i].range.end > push->first_shard)
            return true;
    return false;
}

static lk_status take(ps_store *s, const ps_push *push, const float *gradients, const double *sums,
                      ps_push_status *status)
{
    *status = PS_HELD;
    if (s->pending != push->batch)
        drop_nodes(s);
    s->pending = push->batch;
    if (is_held(s, push))
        return LK_OK;
    LK_TRY(add_node(s, push, gradients, sums));
    if (!is_complete(s))
        return LK_OK;
    lk_scope_begin();
    lk_status applied = apply_nodes(s, push);
    lk_scope_end();
    drop_nodes(s);
    LK_TRY(applied);
    s->applied[push->batch / 8] |= (unsigned char)(1 << push->batch % 8);
    s->version++;
    *status = PS_APPLIED;
    return LK_OK;
}

lk_status lk__ps_store_push(ps_store *s, const ps_push *push, const float *gradients, const double *sums,
                            ps_pushed *pushed)
{
    ps_push_status status;
    LK_TRY(check_push(s, push));
    *pushed =
        (ps_pushed){.incarnation = s->setup.incarnation, .staleness = staleness_of(s, push), .version = s->version};
    if (is_applied(s, push->batch)) {
        pushed->status = PS_REPEATED;
        return LK_OK;
    }
    if (s->setup.max_staleness >= 0 && pushed->staleness > s->setup.max_staleness) {
        pushed->status = PS_TOO_STALE;
        return LK_OK;
    }
    LK_TRY(take(s, push, gradients, sums, &status));
    pushed->status = status;
    pushed->version = s->version;
    return LK_OK;
}
