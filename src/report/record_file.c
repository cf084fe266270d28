#include "report/record_file.h"

#include "base/minmax.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static lk_status record_cannot_be_read(const char *path, int error)
{
    LK_FAIL(error == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s", path, strerror(error));
}

static lk_status record_is_too_large(const char *path, size_t most)
{
    LK_FAIL(LK_ERR_FORMAT, "%s: has more than %zu bytes", path, most);
}

lk_status lk__record_load(const char *path, size_t most, lk_bytes *text)
{
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) /* reading a pipe could block */
        LK_FAIL(LK_ERR_IO, "%s: is no file", path);
    int error = lk__bytes_read_file(text, path, most);
    LK_TRY(lk__bytes_status(text));
    if (error)
        return record_cannot_be_read(path, error);
    return text->size > most ? record_is_too_large(path, most) : LK_OK;
}

lk_status lk__record_parse(const char *path, long long number, const char *text, size_t length, json_t **object)
{
    json_error_t error;
    *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!*object && number > 0)
        LK_FAIL(LK_ERR_FORMAT, "%s:%lld: is not JSON: %.80s", path, number, error.text);
    if (!*object)
        LK_FAIL(LK_ERR_FORMAT, "%s:%d: is not JSON: %.80s", path, error.line, error.text);
    return LK_OK;
}

/* --- files that grow ---------------------------------------------------------------------------------------------- */

/* Appends the bytes from `at` to the end. Returns 0 or an errno. */
static int record_read_from(int fd, int64_t at, lk_bytes *text)
{
    unsigned char piece[1 << 16];
    for (ssize_t got; (got = pread(fd, piece, sizeof piece, at)) != 0; at += got) {
        if (got < 0 && errno != EINTR)
            return errno;
        got = lk__max(got, 0);
        lk__bytes_put(text, piece, (size_t)got);
        if (text->failed || text->size > LK_RECORD_MOST)
            break;
    }
    return 0;
}

/* Gives the bytes behind the tail, and before them those that it has seen. Moves the tail to the beginning if they are
 * others. */
static lk_status record_read_tail(lk_record_tail *tail, const char *path, int fd, lk_bytes *text, size_t *begin)
{
    struct stat about;
    size_t seen = (size_t)lk__min(tail->offset, LK_RECORD_SEEN);
    if (fstat(fd, &about) != 0)
        return record_cannot_be_read(path, errno);
    if (!S_ISREG(about.st_mode))
        LK_FAIL(LK_ERR_IO, "%s: is no file", path);
    if (about.st_size > LK_RECORD_MOST)
        return record_is_too_large(path, LK_RECORD_MOST);
    int error = record_read_from(fd, tail->offset - (int64_t)seen, text);
    LK_TRY(lk__bytes_status(text));
    if (!error && (tail->device != about.st_dev || tail->inode != about.st_ino || text->size < seen ||
                   (seen > 0 && memcmp(text->data, tail->seen, seen) != 0))) {
        *tail = (lk_record_tail){.device = about.st_dev, .inode = about.st_ino};
        lk__bytes_clear(text);
        seen = 0;
        error = record_read_from(fd, 0, text);
    }
    LK_TRY(lk__bytes_status(text));
    *begin = seen;
    return error ? record_cannot_be_read(path, error) : LK_OK;
}

static lk_status record_take_lines(lk_record_tail *tail, const lk_bytes *text, size_t begin,
                                   const lk_record_reader *reader)
{
    lk_status status = LK_OK;
    size_t at = begin, size;
    for (const unsigned char *stop;
         status == LK_OK && at < text->size && (stop = memchr(text->data + at, '\n', text->size - at));) {
        size = (size_t)(stop - (text->data + at));
        status = reader->take(reader->user, (const char *)text->data + at, size, tail->lines + 1);
        if (status != LK_OK)
            break;
        at += size + 1;
        tail->lines++;
    }
    tail->offset += (int64_t)(at - begin);
    size = (size_t)lk__min(tail->offset, LK_RECORD_SEEN);
    if (size > 0)
        memcpy(tail->seen, text->data + at - size, size);
    return status;
}

lk_status lk__record_follow(lk_record_tail *tail, const char *path, const lk_record_reader *reader)
{
    lk_bytes text = {0};
    size_t begin;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return record_cannot_be_read(path, errno);
    lk_status status = record_read_tail(tail, path, fd, &text, &begin);
    close(fd);
    if (status == LK_OK && tail->offset == 0)
        reader->restart(reader->user);
    if (status == LK_OK)
        status = record_take_lines(tail, &text, begin, reader);
    lk__bytes_free(&text);
    return status;
}
