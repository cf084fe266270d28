/* What the recorder has found. */
#ifndef LK_CUDA_RECORDER_REPORT_H
#define LK_CUDA_RECORDER_REPORT_H

#include <string>

__attribute__((format(printf, 1, 2))) std::string text(const char *format, ...);

/* A line on stderr. Unless somebody takes it, the process ends with RECORDER_EXIT_STATUS. */
void report(const std::string &line);

enum { RECORDER_EXIT_STATUS = 3 };

#endif
