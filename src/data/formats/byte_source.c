#include "data/formats/byte_source.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GZIP_ONLY = 16 + MAX_WBITS }; /* for inflateInit2: expect a gzip header, allow the largest window */

static lk_status LK_PRINTF(3, 4) byte_source_problem(lk_byte_source *source, lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(source->problem, sizeof source->problem, format, arguments);
    va_end(arguments);
    return status;
}

static lk_status byte_source_map_file(lk_byte_source *source, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return byte_source_problem(source, LK_ERR_IO, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return byte_source_problem(source, LK_ERR_IO, "is not a regular file");
    if ((uintmax_t)status.st_size > PTRDIFF_MAX)
        return byte_source_problem(source, LK_ERR_IO, "is larger than the address space: %jd bytes",
                                   (intmax_t)status.st_size);
    source->size = (size_t)status.st_size;
    if (source->size == 0)
        return LK_OK;
    void *bytes = mmap(NULL, source->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return byte_source_problem(source, LK_ERR_IO, "cannot be mapped into memory: %s", strerror(errno));
    source->bytes = bytes;
    return LK_OK;
}

static void *byte_source_zlib_alloc(void *opaque, uInt items, uInt size)
{
    (void)opaque;
    return lk__calloc(items, size);
}

static void byte_source_zlib_free(void *opaque, void *memory)
{
    (void)opaque;
    lk__free(memory);
}

static bool byte_source_has_gzip_magic(const uint8_t *bytes, size_t size)
{
    return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

static bool byte_source_has_suffix(const char *text, const char *suffix)
{
    size_t length = strlen(text), suffix_length = strlen(suffix);
    return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

static lk_status byte_source_detect_gzip(lk_byte_source *source, const char *path)
{
    source->gzip = byte_source_has_gzip_magic(source->bytes, source->size);
    if (source->gzip) {
        source->stream.zalloc = byte_source_zlib_alloc;
        source->stream.zfree = byte_source_zlib_free;
        if (inflateInit2(&source->stream, GZIP_ONLY) != Z_OK)
            return byte_source_problem(source, LK_ERR_MEMORY, "out of memory for decompression");
        source->stream.next_in = (z_const Bytef *)source->bytes;
        return LK_OK;
    }
    if (!byte_source_has_suffix(path, ".gz"))
        return LK_OK;
    if (source->size < 2)
        return byte_source_problem(source, LK_ERR_FORMAT, "truncated: %zu bytes, too few for gzip data", source->size);
    return byte_source_problem(source, LK_ERR_FORMAT, "is not gzip data: begins with bytes %02x %02x, expected 1f 8b",
                               source->bytes[0], source->bytes[1]);
}

lk_status lk__byte_source_open(const char *path, lk_byte_source *source)
{
    memset(source, 0, sizeof *source);
    /* O_NONBLOCK: opening a FIFO must not hang; byte_source_map_file refuses it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return byte_source_problem(source, LK_ERR_IO, "cannot be opened: %s", strerror(errno));
    lk_status status = byte_source_map_file(source, fd);
    close(fd);
    if (status == LK_OK)
        status = byte_source_detect_gzip(source, path);
    if (status != LK_OK)
        lk__byte_source_unmap(source->bytes, source->size);
    return status;
}

static size_t byte_source_consumed(const lk_byte_source *source)
{
    return (size_t)((const uint8_t *)source->stream.next_in - source->bytes);
}

/* zlib counts bytes in unsigned int, which may be too small for a file. */
static uInt byte_source_clamp_count(size_t count)
{
    return count > UINT_MAX ? UINT_MAX : (uInt)count;
}

/* A gzip member is followed by the end of the file, by another member (RFC 1952 allows several), or by garbage. */
static lk_status byte_source_end_member(lk_byte_source *source)
{
    size_t offset = byte_source_consumed(source);
    if (offset == source->size) {
        source->ended = true;
        return LK_OK;
    }
    if (!byte_source_has_gzip_magic(source->bytes + offset, source->size - offset))
        return byte_source_problem(source, LK_ERR_FORMAT, "gzip data end at offset %zu, but %zu more bytes follow",
                                   offset, source->size - offset);
    inflateReset(&source->stream);
    return LK_OK;
}

static lk_status byte_source_read_gzip(lk_byte_source *source, uint8_t *bytes, size_t count, size_t *got)
{
    z_stream *stream = &source->stream;
    while (*got < count && !source->ended) {
        uInt space = byte_source_clamp_count(count - *got);
        stream->avail_in = byte_source_clamp_count(source->size - byte_source_consumed(source));
        source->cut = stream->avail_in == 0;
        if (source->cut)
            return byte_source_problem(source, LK_ERR_FORMAT,
                                       "truncated: gzip data break off at offset %zu, after %zu decoded bytes",
                                       source->size, source->position);
        stream->next_out = bytes + *got;
        stream->avail_out = space;
        int result = inflate(stream, Z_NO_FLUSH);
        *got += space - stream->avail_out;
        source->position += space - stream->avail_out;
        if (result == Z_MEM_ERROR)
            return byte_source_problem(source, LK_ERR_MEMORY, "out of memory for decompression");
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return byte_source_problem(source, LK_ERR_FORMAT, "damaged gzip data at offset %zu: %s",
                                       byte_source_consumed(source),
                                       stream->msg ? stream->msg : "a preset dictionary is asked for");
        if (result == Z_STREAM_END) {
            lk_status status = byte_source_end_member(source);
            if (status != LK_OK)
                return status;
        }
    }
    return LK_OK;
}

lk_status lk__byte_source_read(lk_byte_source *source, void *bytes, size_t count, size_t *got)
{
    *got = 0;
    if (source->gzip)
        return byte_source_read_gzip(source, bytes, count, got);
    size_t left = source->size - source->position;
    *got = count < left ? count : left;
    if (*got)
        memcpy(bytes, source->bytes + source->position, *got);
    source->position += *got;
    return LK_OK;
}

void lk__byte_source_close_keep_mapping(lk_byte_source *source)
{
    if (source->gzip)
        inflateEnd(&source->stream);
}

void lk__byte_source_close(lk_byte_source *source)
{
    lk__byte_source_close_keep_mapping(source);
    lk__byte_source_unmap(source->bytes, source->size);
}

void lk__byte_source_unmap(const uint8_t *bytes, size_t size)
{
    if (bytes)
        munmap((void *)(uintptr_t)bytes, size);
}
