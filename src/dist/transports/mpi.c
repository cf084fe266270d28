/* Sends messages between processes and copies inside one. Two processes match messages by their order, so both list
 * them in the order of nodes and ranks. */
#include "dist/transports/transport.h"

#include "base/bf16.h"
#include "base/status.h"
#include "core/backend.h"

typedef struct message_list {
    lk_group_message *messages; /* NULL while they are counted */
    int n;
} message_list;

static void mpi_list_add(message_list *list, bool is_sent, int other, const float *data, int64_t words)
{
    if (list->messages)
        list->messages[list->n] =
            (lk_group_message){is_sent, other, (void *)(uintptr_t)data, (size_t)words * sizeof *data};
    list->n++;
}

static int mpi_process_of(const lk_flat_exchange *e, int rank)
{
    int process = 0;
    while (e->group->starts[process + 1] <= rank)
        process++;
    return process;
}

static bool mpi_rank_is_local(const lk_flat_exchange *e, int rank)
{
    return rank >= e->first && rank < e->first + e->n;
}

/* --- messages as bf16 --------------------------------------------------------------------------------------------- */

static size_t mpi_message_words(const lk_group_message *m)
{
    return m->bytes / sizeof(float);
}

static void mpi_round_to_bf16(float *x, int64_t count)
{
    enum { PIECE = 1024 };
    uint16_t halves[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        lk__bf16_round(x + i, halves, n);
        lk__bf16_widen(halves, x + i, n);
    }
}

/* Sends every message as bf16, half as long, and widens what arrives. */
static lk_status mpi_exchange_halves(const lk_flat_exchange *e, const message_list *list)
{
    size_t words = 0, at = 0;
    for (int i = 0; i < list->n; i++)
        words += mpi_message_words(&list->messages[i]);
    uint16_t *halves = lk__device_calloc(e->links, words + 1, sizeof *halves);
    lk_group_message *shortened = lk__device_calloc(e->links, (size_t)list->n + 1, sizeof *shortened);
    lk_status status = halves && shortened ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < list->n && status == LK_OK; i++) {
        const lk_group_message *m = &list->messages[i];
        shortened[i] = (lk_group_message){m->is_sent, m->other, halves + at, m->bytes / 2};
        if (m->is_sent)
            lk__bf16_round(m->data, halves + at, (int64_t)mpi_message_words(m));
        at += mpi_message_words(m);
    }
    bool is_in_flight = false;
    if (status == LK_OK) {
        status = lk__group_exchange(e->group->processes, LK_CHANNEL_DATA, shortened, list->n);
        is_in_flight = status != LK_OK; /* after a failure until the process ends */
    }
    for (int i = 0; i < list->n && status == LK_OK; i++)
        if (!list->messages[i].is_sent)
            lk__bf16_widen(shortened[i].data, list->messages[i].data, (int64_t)mpi_message_words(&list->messages[i]));
    if (!is_in_flight)
        lk__device_free(e->links, halves);
    lk__device_free(e->links, shortened);
    return status;
}

/* --- chunks and slices -------------------------------------------------------------------------------------------- */

/* Exchanges the messages that `fill` lists. Calls it twice, first to count them. */
static lk_status mpi_exchange(const lk_flat_exchange *e, void (*fill)(const lk_flat_exchange *e, message_list *list))
{
    message_list list = {0};
    fill(e, &list);
    list.messages = lk__device_calloc(e->links, (size_t)list.n + 1, sizeof *list.messages);
    if (!list.messages)
        return LK_ERR_MEMORY;
    list.n = 0;
    fill(e, &list);
    lk_status status = e->compressed ? mpi_exchange_halves(e, &list)
                                     : lk__group_exchange(e->group->processes, LK_CHANNEL_DATA, list.messages, list.n);
    lk__device_free(e->links, list.messages);
    return status;
}

static int64_t mpi_range_words(lk_range words)
{
    return words.end - words.begin;
}

