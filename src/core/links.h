/* Links between offload devices: a queue with a separate stream on each device, next to the stream that runs the
 * device's kernels, so that exchanges overlap with computation. To the engine it is one more queue: its entries wait,
 * on all of its streams, for the work that wrote their inputs, and readers of their outputs wait for all its streams.
 * "The links' thread" is the queue's; if it shares a core with a device's, a thread that waits for the links may run
 * their entries in its place (core/queue.c).
 *
 * Memory belongs to the devices. An entry may only use storage that its task names, and that storage must stay
 * allocated until the links are closed or waited for: a device's allocator knows only the device's own stream. */
#pragma once

#include "base/status.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names links between several processes. Plain bytes, to be sent to the other ranks. */
typedef struct lk_links_id {
    char bytes[128];
} lk_links_id;

/* The devices are ranks [first, first + n) of `ranks`; they are all of them if every rank is local. */
typedef struct lk_links_opts {
    const struct lk_links_table *table; /* how the devices are linked */
    lk_device *const *devices;
    int n;
    bool has_communicator; /* use a library for collectives; links between processes need one */
    const lk_links_id *id; /* NULL: every rank is local */
    int first, ranks;
    /* Returns `user`'s error once another rank is known to be gone, which ends an exchange that waits; else LK_OK.
     * Polled from any thread. NULL: nothing is known about the other ranks. */
    lk_status (*others)(void *user);
    void *user;
} lk_links_opts;

/* Copies `count` elements of f32. */
typedef struct lk_links_copy {
    const float *from;
    float *to;
    int64_t count;
} lk_links_copy;

/* A tree of additions in postfix order: after addend i come additions[i] additions, each of the two values before
 * it. */
enum { LK_LINKS_ADDENDS = 64, LK_LINKS_LEVELS = 24 };
typedef struct lk_links_sum {
    const void *addends[LK_LINKS_ADDENDS];
    unsigned char additions[LK_LINKS_ADDENDS];
    int n_addends; /* at least 1 */
    void *y;       /* may be one of the addends */
    lk_dtype dtype;
    int64_t count;
} lk_links_sum;

/* The functions of a kind of linked device. Devices are numbered by their position in the links, ranks by their
 * position among all ranks. */
typedef struct lk_links_table {
    const struct lk_backend *backend; /* of the links' queue */
    unsigned dtypes;                  /* LK_DTYPE_BIT of the dtypes that `sum` takes */
    bool in_place; /* the devices' memory is the process's: values are read and sent where the devices wrote them */

    /* LK_OK, or LK_ERR_UNSUPPORTED with the reason why the library cannot be used between these devices. */
    lk_status (*check_library)(lk_device *const *devices, int n);
    /* Writes the library's name and version, as in "NCCL 2.28.9". */
    void (*describe_library)(char *text, size_t size);
    /* Returns whether the library takes several ranks on one physical device. */
    bool (*shares_devices)(void);
    lk_status (*new_id)(lk_links_id *id);

    /* On the thread of `device`, which need not be linked, in its own stream; or on the links' thread, for values that
     * are read in place. */
    lk_status (*pack)(lk_device *device, const lk_links_copy *copies, int n);

    /* On the links' thread. Work that is started on one device runs in order. */
    lk_status (*copy)(lk_device *links, int to, float *y, int from, const float *x, int64_t count); /* runs on `to` */
    lk_status (*sum)(lk_device *links, int on, const lk_links_sum *sum);
    lk_status (*clear)(lk_device *links, int on, float *y, int64_t count);
    /* Makes work that is started next, on any device, wait for work that was started on all of them. */
    lk_status (*join)(lk_device *links);

    /* The library's operations, on the links' thread: see lk_gpu_nccl in cuda/driver.h. A group ends with the error of
     * any exchange so far; after an error there can be no further group. */
    lk_status (*group_begin)(lk_device *links);
    lk_status (*group_end)(lk_device *links);
    lk_status (*send)(lk_device *links, int on, const float *x, int64_t count, int to);
    lk_status (*receive)(lk_device *links, int on, float *x, int64_t count, int from);
    lk_status (*all_gather)(lk_device *links, int on, const float *x, float *y, int64_t count);
    lk_status (*all_reduce)(lk_device *links, int on, float *x, int64_t count);
} lk_links_table;

/* Opens links. Release them like a device, which waits for what is in flight. They run no kernels. The devices must
 * all be of one kind and live as long. Opening waits for the other ranks, and so does each exchange. With a
 * communicator it waits at most LOCKSTEP_EXCHANGE_TIMEOUT seconds (60) while nothing moves; after that every wait
 * for the links or the devices returns the error until the links are closed. Errors: LK_ERR_UNSUPPORTED (devices
 * that share their memory; check_library's reasons), LK_ERR_DEVICE (a rank does not come), LK_ERR_ARGUMENT
 * (LOCKSTEP_EXCHANGE_TIMEOUT is no valid number), and what the backend reports. */
lk_status lk__links_open(const lk_links_opts *opts, lk_device **links);

/* Returns how devices of this kind are linked; NULL: they need no links. */
const lk_links_table *lk__links_of(const lk_device *device);
