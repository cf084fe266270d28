/* The error of a thread is in thread-local storage, since reporting "out of memory" must not allocate. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local lk_error_state thread_error;

static const char *const status_names[LK_STATUS_COUNT] = {
    [LK_OK] = "ok",
    [LK_ERR_ARGUMENT] = "invalid argument",
    [LK_ERR_SHAPE] = "shape mismatch",
    [LK_ERR_DTYPE] = "wrong dtype",
    [LK_ERR_DEVICE] = "device error",
    [LK_ERR_UNSUPPORTED] = "unsupported",
    [LK_ERR_MEMORY] = "out of memory",
    [LK_ERR_IO] = "input/output error",
    [LK_ERR_NOT_FOUND] = "not found",
    [LK_ERR_FORMAT] = "malformed file",
    [LK_ERR_BACKEND] = "backend failure",
    [LK_ERR_STATE] = "invalid state",
    [LK_ERR_INTERRUPTED] = "interrupted",
    [LK_ERR_NUMERIC] = "not finite",
};

const char *lk_status_name(lk_status status)
{
    if ((unsigned)status >= LK_STATUS_COUNT)
        return "unknown status";
    return status_names[status];
}

lk_status lk_error_status(void)
{
    return thread_error.status;
}

const char *lk_error_message(void)
{
    return thread_error.message;
}

void lk_error_clear(void)
{
    thread_error.status = LK_OK;
    thread_error.message[0] = '\0';
}

lk_status lk__fail(lk_status status, const char *format, ...)
{
    if (thread_error.status != LK_OK)
        return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(thread_error.message, sizeof thread_error.message, format, arguments);
    va_end(arguments);
    thread_error.status = status;
    return status;
}

void lk__error_save(lk_error_state *state)
{
    *state = thread_error;
}

void lk__error_restore(const lk_error_state *state)
{
    thread_error = *state;
}
