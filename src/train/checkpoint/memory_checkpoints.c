/* lk_callback_memory_checkpoints. The folder of a job holds a folder rank-R for each rank of its machine, with the last
 * two checkpoints that this rank, or an earlier one of its number, has written. Only the name of a checkpoint differs
 * from that of other folders: its number is 2 * steps, and 1 more once the epoch's evaluation is over too, so that a
 * later state has a higher number even if no step lies between two states. */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "dist/process/group.h"
#include "io/durable.h"
#include "lockstep/checkpoint.h"
#include "lockstep/record.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_read.h"
#include "train/checkpoint/checkpoint_thread.h"
#include "train/checkpoint/checkpoint_trainer.h"
#include "train/checkpoint/memory_checkpoints.h"
#include "train/trainer.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 2 };

typedef struct memory_saver {
    char *folder; /* of the job */
    lk_checkpoint_thread *writer;
    lk_group *group; /* NULL: one process trains */
    bool has_warned; /* that a state could not be written */
} memory_saver;

static int64_t memory_number(const lk_position *at)
{
    return 2 * at->steps + (at->batch == 0);
}

/* --- folders of ranks --------------------------------------------------------------------------------------------- */

static lk_status memory_rank_path(const char *folder, int rank, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/rank-%d", folder, rank) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", folder);
    return LK_OK;
}

/* Calls `visit` with the path of every rank's folder, until it fails. */
static lk_status memory_visit_ranks(const char *folder, void *user, lk_status (*visit)(void *, int, const char *))
{
    static const char prefix[] = "rank-";
    char path[PATH_MAX];
    lk_status status = LK_OK;
    DIR *entries = opendir(folder);
    if (!entries && errno == ENOENT)
        return LK_OK;
    if (!entries)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; status == LK_OK && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        int rank = (int)strtol(entry->d_name + strlen(prefix), NULL, 10);
        status = memory_rank_path(folder, rank, path);
        if (status == LK_OK)
            status = visit(user, rank, path);
    }
    closedir(entries);
    return status;
}

/* --- resuming ----------------------------------------------------------------------------------------------------- */

typedef struct memory_newest {
    int64_t number; /* -1: there is none */
    char path[PATH_MAX];
} memory_newest;

static lk_status memory_compare_newest(void *user, int rank, const char *path)
{
    memory_newest *newest = user;
    char name[LK_CHECKPOINT_NAME];
    int64_t *numbers;
    int n;
    (void)rank;
    LK_TRY(lk__checkpoint_list(path, &numbers, &n));
    lk_status status = LK_OK;
    if (n > 0 && numbers[n - 1] > newest->number) {
        newest->number = numbers[n - 1];
        lk__checkpoint_name(newest->number, name);
        status = lk__checkpoint_path(path, name, newest->path);
    }
    lk__free(numbers);
    return status;
}

/* Makes the bytes those of rank `from` on all ranks. */
static lk_status memory_share(lk_group *group, int from, lk_bytes *bytes)
{
    uint64_t size = bytes->size;
    LK_TRY(lk__group_broadcast(group, from, &size, sizeof size));
    if (size == 0 || lk__group_rank(group) == from) {
        if (size == 0)
            lk__bytes_clear(bytes);
        return size > 0 ? lk__group_broadcast(group, from, bytes->data, size) : LK_OK;
    }
    unsigned char *copy = lk__calloc(size, 1);
    if (!copy)
        return LK_ERR_MEMORY;
    lk_status status = lk__group_broadcast(group, from, copy, size);
    lk__bytes_clear(bytes);
    lk__bytes_put(bytes, copy, size);
    lk__free(copy);
    return status == LK_OK ? lk__bytes_status(bytes) : status;
}

/* Copies a file of a checkpoint from rank `from`, which has it at `source`, into the folder `target` of each rank that
 * lacks the checkpoint; target NULL: this one does not. A checkpoint need not have all files. */
