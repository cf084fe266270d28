/* Between two ranks messages are matched by their order, which is that of the nodes on both sides. */
#include "dist/transport.h"

static lk_status send_node(const lk_flat_exchange *e, int d, int m)
{
    for (int to = 0; to < e->ranks; to++)
        if (to != e->nodes[m].rank)
            LK_TRY(e->table->send(e->links, d, lk__flat_own_row(e, d, m) + lk__flat_slice_begin(e, to),
                                  lk__flat_chunk_count(e), to));
    return LK_OK;
}

static lk_status scatter_on(const lk_flat_exchange *e, int d)
{
    for (int m = 0; m < e->n_nodes; m++) {
        int rank = e->nodes[m].rank;
        if (rank == e->first + d)
            LK_TRY(send_node(e, d, m));
        else
            LK_TRY(e->table->receive(e->links, d, lk__flat_chunk(e, d, m), lk__flat_chunk_count(e), rank));
    }
    return LK_OK;
}

static lk_status gather_on(const lk_flat_exchange *e, int d)
{
    float *row = lk__flat_sum_row(e, d);
    return e->table->all_gather(e->links, d, row + (e->first + d) * e->slice, row, e->slice);
}

static lk_status reduce_on(const lk_flat_exchange *e, int d)
{
    return e->table->all_reduce(e->links, d, lk__flat_sum_row(e, d), e->row);
}

/* A group ends also where one of its devices has failed, or the thread would stay in it. */
static lk_status together(const lk_flat_exchange *e, lk_status (*on)(const lk_flat_exchange *, int))
{
    LK_TRY(e->table->group_begin(e->links));
    lk_status status = LK_OK;
    for (int d = 0; d < e->n && status == LK_OK; d++)
        status = on(e, d);
    lk_status ended = e->table->group_end(e->links);
    return status != LK_OK ? status : ended;
}

static lk_status scatter(const lk_flat_exchange *e)
{
    return together(e, scatter_on);
}

static lk_status gather(const lk_flat_exchange *e)
{
    return together(e, gather_on);
}

static lk_status reduce(const lk_flat_exchange *e)
{
    return together(e, reduce_on);
}

const lk_transport lk__transport_nccl = {
    .name = "NCCL",
    .scatter = scatter,
    .gather = gather,
    .reduce = reduce,
};
