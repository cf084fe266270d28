/* Shared by the tests of this folder: good and bad IDX files, and what the log says. */
#pragma once

#include "base/folder_testing.h"
#include "base/status_testing.h"
#include "lockstep/data.h"
#include "lockstep/log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- bytes and files ---- */

typedef struct bytes {
    uint8_t *data;
    size_t size;
    size_t capacity;
} bytes;

static inline void append(bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = 2 * (b->size + size);
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void append_u32(bytes *b, uint32_t value)
{
    const uint8_t field[] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
    append(b, field, sizeof field);
}

static inline void drop(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

static inline void write_file(const char *path, const bytes *content)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (content->size)
        assert_int_equal(fwrite(content->data, 1, content->size, file), content->size);
    assert_int_equal(fclose(file), 0);
}

static inline bytes compressed(const bytes *content)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    bytes out = {.capacity = deflateBound(&stream, content->size) + 64};
    out.data = malloc(out.capacity);
    assert_non_null(out.data);
    stream.next_in = content->data;
    stream.avail_in = (uInt)content->size;
    stream.next_out = out.data;
    stream.avail_out = (uInt)out.capacity;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.size = stream.total_out;
    deflateEnd(&stream);
    return out;
}

static inline void write_gzip(const char *path, const bytes *content)
{
    bytes gzip = compressed(content);
    write_file(path, &gzip);
    drop(&gzip);
}

/* ---- IDX ---- */

/* The pixels and the label of a sample, which differ from those of its neighbors. */
static inline uint8_t pixel_of(int64_t sample, int64_t pixel)
{
    return (uint8_t)(sample * 31 + pixel * 7);
}

static inline uint8_t label_of(int64_t sample)
{
    return (uint8_t)(sample * 3 % 10);
}

static inline bytes idx_images(uint32_t count, uint32_t height, uint32_t width)
{
    bytes b = {0};
    append_u32(&b, 0x00000803);
    append_u32(&b, count);
    append_u32(&b, height);
    append_u32(&b, width);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < height * width; j++)
            append(&b, &(uint8_t){pixel_of(i, j)}, 1);
    return b;
}

static inline bytes idx_labels(uint32_t count)
{
    bytes b = {0};
    append_u32(&b, 0x00000801);
    append_u32(&b, count);
    for (uint32_t i = 0; i < count; i++)
        append(&b, &(uint8_t){label_of(i)}, 1);
    return b;
}

/* Writes both files; gzip-compressed if their names end in .gz. */
static inline void write_pair(const char *images, const char *labels, uint32_t count, uint32_t height, uint32_t width)
{
    bytes i = idx_images(count, height, width), l = idx_labels(count);
    size_t length = strlen(images);
    void (*write_one)(const char *, const bytes *) = strcmp(images + length - 3, ".gz") ? write_file : write_gzip;
    write_one(images, &i);
    write_one(labels, &l);
    drop(&i);
    drop(&l);
}

static inline lk_dataset *open_pair(uint32_t count, uint32_t height, uint32_t width)
{
    lk_dataset *dataset;
    write_pair(in_dir("images"), in_dir("labels"), count, height, width);
    if (lk_dataset_open_idx(in_dir("images"), in_dir("labels"), 10, 0, &dataset) != LK_OK)
        fail_msg("%s", lk_error_message());
    return dataset;
}

/* The same with channels: pixel j of a sample is element j of [C,H,W]. */
static inline lk_dataset *open_channels(uint32_t count, uint32_t channels, uint32_t height, uint32_t width)
{
    const uint32_t header[] = {0x00000804, count, channels, height, width};
    bytes images = {0}, labels = idx_labels(count);
    for (size_t i = 0; i < sizeof header / sizeof header[0]; i++)
        append_u32(&images, header[i]);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < channels * height * width; j++)
            append(&images, &(uint8_t){pixel_of(i, j)}, 1);
    write_file(in_dir("channels"), &images);
    write_file(in_dir("labels"), &labels);
    drop(&images);
    drop(&labels);
    lk_dataset *dataset;
    if (lk_dataset_open_idx(in_dir("channels"), in_dir("labels"), 10, 0, &dataset) != LK_OK)
        fail_msg("%s", lk_error_message());
    return dataset;
}

/* ---- pictures ---- */

static inline void append_chunk(bytes *b, const char *kind, const void *data, size_t size)
{
    append_u32(b, (uint32_t)size);
    size_t begin = b->size;
    append(b, kind, 4);
    append(b, data, size);
    append_u32(b, (uint32_t)crc32(0, b->data + begin, (uInt)(size + 4)));
}

/* A PNG file of pixels [height,width,channels] with 8 bits each. */
static inline bytes png_of(const uint8_t *pixels, uint32_t height, uint32_t width, int channels)
{
    bytes png = {0}, header = {0}, rows = {0};
    append(&png, "\x89PNG\r\n\x1a\n", 8);
    append_u32(&header, width);
    append_u32(&header, height);
    append(&header, (uint8_t[]){8, channels == 1 ? 0 : 2, 0, 0, 0}, 5);
    append_chunk(&png, "IHDR", header.data, header.size);
    for (uint32_t y = 0; y < height; y++) {
        append(&rows, "", 1);
        append(&rows, pixels + (size_t)y * width * (size_t)channels, (size_t)width * (size_t)channels);
    }
    uLongf size = compressBound(rows.size);
    uint8_t *packed = malloc(size);
    assert_non_null(packed);
    assert_int_equal(compress(packed, &size, rows.data, rows.size), Z_OK);
    append_chunk(&png, "IDAT", packed, size);
    append_chunk(&png, "IEND", "", 0);
    free(packed);
    drop(&header);
    drop(&rows);
    return png;
}

static inline bytes ppm_of(const uint8_t *pixels, uint32_t height, uint32_t width, int channels)
{
    char header[64];
    bytes ppm = {0};
    append(&ppm, header,
           (size_t)snprintf(header, sizeof header, "P%d\n%u %u\n255\n", channels == 1 ? 5 : 6, width, height));
    append(&ppm, pixels, (size_t)height * width * (size_t)channels);
    return ppm;
}

/* The lines that the library has logged since the last call of hear_nothing. */
static char heard[16384];

static inline void hear(void *user, lk_log_level level, const char *message)
{
    (void)user, (void)level;
    strncat(heard, message, sizeof heard - strlen(heard) - 2);
    strcat(heard, "\n");
}

static inline void hear_nothing(void)
{
    heard[0] = '\0';
    lk_log_set(hear, NULL, LK_LOG_INFO);
}

static inline void expect_heard(const char *text)
{
    if (!strstr(heard, text))
        fail_msg("'%s' does not say '%s'", heard, text);
}
