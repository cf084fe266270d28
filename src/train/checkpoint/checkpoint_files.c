#include "train/checkpoint/checkpoint_files.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "train/checkpoint/checkpoint_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

lk_status lk__checkpoint_path(const char *folder, const char *name, char path[PATH_MAX])
{
    return lk__checkpoint_prefixed_path(folder, "", name, path);
}

lk_status lk__checkpoint_prefixed_path(const char *folder, const char *prefix, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s%s", folder, prefix, name) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", folder);
    return LK_OK;
}

lk_status lk__load_json(const char *path, int64_t most, json_t **json)
{
    struct stat about;
    json_error_t error;
    *json = NULL;
    if (stat(path, &about) != 0 && errno == ENOENT)
        LK_FAIL(LK_ERR_FORMAT, "%s: is missing", path);
    if (stat(path, &about) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode) || about.st_size > most)
        LK_FAIL(LK_ERR_FORMAT, "%s: is no file of at most %lld bytes", path, (long long)most);
    *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!*json && json_error_code(&error) == json_error_cannot_open_file)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (!*json)
        LK_FAIL(LK_ERR_FORMAT, "%s: is not JSON: line %d: %.80s", path, error.line, error.text);
    return LK_OK;
}

/* --- one file ----------------------------------------------------------------------------------------------------- */

/* Reads a file of `bytes` bytes and hashes them. whole: the bytes are stored here; NULL: they are not kept. */
static lk_status checkpoint_files_hash(const char *path, int fd, int64_t bytes, unsigned char *whole, uint64_t *hash)
{
    enum { PIECE = 1 << 20 };
    unsigned char *piece = whole ? NULL : lk__alloc_aligned(PIECE);
    XXH3_state_t *state = XXH3_createState();
    lk_status status =
        (whole || piece) && state ? LK_OK : lk__fail(LK_ERR_MEMORY, "out of memory: the hash of %s", path);
    if (status == LK_OK)
        XXH3_64bits_reset(state);
    for (int64_t at = 0; at < bytes && status == LK_OK;) {
        unsigned char *to = whole ? whole + at : piece;
        ssize_t got = read(fd, to, bytes - at < PIECE ? (size_t)(bytes - at) : PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) /* the medium is damaged: an earlier checkpoint may be whole */
            status = lk__fail(LK_ERR_FORMAT, "%s: cannot be read: %s", path, strerror(errno));
        else if (got == 0)
            status = lk__fail(LK_ERR_FORMAT, "%s: ends at byte %lld, and the manifest says %lld", path, (long long)at,
                              (long long)bytes);
        else
            XXH3_64bits_update(state, to, (size_t)got);
        at += got;
    }
    if (status == LK_OK)
        *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    lk__free_aligned(piece);
    return status;
}