static lk_status memory_share_file(lk_group *group, int from, const char *source, const char *target, const char *name)
{
    char path[PATH_MAX];
    lk_bytes bytes = {0};
    uint64_t hash;
    lk_status status = LK_OK;
    if (lk__group_rank(group) == from) {
        status = lk__checkpoint_path(source, name, path);
        int error = status == LK_OK ? lk__bytes_read_file(&bytes, path, SIZE_MAX - 1) : 0;
        if (error && error != ENOENT)
            status = lk__fail(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
        if (status == LK_OK)
            status = lk__bytes_status(&bytes);
    }
    if (status == LK_OK)
        status = memory_share(group, from, &bytes);
    if (status == LK_OK && target && bytes.size > 0) {
        status = lk__checkpoint_path(target, name, path);
        if (status == LK_OK)
            status = lk__durable_create(path, bytes.data, bytes.size, &hash);
    }
    lk__bytes_free(&bytes);
    return status;
}

/* Gives the newest checkpoint to all ranks. own->path becomes the path of this rank's copy. */
static lk_status memory_share_checkpoint(lk_group *group, const char *folder, int from, int64_t number,
                                         memory_newest *own)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "implementations",
                                        "model.lk",          "manifest.json"};
    char rank_folder[PATH_MAX], name[LK_CHECKPOINT_NAME], unfinished[PATH_MAX];
    bool lacks = own->number != number, swapped;
    lk__checkpoint_name(number, name);
    LK_TRY(memory_rank_path(folder, lk__group_rank(group), rank_folder));
    LK_TRY(lk__checkpoint_prefixed_path(rank_folder, LK_UNFINISHED, name, unfinished));
    if (lacks)
        LK_TRY(lk_make_directory(unfinished));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        LK_TRY(memory_share_file(group, from, own->path, lacks ? unfinished : NULL, files[i]));
    if (!lacks)
        return LK_OK;
    LK_TRY(lk__checkpoint_path(rank_folder, name, own->path));
    return lk__durable_rename_folder(unfinished, own->path, &swapped);
}

typedef struct memory_offer {
    int64_t number;     /* of the newest checkpoint in memory */
    int64_t disk_steps; /* of the one in --checkpoint-dir; -1: there is none */
} memory_offer;

static lk_status memory_take_newest(lk_group *group, const char *folder, memory_newest *own, lk_checkpoint **resumed)
{
    const memory_offer mine = {own->number, *resumed ? (*resumed)->info.steps : -1};
    int ranks = lk__group_ranks(group), from = 0;
    bool all_have = true;
    int64_t disk_steps = -1;
    memory_offer *all = lk__group_gather_new(group, &mine, sizeof mine);
    if (!all)
        return lk_error_status();
    for (int rank = 0; rank < ranks; rank++) {
        disk_steps = all[rank].disk_steps > disk_steps ? all[rank].disk_steps : disk_steps;
        if (all[rank].number > all[from].number)
            from = rank;
    }
    int64_t number = all[from].number;
    for (int rank = 0; rank < ranks; rank++)
        all_have = all_have && all[rank].number == number;
    lk__free(all);
    if (number < 0 || number / 2 < disk_steps)
        return LK_OK;
    if (!all_have)
        LK_TRY(memory_share_checkpoint(group, folder, from, number, own));
    lk_checkpoint_release(*resumed);
    *resumed = NULL;
    return lk_checkpoint_open(own->path, LK_CHECKPOINT_LAST, resumed);
}

