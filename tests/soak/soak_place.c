#include "soak_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

/* Holds the checkpoints of the largest network, 350 MB each with Adam and averages. */
#define DISK_SIZE "size=8g"

static bool place_is_isolated;

void soak_place_isolate(void)
{
    place_is_isolated = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                        mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

bool soak_place_has_disks(void)
{
    return place_is_isolated;
}

static int place_remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

void soak_place_clear(const char *path)
{
    nftw(path, place_remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static const char *place_path(const soak_place *place, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", place->root, name);
    return path;
}

bool soak_place_make(soak_place *place)
{
    static const char *const folders[] = {"inputs", "reference", "trial", "trial/disk", "home", "tmp", NULL};
    const char *above = getenv("TMPDIR");
    char path[512];
    snprintf(place->root, sizeof place->root, "%s/lockstep-soak-XXXXXX", above && *above ? above : "/tmp");
    if (!mkdtemp(place->root)) {
        fprintf(stderr, "soak: %s: %s\n", place->root, strerror(errno));
        return false;
    }
    for (int i = 0; folders[i]; i++)
        mkdir(place_path(place, folders[i], path, sizeof path), 0777);
    if (place_is_isolated &&
        mount("tmpfs", place_path(place, "trial/disk", path, sizeof path), "tmpfs", 0, DISK_SIZE) != 0) {
        fprintf(stderr, "soak: %s cannot be mounted: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

void soak_place_remove(const soak_place *place)
{
    char path[512];
    if (place_is_isolated)
        umount2(place_path(place, "trial/disk", path, sizeof path), MNT_DETACH);
    soak_place_clear(place->root);
}

void soak_place_limit(const soak_place *place, long long bytes)
{
    char path[512], options[64] = DISK_SIZE;
    struct statfs status;
    if (!place_is_isolated || statfs(place_path(place, "trial/disk", path, sizeof path), &status) != 0)
        return;
    if (bytes > 0)
        snprintf(options, sizeof options, "size=%lld",
                 (long long)(status.f_blocks - status.f_bfree) * (long long)status.f_bsize + bytes);
    if (mount("tmpfs", path, "tmpfs", MS_REMOUNT, options) != 0)
        fprintf(stderr, "soak: %s cannot be remounted with %s: %s\n", path, options, strerror(errno));
}

/* --- leftovers -----------------------------------------------------------------------------------------------------
 */

/* Finds a name in the folder that begins with none of `allowed`, which may be NULL. */
static bool place_find_other(const char *folder, const char *const *allowed, char *text, size_t size)
{
    DIR *names = opendir(folder);
    bool found = false;
    for (struct dirent *entry; names && !found && (entry = readdir(names));) {
        bool is_known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (int i = 0; allowed && allowed[i] && !is_known; i++)
            is_known = strncmp(entry->d_name, allowed[i], strlen(allowed[i])) == 0;
        found = !is_known;
        if (found)
            snprintf(text, size, "%s/%s", folder, entry->d_name);
    }
    if (names)
        closedir(names);
    return found;
}

static void place_empty(const char *folder)
{
    char path[1024];
    while (place_find_other(folder, NULL, path, sizeof path)) {
        soak_place_clear(path);
        if (access(path, F_OK) == 0)
            return;
    }
}

bool soak_place_find_left(const soak_place *place, bool after_kill, bool has_ended, char *text, size_t size)
{
    static const char *const in_trial[] = {"disk", "run-",      "trace.json",   "ranks", "cache",
                                           "keys", "snapshots", "cluster.json", "logs",  NULL};
    static const char *const on_disk[] = {"checkpoints", "log", NULL};
    static const char *const checkpoints[] = {"checkpoint-", "damaged-checkpoint-", "best.json", NULL};
    static const char *const at_home[] = {".cache", NULL};
    char path[512];
    bool found = place_find_other(place_path(place, "home", path, sizeof path), at_home, text, size) ||
                 place_find_other(place_path(place, "trial", path, sizeof path), in_trial, text, size) ||
                 place_find_other(place_path(place, "trial/disk", path, sizeof path), on_disk, text, size) ||
                 (has_ended && place_find_other(place_path(place, "trial/disk/checkpoints", path, sizeof path),
                                                checkpoints, text, size)) ||
                 (!after_kill && place_is_isolated && place_find_other("/dev/shm", NULL, text, size)) ||
                 (!after_kill && place_find_other(place_path(place, "tmp", path, sizeof path), NULL, text, size));
    place_empty(place_path(place, "tmp", path, sizeof path));
    if (place_is_isolated)
        place_empty("/dev/shm");
    return found;
}

/* --- damage --------------------------------------------------------------------------------------------------------
 */

int soak_place_newest(const soak_place *place, const char *folder, char *path, size_t size)
{
    char above[512];
    struct dirent **names;
    int count = 0, n = scandir(place_path(place, folder, above, sizeof above), &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i]->d_name, "checkpoint-", 11) == 0) {
            count++;
            snprintf(path, size, "%s/%s", above, names[i]->d_name);
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return count;
}

void soak_place_damage(const char *folder, soak_random *random, char *text, size_t size)
{
    struct dirent **names;
    char path[1024] = "";
    int n = scandir(folder, &names, NULL, alphasort), wanted = n > 2 ? (int)soak_random_int(random, 2, n - 1) : -1;
    for (int i = 0; i < n; i++) {
        if (i == wanted)
            snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    struct stat status;
    if (!*path || stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        snprintf(text, size, "nothing damaged in %s", folder);
        return;
    }
    int kind = (int)soak_random_int(random, 0, 2);
    off_t at = status.st_size > 0 ? (off_t)soak_random_int(random, 0, status.st_size - 1) : 0;
    if (kind == 0 || status.st_size == 0) {
        remove(path);
        snprintf(text, size, "removed %s", path);
    } else if (kind == 1) {
        int failed = truncate(path, at);
        snprintf(text, size, "%s %s to %lld bytes", failed ? "could not cut" : "cut", path, (long long)at);
    } else {
        int file = open(path, O_RDWR | O_CLOEXEC);
        char byte = 0;
        bool changed = pread(file, &byte, 1, at) == 1;
        byte ^= (char)(1 << soak_random_int(random, 0, 7));
        changed = changed && pwrite(file, &byte, 1, at) == 1;
        close(file);
        snprintf(text, size, "%s byte %lld of %s", changed ? "changed" : "could not change", (long long)at, path);
    }
}