/* Lists what rank `to` needs of node m, one message per span: sent if the node is local, else received. */
static void mpi_list_node(const lk_flat_exchange *e, message_list *list, int m, int to)
{
    int owner = e->nodes[m].rank;
    for (int s = 0; s < e->n_spans; s++) {
        lk_range words = lk__flat_span_part(e, s, to);
        if (mpi_range_words(words) == 0)
            continue;
        if (mpi_rank_is_local(e, owner))
            mpi_list_add(list, true, mpi_process_of(e, to), lk__flat_words(e, owner - e->first, m, s, words.begin),
                         mpi_range_words(words));
        else
            mpi_list_add(list, false, mpi_process_of(e, owner), lk__flat_words(e, to - e->first, m, s, words.begin),
                         mpi_range_words(words));
    }
}

static void mpi_list_chunks(const lk_flat_exchange *e, message_list *list)
{
    for (int m = 0; m < e->n_nodes; m++)
        for (int to = 0; to < e->ranks; to++)
            if (mpi_rank_is_local(e, e->nodes[m].rank) != mpi_rank_is_local(e, to))
                mpi_list_node(e, list, m, to);
}

/* Copies node m from device `from` to device `to`. */
static lk_status mpi_copy_node(const lk_flat_exchange *e, int m, int from, int to)
{
    float *chunk = lk__flat_chunk(e, to, m);
    for (int s = 0; s < e->n_spans; s++) {
        lk_range words = lk__flat_span_part(e, s, e->first + to);
        if (mpi_range_words(words) == 0)
            continue;
        float *here = chunk + (words.begin - lk__flat_slice_begin(e, e->first + to));
        LK_TRY(e->table->copy(e->links, to, here, from, lk__flat_words(e, from, m, s, words.begin),
                              mpi_range_words(words)));
        if (e->compressed)
            mpi_round_to_bf16(here, mpi_range_words(words));
    }
    return LK_OK;
}

static lk_status mpi_scatter(const lk_flat_exchange *e)
{
    for (int m = 0; m < e->n_nodes; m++) {
        int owner = e->nodes[m].rank - e->first;
        for (int to = 0; to < e->n && mpi_rank_is_local(e, e->nodes[m].rank); to++)
            if (to != owner)
                LK_TRY(mpi_copy_node(e, m, owner, to));
    }
    return mpi_exchange(e, mpi_list_chunks);
}

/* Lists the slices to send and receive. A process receives a slice once, for its first device. */
static void mpi_list_slices(const lk_flat_exchange *e, message_list *list)
{
    int processes = lk__group_ranks(e->group->processes), here = lk__group_rank(e->group->processes);
    for (int step = 1; step < processes; step++) {
        int to = (here + step) % processes, from = (here + processes - step) % processes;
        for (int d = 0; d < e->n; d++)
            mpi_list_add(list, true, to, lk__flat_sum_row(e, d) + (e->first + d) * e->slice, e->slice);
        for (int rank = e->group->starts[from]; rank < e->group->starts[from + 1]; rank++)
            mpi_list_add(list, false, from, lk__flat_sum_row(e, 0) + rank * e->slice, e->slice);
    }
}

static lk_status mpi_gather(const lk_flat_exchange *e)
{
    /* Replicas must be equal, so a rank that computed a slice in f32 rounds it as the others receive it. */
    for (int d = 0; d < e->n && e->compressed; d++)
        mpi_round_to_bf16(lk__flat_sum_row(e, d) + (e->first + d) * e->slice, e->slice);
    LK_TRY(mpi_exchange(e, mpi_list_slices));
    for (int rank = 0; rank < e->ranks; rank++) {
        int from = mpi_rank_is_local(e, rank) ? rank - e->first : 0;
        for (int to = 0; to < e->n; to++)
            if (to != from)
                LK_TRY(e->table->copy(e->links, to, lk__flat_sum_row(e, to) + rank * e->slice, from,
                                      lk__flat_sum_row(e, from) + rank * e->slice, e->slice));
    }
    return LK_OK;
}

const lk_transport lk__transport_mpi = {
    .name = "MPI",
    .is_late = true,
    .scatter = mpi_scatter,
    .gather = mpi_gather,
};
