/* Between processes by messages, within one by copies. Two processes match messages by their order, which is that of
 * nodes and ranks on both sides. */
#include "dist/transport.h"

#include "base/bf16.h"
#include "base/status.h"
#include "core/backend.h"

typedef struct message_list {
    lk_group_message *messages; /* NULL while they are counted */
    int n;
} message_list;

static void add(message_list *list, bool is_sent, int other, const float *data, int64_t words)
{
    if (list->messages)
        list->messages[list->n] =
            (lk_group_message){is_sent, other, (void *)(uintptr_t)data, (size_t)words * sizeof *data};
    list->n++;
}

static int process_of(const lk_flat_exchange *e, int rank)
{
    int process = 0;
    while (e->group->starts[process + 1] <= rank)
        process++;
    return process;
}

static bool is_here(const lk_flat_exchange *e, int rank)
{
    return rank >= e->first && rank < e->first + e->n;
}

/* --- messages as bf16 --------------------------------------------------------------------------------------------- */

static size_t words_of(const lk_group_message *m)
{
    return m->bytes / sizeof(float);
}

static void round_here(float *x, int64_t count)
{
    enum { PIECE = 1024 };
    uint16_t halves[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        lk__bf16_round(x + i, halves, n);
        lk__bf16_widen(halves, x + i, n);
    }
}

/* Every message is half as long; what comes is widened where it belongs. */
static lk_status exchange_halves(const lk_flat_exchange *e, const message_list *list)
{
    size_t words = 0, at = 0;
    for (int i = 0; i < list->n; i++)
        words += words_of(&list->messages[i]);
    uint16_t *halves = lk__device_calloc(e->links, words + 1, sizeof *halves);
    lk_group_message *short_ones = lk__device_calloc(e->links, (size_t)list->n + 1, sizeof *short_ones);
    lk_status status = halves && short_ones ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < list->n && status == LK_OK; i++) {
        const lk_group_message *m = &list->messages[i];
        short_ones[i] = (lk_group_message){m->is_sent, m->other, halves + at, m->bytes / 2};
        if (m->is_sent)
            lk__bf16_round(m->data, halves + at, (int64_t)words_of(m));
        at += words_of(m);
    }
    bool is_over = status != LK_OK;
    if (status == LK_OK)
        status = lk__group_exchange(e->group->processes, LK_CHANNEL_DATA, short_ones, list->n);
    is_over |= status == LK_OK;
    for (int i = 0; i < list->n && status == LK_OK; i++)
        if (!list->messages[i].is_sent)
            lk__bf16_widen(short_ones[i].data, list->messages[i].data, (int64_t)words_of(&list->messages[i]));
    if (is_over) /* else messages are still under way, until the process ends because of it */
        lk__device_free(e->links, halves);
    lk__device_free(e->links, short_ones);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* Counts the messages that `fill` lists, then lists them, and exchanges them. */
static lk_status exchange(const lk_flat_exchange *e, void (*fill)(const lk_flat_exchange *e, message_list *list))
{
    message_list list = {0};
    fill(e, &list);
    list.messages = lk__device_calloc(e->links, (size_t)list.n + 1, sizeof *list.messages);
    if (!list.messages)
        return LK_ERR_MEMORY;
    list.n = 0;
    fill(e, &list);
    lk_status status = e->compressed ? exchange_halves(e, &list)
                                     : lk__group_exchange(e->group->processes, LK_CHANNEL_DATA, list.messages, list.n);
    lk__device_free(e->links, list.messages);
    return status;
}

static int64_t length(lk_range words)
{
    return words.end - words.begin;
}

/* What rank `to` needs of node m, each span by itself: from there, or as it is sent. */
static void list_node(const lk_flat_exchange *e, message_list *list, int m, int to)
{
    int owner = e->nodes[m].rank;
    for (int s = 0; s < e->n_spans; s++) {
        lk_range words = lk__flat_shared(e, s, to);
        if (length(words) == 0)
            continue;
        if (is_here(e, owner))
            add(list, true, process_of(e, to), lk__flat_words(e, owner - e->first, m, s, words.begin), length(words));
        else
            add(list, false, process_of(e, owner), lk__flat_words(e, to - e->first, m, s, words.begin), length(words));
    }
}

static void list_chunks(const lk_flat_exchange *e, message_list *list)
{
    for (int m = 0; m < e->n_nodes; m++)
        for (int to = 0; to < e->ranks; to++)
            if (is_here(e, e->nodes[m].rank) != is_here(e, to))
                list_node(e, list, m, to);
}

/* Of node m, from device `from` to device `to`. */
static lk_status copy_node(const lk_flat_exchange *e, int m, int from, int to)
{
    float *chunk = lk__flat_chunk(e, to, m);
    for (int s = 0; s < e->n_spans; s++) {
        lk_range words = lk__flat_shared(e, s, e->first + to);
        if (length(words) == 0)
            continue;
        float *here = chunk + (words.begin - lk__flat_slice_begin(e, e->first + to));
        LK_TRY(e->table->copy(e->links, to, here, from, lk__flat_words(e, from, m, s, words.begin), length(words)));
        if (e->compressed)
            round_here(here, length(words));
    }
    return LK_OK;
}

static lk_status copy_chunks(const lk_flat_exchange *e)
{
    for (int m = 0; m < e->n_nodes; m++) {
        int owner = e->nodes[m].rank - e->first;
        for (int to = 0; to < e->n && is_here(e, e->nodes[m].rank); to++)
            if (to != owner)
                LK_TRY(copy_node(e, m, owner, to));
    }
    return LK_OK;
}

static lk_status scatter(const lk_flat_exchange *e)
{
    LK_TRY(copy_chunks(e));
    return exchange(e, list_chunks);
}

/* A process gets a slice once, for its first device. */
static void list_slices(const lk_flat_exchange *e, message_list *list)
{
    int processes = lk__group_ranks(e->group->processes), here = lk__group_rank(e->group->processes);
    for (int step = 1; step < processes; step++) {
        int to = (here + step) % processes, from = (here + processes - step) % processes;
        for (int d = 0; d < e->n; d++)
            add(list, true, to, lk__flat_sum_row(e, d) + (e->first + d) * e->slice, e->slice);
        for (int rank = e->group->starts[from]; rank < e->group->starts[from + 1]; rank++)
            add(list, false, from, lk__flat_sum_row(e, 0) + rank * e->slice, e->slice);
    }
}

static lk_status copy_slices(const lk_flat_exchange *e)
{
    for (int rank = 0; rank < e->ranks; rank++) {
        int from = is_here(e, rank) ? rank - e->first : 0;
        for (int to = 0; to < e->n; to++)
            if (to != from)
                LK_TRY(e->table->copy(e->links, to, lk__flat_sum_row(e, to) + rank * e->slice, from,
                                      lk__flat_sum_row(e, from) + rank * e->slice, e->slice));
    }
    return LK_OK;
}

/* Replicas have to be equal: whoever has a slice as it was rounds it as it comes to the others. */
static lk_status gather(const lk_flat_exchange *e)
{
    for (int d = 0; d < e->n && e->compressed; d++)
        round_here(lk__flat_sum_row(e, d) + (e->first + d) * e->slice, e->slice);
    LK_TRY(exchange(e, list_slices));
    return copy_slices(e);
}

const lk_transport lk__transport_mpi = {
    .name = "MPI",
    .is_late = true,
    .scatter = scatter,
    .gather = gather,
};
