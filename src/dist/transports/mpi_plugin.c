/* The plug-in for MPI, liblockstep_mpi.so: the only file that knows MPI. Its functions are called from several threads,
 * but never call MPI at the same time. */
#include "dist/process/messages.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(lk_message), "a message holds a request");

/* One communicator per channel, so that messages of different channels are never mixed up. */
static MPI_Comm channels[LK_CHANNELS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Turns an error code into a status, with MPI's words for it. */
static lk_messages_status mpi_plugin_check(int code, const char *what, char error[LK_MESSAGES_ERROR])
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return LK_MESSAGES_OK;
    MPI_Error_string(code, words, &length);
    snprintf(error, LK_MESSAGES_ERROR, "MPI: %s: %s", what, words);
    return LK_MESSAGES_FAILED;
}

static lk_messages_status mpi_plugin_join(int *rank, int *ranks, char error[LK_MESSAGES_ERROR])
{
    int provided = MPI_THREAD_SINGLE;
    lk_messages_status status = mpi_plugin_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
                                                 "join the other processes", error);
    if (status != LK_MESSAGES_OK)
        return status;
    if (provided < MPI_THREAD_SERIALIZED) {
        snprintf(error, LK_MESSAGES_ERROR,
                 "MPI: this library cannot be used by more than one thread (MPI_THREAD_SERIALIZED)");
        return LK_MESSAGES_FAILED;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    for (int i = 0; i < LK_CHANNELS && status == LK_MESSAGES_OK; i++) {
        status = mpi_plugin_check(MPI_Comm_dup(MPI_COMM_WORLD, &channels[i]), "open a channel", error);
        if (status == LK_MESSAGES_OK) /* errors are returned, to be reported with the context known here */
            MPI_Comm_set_errhandler(channels[i], MPI_ERRORS_RETURN);
    }
    return status;
}

/* Shortens "Open MPI v4.1.4, package: …" to "Open MPI 4.1.4". */
static const char *mpi_plugin_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    static const char prefix[] = "Open MPI v";
    int length = 0;
    MPI_Get_library_version(text, &length);
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
        char *number = text + sizeof prefix - 2; /* in place of the v */
        memmove(number, number + 1, strlen(number));
        number[strspn(number, "0123456789.")] = '\0';
    }
    text[strcspn(text, ",\n")] = '\0';
    return text;
}

static void mpi_plugin_host(char name[LK_MESSAGES_HOST])
{
    char text[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MPI_Get_processor_name(text, &length);
    snprintf(name, LK_MESSAGES_HOST, "%s", text);
}

/* MPI counts elements with an int, so a large message is sent as floats; its size must be a multiple of theirs. */
static lk_messages_status mpi_plugin_count_elements(size_t bytes, int *count, MPI_Datatype *type,
                                                    char error[LK_MESSAGES_ERROR])
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

static lk_messages_status mpi_plugin_begin(bool is_sent, lk_channel channel, int other, void *data, size_t bytes,
                                           lk_message *message, char error[LK_MESSAGES_ERROR])
{
    int count;
    MPI_Datatype type;
    MPI_Request *request = (MPI_Request *)(void *)message;
    if (mpi_plugin_count_elements(bytes, &count, &type, error) != LK_MESSAGES_OK)
        return LK_MESSAGES_FAILED;
    pthread_mutex_lock(&lock);
    int code = is_sent ? MPI_Isend(data, count, type, other, 0, channels[channel], request)
                       : MPI_Irecv(data, count, type, other == LK_MESSAGES_ANYBODY ? MPI_ANY_SOURCE : other, 0,
                                   channels[channel], request);
    pthread_mutex_unlock(&lock);
    return mpi_plugin_check(code, is_sent ? "send to another process" : "receive from another process", error);
}

static lk_messages_status mpi_plugin_done(lk_message *messages, int n, bool *all, char error[LK_MESSAGES_ERROR])
{
    int code = MPI_SUCCESS, is_done = 1;
    *all = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n && is_done && code == MPI_SUCCESS; i++)
        code = MPI_Test((MPI_Request *)(void *)&messages[i], &is_done, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&lock);
    *all = is_done;
    return mpi_plugin_check(code, "exchange with another process", error);
}

static void mpi_plugin_cancel(lk_message *message)
{
    MPI_Request *request = (MPI_Request *)(void *)message;
    pthread_mutex_lock(&lock);
    if (MPI_Cancel(request) == MPI_SUCCESS)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&lock);
}

/* Frees the communicators too, even if messages are in flight in them. */
static void mpi_plugin_leave(void)
{
    MPI_Finalize();
}

__attribute__((visibility("default"))) const lk_messages *lk_messages_of_plugin(void);

const lk_messages *lk_messages_of_plugin(void)
{
    static const lk_messages table = {
        .interface = LK_MESSAGES_INTERFACE,
        .size = sizeof table,
        .open = mpi_plugin_join,
        .version = mpi_plugin_version,
        .host = mpi_plugin_host,
        .begin = mpi_plugin_begin,
        .done = mpi_plugin_done,
        .cancel = mpi_plugin_cancel,
        .close = mpi_plugin_leave,
    };
    return &table;
}
