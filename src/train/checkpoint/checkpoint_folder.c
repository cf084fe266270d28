#include "train/checkpoint/checkpoint_folder.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/durable.h"
#include "io/json.h"
#include "lockstep/record.h"
#include "train/checkpoint/callback_state.h"
#include "train/checkpoint/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* --- names -------------------------------------------------------------------------------------------------------- */

void lk__checkpoint_name(int64_t steps, char name[LK_CHECKPOINT_NAME])
{
    snprintf(name, LK_CHECKPOINT_NAME, "checkpoint-%08" PRId64, steps);
}

static bool checkpoint_folder_begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Returns 120 for the name "checkpoint-00000120"; -1 for any other name, also for another spelling of the same
 * number. */
static int64_t checkpoint_folder_steps_of(const char *name)
{
    static const char prefix[] = "checkpoint-";
    char whole[LK_CHECKPOINT_NAME];
    if (!checkpoint_folder_begins_with(name, prefix))
        return -1;
    int64_t steps = strtoll(name + sizeof prefix - 1, NULL, 10);
    lk__checkpoint_name(steps, whole);
    return steps >= 0 && strcmp(name, whole) == 0 ? steps : -1;
}

static int checkpoint_folder_compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

lk_status lk__checkpoint_list(const char *folder, int64_t **steps, int *n)
{
    DIR *entries = opendir(folder);
    int64_t capacity = 0;
    *steps = NULL;
    *n = 0;
    if (!entries && errno != ENOENT)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    if (!entries)
        return LK_OK;
    for (struct dirent *entry; (entry = readdir(entries));) {
        int64_t found = checkpoint_folder_steps_of(entry->d_name);
        if (found < 0)
            continue;
        if (LK_GROW(*steps, &capacity, *n + 1) != LK_OK) {
            closedir(entries);
            lk__free(*steps);
            *steps = NULL;
            return LK_ERR_MEMORY;
        }
        (*steps)[(*n)++] = found;
    }
    closedir(entries);
    if (*n > 0)
        qsort(*steps, (size_t)*n, sizeof **steps, checkpoint_folder_compare_steps);
    return LK_OK;
}

void lk__checkpoint_restore_replaced(const char *folder)
{
    char path[PATH_MAX];
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (checkpoint_folder_begins_with(entry->d_name, LK_REPLACED) &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name + strlen(LK_REPLACED)) < (int)sizeof path)
            lk__durable_restore(path);
    if (entries)
        closedir(entries);
}

/* --- the best ----------------------------------------------------------------------------------------------------- */

static bool checkpoint_folder_parse_best(const json_t *json, lk_best *best)
{
    const char *name = json_string_value(json_object_get(json, "checkpoint"));
    const char *metric = json_string_value(json_object_get(json, "metric"));
    if (!name || checkpoint_folder_steps_of(name) < 0)
        return false;
    snprintf(best->name, sizeof best->name, "%s", name);
    snprintf(best->metric, sizeof best->metric, "%s", metric ? metric : "");
    best->value = lk__state_number(json_object_get(json, "value"));
    best->epoch = json_integer_value(json_object_get(json, "epoch"));
    return true;
}

lk_status lk__checkpoint_read_best(const char *folder, lk_best *best)
{
    char path[PATH_MAX];
    json_t *json;
    *best = (lk_best){.name = ""};
    LK_TRY(lk__checkpoint_path(folder, "best.json", path));
    if (access(path, F_OK) != 0)
        return LK_OK;
    LK_TRY(lk__load_json(path, 1 << 16, &json));
    bool is_valid = checkpoint_folder_parse_best(json, best);
    json_decref(json);
    if (!is_valid)
        LK_FAIL(LK_ERR_FORMAT, "%s: names no checkpoint", path);
    return LK_OK;
}

