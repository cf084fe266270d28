#include "data/pictures/picture.h"

#include "base/mem.h"
#include "base/whole_io.h"
#include "data/pictures/resize.h"
#include "data/pictures/weighted_semaphore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 512 << 20, LARGE_FILE_BYTES = 16 << 20, BEGINNING = 64 << 10, LARGE_PIXELS = 1 << 22 };

/* Limits for all decoding threads together: at any time their large files take no more memory than one file of the
 * largest size, and the same holds for their large pictures. */
static lk_weighted_semaphore large_files = LK__SEMAPHORE(MAX_FILE_BYTES),
                             large_pictures = LK__SEMAPHORE(LK_IMAGE_MAX_PIXELS);

lk_status lk__encoded_problem(lk_encoded *encoded, lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(encoded->problem, sizeof encoded->problem, format, arguments);
    va_end(arguments);
    return status;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void picture_drop_large_file(lk_picture_memory *memory)
{
    if (!memory->large_file)
        return;
    lk__free(memory->file);
    memory->file = NULL;
    memory->file_bytes = 0;
    lk__semaphore_release(&large_files, memory->large_file);
    memory->large_file = 0;
}

void lk__picture_memory_free(lk_picture_memory *memory)
{
    picture_drop_large_file(memory);
    lk__free(memory->file);
    lk__free(memory->decoded);
    lk__free(memory->resized);
    *memory = (lk_picture_memory){0};
}

/* Makes the buffer at least `bytes` large; its content is lost. */
static lk_status picture_reserve_buffer(lk_encoded *encoded, uint8_t **buffer, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity)
        return LK_OK;
    lk__free(*buffer);
    *capacity = 0;
    *buffer = lk__calloc(bytes, 1);
    if (!*buffer)
        return lk__encoded_problem(encoded, LK_ERR_MEMORY, "out of memory");
    *capacity = bytes;
    return LK_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static lk_status picture_read_bytes(int fd, lk_encoded *encoded, uint8_t *buffer, size_t bytes)
{
    ssize_t got = lk__read_whole(fd, buffer, bytes);
    if (got < 0)
        return lk__encoded_problem(encoded, LK_ERR_IO, "cannot be read: %s", strerror(errno));
    encoded->bytes = buffer;
    encoded->size = (size_t)got;
    return LK_OK;
}

static lk_status picture_read_open_file(int fd, size_t most, lk_picture_memory *memory, lk_encoded *encoded,
                                        bool *whole)
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
        lk__semaphore_acquire(&large_files, (int64_t)bytes);
        memory->large_file = (int64_t)bytes;
    }
    lk_status reserved = picture_reserve_buffer(encoded, &memory->file, &memory->file_bytes, bytes ? bytes : 1);
    return reserved == LK_OK ? picture_read_bytes(fd, encoded, memory->file, bytes) : reserved;
}

