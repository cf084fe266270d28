/* A temporary folder for each test, and its files. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/status.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char test_dir[64];

static inline int remove_entry(const char *path, const struct stat *status, int type, struct FTW *position)
{
    (void)status, (void)type, (void)position;
    return remove(path);
}

/* Makes the folder, in $TMPDIR if that is short. Its path becomes the test's state. */
static inline int make_test_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");
    lk_error_clear();
    snprintf(test_dir, sizeof test_dir, "%.36s/lockstep-test-XXXXXX", tmp && strlen(tmp) <= 36 ? tmp : "/tmp");
    *state = mkdtemp(test_dir);
    return *state ? 0 : -1;
}

static inline int remove_test_dir(void **state)
{
    (void)state;
    return nftw(test_dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void empty_test_dir(void)
{
    assert_int_equal(remove_test_dir(NULL), 0);
    assert_int_equal(mkdir(test_dir, 0700), 0);
}

#define FOLDER_TEST(function) cmocka_unit_test_setup_teardown(function, make_test_dir, remove_test_dir)

/* Returns a path in the folder, which stays valid until the eighth call from now. */
__attribute__((format(printf, 1, 2))) static inline const char *path_of(const char *format, ...)
{
    static char paths[8][2048];
    static int next;
    char *path = paths[next++ % 8];
    int used = snprintf(path, sizeof *paths, "%s/", test_dir);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + used, sizeof *paths - (size_t)used, format, arguments);
    va_end(arguments);
    return path;
}

static inline const char *in_dir(const char *name)
{
    return path_of("%s", name);
}

/* Runs a command in the folder and returns its exit status. */
__attribute__((format(printf, 1, 2))) static inline int shell(const char *format, ...)
{
    char command[2048];
    int used = snprintf(command, sizeof command, "cd '%s' && ", test_dir);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static inline void put_bytes(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void put_file(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

/* Returns the whole file with a NUL after it; the caller frees it. `size` may be NULL. */
static inline void *contents_of(const char *path, size_t *size)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &status) != 0)
        fail_msg("%s cannot be read", path);
    size_t bytes = (size_t)status.st_size;
    char *data = calloc(bytes + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, bytes, file), bytes);
    fclose(file);
    if (size)
        *size = bytes;
    return data;
}
