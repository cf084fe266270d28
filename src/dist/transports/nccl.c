/* NCCL matches messages between two ranks by their order, so both use the order of the nodes. */
#include "dist/transports/transport.h"

static lk_status nccl_scatter_on(const lk_flat_exchange *e, int d)
{
    int64_t count = lk__flat_chunk_count(e);
    for (int m = 0; m < e->n_nodes; m++) {
        int rank = e->nodes[m].rank;
        if (rank != e->first + d)
            LK_TRY(e->table->receive(e->links, d, lk__flat_chunk(e, d, m), count, rank));
        for (int to = 0; to < e->ranks && rank == e->first + d; to++)
            if (to != rank)
                LK_TRY(e->table->send(e->links, d, lk__flat_own_row(e, d, m) + lk__flat_slice_begin(e, to), count, to));
    }
    return LK_OK;
}

static lk_status nccl_gather_on(const lk_flat_exchange *e, int d)
{
    float *row = lk__flat_sum_row(e, d);
    return e->table->all_gather(e->links, d, row + (e->first + d) * e->slice, row, e->slice);
}

static lk_status nccl_reduce_on(const lk_flat_exchange *e, int d)
{
    return e->table->all_reduce(e->links, d, lk__flat_sum_row(e, d), e->row);
}

/* Runs `on` for every device in one group call. The group is ended even if a device failed; otherwise the thread would
 * stay inside it. */
static lk_status nccl_on_all(const lk_flat_exchange *e, lk_status (*on)(const lk_flat_exchange *, int))
{
    LK_TRY(e->table->group_begin(e->links));
    lk_status status = LK_OK;
    for (int d = 0; d < e->n && status == LK_OK; d++)
        status = on(e, d);
    lk_status ended = e->table->group_end(e->links);
    return status != LK_OK ? status : ended;
}

static lk_status nccl_scatter(const lk_flat_exchange *e)
{
    return nccl_on_all(e, nccl_scatter_on);
}

static lk_status nccl_gather(const lk_flat_exchange *e)
{
    return nccl_on_all(e, nccl_gather_on);
}

static lk_status nccl_reduce(const lk_flat_exchange *e)
{
    return nccl_on_all(e, nccl_reduce_on);
}

const lk_transport lk__transport_nccl = {
    .name = "NCCL",
    .scatter = nccl_scatter,
    .gather = nccl_gather,
    .reduce = nccl_reduce,
};
