/* The user's cache: where it is, and how files get there whole. */
#ifndef LK_DATA_CACHE_H
#define LK_DATA_CACHE_H

#include "lockstep/status.h"

#include <limits.h>
#include <stdbool.h>

/* $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep; false where neither is known or the path is too long. */
bool lk__cache_folder(char path[PATH_MAX]);

/* Makes a folder and those above it. False, with errno set and in `path` the one that could not be made. */
bool lk__make_folders(char path[PATH_MAX]);

/* Makes a rename outlast a power cut: everybody else has seen it before. */
void lk__cache_sync(const char *folder);

#endif
