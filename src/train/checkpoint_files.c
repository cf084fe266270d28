/* The files of a checkpoint, read and compared with what its manifest lists. */
#include "train/checkpoint.h"

#include "base/mem.h"
#include "base/status.h"

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
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", folder);
    return LK_OK;
}

/* --- one file ----------------------------------------------------------------------------------------------------- */

/* Of a file of so many bytes. whole: where they are to be; NULL: nowhere. */
static lk_status hash_stream(const char *path, int fd, int64_t bytes, unsigned char *whole, uint64_t *hash)
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
        if (got < 0)
            status = lk__fail(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
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

static lk_status open_listed(const char *path, int64_t bytes, int *fd)
{
    struct stat there;
    lk_status status = LK_OK;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        LK_FAIL(LK_ERR_FORMAT, "%s: is missing, and the manifest lists it", path);
    if (*fd < 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (fstat(*fd, &there) != 0 || !S_ISREG(there.st_mode))
        status = lk__fail(LK_ERR_FORMAT, "%s: is not a regular file", path);
    else if (there.st_size != bytes)
        status = lk__fail(LK_ERR_FORMAT, "%s: has %lld bytes, and the manifest says %lld", path,
                          (long long)there.st_size, (long long)bytes);
    if (status != LK_OK)
        close(*fd);
    return status;
}

static lk_status read_entry(const char *path, const json_t *listed, int64_t *bytes, const char **xxh3)
{
    *xxh3 = json_string_value(json_object_get(listed, "xxh3"));
    *bytes = json_integer_value(json_object_get(listed, "bytes"));
    if (!json_is_integer(json_object_get(listed, "bytes")) || *bytes < 0 || !*xxh3)
        LK_FAIL(LK_ERR_FORMAT, "%s: is listed in the manifest otherwise than it should", path);
    return LK_OK;
}

static lk_status check_size(const lk_checkpoint *c, const char *name, const json_t *listed)
{
    char path[PATH_MAX];
    const char *xxh3;
    int64_t bytes;
    int fd;
    LK_TRY(lk__checkpoint_path(c->folder, name, path));
    LK_TRY(read_entry(path, listed, &bytes, &xxh3));
    LK_TRY(open_listed(path, bytes, &fd));
    close(fd);
    return LK_OK;
}

/* keep: *data becomes all of it, with room for one more byte. */
static lk_status check_file(const char *path, const json_t *listed, bool keep, unsigned char **data, int64_t *bytes)
{
    char text[24];
    uint64_t hash = 0;
    int fd;
    const char *xxh3;
    LK_TRY(read_entry(path, listed, bytes, &xxh3));
    LK_TRY(open_listed(path, *bytes, &fd));
    *data = keep ? lk__alloc_aligned((size_t)*bytes + 1) : NULL;
    lk_status status = keep && !*data ? LK_ERR_MEMORY : hash_stream(path, fd, *bytes, *data, &hash);
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

static const char set_aside[] = "optimizer.safetensors"; /* see take_all */

static lk_status keep_path(const char *path, char **kept)
{
    *kept = lk__strdup(path);
    return *kept ? LK_OK : LK_ERR_MEMORY;
}

/* Tensors stay in memory: they are read once. Of other files the paths are kept: what the manifest does not list is not
 * the checkpoint's. */
static lk_status take_file(lk_checkpoint *c, const char *name, const json_t *listed)
{
    char path[PATH_MAX];
    unsigned char *data;
    int64_t bytes;
    lk__safetensors **tensors = strcmp(name, "model.safetensors") == 0 ? &c->model
                                : strcmp(name, set_aside) == 0         ? &c->optimizer
                                                                       : NULL;
    if (strchr(name, '/') || name[0] == '.')
        LK_FAIL(LK_ERR_FORMAT, "%s/manifest.json: lists '%.60s', which is no file of a checkpoint", c->folder, name);
    LK_TRY(lk__checkpoint_path(c->folder, name, path));
    bool is_model = strcmp(name, "model.lk") == 0, is_tuning = strcmp(name, "implementations") == 0;
    LK_TRY(check_file(path, listed, tensors || is_model, &data, &bytes));
    if (tensors)
        return lk__safetensors_take(path, data, bytes, tensors);
    if (is_model) {
        data[bytes] = '\0';
        c->model_text = (char *)data;
    }
    if (is_model || is_tuning)
        return keep_path(path, is_model ? &c->model_file : &c->implementations);
    return LK_OK;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* The optimiser's state is as large as the model or twice that: a thread of its own takes it meanwhile. */
typedef struct aside {
    lk_checkpoint *checkpoint;
    const json_t *listed;
    lk_error_state error;
} aside;

static void *take_aside(void *argument)
{
    aside *a = argument;
    take_file(a->checkpoint, set_aside, a->listed);
    lk__error_save(&a->error);
    return NULL;
}

static lk_status take_others(lk_checkpoint *c, json_t *files)
{
    const char *name;
    json_t *listed;
    json_object_foreach(files, name, listed)
    {
        if (strcmp(name, set_aside) != 0)
            LK_TRY(take_file(c, name, listed));
    }
    return LK_OK;
}

/* Without a thread one comes after the other. */
static lk_status take_all(lk_checkpoint *c, json_t *files)
{
    aside a = {.checkpoint = c, .listed = json_object_get(files, set_aside)};
    pthread_t thread;
    if (a.listed && c->is_model_only) {
        LK_TRY(check_size(c, set_aside, a.listed));
        a.listed = NULL;
    }
    bool is_thread = a.listed && pthread_create(&thread, NULL, take_aside, &a) == 0;
    lk_status status = take_others(c, files);
    if (is_thread)
        pthread_join(thread, NULL);
    else if (a.listed && status == LK_OK)
        return take_file(c, set_aside, a.listed);
    if (status == LK_OK && is_thread && a.error.status != LK_OK) {
        lk__error_restore(&a.error);
        status = a.error.status;
    }
    return status;
}

static lk_status take_files(lk_checkpoint *c, const json_t *manifest)
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
    return take_all(c, files);
}

lk_status lk__checkpoint_read_files(lk_checkpoint *c)
{
    char path[PATH_MAX];
    json_t *manifest;
    LK_TRY(lk__checkpoint_path(c->folder, "manifest.json", path));
    LK_TRY(lk__load_json(path, 1 << 20, &manifest));
    lk_status status = take_files(c, manifest);
    json_decref(manifest);
    return status;
}
