#include "dist/sum/remote_nodes.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"

#include <string.h>

struct lk_remote_nodes {
    lk_remote_nodes_opts opts;
    lk_tree_node *nodes; /* in order: those of the ranks below this process's, then of the ranks above */
    int64_t n_nodes, n_lower;
    int64_t most;     /* upper limit on local nodes */
    bool *is_present; /* [n] */
    bool *is_known;   /* [n]: whether is_present is known */
    int n_known;
    bool has_idle_ranks;
    int *order;         /* [n]: the order of exchange */
    const int *buckets; /* [n], or NULL: see lk__remote_nodes_set_buckets */
};

lk_status lk__remote_nodes_new(const lk_remote_nodes_opts *opts, lk_remote_nodes **remote)
{
    lk_remote_nodes *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    r->opts = *opts;
    r->nodes = lk__calloc((size_t)opts->shards, sizeof *r->nodes);
    r->is_present = lk__calloc((size_t)opts->n, sizeof *r->is_present);
    r->is_known = lk__calloc((size_t)opts->n, sizeof *r->is_known);
    r->order = lk__calloc((size_t)opts->n, sizeof *r->order);
    if (!r->nodes || !r->is_present || !r->is_known || !r->order) {
        lk__remote_nodes_release(r);
        return LK_ERR_MEMORY;
    }
    for (int rank = 0; rank < opts->ranks; rank++) {
        lk_range cover[LK_TREE_COVER];
        bool is_local = rank >= opts->first && rank < opts->first + opts->k;
        int n = lk__tree_cover(opts->shards, lk_part(opts->shards, opts->ranks, rank), cover);
        r->most += is_local ? n : 0;
        for (int m = 0; m < n && !is_local; m++)
            r->nodes[r->n_nodes++] = (lk_tree_node){.range = cover[m], .rank = rank, .remote = true};
        if (rank < opts->first)
            r->n_lower = r->n_nodes;
    }
    lk__remote_nodes_set_buckets(r, opts->n, NULL);
    *remote = r;
    return LK_OK;
}

void lk__remote_nodes_release(lk_remote_nodes *r)
{
    if (!r)
        return;
    LK_FREE_ALL(r->nodes, r->is_present, r->is_known, r->order, r);
}

int64_t lk__remote_nodes_count(const lk_remote_nodes *r)
{
    return r->n_nodes + r->most;
}

static bool remote_nodes_shards_are_empty(const lk_remote_nodes *r, int64_t samples, lk_range shards)
{
    return lk_part(samples, r->opts.shards, shards.begin).begin == lk_part(samples, r->opts.shards, shards.end - 1).end;
}

void lk__remote_nodes_start(lk_remote_nodes *r, int64_t samples)
{
    r->has_idle_ranks = false;
    for (int rank = 0; rank < r->opts.ranks && r->n_known < r->opts.n; rank++)
        r->has_idle_ranks |= remote_nodes_shards_are_empty(r, samples, lk_part(r->opts.shards, r->opts.ranks, rank));
    for (int64_t m = 0; m < r->n_nodes; m++)
        r->nodes[m].empty = remote_nodes_shards_are_empty(r, samples, r->nodes[m].range);
}

void lk__remote_nodes_set_buckets(lk_remote_nodes *r, int n_first, const int *buckets)
{
    r->buckets = buckets;
    for (int i = 0; i < r->opts.n; i++)
        r->order[i] = (i < n_first ? n_first : r->opts.n + n_first) - 1 - i;
}

bool lk__remote_nodes_have_idle_ranks(const lk_remote_nodes *r)
{
    return r->has_idle_ranks;
}

void lk__remote_nodes_learn(lk_remote_nodes *r, int i, bool is_present)
{
    r->n_known += !r->is_known[i];
    r->is_known[i] = true;
    r->is_present[i] = is_present;
}

bool lk__remote_nodes_know(const lk_remote_nodes *r, int i)
{
    return r->is_known[i];
}

int64_t lk__remote_nodes_surround(const lk_remote_nodes *r, bool present, lk_tree_node *nodes, int64_t n)
{
    int64_t upper = r->n_nodes - r->n_lower;
    memmove(nodes + r->n_lower, nodes, (size_t)n * sizeof *nodes);
    memcpy(nodes, r->nodes, (size_t)r->n_lower * sizeof *nodes);
    memcpy(nodes + r->n_lower + n, r->nodes + r->n_lower, (size_t)upper * sizeof *nodes);
    for (int64_t m = 0; m < r->n_lower + n + upper && !present; m++)
        nodes[m].empty = true;
    return r->n_lower + n + upper;
}

bool lk__remote_nodes_have(const lk_remote_nodes *r, int i)
{
    return r->is_present[i];
}

int lk__remote_nodes_bucket(const lk_remote_nodes *r, int done, const int **quantities)
{
    const int *order = r->order + done;
    int64_t bytes = 0;
    int n = 0;
    if (r->n_known < r->opts.n)
        return 0;
    for (; done + n < r->opts.n && (r->buckets || bytes < LK_REMOTE_BUCKET_BYTES); n++) {
        if (r->is_present[order[n]] != r->is_present[order[0]])
            break;
        if (r->buckets && r->buckets[order[n]] != r->buckets[order[0]])
            break;
        if (r->is_present[order[n]])
            bytes += lk_shape_count(r->opts.shapes[order[n]]) * (int64_t)lk_dtype_size(r->opts.dtypes[order[n]]);
    }
    *quantities = order;
    return n;
}
