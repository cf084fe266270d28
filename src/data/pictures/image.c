/* The public functions for single pictures: they check options, and set the thread's error message. */
#include "base/mem.h"
#include "base/status.h"
#include "data/pictures/picture.h"

#include <inttypes.h>

static lk_status image_check_opts(const lk_image_opts *opts)
{
    if (opts->channels != 0 && opts->channels != 1 && opts->channels != 3)
        LK_FAIL(LK_ERR_ARGUMENT, "%" PRId64 " channels of a picture: expected 1, 3, or 0 for what the file has",
                opts->channels);
    if ((opts->height == 0) != (opts->width == 0) || opts->height < 0 || opts->width < 0 ||
        opts->height > LK_IMAGE_MAX_SIDE || opts->width > LK_IMAGE_MAX_SIDE ||
        opts->height * opts->width > LK_IMAGE_MAX_PIXELS)
        LK_FAIL(LK_ERR_ARGUMENT,
                "a picture resized to %" PRId64 "x%" PRId64 ": expected 1 to %d, at most %" PRId64
                " pixels in all, or 0x0",
                opts->height, opts->width, LK_IMAGE_MAX_SIDE, LK_IMAGE_MAX_PIXELS);
    return LK_OK;
}

static lk_status image_decode(lk_encoded *encoded, const lk_image_opts *opts, lk_picture_memory *memory,
                              lk_image *image)
{
    lk_status status = lk__picture_examine(encoded, image);
    if (status != LK_OK)
        return status;
    if (opts->channels)
        image->channels = opts->channels;
    if (opts->height) {
        image->height = opts->height;
        image->width = opts->width;
    }
    image->pixels = lk__calloc((size_t)(image->height * image->width), (size_t)image->channels);
    if (!image->pixels)
        return lk__encoded_problem(encoded, LK_ERR_MEMORY, "out of memory");
    return lk__picture_decode(encoded, image, memory, image->pixels);
}

static lk_status image_decode_named(lk_encoded *encoded, const char *name, const lk_image_opts *opts,
                                    lk_picture_memory *memory, lk_image *image)
{
    static const lk_image_opts as_it_is;
    lk_status status = image_decode(encoded, opts ? opts : &as_it_is, memory, image);
    if (status == LK_OK)
        return LK_OK;
    lk_image_free(image);
    LK_FAIL(status, "%s: %s", name, encoded->problem);
}

lk_status lk_image_decode(const void *bytes, size_t size, const char *name, const lk_image_opts *opts, lk_image *image)
{
    *image = (lk_image){0};
    if (opts)
        LK_TRY(image_check_opts(opts));
    lk_encoded encoded = {.bytes = bytes, .size = size};
    lk_picture_memory memory = {0};
    lk_status status = image_decode_named(&encoded, name, opts, &memory, image);
    lk__picture_memory_free(&memory);
    return status;
}

lk_status lk_image_read(const char *path, const lk_image_opts *opts, lk_image *image)
{
    *image = (lk_image){0};
    if (opts)
        LK_TRY(image_check_opts(opts));
    lk_encoded encoded;
    lk_picture_memory memory = {0};
    lk_status status = lk__picture_read_file(path, &memory, &encoded);
    if (status == LK_OK)
        status = image_decode_named(&encoded, path, opts, &memory, image);
    else
        lk__fail(status, "%s: %s", path, encoded.problem);
    lk__picture_memory_free(&memory);
    return status;
}

lk_status lk_image_read_header(const char *path, lk_image *image)
{
    *image = (lk_image){0};
    lk_encoded encoded;
    lk_picture_memory memory = {0};
    lk_status status = lk__picture_read_header(path, &memory, &encoded, image);
    lk__picture_memory_free(&memory);
    if (status != LK_OK)
        LK_FAIL(status, "%s: %s", path, encoded.problem);
    return LK_OK;
}

void lk_image_free(lk_image *image)
{
    lk__free(image->pixels);
    *image = (lk_image){0};
}
