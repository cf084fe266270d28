/* What brings messages from process to process: a table that a plug-in fills, so that nothing else knows the library
 * behind it. Its functions give LK_MESSAGES_OK, or LK_MESSAGES_FAILED and a text in `error`. */
#ifndef LK_DIST_MESSAGES_H
#define LK_DIST_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

enum { LK_MESSAGES_INTERFACE = 2, LK_MESSAGES_ERROR = 512, LK_MESSAGES_HOST = 256 };

typedef enum lk_messages_status { LK_MESSAGES_OK, LK_MESSAGES_FAILED } lk_messages_status;

/* A message under way: the library's own handle. */
typedef struct lk_message {
    _Alignas(8) unsigned char bytes[16];
} lk_message;

/* Messages of one channel between two ranks arrive in the order in which they were sent; channels do not see each
 * other. */
typedef enum lk_channel { LK_CHANNEL_CONTROL, LK_CHANNEL_DATA, LK_CHANNEL_NOTES, LK_CHANNELS } lk_channel;

enum { LK_MESSAGES_ANYBODY = -1 }; /* whom a message may come from */

typedef struct lk_messages {
    unsigned interface;
    size_t size; /* of this table */

    /* Joins the processes that were started together; by itself a process is rank 0 of 1. Once in a process, on its
     * main thread. */
    lk_messages_status (*open)(int *rank, int *ranks, char error[LK_MESSAGES_ERROR]);
    /* "Open MPI 4.1.4" */
    const char *(*version)(void);
    /* Of the machine that this rank is on. */
    void (*host)(char name[LK_MESSAGES_HOST]);

    /* Begins to send to rank `other`, or to receive from it, or from LK_MESSAGES_ANYBODY; of a message that is sent,
     * data is only read. Memory is the message's until `done` says so. From any thread, one at a time. */
    lk_messages_status (*begin)(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                lk_message *message, char error[LK_MESSAGES_ERROR]);
    /* Whether all of messages[0 … n) have arrived, or left; does not wait. Once they have, they are not to be asked for
     * again. */
    lk_messages_status (*done)(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR]);

    /* Of a message to be received: it is not to come any more. */
    void (*cancel)(lk_message *message);

    /* Leaves, as the others have to; messages that are under way are left so. */
    void (*close)(void);
} lk_messages;

/* The one function that a plug-in exports. */
#define LK_MESSAGES_SYMBOL "lk_messages_of_plugin"
typedef const lk_messages *(*lk_messages_fn)(void);

#endif
