#include "dist/collectives/exchange_plan.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "core/links.h"
#include "dist/sum/tree.h"

#include <stdlib.h>
#include <string.h>

typedef struct merge {
    lk_range range;
    int64_t first; /* members[first … first + n) in the order of their slices, and their places */
    int n, step;
    int children[2]; /* merges; -1: one rank, or not divided */
    bool divided, present;
} merge;

/* One of the values that a merge adds up: a node's, or the sum of a merge below. */
typedef struct source {
    lk_range range;
    int node, merge; /* one of them is -1 */
} source;

typedef struct builder {
    const lk_exchange_plan_opts *opts;
    lk_exchange_plan *plan;
    int64_t capacities[5]; /* of the plan's arrays */
    int n_transfers, n_sums, n_addends;

    merge *merges;
    int *members;
    int64_t *places; /* of the members: the first word of the merge's sum in the buffer, if the rank is listed */
    int64_t n_merges, n_members, merge_capacity, member_capacity, place_capacity;

    int *positions;      /* [n_nodes]: of a node among the nodes of its rank */
    int *indices[2];     /* [ranks]: of a rank among the members of a child; -1: it is none */
    int64_t *received;   /* [LK_LINKS_ADDENDS * n]: where a rank receives its slice of a source; -1: it has all of it */
    int64_t *sum_begins; /* [n] */
} builder;

/* --- ranges ------------------------------------------------------------------------------------------------------- */

static lk_range exchange_plan_overlap(lk_range a, lk_range b)
{
    lk_range both = {lk__max(a.begin, b.begin), lk__min(a.end, b.end)};
    return both.begin < both.end ? both : (lk_range){a.begin, a.begin};
}

static bool exchange_plan_is_empty(lk_range range)
{
    return range.begin >= range.end;
}

lk_range lk__exchange_slice(int64_t row, int64_t i, int64_t n)
{
    lk_range lines = lk_part(lk__divide_up(row, LK_EXCHANGE_ALIGN), n, i);
    return (lk_range){lk__min(lines.begin * LK_EXCHANGE_ALIGN, row), lk__min(lines.end * LK_EXCHANGE_ALIGN, row)};
}

static int64_t exchange_plan_cut(const builder *b, int64_t i, int64_t n)
{
    return lk__exchange_slice(b->opts->row, i, n).begin;
}

/* The words of member i of n. */
static lk_range exchange_plan_slice(const builder *b, int64_t i, int64_t n)
{
    if (b->opts->whole)
        return (lk_range){0, b->opts->row};
    return lk__exchange_slice(b->opts->row, i, n);
}

