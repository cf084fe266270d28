/* Receives and sends messages through memory that another rank shares and may have filled with anything. The first byte
 * of the input is the number of messages; a byte for each says how it is begun: 1: sent, 2: of notes, 4: large, 8: from
 * anybody, 128: to all, and in 16 to 64 the other rank. Eight bytes follow with the number of ranks and the size of
 * large rings in the memory's header. Pieces follow: three bytes with the place in the memory behind the header, a byte
 * with the length, and what is written there. After each piece the messages may move. */
#include "fuzz.h"

#include "dist/process/messages.h"
#include "dist/process/shared_messages.h"
#include "lockstep/dist.h"

#include <string.h>

enum { MOST = 4, SMALL = 64, LARGE = 40000, HEADER = 16, RING = 256, SMALL_RING = 4096, MOST_MEMORY = 1 << 24 };

static unsigned char *memory;
static size_t memory_size;

/* The size that memory with this header has to have; 0: too large to try. */
static size_t size_of(int32_t ranks, int32_t large_ring)
{
    size_t n = (size_t)ranks, first = (HEADER + n * sizeof(int32_t) + 4095) / 4096 * 4096;
    size_t size = first + n * n * (2 * (RING + SMALL_RING) + RING + (size_t)large_ring);
    return size <= MOST_MEMORY ? size : 0;
}

/* Joins as rank 0. NULL: the memory is refused. */
static const lk_messages *join(const uint8_t header[8])
{
    char number[16], error[LK_MESSAGES_ERROR] = "";
    int rank, ranks, file;
    int32_t said[2];
    memcpy(said, header, sizeof said);
    memory_size = size_of(said[0], said[1]);
    if (memory_size == 0)
        return NULL;
    FUZZ_CHECK(lk_processes_share(1, &file) == LK_OK && pwrite(file, header, 8, 8) == 8);
    FUZZ_CHECK(ftruncate(file, (off_t)memory_size) == 0);
    snprintf(number, sizeof number, "%d", file);
    setenv(LK_SHARED_MEMORY_VARIABLE, number, 1);
    setenv(LK_RANK_VARIABLE, "0", 1);
    const lk_messages *table = lk__shared_messages();
    memory = mmap(NULL, memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    FUZZ_CHECK(memory != MAP_FAILED);
    if (table->open(&rank, &ranks, error) == LK_MESSAGES_OK) {
        FUZZ_CHECK(rank == 0 && ranks == said[0]);
        return table;
    }
    FUZZ_CHECK(*error && munmap(memory, memory_size) == 0 && close(file) == 0);
    return NULL;
}

/* Fills in the memory and lets the messages move; returns whether all of them are done. */
static bool exchange(const lk_messages *table, lk_message *messages, int n, const uint8_t *at, const uint8_t *end)
{
    char error[LK_MESSAGES_ERROR];
    bool all = false;
    while (end - at >= 4 && !all) {
        size_t place = HEADER + ((size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16), size = at[3];
        at += 4;
        size = size < (size_t)(end - at) ? size : (size_t)(end - at);
        if (place + size <= memory_size)
            memcpy(memory + place, at, size);
        at += size;
        if (table->done(messages, n, &all, error) != LK_MESSAGES_OK)
            break;
    }
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char buffers[MOST][LARGE];
    char error[LK_MESSAGES_ERROR];
    lk_message messages[MOST];
    if (size < 1 + MOST + 8)
        return 0;
    int n = data[0] % MOST + 1;
    const lk_messages *table = join(data + 1 + MOST);
    if (!table)
        return 0;
    int32_t ranks;
    memcpy(&ranks, data + 1 + MOST, sizeof ranks);
    for (int i = 0; i < n; i++) {
        uint8_t how = data[1 + i];
        bool is_sent = how & 1;
        lk_channel channel = how & 128 ? LK_CHANNEL_TO_ALL : how & 2 ? LK_CHANNEL_NOTES : LK_CHANNEL_DATA;
        int other = how & 128 && is_sent ? 0 : how & 8 && !is_sent ? LK_MESSAGES_ANYBODY : (how >> 4 & 7) % ranks;
        FUZZ_CHECK(table->begin(is_sent, channel, other, buffers[i], how & 4 ? LARGE : SMALL, &messages[i], error) ==
                   LK_MESSAGES_OK);
    }
    if (!exchange(table, messages, n, data + 1 + MOST + 8, data + size))
        for (int i = 0; i < n; i++) /* sent ones too: those that are done, but not reported, belong to the caller */
            table->cancel(&messages[i]);
    table->close();
    FUZZ_CHECK(munmap(memory, memory_size) == 0);
    return 0;
}
