/* A temporary folder for each test, and its files. Include it after cmocka.h. */
#pragma once

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static inline int remove_entry(const char *path, const struct stat *status, int type, struct FTW *position)
{
    (void)status, (void)type, (void)position;
    return remove(path);
}

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void empty_folder(void)
{
    assert_int_equal(remove_folder(NULL), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

#define FOLDER_TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

/* A path in the folder. Valid until the next call. */
__attribute__((format(printf, 1, 2))) static inline const char *path_of(const char *format, ...)
{
    static char path[700];
    int used = snprintf(path, sizeof path, "%s/", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + used, sizeof path - (size_t)used, format, arguments);
    va_end(arguments);
    return path;
}

/* Runs a command in the folder and returns its exit status. */
__attribute__((format(printf, 1, 2))) static inline int shell(const char *format, ...)
{
    char command[2048];
    int used = snprintf(command, sizeof command, "cd '%s' && ", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static inline void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The whole file with a NUL after it; free it. *size may be NULL. */
static inline void *read_file(const char *path, size_t *size)
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
