/* Finds the user's cache folder, makes folders and syncs them. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Sets `path` to $XDG_CACHE_HOME/lockstep, or else to ~/.cache/lockstep. False if neither variable is set or the path
 * is too long. */
bool lk__cache_folder(char path[PATH_MAX]);

/* Makes a folder and its parents. False on failure: errno is set, and `path` is cut to the folder that failed. */
bool lk__make_folders(char path[PATH_MAX]);

/* Syncs a folder, so that a rename in it survives a power cut. Failures are ignored: other processes see the rename
 * anyway. */
void lk__cache_sync(const char *folder);
