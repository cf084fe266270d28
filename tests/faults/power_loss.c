/* power_loss LOG SCRATCH CHECKPOINTS RECORDS: simulates a loss of power after each change of a training's folder. LOG
 * is what fault_record.h describes; CHECKPOINTS and RECORDS are folders below the recorded root.
 *
 * After each change there are many states that a file system may find again. Of each folder it has the names that were
 * there when the folder was last synced, or those and any of: all changes since, all but one, only one. Of each file it
 * has the synced bytes, and those since are there, gone, zeros, or there in part. Each such state is built in SCRATCH.
 * Then the checkpoints must open without a warning, with the contents that one of them had, and that must be at least
 * the last one whose writing had ended; and the records must hold all that this checkpoint counts on. */
#include "io/append_file.h"
#include "lockstep/lockstep.h"
#include "train/checkpoint/checkpoint_read.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MOST_NODES = 4096, MOST_NAMES = 64, MOST_CHANGES = 256, MOST_STATES = 1 << 18, NAME = 120 };

typedef struct name {
    char name[NAME];
    int node;
} name;

/* A change of a folder's names: each gets a node, or -1. */
typedef struct change {
    int n;
    name names[2];
} change;

typedef struct names {
    int n;
    name at[MOST_NAMES];
} names;

typedef struct node {
    bool is_folder;
    unsigned char *data, *synced; /* a file's bytes */
    size_t size, synced_size;
    bool is_dirty;
    names now, before; /* a folder's names, and those when it was last synced */
    change *changes;   /* since then */
    int n_changes;
} node;

/* How a state differs from the one without a loss. */
typedef enum file_loss { FILE_WHOLE, FILE_GONE, FILE_ZEROS, FILE_TORN, FILE_LOSSES } file_loss;

typedef struct loss {
    bool folders_live; /* names are those now; otherwise those when each folder was last synced */
    int folder;        /* that is the other way; -1: none */
    int change;        /* of that folder, only this change is the other way; -1: all */
    file_loss files;
} loss;

/* A checkpoint that got its name. */
typedef struct instance {
    char name[NAME];
    uint64_t hash;
} instance;

static node *nodes[MOST_NODES];
static int n_nodes;
static instance *instances;
static int n_instances, promised; /* the first `promised` ones have been written, as far as the program knows */
static bool is_best_promised;
static XXH64_hash_t *seen;
static int n_seen;
static long n_states, n_marks, n_wrong, n_changes;
static const char *scratch, *checkpoints, *records;
static char last_warning[512];

static _Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

static void *grow(void *memory, size_t size)
{
    void *grown = realloc(memory, size ? size : 1);
    if (!grown)
        die("out of memory");
    return grown;
}

/* --- the simulated file system ------------------------------------------------------------------------------------ */

static int node_new(bool is_folder)
{
    if (n_nodes == MOST_NODES)
        die("more than %d files and folders", MOST_NODES);
    node *made = calloc(1, sizeof *made);
    if (!made)
        die("out of memory");
    made->is_folder = is_folder;
    nodes[n_nodes] = made;
    return n_nodes++;
}

static int names_find(const names *list, const char *wanted)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, wanted) == 0)
            return i;
    return -1;
}

static void names_set(names *list, const char *wanted, int value)
{
    int i = names_find(list, wanted);
    if (i < 0 && value < 0)
        return;
    if (i < 0)
        i = list->n++;
    if (list->n > MOST_NAMES)
        die("more than %d names in a folder", MOST_NAMES);
    snprintf(list->at[i].name, NAME, "%s", wanted);
    list->at[i].node = value;
    if (value < 0)
        list->at[i] = list->at[--list->n];
}

static void names_apply(names *list, const change *c)
{
    for (int i = 0; i < c->n; i++)
        names_set(list, c->names[i].name, c->names[i].node);
}

/* Returns the folder that the path is in and sets *last to its last part. */
static node *path_folder(const char *path, const char **last)
{
    char part[NAME];
    node *folder = nodes[0];
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        int i = names_find(&folder->now, part);
        if (i < 0)
            die("the log has %s in no folder", path);
        folder = nodes[folder->now.at[i].node];
    }
    *last = path;
    return folder;
}

/* Returns the node's number; -1: there is none. */
static int path_find(const char *path)
{
    const char *last;
    if (strcmp(path, ".") == 0)
        return 0;
    node *folder = path_folder(path, &last);
    int i = names_find(&folder->now, last);
    return i < 0 ? -1 : folder->now.at[i].node;
}

