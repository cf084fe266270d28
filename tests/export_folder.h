/* A folder for each test of exports, and what runs in it. Included after cmocka.h. */
#ifndef LK_TESTS_EXPORT_FOLDER_H
#define LK_TESTS_EXPORT_FOLDER_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER_PATTERN "/tmp/lockstep-export-XXXXXX"

static char folder[] = FOLDER_PATTERN;

/* Valid until the next call. */
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

/* A command's exit status, in the folder. */
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

static inline int make_folder(void **state)
{
    (void)state;
    memcpy(folder, FOLDER_PATTERN, sizeof folder);
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return shell("rm -rf '%s'", folder);
}

#define FOLDER_TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

#endif