static lk_status checkpoint_files_open(const char *path, int64_t bytes, int *fd)
{
    struct stat about;
    lk_status status = LK_OK;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        LK_FAIL(LK_ERR_FORMAT, "%s: is missing, and the manifest lists it", path);
    if (*fd < 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (fstat(*fd, &about) != 0 || !S_ISREG(about.st_mode))
        status = lk__fail(LK_ERR_FORMAT, "%s: is not a regular file", path);
    else if (about.st_size != bytes)
        status = lk__fail(LK_ERR_FORMAT, "%s: has %lld bytes, and the manifest says %lld", path,
                          (long long)about.st_size, (long long)bytes);
    if (status != LK_OK)
        close(*fd);
    return status;
}

static lk_status checkpoint_files_read_entry(const char *path, const json_t *listed, int64_t *bytes, const char **xxh3)
{
    *xxh3 = json_string_value(json_object_get(listed, "xxh3"));
    *bytes = json_integer_value(json_object_get(listed, "bytes"));
    if (!json_is_integer(json_object_get(listed, "bytes")) || *bytes < 0 || !*xxh3)
        LK_FAIL(LK_ERR_FORMAT, "%s: is listed in the manifest otherwise than it should", path);
    return LK_OK;
}

static lk_status checkpoint_files_check_size(const lk_checkpoint *c, const char *name, const json_t *listed)
{
    char path[PATH_MAX];
    const char *xxh3;
    int64_t bytes;
    int fd;
    LK_TRY(lk__checkpoint_path(c->folder, name, path));
    LK_TRY(checkpoint_files_read_entry(path, listed, &bytes, &xxh3));
    LK_TRY(checkpoint_files_open(path, bytes, &fd));
    close(fd);
    return LK_OK;
}

/* Compares a file with its entry in the manifest. With `keep` the contents are returned in *data, which has space for
 * one more byte. */
static lk_status checkpoint_files_check(const char *path, const json_t *listed, bool keep, unsigned char **data,
                                        int64_t *bytes)
{
    char text[24];
    uint64_t hash = 0;
    int fd;
    const char *xxh3;
    LK_TRY(checkpoint_files_read_entry(path, listed, bytes, &xxh3));
    LK_TRY(checkpoint_files_open(path, *bytes, &fd));
    *data = keep ? lk__alloc_aligned((size_t)*bytes + 1) : NULL;
    lk_status status = keep && !*data ? LK_ERR_MEMORY : checkpoint_files_hash(path, fd, *bytes, *data, &hash);
    close(fd);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (status == LK_OK && strcmp(text, xxh3) != 0)
        status =
            lk__fail(LK_ERR_FORMAT, "%s: is damaged: its hash is %s, and the manifest says %.20s", path, text, xxh3);
    if (status != LK_OK) {
        lk__free_aligned(*data);
        *data = NULL;
    }
    return status;
}

static const char optimizer_file[] = "optimizer.safetensors"; /* a second thread reads it: see optimizer_job */

/* Checks a file and keeps what training or prediction needs: tensors and the model's text in memory, so that these
 * files are read only once, and the paths of the model file and the implementations. Files that the manifest does not
 * list are not used. */
static lk_status checkpoint_files_read_one(lk_checkpoint *c, const char *name, const json_t *listed)
{
    char path[PATH_MAX];
    unsigned char *data;
    int64_t bytes;
    lk_safetensors **tensors = strcmp(name, "model.safetensors") == 0 ? &c->model
                               : strcmp(name, optimizer_file) == 0    ? &c->optimizer
                                                                      : NULL;
    if (strchr(name, '/') || name[0] == '.')
        LK_FAIL(LK_ERR_FORMAT, "%s/manifest.json: lists '%.60s', which is no file of a checkpoint", c->folder, name);
    LK_TRY(lk__checkpoint_path(c->folder, name, path));
    bool is_model = strcmp(name, "model.lk") == 0, is_tuning = strcmp(name, "implementations") == 0;
    LK_TRY(checkpoint_files_check(path, listed, tensors || is_model, &data, &bytes));
    if (tensors)
        return lk__safetensors_take(path, data, bytes, tensors);
    if (is_model) {
        data[bytes] = '\0';
        c->model_text = (char *)data;
    }
    if (!is_model && !is_tuning)
        return LK_OK;
    char *kept = lk__strdup(path);
    *(is_model ? &c->model_file : &c->implementations) = kept;
    return kept ? LK_OK : LK_ERR_MEMORY;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* The optimizer's file is once or twice as large as the model's, so a second thread reads it at the same time. */
typedef struct optimizer_job {
    lk_checkpoint *checkpoint;
    const json_t *listed;
    lk_error_state error;
} optimizer_job;

static void *checkpoint_files_read_optimizer(void *argument)
{
    optimizer_job *job = argument;
    checkpoint_files_read_one(job->checkpoint, optimizer_file, job->listed);
    lk__error_save(&job->error);
    return NULL;
}

static lk_status checkpoint_files_read_others(lk_checkpoint *c, json_t *files)
{
    const char *name;
    json_t *listed;
    json_object_foreach(files, name, listed)
    {
        if (strcmp(name, optimizer_file) != 0)
            LK_TRY(checkpoint_files_read_one(c, name, listed));
    }
    return LK_OK;
}

/* If no thread can be started, the optimizer's file is read last. */
static lk_status checkpoint_files_read_all(lk_checkpoint *c, json_t *files)
{
    optimizer_job job = {.checkpoint = c, .listed = json_object_get(files, optimizer_file)};
    pthread_t thread;
    if (job.listed && c->is_model_only) {
        LK_TRY(checkpoint_files_check_size(c, optimizer_file, job.listed));
        job.listed = NULL;
    }
    bool is_thread = job.listed && lk__thread_start(&thread, checkpoint_files_read_optimizer, &job) == 0;
    lk_status status = checkpoint_files_read_others(c, files);
    if (is_thread)
        pthread_join(thread, NULL);
    else if (job.listed && status == LK_OK)
        return checkpoint_files_read_one(c, optimizer_file, job.listed);
    if (status == LK_OK && is_thread && job.error.status != LK_OK) {
        lk__error_restore(&job.error);
        status = job.error.status;
    }
    return status;
}

/* state.json has times too, by which checkpoints of two processes may differ. */
static uint64_t checkpoint_files_hash_values(const json_t *files)
{
    static const char *const names[] = {"model.safetensors", optimizer_file};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *xxh3 = json_string_value(json_object_get(json_object_get(files, names[i]), "xxh3"));
        hash = xxh3 ? XXH3_64bits_withSeed(xxh3, strlen(xxh3), hash) : hash;
    }
    return hash;
}

static lk_status checkpoint_files_read_manifest(lk_checkpoint *c, const json_t *manifest)
{
    static const char *const needed[] = {"model.safetensors", "state.json"};
    json_t *files = json_object_get(manifest, "files");
    const char *folder = c->folder, *format = json_string_value(json_object_get(manifest, "format"));
    if (!format || strcmp(format, LK_MANIFEST_FORMAT) != 0 ||
        json_integer_value(json_object_get(manifest, "version")) != LK_CHECKPOINT_VERSION)
        LK_FAIL(LK_ERR_FORMAT, "%s/manifest.json: is not '%s' of version %d", folder, LK_MANIFEST_FORMAT,
                LK_CHECKPOINT_VERSION);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!json_object_get(files, needed[i]))
            LK_FAIL(LK_ERR_FORMAT, "%s/manifest.json: does not list %s", folder, needed[i]);
    c->values_hash = checkpoint_files_hash_values(files);
    return checkpoint_files_read_all(c, files);
}

lk_status lk__checkpoint_read_files(lk_checkpoint *c)
{
    char path[PATH_MAX];
    json_t *manifest;
    LK_TRY(lk__checkpoint_path(c->folder, "manifest.json", path));
    LK_TRY(lk__load_json(path, 1 << 20, &manifest));
    lk_status status = checkpoint_files_read_manifest(c, manifest);
    json_decref(manifest);
    return status;
}
