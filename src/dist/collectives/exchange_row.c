#include "dist/collectives/exchange_row.h"

#include "base/minmax.h"
#include "core/links.h"
#include "dist/sum/tree.h"

enum { WORD = sizeof(float) };

static int64_t exchange_row_quantity_words(lk_shape shape, lk_dtype dtype)
{
    return lk_shape_count(shape) * (int64_t)lk_dtype_size(dtype) / WORD;
}

static bool exchange_row_is_whole(int64_t words)
{
    return words <= LK_SMALL_QUANTITY;
}

lk_exchange_row lk__exchange_row_lay_out(const lk_shape *shapes, lk_dtype dtype, const int *quantities, int n,
                                         int64_t *begins, lk_exchange_span *spans)
{
    lk_exchange_row row = {0};
    for (int small = 1; small >= 0; small--) {
        for (int q = 0; q < n; q++) {
            lk_exchange_span span = {row.words, exchange_row_quantity_words(shapes[quantities[q]], dtype)};
            if (small != (lk_shape_count(shapes[quantities[q]]) <= LK_SMALL_QUANTITY))
                continue;
            if (begins)
                begins[q] = span.begin;
            if (spans && !small)
                spans[row.n_spans] = span;
            row.n_spans += !small;
            row.words += lk__divide_up(span.words, LK_EXCHANGE_ALIGN) * LK_EXCHANGE_ALIGN;
        }
        if (!small || row.words == 0)
            continue;
        row.copied = row.words;
        if (spans)
            spans[0] = (lk_exchange_span){0, row.copied};
        row.n_spans = 1;
    }
    row.whole = exchange_row_is_whole(row.words);
    return row;
}

/* Estimates whether words go faster along the tree than flat. Ranks whose ranges of shards are no nodes of the tree
 * send more messages and bytes: see exchange_plan_test.c. */
static bool exchange_row_is_faster_along_tree(const lk_transport_cost *cost, int64_t ranks, int64_t words)
{
    bool is_even = (ranks & (ranks - 1)) == 0;
    int steps = 0;
    while (((int64_t)1 << steps) < ranks)
        steps++;
    double others = (double)(ranks - 1), row = (double)(words * WORD) * cost->per_byte,
           part = row * others / (double)ranks;
    double step = cost->latency + cost->per_message * (is_even ? 1 : 3);
    double flat = cost->latency + others * cost->per_message;
    if (exchange_row_is_whole(words))
        return steps * (step + row * (is_even ? 1 : 2)) < flat + others * row;
    return 2 * steps * step + part * (is_even ? 2 : 3.5) < 2 * flat + part * (is_even ? 2 : 2.5);
}

bool lk__exchange_row_takes_tree(const lk_transport_cost *cost, lk_exchange way, int64_t ranks, int64_t words,
                                 bool compressed)
{
    if (ranks <= 2 || compressed)
        return false;
    if (ranks > LK_LINKS_ADDENDS || way != LK_EXCHANGE_AUTO)
        return ranks > LK_LINKS_ADDENDS || way == LK_EXCHANGE_TREE;
    return exchange_row_is_faster_along_tree(cost, ranks, words);
}
