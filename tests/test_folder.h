/* A folder for each test, which goes with all that is in it. Included after cmocka.h. */
#ifndef LK_TESTS_TEST_FOLDER_H
#define LK_TESTS_TEST_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static inline int remove_entry(const char *path, const struct stat *there, int type, struct FTW *place)
{
    (void)there, (void)type, (void)place;
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

#endif