static int exchange_plan_owner(const lk_exchange_plan_opts *opts, int64_t shard)
{
    int low = 0, high = opts->ranks - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (shard < opts->owned[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The first node that begins at `shard` or later. */
static int exchange_plan_first_node(const lk_exchange_plan_opts *opts, int64_t shard)
{
    int low = 0, high = opts->n_nodes;
    while (low < high) {
        int middle = (low + high) / 2;
        if (opts->nodes[middle].range.begin < shard)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool exchange_plan_lists(const builder *b, int rank)
{
    return rank >= b->opts->first && rank < b->opts->first + b->opts->n;
}

/* --- merges ------------------------------------------------------------------------------------------------------- */

/* A rank and its place in the order of a merge's members. */
typedef struct ordered {
    int64_t key;
    int rank;
} ordered;

static int exchange_plan_compare(const void *a, const void *b)
{
    const ordered *left = a, *right = b;
    if (left->key != right->key)
        return left->key < right->key ? -1 : 1;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* The members of a child, in the order of their slices. */
static const int *exchange_plan_members(const builder *b, int child, const int *single, int *n)
{
    *n = child < 0 ? 1 : b->merges[child].n;
    return child < 0 ? single : b->members + b->merges[child].first;
}

/* Orders the members of both children by the middle of their slices. A rank in both takes the middle between the two.
 */
static lk_status exchange_plan_order(builder *b, const merge *m, int first_rank, int last_rank)
{
    int64_t middle = lk__tree_middle(m->range);
    int right_first = exchange_plan_owner(b->opts, middle);
    int shared = exchange_plan_owner(b->opts, middle - 1) == right_first ? right_first : -1; /* rank in both */
    int n_left, n_right, n = 0;
    const int *left = exchange_plan_members(b, m->children[0], &first_rank, &n_left);
    const int *right = exchange_plan_members(b, m->children[1], &last_rank, &n_right);
    ordered *order = lk__calloc((size_t)n_left + (size_t)n_right, sizeof *order);
    if (!order)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n_left; i++)
        order[n++] = (ordered){2 * (2 * i + 1) * n_right, left[i]};
    for (int64_t i = 0; i < n_right; i++) {
        int64_t key = 2 * (2 * i + 1) * n_left;
        int same = right[i] == shared ? 0 : n_left;
        while (same < n_left && order[same].rank != shared)
            same++;
        if (same < n_left)
            order[same].key = (order[same].key + key) / 2;
        else
            order[n++] = (ordered){key, right[i]};
    }
    qsort(order, (size_t)n, sizeof *order, exchange_plan_compare);
    for (int i = 0; i < n; i++)
        b->members[m->first + i] = order[i].rank;
    lk__free(order);
    return LK_OK;
}

/* Adds the merges of a node and those below. *made: -1 if a single rank owns the node. */
static lk_status exchange_plan_add_merge(builder *b, lk_range range, bool is_root, int *made)
{
    const lk_exchange_plan_opts *opts = b->opts;
    int first = exchange_plan_owner(opts, range.begin), last = exchange_plan_owner(opts, range.end - 1);
    merge m = {.range = range, .n = last - first + 1, .children = {-1, -1}};
    *made = -1;
    if (first == last && !is_root)
        return LK_OK;
    int64_t middle = lk__tree_middle(range);
    m.divided = m.n > opts->flat && opts->n_nodes > 0;
    if (m.divided) {
        LK_TRY(exchange_plan_add_merge(b, (lk_range){range.begin, middle}, false, &m.children[0]));
        LK_TRY(exchange_plan_add_merge(b, (lk_range){middle, range.end}, false, &m.children[1]));
    }
    for (int c = 0; c < 2; c++)
        if (m.children[c] >= 0 && b->merges[m.children[c]].step >= m.step)
            m.step = b->merges[m.children[c]].step + 1;
    int node = exchange_plan_first_node(opts, range.begin);
    m.present = node < opts->n_nodes && opts->nodes[node].range.begin < range.end;
    m.first = b->n_members;
    LK_TRY(LK_GROW(b->members, &b->member_capacity, b->n_members + m.n));
    LK_TRY(LK_GROW(b->places, &b->place_capacity, b->n_members + m.n));
    LK_TRY(LK_GROW(b->merges, &b->merge_capacity, b->n_merges + 1));
    b->n_members += m.n;
    for (int i = 0; i < m.n; i++)
        b->members[m.first + i] = first + i;
    if (m.divided)
        LK_TRY(exchange_plan_order(b, &m, first, last));
    *made = (int)b->n_merges;
    b->merges[b->n_merges++] = m;
    return LK_OK;
}

/* --- sources ------------------------------------------------------------------------------------------------------ */

typedef struct source_list {
    source sources[LK_LINKS_ADDENDS];
    int n;
} source_list;

static lk_status exchange_plan_add_source(source_list *list, source s)
{
    if (list->n == LK_LINKS_ADDENDS)
        LK_FAIL(LK_ERR_UNSUPPORTED, "allreduce: more than %d nodes of the tree at once", LK_LINKS_ADDENDS);
    list->sources[list->n++] = s;
    return LK_OK;
}

static lk_status exchange_plan_add_nodes(const builder *b, lk_range range, source_list *list)
{
    const lk_exchange_plan_opts *opts = b->opts;
    for (int i = exchange_plan_first_node(opts, range.begin);
         i < opts->n_nodes && opts->nodes[i].range.begin < range.end; i++)
        LK_TRY(exchange_plan_add_source(list, (source){opts->nodes[i].range, i, -1}));
    return LK_OK;
}

static lk_status exchange_plan_list_sources(const builder *b, const merge *m, source_list *list)
{
    int64_t middle = lk__tree_middle(m->range);
    lk_range halves[2] = {{m->range.begin, middle}, {middle, m->range.end}};
    list->n = 0;
    if (!m->divided)
        return exchange_plan_add_nodes(b, m->range, list);
    for (int c = 0; c < 2; c++) {
        int child = m->children[c];
        if (child < 0)
            LK_TRY(exchange_plan_add_nodes(b, halves[c], list));
        else if (b->merges[child].present)
            LK_TRY(exchange_plan_add_source(list, (source){halves[c], -1, child}));
    }
    return LK_OK;
}

/* The words of a source that a rank has; empty: none. */
static lk_range exchange_plan_held(const builder *b, const merge *m, const source *s, int rank)
{
    if (s->node >= 0)
        return (lk_range){0, b->opts->nodes[s->node].rank == rank ? b->opts->row : 0};
    int i = b->indices[s->merge == m->children[1]][rank];
    return i < 0 ? (lk_range){0, 0} : exchange_plan_slice(b, i, b->merges[s->merge].n);
}

/* Returns the place of word `word` of a source that a listed rank holds. */
static lk_exchange_place exchange_plan_held_place(const builder *b, const merge *m, const source *s, int rank,
                                                  int64_t word)
{
    if (s->node >= 0 && b->opts->in_place)
        return (lk_exchange_place){s->node, word};
    if (s->node >= 0)
        return (lk_exchange_place){-1, b->positions[s->node] * b->opts->row + word};
    int i = b->indices[s->merge == m->children[1]][rank];
    lk_range slice = exchange_plan_slice(b, i, b->merges[s->merge].n);
    return (lk_exchange_place){-1, b->places[b->merges[s->merge].first + i] + word - slice.begin};
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static int64_t exchange_plan_reserve(builder *b, int rank, lk_range words)
{
    int64_t *used = &b->plan->words[rank - b->opts->first], place = *used;
    *used += words.end - words.begin;
    return place;
}

static int64_t *exchange_plan_received(const builder *b, int s, int rank)
{
    return &b->received[(int64_t)s * b->opts->n + (rank - b->opts->first)];
}

/* Reserves memory for what the listed members receive. The sum takes the place of the first of it; that of the root
 * has its own. */
static void exchange_plan_lay_out(builder *b, const merge *m, const source_list *list)
{
    bool is_root = m == &b->merges[b->n_merges - 1];
    for (int j = 0; j < m->n; j++) {
        int rank = b->members[m->first + j];
        lk_range slice = exchange_plan_slice(b, j, m->n);
        int64_t sum = -1;
        if (!exchange_plan_lists(b, rank))
            continue;
        if (is_root) {
            sum = b->sum_begins[rank - b->opts->first] + slice.begin;
            b->plan->slices[rank - b->opts->first] = slice;
        }
        bool is_free = is_root;
        for (int s = 0; s < list->n; s++) {
            lk_range held = exchange_plan_held(b, m, &list->sources[s], rank);
            int64_t *received = exchange_plan_received(b, s, rank);
            *received = -1;
            if (held.begin <= slice.begin && slice.end <= held.end)
                continue;
            *received = is_free ? sum : exchange_plan_reserve(b, rank, slice);
            sum = sum < 0 ? *received : sum;
            is_free = false;
        }
        b->places[m->first + j] = sum < 0 ? exchange_plan_reserve(b, rank, slice) : sum;
    }
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

/* Lists a transfer if a listed rank takes part in it. */
static lk_status exchange_plan_add_transfer(builder *b, lk_exchange_transfer transfer)
{
    if (!exchange_plan_lists(b, transfer.from) && !exchange_plan_lists(b, transfer.to))
        return LK_OK;
    LK_TRY(LK_GROW(b->plan->transfers, &b->capacities[0], b->n_transfers + 1));
    b->plan->transfers[b->n_transfers++] = transfer;
    return LK_OK;
}

/* Member j of the merge gets `words` of source s from a rank that holds them. */
static lk_status exchange_plan_send(builder *b, const merge *m, const source_list *list, int s, int from, int j,
                                    int before, lk_range words)
{
    int to = b->members[m->first + j];
    lk_exchange_transfer transfer = {
        .from = from, .to = to, .before = before, .words = words, .cut = list->sources[s].node >= 0};
    if (exchange_plan_lists(b, from))
        transfer.source = exchange_plan_held_place(b, m, &list->sources[s], from, words.begin);
    if (exchange_plan_lists(b, to))
        transfer.target = *exchange_plan_received(b, s, to) + words.begin - exchange_plan_slice(b, j, m->n).begin;
    return exchange_plan_add_transfer(b, transfer);
}

/* The ranks that hold a source, in the order of their slices. */
static const int *exchange_plan_holders(const builder *b, const source *s, int *n)
{
    if (s->node < 0)
        return exchange_plan_members(b, s->merge, NULL, n);
    *n = 1;
    return &b->opts->nodes[s->node].rank;
}

/* Every member has a partner that has the whole row. */
static lk_status exchange_plan_collect_whole(builder *b, const merge *m, const source_list *list, int s)
{
    int n, before = -1, from_before = -1;
    const source *of = &list->sources[s];
    const int *holders = exchange_plan_holders(b, of, &n);
    for (int j = 0; j < m->n; j++) {
        int to = b->members[m->first + j];
        lk_range held = exchange_plan_held(b, m, of, to);
        if (!exchange_plan_is_empty(held))
            continue;
        int from = holders[(int64_t)j * n / m->n];
        LK_TRY(
            exchange_plan_send(b, m, list, s, from, j, from == from_before ? before : -1, (lk_range){0, b->opts->row}));
        before = to;
        from_before = from;
    }
    return LK_OK;
}

/* Every member gets its slice from those that hold parts of it. */
static lk_status exchange_plan_collect_slices(builder *b, const merge *m, const source_list *list, int s)
{
    int n;
    const int *holders = exchange_plan_holders(b, &list->sources[s], &n);
    for (int64_t i = 0; i < n; i++) {
        lk_range held = exchange_plan_held(b, m, &list->sources[s], holders[i]);
        for (int64_t j = i * m->n / n; j < lk__divide_up((i + 1) * m->n, n); j++) {
            lk_range words = exchange_plan_overlap(exchange_plan_slice(b, j, m->n), held);
            if (holders[i] != b->members[m->first + j] && !exchange_plan_is_empty(words))
                LK_TRY(exchange_plan_send(b, m, list, s, holders[i], (int)j, -1, words));
        }
    }
    return LK_OK;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Adds up words for which each source lies in one place. */
static lk_status exchange_plan_add_sum(builder *b, const merge *m, const source_list *list,
                                       const unsigned char *additions, int j, lk_range words)
{
    lk_exchange_plan *plan = b->plan;
    int rank = b->members[m->first + j];
    int64_t offset = words.begin - exchange_plan_slice(b, j, m->n).begin;
    lk_exchange_sum sum = {rank, words, b->places[m->first + j] + offset, b->n_addends, list->n};
    LK_TRY(LK_GROW(plan->sums, &b->capacities[1], b->n_sums + 1));
    LK_TRY(LK_GROW(plan->addends, &b->capacities[2], b->n_addends + list->n));
    LK_TRY(LK_GROW(plan->additions, &b->capacities[3], b->n_addends + list->n));
    for (int s = 0; s < list->n; s++) {
        lk_range held = exchange_plan_held(b, m, &list->sources[s], rank);
        bool is_held = held.begin <= words.begin && words.end <= held.end;
        plan->addends[sum.first + s] = is_held ? exchange_plan_held_place(b, m, &list->sources[s], rank, words.begin)
                                               : (lk_exchange_place){-1, *exchange_plan_received(b, s, rank) + offset};
        plan->additions[sum.first + s] = additions[s];
    }
    const lk_exchange_place *only = &plan->addends[sum.first];
    if (list->n == 1 && only->node < 0 && only->begin == sum.target)
        return LK_OK; /* it was received where it belongs */
    b->n_addends += list->n;
    plan->sums[b->n_sums++] = sum;
    return LK_OK;
}

/* Adds up member j's slice, cut where the words that it holds itself begin and end. */
static lk_status exchange_plan_add_sums(builder *b, const merge *m, const source_list *list,
                                        const unsigned char *additions, int j)
{
    lk_range slice = exchange_plan_slice(b, j, m->n);
    for (int64_t begin = slice.begin, end; begin < slice.end; begin = end) {
        end = slice.end;
        for (int s = 0; s < list->n; s++) {
            lk_range held = exchange_plan_held(b, m, &list->sources[s], b->members[m->first + j]);
            if (exchange_plan_is_empty(held))
                continue;
            if (held.begin > begin)
                end = lk__min(end, held.begin);
            if (held.end > begin)
                end = lk__min(end, held.end);
        }
        LK_TRY(exchange_plan_add_sum(b, m, list, additions, j, (lk_range){begin, end}));
    }
    return LK_OK;
}

/* Notes the members of both children, or (is_begin false) forgets them. */
static void exchange_plan_index(const builder *b, const merge *m, bool is_begin)
{
    for (int c = 0; c < 2; c++) {
        const merge *child = m->children[c] < 0 ? NULL : &b->merges[m->children[c]];
        for (int i = 0; child && i < child->n; i++)
            b->indices[c][b->members[child->first + i]] = is_begin ? i : -1;
    }
}

static lk_status exchange_plan_merge(builder *b, const merge *m)
{
    source_list list;
    lk_range ranges[LK_LINKS_ADDENDS];
    unsigned char additions[LK_LINKS_ADDENDS];
    LK_TRY(exchange_plan_list_sources(b, m, &list));
    for (int s = 0; s < list.n; s++)
        ranges[s] = list.sources[s].range;
    if (lk__tree_postfix(m->range, ranges, list.n, additions) > LK_LINKS_LEVELS)
        LK_FAIL(LK_ERR_UNSUPPORTED, "allreduce: more than %d levels of the tree at once", LK_LINKS_LEVELS);
    exchange_plan_lay_out(b, m, &list);
    for (int s = 0; s < list.n; s++)
        LK_TRY(b->opts->whole ? exchange_plan_collect_whole(b, m, &list, s)
                              : exchange_plan_collect_slices(b, m, &list, s));
    for (int j = 0; j < m->n && list.n > 0; j++)
        if (exchange_plan_lists(b, b->members[m->first + j]))
            LK_TRY(exchange_plan_add_sums(b, m, &list, additions, j));
    return LK_OK;
}

/* --- gathering ---------------------------------------------------------------------------------------------------- */

/* Steps in which n members get each other's slices. */
static int exchange_plan_gather_steps(const builder *b, int n)
{
    if (n <= b->opts->flat)
        return n > 1;
    return 1 + exchange_plan_gather_steps(b, n - n / 2);
}

static lk_status exchange_plan_spread(builder *b, int from, int to, int before, lk_range words)
{
    lk_exchange_transfer transfer = {.from = from, .to = to, .before = before, .words = words, .source = {-1, 0}};
    if (exchange_plan_lists(b, from))
        transfer.source.begin = b->sum_begins[from - b->opts->first] + words.begin;
    if (exchange_plan_lists(b, to))
        transfer.target = b->sum_begins[to - b->opts->first] + words.begin;
    return exchange_plan_add_transfer(b, transfer);
}

/* The root's members [to, to_end) get the words that [from, from_end) have together. */
static lk_status exchange_plan_spread_half(builder *b, int from, int from_end, int to, int to_end)
{
    const merge *root = &b->merges[b->n_merges - 1];
    const int *members = b->members + root->first;
    lk_range words = {exchange_plan_cut(b, from, root->n), exchange_plan_cut(b, from_end, root->n)};
    int last = -1;
    for (int j = to; j < to_end && !exchange_plan_is_empty(words); j++) {
        int i = from + (int)((int64_t)(j - to) * (from_end - from) / (to_end - to));
        LK_TRY(exchange_plan_spread(b, members[i], members[j], i == last ? members[j - 1] : -1, words));
        last = i;
    }
    return LK_OK;
}

static lk_status exchange_plan_spread_all(builder *b, int begin, int end)
{
    const merge *root = &b->merges[b->n_merges - 1];
    const int *members = b->members + root->first;
    for (int i = begin; i < end; i++) {
        lk_range words = exchange_plan_slice(b, i, root->n);
        int before = -1;
        for (int j = begin; j < end && !exchange_plan_is_empty(words); j++) {
            if (j == i)
                continue;
            LK_TRY(exchange_plan_spread(b, members[i], members[j], before, words));
            before = members[j];
        }
    }
    return LK_OK;
}

/* Lists step `step` among the root's members [begin, end). */
static lk_status exchange_plan_gather(builder *b, int begin, int end, int step)
{
    int last = exchange_plan_gather_steps(b, end - begin) - 1, middle = begin + (end - begin) / 2;
    if (step > last)
        return LK_OK;
    if (end - begin <= b->opts->flat)
        return exchange_plan_spread_all(b, begin, end);
    if (step < last) {
        LK_TRY(exchange_plan_gather(b, begin, middle, step));
        return exchange_plan_gather(b, middle, end, step);
    }
    LK_TRY(exchange_plan_spread_half(b, middle, end, begin, middle));
    return exchange_plan_spread_half(b, begin, middle, middle, end);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

/* Lists all steps; the plan has room for them. */
static lk_status exchange_plan_list_steps(builder *b)
{
    lk_exchange_plan *plan = b->plan;
    for (int t = 0; t < plan->n_steps; t++) {
        lk_exchange_step *step = &plan->steps[t];
        *step = (lk_exchange_step){.first_transfer = b->n_transfers, .first_sum = b->n_sums};
        for (int64_t m = 0; m < b->n_merges && t < plan->reducing; m++) {
            if (b->merges[m].step != t || !b->merges[m].present)
                continue;
            exchange_plan_index(b, &b->merges[m], true);
            lk_status status = exchange_plan_merge(b, &b->merges[m]);
            exchange_plan_index(b, &b->merges[m], false);
            LK_TRY(status);
        }
        if (t >= plan->reducing)
            LK_TRY(exchange_plan_gather(b, 0, b->opts->ranks, t - plan->reducing));
        step->n_transfers = b->n_transfers - step->first_transfer;
        step->n_sums = b->n_sums - step->first_sum;
    }
    return LK_OK;
}

static lk_status exchange_plan_allocate(builder *b)
{
    lk_exchange_plan *plan = b->plan;
    const lk_exchange_plan_opts *opts = b->opts;
    size_t n = (size_t)opts->n, ranks = (size_t)opts->ranks, nodes = (size_t)opts->n_nodes;
    lk_range *owned = lk__calloc(ranks, sizeof *owned);
    lk_exchange_node *copied = lk__calloc(nodes + 1, sizeof *copied);
    plan->opts = *opts;
    plan->opts.owned = owned;
    plan->opts.nodes = copied;
    plan->words = lk__calloc(n, sizeof *plan->words);
    plan->slices = lk__calloc(n, sizeof *plan->slices);
    b->positions = lk__calloc(nodes + 1, sizeof *b->positions);
    b->indices[0] = lk__calloc(ranks, sizeof *b->indices[0]);
    b->indices[1] = lk__calloc(ranks, sizeof *b->indices[1]);
    b->received = lk__calloc((size_t)LK_LINKS_ADDENDS * n, sizeof *b->received);
    b->sum_begins = lk__calloc(n, sizeof *b->sum_begins);
    if (!owned || !copied || !plan->words || !plan->slices || !b->positions || !b->indices[0] || !b->indices[1] ||
        !b->received || !b->sum_begins)
        return LK_ERR_MEMORY;
    memcpy(owned, opts->owned, ranks * sizeof *owned);
    if (nodes > 0)
        memcpy(copied, opts->nodes, nodes * sizeof *copied);
    return LK_OK;
}

static lk_status exchange_plan_build(builder *b)
{
    const lk_exchange_plan_opts *opts = b->opts;
    lk_exchange_plan *plan = b->plan;
    int root;
    LK_TRY(exchange_plan_allocate(b));
    for (int r = 0; r < opts->ranks; r++)
        b->indices[0][r] = b->indices[1][r] = -1;
    for (int m = 1; m < opts->n_nodes; m++)
        b->positions[m] = opts->nodes[m].rank == opts->nodes[m - 1].rank ? b->positions[m - 1] + 1 : 0;
    for (int d = 0; d < opts->n; d++) {
        int own = 0;
        for (int m = 0; m < opts->n_nodes; m++)
            own += opts->nodes[m].rank == opts->first + d;
        b->sum_begins[d] = lk__exchange_sum_begin(own, opts->row, opts->in_place);
        plan->words[d] = b->sum_begins[d] + opts->row;
    }
    LK_TRY(exchange_plan_add_merge(b, (lk_range){opts->owned[0].begin, opts->owned[opts->ranks - 1].end}, true, &root));
    plan->reducing = b->merges[root].step + 1;
    plan->n_steps = plan->reducing + (opts->whole ? 0 : exchange_plan_gather_steps(b, opts->ranks));
    plan->steps = lk__calloc((size_t)plan->n_steps, sizeof *plan->steps);
    return plan->steps ? exchange_plan_list_steps(b) : LK_ERR_MEMORY;
}

lk_status lk__exchange_plan_new(const lk_exchange_plan_opts *opts, lk_exchange_plan **out)
{
    builder b = {.opts = opts, .plan = lk__calloc(1, sizeof *b.plan)};
    if (!b.plan)
        return LK_ERR_MEMORY;
    lk__refcount_init(&b.plan->references);
    lk_status status = exchange_plan_build(&b);
    LK_FREE_ALL(b.merges, b.members, b.places, b.positions, b.indices[0], b.indices[1], b.received, b.sum_begins);
    if (status == LK_OK)
        *out = b.plan;
    else
        lk__exchange_plan_release(b.plan);
    return status;
}

void lk__exchange_plan_release(lk_exchange_plan *plan)
{
    if (!plan || !lk__refcount_release(&plan->references))
        return;
    lk__free((void *)(uintptr_t)plan->opts.owned);
    lk__free((void *)(uintptr_t)plan->opts.nodes);
    LK_FREE_ALL(plan->steps, plan->transfers, plan->sums, plan->addends, plan->additions, plan->words, plan->slices,
                plan);
}

bool lk__exchange_plan_is_for(const lk_exchange_plan *plan, const lk_exchange_plan_opts *opts)
{
    const lk_exchange_plan_opts *of = &plan->opts;
    bool alike = of->ranks == opts->ranks && of->n_nodes == opts->n_nodes && of->row == opts->row &&
                 of->whole == opts->whole && of->in_place == opts->in_place && of->flat == opts->flat &&
                 of->first == opts->first && of->n == opts->n;
    for (int r = 0; r < opts->ranks && alike; r++)
        alike = of->owned[r].begin == opts->owned[r].begin && of->owned[r].end == opts->owned[r].end;
    for (int m = 0; m < opts->n_nodes && alike; m++)
        alike = of->nodes[m].rank == opts->nodes[m].rank && of->nodes[m].range.begin == opts->nodes[m].range.begin &&
                of->nodes[m].range.end == opts->nodes[m].range.end;
    return alike;
}
