#include "data/convert.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "data/pictures/resize.h"
#include "lockstep/image.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- options ------------------------------------------------------------------------------------------------------ */

int lk__read_sizes(const char *text, int64_t size[3])
{
    int n = 0;
    for (const char *p = text; n < 3; p++) {
        char *end;
        long value = *p >= '1' && *p <= '9' ? strtol(p, &end, 10) : 0;
        if (value < 1 || value > LK_IMAGE_MAX_SIDE)
            return 0;
        size[n++] = value;
        if (*end == '\0')
            return n;
        if (*end != 'x')
            return 0;
        p = end;
    }
    return 0;
}

lk_status lk__parse_resize(const char *text, int64_t *height, int64_t *width)
{
    int64_t size[3] = {0};
    if (text && *text && (lk__read_sizes(text, size) != 2 || size[0] * size[1] > LK_IMAGE_MAX_PIXELS))
        LK_FAIL(LK_ERR_ARGUMENT,
                "--resize %s: must be HEIGHTxWIDTH, each from 1 to %d, and at most %" PRId64 " pixels in all", text,
                LK_IMAGE_MAX_SIDE, LK_IMAGE_MAX_PIXELS);
    *height = size[0];
    *width = size[1];
    return LK_OK;
}

lk_status lk__parse_shape(const char *text, int64_t *channels, int64_t *height, int64_t *width)
{
    int64_t size[3] = {0};
    int n = text && *text ? lk__read_sizes(text, size) : 3;
    if (n < 2)
        LK_FAIL(LK_ERR_ARGUMENT, "--image-shape %s: must be CHANNELSxHEIGHTxWIDTH or HEIGHTxWIDTH", text);
    *channels = n == 3 ? size[0] : 1;
    *height = size[n - 2];
    *width = size[n - 1];
    return LK_OK;
}

lk_status lk__check_data_opts(const lk_dataset_opts *opts)
{
    int64_t c, h, w;
    LK_TRY(lk__parse_resize(opts->resize, &h, &w));
    LK_TRY(lk__parse_shape(opts->shape, &c, &h, &w));
    if (opts->channels != 0 && opts->channels != 1 && opts->channels != 3)
        LK_FAIL(LK_ERR_ARGUMENT, "--channels %" PRId64 ": must be 1 (gray) or 3 (color)", opts->channels);
    if (!(opts->val_split >= 0 && opts->val_split < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "--val-split %g: must be at least 0 and below 1", opts->val_split);
    if (opts->threads < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "%d threads that decode: expected at least 0", opts->threads);
    return LK_OK;
}

lk_status lk__refuse_csv_opts(const lk_dataset_opts *opts, const char *name)
{
    bool has_shape = opts->shape && *opts->shape;
    if (has_shape || (opts->label_column && *opts->label_column))
        LK_FAIL(LK_ERR_ARGUMENT, "--%s %s: must be with CSV data, and %s is none",
                has_shape ? "image-shape" : "label-column", has_shape ? opts->shape : opts->label_column, name);
    return LK_OK;
}

/* --- conversion --------------------------------------------------------------------------------------------------- */

/* Converts [from_channels, pixels] to [to_channels, pixels]. */
static void convert_channels(const uint8_t *from, int64_t from_channels, int64_t pixels, int64_t to_channels,
                             uint8_t *to)
{
    if (from_channels == 3 && to_channels == 1) {
        for (int64_t i = 0; i < pixels; i++)
            to[i] = lk__gray(from[i], from[pixels + i], from[2 * pixels + i]);
        return;
    }
    for (int64_t c = 0; c < to_channels; c++)
        memcpy(to + c * pixels, from + (from_channels == 1 ? 0 : c * pixels), (size_t)pixels);
}

static lk_status convert_images(const lk_samples *from, int64_t count, lk_samples *to, uint8_t *planes)
{
    int64_t pixels = from->height * from->width, to_pixels = to->height * to->width;
    bool resized = from->height != to->height || from->width != to->width;
    for (int64_t i = 0; i < count; i++) {
        uint8_t *image = to->memory + i * to->channels * to_pixels;
        convert_channels(from->images + i * from->channels * pixels, from->channels, pixels, to->channels,
                         resized ? planes : image);
        for (int64_t c = 0; resized && c < to->channels; c++)
            LK_TRY(lk__resize(planes + c * pixels, from->height, from->width, 1, image + c * to_pixels, to->height,
                              to->width));
    }
    return LK_OK;
}

/* Converts `limit` images, but moves all labels: the classes come from the whole set. */
static lk_status convert_samples(lk_samples *samples, int64_t limit, lk_samples *made)
{
    int64_t count = limit > 0 ? lk__min(limit, samples->count) : samples->count;
    uint8_t *planes = lk__calloc((size_t)(samples->height * samples->width), (size_t)made->channels);
    lk_status status = planes ? lk__samples_allocate_images(made, count) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = convert_images(samples, count, made, planes);
    lk__free(planes);
    LK_TRY(status);
    made->count = samples->count;
    made->labels = samples->labels;
    samples->labels = NULL;
    return LK_OK;
}

lk_status lk__samples_convert(lk_samples *samples, const lk_dataset_opts *opts, const char *source)
{
    lk_samples made = {.channels = opts->channels ? opts->channels : samples->channels};
    LK_TRY(lk__parse_resize(opts->resize, &made.height, &made.width));
    if (!made.height) {
        made.height = samples->height;
        made.width = samples->width;
    }
    if (made.channels == samples->channels && made.height == samples->height && made.width == samples->width)
        return LK_OK;
    if (made.channels != samples->channels && samples->channels != 1 && samples->channels != 3)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--channels %" PRId64 ": %s has images of %" PRId64 " channels; only 1 and 3 are changed",
                made.channels, source, samples->channels);
    lk_status status = convert_samples(samples, opts->limit, &made);
    if (status != LK_OK) {
        lk__samples_free(&made);
        return status;
    }
    lk__samples_adopt(samples, &made);
    return LK_OK;
}
