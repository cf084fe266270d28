#include "data/formats/packed_file.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { PAGE = 4096, PROBLEM = 512, PIECE = 16 << 20, POLL_MILLISECONDS = 20 };

static const char magic[8] = "LKPACK2";
#define BYTE_ORDER_MARK UINT64_C(0x0102030405060708)

typedef struct header {
    char magic[8];
    uint64_t byte_order;
    lk_packed_key key;
    int64_t files, count, channels, height, width;
    uint64_t body_sum;   /* XXH3 of everything after the page */
    uint64_t header_sum; /* XXH3 of the members above */
} header;

static lk_status LK_PRINTF(2, 3) packed_problem(char *problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, PROBLEM, format, arguments);
    va_end(arguments);
    return LK_ERR_IO;
}

/* Returns the bytes of `count` images and of the marks of `files` files; 0 if they exceed the address space. */
static size_t packed_body_size(const lk_samples *sizes, int64_t files, int64_t count)
{
    int64_t plane, image, bytes;
    bool fits = lk__mul_i64(sizes->height, sizes->width, &plane) && lk__mul_i64(plane, sizes->channels, &image) &&
                lk__mul_i64(count, image, &bytes) && bytes < INT64_MAX / 4 && files < INT64_MAX / 4;
    return fits ? (size_t)(bytes + files) : 0;
}

/* --- locking ------------------------------------------------------------------------------------------------------ */

/* The system releases a flock when its process ends, so no lock is ever left behind. To wait for it is no standstill.
 */
static lk_status packed_wait_for_lock(int fd, const char *path, const lk_data_reporter *reporter, char *problem)
{
    lk_status status = LK_OK;
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "wait for another's decoding");
    while (status == LK_OK && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            status = packed_problem(problem, "%s: cannot be locked: %s", path, strerror(errno));
        else if (!lk__report_progress(reporter, LK_DATA_WAITING, 0, 0))
            status = lk__fail(LK_ERR_INTERRUPTED, "%s: interrupted while another process decodes its pictures",
                              reporter->name);
        else
            nanosleep(&(struct timespec){.tv_nsec = POLL_MILLISECONDS * 1000000L}, NULL);
        lk__heartbeat_beat();
    }
    lk__activity_end(before);
    return status;
}

lk_status lk__packed_lock(lk_packed_file *pack, const char *folder, const char *name, const lk_data_reporter *reporter,
                          char *problem)
{
    char made[PATH_MAX], path[PATH_MAX];
    *pack = (lk_packed_file){.lock = -1, .fd = -1, .reporter = reporter};
    if (snprintf(pack->written, PATH_MAX, "%s/%s.pack.tmp", folder, name) >= PATH_MAX)
        return packed_problem(problem, "%.200s: the path is too long", folder);
    snprintf(pack->path, PATH_MAX, "%s/%s.pack", folder, name);
    snprintf(path, PATH_MAX, "%s/%s.lock", folder, name);
    snprintf(made, PATH_MAX, "%s", folder);
    if (!lk__make_folders(made))
        return packed_problem(problem, "%.400s: cannot be made: %s", made, strerror(errno));
    pack->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (pack->lock < 0)
        return packed_problem(problem, "%.400s: cannot be opened: %s", path, strerror(errno));
    lk_status status = packed_wait_for_lock(pack->lock, path, reporter, problem);
    if (status != LK_OK)
        lk__packed_close(pack);
    return status;
}

