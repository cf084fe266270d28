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

/* Never destroyed: other threads may still run when the process ends. */
static std::mutex &lock = *new std::mutex;
static std::deque<std::string> &reports = *new std::deque<std::string>;
static size_t told;

/* Shows at the end of the process that the recorder was in use, and what it found. */
static void report_totals(void)
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

static const bool is_registered = atexit(report_totals) == 0;

/* For tests: takes the oldest report; NULL: none. The text is valid until the next call. */
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
