#include "data/packed_file.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "data/cache.h"

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

static const char magic[8] = "LKPACK1";
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

/* Images, labels and marks of `files` files of which `count` are kept; 0 where that exceeds the address space. */
static size_t body_size(const lk__samples *sizes, int64_t files, int64_t count)
{
    int64_t plane, image, bytes;
    bool fits = lk__mul_i64(sizes->height, sizes->width, &plane) && lk__mul_i64(plane, sizes->channels, &image) &&
                image < INT64_MAX / 4 && lk__mul_i64(count, image + 1, &bytes) && bytes < INT64_MAX / 4 &&
                files < INT64_MAX / 4;
    return fits ? (size_t)(bytes + files) : 0;
}

/* --- locking ------------------------------------------------------------------------------------------------------ */

/* flock goes with its process, so a lock is never left behind. */
static lk_status wait_for_lock(int fd, const char *path, char *problem)
{
    lk_status status = LK_OK;
    lk__doing before = lk__now_for_a_while(LK_DOING_OTHERS, "wait for another's decoding");
    while (status == LK_OK && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            status = refuse(problem, "%s: cannot be locked: %s", path, strerror(errno));
        else
            nanosleep(&(struct timespec){.tv_nsec = POLL_MILLISECONDS * 1000000L}, NULL);
    }
    lk__now_again(before);
    return status;
}

lk_status lk__packed_lock(lk__packed *pack, const char *folder, const char *name, char *problem)
{
    char made[PATH_MAX], path[PATH_MAX];
    *pack = (lk__packed){.lock = -1, .fd = -1};
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
    lk_status status = wait_for_lock(pack->lock, path, problem);
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

static void place(lk__samples *samples, const uint8_t *bytes)
{
    samples->images = bytes + PAGE;
    samples->labels = samples->images + samples->count * samples->channels * samples->height * samples->width;
}

/* Of a file that may be larger than memory. */
static uint64_t sum_of(const uint8_t *bytes, size_t size)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return XXH3_64bits(bytes, size);
    XXH3_64bits_reset(state);
    for (size_t done = 0; done < size; done += PIECE) {
        XXH3_64bits_update(state, bytes + done, size - done < PIECE ? size - done : PIECE);
        lk__heartbeat_beat();
    }
    uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return sum;
}

/* What stands in the file is believed when its sums are right. */
static lk_status check(const uint8_t *bytes, size_t size, const lk__packed_key *key, int64_t files,
                       lk__samples *samples)
{
    header h;
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
    if (body == 0 || size != PAGE + body || sum_of(bytes + PAGE, body) != h.body_sum)
        return LK_ERR_FORMAT;
    place(samples, bytes);
    return LK_OK;
}

static lk_status read_mapped(uint8_t *bytes, size_t size, const lk__packed_key *key, int64_t files,
                             lk__samples *samples, uint8_t *kept)
{
    lk_status status = check(bytes, size, key, files, samples);
    if (status != LK_OK) {
        *samples = (lk__samples){0};
        munmap(bytes, size);
        return status;
    }
    memcpy(kept, samples->labels + samples->count, (size_t)files);
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
    return read_mapped(bytes, size, key, files, samples, kept);
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

lk_status lk__packed_begin(lk__packed *pack, const lk__samples *sizes, int64_t files, uint8_t **images, char *problem)
{
    size_t body = body_size(sizes, files, files);
    if (body == 0)
        return refuse(problem, "%.300s: the samples exceed the address space", pack->path);
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

static void write_rest(lk__packed *pack, const lk__packed_key *key, int64_t files, const uint8_t *labels,
                       const uint8_t *kept, lk__samples *samples)
{
    place(samples, pack->bytes);
    uint8_t *end = pack->bytes + (samples->labels - pack->bytes);
    memcpy(end, labels, (size_t)samples->count);
    memcpy(end + samples->count, kept, (size_t)files);
    size_t body = body_size(samples, files, samples->count);
    header h = {
        .byte_order = BYTE_ORDER_MARK,
        .key = *key,
        .files = files,
        .count = samples->count,
        .channels = samples->channels,
        .height = samples->height,
        .width = samples->width,
        .body_sum = sum_of(pack->bytes + PAGE, body),
    };
    memcpy(h.magic, magic, sizeof magic);
    h.header_sum = XXH3_64bits(&h, offsetof(header, header_sum));
    memcpy(pack->bytes, &h, sizeof h);
}

static lk_status install(lk__packed *pack, size_t size, char *problem)
{
    if (msync(pack->bytes, size, MS_SYNC) != 0 || ftruncate(pack->fd, (off_t)size) != 0 || fsync(pack->fd) != 0)
        return refuse(problem, "%.300s: cannot be written: %s", pack->written, strerror(errno));
    if (rename(pack->written, pack->path) != 0)
        return refuse(problem, "%.200s: cannot be renamed to %.200s: %s", pack->written, pack->path, strerror(errno));
    char folder[PATH_MAX];
    memcpy(folder, pack->path, sizeof folder);
    *strrchr(folder, '/') = '\0';
    lk__cache_sync(folder);
    return LK_OK;
}

lk_status lk__packed_finish(lk__packed *pack, const lk__packed_key *key, int64_t files, const uint8_t *labels,
                            const uint8_t *kept, lk__samples *samples, char *problem)
{
    write_rest(pack, key, files, labels, kept, samples);
    lk_status status = install(pack, PAGE + body_size(samples, files, samples->count), problem);
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
