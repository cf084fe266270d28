/* Links between devices that work by themselves: a queue of its own, with a stream on each of the devices beside the
 * one that the device's kernels are in. To the engine it is one more queue: its entries wait for what they read, on all
 * of its streams, and whoever reads what they write waits for all of these. So an exchange goes on beside other work.
 *
 * Memory is the devices'. What an entry works on has to be in storage that its task names, and stays there until the
 * links are closed or waited for: a device's allocator knows its own stream alone. */
#ifndef LK_CORE_LINKS_H
#define LK_CORE_LINKS_H

#include "base/status.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names links between several processes. Bytes, for whoever hands them to the other ranks. */
typedef struct lk_links_id {
    char bytes[128];
} lk_links_id;

/* The devices are ranks [first, first + n) of `ranks`; all of them are where every rank is here. */
typedef struct lk_links_opts {
    const struct lk_links_table *table; /* what the devices are linked by */
    lk_device *const *devices;
    int n;
    bool has_communicator; /* of a library for collectives, which links between processes need */
    const lk_links_id *id; /* NULL: every rank is here */
    int first, ranks;
    /* NULL, or gives `user`'s error once another rank is known not to come any more, which ends an exchange that waits;
     * else LK_OK. Asked now and then, on any thread. */
    lk_status (*others)(void *user);
    void *user;
} lk_links_opts;

/* count elements of f32. */
typedef struct lk_links_copy {
    const float *from;
    float *to;
    int64_t count;
} lk_links_copy;

/* A tree in postfix: behind addend i follow additions[i] additions, each of the two values before it. */
enum { LK_LINKS_ADDENDS = 64, LK_LINKS_LEVELS = 24 };
typedef struct lk_links_sum {
    const void *addends[LK_LINKS_ADDENDS];
    unsigned char additions[LK_LINKS_ADDENDS];
    int n_addends; /* at least 1 */
    void *y;       /* may be an addend */
    lk_dtype dtype;
    int64_t count;
} lk_links_sum;

/* What a kind of device has. Devices of the links are told by their number among them, ranks by theirs among all. */
typedef struct lk_links_table {
    const struct lk_backend *backend; /* of the queue */
    unsigned dtypes;                  /* LK_DTYPE_BIT of those that `sum` takes */
    bool in_place;                    /* memory is the process's: what devices wrote is read and sent where it is */

    /* LK_OK, or why a library cannot be used between these devices: LK_ERR_UNSUPPORTED. */
    lk_status (*check_library)(lk_device *const *devices, int n);
    /* "NCCL 2.28.9" */
    void (*describe_library)(char *text, size_t size);
    /* Whether it takes several ranks on one physical device. */
    bool (*shares_devices)(void);
    lk_status (*new_id)(lk_links_id *id);

    /* On the thread of `device`, which may be none of links, in its own stream; or on the queue's, of what is read in
     * place. */
    lk_status (*pack)(lk_device *device, const lk_links_copy *copies, int n);

    /* On the queue's thread. What is started on one device runs in order. */
    lk_status (*copy)(lk_device *links, int to, float *y, int from, const float *x, int64_t count); /* runs on `to` */
    lk_status (*sum)(lk_device *links, int on, const lk_links_sum *sum);
    lk_status (*clear)(lk_device *links, int on, float *y, int64_t count);
    /* What is started next, on any device, waits for what was started on all of them. */
    lk_status (*join)(lk_device *links);

    /* The library's, on the queue's thread: see lk_gpu_nccl in cuda/driver.h. A group ends with the error of any
     * exchange so far; then there is no further one. */
    lk_status (*group_begin)(lk_device *links);
    lk_status (*group_end)(lk_device *links);
    lk_status (*send)(lk_device *links, int on, const float *x, int64_t count, int to);
    lk_status (*receive)(lk_device *links, int on, float *x, int64_t count, int from);
    lk_status (*all_gather)(lk_device *links, int on, const float *x, float *y, int64_t count);
    lk_status (*all_reduce)(lk_device *links, int on, float *x, int64_t count);
} lk_links_table;

/* To be released like a device, after which nothing of it is under way; no kernel runs there. The devices, all of one
 * kind, have to live as long. Waits for the other ranks, and so does each exchange; with a communicator no longer than
 * LOCKSTEP_EXCHANGE_TIMEOUT says, in seconds (60), while nothing moves: then whoever waits for the links, or for the
 * devices, is told so, until these are closed. Errors: LK_ERR_UNSUPPORTED (devices that share their memory; what
 * check_library says), LK_ERR_DEVICE (a rank does not come), LK_ERR_ARGUMENT (no such number of seconds), and what the
 * backend reports. */
lk_status lk__links_open(const lk_links_opts *opts, lk_device **links);

/* NULL: devices of this kind need none. */
const lk_links_table *lk__links_of(const lk_device *device);

#endif
