/* Sends messages between processes and copies inside one. Two processes match messages by their order, which is that of
 * the list. Words for several devices of a process are sent to the first of them, which passes them on. Words for all
 * processes are one message, if there is such a thing and they are not too many. */
#include "dist/transports/transport.h"

#include "base/bf16.h"
#include "base/status.h"
#include "core/backend.h"

static int mpi_process_of(const lk_transfers *t, int rank)
{
    int process = 0;
    while (t->group->starts[process + 1] <= rank)
        process++;
    return process;
}

/* Returns whether the process of `to` gets these words already, by the transfer before. */
static bool mpi_is_passed_on(const lk_transfers *t, const lk_transfer *move)
{
    return move->before >= 0 && mpi_process_of(t, move->before) == mpi_process_of(t, move->to);
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
static lk_status mpi_exchange_halves(const lk_transfers *t, const lk_group_message *messages, int n)
{
    size_t words = 0, at = 0;
    for (int i = 0; i < n; i++)
        words += mpi_message_words(&messages[i]);
    uint16_t *halves = lk__device_calloc(t->links, words + 1, sizeof *halves);
    lk_group_message *shortened = lk__device_calloc(t->links, (size_t)n + 1, sizeof *shortened);
    lk_status status = halves && shortened ? LK_OK : LK_ERR_MEMORY;
    for (int i = 0; i < n && status == LK_OK; i++) {
        const lk_group_message *m = &messages[i];
        shortened[i] = *m;
        shortened[i].data = halves + at;
        shortened[i].bytes = m->bytes / 2;
        if (m->is_sent)
            lk__bf16_round(m->data, halves + at, (int64_t)mpi_message_words(m));
        at += mpi_message_words(m);
    }
    bool is_in_flight = false;
    if (status == LK_OK) {
        status = lk__group_exchange(t->group->processes, LK_CHANNEL_DATA, shortened, n);
        is_in_flight = status != LK_OK; /* after a failure until the process ends */
    }
    for (int i = 0; i < n && status == LK_OK; i++)
        if (!messages[i].is_sent)
            lk__bf16_widen(shortened[i].data, messages[i].data, (int64_t)mpi_message_words(&messages[i]));
    if (!is_in_flight)
        lk__device_free(t->links, halves);
    lk__device_free(t->links, shortened);
    return status;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static lk_status mpi_copy(const lk_transfers *t, const lk_transfer *move, int from, const float *x)
{
    LK_TRY(t->table->copy(t->links, move->to - t->first, move->y, from - t->first, x, move->count));
    if (t->compressed)
        mpi_round_to_bf16(move->y, move->count);
    return LK_OK;
}

static lk_status mpi_exchange(const lk_transfers *t)
{
    int n = 0;
    size_t most_to_all = t->to_all ? lk__group_most_to_all(t->group->processes) : 0;
    bool all_are_told = false; /* the words of this transfer and the ones before it */
    lk_group_message *messages = lk__device_calloc(t->links, (size_t)t->count + 1, sizeof *messages);
    if (!messages)
        return LK_ERR_MEMORY;
    for (int i = 0; i < t->count; i++) {
        const lk_transfer *move = &t->list[i];
        bool to_all = (size_t)move->count * sizeof *move->x <= most_to_all;
        all_are_told &= move->before >= 0;
        if ((move->x && move->y) || mpi_is_passed_on(t, move) || (move->x && all_are_told))
            continue;
        all_are_told = move->x && to_all;
        messages[n++] = (lk_group_message){.is_sent = move->x != NULL,
                                           .to_all = to_all,
                                           .other = mpi_process_of(t, move->x ? move->to : move->from),
                                           .data = move->x ? (void *)(uintptr_t)move->x : move->y,
                                           .bytes = (size_t)move->count * sizeof *move->x};
    }
    lk_status status = t->compressed ? mpi_exchange_halves(t, messages, n)
                                     : lk__group_exchange(t->group->processes, LK_CHANNEL_DATA, messages, n);
    lk__device_free(t->links, messages);
    return status;
}

static lk_status mpi_move(const lk_transfers *t)
{
    /* Replicas must be equal, so a rank that computed words in f32 rounds them as the others receive them. */
    for (int i = 0; i < t->count && t->compressed && t->replicates; i++)
        if (t->list[i].x && t->list[i].before < 0)
            mpi_round_to_bf16((float *)(uintptr_t)t->list[i].x, t->list[i].count);
    for (int i = 0; i < t->count; i++)
        if (t->list[i].x && t->list[i].y)
            LK_TRY(mpi_copy(t, &t->list[i], t->list[i].from, t->list[i].x));
    LK_TRY(mpi_exchange(t));
    for (int i = 0; i < t->count; i++)
        if (!t->list[i].x && mpi_is_passed_on(t, &t->list[i]))
            LK_TRY(mpi_copy(t, &t->list[i], t->list[i].before, t->list[i - 1].y));
    return LK_OK;
}

const lk_transport lk__transport_mpi = {
    .name = "MPI",
    .is_late = true,
    .cost = {.latency = 20e-6, .per_message = 2e-6, .per_byte = 1e-10},
    .move = mpi_move,
};