lk_status lk__memory_resume(const char *folder, lk_checkpoint **resumed)
{
    lk_group *group;
    memory_newest own = {.number = -1};
    LK_TRY(lk__group_open(&group));
    LK_TRY(memory_visit_ranks(folder, &own, memory_compare_newest));
    return memory_take_newest(group, folder, &own, resumed);
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Waits until the previous state is written, so that no more than one finished update can be lost with a process. */
static void memory_wait(memory_saver *s)
{
    if (lk__checkpoint_thread_drain(s->writer) == LK_OK)
        return;
    if (!s->has_warned)
        lk__log(LK_LOG_WARNING, "%s; training goes on, but could not go on from here without its processes",
                lk_error_message());
    s->has_warned = true;
    lk_error_clear();
}

/* All ranks save the state of rank 0's callbacks, because only that rank writes records, and any rank may be lost. */
static lk_status memory_save(memory_saver *s, lk_trainer *trainer, bool ends)
{
    memory_wait(s);
    lk_checkpoint_contents *contents = lk__checkpoint_thread_take(s->writer);
    LK_TRY(lk__checkpoint_of_trainer(trainer, &(lk_checkpoint_info){.finished = ends}, contents));
    if (s->group)
        LK_TRY(memory_share(s->group, 0, &contents->state));
    contents->steps = memory_number(&trainer->progress.position);
    lk__checkpoint_thread_put(s->writer, contents, NULL);
    return LK_OK;
}

/* Removes the folder of a rank that the job no longer has. Another rank may be removing it too. */
static lk_status memory_remove_other(void *user, int rank, const char *path)
{
    const memory_saver *s = user;
    int lock;
    if (rank < (s->group ? lk__group_ranks(s->group) : 1) || lk__checkpoint_lock(path, &lock) != LK_OK) {
        lk_error_clear();
        return LK_OK;
    }
    if (lk__checkpoint_prune(path, 0, "") != LK_OK)
        lk_error_clear();
    lk__checkpoint_unlock(&lock);
    rmdir(path);
    return LK_OK;
}

/* Once every rank has saved this state, folders of ranks that are gone are of no use. */
static lk_status memory_train_begin(void *self, lk_trainer *trainer)
{
    memory_saver *s = self;
    int rank = trainer->plan.process, lock = -1;
    char path[PATH_MAX];
    if (trainer->plan.processes > 1)
        LK_TRY(lk__group_open(&s->group));
    LK_TRY(memory_rank_path(s->folder, rank, path));
    LK_TRY(lk__checkpoint_thread_new(path, memory_number(&trainer->progress.position), true, KEPT, trainer->replicas,
                                     &lock, &s->writer));
    lk__checkpoint_thread_reuse(s->writer);
    LK_TRY(memory_save(s, trainer, false));
    if (trainer->resumed)
        memory_wait(s); /* the state that training goes on from is kept already */
    else
        LK_TRY(lk__checkpoint_thread_drain(s->writer));
    if (s->group) {
        int *all = lk__group_gather_new(s->group, &rank, sizeof rank);
        if (!all)
            return lk_error_status();
        lk__free(all);
    }
    return memory_visit_ranks(s->folder, s, memory_remove_other);
}

static bool memory_wants_rest(void *self, lk_trainer *trainer, int64_t steps)
{
    (void)self, (void)trainer, (void)steps;
    return true;
}

static lk_status memory_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    return memory_save(self, trainer, report->ends);
}

static lk_status memory_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result, (void)status;
    memory_saver *s = self;
    lk__checkpoint_thread_release(s->writer);
    s->writer = NULL;
    return LK_OK;
}

static void memory_release(void *self)
{
    memory_saver *s = self;
    lk__checkpoint_thread_release(s->writer);
    lk__free(s->folder);
    lk__free(s);
}

lk_callback lk_callback_memory_checkpoints(const char *folder)
{
    memory_saver *s = lk__calloc(1, sizeof *s);
    if (!s)
        return (lk_callback){0};
    s->folder = lk__strdup(folder);
    if (!s->folder) {
        memory_release(s);
        return (lk_callback){0};
    }
    return (lk_callback){.name = "memory checkpoints",
                         .train_begin = memory_train_begin,
                         .wants_rest = memory_wants_rest,
                         .rest = memory_rest,
                         .train_end = memory_train_end,
                         .release = memory_release,
                         .self = s};
}
