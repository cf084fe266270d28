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

lk_exchange_load lk__exchange_row_load(int64_t ranks, bool whole, bool along_tree, bool are_nodes)
{
    int log2 = 0;
    while (((int64_t)1 << log2) < ranks)
        log2++;
    double others = (double)(ranks - 1), part = others / (double)ranks, steps = along_tree ? log2 : 1;
    double messages = along_tree ? steps * (are_nodes ? 1 : 3) : others;
    if (whole)
        return (lk_exchange_load){steps, messages, along_tree ? steps * (are_nodes ? 1 : 2) : others};
    return (lk_exchange_load){2 * steps, 2 * messages, part * (are_nodes ? 2 : along_tree ? 3.5 : 2.5)};
}

static double exchange_row_seconds(const lk_transport_cost *cost, int64_t ranks, int64_t words, bool along_tree)
{
    bool is_power_of_two = (ranks & (ranks - 1)) == 0;
    lk_exchange_load load = lk__exchange_row_load(ranks, exchange_row_is_whole(words), along_tree, is_power_of_two);
    return load.steps * cost->latency + load.messages * cost->per_message +
           load.rows * (double)(words * WORD) * cost->per_byte;
}

bool lk__exchange_row_takes_tree(const lk_transport_cost *cost, lk_exchange way, int64_t ranks, int64_t words,
                                 bool compressed)
{
    if (ranks <= 2 || compressed)
        return false;
    if (ranks > LK_LINKS_ADDENDS || way != LK_EXCHANGE_AUTO)
        return ranks > LK_LINKS_ADDENDS || way == LK_EXCHANGE_TREE;
    return exchange_row_seconds(cost, ranks, words, true) < exchange_row_seconds(cost, ranks, words, false);
}
