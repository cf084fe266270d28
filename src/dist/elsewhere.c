#include "dist/elsewhere.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"

#include <string.h>

/* Bytes of a bucket: large enough that what a message costs by itself does not count. */
enum { BUCKET_BYTES = 4 << 20 };

struct lk_elsewhere {
    lk_elsewhere_opts opts;
    lk_tree_node *nodes; /* in order, of ranks below this process's, and then of those above them */
    int64_t n_nodes, n_lower;
    int64_t most;     /* nodes that the devices of this process can have */
    bool *is_present; /* [n] */
    bool *is_known;   /* [n]: whether it is present */
    int n_known;
    bool has_idle_ranks;
    int *order; /* [n]: backward finishes what was made last first */
};

/* Nodes that cover a rank's shards, in order: as many as are left when each one that is completed takes the place of
 * what it is made of. */
static int64_t cover(int64_t shards, int rank, int ranks, lk_tree_node *nodes)
{
    lk_range own = lk_part(shards, ranks, rank);
    int64_t n = 0;
    for (int64_t s = own.begin; s < own.end; s++) {
        lk_range node = lk__tree_completed(shards, own, s);
        while (n > 0 && nodes[n - 1].range.begin >= node.begin)
            n--;
        nodes[n++] = (lk_tree_node){.range = node, .rank = rank, .elsewhere = true};
    }
    return n;
}

static void list_nodes(lk_elsewhere *e)
{
    const lk_elsewhere_opts *opts = &e->opts;
    for (int rank = 0; rank < opts->ranks; rank++) {
        int64_t n = cover(opts->shards, rank, opts->ranks, e->nodes + e->n_nodes);
        if (rank >= opts->first && rank < opts->first + opts->k)
            e->most += n;
        else
            e->n_nodes += n;
        if (rank < opts->first)
            e->n_lower = e->n_nodes;
    }
}

lk_status lk__elsewhere_new(const lk_elsewhere_opts *opts, lk_elsewhere **elsewhere)
{
    lk_elsewhere *e = lk__calloc(1, sizeof *e);
    if (!e)
        return LK_ERR_MEMORY;
    e->opts = *opts;
    e->nodes = lk__calloc((size_t)opts->shards, sizeof *e->nodes);
    e->is_present = lk__calloc((size_t)opts->n, sizeof *e->is_present);
    e->is_known = lk__calloc((size_t)opts->n, sizeof *e->is_known);
    e->order = lk__calloc((size_t)opts->n, sizeof *e->order);
    if (!e->nodes || !e->is_present || !e->is_known || !e->order) {
        lk__elsewhere_release(e);
        return LK_ERR_MEMORY;
    }
    list_nodes(e);
    for (int i = 0; i < opts->n; i++)
        e->order[i] = opts->n - 1 - i;
    *elsewhere = e;
    return LK_OK;
}

void lk__elsewhere_release(lk_elsewhere *e)
{
    if (!e)
        return;
    lk__free(e->nodes);
    lk__free(e->is_present);
    lk__free(e->is_known);
    lk__free(e->order);
    lk__free(e);
}

int64_t lk__elsewhere_nodes(const lk_elsewhere *e)
{
    return e->n_nodes + e->most;
}

static bool is_idle(const lk_elsewhere *e, int64_t samples, lk_range shards)
{
    return lk_part(samples, e->opts.shards, shards.begin).begin == lk_part(samples, e->opts.shards, shards.end - 1).end;
}

void lk__elsewhere_start(lk_elsewhere *e, int64_t samples)
{
    e->has_idle_ranks = false;
    for (int rank = 0; rank < e->opts.ranks && e->n_known < e->opts.n; rank++)
        e->has_idle_ranks |= is_idle(e, samples, lk_part(e->opts.shards, e->opts.ranks, rank));
    for (int64_t m = 0; m < e->n_nodes; m++)
        e->nodes[m].empty = is_idle(e, samples, e->nodes[m].range);
}

bool lk__elsewhere_has_idle_ranks(const lk_elsewhere *e)
{
    return e->has_idle_ranks;
}

void lk__elsewhere_learn(lk_elsewhere *e, int i, bool is_there)
{
    e->n_known += !e->is_known[i];
    e->is_known[i] = true;
    e->is_present[i] = is_there;
}

bool lk__elsewhere_knows(const lk_elsewhere *e, int i)
{
    return e->is_known[i];
}

int64_t lk__elsewhere_surround(const lk_elsewhere *e, bool present, lk_tree_node *nodes, int64_t n)
{
    int64_t upper = e->n_nodes - e->n_lower;
    memmove(nodes + e->n_lower, nodes, (size_t)n * sizeof *nodes);
    memcpy(nodes, e->nodes, (size_t)e->n_lower * sizeof *nodes);
    memcpy(nodes + e->n_lower + n, e->nodes + e->n_lower, (size_t)upper * sizeof *nodes);
    for (int64_t m = 0; m < e->n_lower + n + upper && !present; m++)
        nodes[m].empty = true;
    return e->n_lower + n + upper;
}

bool lk__elsewhere_is_present(const lk_elsewhere *e, int i)
{
    return e->is_present[i];
}

static int64_t bytes_of(const lk_elsewhere *e, int i)
{
    return e->is_present[i] ? lk_shape_count(e->opts.shapes[i]) * (int64_t)lk_dtype_size(e->opts.dtypes[i]) : 0;
}

int lk__elsewhere_bucket(const lk_elsewhere *e, int done, const int **quantities)
{
    const int *order = e->order + done;
    int64_t bytes = 0;
    int n = 0;
    if (e->n_known < e->opts.n)
        return 0;
    for (; done + n < e->opts.n && bytes < BUCKET_BYTES; n++) {
        if (e->is_present[order[n]] != e->is_present[order[0]])
            break;
        bytes += bytes_of(e, order[n]);
    }
    *quantities = order;
    return n;
}
