#include "dist/flat_exchange.h"

static int64_t own_rows(const lk_flat_exchange *e, int rank)
{
    int64_t rows = 0;
    for (int m = 0; m < e->n_nodes; m++)
        rows += e->nodes[m].rank == rank;
    return rows;
}

int64_t lk__flat_behind_nodes(int64_t own, int64_t nodes, int64_t row, int64_t chunk)
{
    return own * row + (nodes - own) * chunk;
}

int64_t lk__flat_sum_begin(const lk_flat_exchange *e, int d)
{
    return lk__flat_behind_nodes(own_rows(e, e->first + d), e->n_nodes, e->row, lk__flat_chunk_count(e));
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

const float *lk__flat_source(const lk_flat_exchange *e, int d, int m, int to)
{
    return e->rooms[d] + e->nodes[m].place * e->row + lk__flat_slice_begin(e, to);
}

float *lk__flat_chunk(const lk_flat_exchange *e, int d, int m)
{
    int rank = e->first + d;
    if (e->nodes[m].rank == rank)
        return e->rooms[d] + e->nodes[m].place * e->row + lk__flat_slice_begin(e, rank);
    int64_t before = 0;
    for (int i = 0; i < m; i++)
        before += e->nodes[i].rank != rank;
    return e->rooms[d] + own_rows(e, rank) * e->row + before * lk__flat_chunk_count(e);
}
