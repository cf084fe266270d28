/* The processes that train together. A process has one group: the processes that it was started with. All ranks must
 * call these functions in the same order, on one thread each; `lk__group_exchange` is for the thread of a queue.
 *
 * A waiting rank sleeps between polls, because ranks share cores with devices that compute. If an operation fails on a
 * rank, or is skipped there, that rank gives up for all: from then on every operation fails, on every rank, with an
 * error that says who gave up and why. Otherwise the others would take the rank's next message for the missing one. A
 * rank that never comes is noticed by the program that started the processes (see lockstep launch), which ends them
 * all; if no program did, by the messages' table. */
#pragma once

#include "dist/process/messages.h"
#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_group lk_group;

/* The group of this process. The first call joins the others. Errors: LK_ERR_UNSUPPORTED (there is no plug-in for
 * messages, and why), LK_ERR_BACKEND. */
lk_status lk__group_open(lk_group **group);

/* Returns whether nothing says yet how this process exchanges messages: it has no group, and neither `lockstep launch`
 * nor mpirun nor srun has started it. */
bool lk__group_is_unknown(void);

/* Sets the table by which lk__group_open joins the others and exchanges messages. */
void lk__group_use(const lk_messages *table);

int lk__group_rank(const lk_group *group);
int lk__group_ranks(const lk_group *group);
const char *lk__group_library(const lk_group *group);        /* "Open MPI 4.1.4" */
const char *lk__group_host(const lk_group *group, int rank); /* the machine of a rank */
bool lk__group_spans_machines(const lk_group *group);        /* the same on all ranks */

/* Copies `mine` of every rank to all[rank * bytes …) on all ranks. All ranks pass the same `bytes`. */
lk_status lk__group_gather(lk_group *group, const void *mine, size_t bytes, void *all);

/* The same into a new array of ranks * bytes, which the caller frees with lk__free. NULL: failure, as lk_error_status()
 * says. */
void *lk__group_gather_new(lk_group *group, const void *mine, size_t bytes);

/* Copies `data` of rank `from` to all ranks. */
lk_status lk__group_broadcast(lk_group *group, int from, void *data, size_t bytes);

/* The most bytes of a message to all ranks; 0: they can only be sent to one. */
size_t lk__group_most_to_all(const lk_group *group);

/* A message to or from rank `other`. */
typedef struct lk_group_message {
    bool is_sent;
    bool to_all; /* from one rank to all others; its sender ignores `other` */
    int other;
    void *data; /* only read if the message is sent */
    size_t bytes;
} lk_group_message;

/* Sends and receives all messages, and waits. Messages between two ranks are matched by their order. On failure some
 * may still be in flight, and may use their data for the rest of the process. Errors: LK_ERR_MEMORY, LK_ERR_BACKEND,
 * and the error by which a rank gave up. */
lk_status lk__group_exchange(lk_group *group, lk_channel channel, const lk_group_message *messages, int n);

/* For exchanges by other means than messages: LK_OK, or the error by which a rank is known to have given up; then no
 * exchange may begin. `look` also reads notes that have arrived; waiting ranks call it. From any thread. */
lk_status lk__group_check(const lk_group *group);
lk_status lk__group_look(lk_group *group);

/* Tells all ranks that this rank cannot go on, because of an error that these functions have not found themselves. Only
 * the first call counts; from any thread. */
void lk__group_give_up(lk_group *group, lk_status status, const char *why);

/* The same with the error of the calling thread, if this process has joined others. */
void lk__processes_give_up(lk_status status);
