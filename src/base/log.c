#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static lk_log_fn log_handler;
static void *log_user;
static lk_log_level log_level;

void lk_log_set(lk_log_fn handler, void *user, lk_log_level level)
{
    pthread_mutex_lock(&log_lock);
    log_handler = handler;
    log_user = user;
    log_level = level;
    pthread_mutex_unlock(&log_lock);
}

void lk__log(lk_log_level level, const char *format, ...)
{
    static _Thread_local bool is_handling;
    if (is_handling)
        return;
    pthread_mutex_lock(&log_lock);
    if (log_handler && level >= log_level) {
        char message[1024];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(message, sizeof message, format, arguments);
        va_end(arguments);
        is_handling = true;
        log_handler(log_user, level, message);
        is_handling = false;
    }
    pthread_mutex_unlock(&log_lock);
}
