/* For each channel and each ordered pair of ranks the memory has a ring of bytes with one writer and one reader. A
 * message is its size, followed by its data, cut into pieces as the ring has room for them. A large message is its size
 * and its address: the reader copies it out of the other process's memory, once, where the system allows that.
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
    _Atomic uint64_t copied;      /* number of messages that the reader has copied out of the writer's memory */
    _Atomic uint32_t is_streamed; /* not 0: the reader may not read that memory; large messages go through the ring */
    _Alignas(128) char bytes[];
} ring;

static uint64_t shared_messages_ring_capacity(const shared_header *h, lk_channel channel)
{
    return channel == LK_CHANNEL_DATA ? (uint64_t)h->large_ring : SMALL_RING;
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
    lk_channel channel;
    int other;
    bool is_sent, has_size, is_done;
    char *data;
    uint64_t size, moved;
    uint64_t address; /* in the sender's memory; 0: the data go through the ring */
    uint64_t copied;  /* ring->copied before this message was sent */
} transfer;

static struct {
    shared_header *memory;
    size_t bytes;
    int rank, ranks;
    transfer_queue *queues; /* [2][channels][ranks]: received, sent */
    transfer *first;        /* in flight */
    transfer *unused;
    pthread_mutex_t lock; /* for the messages */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Sets the ring and the queue. */
static void shared_messages_aim(transfer *t, int other)
{
    const shared_header *h = shared.memory;
    t->other = other;
    int from = t->is_sent ? shared.rank : other, to = t->is_sent ? other : shared.rank;
    size_t number = (size_t)from * (size_t)h->ranks + (size_t)to,
           offset = shared_messages_channel_offset(h, t->channel) +
                    number * (sizeof(ring) + shared_messages_ring_capacity(h, t->channel));
    t->ring = (ring *)(void *)((char *)shared.memory + offset);
    t->queue = &shared.queues[((int)t->is_sent * LK_CHANNELS + (int)t->channel) * shared.ranks + other];
}

static void shared_messages_enqueue(transfer *t)
{
    if (t->queue->first)
        t->queue->last->after = t;
    else
        t->queue->first = t;
    t->queue->last = t;
}

/* Moves at most n bytes between `data` and the ring, as many as it has or has room for; returns how many. */
static uint64_t shared_messages_move_bytes(const transfer *t, char *data, uint64_t n)
{
    ring *r = t->ring;
    uint64_t capacity = shared_messages_ring_capacity(shared.memory, t->channel), done = 0;
    _Atomic uint64_t *own = t->is_sent ? &r->written : &r->read, *theirs = t->is_sent ? &r->read : &r->written;
    while (done < n) {
        uint64_t at = atomic_load_explicit(own, memory_order_relaxed),
                 seen = atomic_load_explicit(theirs, memory_order_acquire);
        if (t->is_sent && at == seen)
            atomic_store_explicit(&r->shift, -at, memory_order_relaxed); /* published together with `written` */
        uint64_t place = (atomic_load_explicit(&r->shift, memory_order_relaxed) + at) & (capacity - 1);
        uint64_t limits[] = {PIECE, n - done, capacity - place, t->is_sent ? capacity - (at - seen) : seen - at};
        uint64_t piece = limits[0];
        for (size_t i = 1; i < sizeof limits / sizeof limits[0]; i++)
            piece = limits[i] < piece ? limits[i] : piece;
        if (piece == 0)
            break;
        if (t->is_sent)
            memcpy(r->bytes + place, data + done, piece);
        else
            memcpy(data + done, r->bytes + place, piece);
        atomic_store_explicit(own, at + piece, memory_order_release);
        done += piece;
    }
    return done;
}

static bool shared_messages_can_move(const transfer *t, uint64_t n)
{
    uint64_t used = atomic_load_explicit(&t->ring->written, memory_order_acquire) -
                    atomic_load_explicit(&t->ring->read, memory_order_acquire);
    return (t->is_sent ? shared_messages_ring_capacity(shared.memory, t->channel) - used : used) >= n;
}

/* Moves the size, and the address of a large message, in one piece. Returns false if the sender's size is not the
 * one that the receiver expects. */
static bool shared_messages_move_size(transfer *t)
{
    struct {
        uint64_t size, address;
    } head = {t->size, (uintptr_t)t->data};
    bool has_address = t->size >= LEAST_COPIED && !atomic_load(&t->ring->is_streamed);
    uint64_t bytes = has_address ? sizeof head : sizeof head.size;
    if (!shared_messages_can_move(t, bytes))
        return true;
    t->copied = atomic_load(&t->ring->copied);
    for (uint64_t done = 0; done < bytes;) /* the ring may end in the middle of it */
        done += shared_messages_move_bytes(t, (char *)&head + done, bytes - done);
    t->address = has_address ? head.address : 0;
    t->has_size = true;
    return head.size == t->size;
}

/* The reader's side of a large message. */
static void shared_messages_copy_large(transfer *t)
{
    const shared_process *processes = (const shared_process *)(shared.memory + 1);
    while (t->moved < t->size) {
        struct iovec here = {t->data + t->moved, t->size - t->moved},
                     there = {(void *)(uintptr_t)(t->address + t->moved), t->size - t->moved};
        ssize_t n = process_vm_readv(atomic_load(&processes[t->other]), &here, 1, &there, 1, 0);
        if (n <= 0)
            break;
        t->moved += (uint64_t)n;
    }
    if (t->moved == t->size) {
        atomic_fetch_add(&t->ring->copied, 1);
        return;
    }
    t->moved = t->address = 0;
    atomic_store(&t->ring->is_streamed, 1);
}

/* The writer's side: learns what the reader has done. */
static void shared_messages_look(transfer *t)
{
    if (atomic_load(&t->ring->copied) != t->copied)
        t->moved = t->size;
    else if (atomic_load(&t->ring->is_streamed))
        t->address = 0;
}

static void shared_messages_find_sender(transfer *t)
{
    for (int from = 0; from < shared.ranks; from++) {
        shared_messages_aim(t, from);
        if (!t->queue->first && shared_messages_can_move(t, 1)) {
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
    if (!t->has_size && !shared_messages_move_size(t))
        return false;
    if (!t->has_size)
        return true;
    if (t->address && t->is_sent)
        shared_messages_look(t);
    else if (t->address)
        shared_messages_copy_large(t);
    if (!t->address)
        t->moved += shared_messages_move_bytes(t, t->data + t->moved, t->size - t->moved);
    if (t->moved == t->size) {
        t->is_done = true;
        t->queue->first = t->after;
    }
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
    if (shared.rank < 0 || shared.rank >= h.ranks)
        return shared_messages_fail(error, "no rank of this job");
    shared.bytes = (size_t)found.st_size;
    shared.queues = lk__calloc(2 * (size_t)LK_CHANNELS * (size_t)h.ranks, sizeof *shared.queues);
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
