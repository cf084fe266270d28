#include "data/packed_file.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/cache.h"

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
    lk__packed_key key;
    int64_t files, count, channels, height, width;
    uint64_t body_sum;   /* XXH3 of all behind the page */
    uint64_t header_sum; /* of what stands above */
} header;

static lk_status LK_PRINTF(2, 3) refuse(char *problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, PROBLEM, format, arguments);
    va_end(arguments);
    return LK_ERR_IO;
}

/* Images and marks of `files` files of which `count` are kept; 0 where that exceeds the address space. */
static size_t body_size(const lk__samples *sizes, int64_t files, int64_t count)
{
    int64_t plane, image, bytes;
    bool fits = lk__mul_i64(sizes->height, sizes->width, &plane) && lk__mul_i64(plane, sizes->channels, &image) &&
                lk__mul_i64(count, image, &bytes) && bytes < INT64_MAX / 4 && files < INT64_MAX / 4;
    return fits ? (size_t)(bytes + files) : 0;
}

/* --- locking ------------------------------------------------------------------------------------------------------ */

/* flock goes with its process, so a lock is never left behind. */
static lk_status wait_for_lock(int fd, const char *path, const lk__opening *opening, char *problem)
{
    lk_status status = LK_OK;
    lk__doing before = lk__now_for_a_while(LK_DOING_OTHERS, "wait for another's decoding");
    while (status == LK_OK && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            status = refuse(problem, "%s: cannot be locked: %s", path, strerror(errno));
        else if (!lk__opening_goes_on(opening, LK_DATA_WAITING, 0, 0))
            status = lk__fail(LK_ERR_INTERRUPTED, "%s: interrupted while another process decodes its pictures",
                              opening->name);
        else
            nanosleep(&(struct timespec){.tv_nsec = POLL_MILLISECONDS * 1000000L}, NULL);
    }
    lk__now_again(before);
    return status;
}

lk_status lk__packed_lock(lk__packed *pack, const char *folder, const char *name, const lk__opening *opening,
                          char *problem)
{
    char made[PATH_MAX], path[PATH_MAX];
    *pack = (lk__packed){.lock = -1, .fd = -1, .opening = opening};
    if (snprintf(pack->written, PATH_MAX, "%s/%s.pack.tmp", folder, name) >= PATH_MAX)
        return refuse(problem, "%.200s: the path is too long", folder);
    snprintf(pack->path, PATH_MAX, "%s/%s.pack", folder, name);
    snprintf(path, PATH_MAX, "%s/%s.lock", folder, name);
    snprintf(made, PATH_MAX, "%s", folder);
    if (!lk__make_folders(made))
        return refuse(problem, "%.400s: cannot be made: %s", made, strerror(errno));
    pack->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (pack->lock < 0)
        return refuse(problem, "%.400s: cannot be opened: %s", path, strerror(errno));
    lk_status status = wait_for_lock(pack->lock, path, opening, problem);
    if (status != LK_OK)
        lk__packed_close(pack);
    return status;
}

void lk__packed_close(lk__packed *pack)
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

static size_t images_size(const lk__samples *samples)
{
    return (size_t)(samples->count * samples->channels * samples->height * samples->width);
}

static lk_status interrupted(const lk__packed *pack)
{
    LK_FAIL(LK_ERR_INTERRUPTED, "%s: interrupted at the cache of its pictures", pack->opening->name);
}

/* Of a file that may be larger than memory. */
static lk_status sum_up(const lk__packed *pack, lk_data_work work, const uint8_t *bytes, size_t size, uint64_t *sum)
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
        if (!lk__opening_goes_on(pack->opening, work, (int64_t)(done + piece), (int64_t)size))
            status = interrupted(pack);
    }
    *sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

/* What stands in the file is believed when its sums are right. */
static lk_status check(const lk__packed *pack, const uint8_t *bytes, size_t size, const lk__packed_key *key,
                       int64_t files, lk__samples *samples)
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
    *samples = (lk__samples){.count = h.count, .channels = h.channels, .height = h.height, .width = h.width};
    size_t body = body_size(samples, files, h.count);
    if (body == 0 || size != PAGE + body)
        return LK_ERR_FORMAT;
    LK_TRY(sum_up(pack, LK_DATA_CHECKING, bytes + PAGE, body, &sum));
    samples->images = bytes + PAGE;
    return sum == h.body_sum ? LK_OK : LK_ERR_FORMAT;
}

static lk_status read_mapped(const lk__packed *pack, uint8_t *bytes, size_t size, const lk__packed_key *key,
                             int64_t files, lk__samples *samples, uint8_t *kept)
{
    lk_status status = check(pack, bytes, size, key, files, samples);
    if (status != LK_OK) {
        *samples = (lk__samples){0};
        munmap(bytes, size);
        return status;
    }
    memcpy(kept, samples->images + images_size(samples), (size_t)files);
    samples->mapping = bytes;
    samples->mapping_size = size;
    return LK_OK;
}