lk_status lk__checkpoint_write_best(const char *folder, const lk_best *best)
{
    char path[PATH_MAX];
    lk_bytes text = {0};
    LK_TRY(lk__checkpoint_path(folder, "best.json", path));
    lk__json_open(&text, NULL, '{');
    lk__json_field(&text, LK_TEXT("checkpoint", best->name));
    lk__json_field(&text, LK_TEXT("metric", best->metric));
    lk__json_field(&text, LK_REAL("value", best->value));
    lk__json_field(&text, LK_INT("epoch", best->epoch));
    lk__json_close(&text, '}');
    lk__bytes_char(&text, '\n');
    lk_status status = lk__bytes_status(&text);
    if (status == LK_OK)
        status = lk__durable_write(path, text.data, text.size);
    lk__bytes_free(&text);
    return status;
}

/* --- removing ----------------------------------------------------------------------------------------------------- */

/* Hides the checkpoint by a rename first, so that a reader finds it complete or not at all. */
static lk_status checkpoint_folder_remove(const char *folder, const char *name)
{
    char path[PATH_MAX], hidden[PATH_MAX];
    LK_TRY(lk__checkpoint_path(folder, name, path));
    LK_TRY(lk__checkpoint_prefixed_path(folder, LK_UNFINISHED, name, hidden));
    LK_TRY(lk__check_removable(path));
    if (rename(path, hidden) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
    return lk__remove_folder(hidden);
}

lk_status lk__checkpoint_prune(const char *folder, int64_t keep, const char *best)
{
    int64_t *found;
    int n;
    lk_status first = LK_OK;
    LK_TRY(lk__checkpoint_list(folder, &found, &n));
    for (int i = 0; found && i < n - keep; i++) {
        char name[LK_CHECKPOINT_NAME];
        lk__checkpoint_name(found[i], name);
        lk_status status = strcmp(name, best) == 0 ? LK_OK : checkpoint_folder_remove(folder, name);
        if (first == LK_OK)
            first = status;
    }
    lk__free(found);
    return first;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

lk_status lk__checkpoint_check_folder(const char *folder)
{
    enum { LONGEST_INSIDE = 128 }; /* bytes of a file's path in the folder */
    char path[PATH_MAX];
    if (strlen(folder) > PATH_MAX - LONGEST_INSIDE)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long for checkpoints below it", folder);
    LK_TRY(lk__checkpoint_path(folder, "manifest.json", path));
    if (access(path, F_OK) != 0)
        return LK_OK;
    LK_FAIL(LK_ERR_ARGUMENT,
            "%s: is a checkpoint itself; name the folder that holds it or, to go on from just this checkpoint, another "
            "folder with a copy of it",
            folder);
}

/* Succeeds without a lock if the file system has no locks. */
static lk_status checkpoint_folder_try_lock(const char *folder, int *lock)
{
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return LK_OK;
    lk__checkpoint_unlock(lock);
    LK_FAIL(LK_ERR_STATE, "%s: another training writes its checkpoints there", folder);
}

/* Removes what killed processes left unfinished or spare. */
static lk_status checkpoint_folder_clean(const char *folder)
{
    char path[PATH_MAX];
    lk_status status = LK_OK;
    lk__checkpoint_restore_replaced(folder);
    DIR *entries = opendir(folder);
    if (!entries)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; status == LK_OK && (entry = readdir(entries));) {
        if (!checkpoint_folder_begins_with(entry->d_name, LK_UNFINISHED) &&
            !checkpoint_folder_begins_with(entry->d_name, LK_REPLACED) && strcmp(entry->d_name, LK_SPARE) != 0)
            continue;
        status = lk__checkpoint_path(folder, entry->d_name, path);
        if (status == LK_OK)
            status = lk__remove_folder(path);
    }
    closedir(entries);
    return status;
}

lk_status lk__checkpoint_lock(const char *folder, int *lock)
{
    *lock = -1;
    LK_TRY(lk__checkpoint_check_folder(folder));
    LK_TRY(lk_make_directory(folder));
    LK_TRY(checkpoint_folder_try_lock(folder, lock));
    lk_status status = checkpoint_folder_clean(folder);
    if (status != LK_OK)
        lk__checkpoint_unlock(lock);
    return status;
}

void lk__checkpoint_unlock(int *lock)
{
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
}
