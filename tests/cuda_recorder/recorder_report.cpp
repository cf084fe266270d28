#include "recorder_report.h"

#include "recorder.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <unistd.h>

std::string text(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return line;
}

/* Left as they are when the process ends: other threads may still run then. */
static std::mutex &lock = *new std::mutex;
static std::deque<std::string> &reports = *new std::deque<std::string>;
static size_t told;

/* So that whoever runs something under the recorder sees that it was there, and what came of it. */
static void say_last_words(void)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(stderr, "cuda recorder: %llu operations on %zu streams, %zu reports\n",
            (unsigned long long)recorder_operations(), recorder_streams(), told);
    if (reports.empty())
        return;
    fflush(nullptr);
    _exit(RECORDER_EXIT_STATUS);
}

void report(const std::string &line)
{
    std::lock_guard<std::mutex> guard(lock);
    fprintf(stderr, "cuda recorder: %s\n", line.c_str());
    reports.push_back(line);
    told++;
}

static const bool is_registered = atexit(say_last_words) == 0;

/* For tests: takes the oldest report; NULL: there is none. The text is good until the next call. */
extern "C" __attribute__((visibility("default"))) const char *lk_gpu_recorder_report(void)
{
    static std::string taken;
    std::lock_guard<std::mutex> guard(lock);
    if (!is_registered || reports.empty())
        return nullptr;
    taken = reports.front();
    reports.pop_front();
    return taken.c_str();
}
