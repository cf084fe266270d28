#include "dist/flat_exchange.h"

/* Of a rank's nodes. */
static int64_t own_nodes(const lk_flat_exchange *e, int rank)
{
    int64_t rows = 0;
    for (int m = 0; m < e->n_nodes; m++)
        rows += e->nodes[m].rank == rank;
    return rows;
}

/* The rows of a rank's nodes. */
static int64_t rows_words(const lk_flat_exchange *e, int rank)
{
    return e->values ? 0 : own_nodes(e, rank) * e->row;
}

int64_t lk__flat_sum_begin(const lk_flat_exchange *e, int d)
{
    int rank = e->first + d;
    return rows_words(e, rank) + (e->n_nodes - own_nodes(e, rank)) * lk__flat_chunk_count(e);
}

int64_t lk__flat_room_words(const lk_flat_exchange *e)
{
    int64_t most = 0;
    for (int d = 0; d < e->n; d++) {
        int64_t words = lk__flat_sum_begin(e, d) + e->row;
        most = words > most ? words : most;
    }
    return most;
}

float *lk__flat_sum_row(const lk_flat_exchange *e, int d)
{
    return e->rooms[d] + lk__flat_sum_begin(e, d);
}

float *lk__flat_own_row(const lk_flat_exchange *e, int d, int m)
{
    return e->rooms[d] + e->nodes[m].place * e->row;
}

float *lk__flat_chunk(const lk_flat_exchange *e, int d, int m)
{
    int rank = e->first + d;
    int64_t before = 0;
    for (int i = 0; i < m; i++)
        before += e->nodes[i].rank != rank;
    return e->rooms[d] + rows_words(e, rank) + before * lk__flat_chunk_count(e);
}

lk_range lk__flat_shared(const lk_flat_exchange *e, int s, int rank)
{
    int64_t begin = e->spans[s].begin, end = begin + e->spans[s].words;
    int64_t first = lk__flat_slice_begin(e, rank), behind = first + lk__flat_chunk_count(e);
    begin = begin > first ? begin : first;
    end = end < behind ? end : behind;
    return (lk_range){begin, end > begin ? end : begin};
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
