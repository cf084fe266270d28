#include "cuda/cuda_plans.h"

#include "base/cache.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/whole_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* A file is a header, the key and the plan, without gaps. */
typedef struct header {
    char magic[8];
    uint64_t key_bytes, plan_bytes;
    uint64_t hash; /* of key and plan */
} header;

static const char magic[8] = "LKPLAN1";

enum { MAX_FILE_BYTES = 64 << 20 };

static bool cuda_plans_path(const char *key, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!lk__cache_folder(folder))
        return false;
    int length = snprintf(path, PATH_MAX, "%s/plans/%016" PRIx64, folder, (uint64_t)XXH3_64bits(key, strlen(key)));
    return length > 0 && length < PATH_MAX;
}

/* Returns what is wrong with a file, or NULL. */
static const char *cuda_plans_check_file(int fd, size_t *bytes)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return strerror(errno);
    if (s.st_uid != geteuid() || s.st_mode & (S_IWGRP | S_IWOTH))
        return "others may write it";
    *bytes = (size_t)s.st_size;
    return s.st_size <= MAX_FILE_BYTES ? NULL : "it is too large";
}

/* Reads a file. Returns what is wrong with it, or NULL; *contents is to be freed with lk__free in any case. */
static const char *cuda_plans_read(int fd, const char *key, char **contents, const char **plan, size_t *plan_bytes)
{
    size_t bytes = 0, key_bytes = strlen(key);
    const char *wrong = cuda_plans_check_file(fd, &bytes);
    header h;
    if (wrong)
        return wrong;
    *contents = lk__calloc(bytes + 1, 1);
    if (!*contents) {
        lk_error_clear();
        return "there is no memory for it";
    }
    if (lk__read_whole(fd, *contents, bytes) != (ssize_t)bytes)
        return strerror(errno);
    if (bytes < sizeof h)
        return "it is damaged";
    memcpy(&h, *contents, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.key_bytes != key_bytes || h.key_bytes > bytes - sizeof h ||
        h.plan_bytes != bytes - sizeof h - h.key_bytes || h.hash != XXH3_64bits(*contents + sizeof h, bytes - sizeof h))
        return "it is damaged";
    if (memcmp(*contents + sizeof h, key, key_bytes) != 0)
        return "it is for another problem";
    *plan = *contents + sizeof h + key_bytes;
    *plan_bytes = (size_t)h.plan_bytes;
    return NULL;
}

static void cuda_plans_load(const char *key, void (*use)(void *user, const char *plan, size_t bytes), void *user)
{
    char path[PATH_MAX], *contents = NULL;
    const char *plan = NULL;
    size_t bytes = 0;
    int fd = cuda_plans_path(key, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0)
        return;
    const char *wrong = cuda_plans_read(fd, key, &contents, &plan, &bytes);
    close(fd);
    if (wrong)
        lk__log(LK_LOG_WARNING, "plan of a convolution: %s is ignored: %s", path, wrong);
    else
        use(user, plan, bytes);
    lk__free(contents);
}

static bool cuda_plans_write(int fd, const char *key, const char *plan, size_t bytes)
{
    header h = {.key_bytes = strlen(key), .plan_bytes = bytes};
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return false;
    memcpy(h.magic, magic, sizeof magic);
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, key, h.key_bytes);
    XXH3_64bits_update(state, plan, bytes);
    h.hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return lk__write_whole(fd, &h, sizeof h) == 0 && lk__write_whole(fd, key, h.key_bytes) == 0 &&
           lk__write_whole(fd, plan, bytes) == 0;
}

/* The time that every process then takes to make its plans would have no other explanation. */
static void cuda_plans_warn_once(const char *place, const char *reason)
{
    static atomic_flag has_warned = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&has_warned))
        lk__log(LK_LOG_WARNING, "plans of convolutions are not kept, so each process makes them again: %s: %s", place,
                reason);
}

/* Other processes may write the same file, and one may die at any point: a whole file takes its name at the end. A
 * failure costs only the time to make the plan again. */
static void cuda_plans_save(const char *key, const char *plan, size_t bytes)
{
    char path[PATH_MAX], folder[PATH_MAX], temporary[PATH_MAX];
    if (!cuda_plans_path(key, path)) {
        cuda_plans_warn_once("HOME and XDG_CACHE_HOME", "neither names a folder");
        return;
    }
    if (snprintf(temporary, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    int fd = lk__make_folders(folder) ? mkstemp(temporary) : -1;
    if (fd < 0) {
        cuda_plans_warn_once(folder, strerror(errno));
        return;
    }
    bool done = cuda_plans_write(fd, key, plan, bytes);
    if (close(fd) != 0 || !done || rename(temporary, path) != 0)
        unlink(temporary);
}

const lk_gpu_plan_files lk__cuda_plan_files = {.load = cuda_plans_load, .save = cuda_plans_save};
