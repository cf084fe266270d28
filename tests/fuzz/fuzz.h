/* Helpers of fuzz targets. A target is a function that reads its input as a file of one kind. It aborts if reading
 * gives neither a consistent result nor an error with a message. cmake/fuzz.cmake links each target twice: with
 * libFuzzer, and with fuzz_main.c, which needs no library. */
#pragma once

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A target whose format has checksums or lengths may have its own mutations, which keep these right. Changes data[0 …
 * size) in its room of `most` bytes, and returns the new size. LLVMFuzzerMutate: the same, blindly, for its use. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

#define FUZZ_CHECK(condition)                                                       \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* A path of a file with the input's content. Valid until the next call. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0)
        file = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}

/* Returns whether the status is LK_OK. Otherwise checks that it is the thread's error and has a message, and clears it.
 */
static inline bool fuzz_went_well(lk_status status)
{
    FUZZ_CHECK(status == lk_error_status());
    if (status == LK_OK)
        return true;
    FUZZ_CHECK(lk_error_message()[0] != '\0');
    lk_error_clear();
    return false;
}

/* Reads all bytes, so that a sanitizer sees reads outside of memory. */
static inline void fuzz_touch(const void *memory, size_t bytes)
{
    const volatile unsigned char *byte = memory;
    for (size_t i = 0; i < bytes; i++)
        (void)byte[i];
}
