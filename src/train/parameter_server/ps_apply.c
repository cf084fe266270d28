/* Applies pushes to a store. It holds the nodes of a batch until all have arrived, adds them up along the tree, and
 * has the optimizer apply the sum once. */
#include "train/parameter_server/ps_apply.h"

#include "base/mem.h"
#include "base/status.h"
#include "dist/sum/tree.h"
#include "optim/optimizer_step.h"
#include "optim/pack.h"
#include "lockstep/ops.h"

#include <math.h>

enum { GRADIENTS, SUMS };

void lk__ps_store_forget_nodes(lk_ps_store *s)
{
    for (int i = 0; i < s->n_nodes; i++)
        for (int q = 0; q < LK_PS_QUANTITIES; q++)
            lk_tensor_release(s->nodes[i].values[q]);
    s->n_nodes = 0;
    s->pending = -1;
    s->pending_skipped = false;
}

/* --- applying ----------------------------------------------------------------------------------------------------- */

bool lk__ps_store_has_applied(const lk_ps_store *s, int64_t batch)
{
    return batch >= 0 && batch < s->setup.batches && s->applied[batch / 8] >> (batch % 8) & 1;
}

/* Applies the summed gradients, part by part, with the optimizer. */
static lk_status ps_apply_gradients(lk_ps_store *s, lk_tensor *sum, double rate)
{
    lk_tensor **parts = lk__calloc((size_t)s->setup.parts, sizeof *parts);
    int64_t begin = 0;
    lk_status status = parts ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < s->setup.parts && status == LK_OK; i++) {
        parts[i] = lk__pack_view(LK_HERE, sum, begin, lk__ps_part_shape(&s->parts[i]));
        status = parts[i] ? lk__pack_add(s->variables[i], &begin) : lk_error_status();
    }
    if (status == LK_OK)
        status = lk_optimizer_step(s->optimizer, parts, rate);
    for (int i = 0; parts && i < s->setup.parts; i++)
        lk_tensor_release(parts[i]);
    lk__free(parts);
    return status;
}

static lk_status ps_apply_sums(lk_ps_store *s, lk_tensor *sum, int64_t samples)
{
    int64_t begin = 0;
    for (int i = 0; i < s->setup.layers; i++) {
        const lk_ps_layer *layer = &s->layers[i];
        lk_tensor *part =
            lk_reshape(lk_slice(sum, 0, begin, begin + 2 * layer->channels), LK_SHAPE(2, layer->channels));
        LK_TRY(lk_batch_norm_update(s->running[2 * i], s->running[2 * i + 1], part, samples * layer->positions,
                                    layer->momentum, NULL));
        begin += 2 * layer->channels;
    }
    return LK_OK;
}

static lk_status ps_apply_sum_nodes(lk_ps_store *s, int quantity, lk_tensor **sum)
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

static lk_status ps_apply_nodes(lk_ps_store *s, const lk_ps_push *push)
{
    lk_tensor *gradients, *sums = NULL;
    if (s->pending_skipped) {
        lk__optimizer_replayed(s->optimizer);
        return LK_OK;
    }
    LK_TRY(ps_apply_sum_nodes(s, GRADIENTS, &gradients));
    if (s->setup.layers > 0)
        LK_TRY(ps_apply_sum_nodes(s, SUMS, &sums));
    if (!gradients)
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: all of its shards are empty", (long long)push->batch);
    LK_TRY(ps_apply_gradients(s, gradients, push->rate));
    return sums ? ps_apply_sums(s, sums, push->samples) : LK_OK;
}

/* Returns whether the nodes that have arrived cover the whole tree. */
static bool ps_apply_batch_is_complete(const lk_ps_store *s)
{
    int64_t covered = 0;
    for (int i = 0; i < s->n_nodes; i++)
        covered += s->nodes[i].range.end - s->nodes[i].range.begin;
    return covered == s->setup.shards;
}

static lk_tensor *ps_apply_make_tensor(lk_ps_store *s, lk_dtype dtype, int64_t count, const void *data)
{
    lk_scope_begin();
    lk_tensor *tensor = lk_tensor_retain(lk_tensor_from(s->device, dtype, LK_SHAPE(count), data));
    lk_scope_end();
    return tensor;
}

