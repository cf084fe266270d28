#include "dist/transports/flat_exchange.h"

#include "base/minmax.h"

static int64_t flat_exchange_count_own_nodes(const lk_flat_exchange *e, int rank)
{
    int64_t n = 0;
    for (int m = 0; m < e->n_nodes; m++)
        n += e->nodes[m].rank == rank;
    return n;
}

/* The words of a buffer that hold the rows of the rank's own nodes. */
static int64_t flat_exchange_own_rows_words(const lk_flat_exchange *e, int rank)
{
    return e->values ? 0 : flat_exchange_count_own_nodes(e, rank) * e->row;
}

int64_t lk__flat_sum_begin(const lk_flat_exchange *e, int d)
{
    int rank = e->first + d;
    return flat_exchange_own_rows_words(e, rank) +
           (e->n_nodes - flat_exchange_count_own_nodes(e, rank)) * lk__flat_chunk_count(e);
}

int64_t lk__flat_buffer_words(const lk_flat_exchange *e)
{
    int64_t most = 0;
    for (int d = 0; d < e->n; d++)
        most = lk__max(most, lk__flat_sum_begin(e, d) + e->row);
    return most;
}

float *lk__flat_sum_row(const lk_flat_exchange *e, int d)
{
    return e->buffers[d] + lk__flat_sum_begin(e, d);
}

float *lk__flat_own_row(const lk_flat_exchange *e, int d, int m)
{
    return e->buffers[d] + e->nodes[m].position * e->row;
}

float *lk__flat_chunk(const lk_flat_exchange *e, int d, int m)
{
    int rank = e->first + d;
    int64_t before = 0;
    for (int i = 0; i < m; i++)
        before += e->nodes[i].rank != rank;
    return e->buffers[d] + flat_exchange_own_rows_words(e, rank) + before * lk__flat_chunk_count(e);
}

lk_range lk__flat_span_part(const lk_flat_exchange *e, int s, int rank)
{
    int64_t chunk = lk__flat_slice_begin(e, rank), chunk_end = chunk + lk__flat_chunk_count(e);
    int64_t begin = lk__max(e->spans[s].begin, chunk), end = e->spans[s].begin + e->spans[s].words;
    return (lk_range){begin, lk__max(begin, lk__min(end, chunk_end))};
}

const float *lk__flat_words(const lk_flat_exchange *e, int d, int m, int s, int64_t begin)
{
    int rank = e->first + d;
    if (e->nodes[m].rank != rank)
        return lk__flat_chunk(e, d, m) + (begin - lk__flat_slice_begin(e, rank));
    if (e->values)
        return e->values[m * e->n_spans + s] + (begin - e->spans[s].begin);
    return lk__flat_own_row(e, d, m) + begin;
}
