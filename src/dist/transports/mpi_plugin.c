/* The plug-in for MPI, liblockstep_mpi.so: the only file that knows it. The library's functions are called from two
 * threads, the caller's and that of a queue, but from one at a time. */
#include "dist/messages.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(lk_message), "a message holds a request");

/* A communicator each, so that messages of one channel are never taken for another's. */
static MPI_Comm channels[LK_CHANNELS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What an error code means, in the library's words. */
static lk_messages_status check(int code, const char *what, char error[LK_MESSAGES_ERROR])
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return LK_MESSAGES_OK;
    MPI_Error_string(code, words, &length);
    snprintf(error, LK_MESSAGES_ERROR, "MPI: %s: %s", what, words);
    return LK_MESSAGES_FAILED;
}

/* Errors come back as codes, so that they can be reported with what we know. */
static lk_messages_status make_channel(MPI_Comm *channel, char error[LK_MESSAGES_ERROR])
{
    lk_messages_status status = check(MPI_Comm_dup(MPI_COMM_WORLD, channel), "open a channel", error);
    if (status == LK_MESSAGES_OK)
        MPI_Comm_set_errhandler(*channel, MPI_ERRORS_RETURN);
    return status;
}

static lk_messages_status join_all(int *rank, int *ranks, char error[LK_MESSAGES_ERROR])
{
    int provided = MPI_THREAD_SINGLE;
    lk_messages_status status =
        check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "join the other processes", error);
    if (status != LK_MESSAGES_OK)
        return status;
    if (provided < MPI_THREAD_SERIALIZED) {
        snprintf(error, LK_MESSAGES_ERROR,
                 "MPI: this library cannot be used by more than one thread (MPI_THREAD_SERIALIZED)");
        return LK_MESSAGES_FAILED;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    for (int i = 0; i < LK_CHANNELS && status == LK_MESSAGES_OK; i++)
        status = make_channel(&channels[i], error);
    return status;
}

/* "Open MPI v4.1.4, package: …" without what comes behind the number. */
static const char *version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0, major = 0, minor = 0, patch = 0;
    MPI_Get_library_version(text, &length);
    if (sscanf(text, "Open MPI v%d.%d.%d", &major, &minor, &patch) == 3)
        snprintf(text, sizeof text, "Open MPI %d.%d.%d", major, minor, patch);
    text[strcspn(text, ",\n")] = '\0';
    return text;
}

static void host(char name[LK_MESSAGES_HOST])
{
    char text[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MPI_Get_processor_name(text, &length);
    snprintf(name, LK_MESSAGES_HOST, "%s", text);
}

/* MPI counts elements by int: large messages are counted in larger ones, which have to divide them. */
static lk_messages_status count_elements(size_t bytes, int *count, MPI_Datatype *type, char error[LK_MESSAGES_ERROR])
{
    bool is_large = bytes > INT_MAX;
    *type = is_large ? MPI_FLOAT : MPI_BYTE;
    *count = (int)(is_large ? bytes / sizeof(float) : bytes);
    if (!is_large || (bytes % sizeof(float) == 0 && bytes / sizeof(float) <= INT_MAX))
        return LK_MESSAGES_OK;
    snprintf(error, LK_MESSAGES_ERROR, "MPI: a message of %zu bytes; at most %zu are possible", bytes,
             INT_MAX * sizeof(float));
    return LK_MESSAGES_FAILED;
}

static int source(int other)
{
    return other == LK_MESSAGES_ANYBODY ? MPI_ANY_SOURCE : other;
}

static int start(bool is_sent, lk_channel channel, int other, void *data, int count, MPI_Datatype type,
                 MPI_Request *request)
{
    pthread_mutex_lock(&lock);
    int code = is_sent ? MPI_Isend(data, count, type, other, 0, channels[channel], request)
                       : MPI_Irecv(data, count, type, source(other), 0, channels[channel], request);
    pthread_mutex_unlock(&lock);
    return code;
}

static lk_messages_status begin(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                lk_message *message, char error[LK_MESSAGES_ERROR])
{
    int count;
    MPI_Datatype type;
    if (count_elements(bytes, &count, &type, error) != LK_MESSAGES_OK)
        return LK_MESSAGES_FAILED;
    return check(start(is_sent, channel, other, data, count, type, (MPI_Request *)(void *)message),
                 is_sent ? "send to another process" : "receive from another process", error);
}

static lk_messages_status done(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR])
{
    int code = MPI_SUCCESS, is_done = 1;
    *all = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n && is_done && code == MPI_SUCCESS; i++)
        code = MPI_Test((MPI_Request *)(void *)&messages[i], &is_done, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&lock);
    *all = is_done;
    return check(code, "exchange with another process", error);
}

static void cancel(lk_message *message)
{
    MPI_Request *request = (MPI_Request *)(void *)message;
    pthread_mutex_lock(&lock);
    if (MPI_Cancel(request) == MPI_SUCCESS)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&lock);
}

/* The communicators go with the rest, whether messages are under way in them or not. */
static void leave(void)
{
    MPI_Finalize();
}

__attribute__((visibility("default"))) const lk_messages *lk_messages_of_plugin(void);

const lk_messages *lk_messages_of_plugin(void)
{
    static const lk_messages table = {
        .interface = LK_MESSAGES_INTERFACE,
        .size = sizeof table,
        .open = join_all,
        .version = version,
        .host = host,
        .begin = begin,
        .done = done,
        .cancel = cancel,
        .close = leave,
    };
    return &table;
}
