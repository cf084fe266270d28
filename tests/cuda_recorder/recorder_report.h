/* Reports of the recorder. */
#pragma once

#include <string>

__attribute__((format(printf, 1, 2))) std::string text(const char *format, ...);

/* Writes a line to stderr. Unless a test takes it, the process ends with RECORDER_EXIT_STATUS. */
void report(const std::string &line);

enum { RECORDER_EXIT_STATUS = 3 };