static lk_status picture_read_at_most(const char *path, size_t most, lk_picture_memory *memory, lk_encoded *encoded,
                                      bool *whole)
{
    *whole = true;
    *encoded = (lk_encoded){0};
    picture_drop_large_file(memory);
    /* O_NONBLOCK: opening a FIFO must not hang; picture_read_open_file refuses it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lk__encoded_problem(encoded, LK_ERR_IO, "cannot be opened: %s", strerror(errno));
    lk_status status = picture_read_open_file(fd, most, memory, encoded, whole);
    close(fd);
    return status;
}

lk_status lk__picture_read_file(const char *path, lk_picture_memory *memory, lk_encoded *encoded)
{
    bool whole;
    return picture_read_at_most(path, MAX_FILE_BYTES, memory, encoded, &whole);
}

/* Reads the beginning of the file; if the header does not end there, the whole file. */
lk_status lk__picture_read_header(const char *path, lk_picture_memory *memory, lk_encoded *encoded, lk_image *image)
{
    bool whole = false;
    lk_status status = LK_ERR_FORMAT;
    for (size_t most = BEGINNING; status == LK_ERR_FORMAT && !whole; most = MAX_FILE_BYTES) {
        status = picture_read_at_most(path, most, memory, encoded, &whole);
        if (status == LK_OK)
            status = lk__picture_examine(encoded, image);
    }
    return status;
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

static const lk_codec *const codecs[] = {&lk__png_codec, &lk__jpeg_codec, &lk__pnm_codec};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

bool lk_image_is_named(const char *path)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".pnm"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

const char *lk_image_formats(void)
{
    bool png = !lk__png_codec.lacks, jpeg = !lk__jpeg_codec.lacks;
    return png && jpeg ? "PNG, JPEG, PGM, PPM" : png ? "PNG, PGM, PPM" : jpeg ? "JPEG, PGM, PPM" : "PGM, PPM";
}

const lk_codec *lk__codec_of(lk_encoded *encoded)
{
    for (int i = 0; i < CODECS; i++) {
        const lk_codec *codec = codecs[i];
        if (!codec->recognizes(encoded->bytes, encoded->size))
            continue;
        if (!codec->lacks)
            return codec;
        lk__encoded_problem(encoded, LK_ERR_FORMAT, "is %s, and this build has no %s", codec->name, codec->lacks);
        return NULL;
    }
    if (encoded->size == 0)
        lk__encoded_problem(encoded, LK_ERR_FORMAT, "is empty: expected one of %s", lk_image_formats());
    else if (encoded->size == 1)
        lk__encoded_problem(encoded, LK_ERR_FORMAT, "is no picture: one byte, %02x, expected one of %s",
                            encoded->bytes[0], lk_image_formats());
    else
        lk__encoded_problem(encoded, LK_ERR_FORMAT,
                            "is no picture of a known format: begins with bytes %02x %02x, expected one of %s",
                            encoded->bytes[0], encoded->bytes[1], lk_image_formats());
    return NULL;
}

/* --- decoding ----------------------------------------------------------------------------------------------------- */

static bool picture_is_too_large(const lk_image *image)
{
    int64_t pixels;
    return image->height > LK_IMAGE_MAX_SIDE || image->width > LK_IMAGE_MAX_SIDE ||
           !lk__mul_i64(image->height, image->width, &pixels) || pixels > LK_IMAGE_MAX_PIXELS;
}

lk_status lk__picture_examine(lk_encoded *encoded, lk_image *image)
{
    *image = (lk_image){0};
    const lk_codec *codec = lk__codec_of(encoded);
    if (!codec)
        return LK_ERR_FORMAT;
    lk_status status = codec->read(encoded, image, NULL);
    if (status != LK_OK)
        return status;
    if (image->height < 1 || image->width < 1)
        return lk__encoded_problem(encoded, LK_ERR_FORMAT, "%s of %lldx%lld pixels: expected at least one", codec->name,
                                   (long long)image->height, (long long)image->width);
    if (picture_is_too_large(image))
        return lk__encoded_problem(
            encoded, LK_ERR_FORMAT, "%s of %lldx%lld pixels: expected at most %lld in all and %d a side", codec->name,
            (long long)image->height, (long long)image->width, (long long)LK_IMAGE_MAX_PIXELS, LK_IMAGE_MAX_SIDE);
    return LK_OK;
}

/* Converts [pixels,from] to [pixels,to], in place. */
static void picture_change_channels(uint8_t *values, int64_t pixels, int64_t from, int64_t to)
{
    if (from == 3 && to == 1)
        for (int64_t i = 0; i < pixels; i++)
            values[i] = lk__gray(values[3 * i], values[3 * i + 1], values[3 * i + 2]);
    if (from == 1 && to == 3)
        for (int64_t i = pixels - 1; i >= 0; i--)
            values[3 * i] = values[3 * i + 1] = values[3 * i + 2] = values[i];
}

/* Transposes [H,W,C] to [C,H,W]. */
static void picture_split_channels(const uint8_t *from, int64_t pixels, int64_t channels, uint8_t *to)
{
    if (channels == 1) {
        memcpy(to, from, (size_t)pixels);
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t c = 0; c < channels; c++)
            to[c * pixels + i] = from[i * channels + c];
}

static lk_status picture_resize(lk_encoded *encoded, const lk_image *file, const lk_image *wanted,
                                lk_picture_memory *memory)
{
    if (file->height * wanted->width > LK_IMAGE_MAX_PIXELS)
        return lk__encoded_problem(encoded, LK_ERR_FORMAT, "of %lldx%lld pixels is too high to become %lld wide",
                                   (long long)file->height, (long long)file->width, (long long)wanted->width);
    size_t bytes = (size_t)(wanted->height * wanted->width * wanted->channels);
    lk_status status = picture_reserve_buffer(encoded, &memory->resized, &memory->resized_bytes, bytes);
    if (status == LK_OK)
        status = lk__resize(memory->decoded, file->height, file->width, wanted->channels, memory->resized,
                            wanted->height, wanted->width);
    return status == LK_OK ? LK_OK : lk__encoded_problem(encoded, status, "out of memory");
}

static lk_status picture_decode(lk_encoded *encoded, const lk_image *file, const lk_image *wanted,
                                lk_picture_memory *memory, uint8_t *pixels)
{
    int64_t count = file->height * file->width;
    int64_t channels = file->channels > wanted->channels ? file->channels : wanted->channels;
    lk_status status =
        picture_reserve_buffer(encoded, &memory->decoded, &memory->decoded_bytes, (size_t)(count * channels));
    if (status == LK_OK)
        status = lk__codec_of(encoded)->read(encoded, &(lk_image){0}, memory->decoded);
    if (status != LK_OK)
        return status;
    picture_change_channels(memory->decoded, count, file->channels, wanted->channels);
    bool as_it_is = file->height == wanted->height && file->width == wanted->width;
    if (!as_it_is)
        status = picture_resize(encoded, file, wanted, memory);
    if (status == LK_OK)
        picture_split_channels(as_it_is ? memory->decoded : memory->resized, wanted->height * wanted->width,
                               wanted->channels, pixels);
    return status;
}

lk_status lk__picture_decode(lk_encoded *encoded, const lk_image *wanted, lk_picture_memory *memory, uint8_t *pixels)
{
    lk_image file;
    lk_status status = lk__picture_examine(encoded, &file);
    if (status != LK_OK)
        return status;
    int64_t count = file.height * file.width;
    if (count <= LARGE_PIXELS)
        return picture_decode(encoded, &file, wanted, memory, pixels);
    lk__semaphore_acquire(&large_pictures, count);
    status = picture_decode(encoded, &file, wanted, memory, pixels);
    lk__free(memory->decoded);
    memory->decoded = NULL;
    memory->decoded_bytes = 0;
    lk__semaphore_release(&large_pictures, count);
    return status;
}