static lk_status ps_apply_add_node(lk_ps_store *s, const lk_ps_push *push, const float *gradients, const double *sums)
{
    int position = s->n_nodes;
    lk_ps_node node = {.range = {push->first_shard, push->end_shard}, .is_empty = !gradients};
    LK_TRY(LK_GROW(s->nodes, &s->nodes_capacity, s->n_nodes + 1));
    if (gradients) {
        node.values[GRADIENTS] = ps_apply_make_tensor(s, LK_F32, s->setup.elements, gradients);
        if (s->setup.layers > 0)
            node.values[SUMS] = ps_apply_make_tensor(s, LK_F64, s->setup.statistics, sums);
        if (!node.values[GRADIENTS] || (s->setup.layers > 0 && !node.values[SUMS])) {
            lk_tensor_release(node.values[GRADIENTS]);
            lk_tensor_release(node.values[SUMS]);
            return lk_error_status();
        }
    }
    for (; position > 0 && s->nodes[position - 1].range.begin > node.range.begin; position--)
        s->nodes[position] = s->nodes[position - 1];
    s->nodes[position] = node;
    s->n_nodes++;
    s->pending_skipped |= push->is_skipped != 0;
    return LK_OK;
}

/* --- a push ------------------------------------------------------------------------------------------------------- */

static lk_status ps_apply_check_push(const lk_ps_store *s, const lk_ps_push *push)
{
    lk_range node = {push->first_shard, push->end_shard}, nodes[LK_TREE_COVER];
    if (push->batch < 0 || push->batch >= s->setup.batches)
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: there are %lld", (long long)push->batch,
                (long long)s->setup.batches);
    if (node.begin < 0 || node.begin >= node.end || node.end > s->setup.shards ||
        lk__tree_cover(s->setup.shards, node, nodes) != 1)
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: shards %lld to %lld are no node of the tree over %lld",
                (long long)push->batch, (long long)node.begin, (long long)node.end, (long long)s->setup.shards);
    bool is_good = isfinite(push->rate) && lk__ps_is_count(push->samples, 1) && lk__ps_is_count(push->version, 0);
    for (int i = 0; i < s->setup.layers && is_good; i++)
        is_good = push->samples <= INT64_MAX / s->layers[i].positions; /* a channel's elements are counted */
    if (!is_good)
        LK_FAIL(LK_ERR_FORMAT, "push of batch %lld: rate %g, %lld samples, version %lld", (long long)push->batch,
                push->rate, (long long)push->samples, (long long)push->version);
    return LK_OK;
}

/* The updates since the pull. A pull from an earlier process of this server counts from the restored snapshot. */
static int64_t ps_apply_staleness_of(const lk_ps_store *s, const lk_ps_push *push)
{
    int64_t since = push->incarnation == s->setup.incarnation ? push->version : s->restored;
    return s->version > since ? s->version - since : 0;
}

/* Returns whether a node that has arrived covers shards of the push. */
static bool ps_apply_push_is_held(const lk_ps_store *s, const lk_ps_push *push)
{
    for (int i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].range.begin < push->end_shard && s->nodes[i].range.end > push->first_shard)
            return true;
    return false;
}

static lk_status ps_apply_take_push(lk_ps_store *s, const lk_ps_push *push, const float *gradients, const double *sums,
                                    lk_ps_push_status *status)
{
    *status = LK_PS_HELD;
    bool is_whole = push->end_shard - push->first_shard == s->setup.shards;
    if (s->pending != push->batch || is_whole)
        lk__ps_store_forget_nodes(s);
    s->pending = push->batch;
    if (ps_apply_push_is_held(s, push))
        return LK_OK;
    LK_TRY(ps_apply_add_node(s, push, gradients, sums));
    if (!ps_apply_batch_is_complete(s))
        return LK_OK;
    lk_scope_begin();
    lk_status applied = ps_apply_nodes(s, push);
    lk_scope_end();
    lk__ps_store_forget_nodes(s);
    LK_TRY(applied);
    s->applied[push->batch / 8] |= (unsigned char)(1 << push->batch % 8);
    s->version++;
    *status = LK_PS_APPLIED;
    return LK_OK;
}

lk_status lk__ps_store_push(lk_ps_store *s, const lk_ps_push *push, const float *gradients, const double *sums,
                            lk_ps_pushed *pushed)
{
    lk_ps_push_status status;
    LK_TRY(ps_apply_check_push(s, push));
    *pushed = (lk_ps_pushed){
        .incarnation = s->setup.incarnation, .staleness = ps_apply_staleness_of(s, push), .version = s->version};
    if (lk__ps_store_has_applied(s, push->batch)) {
        pushed->status = LK_PS_REPEATED;
        return LK_OK;
    }
    if (s->setup.max_staleness >= 0 && pushed->staleness > s->setup.max_staleness) {
        pushed->status = LK_PS_TOO_STALE;
        return LK_OK;
    }
    LK_TRY(ps_apply_take_push(s, push, gradients, sums, &status));
    pushed->status = status;
    pushed->version = s->version;
    return LK_OK;
}
