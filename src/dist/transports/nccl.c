/* NCCL matches messages between two ranks by their order, which is that of the list. */
#include "dist/transports/transport.h"

/* Ends the group even if a device failed; otherwise the thread would stay inside it. */
static lk_status nccl_end_group(const lk_links_table *table, lk_device *links, lk_status status)
{
    lk_status ended = table->group_end(links);
    return status != LK_OK ? status : ended;
}

static lk_status nccl_begin_transfer(const lk_transfers *t, const lk_transfer *move)
{
    if (move->x)
        LK_TRY(t->table->send(t->links, move->from - t->first, move->x, move->count, move->to));
    return move->y ? t->table->receive(t->links, move->to - t->first, move->y, move->count, move->from) : LK_OK;
}

/* A device without a transfer sends itself a word, so that every rank takes part in every group, as in a collective.
 * Emulated NCCL relies on it: it counts groups alike on all ranks. */
static lk_status nccl_take_part(const lk_transfers *t, int d)
{
    for (int i = 0; i < t->count; i++)
        if (t->list[i].from == t->first + d || t->list[i].to == t->first + d)
            return LK_OK;
    LK_TRY(t->table->send(t->links, d, t->rows[d], 1, t->first + d));
    return t->table->receive(t->links, d, t->rows[d], 1, t->first + d);
}

static lk_status nccl_move(const lk_transfers *t)
{
    lk_status status = LK_OK;
    LK_TRY(t->table->group_begin(t->links));
    for (int i = 0; i < t->count && status == LK_OK; i++)
        status = nccl_begin_transfer(t, &t->list[i]);
    for (int d = 0; d < t->n && status == LK_OK; d++)
        status = nccl_take_part(t, d);
    return nccl_end_group(t->table, t->links, status);
}

static lk_status nccl_gather(const lk_transport_rows *r, int64_t slice)
{
    lk_status status = LK_OK;
    LK_TRY(r->table->group_begin(r->links));
    for (int d = 0; d < r->n && status == LK_OK; d++)
        status = r->table->all_gather(r->links, d, r->rows[d] + (r->first + d) * slice, r->rows[d], slice);
    return nccl_end_group(r->table, r->links, status);
}

static lk_status nccl_reduce(const lk_transport_rows *r)
{
    lk_status status = LK_OK;
    LK_TRY(r->table->group_begin(r->links));
    for (int d = 0; d < r->n && status == LK_OK; d++)
        status = r->table->all_reduce(r->links, d, r->rows[d], r->words);
    return nccl_end_group(r->table, r->links, status);
}

const lk_transport lk__transport_nccl = {
    .name = "NCCL",
    .cost = {.latency = 20e-6, .per_message = 1e-6, .per_byte = 2e-11},
    .move = nccl_move,
    .gather = nccl_gather,
    .reduce = nccl_reduce,
};
