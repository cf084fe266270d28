/* What fuzz targets share. A target is a function that reads its input as one kind of file does, and ends the program
 * where anything comes of it but what the file says or an error with its message. cmake/fuzz.cmake links it twice: with
 * libFuzzer, and with fuzz_main.c, which needs nothing. */
#ifndef LK_TESTS_FUZZ_H
#define LK_TESTS_FUZZ_H

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                       \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* A path under which the input can be opened until the next call. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file >= 0)
        close(file);
    file = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}

/* Whether it went well; an error has to be the thread's, with a message, and is cleared. */
static inline bool fuzz_went_well(lk_status status)
{
    FUZZ_CHECK(status == lk_error_status());
    if (status == LK_OK)
        return true;
    FUZZ_CHECK(lk_error_message()[0] != '\0');
    lk_error_clear();
    return false;
}

/* Reads all of it, so that a sanitizer sees what is not there. */
static inline void fuzz_touch(const void *memory, size_t bytes)
{
    const volatile unsigned char *byte = memory;
    for (size_t i = 0; i < bytes; i++)
        (void)byte[i];
}

#endif