void lk__packed_close(lk_packed_file *pack)
{
    if (pack->bytes)
        munmap(pack->bytes, pack->size);
    if (pack->fd >= 0) {
        unlink(pack->written);
        close(pack->fd);
    }
    if (pack->lock >= 0)
        close(pack->lock);
    pack->bytes = NULL;
    pack->fd = pack->lock = -1;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static size_t packed_images_size(const lk_samples *samples)
{
    return (size_t)(samples->count * samples->channels * samples->height * samples->width);
}

static lk_status packed_interrupted(const lk_packed_file *pack)
{
    LK_FAIL(LK_ERR_INTERRUPTED, "%s: interrupted at the cache of its pictures", pack->reporter->name);
}

/* Hashes piece by piece, with reports in between: the file may be larger than memory. */
static lk_status packed_hash(const lk_packed_file *pack, lk_data_work work, const uint8_t *bytes, size_t size,
                             uint64_t *sum)
{
    XXH3_state_t *state = XXH3_createState();
    lk_status status = LK_OK;
    if (!state)
        LK_FAIL(LK_ERR_MEMORY, "out of memory");
    XXH3_64bits_reset(state);
    for (size_t done = 0, piece; status == LK_OK && done < size; done += piece) {
        piece = size - done < PIECE ? size - done : PIECE;
        XXH3_64bits_update(state, bytes + done, piece);
        lk__heartbeat_beat();
        if (!lk__report_progress(pack->reporter, work, (int64_t)(done + piece), (int64_t)size))
            status = packed_interrupted(pack);
    }
    *sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

/* Nothing in the file is trusted before the checksum that covers it. */
static lk_status packed_check(const lk_packed_file *pack, const uint8_t *bytes, size_t size, const lk_packed_key *key,
                              int64_t files, lk_samples *samples)
{
    header h;
    uint64_t sum;
    if (size < PAGE)
        return LK_ERR_FORMAT;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.byte_order != BYTE_ORDER_MARK)
        return LK_ERR_FORMAT;
    if (h.header_sum != XXH3_64bits(&h, offsetof(header, header_sum)))
        return LK_ERR_FORMAT;
    if (h.key.high != key->high || h.key.low != key->low)
        return LK_ERR_STATE;
    if (h.files != files || h.count < 1 || h.count > files || h.channels < 1 || h.height < 1 || h.width < 1)
        return LK_ERR_FORMAT;
    *samples = (lk_samples){.count = h.count, .channels = h.channels, .height = h.height, .width = h.width};
    size_t body = packed_body_size(samples, files, h.count);
    if (body == 0 || size != PAGE + body)
        return LK_ERR_FORMAT;
    LK_TRY(packed_hash(pack, LK_DATA_CHECKING, bytes + PAGE, body, &sum));
    samples->images = bytes + PAGE;
    return sum == h.body_sum ? LK_OK : LK_ERR_FORMAT;
}

static lk_status packed_read_mapped(const lk_packed_file *pack, uint8_t *bytes, size_t size, const lk_packed_key *key,
                                    int64_t files, lk_samples *samples, uint8_t *kept)
{
    lk_status status = packed_check(pack, bytes, size, key, files, samples);
    if (status != LK_OK) {
        *samples = (lk_samples){0};
        munmap(bytes, size);
        return status;
    }
    memcpy(kept, samples->images + packed_images_size(samples), (size_t)files);
    samples->mapping = bytes;
    samples->mapping_size = size;
    return LK_OK;
}

lk_status lk__packed_read(const lk_packed_file *pack, const lk_packed_key *key, int64_t files, lk_samples *samples,
                          uint8_t *kept)
{
    int fd = open(pack->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return LK_ERR_NOT_FOUND;
    struct stat status;
    bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size >= PAGE;
    size_t size = regular ? (size_t)status.st_size : 0;
    void *bytes = regular ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return LK_ERR_FORMAT;
    return packed_read_mapped(pack, bytes, size, key, files, samples, kept);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Allocates the disk blocks before anything is written: a full disk gives an error here, but would give SIGBUS on a
 * write to the mapping. */
static lk_status packed_map_space(lk_packed_file *pack, char *problem)
{
    int error = posix_fallocate(pack->fd, 0, (off_t)pack->size);
    if (error)
        return packed_problem(problem, "%.300s: %zu bytes cannot be written: %s", pack->written, pack->size,
                              strerror(error));
    void *bytes = mmap(NULL, pack->size, PROT_READ | PROT_WRITE, MAP_SHARED, pack->fd, 0);
    if (bytes == MAP_FAILED)
        return packed_problem(problem, "%.300s: cannot be mapped into memory: %s", pack->written, strerror(errno));
    pack->bytes = bytes;
    return LK_OK;
}

/* Removes a half-written file, unless another process still holds its lock. */
static void packed_remove_leftover(const char *written)
{
    char lock[PATH_MAX];
    size_t stem = strlen(written) - strlen(".pack.tmp");
    snprintf(lock, sizeof lock, "%.*s.lock", (int)stem, written);
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(written);
    close(fd);
}

static void packed_remove_leftovers(const lk_packed_file *pack)
{
    char folder[PATH_MAX], path[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(pack->written, '/') - pack->written), pack->written);
    DIR *stream = opendir(folder);
    for (const struct dirent *entry; stream && (entry = readdir(stream));) {
        size_t length = strlen(entry->d_name), end = strlen(".pack.tmp");
        if (length > end && strcmp(entry->d_name + length - end, ".pack.tmp") == 0 &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX)
            packed_remove_leftover(path);
    }
    if (stream)
        closedir(stream);
}

lk_status lk__packed_begin(lk_packed_file *pack, const lk_samples *sizes, int64_t files, uint8_t **images,
                           char *problem)
{
    size_t body = packed_body_size(sizes, files, files);
    if (body == 0)
        return packed_problem(problem, "%.300s: the samples exceed the address space", pack->path);
    packed_remove_leftovers(pack);
    pack->size = PAGE + body;
    pack->fd = open(pack->written, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (pack->fd < 0)
        return packed_problem(problem, "%.300s: cannot be opened: %s", pack->written, strerror(errno));
    lk_status status = packed_map_space(pack, problem);
    if (status != LK_OK) {
        unlink(pack->written);
        close(pack->fd);
        pack->fd = -1;
        return status;
    }
    *images = pack->bytes + PAGE;
    return LK_OK;
}

static lk_status packed_write_rest(lk_packed_file *pack, const lk_packed_key *key, int64_t files, const uint8_t *kept,
                                   const lk_samples *samples)
{
    uint64_t sum;
    size_t body = packed_body_size(samples, files, samples->count);
    memcpy(pack->bytes + PAGE + packed_images_size(samples), kept, (size_t)files);
    LK_TRY(packed_hash(pack, LK_DATA_STORING, pack->bytes + PAGE, body, &sum));
    header h = {
        .byte_order = BYTE_ORDER_MARK,
        .key = *key,
        .files = files,
        .count = samples->count,
        .channels = samples->channels,
        .height = samples->height,
        .width = samples->width,
        .body_sum = sum,
    };
    memcpy(h.magic, magic, sizeof magic);
    h.header_sum = XXH3_64bits(&h, offsetof(header, header_sum));
    memcpy(pack->bytes, &h, sizeof h);
    return LK_OK;
}

/* Syncs piece by piece, with reports in between: the whole may take minutes. */
static lk_status packed_sync_pieces(lk_packed_file *pack, size_t size, char *problem)
{
    for (size_t done = 0, piece; done < size; done += piece) {
        piece = size - done < PIECE ? size - done : PIECE;
        if (msync(pack->bytes + done, piece, MS_SYNC) != 0)
            return packed_problem(problem, "%.300s: cannot be written: %s", pack->written, strerror(errno));
        lk__heartbeat_beat();
        if (!lk__report_progress(pack->reporter, LK_DATA_STORING, (int64_t)(done + piece), (int64_t)size))
            return packed_interrupted(pack);
    }
    return LK_OK;
}

static lk_status packed_install(lk_packed_file *pack, size_t size, char *problem)
{
    lk_status status = packed_sync_pieces(pack, size, problem);
    if (status != LK_OK)
        return status;
    if (ftruncate(pack->fd, (off_t)size) != 0 || fsync(pack->fd) != 0)
        return packed_problem(problem, "%.300s: cannot be written: %s", pack->written, strerror(errno));
    if (rename(pack->written, pack->path) != 0)
        return packed_problem(problem, "%.200s: cannot be renamed to %.200s: %s", pack->written, pack->path,
                              strerror(errno));
    char folder[PATH_MAX];
    memcpy(folder, pack->path, sizeof folder);
    *strrchr(folder, '/') = '\0';
    lk__cache_sync(folder);
    return LK_OK;
}

void lk__packed_keep_in_memory(lk_packed_file *pack, lk_samples *samples)
{
    mprotect(pack->bytes, pack->size, PROT_READ);
    samples->images = pack->bytes + PAGE;
    samples->mapping = pack->bytes;
    samples->mapping_size = pack->size;
    pack->bytes = NULL;
}

lk_status lk__packed_finish(lk_packed_file *pack, const lk_packed_key *key, int64_t files, const uint8_t *kept,
                            lk_samples *samples, char *problem)
{
    LK_TRY(packed_write_rest(pack, key, files, kept, samples));
    lk_status status = packed_install(pack, PAGE + packed_body_size(samples, files, samples->count), problem);
    if (status != LK_OK && status != LK_ERR_IO)
        return status;
    if (status == LK_OK) {
        close(pack->fd);
        pack->fd = -1;
    }
    lk__packed_keep_in_memory(pack, samples);
    return status;
}