lk_status lk__packed_read(const lk__packed *pack, const lk__packed_key *key, int64_t files, lk__samples *samples,
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
    return read_mapped(pack, bytes, size, key, files, samples, kept);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Blocks are taken before anything is written: a full disk is an error here, and would be a signal later. */
static lk_status make_room(lk__packed *pack, char *problem)
{
    int error = posix_fallocate(pack->fd, 0, (off_t)pack->size);
    if (error)
        return refuse(problem, "%.300s: %zu bytes cannot be written: %s", pack->written, pack->size, strerror(error));
    void *bytes = mmap(NULL, pack->size, PROT_READ | PROT_WRITE, MAP_SHARED, pack->fd, 0);
    if (bytes == MAP_FAILED)
        return refuse(problem, "%.300s: cannot be mapped into memory: %s", pack->written, strerror(errno));
    pack->bytes = bytes;
    return LK_OK;
}

/* A lock that can be had says that its holder is gone. */
static void remove_left(const char *written)
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

static void remove_leftovers(const lk__packed *pack)
{
    char folder[PATH_MAX], path[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(pack->written, '/') - pack->written), pack->written);
    DIR *stream = opendir(folder);
    for (const struct dirent *entry; stream && (entry = readdir(stream));) {
        size_t length = strlen(entry->d_name), end = strlen(".pack.tmp");
        if (length > end && strcmp(entry->d_name + length - end, ".pack.tmp") == 0 &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX)
            remove_left(path);
    }
    if (stream)
        closedir(stream);
}

lk_status lk__packed_begin(lk__packed *pack, const lk__samples *sizes, int64_t files, uint8_t **images, char *problem)
{
    size_t body = body_size(sizes, files, files);
    if (body == 0)
        return refuse(problem, "%.300s: the samples exceed the address space", pack->path);
    remove_leftovers(pack);
    pack->size = PAGE + body;
    pack->fd = open(pack->written, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (pack->fd < 0)
        return refuse(problem, "%.300s: cannot be opened: %s", pack->written, strerror(errno));
    lk_status status = make_room(pack, problem);
    if (status != LK_OK) {
        unlink(pack->written);
        close(pack->fd);
        pack->fd = -1;
        return status;
    }
    *images = pack->bytes + PAGE;
    return LK_OK;
}

static lk_status write_rest(lk__packed *pack, const lk__packed_key *key, int64_t files, const uint8_t *kept,
                            const lk__samples *samples)
{
    uint64_t sum;
    size_t body = body_size(samples, files, samples->count);
    memcpy(pack->bytes + PAGE + images_size(samples), kept, (size_t)files);
    LK_TRY(sum_up(pack, LK_DATA_STORING, pack->bytes + PAGE, body, &sum));
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

/* Piece by piece: a disk may take minutes for all. */
static lk_status sync_pieces(lk__packed *pack, size_t size, char *problem)
{
    for (size_t done = 0, piece; done < size; done += piece) {
        piece = size - done < PIECE ? size - done : PIECE;
        if (msync(pack->bytes + done, piece, MS_SYNC) != 0)
            return refuse(problem, "%.300s: cannot be written: %s", pack->written, strerror(errno));
        lk__heartbeat_beat();
        if (!lk__opening_goes_on(pack->opening, LK_DATA_STORING, (int64_t)(done + piece), (int64_t)size))
            return interrupted(pack);
    }
    return LK_OK;
}

static lk_status install(lk__packed *pack, size_t size, char *problem)
{
    lk_status status = sync_pieces(pack, size, problem);
    if (status != LK_OK)
        return status;
    if (ftruncate(pack->fd, (off_t)size) != 0 || fsync(pack->fd) != 0)
        return refuse(problem, "%.300s: cannot be written: %s", pack->written, strerror(errno));
    if (rename(pack->written, pack->path) != 0)
        return refuse(problem, "%.200s: cannot be renamed to %.200s: %s", pack->written, pack->path, strerror(errno));
    char folder[PATH_MAX];
    memcpy(folder, pack->path, sizeof folder);
    *strrchr(folder, '/') = '\0';
    lk__cache_sync(folder);
    return LK_OK;
}

lk_status lk__packed_finish(lk__packed *pack, const lk__packed_key *key, int64_t files, const uint8_t *kept,
                            lk__samples *samples, char *problem)
{
    LK_TRY(write_rest(pack, key, files, kept, samples));
    lk_status status = install(pack, PAGE + body_size(samples, files, samples->count), problem);
    if (status != LK_OK && status != LK_ERR_IO)
        return status;
    samples->images = pack->bytes + PAGE;
    if (status == LK_OK) {
        close(pack->fd);
        pack->fd = -1;
    }
    mprotect(pack->bytes, pack->size, PROT_READ);
    samples->mapping = pack->bytes;
    samples->mapping_size = pack->size;
    pack->bytes = NULL;
    return status;
}
