/* A temporary folder for tests that write files, and helpers that look at files. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_dir[PATH_MAX];

/* The path of `name` in the folder; valid until the fourth call from now. */
static inline const char *in_dir(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    if (snprintf(path, PATH_MAX, "%.1000s/%.1000s", test_dir, name) >= PATH_MAX)
        abort();
    return path;
}

static inline void empty_dir(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char inner[PATH_MAX];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(inner, sizeof inner, "%.2000s/%.1000s", path, entry->d_name);
        if (unlink(inner) != 0) {
            empty_dir(inner);
            rmdir(inner);
        }
    }
    if (dir)
        closedir(dir);
}

static inline int make_test_dir(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(test_dir, sizeof test_dir, "%.1000s/lockstep-io-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(test_dir) ? 0 : -1;
}

static inline int remove_test_dir(void **state)
{
    (void)state;
    empty_dir(test_dir);
    return rmdir(test_dir);
}

static inline int files_in_dir(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count - 2;
}

/* The contents of a file, followed by a NUL; free them. `size` may be NULL. */
static inline char *contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct stat status;
    assert_int_equal(fstat(fileno(file), &status), 0);
    char *text = calloc((size_t)status.st_size + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)status.st_size, file), status.st_size);
    fclose(file);
    if (size)
        *size = (size_t)status.st_size;
    return text;
}

static inline void assert_contents(const char *path, const char *expected)
{
    char *text = contents(path, NULL);
    assert_string_equal(text, expected);
    free(text);
}

static inline void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) < 0, 0);
    assert_int_equal(fclose(file), 0);
}
