/* Processes that train together. There is one group in a process: those that were started with it. What ranks do here
 * they all do, in the same order, on one thread each; `lk__group_exchange` is for the thread of a queue.
 *
 * Whoever waits sleeps between two looks, for ranks share cores with devices that compute. What fails here, or is left
 * out, gives up: then everything fails, here and on all other ranks, with an error that says who it was and why, for
 * whatever came next would be taken for what is missing. A rank that never comes is found by whoever started the
 * processes (see lockstep launch), which ends them all. */
#ifndef LK_DIST_GROUP_H
#define LK_DIST_GROUP_H

#include "dist/messages.h"
#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_group lk_group;

/* The process's group, which joins the others when it is asked for first. Errors: LK_ERR_UNSUPPORTED
 * (there is no plug-in for messages, and why), LK_ERR_BACKEND. */
lk_status lk__group_open(lk_group **group);

int lk__group_rank(const lk_group *group);
int lk__group_ranks(const lk_group *group);
const char *lk__group_library(const lk_group *group);        /* "Open MPI 4.1.4" */
const char *lk__group_host(const lk_group *group, int rank); /* whose machine it is */

/* all[rank * bytes …) of every rank's `mine`; all ranks give as many bytes. */
lk_status lk__group_gather(lk_group *group, const void *mine, size_t bytes, void *all);

/* data of rank `from`, on every rank. */
lk_status lk__group_broadcast(lk_group *group, int from, void *data, size_t bytes);

/* One of the messages that ranks exchange: to, or from, rank `other`. */
typedef struct lk_group_message {
    bool is_sent;
    int other;
    void *data; /* of a message that is sent, only read */
    size_t bytes;
} lk_group_message;

/* Sends and receives all of them, and waits. Between two ranks messages are matched by their order. On failure some may
 * be under way still, and their data theirs, for as long as the process. Errors: LK_ERR_MEMORY, LK_ERR_BACKEND, and
 * what a rank has given up by. */
lk_status lk__group_exchange(lk_group *group, lk_channel channel, const lk_group_message *messages, int n);

/* For exchanges by other means than messages: LK_OK, or the error by which a rank is known to have given up, where none
 * may begin; `look` reads what has come, for whoever waits. From any thread. */
lk_status lk__group_check(const lk_group *group);
lk_status lk__group_look(lk_group *group);

/* This rank cannot go on, for an error that was not found here. The first time counts; from any thread. */
void lk__group_give_up(lk_group *group, lk_status status, const char *why);

/* The same of the thread's error, where the process has joined others. */
void lk__processes_give_up(lk_status status);

#endif
