/* For each channel and each ordered pair of ranks the memory has a ring of bytes with one writer and one reader. A
 * message is its size, followed by its data, cut into pieces as the ring has room for them. A large message is its size
 * and its address: the reader copies it out of the other process's memory, once, where the system allows that. What a
 * rank sends to all others lies once in a ring that all of them read: the one from that rank to itself.
 *
 * Messages make progress while somebody calls `done`: every call moves the bytes of all messages in flight, not only of
 * those asked about, so that two ranks which wait for different messages do not wait for each other. */
#include "dist/process/shared_messages.h"

#include "base/mem.h"
#include "base/status.h"
#include "lockstep/dist.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* --- the memory --------------------------------------------------------------------------------------------------- */

#define SHARED_MAGIC UINT64_C(0x316d656d6b6c) /* "lkmem1" */

enum {
    SMALL_RING = 4 << 10,
    LARGE_RING = 256 << 10,
    LEAST_LARGE_RING = 16 << 10,
    PIECE = 32 << 10,         /* bytes that are copied before the other side may take them */
    LEAST_COPIED = 256 << 10, /* bytes of a large message */
    MAX_RANKS = 4096
};

/* All data rings together take at most this many bytes of addresses. Memory is used only for rings that are. */
static const int64_t MOST_BYTES = INT64_C(4) << 30;

typedef struct shared_header {
    uint64_t magic;
    int32_t ranks;
    int32_t large_ring; /* bytes of a ring of LK_CHANNEL_DATA */
} shared_header;

/* After the header: each rank's process, 0 until it has joined. */
typedef _Atomic int32_t shared_process;

/* The counters only grow; byte i's place is shift + i modulo the ring's size, which is a power of two. The writer sets
 * `shift` when the ring is empty, so that it begins again at the first place: short messages then use few pages, which
 * stay in the caches. */
typedef struct ring {
    _Alignas(128) _Atomic uint64_t written;
    _Atomic uint64_t shift;
    _Alignas(128) _Atomic uint64_t read;
    _Atomic uint64_t read_of_all; /* of the ring from the writer to itself, by this ring's reader */
    _Atomic uint64_t copied;      /* number of messages that the reader has copied out of the writer's memory */
    _Atomic uint32_t is_streamed; /* not 0: the reader may not read that memory; large messages go through the ring */
    _Alignas(128) char bytes[];
} ring;

static uint64_t shared_messages_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t shared_messages_ring_capacity(const shared_header *h, lk_channel channel)
{
    return channel == LK_CHANNEL_DATA || channel == LK_CHANNEL_TO_ALL ? (uint64_t)h->large_ring : SMALL_RING;
}

/* The offset of the channel's first ring. */
static size_t shared_messages_channel_offset(const shared_header *h, lk_channel channel)
{
    size_t offset = (sizeof *h + (size_t)h->ranks * sizeof(shared_process) + 4095) / 4096 * 4096;
    for (int c = 0; c < (int)channel; c++)
        offset +=
            (size_t)h->ranks * (size_t)h->ranks * (sizeof(ring) + shared_messages_ring_capacity(h, (lk_channel)c));
    return offset;
}

lk_status lk_processes_share(int ranks, int *descriptor)
{
    shared_header h = {SHARED_MAGIC, ranks, LARGE_RING};
    *descriptor = -1;
    if (ranks < 1 || ranks > MAX_RANKS)
        LK_FAIL(LK_ERR_ARGUMENT, "%d processes; from 1 to %d can share memory", ranks, MAX_RANKS);
    while (h.large_ring > LEAST_LARGE_RING && (int64_t)ranks * ranks * h.large_ring > MOST_BYTES)
        h.large_ring /= 2;
    int file = memfd_create("lockstep", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)shared_messages_channel_offset(&h, LK_CHANNELS)) != 0 ||
        pwrite(file, &h, sizeof h, 0) != (ssize_t)sizeof h) {
        int error = errno;
        if (file >= 0)
            close(file);
        LK_FAIL(LK_ERR_IO, "shared memory for %d processes cannot be made: %s", ranks, strerror(error));
    }
    *descriptor = file;
    return LK_OK;
}