static node *path_node(const char *path)
{
    int found = path_find(path);
    if (found < 0)
        die("the log changes %s, which is not there", path);
    return nodes[found];
}

static void folder_change(node *folder, const change *c)
{
    folder->changes = grow(folder->changes, (size_t)(folder->n_changes + 1) * sizeof *c);
    folder->changes[folder->n_changes++] = *c;
    names_apply(&folder->now, c);
}

static void folder_set(const char *path, int value)
{
    change c = {.n = 1, .names[0].node = value};
    const char *last;
    node *folder = path_folder(path, &last);
    snprintf(c.names[0].name, NAME, "%s", last);
    folder_change(folder, &c);
}

static void folder_rename(const char *from, const char *to, bool exchanges)
{
    change c = {.n = 2};
    const char *last, *last_to;
    node *folder = path_folder(from, &last);
    if (path_folder(to, &last_to) != folder)
        die("the log renames %s to another folder", from);
    c.names[0].node = exchanges ? path_find(to) : -1;
    c.names[1].node = path_find(from);
    snprintf(c.names[0].name, NAME, "%s", last);
    snprintf(c.names[1].name, NAME, "%s", last_to);
    folder_change(folder, &c);
}

static void file_resize(node *file, size_t size)
{
    file->data = grow(file->data, size);
    if (size > file->size)
        memset(file->data + file->size, 0, size - file->size);
    file->size = size;
    file->is_dirty = true;
}

static void node_sync(node *n)
{
    if (n->is_folder) {
        n->before = n->now;
        n->n_changes = 0;
        return;
    }
    n->synced = grow(n->synced, n->size);
    if (n->size > 0)
        memcpy(n->synced, n->data, n->size);
    n->synced_size = n->size;
    n->is_dirty = false;
}

/* --- a state after a loss ----------------------------------------------------------------------------------------- */

static void loss_names(const loss *l, int folder, names *list)
{
    const node *n = nodes[folder];
    bool is_other = folder == l->folder, live = l->folders_live != (is_other && l->change < 0);
    *list = live ? n->now : n->before;
    if (!is_other || l->change < 0)
        return;
    *list = n->before;
    for (int i = 0; i < n->n_changes; i++)
        if ((i == l->change) != l->folders_live)
            names_apply(list, &n->changes[i]);
}

/* Returns the file's bytes, to be freed. */
static unsigned char *loss_bytes(const loss *l, const node *file, size_t *size)
{
    bool lost = file->is_dirty && l->files != FILE_WHOLE;
    size_t kept = file->synced_size < file->size ? file->synced_size : file->size;
    *size = !lost || l->files == FILE_ZEROS ? file->size
            : l->files == FILE_GONE         ? file->synced_size
                                            : kept + (file->size - kept) / 2;
    unsigned char *bytes = grow(NULL, *size);
    memset(bytes, 0, *size);
    if (!lost || l->files == FILE_TORN)
        memcpy(bytes, file->data ? file->data : bytes, *size);
    else
        memcpy(bytes, file->synced ? file->synced : bytes, kept < *size ? kept : *size);
    if (lost && l->files == FILE_GONE && file->synced_size > 0)
        memcpy(bytes, file->synced, file->synced_size);
    return bytes;
}

static int name_compare(const void *a, const void *b)
{
    return strcmp(((const name *)a)->name, ((const name *)b)->name);
}

/* Hashes a folder in this state. path: it is also written there; NULL: it is not. */
static uint64_t loss_walk(const loss *l, int folder, const char *path, uint64_t hash)
{
    names list;
    loss_names(l, folder, &list);
    qsort(list.at, (size_t)list.n, sizeof *list.at, name_compare);
    if (path && mkdir(path, 0777) != 0)
        die("%s: %s", path, strerror(errno));
    for (int i = 0; i < list.n; i++) {
        char below[PATH_MAX];
        const node *n = nodes[list.at[i].node];
        snprintf(below, sizeof below, "%s/%s", path ? path : "", list.at[i].name);
        hash = XXH3_64bits_withSeed(list.at[i].name, strlen(list.at[i].name) + 1, hash + n->is_folder);
        if (n->is_folder) {
            hash = loss_walk(l, list.at[i].node, path ? below : NULL, hash) + 1;
            continue;
        }
        size_t size;
        unsigned char *bytes = loss_bytes(l, n, &size);
        hash = XXH3_64bits_withSeed(bytes, size, hash);
        FILE *file = path ? fopen(below, "wb") : NULL;
        if (path && (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0))
            die("%s: %s", below, strerror(errno));
        free(bytes);
    }
    return hash;
}

