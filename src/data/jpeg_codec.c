/* JPEG by libjpeg: the only file that knows it. */
#include "data/codec.h"

#include <stdio.h>
#include <string.h>

static bool recognises(const uint8_t *bytes, size_t size)
{
    return size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0;
}

#ifdef LK_HAVE_JPEG

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>

/* A progressive picture may repeat passes over all of it as often as its file is long. Real ones have about ten. */
enum { MAX_SCANS = 200 };

/* What lives across the longjmp out of libjpeg. The first two are found by a cast from what libjpeg hands over. */
typedef struct reading {
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    lk__encoded *encoded;
    lk_status status;
    jmp_buf leave;
} reading;

static void stop(j_common_ptr jpeg)
{
    reading *r = (reading *)jpeg->err;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    bool memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    r->status = memory ? LK_ERR_MEMORY : LK_ERR_FORMAT;
    bool cut = jpeg->err->msg_code == JWRN_JPEG_EOF || jpeg->err->msg_code == JERR_INPUT_EOF;
    lk__encoded_problem(r->encoded, r->status, "%sJPEG data: %s", memory ? "" : cut ? "truncated " : "damaged ", text);
    longjmp(r->leave, 1);
}

/* libjpeg fills up with grey what is missing, and only warns. Other warnings are of no harm. */
static void warn(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_ARITH_BAD_CODE || code == JWRN_BOGUS_PROGRESSION))
        stop(jpeg);
}

static void count_scans(j_common_ptr jpeg)
{
    reading *r = (reading *)jpeg->err;
    if (r->jpeg.input_scan_number <= MAX_SCANS)
        return;
    r->status = lk__encoded_problem(r->encoded, LK_ERR_FORMAT, "JPEG data of more than %d passes", MAX_SCANS);
    longjmp(r->leave, 1);
}

static void read_header(reading *r, lk_image *image)
{
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = count_scans;
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, r->encoded->bytes, r->encoded->size);
    jpeg_read_header(&r->jpeg, TRUE);
    image->channels = r->jpeg.num_components == 1 ? 1 : 3;
    image->height = r->jpeg.image_height;
    image->width = r->jpeg.image_width;
}

/* a * b / 255, rounded. */
static int scaled(int a, int b)
{
    int product = a * b + 128;
    return (product + (product >> 8)) >> 8;
}

/* Inks are stored as what they leave of the light, by Adobe's convention, which everybody follows. As Pillow mixes
 * them. */
static void mix_inks(const uint8_t *cmyk, int64_t width, uint8_t *rgb)
{
    for (int64_t x = 0; x < width; x++) {
        int light = cmyk[4 * x + 3];
        for (int c = 0; c < 3; c++)
            rgb[3 * x + c] = (uint8_t)(light - scaled(255 - cmyk[4 * x + c], light));
    }
}

static void read_pixels(reading *r, const lk_image *image, uint8_t *pixels)
{
    bool inks = r->jpeg.num_components == 4;
    JSAMPARRAY line = NULL; /* libjpeg's own, until the end of the file */
    r->jpeg.out_color_space = image->channels == 1 ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    r->jpeg.dct_method = JDCT_ISLOW; /* the same bits with and without vectors */
    r->jpeg.do_fancy_upsampling = TRUE;
    jpeg_start_decompress(&r->jpeg);
    if (inks)
        line = r->jpeg.mem->alloc_sarray((j_common_ptr)&r->jpeg, JPOOL_IMAGE, 4 * r->jpeg.output_width, 1);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW row = pixels + (int64_t)r->jpeg.output_scanline * image->width * image->channels;
        jpeg_read_scanlines(&r->jpeg, inks ? line : &row, 1);
        if (inks)
            mix_inks(*line, image->width, row);
    }
    jpeg_finish_decompress(&r->jpeg);
}

/* With `pixels` those of the header's sizes too. */
static lk_status read_jpeg(reading *r, lk_image *header, uint8_t *pixels)
{
    if (setjmp(r->leave))
        return r->status;
    read_header(r, header);
    int components = r->jpeg.num_components;
    if (components != 1 && components != 3 && components != 4)
        return lk__encoded_problem(r->encoded, LK_ERR_FORMAT, "JPEG with %d colour components, expected 1, 3 or 4",
                                   components);
    if (pixels)
        read_pixels(r, header, pixels);
    return LK_OK;
}

static lk_status read_and_free(lk__encoded *encoded, lk_image *header, uint8_t *pixels)
{
    reading r = {.encoded = encoded};
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = stop;
    r.errors.emit_message = warn;
    lk_status status = read_jpeg(&r, header, pixels);
    jpeg_destroy_decompress(&r.jpeg);
    return status;
}

static lk_status examine(lk__encoded *encoded, lk_image *image)
{
    return read_and_free(encoded, image, NULL);
}

static lk_status decode(lk__encoded *encoded, const lk_image *image, uint8_t *pixels)
{
    lk_image header = *image;
    return read_and_free(encoded, &header, pixels);
}

const lk__codec lk__jpeg_codec = {.name = "JPEG", .recognises = recognises, .examine = examine, .decode = decode};

#else

const lk__codec lk__jpeg_codec = {.name = "JPEG", .lacks = "libjpeg", .recognises = recognises};

#endif
