/* A transport moves bytes between devices. */
#pragma once

#include "core/links.h"
#include "dist/process/group.h"
#include "lockstep/tensor.h"

/* The processes of an exchange: process p has the ranks [starts[p], starts[p + 1]). */
typedef struct lk_exchange_group {
    lk_group *processes;
    const int *starts; /* [processes + 1] */
} lk_exchange_group;

/* `count` words of four bytes, from x, memory of rank `from`, to y, memory of rank `to`. x or y is NULL if its rank is
 * in another process. */
typedef struct lk_transfer {
    int from, to;
    int before; /* the rank that the transfer before this one brings the same words; -1: none */
    const float *x;
    float *y;
    int64_t count;
} lk_transfer;

/* The transfers of one step of an exchange that concern this process. Every process lists them in the same order. */
typedef struct lk_transfers {
    lk_device *links;
    const lk_links_table *table;
    const lk_exchange_group *group; /* NULL: one process */
    int n, first, ranks;            /* the devices of this process are ranks [first, first + n) */
    bool is_first;                  /* the first step of the exchange: the links' streams hold nothing to wait for */
    bool to_all;                    /* what a rank sends goes to all other ranks, and then `before` says so */
    bool compressed;                /* words are f32, and travel to other devices as bf16 */
    bool replicates;                /* the sender keeps the words, and must have what the others get */
    float *const *rows;             /* [n]: the row that is exchanged, on each device */
    const lk_transfer *list;
    int count;
} lk_transfers;

/* Rows in the buffers of this process's devices. */
typedef struct lk_transport_rows {
    lk_device *links;
    const lk_links_table *table;
    int n, first;
    float *const *rows; /* [n] */
    int64_t words;      /* of a row */
} lk_transport_rows;

/* The seconds that a step of an exchange takes: `latency`, `per_message` for each message that a rank sends, and
 * `per_byte` for each of its bytes. The figures are typical ones. They only choose between exchanges with the same
 * result. */
typedef struct lk_transport_cost {
    double latency, per_message, per_byte;
} lk_transport_cost;

typedef struct lk_transport {
    const char *name;
    bool is_late; /* after a failure it may read and write the memory of an exchange for the rest of the process */
    lk_transport_cost cost;

    /* For devices without links; NULL in transports for links. Returns a tensor with the elements of `tensor` that
     * kernels of `device` can read: `tensor` itself if memory is shared, else a copy, which belongs to the open scope.
     * NULL for NULL. Asynchronous. */
    lk_tensor *(*reach)(lk_call_site at, lk_tensor *tensor, lk_device *device);

    /* For links; NULL in other transports. Called on the thread of the links' queue, once for each step. */
    lk_status (*move)(const lk_transfers *transfers);
    /* Collects all slices of the rows, which are equally long and in the order of the ranks. NULL: `move` does it. */
    lk_status (*gather)(const lk_transport_rows *rows, int64_t slice);
    /* Replaces the rows of all ranks by their total, in an order that the library chooses. NULL: not available. */
    lk_status (*reduce)(const lk_transport_rows *rows);
} lk_transport;

extern const lk_transport lk__transport_inproc; /* devices that share their memory */
extern const lk_transport lk__transport_peer;   /* links, by copies between devices; all ranks are local */
extern const lk_transport lk__transport_nccl;   /* links, by NCCL's sends, receives and collectives */
extern const lk_transport lk__transport_mpi;    /* links between processes whose devices use the process's memory */