static uint64_t folder_hash(int folder)
{
    return loss_walk(&(loss){.folders_live = true, .folder = -1}, folder, NULL, 0);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

static void remove_all(void)
{
    if (access(scratch, F_OK) == 0 && nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        die("%s cannot be removed", scratch);
}

/* --- what must hold ----------------------------------------------------------------------------------------------- */

static void keep_warning(void *user, lk_log_level level, const char *text)
{
    (void)user;
    if (level >= LK_LOG_WARNING)
        snprintf(last_warning, sizeof last_warning, "%s", text);
}

static void wrong(const loss *l, const char *format, ...)
{
    va_list arguments;
    n_wrong++;
    printf("after change %ld (folders %s, but folder %d change %d; files %d): ", n_changes,
           l->folders_live ? "now" : "synced", l->folder, l->change, (int)l->files);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* Returns the number of the instance that the opened checkpoint is; -1: it is none. */
static int instance_of(const loss *l, const char *folder)
{
    const char *last = strrchr(folder, '/') + 1;
    names list;
    int found = path_find(checkpoints);
    loss_names(l, found, &list);
    int i = names_find(&list, last);
    if (i < 0)
        return -1;
    uint64_t hash = loss_walk(l, list.at[i].node, NULL, 0);
    for (int k = n_instances - 1; k >= 0; k--)
        if (strcmp(instances[k].name, last) == 0 && instances[k].hash == hash)
            return k;
    return -1;
}

/* A record file of the callback, whichever it is, begins with what the checkpoint counts on. */
static bool has_records(const char *folder, lk_file_mark mark)
{
    names list = nodes[path_find(records)]->now;
    for (int i = 0; i < list.n; i++) {
        char path[PATH_MAX + NAME];
        snprintf(path, sizeof path, "%s/%s", folder, list.at[i].name);
        if (lk__file_has_mark(path, mark))
            return true;
    }
    return false;
}

/* Looks for the marks that callbacks have saved, at any depth. */
static void check_records(const loss *l, const char *folder, const json_t *state)
{
    const char *key, *hash = json_string_value(json_object_get(state, "xxh3"));
    double bytes = json_number_value(json_array_get(json_object_get(state, "bytes"), 0));
    json_t *member;
    if (hash) {
        n_marks++;
        if (!has_records(folder, (lk_file_mark){(int64_t)bytes, strtoull(hash, NULL, 16)}))
            wrong(l, "a file of records lacks some of the %.0f bytes that a checkpoint counts on", bytes);
    }
    json_object_foreach((json_t *)state, key, member) check_records(l, folder, member);
}

static void check_opens(const loss *l, const char *folder, lk_checkpoint_which which)
{
    const char *what = which == LK_CHECKPOINT_BEST ? "best" : "last";
    char record_folder[PATH_MAX];
    lk_checkpoint *checkpoint = NULL;
    snprintf(record_folder, sizeof record_folder, "%s/%s", scratch, records);
    *last_warning = '\0';
    if (lk_checkpoint_open(folder, which, &checkpoint) != LK_OK) {
        wrong(l, "the %s checkpoint does not open: %s", what, lk_error_message());
        lk_error_clear();
        return;
    }
    if (*last_warning)
        wrong(l, "the %s checkpoint opens with a warning: %s", what, last_warning);
    int which_one = instance_of(l, lk_checkpoint_get_info(checkpoint)->folder);
    if (which_one < 0)
        wrong(l, "the %s checkpoint has contents that none had", what);
    else if (which == LK_CHECKPOINT_LAST && which_one < promised - 1)
        wrong(l, "the last checkpoint is %s, and %s was complete", instances[which_one].name,
              instances[promised - 1].name);
    else if (which == LK_CHECKPOINT_LAST)
        check_records(l, record_folder, lk__checkpoint_member(checkpoint, "callbacks"));
    lk_checkpoint_release(checkpoint);
}

static void check_state(const loss *l)
{
    char path[PATH_MAX], best[PATH_MAX + 16];
    uint64_t hash = loss_walk(l, 0, NULL, (uint64_t)promised * 2 + is_best_promised);
    for (int i = n_seen - 1; i >= 0; i--)
        if (seen[i] == hash)
            return;
    if (n_seen == MOST_STATES)
        die("more than %d states", MOST_STATES);
    seen[n_seen++] = hash;
    if (promised == 0)
        return;
    n_states++;
    remove_all();
    loss_walk(l, 0, scratch, 0);
    snprintf(path, sizeof path, "%s/%s", scratch, checkpoints);
    check_opens(l, path, LK_CHECKPOINT_LAST);
    snprintf(best, sizeof best, "%s/best.json", path);
    if (access(best, F_OK) == 0)
        check_opens(l, path, LK_CHECKPOINT_BEST);
    else if (is_best_promised)
        wrong(l, "best.json is gone");
}

static void check_states(void)
{
    for (int files = 0; files < FILE_LOSSES; files++)
        for (int live = 0; live < 2; live++) {
            loss l = {.folders_live = live, .folder = -1, .change = -1, .files = (file_loss)files};
            check_state(&l);
            for (l.folder = 0; l.folder < n_nodes; l.folder++) {
                int n = nodes[l.folder]->is_folder ? nodes[l.folder]->n_changes : 0;
                for (l.change = -1; l.change < n && n > 0; l.change++)
                    check_state(&l);
            }
        }
}

/* --- the log ------------------------------------------------------------------------------------------------------ */

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The next checkpoint begins only when the one before has been written. */
static void note_promises(const char *what, const char *path)
{
    const char *last = strrchr(path, '/');
    if (*what && (strcmp(what, "mkdir") != 0 || !last || !begins_with(last, "/.unfinished-")))
        return;
    promised = n_instances;
    char best[NAME];
    snprintf(best, sizeof best, "%s/best.json", checkpoints);
    is_best_promised = path_find(best) >= 0;
}

static void note_instance(const char *to)
{
    const char *last = strrchr(to, '/');
    if (!last || !begins_with(last, "/checkpoint-"))
        return;
    instances = grow(instances, (size_t)(n_instances + 1) * sizeof *instances);
    snprintf(instances[n_instances].name, NAME, "%s", last + 1);
    instances[n_instances++].hash = folder_hash(path_find(to));
}

static void apply(FILE *log, const char *what, const char *path, const char *rest)
{
    unsigned long a = 0, b = 0;
    sscanf(rest, "%lu %lu", &a, &b);
    if (strcmp(what, "create") == 0) {
        folder_set(path, node_new(false));
    } else if (strcmp(what, "mkdir") == 0) {
        folder_set(path, node_new(true));
    } else if (strcmp(what, "truncate") == 0) {
        file_resize(path_node(path), a);
    } else if (strcmp(what, "write") == 0) {
        node *file = path_node(path);
        if (a + b > file->size)
            file_resize(file, a + b);
        file->is_dirty = true;
        if (fread(file->data + a, 1, b, log) != b)
            die("the log ends early");
    } else if (strcmp(what, "sync") == 0) {
        node_sync(path_node(path));
    } else if (strcmp(what, "rename") == 0 || strcmp(what, "exchange") == 0) {
        folder_rename(path, rest, strcmp(what, "exchange") == 0);
        note_instance(rest);
    } else if (strcmp(what, "unlink") == 0 || strcmp(what, "rmdir") == 0) {
        folder_set(path, -1);
    } else {
        die("the log has '%s'", what);
    }
}

int main(int argc, char **argv)
{
    char line[2 * PATH_MAX + 64], what[16], path[PATH_MAX], rest[PATH_MAX];
    if (argc != 5)
        die("Usage: power_loss LOG SCRATCH CHECKPOINTS RECORDS");
    FILE *log = fopen(argv[1], "rb");
    if (!log)
        die("%s: %s", argv[1], strerror(errno));
    scratch = argv[2], checkpoints = argv[3], records = argv[4];
    seen = grow(NULL, MOST_STATES * sizeof *seen);
    lk_log_set(keep_warning, NULL, LK_LOG_WARNING);
    node_new(true);
    while (fgets(line, sizeof line, log)) {
        *rest = '\0';
        if (sscanf(line, "%15s %4095s %4095[^\n]", what, path, rest) < 2)
            die("the log has '%s'", line);
        note_promises(what, path);
        apply(log, what, path, rest);
        n_changes++;
        check_states();
    }
    note_promises("", "");
    check_states();
    fclose(log);
    remove_all();
    printf("%ld changes, %d checkpoints, %ld states after a loss of power, %ld marks of records, %ld offences\n",
           n_changes, n_instances, n_states, n_marks, n_wrong);
    return n_wrong > 0 || n_instances < 2 || n_marks == 0;
}
