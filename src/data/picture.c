#include "data/picture.h"

#include "base/mem.h"
#include "data/gate.h"
#include "data/resize.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 512 << 20, LARGE_FILE_BYTES = 16 << 20, BEGINNING = 64 << 10, LARGE_PIXELS = 1 << 22 };

/* However many threads there are, what is large takes no more memory than the largest alone. */
static lk__gate large_files = LK__GATE(MAX_FILE_BYTES), large_pictures = LK__GATE(LK_IMAGE_MAX_PIXELS);

lk_status lk__encoded_problem(lk__encoded *encoded, lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(encoded->problem, sizeof encoded->problem, format, arguments);
    va_end(arguments);
    return status;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void drop_large_file(lk__picture_memory *memory)
{
    if (!memory->large_file)
        return;
    lk__free(memory->file);
    memory->file = NULL;
    memory->file_bytes = 0;
    lk__gate_leave(&large_files, memory->large_file);
    memory->large_file = 0;
}

void lk__picture_memory_free(lk__picture_memory *memory)
{
    drop_large_file(memory);
    lk__free(memory->file);
    lk__free(memory->decoded);
    lk__free(memory->resized);
    *memory = (lk__picture_memory){0};
}

static lk_status provide(lk__encoded *encoded, uint8_t **buffer, size_t *there, size_t bytes)
{
    if (bytes <= *there)
        return LK_OK;
    lk__free(*buffer);
    *there = 0;
    *buffer = lk__calloc(bytes, 1);
    if (!*buffer)
        return lk__encoded_problem(encoded, LK_ERR_MEMORY, "out of memory");
    *there = bytes;
    return LK_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static lk_status read_all(int fd, lk__encoded *encoded, uint8_t *buffer, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = read(fd, buffer + have, bytes - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lk__encoded_problem(encoded, LK_ERR_IO, "cannot be read: %s", strerror(errno));
        if (got == 0)
            break;
        have += (size_t)got;
    }
    encoded->bytes = buffer;
    encoded->size = have;
    return LK_OK;
}

static lk_status read_open_file(int fd, size_t most, lk__picture_memory *memory, lk__encoded *encoded, bool *whole)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return lk__encoded_problem(encoded, LK_ERR_IO, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return lk__encoded_problem(encoded, LK_ERR_IO, "is not a regular file");
    if (status.st_size > MAX_FILE_BYTES)
        return lk__encoded_problem(encoded, LK_ERR_FORMAT,
                                   "is a file of %lld bytes, more than the %d that a picture may have",
                                   (long long)status.st_size, MAX_FILE_BYTES);
    *whole = (size_t)status.st_size <= most;
    size_t bytes = *whole ? (size_t)status.st_size : most;
    if (bytes > LARGE_FILE_BYTES) {
        lk__gate_enter(&large_files, (int64_t)bytes);
        memory->large_file = (int64_t)bytes;
    }
    lk_status provided = provide(encoded, &memory->file, &memory->file_bytes, bytes ? bytes : 1);
    return provided == LK_OK ? read_all(fd, encoded, memory->file, bytes) : provided;
}

static lk_status read_path(const char *path, size_t most, lk__picture_memory *memory, lk__encoded *encoded, bool *whole)
{
    *whole = true;
    *encoded = (lk__encoded){0};
    drop_large_file(memory);
    /* Not to hang on a FIFO, which is refused a moment later. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lk__encoded_problem(encoded, LK_ERR_IO, "cannot be opened: %s", strerror(errno));
    lk_status status = read_open_file(fd, most, memory, encoded, whole);
    close(fd);
    return status;
}

lk_status lk__picture_read_file(const char *path, lk__picture_memory *memory, lk__encoded *encoded)
{
    bool whole;
    return read_path(path, MAX_FILE_BYTES, memory, encoded, &whole);
}

/* A header that does not end where the beginning does is looked for in all of the file. */
lk_status lk__picture_read_header(const char *path, lk__picture_memory *memory, lk__encoded *encoded, lk_image *image)
{
    bool whole = false;
    lk_status status = LK_ERR_FORMAT;
    for (size_t most = BEGINNING; status == LK_ERR_FORMAT && !whole; most = MAX_FILE_BYTES) {
        status = read_path(path, most, memory, encoded, &whole);
        if (status == LK_OK)
            status = lk__picture_examine(encoded, image);
    }
    return status;
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

static const lk__codec *const codecs[] = {&lk__png_codec, &lk__jpeg_codec, &lk__pnm_codec};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

static const char *formats(void)
{
    bool png = !lk__png_codec.lacks, jpeg = !lk__jpeg_codec.lacks;
    return png && jpeg ? "PNG, JPEG, PGM, PPM" : png ? "PNG, PGM, PPM" : jpeg ? "JPEG, PGM, PPM" : "PGM, PPM";
}

const char *lk_image_formats(void)
{
    return formats();
}

const lk__codec *lk__codec_of(lk__encoded *encoded)
{
    for (int i = 0; i < CODECS; i++) {
        const lk__codec *codec = codecs[i];
        if (!codec->recognises(encoded->bytes, encoded->size))
            continue;
        if (!codec->lacks)
            return codec;
        lk__encoded_problem(encoded, LK_ERR_FORMAT, "is %s, and this build has no %s", codec->name, codec->lacks);
        return NULL;
    }
    if (encoded->size == 0)
        lk__encoded_problem(encoded, LK_ERR_FORMAT, "is empty: expected one of %s", formats());
    else if (encoded->size == 1)
        lk__encoded_problem(encoded, LK_ERR_FORMAT, "is no picture: one byte, %02x, expected one of %s",
                            encoded->bytes[0], formats());
    else
        lk__encoded_problem(encoded, LK_ERR_FORMAT,
                            "is no picture of a known format: begins with bytes %02x %02x, expected one of %s",
                            encoded->bytes[0], encoded->bytes[1], formats());
    return NULL;
}

/* --- decoding ----------------------------------------------------------------------------------------------------- */

static bool is_too_large(const lk_image *image)
{
    int64_t pixels;
    return image->height > LK_IMAGE_MAX_FILE_SIDE || image->width > LK_IMAGE_MAX_FILE_SIDE ||
           !lk__mul_i64(image->height, image->width, &pixels) || pixels > LK_IMAGE_MAX_PIXELS;
}

lk_status lk__picture_examine(lk__encoded *encoded, lk_image *image)
{
    *image = (lk_image){0};
    const lk__codec *codec = lk__codec_of(encoded);
    if (!codec)
        return LK_ERR_FORMAT;
    lk_status status = codec->examine(encoded, image);
    if (status != LK_OK)
        return status;
    if (image->height < 1 || image->width < 1)
        return lk__encoded_problem(encoded, LK_ERR_FORMAT, "%s of %lldx%lld pixels: expected at least one", codec->name,
                                   (long long)image->height, (long long)image->width);
    if (is_too_large(image))
        return lk__encoded_problem(
            encoded, LK_ERR_FORMAT, "%s of %lldx%lld pixels: expected at most %lld in all and %d a side", codec->name,
            (long long)image->height, (long long)image->width, (long long)LK_IMAGE_MAX_PIXELS, LK_IMAGE_MAX_FILE_SIDE);
    return LK_OK;
}

/* [pixels,from] to [pixels,to], in place. Grey is ITU-R 601's, in 16 bits behind the point, as elsewhere. */
static void change_channels(uint8_t *values, int64_t pixels, int64_t from, int64_t to)
{
    if (from == 3 && to == 1)
        for (int64_t i = 0; i < pixels; i++) {
            const uint8_t *p = values + 3 * i;
            values[i] = (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 0x8000) >> 16);
        }
    if (from == 1 && to == 3)
        for (int64_t i = pixels - 1; i >= 0; i--)
            values[3 * i] = values[3 * i + 1] = values[3 * i + 2] = values[i];
}

/* [H,W,C] to [C,H,W] */
static void spread_channels(const uint8_t *from, int64_t pixels, int64_t channels, uint8_t *to)
{
    if (channels == 1) {
        memcpy(to, from, (size_t)pixels);
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t c = 0; c < channels; c++)
            to[c * pixels + i] = from[i * channels + c];
}

static lk_status resize(lk__encoded *encoded, const lk_image *file, const lk_image *wanted, lk__picture_memory *memory)
{
    if (file->height * wanted->width > LK_IMAGE_MAX_PIXELS)
        return lk__encoded_problem(encoded, LK_ERR_FORMAT, "of %lldx%lld pixels is too high to become %lld wide",
                                   (long long)file->height, (long long)file->width, (long long)wanted->width);
    size_t bytes = (size_t)(wanted->height * wanted->width * wanted->channels);
    lk_status status = provide(encoded, &memory->resized, &memory->resized_bytes, bytes);
    if (status == LK_OK)
        status = lk__resize(memory->decoded, file->height, file->width, wanted->channels, memory->resized,
                            wanted->height, wanted->width);
    return status == LK_OK ? LK_OK : lk__encoded_problem(encoded, status, "out of memory");
}

static lk_status decode_one(lk__encoded *encoded, const lk_image *file, const lk_image *wanted,
                            lk__picture_memory *memory, uint8_t *pixels)
{
    int64_t count = file->height * file->width;
    int64_t channels = file->channels > wanted->channels ? file->channels : wanted->channels;
    lk_status status = provide(encoded, &memory->decoded, &memory->decoded_bytes, (size_t)(count * channels));
    if (status == LK_OK)
        status = lk__codec_of(encoded)->decode(encoded, file, memory->decoded);
    if (status != LK_OK)
        return status;
    change_channels(memory->decoded, count, file->channels, wanted->channels);
    bool as_it_is = file->height == wanted->height && file->width == wanted->width;
    if (!as_it_is)
        status = resize(encoded, file, wanted, memory);
    if (status == LK_OK)
        spread_channels(as_it_is ? memory->decoded : memory->resized, wanted->height * wanted->width, wanted->channels,
                        pixels);
    return status;
}

lk_status lk__picture_decode(lk__encoded *encoded, const lk_image *wanted, lk__picture_memory *memory, uint8_t *pixels)
{
    lk_image file;
    lk_status status = lk__picture_examine(encoded, &file);
    if (status != LK_OK)
        return status;
    int64_t count = file.height * file.width;
    if (count <= LARGE_PIXELS)
        return decode_one(encoded, &file, wanted, memory, pixels);
    lk__gate_enter(&large_pictures, count);
    status = decode_one(encoded, &file, wanted, memory, pixels);
    lk__free(memory->decoded);
    memory->decoded = NULL;
    memory->decoded_bytes = 0;
    lk__gate_leave(&large_pictures, count);
    return status;
}