/* --- messages in flight ------------------------------------------------------------------------------------------- */

/* The messages that use one ring on this side, in order; only the first one moves. */
typedef struct transfer_queue {
    struct transfer *first, *last;
} transfer_queue;

typedef struct transfer {
    struct transfer *next;  /* in flight, in the order in which they began; or unused */
    struct transfer *after; /* in its queue */
    transfer_queue *queue;  /* NULL: a receive from anybody, from whom nothing has come */
    ring *ring;
    _Atomic uint64_t *read; /* the reader's counter; NULL: sent to all, who have one each */
    lk_channel channel;
    int other;
    bool is_sent, has_begun, is_done;
    struct {
        uint64_t size, address;
    } head;
    char *data;
    uint64_t size, moved;        /* moved: through the ring, with the head */
    uint64_t head_bytes, stream; /* bytes of the head, and all that go through the ring: without data, the reader copies
                                    them out of the sender's memory */
    uint64_t copied;             /* ring->copied before this message was sent */
} transfer;

static struct {
    shared_header *memory;
    shared_header header; /* as it was when it was checked */
    size_t bytes;
    int rank, ranks;
    transfer_queue *queues; /* [2][LK_CHANNELS + 1][ranks]: received, sent */
    transfer *first;        /* in flight */
    transfer *unused;
    pthread_mutex_t lock; /* for the messages */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ring *shared_messages_ring(lk_channel channel, int from, int to)
{
    const shared_header *h = &shared.header;
    size_t number = (size_t)from * (size_t)h->ranks + (size_t)to,
           offset = shared_messages_channel_offset(h, channel) +
                    number * (sizeof(ring) + shared_messages_ring_capacity(h, channel));
    return (ring *)(void *)((char *)shared.memory + offset);
}

/* Sets the ring, its reader, and the queue. */
static void shared_messages_aim(transfer *t, int other)
{
    t->other = other;
    t->queue = &shared.queues[((int)t->is_sent * (LK_CHANNELS + 1) + (int)t->channel) * shared.ranks + other];
    if (t->channel == LK_CHANNEL_TO_ALL) {
        t->ring = shared_messages_ring(LK_CHANNEL_DATA, other, other);
        t->read = t->is_sent ? NULL : &shared_messages_ring(LK_CHANNEL_DATA, other, shared.rank)->read_of_all;
        return;
    }
    t->ring = shared_messages_ring(t->channel, t->is_sent ? shared.rank : other, t->is_sent ? other : shared.rank);
    t->read = &t->ring->read;
}

static void shared_messages_enqueue(transfer *t)
{
    if (t->queue->first)
        t->queue->last->after = t;
    else
        t->queue->first = t;
    t->queue->last = t;
}

/* Bytes in the ring that have not been read, by the last reader. */
static uint64_t shared_messages_unread(const transfer *t)
{
    uint64_t written = atomic_load_explicit(&t->ring->written, memory_order_acquire), most = 0;
    if (t->read)
        return written - atomic_load_explicit(t->read, memory_order_acquire);
    for (int to = 0; to < shared.ranks; to++) {
        const ring *r = shared_messages_ring(LK_CHANNEL_DATA, shared.rank, to);
        uint64_t unread = written - atomic_load_explicit(&r->read_of_all, memory_order_acquire);
        if (to != shared.rank && unread > most)
            most = unread;
    }
    return most;
}

/* Copies the next n bytes of the message to the ring, or from it, from number `at` on. */
static void shared_messages_copy_piece(transfer *t, uint64_t at, uint64_t n, uint64_t capacity)
{
    for (uint64_t piece; n > 0; n -= piece, at += piece, t->moved += piece) {
        bool is_head = t->moved < t->head_bytes;
        char *mine = is_head ? (char *)&t->head + t->moved : t->data + (t->moved - t->head_bytes);
        char *theirs = t->ring->bytes + (at & (capacity - 1));
        piece = shared_messages_least(n, capacity - (at & (capacity - 1)));
        if (is_head)
            piece = shared_messages_least(piece, t->head_bytes - t->moved);
        if (t->is_sent)
            memcpy(theirs, mine, piece);
        else
            memcpy(mine, theirs, piece);
    }
}

/* Moves as many bytes of the message as the ring has, or has room for. */
static void shared_messages_move_bytes(transfer *t)
{
    ring *r = t->ring;
    uint64_t capacity = shared_messages_ring_capacity(&shared.header, t->channel);
    _Atomic uint64_t *own = t->is_sent ? &r->written : t->read;
    while (t->moved < t->stream) {
        uint64_t at = atomic_load_explicit(own, memory_order_relaxed), unread = shared_messages_unread(t), n = unread;
        if (t->is_sent)
            n = unread < capacity ? capacity - unread : 0;
        n = shared_messages_least(shared_messages_least(n, PIECE), t->stream - t->moved);
        if (n == 0)
            break;
        if (t->is_sent && unread == 0)
            atomic_store_explicit(&r->shift, -at, memory_order_relaxed); /* published together with `written` */
        shared_messages_copy_piece(t, at + atomic_load_explicit(&r->shift, memory_order_relaxed), n, capacity);
        atomic_store_explicit(own, at + n, memory_order_release);
    }
}

/* The message is the first one in its queue, so both sides know by now whether the reader may copy out of memory. */
static void shared_messages_begin_stream(transfer *t)
{
    bool is_copied = t->size >= LEAST_COPIED && t->channel != LK_CHANNEL_TO_ALL && !atomic_load(&t->ring->is_streamed);
    t->has_begun = true;
    t->head.size = t->size;
    t->head.address = (uintptr_t)t->data;
    t->head_bytes = is_copied ? sizeof t->head : sizeof t->head.size;
    t->stream = t->head_bytes + (is_copied ? 0 : t->size);
    t->copied = atomic_load(&t->ring->copied);
}

/* The data of a large message go through the ring after all. */
static void shared_messages_stream_large(transfer *t)
{
    t->stream = t->head_bytes + t->size;
    shared_messages_move_bytes(t);
}

/* The reader's side of a large message. */
static void shared_messages_copy_large(transfer *t)
{
    const shared_process *processes = (const shared_process *)(shared.memory + 1);
    uint64_t copied = 0;
    while (copied < t->size) {
        struct iovec here = {t->data + copied, t->size - copied},
                     there = {(void *)(uintptr_t)(t->head.address + copied), t->size - copied};
        ssize_t n = process_vm_readv(atomic_load(&processes[t->other]), &here, 1, &there, 1, 0);
        if (n <= 0)
            break;
        copied += (uint64_t)n;
    }
    t->is_done = copied == t->size;
    if (t->is_done) {
        atomic_fetch_add(&t->ring->copied, 1);
        return;
    }
    atomic_store(&t->ring->is_streamed, 1);
    shared_messages_stream_large(t);
}

/* The writer's side: learns what the reader has done. */
static void shared_messages_look(transfer *t)
{
    t->is_done = atomic_load(&t->ring->copied) != t->copied;
    if (!t->is_done && atomic_load(&t->ring->is_streamed))
        shared_messages_stream_large(t);
}

static void shared_messages_find_sender(transfer *t)
{
    for (int from = 0; from < shared.ranks; from++) {
        shared_messages_aim(t, from);
        if (!t->queue->first && shared_messages_unread(t) > 0) {
            shared_messages_enqueue(t);
            return;
        }
    }
    t->queue = NULL;
}

/* Returns false if the message has another size than its receiver expects. */
static bool shared_messages_advance(transfer *t)
{
    if (!t->queue)
        shared_messages_find_sender(t);
    if (!t->queue || t->queue->first != t)
        return true;
    if (!t->has_begun)
        shared_messages_begin_stream(t);
    shared_messages_move_bytes(t);
    if (t->moved >= sizeof t->head.size && t->head.size != t->size)
        return false;
    bool is_through = t->moved == t->stream, has_data = t->stream == t->head_bytes + t->size;
    if (is_through && has_data)
        t->is_done = true;
    else if (is_through && t->is_sent)
        shared_messages_look(t);
    else if (is_through)
        shared_messages_copy_large(t);
    if (t->is_done)
        t->queue->first = t->after;
    return true;
}

/* Advances all messages, and takes those that are done out of the list. */
static lk_messages_status shared_messages_advance_all(char error[LK_MESSAGES_ERROR])
{
    for (transfer **at = &shared.first; *at;) {
        transfer *t = *at;
        if (!shared_messages_advance(t)) {
            snprintf(error, LK_MESSAGES_ERROR, "shared memory: a message is not of the %llu bytes that are expected",
                     (unsigned long long)t->size);
            return LK_MESSAGES_FAILED;
        }
        if (t->is_done)
            *at = t->next;
        else
            at = &t->next;
    }
    return LK_MESSAGES_OK;
}

static transfer *shared_messages_transfer_of(const lk_message *message)
{
    transfer *t;
    memcpy(&t, message->bytes, sizeof t);
    return t;
}

static void shared_messages_drop(transfer *t)
{
    t->next = shared.unused;
    shared.unused = t;
}

static transfer *shared_messages_transfer_new(void)
{
    transfer *t = shared.unused;
    if (!t)
        return lk__calloc(1, sizeof *t);
    shared.unused = t->next;
    *t = (transfer){0};
    return t;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static lk_messages_status shared_messages_fail(char error[LK_MESSAGES_ERROR], const char *what)
{
    snprintf(error, LK_MESSAGES_ERROR, "shared memory (" LK_SHARED_MEMORY_VARIABLE "=%s, " LK_RANK_VARIABLE "=%s): %s",
             getenv(LK_SHARED_MEMORY_VARIABLE), getenv(LK_RANK_VARIABLE) ? getenv(LK_RANK_VARIABLE) : "", what);
    return LK_MESSAGES_FAILED;
}

static int shared_messages_env_number(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : -1;
    return text && end != text && !*end && number >= 0 && number <= INT32_MAX ? (int)number : -1;
}

/* A ring's size must be a power of two. */
static bool shared_messages_is_header(const shared_header *h)
{
    return h->magic == SHARED_MAGIC && h->ranks >= 1 && h->ranks <= MAX_RANKS && h->large_ring >= LEAST_LARGE_RING &&
           h->large_ring <= LARGE_RING && (h->large_ring & (h->large_ring - 1)) == 0;
}

/* The descriptor is closed, so that no other program inherits it. */
static lk_messages_status shared_messages_join(int *rank, int *ranks, char error[LK_MESSAGES_ERROR])
{
    int file = shared_messages_env_number(LK_SHARED_MEMORY_VARIABLE);
    struct stat found;
    shared_header h;
    ssize_t got = pread(file, &h, sizeof h, 0);
    if (got < 0 && errno != EBADF)
        return shared_messages_fail(error, strerror(errno));
    if (got != (ssize_t)sizeof h || !shared_messages_is_header(&h) || fstat(file, &found) != 0 ||
        (uint64_t)found.st_size != shared_messages_channel_offset(&h, LK_CHANNELS))
        return shared_messages_fail(error, "no memory for messages; lockstep launch makes it");
    shared.rank = shared_messages_env_number(LK_RANK_VARIABLE);
    shared.ranks = h.ranks;
    shared.header = h;
    if (shared.rank < 0 || shared.rank >= h.ranks)
        return shared_messages_fail(error, "no rank of this job");
    shared.bytes = (size_t)found.st_size;
    shared.queues = lk__calloc(2 * (size_t)(LK_CHANNELS + 1) * (size_t)h.ranks, sizeof *shared.queues);
    void *memory = mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED || !shared.queues)
        return shared_messages_fail(error, strerror(ENOMEM));
    close(file);
    shared.memory = memory;
    atomic_store((shared_process *)(shared.memory + 1) + shared.rank, (int32_t)getpid());
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* lets the others read: see ptrace_scope of Yama */
    *rank = shared.rank;
    *ranks = shared.ranks;
    return LK_MESSAGES_OK;
}

static const char *shared_messages_version(void)
{
    return "shared memory";
}

static void shared_messages_host(char name[LK_MESSAGES_HOST])
{
    if (gethostname(name, LK_MESSAGES_HOST) != 0)
        snprintf(name, LK_MESSAGES_HOST, "localhost");
    name[LK_MESSAGES_HOST - 1] = '\0';
}

static lk_messages_status shared_messages_begin(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                                lk_message *message, char error[LK_MESSAGES_ERROR])
{
    pthread_mutex_lock(&shared.lock);
    transfer *t = shared_messages_transfer_new();
    if (t) {
        transfer **end = &shared.first;
        t->is_sent = is_sent;
        t->channel = channel;
        t->data = data;
        t->size = bytes;
        if (other != LK_MESSAGES_ANYBODY) {
            shared_messages_aim(t, other);
            shared_messages_enqueue(t);
        }
        while (*end)
            end = &(*end)->next;
        *end = t;
        memcpy(message->bytes, &t, sizeof t);
    }
    pthread_mutex_unlock(&shared.lock);
    if (t)
        return LK_MESSAGES_OK;
    snprintf(error, LK_MESSAGES_ERROR, "shared memory: no memory for a message");
    return LK_MESSAGES_FAILED;
}

static lk_messages_status shared_messages_done(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR])
{
    pthread_mutex_lock(&shared.lock);
    lk_messages_status status = shared_messages_advance_all(error);
    *all = status == LK_MESSAGES_OK;
    for (int i = 0; i < n && *all; i++)
        *all = shared_messages_transfer_of(&messages[i])->is_done;
    for (int i = 0; i < n && *all; i++)
        shared_messages_drop(shared_messages_transfer_of(&messages[i]));
    pthread_mutex_unlock(&shared.lock);
    return status;
}

