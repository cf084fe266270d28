#include "cli/launch/remove_tree.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about, (void)kind, (void)at;
    remove(path);
    return 0;
}

void cli_remove_tree(const char *path)
{
    enum { OPEN_FOLDERS = 8 };
    nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}
