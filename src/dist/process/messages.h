/* The table of functions that exchange messages between processes. A plug-in fills it, so that nothing else knows the
 * library behind it. Its functions return LK_MESSAGES_OK, or LK_MESSAGES_FAILED with a text in `error`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { LK_MESSAGES_INTERFACE = 3, LK_MESSAGES_ERROR = 512, LK_MESSAGES_HOST = 256 };

typedef enum lk_messages_status { LK_MESSAGES_OK, LK_MESSAGES_FAILED } lk_messages_status;

/* The library's handle of a message in flight. */
typedef struct lk_message {
    _Alignas(8) unsigned char bytes[16];
} lk_message;

/* Messages of one channel between two ranks arrive in the order in which they were sent. Channels are independent. Each
 * message of LK_CHANNEL_TO_ALL is received by all ranks but its sender, who names itself as the other one. */
typedef enum lk_channel {
    LK_CHANNEL_CONTROL,
    LK_CHANNEL_DATA,
    LK_CHANNEL_NOTES,
    LK_CHANNELS,
    LK_CHANNEL_TO_ALL = LK_CHANNELS
} lk_channel;

enum { LK_MESSAGES_ANYBODY = -1 }; /* receive from any rank */

typedef struct lk_messages {
    unsigned interface;
    size_t size;        /* sizeof(lk_messages) */
    size_t most_to_all; /* bytes of the largest message of LK_CHANNEL_TO_ALL; 0: there is no such channel */

    /* Joins the processes that were started together; a process started alone is rank 0 of 1. Once per process, on its
     * main thread. */
    lk_messages_status (*open)(int *rank, int *ranks, char error[LK_MESSAGES_ERROR]);
    /* The library and its version: "Open MPI 4.1.4". */
    const char *(*version)(void);
    /* Name of the machine that this rank runs on. */
    void (*host)(char name[LK_MESSAGES_HOST]);

    /* Begins to send to rank `other`, or to receive from it or from LK_MESSAGES_ANYBODY. Data of a sent message is only
     * read. The memory belongs to the message until `done` reports it. From any thread, one at a time. */
    lk_messages_status (*begin)(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                lk_message *message, char error[LK_MESSAGES_ERROR]);
    /* Sets *all to whether all of messages[0 … n) have been received or sent. Does not wait. After that they must not
     * be asked about again. */
    lk_messages_status (*done)(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR]);

    /* Cancels a receive. */
    void (*cancel)(lk_message *message);

    /* Leaves the other processes, as all must. Messages in flight are abandoned. */
    void (*close)(void);
} lk_messages;

/* The only function that a plug-in exports. */
#define LK_MESSAGES_SYMBOL "lk_messages_of_plugin"
typedef const lk_messages *(*lk_messages_fn)(void);
