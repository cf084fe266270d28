/* Helpers of tests that look at files. */
#pragma once

#include "base/folder_testing.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static inline void assert_contents(const char *path, const char *expected)
{
    char *text = contents_of(path, NULL);
    assert_string_equal(text, expected);
    free(text);
}
