/* Each device copies what it needs from the others. It begins with its neighbor, so that not all read from the same
 * one. */
#include "dist/transports/transport.h"

static lk_status peer_scatter(const lk_flat_exchange *e)
{
    int64_t count = lk__flat_chunk_count(e);
    for (int d = 0; d < e->n; d++)
        for (int j = 1; j < e->n; j++)
            for (int from = (d + j) % e->n, m = 0; m < e->n_nodes; m++)
                if (e->nodes[m].rank == from)
                    LK_TRY(e->table->copy(e->links, d, lk__flat_chunk(e, d, m), from,
                                          lk__flat_own_row(e, from, m) + lk__flat_slice_begin(e, d), count));
    return LK_OK;
}

static lk_status peer_gather(const lk_flat_exchange *e)
{
    LK_TRY(e->table->join(e->links));
    for (int d = 0; d < e->n; d++) {
        for (int j = 1; j < e->n; j++) {
            int from = (d + j) % e->n;
            int64_t begin = from * e->slice;
            LK_TRY(e->table->copy(e->links, d, lk__flat_sum_row(e, d) + begin, from, lk__flat_sum_row(e, from) + begin,
                                  e->slice));
        }
    }
    return LK_OK;
}

const lk_transport lk__transport_peer = {
    .name = "peer copies",
    .scatter = peer_scatter,
    .gather = peer_gather,
};