static void shared_messages_cancel(lk_message *message)
{
    pthread_mutex_lock(&shared.lock);
    transfer *t = shared_messages_transfer_of(message), **at = &shared.first;
    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    if (t->queue && t->queue->first == t)
        t->queue->first = t->after;
    shared_messages_drop(t);
    pthread_mutex_unlock(&shared.lock);
}

static void shared_messages_leave(void)
{
    pthread_mutex_lock(&shared.lock);
    while (shared.first) {
        transfer *t = shared.first;
        shared.first = t->next;
        shared_messages_drop(t);
    }
    while (shared.unused) {
        transfer *t = shared.unused;
        shared.unused = t->next;
        lk__free(t);
    }
    munmap(shared.memory, shared.bytes);
    lk__free(shared.queues);
    shared.queues = NULL;
    pthread_mutex_unlock(&shared.lock);
}

const lk_messages *lk__shared_messages(void)
{
    static const lk_messages table = {
        .interface = LK_MESSAGES_INTERFACE,
        .size = sizeof table,
        .most_to_all = LEAST_COPIED - 1,
        .open = shared_messages_join,
        .version = shared_messages_version,
        .host = shared_messages_host,
        .begin = shared_messages_begin,
        .done = shared_messages_done,
        .cancel = shared_messages_cancel,
        .close = shared_messages_leave,
    };
    return getenv(LK_SHARED_MEMORY_VARIABLE) ? &table : NULL;
}
